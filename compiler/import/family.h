/* Family: a .tfm file that says by a `checkpoint` block which checkpoints its model is for.
 *
 * In: the name of a model type as config.json has it, or a file of the user's. Out: its text and tree. The files of
 * models/ are part of the program. Refused: types that no file names, files without a block or with two models. */
#ifndef TFM_IMPORT_FAMILY_H
#define TFM_IMPORT_FAMILY_H

#include "parse/include.h"

typedef struct Family {
  Source *source;
  const Ast *checkpoint, *model;
} Family;

/* The family of a type: that of the file `path`, or one of models/ (path NULL). NULL after an error; `type` may be
 * NULL, which is an error unless a file is given. `place`: the config.json, for messages. */
Family *family_choose(Arena *arena, Map *names, Diag *diag, const char *type, const char *path, const char *place);
/* A line for each file of models/: its name and the types. */
void family_list(Arena *arena, StrBuf *out);

#endif
