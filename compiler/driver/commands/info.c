/* tfmc info: what this machine is, what a weight file holds, or what a compiled library says of itself. */
#include <string.h>

#include "aot/library_file.h"
#include "aot/packed_weights.h"
#include "driver/commands/commands.h"
#include "driver/host.h"
#include "driver/info_library.h"
#include "weights/weight_set.h"

// ---- a weight file ----

typedef struct TypeTotal {
  const char *name;
  size_t tensors;
  int64_t elements, bytes;
} TypeTotal;

typedef struct FileTotals {
  VEC(TypeTotal) types; /* in the order in which they appear */
  StCounts special;
} FileTotals;

static void add_type(Arena *arena, FileTotals *totals, const StTensor *tensor) {
  size_t i = 0;
  while (i < totals->types.n && strcmp(totals->types.items[i].name, tensor->dtype_name) != 0) i++;
  if (i == totals->types.n) vec_push(arena, &totals->types, (TypeTotal){.name = tensor->dtype_name});
  TypeTotal *total = &totals->types.items[i];
  total->tensors++;
  total->elements += tensor->elements;
  total->bytes += tensor->end - tensor->begin;
}

static bool add_tensor(Session *session, FileTotals *totals, const WeightEntry *entry) {
  StCounts counts;
  add_type(session->arena, totals, entry->tensor);
  if (!can_convert(entry->tensor->dtype, DTYPE_F32)) return true;
  if (!safetensors_count(entry->file, &session->diag, entry->tensor, &counts)) return false;
  totals->special.nan += counts.nan;
  totals->special.infinite += counts.infinite;
  totals->special.subnormal += counts.subnormal;
  return true;
}

static bool sum_up(Session *session, const WeightSet *set, FileTotals *totals) {
  for (size_t i = 0; i < set->entries.n; i++)
    if (!add_tensor(session, totals, &set->entries.items[i])) return false;
  return true;
}

static void print_file(StrBuf *out, const WeightSet *set, const FileTotals *totals) {
  strbuf_printf(out, "%s: %zu tensors in %zu file%s\n", set->path, set->entries.n, set->files.n,
                set->files.n == 1 ? "" : "s");
  for (size_t i = 0; i < set->entries.n; i++) {
    const StTensor *tensor = set->entries.items[i].tensor;
    strbuf_printf(out, "  %-4s ", tensor->dtype_name);
    strbuf_add_quoted(out, tensor->name);
    strbuf_add_char(out, ' ');
    print_dims(out, tensor->dims, tensor->rank);
    strbuf_add_char(out, '\n');
  }
  for (size_t i = 0; i < totals->types.n; i++) {
    const TypeTotal *total = &totals->types.items[i];
    strbuf_printf(out, "%s: %zu tensors, %lld elements, %lld bytes\n", total->name, total->tensors,
                  (long long)total->elements, (long long)total->bytes);
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
  strbuf_add(out, "{\"tensors\": [");
  for (size_t i = 0; i < set->entries.n; i++) {
    const StTensor *tensor = set->entries.items[i].tensor;
    strbuf_add(out, i ? ", {\"name\": " : "{\"name\": ");
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

// ---- the machine ----

static void tell_machine(Session *session, StrBuf *out) {
  HostInfo host = host_info(session->arena);
  if (option_given(&session->options, OPTION_JSON)) {
    strbuf_add(out, "{\"version\": \"" TFM_VERSION "\", \"cpu\": ");
    strbuf_add_json(out, host.cpu);
    strbuf_printf(out, ", \"march\": \"%s\", \"cpus\": %d}\n", host.target->name, host.cpus);
    return;
  }
  strbuf_printf(out, "tfmc " TFM_VERSION "\nCPU: %s\ncode for it: -march=%s, %u floats a register\nCPUs: %d\n", host.cpu,
                host.target->name, host.target->vector_floats, host.cpus);
  for (const TargetInfo *target = targets; target->name; target++)
    if (host_missing(target))
      strbuf_printf(out, "-march=%s cannot run here: the CPU lacks %s\n", target->name, host_missing(target));
}

void command_info(Session *session) {
  StrBuf text = strbuf_new(session->arena);
  const char *path = session->options.files.n ? session->options.files.items[0] : NULL;
  if (path && is_elf_file(session->arena, path)) tell_library(session, &text, path);
  else if (path && is_packed_file(session->arena, path)) tell_packed(session, &text, path);
  else if (path) tell_file(session, &text, path);
  else tell_machine(session, &text);
  session_print(&text);
}
