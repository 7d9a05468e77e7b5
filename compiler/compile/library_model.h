/* LibraryModel: a model as a library is made from it, or as one that exists was made.
 *
 * In: a graph as the elaborator made it, with the text and the generate block that it came from. Out: its forms
 * after the passes, and plans of them for an instruction set, which share their packed weights. Refuses ragged sizes
 * of models that write nothing: they are sizes of each row and of each item for the functions that write, and of all
 * rows of a run for forward. */
#ifndef TFM_COMPILE_LIBRARY_H
#define TFM_COMPILE_LIBRARY_H

#include "aot/description.h"
#include "aot/library_file.h"
#include "compile/compile_model.h"
#include "tfm/abi/library.h"

typedef struct LibraryModel {
  Graph *graph;
  Incremental incremental;          /* step NULL: none */
  const tfm_generation *generation; /* NULL: the model doesn't write */
  const char *not_incremental;      /* why it is not, if it writes: "... (model.tfm:3:5, layers.0)" */
  const char *ragged;               /* the length of what it writes, if it was ragged; NULL: it was not */
  const bool *ragged_sources;       /* by the sizes of the graph: others that were; NULL: none */
} LibraryModel;

/* `model` holds graph, which becomes the model's, and generation; the rest is filled in. The report is
 * about the graph, whatever else is derived from it. False after an error. */
bool library_model_make(const CompileRequest *request, LibraryModel *model);
/* For the target of the request. Places in the plans name files from the folder of the model, so that they do not
 * depend on where that lies. False after an error. */
bool library_model_plan(const CompileRequest *request, const LibraryModel *model, LibraryPlans *plans);
/* Plans a library again from its text and its graph, for its first instruction set, with the layout that its weights
 * have; `version` is that of this compiler. The target of the request is not read. False after an error: DIAG_LIBRARY
 * if this compiler lays the weights out in another way. */
bool library_plans_again(const CompileRequest *request, const LibraryFile *library, const ModelText *text, Graph *graph,
                         const char *version, LibraryPlans *plans);

// ---- files of code and weights ----

#define ONE_FILE_ENDING ".tfmm"

/* Whether the path names a .tfmm file, or one that begins like it. Reports nothing. */
bool is_one_file(Arena *arena, const char *path);
/* What the library in a .tfmm file says of itself. NULL after an error: it is damaged, cut off, or of another version
 * of tfmc. The caller closes it. */
LibraryFile *one_file_open(Arena *arena, Diag *diag, const char *path);

// ---- files of weights ----

/* "out/libx.so" and ".h" give "out/x.h"; for /dev/null, which is not replaced, the path itself. */
const char *file_beside(Arena *arena, const char *output, const char *ending);
/* Writes the .tfmw file of a library. False after an error. */
bool library_write_weights(const CompileRequest *request, const LibraryPlans *plans, const char *path,
                           const char *packed);

#endif
