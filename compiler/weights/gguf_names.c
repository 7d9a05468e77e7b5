/* In: names of GGUF. Out: names of PyTorch. See gguf_names.h. */
#include "weights/gguf_names.h"

#include <stdlib.h>
#include <string.h>

enum { NO, HEADS, KV_HEADS };

typedef struct NameRow {
  const char *gguf, *pytorch;
  int turned;
} NameRow;

static const NameRow names[] = {
#define GGUF_NAME(gguf, pytorch, turned) {gguf, pytorch, turned},
#include "weights/gguf_names.def"
};

static const GgufArchitecture architectures[] = {
#define GGUF_ARCHITECTURE(name, type, class, turned) {name, type, class, turned},
#include "weights/gguf_names.def"
};

enum { N_NAMES = sizeof names / sizeof *names, N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

const GgufArchitecture *gguf_architecture(const TensorFile *file) {
  const char *name = tensor_file_metadata(file, "general.architecture");
  for (int i = 0; name && i < N_ARCHITECTURES; i++)
    if (strcmp(architectures[i].name, name) == 0) return &architectures[i];
  return NULL;
}

const char *gguf_architectures(Arena *arena) {
  StrBuf out = strbuf_new(arena);
  for (int i = 0; i < N_ARCHITECTURES; i++) strbuf_printf(&out, "%s%s", i ? ", " : "", architectures[i].name);
  return out.text;
}

/* The name of PyTorch, if the name of GGUF without its ending is that of the row; NULL: it is another. */
static const char *translated(Arena *arena, const NameRow *row, const char *name, size_t length) {
  const char *star = strchr(row->gguf, '*');
  if (!star) return strlen(row->gguf) == length && strncmp(row->gguf, name, length) == 0 ? row->pytorch : NULL;
  const size_t before = (size_t)(star - row->gguf);
  if (length <= before || strncmp(row->gguf, name, before) != 0) return NULL;
  const size_t digits = strspn(name + before, "0123456789"), after = strlen(star + 1);
  if (!digits || length != before + digits + after) return NULL;
  if (strncmp(name + before + digits, star + 1, after) != 0) return NULL;
  const char *place = strchr(row->pytorch, '*');
  return arena_printf(arena, "%.*s%.*s%s", (int)(place - row->pytorch), row->pytorch, (int)digits, name + before,
                      place + 1);
}

/* How many heads the rows of q or k belong to. 0: the metadata do not say it, or the rows are not so many whole pairs;
 * then the tensor has no name in PyTorch, and what asks for it says that it is missing. */
static int64_t heads_of(Arena *arena, const TensorFile *file, const FileTensor *tensor, int turned) {
  const char *architecture = gguf_architecture(file)->name;
  const char *key = arena_printf(arena, "%s.attention.head_count", architecture);
  const char *said = turned == KV_HEADS ? tensor_file_metadata(file, arena_printf(arena, "%s_kv", key)) : NULL;
  if (!said) said = tensor_file_metadata(file, key);
  const int64_t heads = said ? strtoll(said, NULL, 10) : 0;
  const bool is_whole = heads > 0 && tensor->rank > 0 && tensor->dims[0] > 0 && tensor->dims[0] % heads == 0;
  return is_whole && tensor->dims[0] / heads % 2 == 0 ? heads : 0;
}

bool gguf_name_in_pytorch(Arena *arena, const TensorFile *file, const FileTensor *tensor, GgufName *name) {
  const GgufArchitecture *architecture = gguf_architecture(file);
  const char *ending = strrchr(tensor->name, '.');
  if (!architecture || !ending || (strcmp(ending, ".weight") != 0 && strcmp(ending, ".bias") != 0)) return false;
  for (int i = 0; i < N_NAMES; i++) {
    const char *stem = translated(arena, &names[i], tensor->name, (size_t)(ending - tensor->name));
    if (!stem) continue;
    *name = (GgufName){.text = arena_printf(arena, "%s%s", stem, ending)};
    if (architecture->turns_rows && names[i].turned) {
      name->turned_heads = heads_of(arena, file, tensor, names[i].turned);
      return name->turned_heads != 0;
    }
    return true;
  }
  return false;
}
