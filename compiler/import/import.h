/* Import: from the folder of a checkpoint to the text of its model.
 *
 * In: a folder, options, the family. Out: a .tfm file that people can read: the family's text with the checkpoint's
 * values as the defaults of its model. Nothing in the folder is passed over: every key of its files of JSON and every
 * tensor is read, is known to change nothing, or is an error that names it. */
#ifndef TFM_IMPORT_IMPORT_H
#define TFM_IMPORT_IMPORT_H

#include "import/expression.h"
#include "import/family.h"
#include "import/folder.h"

typedef struct ImportOptions {
  const char *task;    /* in place of what the block chooses; NULL: not given */
  bool is_strict;      /* keys that are missing, so that a default stays, are errors */
  const char *version; /* of tfmc, for the head of the text */
} ImportOptions;

typedef struct ImportValues {
  const Family *family;
  json_t **of_params; /* for each parameter of the model; NULL: its default stays */
  json_t *owned;      /* an array with what was computed */
  const char *lacking; /* the keys that would decide values, but are missing: "\"a\", \"b.c\"", or "" */
  Map copies;          /* tensors that `same` found to be copies of others */
} ImportValues;

/* What can be said without the weights: the class, the task, the keys, the conditions that need no weights. False
 * after an error. */
bool import_check(Arena *arena, Diag *diag, const Family *family, const Folder *folder, const ImportOptions *options);
/* Behind what is wrong with a folder: which family of models/ that is, and what else takes the folder. Adds nothing
 * where nothing is wrong, or the family is the user's. */
void import_note_family(Diag *diag, const Family *family);
/* What the family's block makes of the checkpoint. False after an error; either way json_decref(values->owned). */
bool import_evaluate(Arena *arena, Diag *diag, const Family *family, const Folder *folder, const ImportOptions *options,
                     ImportValues *values);
/* The text of the model with these values. */
void import_write(StrBuf *out, const ImportValues *values, const Folder *folder, const ImportOptions *options);

/* The value of the parameter `task`, "": the model has none. */
const char *import_task(const ImportValues *values);
/* The same values with another task; what it returns lives as long as `values`. */
ImportValues import_with_task(Arena *arena, const ImportValues *values, const char *task);

#endif
