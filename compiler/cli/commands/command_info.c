/* tfmc info: what a weight file, a library or this machine is.
 *
 * In: a weight file, a library, packed weights, or nothing. Out: text, or with --json an object. Nothing is executed:
 * a library is read, not loaded (library_info.c). */
#include <string.h>

#include "aot/library_file.h"
#include "aot/packed_weights.h"
#include "aot/runtime_archives.h"
#include "cli/commands/commands.h"
#include "cli/commands/library_info.h"
#include "cli/cli_model.h"
#include "tfm/abi/weights_file.h"
#include "weights/weight_set.h"

// ---- a weight file ----

typedef struct TypeTotal {
  const char *name;
  size_t tensors;
  int64_t elements, bytes;
} TypeTotal;

typedef struct FileTotals {
  VEC(TypeTotal) types; /* in the order in which they appear */
  SpecialCounts special;
} FileTotals;

static void add_type(Arena *arena, FileTotals *totals, const FileTensor *tensor) {
  size_t i = 0;
  while (i < totals->types.n && strcmp(totals->types.items[i].name, tensor->dtype_name) != 0) i++;
  if (i == totals->types.n) vec_push(arena, &totals->types, (TypeTotal){.name = tensor->dtype_name});
  TypeTotal *total = &totals->types.items[i];
  total->tensors++;
  total->elements += tensor->elements;
  total->bytes += tensor->end - tensor->begin;
}

/* Values are counted in the types that can be weights; ids have no special values. */
static bool add_tensor(Session *session, FileTotals *totals, const WeightEntry *entry) {
  SpecialCounts counts;
  add_type(session->arena, totals, entry->tensor);
  if (!can_convert(entry->tensor->dtype, DTYPE_F32)) return true;
  if (!tensor_file_count(entry->file, &session->diag, entry->tensor, &counts)) return false;
  totals->special.nan += counts.nan;
  totals->special.infinite += counts.infinite;
  totals->special.subnormal += counts.subnormal;
  return true;
}

/* False after an error of reading. */
static bool sum_up(Session *session, const WeightSet *set, FileTotals *totals) {
  for (size_t i = 0; i < set->entries.n; i++)
    if (!set->entries.items[i].packed && !add_tensor(session, totals, &set->entries.items[i])) return false;
  return true;
}

/* What a person asks of a file: its tensors, how much of each type, whether anything in it is broken, and its
 * metadata. */
static void print_file(StrBuf *out, const WeightSet *set, const FileTotals *totals) {
  size_t n = 0;
  for (size_t i = 0; i < set->entries.n; i++) n += !set->entries.items[i].packed;
  strbuf_printf(out, "%s: %zu tensor%s in %zu file%s\n", text_shown(out->arena, set->path), n, n == 1 ? "" : "s",
                set->files.n, set->files.n == 1 ? "" : "s");
  for (size_t i = 0; i < set->entries.n; i++) {
    const FileTensor *tensor = set->entries.items[i].tensor;
    if (set->entries.items[i].packed) continue; /* the file has its parts */
    strbuf_printf(out, "  %-4s ", text_shown(out->arena, tensor->dtype_name));
    strbuf_add_quoted(out, tensor->name);
    strbuf_add_char(out, ' ');
    print_dims(out, tensor->dims, tensor->rank);
    strbuf_add_char(out, '\n');
  }
  for (size_t i = 0; i < totals->types.n; i++) {
    const TypeTotal *total = &totals->types.items[i];
    strbuf_printf(out, "%s: %zu tensor%s, %lld element%s, %lld byte%s\n", total->name, total->tensors,
                  total->tensors == 1 ? "" : "s", (long long)total->elements, total->elements == 1 ? "" : "s",
                  (long long)total->bytes, total->bytes == 1 ? "" : "s");
  }
  strbuf_printf(out, "special values: %lld NaN, %lld infinite, %lld subnormal\n", (long long)totals->special.nan,
                (long long)totals->special.infinite, (long long)totals->special.subnormal);
  for (size_t f = 0; f < set->files.n; f++)
    for (size_t i = 0; i < set->files.items[f]->metadata.n; i++) {
      strbuf_add(out, "metadata ");
      strbuf_add_quoted(out, set->files.items[f]->metadata.items[i].key);
      strbuf_add(out, ": ");
      strbuf_add_quoted(out, set->files.items[f]->metadata.items[i].value);
      strbuf_add_char(out, '\n');
    }
}

