/* In: a model and the tensors of a weight file. Out: messages about every weight that is missing, has another shape
 * or type, or is not finite, and warnings about tensors that look forgotten. All of it is listed, not only the first:
 * whoever converts weights mends a dozen names at a time. */
#include <string.h>

#include "engines/weight_prefixes.h"

// ---- what a model needs ----

/* Marks backwards from the outputs; the list of nodes is in topological order, so one pass suffices. Renumbers,
 * because ids are indices here. */
NodeList needed_weights(Arena *arena, Graph *graph) {
  graph_renumber(graph);
  bool *needed = ARENA_ARRAY(arena, bool, graph_count(graph));
  for (size_t i = 0; i < graph->outputs.n; i++) needed[graph->outputs.items[i].node->id] = true;
  for (const Node *node = graph->last; node; node = node->prev)
    for (size_t i = 0; needed[node->id] && i < node->inputs.n; i++) needed[node->inputs.items[i]->id] = true;
  NodeList list = {0};
  for (Node *node = graph->first; node; node = node->next)
    if (node->op == OP_WEIGHT && needed[node->id]) vec_push(arena, &list.nodes, node);
  return list;
}

// ---- the comparison ----

typedef struct Comparison {
  const WeightCheck *check;
  Graph *graph;
  const WeightSet *set;
  const char **names; /* of the file, for "did you mean": those that the model does not ask for */
  size_t n_names;
  const WeightPrefixes *prefixes;
} Comparison;

static void static_dims(const Node *node, int64_t dims[MAX_RANK]) {
  for (uint32_t i = 0; i < node->rank; i++) size_is_const(node->dims[i], &dims[i]);
}

// ---- one weight ----

/* The file may have it below other modules, or the name may be a slip of the pen. */
static const char *missing_hint(const Comparison *c, const char *name) {
  const char *elsewhere = weight_prefixes_hint(c->prefixes, name);
  if (elsewhere) return elsewhere;
  const char *nearest = diag_nearest(name, c->names, c->n_names);
  if (nearest) return arena_printf(c->check->arena, ", but \"%s\"; is the model's name misspelt?", nearest);
  return "";
}

/* Whether the last two axes are swapped, as in files of frameworks whose linear layers store [in, out]. */
static bool is_transposed(const FileTensor *tensor, const int64_t *dims, uint32_t rank) {
  if (tensor->rank != rank || rank < 2) return false;
  for (uint32_t i = 0; i + 2 < rank; i++)
    if (tensor->dims[i] != dims[i]) return false;
  return tensor->dims[rank - 1] == dims[rank - 2] && tensor->dims[rank - 2] == dims[rank - 1];
}

static void check_shape(const Comparison *c, const Node *node, const WeightEntry *entry) {
  int64_t dims[MAX_RANK];
  static_dims(node, dims);
  const FileTensor *tensor = entry->tensor;
  const size_t bytes = node->rank * sizeof *dims; /* 0 of a number, whose dims are NULL */
  if (tensor->rank == node->rank && (!bytes || memcmp(tensor->dims, dims, bytes) == 0)) return;
  StrBuf found = strbuf_new(c->check->arena), wanted = strbuf_new(c->check->arena);
  print_dims(&found, tensor->dims, tensor->rank);
  print_dims(&wanted, dims, node->rank);
  diag_error_at(c->check->diag, entry->file->file.path, DIAG_WEIGHT_SHAPE,
                "tensor \"%s\": shape %s, the model wants %s%s", tensor->name, found.text, wanted.text,
                is_transposed(tensor, dims, node->rank) ? " (transposed?)" : "");
  diag_note(c->check->diag, origin_place(&node->origin), "the weight is declared here");
}

static void check_finite(const Comparison *c, const WeightEntry *entry) {
  SpecialCounts counts;
  SpecialCounts of_scale = {0};
  if (!c->check->rejects_nonfinite) return;
  const PackedPart *scales = entry->packed ? &entry->packed->parts[PACKED_SCALES] : NULL;
  if (scales && !can_convert(scales->tensor->dtype, DTYPE_F32)) return; /* powers of two, which are checked when read */
  if (!tensor_file_count(scales ? scales->file : entry->file, c->check->diag, scales ? scales->tensor : entry->tensor,
                         &counts))
    return;
  if (entry->scale && !tensor_file_count(entry->scale->file, c->check->diag, entry->scale->tensor, &of_scale)) return;
  counts.nan += of_scale.nan;
  counts.infinite += of_scale.infinite;
  if (!counts.nan && !counts.infinite) return;
  diag_error_at(c->check->diag, entry->file->file.path, DIAG_NONFINITE,
                "tensor \"%s\": %lld NaN and %lld infinite values", entry->tensor->name, (long long)counts.nan,
                (long long)counts.infinite);
}

