/* In: what the build embedded. Out: the archive of a family. See runtime_archives.h. */
#include "aot/runtime_archives.h"

#include <stddef.h>

#include "target/target.h"

#define RUNTIME(family)                                                      \
  extern const char tfm_runtime_##family[], tfm_runtime_##family##_end[];    \
  extern const char *const tfm_outside_##family[][3];
#include "runtime_archives.def"
#undef RUNTIME

static const struct {
  tfm_family family;
  const char *begin, *end;
  const char *const (*outside)[3];
} rows[] = {
#define RUNTIME(family) \
  {TFM_FAMILY_##family, tfm_runtime_##family, tfm_runtime_##family##_end, tfm_outside_##family},
#include "runtime_archives.def"
};

bool runtime_find(tfm_family family, RuntimeArchive *archive) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (rows[i].family != family) continue;
    *archive = (RuntimeArchive){{rows[i].begin, (size_t)(rows[i].end - rows[i].begin)}, rows[i].outside};
    return true;
  }
  return false;
}

bool runtime_of_family(Diag *diag, tfm_family family, RuntimeArchive *archive) {
  const char *triple = family_info(family)->triple;
  if (runtime_find(family, archive)) return true;
  const bool is_module = family_makes_modules(family);
  diag_error_at(diag, NULL, DIAG_TOOL, "this tfmc holds no runtime for %s: %s%s was missing when it was built", triple,
                is_module ? "a clang for " : triple, is_module ? triple : "-gcc");
  return false;
}
