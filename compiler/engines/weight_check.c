/* In: a model and the tensors of a weight file. Out: messages about every weight that is missing, has another shape
 * or type, or is not finite, and warnings about tensors that look forgotten. All of it is listed, not only the first:
 * whoever converts weights mends a dozen names at a time. */
#include <string.h>

#include "engines/weight_source.h"

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

// ---- prefixes ----

/* A name of the model may stand in the file behind several prefixes: "norm.weight" in the norms of all layers. One
 * prefix for everything is advised only if it finds all weights that the file has in any place, so that the advice
 * never leads from one message to its opposite. Else the modules of the model are looked at one by one, each by the
 * first part of its path: in the checkpoint of a classifier the trunk lies below "distilbert.", the head does not. A
 * module gets advice if one prefix finds all of its weights; of several the shortest is taken. */
enum { MOST_MODULES = 6 };

typedef struct Group { /* the weights whose paths begin with the same part */
  const char *part;
  const char *prefix; /* what stands before the part in the file; NULL: no one prefix finds all of them */
} Group;

typedef struct WeightPrefixes {
  const WeightCheck *check;
  const NodeList *needed;
  const WeightSet *set;
  const char *common; /* finds every weight that the file has anywhere; NULL: there is none */
  VEC(Group) groups;
  const char *advice; /* NULL: neither a prefix nor `as` helps */
} WeightPrefixes;

// ---- names behind prefixes ----

/* The model's own name of a weight, without the text of --weights-prefix. */
static const char *own_name(const WeightPrefixes *p, const char *name) { return name + strlen(p->check->prefix); }

static const char *behind(const WeightPrefixes *p, const char *prefix, const char *own) {
  return arena_printf(p->check->arena, "%s%s", prefix, own);
}

static bool is_in_file(const WeightPrefixes *p, const char *prefix, const char *name) {
  return weight_set_find(p->set, behind(p, prefix, own_name(p, name)));
}

/* The text before the weight's own name in the i-th name of the file; NULL if that is another weight. A match must
 * begin at a dot: "norm.weight" is no part of "layernorm.weight". */
static const char *prefix_at(const WeightPrefixes *p, size_t i, const char *name) {
  const char *own = own_name(p, name), *other = p->set->entries.items[i].name;
  const size_t length = strlen(own), n = strlen(other);
  if (n < length || strcmp(other + n - length, own) != 0) return NULL;
  if (n != length && (n == length + 1 || other[n - length - 1] != '.')) return NULL;
  return arena_printf(p->check->arena, "%.*s", (int)(n - length), other);
}

/* The shortest; NULL: the file has the weight nowhere. */
static const char *prefix_in_file(const WeightPrefixes *p, const char *name) {
  const char *shortest = NULL;
  for (size_t i = 0; i < p->set->entries.n; i++) {
    const char *prefix = prefix_at(p, i, name);
    if (prefix && (!shortest || strlen(prefix) < strlen(shortest))) shortest = prefix;
  }
  return shortest;
}

// ---- members of the model ----

static size_t part_length(const WeightPrefixes *p, const char *name) { return strcspn(own_name(p, name), "."); }

static bool is_of(const WeightPrefixes *p, const char *name, const char *part) {
  return !part || (strlen(part) == part_length(p, name) && strncmp(own_name(p, name), part, strlen(part)) == 0);
}

/* Whether the prefix finds all weights of a part (NULL: of the model) that the file has anywhere. */
static bool finds_all(const WeightPrefixes *p, const char *prefix, const char *part) {
  for (size_t i = 0; i < p->needed->nodes.n; i++) {
    const char *name = p->needed->nodes.items[i]->attr.name;
    if (is_of(p, name, part) && !is_in_file(p, prefix, name) && prefix_in_file(p, name)) return false;
  }
  return true;
}

/* The shortest prefix that finds all of them. Its candidates are those of the first weight that the file has. */
static const char *prefix_of(const WeightPrefixes *p, const char *part) {
  const char *first = NULL, *best = NULL;
  for (size_t i = 0; i < p->needed->nodes.n && !first; i++) {
    const char *name = p->needed->nodes.items[i]->attr.name;
    if (is_of(p, name, part) && prefix_in_file(p, name)) first = name;
  }
  for (size_t i = 0; first && i < p->set->entries.n; i++) {
    const char *prefix = prefix_at(p, i, first);
    if (!prefix || (best && strlen(best) <= strlen(prefix))) continue;
    if (finds_all(p, prefix, part)) best = prefix;
  }
  return best;
}

static Group *find_group(const WeightPrefixes *p, const char *name) {
  for (size_t i = 0; i < p->groups.n; i++)
    if (is_of(p, name, p->groups.items[i].part)) return &p->groups.items[i];
  return NULL;
}

static void add_groups(WeightPrefixes *p) {
  Arena *arena = p->check->arena;
  for (size_t i = 0; i < p->needed->nodes.n; i++) {
    const char *name = p->needed->nodes.items[i]->attr.name;
    if (find_group(p, name)) continue;
    const char *part = arena_strndup(arena, own_name(p, name), part_length(p, name));
    vec_push(arena, &p->groups, (Group){part, prefix_of(p, part)});
  }
}

// ---- the message about prefixes ----

static const char *prefix_advice(const WeightPrefixes *p) {
  if (p->check->is_import)
    return arena_printf(p->check->arena, "all names in the file begin with \"%s\", those of the family do not",
                        p->common);
  if (!*p->common) return "try it without --weights-prefix";
  return arena_printf(p->check->arena, "try --weights-prefix %s", p->common);
}