static void print_file_json(StrBuf *out, const WeightSet *set, const FileTotals *totals) {
  size_t n = 0;
  strbuf_add(out, "{\"tensors\": [");
  for (size_t i = 0; i < set->entries.n; i++) {
    const FileTensor *tensor = set->entries.items[i].tensor;
    if (set->entries.items[i].packed) continue; /* the file has its parts */
    strbuf_add(out, n++ ? ", {\"name\": " : "{\"name\": ");
    strbuf_add_json(out, tensor->name);
    strbuf_add(out, ", \"dtype\": ");
    strbuf_add_json(out, tensor->dtype_name);
    strbuf_add(out, ", \"shape\": ");
    print_dims(out, tensor->dims, tensor->rank);
    strbuf_add_char(out, '}');
  }
  strbuf_printf(out, "], \"nan\": %lld, \"infinite\": %lld, \"subnormal\": %lld}\n", (long long)totals->special.nan,
                (long long)totals->special.infinite, (long long)totals->special.subnormal);
}

static void tell_file(Session *session, StrBuf *out, const char *path) {
  WeightSet *set = weight_set_open(session->arena, &session->diag, path);
  FileTotals totals = {0};
  if (set && sum_up(session, set, &totals)) {
    if (option_given(&session->options, OPTION_JSON)) print_file_json(out, set, &totals);
    else print_file(out, set, &totals);
  }
  weight_set_close(set);
}

// ---- packed weights ----

/* Checks the whole file, not only its header: "whole" is what the user wants to know. */
static void tell_packed(Session *session, StrBuf *out, const char *path) {
  tfm_weights_header header;
  tfm_error error;
  if (tfm_weights_file_check(path, &header, &error) != TFM_OK) {
    diag_error_at(&session->diag, NULL, DIAG_LIBRARY, "%s", error.message); /* names the file */
    return;
  }
  const char *layout = layout_text(session->arena, header.layout),
             *content = layout_text(session->arena, header.content);
  const char *model = arena_strndup(session->arena, header.model, strnlen(header.model, sizeof header.model));
  unsigned long long bytes = header.bytes;
  if (option_given(&session->options, OPTION_JSON)) {
    strbuf_add(out, "{\"model\": ");
    strbuf_add_json(out, model);
    strbuf_printf(out, ", \"weights_bytes\": %llu, \"layout\": \"%s\", \"content\": \"%s\"}\n", bytes, layout, content);
    return;
  }
  strbuf_printf(out, "%s: packed weights of the model %s, whole\n%llu bytes, layout %s, content %s\n",
                text_shown(out->arena, path), text_shown(out->arena, model), bytes, layout, content);
}

// ---- the machine ----

/* Of libraries: the families of CPUs that this tfmc holds a runtime for, and the others. */
static void print_families(StrBuf *out) {
  const char *before = "libraries for: ";
  RuntimeArchive runtime;
  for (const FamilyInfo *family = cpu_families; family->family != TFM_FAMILY_ANY; family++)
    if (runtime_find(family->family, &runtime)) {
      strbuf_printf(out, "%s%s", before, family->triple);
      before = ", ";
    }
  strbuf_add_char(out, '\n');
  for (const FamilyInfo *family = cpu_families; family->family != TFM_FAMILY_ANY; family++)
    if (!runtime_find(family->family, &runtime))
      strbuf_printf(out, "no runtime for %s: %s-gcc was missing when this tfmc was built\n", family->triple,
                    family->triple);
}

static void tell_machine(Session *session, StrBuf *out) {
  HostInfo host = host_info(session->arena);
  if (option_given(&session->options, OPTION_JSON)) {
    strbuf_add(out, "{\"version\": \"" TFM_VERSION "\", \"cpu\": ");
    strbuf_add_json(out, host.cpu);
    strbuf_printf(out, ", \"march\": \"%s\", \"cpus\": %d}\n", host.target->name, host.cpus);
    return;
  }
  strbuf_printf(out, "tfmc " TFM_VERSION "\nCPU: %s\n", host.cpu);
  strbuf_printf(out, "code for it: -march=%s, %u floats a register\n", host.target->name, host.target->vector_floats);
  strbuf_printf(out, "CPUs: %d\n", host.cpus);
  print_families(out);
  for (const TargetInfo *target = targets; target->name; target++)
    if (host_missing(out->arena, target))
      strbuf_printf(out, "-march=%s cannot run here: %s\n", target->name, host_missing(out->arena, target));
}

void command_info(Session *session) {
  StrBuf text = strbuf_new(session->arena);
  const char *path = session->options.files.n ? session->options.files.items[0] : NULL;
  if (path && names_library(session, path)) tell_library(session, &text, path);
  else if (path && is_packed_file(session->arena, path)) tell_packed(session, &text, path);
  else if (path) tell_file(session, &text, path);
  else tell_machine(session, &text);
  session_print(&text);
}
