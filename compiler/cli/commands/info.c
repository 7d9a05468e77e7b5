/* tfmc check and tfmc info: what a model takes, gives and needs; what a weight file, a library or this machine is.
 *
 * In: a .tfm file, a weight file, a library, or nothing. Out: text, or with --json an object. Nothing is executed: a
 * library is read, not loaded. What every run of a model must meet is shown, with a warning for each condition that
 * leaves a run-time size one value, unless the model states it by `require`.
 *
 * A condition binds if it is an equality: of a size and a number, or of two sizes. What compares only from one side
 * ("time <= 512") leaves sizes their freedom and is no reason for a warning, nor is what is written as a requirement.
 * `a == b` and `b == a` are one condition, wherever they come from. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aot/library_file.h"
#include "aot/packed_weights.h"
#include "cli/commands/commands.h"
#include "cli/model.h"
#include "tfm/abi/weights_file.h"
#include "train/graphs.h"
#include "weights/weight_set.h"

// ---- conditions of a model ----

static const char *place_of(Arena *arena, const Origin *origin) {
  const SrcSpan span = origin_place(origin);
  if (!span.source) return "-";
  return arena_printf(arena, "%s:%u", text_shown(arena, span.source->path), source_place(span.source, span.begin).line);
}

/* A condition that is needed in several places has a line for each of them, but not for each module of the same
 * line. */
static void conditions_print(StrBuf *out, const Graph *graph) {
  Map seen = map_new(out->arena);
  if (graph->checks.n) strbuf_add(out, "conditions of every run:\n");
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Check *check = &graph->checks.items[i];
    StrBuf line = strbuf_new(out->arena);
    cond_print(&line, graph->sizes, check->condition);
    const char *text = arena_printf(out->arena, "  %-24s %s\n", line.text, place_of(out->arena, &check->origin));
    if (map_has(&seen, text)) continue;
    map_put(&seen, text, NULL);
    strbuf_add(out, text);
  }
}

/* As many as DIAG_MAX_ERRORS; warnings have no limit of their own in Diag. */
enum { MAX_WARNINGS = 20 };

/* For each check left - right, which is 0 in every run; NULL: it is no equality, or too large to say. */
static const Size **zeros_of(Arena *arena, const Graph *graph) {
  const Size **zeros = ARENA_ARRAY(arena, const Size *, graph->checks.n);
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Cond *c = graph->checks.items[i].condition;
    if (c->kind == COND_COMPARE && c->op == OP_EQ) zeros[i] = size_sub(graph->sizes, c->left, c->right);
  }
  return zeros;
}

/* Whether the model states the condition, in either direction, or a warning about it stands already. */
static bool is_known(const Graph *graph, const Size *const *zeros, size_t index) {
  const Size *negative = size_sub(graph->sizes, size_const(graph->sizes, 0), zeros[index]);
  for (size_t i = 0; i < graph->checks.n; i++) {
    bool is_same = zeros[i] && (zeros[i] == zeros[index] || zeros[i] == negative);
    if (is_same && (i < index || graph->checks.items[i].is_stated)) return true;
  }
  return false;
}

/* With a number on the right, where readers expect it. */
static const char *equation(Arena *arena, const Graph *graph, const Cond *condition) {
  StrBuf out = strbuf_new(arena);
  Cond turned = *condition;
  turned.left = condition->right;
  turned.right = condition->left;
  cond_print(&out, graph->sizes, size_is_const(condition->left, NULL) ? &turned : condition);
  return out.text;
}

/* What the run would say, with the sizes as the model calls them. */
static const char *message_of(Arena *arena, const Graph *graph, const Check *check) {
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < check->message.n; i++) {
    const CheckPart *part = &check->message.items[i];
    if (part->text) strbuf_add(&out, part->text);
    if (part->size) size_print(&out, graph->sizes, part->size);
  }
  return out.text;
}

static void conditions_warn(Diag *diag, const Graph *graph) {
  Arena *arena = diag->arena;
  const Size **zeros = zeros_of(arena, graph);
  unsigned n = 0;
  for (size_t i = 0; i < graph->checks.n && n < MAX_WARNINGS; i++) {
    const Check *check = &graph->checks.items[i];
    if (!zeros[i] || is_known(graph, zeros, i)) continue;
    n++;
    diag_warning(diag, origin_place(&check->origin), DIAG_SIZE_BOUND, "every run needs %s; otherwise %s",
                 equation(arena, graph, check->condition), message_of(arena, graph, check));
    origin_note_calls(diag, &check->origin);
  }
}