/* add `as "distilbert.embeddings"` to embeddings, ... */
static const char *as_advice(const WeightPrefixes *p) {
  StrBuf text = strbuf_new(p->check->arena);
  size_t n = 0;
  strbuf_add(&text, p->check->is_import ? "the file has other names: " : "no --weights-prefix finds all weights: ");
  if (*p->check->prefix) strbuf_add(&text, "leave it out and ");
  for (size_t i = 0; i < p->groups.n; i++) {
    const Group *group = &p->groups.items[i];
    if (!group->prefix || !*group->prefix || ++n > MOST_MODULES) continue;
    strbuf_printf(&text, "%s `as \"%s%s\"` to %s", n == 1 ? "add" : ",", group->prefix, group->part, group->part);
  }
  if (n > MOST_MODULES) strbuf_printf(&text, ", and likewise to %zu more", n - MOST_MODULES);
  return n ? text.text : NULL;
}

/* If the file has all weights in their places, which is the usual case, nothing is searched. */
static WeightPrefixes *weight_prefixes_new(const WeightCheck *check, const NodeList *needed, const WeightSet *set) {
  WeightPrefixes *p = ARENA_NEW(check->arena, WeightPrefixes);
  *p = (WeightPrefixes){.check = check, .needed = needed, .set = set};
  size_t n_missing = 0;
  for (size_t i = 0; i < needed->nodes.n; i++) n_missing += !weight_set_find(set, needed->nodes.items[i]->attr.name);
  if (!n_missing) return p;
  p->common = prefix_of(p, NULL);
  if (!p->common) add_groups(p);
  p->advice = p->common ? prefix_advice(p) : as_advice(p);
  return p;
}

/* What stands before the own name of a missing weight in the file, where the advice finds it; NULL: it does not. */
static const char *found_behind(const WeightPrefixes *p, const char *name) {
  if (!p->advice || weight_set_find(p->set, name)) return NULL;
  const Group *group = p->common ? NULL : find_group(p, name);
  const char *prefix = group ? group->prefix : p->common;
  return prefix && is_in_file(p, prefix, name) ? prefix : NULL;
}

/* Whether that error speaks of this weight. */
static bool weight_prefixes_told(const WeightPrefixes *p, const char *name) { return found_behind(p, name) != NULL; }

/* One error for all weights that a prefix or `as` finds, with what to do. */
static void weight_prefixes_report(const WeightPrefixes *p) {
  const Node *first = NULL;
  size_t n = 0;
  for (size_t i = 0; i < p->needed->nodes.n; i++) {
    const Node *node = p->needed->nodes.items[i];
    if (weight_prefixes_told(p, node->attr.name) && !n++) first = node;
  }
  if (!n) return;
  const char *name = first->attr.name, *others = "";
  if (n > 1) others = arena_printf(p->check->arena, ", and likewise for %zu more", n - 1);
  diag_error_at(p->check->diag, p->set->path, DIAG_WEIGHT_MISSING, "there is no tensor \"%s\", but \"%s\"%s; %s", name,
                behind(p, found_behind(p, name), own_name(p, name)), others, p->advice);
  diag_note(p->check->diag, origin_place(&first->origin), "the weight is declared here");
}

/* For the message about a missing weight of which nothing was told: ", but ..."; NULL if no module of the file has
 * it. */
static const char *weight_prefixes_hint(const WeightPrefixes *p, const char *name) {
  const char *prefix = prefix_in_file(p, name);
  return prefix ? arena_printf(p->check->arena, ", but \"%s\"", behind(p, prefix, own_name(p, name))) : NULL;
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

/* Only tensors below a module that the model declares are suspicious: the rest of a checkpoint (heads for other
 * tasks, an optimiser's state) is left behind on purpose, and so are buffers of ids. */
static void warn_of_extra(const Comparison *c) {
  Map paths = module_paths(c);
  size_t n = 0;
  for (size_t i = 0; i < c->set->entries.n; i++) {
    const WeightEntry *entry = &c->set->entries.items[i];
    const char *name = map_has(&c->graph->declared_weights, entry->tensor->name) ? entry->tensor->name : entry->name;
    /* Buffers of ids are left behind on purpose. */
    bool may_be_weight = weight_entry_is_readable(entry) && !entry->is_part && !is_of_training(name);
    if (!may_be_weight || map_has(&c->graph->declared_weights, name) || !is_below(&paths, name)) continue;
    if (is_of_tower(&paths, name)) continue;
    if (++n > MOST_LISTED) continue;
    diag_warning_at(c->check->diag, entry->file->file.path, DIAG_WEIGHT_EXTRA,
                    "tensor \"%s\" lies below a module of the model, which does not declare it", name);
  }
  if (n > MOST_LISTED)
    diag_warning_at(c->check->diag, c->set->path, DIAG_WEIGHT_EXTRA, "%zu more tensors of this kind", n - MOST_LISTED);
}

/* What the model does not read of an adapter has no part in the result: a model that was written of the base alone may
 * take the table of words for the head that the adapter changes. */
static void warn_of_adapter(const Comparison *c, const Map *used) {
  for (size_t i = 0, n = 0; i < c->set->entries.n; i++) {
    const WeightEntry *entry = &c->set->entries.items[i];
    const bool is_used = map_has(used, entry->name) || map_has(used, entry->tensor->name);
    if (is_used || (!entry->delta && !entry->is_of_adapter) || ++n > MOST_LISTED) continue;
    diag_warning_at(c->check->diag, (entry->delta ? entry->delta->file : entry->file)->file.path, DIAG_WEIGHT_EXTRA,
                    "the adapter changes \"%s\", which the model does not read; `tfmc import BASE --adapter FOLDER` "
                    "writes the model of both",
                    entry->name);
  }
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
