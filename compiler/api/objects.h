/* Objects: machine code from relocatable object files, put into the memory of this process.
 *
 * In: objects of this machine's kind, as the code generator makes them (ELF), in memory. Out: their sections, linked
 * with each other and with functions of this library; code can be executed and not written, all else can be read only.
 * No page is ever writable and executable at once. Nothing of the files is believed: every offset, index and kind of
 * relocation is checked, and what is not known is refused. */
#ifndef TFM_API_OBJECTS_H
#define TFM_API_OBJECTS_H

#include <stdbool.h>
#include <stddef.h>

#include "tfm/tfm.h"

typedef struct Object {
  const char *data; /* 8-byte aligned */
  size_t size;
} Object;

typedef void (*AnyFunction)(void);

typedef struct OutsideFunction { /* that objects may call */
  const char *name;
  AnyFunction address;
} OutsideFunction;

typedef struct OutsideFunctions {
  const OutsideFunction *items;
  size_t n;
} OutsideFunctions;

typedef struct LoadedCode {
  char *memory;
  size_t size;
  AnyFunction entry; /* the function `symbol` */
} LoadedCode;

/* Links n objects and finds the function `symbol` in them. `outside` are the functions that they may call and do not
 * define. The objects are not needed afterwards. After an error (TFM_E_INTERNAL: malformed or unknown; TFM_E_NOMEM;
 * TFM_E_ENV: the system forbids generated code) there is nothing to unload. */
tfm_status objects_load(const Object *objects, size_t n, OutsideFunctions outside, const char *symbol, LoadedCode *code,
                        tfm_error *error);
/* No thread may be in the code, and no pointer into it may be used afterwards. */
void objects_unload(LoadedCode *code);

#endif
