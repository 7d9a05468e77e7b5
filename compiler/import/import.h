/* Import: from the folder of a checkpoint to the text of its model.
 *
 * In: a folder, options, the family. Out: a .tfm file that people can read: the family's text with the checkpoint's
 * values as the defaults of its model. Every key of config.json is read by the family's block, ignored by name, or
 * reported. */
#ifndef TFM_IMPORT_IMPORT_H
#define TFM_IMPORT_IMPORT_H

#include "import/folder.h"
#include "parse/include.h"

/* A .tfm file that says by a `checkpoint` block which checkpoints its model is for. The files of models/ are part of
 * the program. Refused: types that no file names, files without a block or with two models. */
typedef struct Family {
  Source *source;
  const Ast *checkpoint, *model;
} Family;

/* The family of a type: that of the file `path`, or one of models/ (path NULL). NULL after an error; `type` may be
 * NULL, which is an error unless a file is given. `place`: the config.json, for messages. */
Family *family_choose(Arena *arena, Map *names, Diag *diag, const char *type, const char *path, const char *place);
/* A line for each file of models/: its name and the types. */
void family_list(Arena *arena, StrBuf *out);

typedef struct ImportOptions {
  const char *task;    /* in place of what the block chooses; NULL: not given */
  bool is_strict;      /* keys that nobody knows are errors */
  const char *version; /* of tfmc, for the head of the text */
} ImportOptions;

typedef struct ImportValues {
  const Family *family;
  json_t **of_params; /* for each parameter of the model; NULL: its default stays */
  json_t *owned;      /* an array with what was computed */
  const char *lacking; /* the keys that would decide values, but are missing: "\"a\", \"b.c\"", or "" */
} ImportValues;

/* What the family's block makes of the checkpoint. False after an error; either way json_decref(values->owned). */
bool import_evaluate(Arena *arena, Diag *diag, const Family *family, const Folder *folder, const ImportOptions *options,
                     ImportValues *values);
/* The text of the model with these values. */
void import_write(StrBuf *out, const ImportValues *values, const Folder *folder, const ImportOptions *options);

#endif
