/* In: a name of PyTorch that a model uses. Out: what to write instead (torch_names.def). See primitives.h. */
#include <stddef.h>
#include <string.h>

#include "elaborate/primitives.h"

typedef struct TorchName {
  const char *name, *hint;
} TorchName;

static const TorchName torch_names[] = {
#define TORCH_NAME(name, hint) {name, hint},
#define TORCH_ARGUMENT(name, hint)
#include "elaborate/torch_names.def"
    {NULL, NULL},
};

static const TorchName torch_arguments[] = {
#define TORCH_NAME(name, hint)
#define TORCH_ARGUMENT(name, hint) {name, hint},
#include "elaborate/torch_names.def"
    {NULL, NULL},
};

/* The row of a name in a table that ends with NULL. */
static const char *hint_of(const TorchName *row, const char *name) {
  while (row->name && strcmp(row->name, name) != 0) row++;
  return row->hint;
}

const char *torch_name_hint(const char *name) { return hint_of(torch_names, name); }

const char *torch_argument_hint(const char *name) { return hint_of(torch_arguments, name); }