/* Of two weights that are tied a checkpoint keeps one, mostly the embedding's. Returns a table in the file that has the
 * shape of the missing weight, or NULL. */
static const Node *tied_table(const Comparison *c, const Node *missing) {
  for (const Node *node = c->graph->first; node; node = node->next) {
    if (node->op != OP_GATHER) continue;
    const Node *table = node->inputs.items[0];
    if (table->op == OP_WEIGHT && table != missing && node_same_shape(table, missing) &&
        weight_set_find(c->set, table->attr.name))
      return table;
  }
  return NULL;
}

static void report_missing(const Comparison *c, const Node *node) {
  Diag *diag = c->check->diag;
  diag_error_at(diag, c->set->path, DIAG_WEIGHT_MISSING, "there is no tensor \"%s\"%s", node->attr.name,
                missing_hint(c, node->attr.name));
  diag_note(diag, origin_place(&node->origin), "the weight is declared here");
  const Node *table = tied_table(c, node);
  if (table)
    diag_note(diag, origin_place(&table->origin),
              "\"%s\" has its shape; if the two are tied, use this one: linear(x, EMBEDDING.weight)", table->attr.name);
}

enum { BLOCK_OF_Q4_0 = 32 };

/* What is merged is f32. */
Stored weight_entry_stored(const WeightEntry *entry) {
  if (entry->delta) return STORED_ANY;
  if (entry->packed && entry->packed->config.method == PACKED_MXFP4) return STORED_MXFP4;
  const int64_t of_file = entry->tensor->dtype == FILE_Q4_0 ? BLOCK_OF_Q4_0 : 1;
  const int64_t group = entry->packed ? entry->packed->whole_groups : of_file;
  switch (entry->tensor->dtype) {
    case FILE_BF16: return stored_in_groups(TFM_FORM_BF16, group);
    case FILE_F16: return stored_in_groups(TFM_FORM_F16, group);
    case FILE_Q4_0: return stored_in_groups(TFM_FORM_F32, group);
    default: return STORED_ANY;
  }
}

/* What a library keeps in fewer bits is not rounded to them. */
static void check_stored(const Comparison *c, const Node *node, const WeightEntry *entry) {
  const Stored stored = node->attr.stored;
  if (stored == STORED_ANY || stored == STORED_F32 || weight_entry_stored(entry) == stored) return;
  diag_error_at(c->check->diag, entry->file->file.path, DIAG_WEIGHT_DTYPE,
                "tensor \"%s\": type %s; the library keeps it in the %s of the file that it was compiled with: compile "
                "it with this file, or with --quantize=f32",
                entry->tensor->name, entry->tensor->dtype_name, stored_table[stored].title);
}

/* What a weight may be, and how it becomes so. */
static const char *readable_types(const WeightEntry *entry) {
  if (entry->file->is_gguf)
    return "of GGUF, F32, F16, BF16, Q4_0 to Q8_0 and Q2_K to Q6_K are read; `llama-quantize --allow-requantize FILE "
           "NEW_FILE Q8_0` writes such";
  return entry->fault ? entry->fault : "a weight is F32, F16, BF16 or F8_E4M3, or I8 of two axes with a scale";
}

static void check_weight(const Comparison *c, const Node *node) {
  const WeightEntry *entry = weight_set_find(c->set, node->attr.name);
  Diag *diag = c->check->diag;
  if (!entry) {
    report_missing(c, node);
    return;
  }
  if (!weight_entry_is_readable(entry)) {
    diag_error_at(diag, entry->file->file.path, DIAG_WEIGHT_DTYPE, "tensor \"%s\": type %s; %s", entry->tensor->name,
                  entry->tensor->dtype_name, readable_types(entry));
    diag_note(diag, origin_place(&node->origin), "the weight is declared here");
    return;
  }
  check_stored(c, node, entry);
  check_shape(c, node, entry);
  check_finite(c, entry);
}

// ---- what the model does not have ----

/* The paths of the model's modules, each with a dot at the end. The modules of --weights-prefix are not the model's:
 * nothing is said about what else lies below them. */
static Map module_paths(const Comparison *c) {
  const char *prefix = c->check->prefix;
  size_t skipped = strlen(prefix);
  Map paths = map_new(c->check->arena);
  for (size_t i = 0; i < c->graph->declared_weights.n; i++) {
    const char *name = c->graph->declared_weights.items[i].key;
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
      size_t length = (size_t)(dot - name) + 1;
      if (length > skipped) map_put_n(&paths, name, length, NULL);
    }
  }
  return paths;
}

static bool is_below(const Map *paths, const char *name) {
  for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.'))
    if (map_find(paths, name, (size_t)(dot - name) + 1)) return true;
  return false;
}

/* What stands for hidden squares while an encoder of images is trained; nothing else ever reads it. */
static bool is_of_training(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot && strcmp(dot + 1, "mask_token") == 0;
}