// ---- tfmc check: a model ----

static void print_tensor(StrBuf *out, const Graph *graph, const char *name, const Node *node) {
  strbuf_printf(out, "  %-24s ", text_shown(out->arena, name));
  node_print_shape(out, graph->sizes, node);
  if (node->op == OP_INPUT && node->attr.has_default) {
    strbuf_add(out, ", left out ");
    node_print_value(out, node);
    strbuf_add(out, " everywhere");
  }
  strbuf_add_char(out, '\n');
}

/* Each ragged size has a second input with the lengths of the items. */
static void print_ragged(StrBuf *out, const Graph *graph) {
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++)
    if (graph->ragged[i])
      strbuf_printf(out, "  %s.lengths: i32[%s], may be left out\n", graph->sizes->symbols[i],
                    graph->sizes->symbols[graph->ragged_batch]);
}

static int64_t static_elements(const Node *node) {
  int64_t elements = 1, dim = 0;
  for (uint32_t i = 0; i < node->rank; i++) elements *= size_is_const(node->dims[i], &dim) ? dim : 1;
  return elements;
}

static void print_needed_weights(StrBuf *out, const Graph *graph, const NodeList *weights, bool all) {
  int64_t parameters = 0;
  for (size_t i = 0; i < weights->nodes.n; i++) parameters += static_elements(weights->nodes.items[i]);
  strbuf_printf(out, "weights: %zu tensor%s, %lld numbers\n", weights->nodes.n,
                weights->nodes.n == 1 ? "" : "s", (long long)parameters);
  for (size_t i = 0; all && i < weights->nodes.n; i++)
    print_tensor(out, graph, weights->nodes.items[i]->attr.name, weights->nodes.items[i]);
}

static void print_model(StrBuf *out, const Graph *graph, const NodeList *weights, bool all) {
  strbuf_printf(out, "model %s\ninputs:\n", graph->name);
  for (size_t i = 0; i < graph->inputs.n; i++)
    print_tensor(out, graph, graph->inputs.items[i]->attr.name, graph->inputs.items[i]);
  print_ragged(out, graph);
  strbuf_add(out, "outputs:\n");
  for (size_t i = 0; i < graph->outputs.n; i++)
    print_tensor(out, graph, graph->outputs.items[i].name, graph->outputs.items[i].node);
  conditions_print(out, graph);
  print_needed_weights(out, graph, weights, all);
}

/* The messages about what does not fit come from the same function as before a run. */
static void check_file(Session *session, Graph *graph, StrBuf *out) {
  const char *path = option_text(&session->options, OPTION_WEIGHTS, NULL);
  WeightSet *set = path ? weight_set_open(session->arena, &session->diag, path) : NULL;
  if (!set) return;
  const WeightCheck check = session_weight_check(session);
  size_t unused = weight_set_check(&check, graph, set);
  if (!session->library) weight_set_note_types(set, graph);
  if (!diag_has_errors(&session->diag)) {
    strbuf_printf(out, "%s: has all of them", text_shown(session->arena, path));
    if (unused) strbuf_printf(out, ", and %zu tensors that the model does not use", unused);
    strbuf_add_char(out, '\n');
  }
  weight_set_close(set);
}

/* Differentiates too, without running anything: what cannot be trained is refused here. */
static void check_objective(Session *session, StrBuf *out) {
  Objective *objective = model_objective(session, true);
  const TrainGraphs *graphs = objective ? train_graphs(session->arena, &session->diag, objective, true) : NULL;
  if (graphs) train_graphs_print(out, graphs);
}

/* -march is checked for its spelling alone, so that a command line for another machine can be tried here. */
void command_check(Session *session) {
  if (option_given(&session->options, OPTION_MARCH) && !host_choose_target(session, false)) return;
  Graph *graph = model_load(session);
  if (!graph) return;
  NodeList weights = needed_weights(session->arena, graph);
  StrBuf text = strbuf_new(session->arena);
  print_model(&text, graph, &weights, option_given(&session->options, OPTION_VERBOSE));
  conditions_warn(&session->diag, graph);
  check_file(session, graph, &text);
  if (!session->library) check_objective(session, &text);
  passes_run(graph, &session->diag, &(PassOptions){.level = 2, .stop_after = "fuse-attention"}, NULL);
  passes_report_numbers(&text, graph); /* of products and attentions as they are found, not as they are written */
  if (!option_given(&session->options, OPTION_QUIET)) session_print(&text);
}

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
    if (!add_tensor(session, totals, &set->entries.items[i])) return false;
  return true;
}

