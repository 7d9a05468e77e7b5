#include "elaborate/torch_names.h"

#include <stddef.h>
#include <string.h>

typedef struct TorchName {
  const char *name, *hint;
} TorchName;

static const TorchName names[] = {
#define TORCH_NAME(name, hint) {name, hint},
#define TORCH_ARGUMENT(name, hint)
#include "elaborate/torch_names.def"
};

static const TorchName arguments[] = {
#define TORCH_NAME(name, hint)
#define TORCH_ARGUMENT(name, hint) {name, hint},
#include "elaborate/torch_names.def"
};

static const char *find(const TorchName *table, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(table[i].name, name) == 0) return table[i].hint;
  return NULL;
}

const char *torch_name_hint(const char *name) { return find(names, sizeof names / sizeof *names, name); }

const char *torch_argument_hint(const char *name) { return find(arguments, sizeof arguments / sizeof *arguments, name); }