/* A tower for pictures or sounds beside a model of text, in which the model declares nothing: the first module of the
 * name that is none of the model's. */
static bool is_of_tower(const Map *paths, const char *name) {
  static const char *const towers[] = {"visual.", "vision_tower.", "vision_model.", "audio_tower.",
                                       "embed_vision.", "embed_audio.", "multi_modal_projector."};
  const char *module = name;
  for (const char *dot = strchr(name, '.'); dot && map_find(paths, name, (size_t)(dot - name) + 1);
       dot = strchr(dot + 1, '.'))
    module = dot + 1;
  for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
    if (strncmp(module, towers[i], strlen(towers[i])) == 0) return true;
  return false;
}

enum { MOST_LISTED = 20 }; /* warnings of a kind */

static void warn_of_more(const Comparison *c, size_t n) {
  if (n > MOST_LISTED)
    diag_warning_at(c->check->diag, c->set->path, DIAG_WEIGHT_EXTRA, "%zu more tensors of this kind", n - MOST_LISTED);
}

/* Only tensors below a module that the model declares are suspicious: the rest of a checkpoint (heads for other
 * tasks, an optimiser's state) is left behind on purpose, and so are buffers of ids. */
static void warn_of_extra(const Comparison *c) {
  Map paths = module_paths(c);
  size_t n = 0;
  for (size_t i = 0; i < c->set->entries.n; i++) {
    const WeightEntry *entry = &c->set->entries.items[i];
    const char *name = map_has(&c->graph->declared_weights, entry->tensor->name) ? entry->tensor->name : entry->name;
    bool may_be_weight = weight_entry_is_readable(entry) && !entry->is_part && !is_of_training(name);
    if (!may_be_weight || map_has(&c->graph->declared_weights, name) || !is_below(&paths, name)) continue;
    if (is_of_tower(&paths, name)) continue;
    if (++n > MOST_LISTED) continue;
    diag_warning_at(c->check->diag, entry->file->file.path, DIAG_WEIGHT_EXTRA,
                    "tensor \"%s\" lies below a module of the model, which does not declare it", name);
  }
  warn_of_more(c, n);
}

/* What the model does not read of an adapter has no part in the result: a model that was written of the base alone may
 * take the table of words for the head that the adapter changes. */
static void warn_of_adapter(const Comparison *c, const Map *used) {
  size_t n = 0;
  for (size_t i = 0; i < c->set->entries.n; i++) {
    const WeightEntry *entry = &c->set->entries.items[i];
    const bool is_used = map_has(used, entry->name) || map_has(used, entry->tensor->name);
    if (is_used || (!entry->delta && !entry->is_of_adapter) || ++n > MOST_LISTED) continue;
    diag_warning_at(c->check->diag, (entry->delta ? entry->delta->file : entry->file)->file.path, DIAG_WEIGHT_EXTRA,
                    "the adapter changes \"%s\", which the model does not read: import with --adapter", entry->name);
  }
  warn_of_more(c, n);
}

/* A tensor that the model itself reads under its name is no misspelling of another. */
static void find_spare_names(Comparison *c, const NodeList *needed) {
  Map asked = map_new(c->check->arena);
  for (size_t i = 0; i < needed->nodes.n; i++) map_put(&asked, needed->nodes.items[i]->attr.name, NULL);
  for (size_t i = 0; i < c->set->entries.n; i++)
    if (!map_has(&asked, c->set->entries.items[i].name)) c->names[c->n_names++] = c->set->entries.items[i].name;
}

/* Tensors are counted as used only if an output needs them, since a declared weight that nothing reads is not loaded
 * either. */
size_t weight_set_check(const WeightCheck *check, Graph *graph, const WeightSet *set) {
  Comparison c = {check, graph, set, ARENA_ARRAY(check->arena, const char *, set->entries.n), 0, NULL};
  NodeList needed = needed_weights(check->arena, graph);
  find_spare_names(&c, &needed);
  c.prefixes = weight_prefixes_new(check, &needed, set);
  weight_prefixes_report(c.prefixes); /* a single message replaces hundreds */
  Map used = map_new(check->arena);
  for (size_t i = 0; i < needed.nodes.n; i++) {
    if (!weight_prefixes_told(c.prefixes, needed.nodes.items[i]->attr.name)) check_weight(&c, needed.nodes.items[i]);
    map_put(&used, needed.nodes.items[i]->attr.name, NULL);
  }
  if (!check->is_import) warn_of_extra(&c);
  if (!check->is_import) warn_of_adapter(&c, &used);
  size_t unused = 0;
  for (size_t i = 0; i < set->entries.n; i++)
    unused += !map_has(&used, set->entries.items[i].name) && !map_has(&used, set->entries.items[i].tensor->name);
  return unused;
}