/* What a person asks of a file: its tensors, how much of each type, whether anything in it is broken, and its
 * metadata. */
static void print_file(StrBuf *out, const WeightSet *set, const FileTotals *totals) {
  strbuf_printf(out, "%s: %zu tensors in %zu file%s\n", text_shown(out->arena, set->path), set->entries.n, set->files.n,
                set->files.n == 1 ? "" : "s");
  for (size_t i = 0; i < set->entries.n; i++) {
    const FileTensor *tensor = set->entries.items[i].tensor;
    strbuf_printf(out, "  %-4s ", text_shown(out->arena, tensor->dtype_name));
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
    const FileTensor *tensor = set->entries.items[i].tensor;
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

// ---- a library ----

/* "" if the object has no such text. */
static const char *text_of(Arena *arena, const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  return text ? text_shown(arena, text) : "";
}

/* The name in C is told where it differs: names of a model may be words that C reserves. */
static void print_tensors(StrBuf *out, const char *title, const json_t *tensors) {
  strbuf_printf(out, "%s:\n", title);
  for (size_t i = 0; i < json_array_size(tensors); i++) {
    const json_t *tensor = json_array_get(tensors, i);
    strbuf_printf(out, "  %-24s %s", text_of(out->arena, tensor, "name"), text_of(out->arena, tensor, "type"));
    if (strcmp(text_of(out->arena, tensor, "name"), text_of(out->arena, tensor, "member")) != 0)
      strbuf_printf(out, ", in C %s", text_of(out->arena, tensor, "member"));
    char *value = json_dumps(json_object_get(tensor, "default"), JSON_ENCODE_ANY);
    if (value) strbuf_printf(out, ", left out %s everywhere", value);
    free(value);
    strbuf_add_char(out, '\n');
  }
}

/* What a model with a generate block writes, and what that costs. */
static void print_generation(StrBuf *out, const json_t *generate) {
  if (!json_is_object(generate)) return; /* the description says null for a model without a generate block */
  long long own = json_integer_value(json_object_get(generate, "bytes_per_token"));
  long long source = json_integer_value(json_object_get(generate, "bytes_per_source_position"));
  const char *ragged = text_of(out->arena, generate, "ragged");
  strbuf_printf(out, "writes: %s from %s\n", text_of(out->arena, generate, "input"),
                text_of(out->arena, generate, "output"));
  if (*ragged)
    strbuf_printf(out, "  rows have their own lengths; those of one call of forward have the same, %s\n", ragged);
  const json_t *sources = json_object_get(generate, "ragged_sources");
  for (size_t i = 0; i < json_array_size(sources); i++)
    strbuf_printf(out, "  items have their own %s, in C %s; those of one call of forward have the same\n",
                  text_of(out->arena, json_array_get(sources, i), "name"),
                  text_of(out->arena, json_array_get(sources, i), "member"));
  if (!json_is_true(json_object_get(generate, "incremental"))) {
    strbuf_printf(out, "  not incremental, the whole model runs for each token: %s\n",
                  text_of(out->arena, generate, "reason"));
    return;
  }
  strbuf_printf(out, "  incremental; keeps %lld bytes for each token of a row", own);
  if (source) strbuf_printf(out, ", %lld for each position of a source", source);
  strbuf_add_char(out, '\n');
}

static void print_instruction_sets(StrBuf *out, const LibraryFile *library) {
  strbuf_add(out, "instruction sets:\n");
  for (uint32_t i = 0; i < library->n_instruction_sets; i++) {
    const TargetInfo *target = target_find(library->instruction_sets[i]);
    const char *missing = target ? host_missing(target) : "what tfmc does not know";
    strbuf_printf(out, "  %-24s %s%s\n", library->instruction_sets[i],
                  missing ? "cannot run here: the CPU lacks " : "runs here", missing ? missing : "");
  }
}

/* " (f32 320, bf16 5120)"; nothing if all are f32. */
static void print_types(StrBuf *out, const LibraryFile *library) {
  const char *type, *separator = " (";
  const json_t *bytes, *types = json_object_get(library->description, "weights_by_type");
  json_object_foreach((json_t *)types, type, bytes) {
    strbuf_printf(out, "%s%s %lld", separator, type, (long long)json_integer_value(bytes));
    separator = ", ";
  }
  if (json_object_size(types)) strbuf_add_char(out, ')');
}

static void print_rules(StrBuf *out, const LibraryFile *library) {
  const json_t *rules = json_object_get(json_object_get(library->description, "source"), "quantize");
  for (size_t i = 0; i < json_array_size(rules); i++) {
    const char *rule = json_string_value(json_array_get(rules, i));
    strbuf_printf(out, "%s%s%s", i ? "," : "compiled with --quantize=", rule ? rule : "",
                  i + 1 == json_array_size(rules) ? "\n" : "");
  }
}

static const char *what_it_is(const LibraryFile *library) { return library->is_one_file ? "file" : "library"; }

/* The file that is opened when none is named, as far as it can be told from its header. */
static void print_weights(Session *session, StrBuf *out, const LibraryFile *library) {
  strbuf_printf(out, "weights: %llu bytes", (unsigned long long)library->weights_bytes);
  print_types(out, library);
  strbuf_printf(out, ", layout %s", layout_text(session->arena, library->layout));
  const char *beside = file_beside(session->arena, library->path, ".tfmw");
  if (library->weights_embedded)
    strbuf_printf(out, ", in the %s\n", what_it_is(library));
  else if (library->weights_bytes)
    strbuf_printf(out, ", from %s%s\n", beside, access(beside, R_OK) ? ", which is not there" : "");
  else
    strbuf_add_char(out, '\n');
  print_rules(out, library);
}

/* Whoever gives a library away should know that the text of the model goes with it. */
static void print_source(StrBuf *out, const LibraryFile *library) {
  const json_t *files = json_object_get(json_object_get(library->description, "source"), "files");
  if (!json_array_size(files)) {
    strbuf_printf(out, "source: not in the %s\n", what_it_is(library));
    return;
  }
  strbuf_printf(out, "source: in the %s, as text:", what_it_is(library));
  for (size_t i = 0; i < json_array_size(files); i++)
    strbuf_printf(out, "%s %s", i ? "," : "", text_of(out->arena, json_array_get(files, i), "name"));
  strbuf_add(out, "; tfmc compile --strip-source leaves it out\n");
}

/* The description as it lies in the library. "source" is whether the text of the model is there, in place of the text,
 * which is long and may be private. */
static void print_library_json(StrBuf *out, const LibraryFile *library) {
  json_t *copy = json_deep_copy(library->description);
  json_object_set_new(copy, "source", json_boolean(json_is_object(json_object_get(copy, "source"))));
  char *text = json_dumps(copy, 0);
  strbuf_printf(out, "%s\n", text ? text : "{}");
  free(text);
  json_decref(copy);
}

/* Reads the file; no code of the library is run. */
static void tell_library(Session *session, StrBuf *out, const char *path) {
  LibraryFile *library = session->library = library_of_file(session, path);
  if (!library) return;
  if (option_given(&session->options, OPTION_JSON)) {
    print_library_json(out, library);
    return;
  }
  strbuf_printf(out, "%s: the model %s, made by tfmc %s; ", text_shown(out->arena, path),
                text_of(out->arena, library->description, "model"),
                text_shown(out->arena, library->version));
  if (library->is_one_file) strbuf_add(out, "code and weights in one file\n");
  else strbuf_printf(out, "functions %s_...\n", text_shown(out->arena, library->prefix));
  print_tensors(out, "inputs", json_object_get(library->description, "inputs"));
  print_tensors(out, "outputs", json_object_get(library->description, "outputs"));
  print_generation(out, json_object_get(library->description, "generate"));
  print_instruction_sets(out, library);
  print_weights(session, out, library);
  print_source(out, library);
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
  for (const TargetInfo *target = targets; target->name; target++)
    if (host_missing(target))
      strbuf_printf(out, "-march=%s cannot run here: the CPU lacks %s\n", target->name, host_missing(target));
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
