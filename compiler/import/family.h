/* Family: a .tfm file that says by a `checkpoint` block which checkpoints its model is for.
 *
 * In: the files of models/, which are part of the program, or one of the user's, with what they include. Out: its block
 * and its model, checked. Blocks of included files add their entries, unless the family's own block decides the same.
 * Refused: types that no file names, files without a block or with two models, lists that a block does not have,
 * parameters that the block sets and nothing reads. */
#ifndef TFM_IMPORT_FAMILY_H
#define TFM_IMPORT_FAMILY_H

#include "import/folder.h"
#include "parse/include.h"

typedef struct Family {
  const ParsedProgram *program; /* the family's file is the last one */
  Source *source;               /* of that file */
  const Ast *checkpoint, *model;
  bool is_embedded; /* of models/, not of the user */
} Family;

/* The family of a folder: that of the file `path`, or one of models/ (path NULL): of those for its model_type the one
 * that computes its class, else the first. NULL after an error; a folder without a model_type is one unless a file is
 * given. */
Family *family_choose(Arena *arena, Map *names, Diag *diag, const Folder *folder, const char *path);
bool family_is_for(const Family *family, const char *type);
/* Those of models/, but for parts that others include. */
typedef VEC(Family *) Families;
Families families_embedded(Arena *arena, Map *names);

/* The texts of a list of the block: "classes" (what stands behind the model's name in the names of the classes that the
 * family computes), "unused" (patterns of the names of tensors that none of them reads) or "needed" (keys that may be
 * missing, but not null). */
typedef VEC(const char *) Texts;
Texts family_texts(Arena *arena, const Family *family, const char *list);
/* Puts settings that config.json has under another name of theirs, by the lists "spellings" of the block, under the
 * first one: transformers takes `num_hidden_layers` of a GPT-2 for its `n_layer`. Two that contradict each other are an
 * error. */
void family_join_spellings(Diag *diag, const Family *family, const Folder *folder);
/* The values that the model compares its parameter `task` with: the tasks that it has. */
Texts family_tasks(Arena *arena, const Family *family);
/* Whether it has a `generate` block. */
bool family_writes(const Family *family);
/* The index of a parameter of the model, -1: it has none of that name. */
int family_param(const Family *family, const char *name);

/* Adds an error for each parameter of the model that the block sets, but that nothing reads, and for each parameter of
 * a layer that nothing in the layer reads. `file`: all layers of the family, included ones too. */
void unread_params_check(Arena *arena, Diag *diag, const Family *family, const Ast *file);

#endif
