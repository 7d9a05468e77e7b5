/* Runtimes: one archive of objects for each family of CPUs that this tfmc can make libraries for, as the build embedded
 * it (cmake/runtimes.cmake): that of the machine it is built on, and others where a C compiler for them was there.
 *
 * In: a family. Out: the archive, and what it calls of the system's libraries. Refused: a family without one, by the
 * name of the C compiler that was missing. Rows are constants that nobody owns. */
#ifndef TFM_AOT_RUNTIME_ARCHIVES_H
#define TFM_AOT_RUNTIME_ARCHIVES_H

#include <stdbool.h>

#include "base/bytes.h"
#include "diag/diag.h"
#include "tfm/abi/cpu.h"

typedef struct RuntimeArchive {
  Bytes objects;
  /* Name, library and version of each function and object that it takes from the system, as the system's linker bound
   * them; then a row of NULL. */
  const char *const (*outside)[3];
} RuntimeArchive;

/* False, without a message: there is none. */
bool runtime_find(tfm_family family, RuntimeArchive *archive);
/* False after an error. */
bool runtime_of_family(Diag *diag, tfm_family family, RuntimeArchive *archive);

#endif
