/* Account: every key and every tensor of a folder is read, known to change nothing, or an error that names it.
 *
 * In: the family's block, the folder, what the model reads. Out: errors. Known to change nothing are the keys of
 * ignored_keys.def and of the block's `ignore`, the tensors of buffers.def, copies, heads that are left out, and what
 * the user says. */
#ifndef TFM_IMPORT_ACCOUNT_H
#define TFM_IMPORT_ACCOUNT_H

#include "import/family.h"
#include "import/folder.h"

/* Adds an error for each key of config.json that the block does not name and that is not known to change nothing. */
void account_for_keys(Arena *arena, Diag *diag, const Family *family, const Folder *folder);

/* Adds the keys of dropouts above 0 that training would have and the family's text has none for:
 * "a = 0.1, b.c = 0.2". */
void account_lacking_dropouts(StrBuf *out, const Family *family, const Folder *folder);

typedef struct TensorUse {
  const Map *used;      /* names that the model reads */
  const Map *copies;    /* tensors that are copies of others */
  const Map *of_others; /* names that it reads for its other tasks; NULL: it is not known */
  bool head_is_stated;  /* the class or the user says what the checkpoint is for, so other heads may be left out */
} TensorUse;

/* Whether a tensor must be asked about in `of_others`. */
bool has_unread_tensors(Arena *arena, const Family *family, const Folder *folder, const TensorUse *use);
/* Adds an error that names the tensors which the model does not read, if they are not known to change nothing. */
void account_for_tensors(Arena *arena, Diag *diag, const Family *family, const Folder *folder, const TensorUse *use);

#endif
