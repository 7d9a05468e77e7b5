/* In: the graph of a generative model. Out: its encoder and step graphs, or the reason why there are none. The graphs
 * and texts of the result live in the caller's arena; everything else is gone when incremental_derive returns.
 *
 * The work is done on a copy that canonicalize, fold-constants, combine-masks, cse and dce have simplified, so that
 * masks and views have one form to be recognised in. These passes fuse nothing: a fused node would hide the axes that
 * the analysis follows. The order is: read the model, widen its logits, find what depends on what, choose a form for
 * every use (uses.c, which asks sound.c about every node), build, verify. */
#include <string.h>

#include "graph/graph.h"
#include "incremental/cut.h"
#include "incremental/incremental.h"

// ---- the model ----

static const Node *find_input(const Graph *graph, const char *name) {
  for (size_t i = 0; i < graph->inputs.n; i++)
    if (!strcmp(graph->inputs.items[i]->attr.name, name)) return graph->inputs.items[i];
  return NULL;
}

/* The step computes no other output than the logits, so the others must neither cost anything nor refuse the model. */
static void keep_logits(Graph *graph) {
  const GraphOutput *outputs = graph->outputs.items;
  size_t i = 0;
  while (i + 1 < graph->outputs.n && strcmp(outputs[i].name, graph->generate_output) != 0) i++;
  graph->outputs.items[0] = outputs[i];
  graph->outputs.n = 1;
}

/* False after an error, which `diag` has. */
static bool simplify(Graph *graph, Diag *diag) {
  static const char *const only[] = {"canonicalize", "fold-constants", "combine-masks", "cse", "dce"};
  const PassOptions options = {.level = 2, .only = only, .n_only = sizeof only / sizeof *only};
  return passes_run(graph, diag, &options, NULL);
}

/* Items of a ragged batch are computed as if each were alone: the passes have made every size of the copy an ordinary
 * one, so the model's own graph is asked. That holds only if the rows of the decoder input are the items: else a row
 * would belong to no item's sizes. */
static bool take_ragged(Cut *cut, Incremental *result) {
  const Graph *graph = cut->model;
  const char **names = ARENA_ARRAY(cut->arena, const char *, graph->sizes->n_symbols);
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++)
    if (graph->ragged[i] && i != cut->time) names[result->n_ragged++] = graph->sizes->symbols[i];
  result->ragged = names;
  if (result->n_ragged && cut->batch != graph->ragged_batch)
    return cut_refuse(cut, cut->tokens, "the rows are not the items of its ragged sizes");
  return true;
}

/* Finds the tokens, the size of the length and that of the batch. */
static bool read_model(Cut *cut, Incremental *result) {
  const Node *tokens = cut->tokens = find_input(cut->graph, cut->graph->generate_input);
  if (tokens->rank != 2 || tokens->dtype != DTYPE_I32)
    return cut_refuse(cut, tokens, "the decoder input is not i32[rows, length]");
  int32_t time = size_symbol_of(tokens->dims[1]);
  cut->batch = size_symbol_of(tokens->dims[0]);
  if (time < 0 || (cut->batch < 0 && !size_equals(tokens->dims[0], 1)))
    return cut_refuse(cut, tokens, "the decoder input is not [rows, length] of run-time sizes");
  cut->time = (uint32_t)time;
  cut->length = tokens->dims[1];
  if (cut->batch >= 0) cut->merged = size_mul(cut->graph->sizes, tokens->dims[0], cut->length);
  return take_ragged(cut, result);
}

/* The runtime samples from f32 [rows, kept, vocab], one row for each position, so the logits must have that shape. */
static bool find_logits(Cut *cut) {
  widen_last_rows(cut);
  const Node *tokens = cut->tokens, *logits = cut->logits = cut->graph->outputs.items[0].node;
  if (!strcmp(cut->graph->generate_output, logsumexp_name))
    return cut_refuse(cut, logits, "the output has the name of what a step adds: %s", logsumexp_name);
  if (logits->rank != 3 || logits->dims[0] != tokens->dims[0] || !is_length(cut, logits->dims[1]))
    return cut_refuse(cut, logits, "the logits are not those of every position");
  if (size_is_const(logits->dims[2], NULL)) return true;
  return cut_refuse(cut, logits, "the size of the vocabulary is a run-time size");
}

static bool node_has_length(const Cut *cut, const Node *node) {
  bool has = node->attr.size && has_length(cut, node->attr.size);
  for (uint32_t i = 0; i < node->rank; i++) {
    has |= has_length(cut, node->dims[i]);
    has |= node->attr.starts[i] && has_length(cut, node->attr.starts[i]);
  }
  return has;
}

/* What each node depends on, in one walk: inputs stand before their users. ON_LENGTH is set by a shape too, so that a
 * value computed from positions alone is not taken for one of the encoder. */
static void find_dependences(Cut *cut) {
  for (const Node *node = cut->graph->first; node; node = node->next) {
    uint8_t on = node == cut->tokens ? ON_TOKENS : node->op == OP_INPUT ? ON_INPUTS : 0;
    if (node_has_length(cut, node)) on |= ON_LENGTH;
    for (size_t i = 0; i < node->inputs.n; i++) on |= cut->depends[node->inputs.items[i]->id];
    cut->depends[node->id] = on;
  }
}

// ---- the report ----

static void record(PassLog *log, bool done, Origin origin, const char *text) {
  if (!log) return;
  vec_push(log->arena, &log->records,
           (FusionRecord){.fusion = FUSION_INCREMENTAL, .done = done, .reason = text, .origin = origin});
}

/* The bytes of one position of a row, or of one item; NULL: they depend on more than that. */
static const Size *bytes_of(SizeTable *sizes, const Node *node, const Size *per, const Size *rows) {
  const Size *elements = node_elements(sizes, node);
  if (elements && per) elements = size_div(sizes, elements, per);
  if (elements && rows && !size_equals(rows, 1)) elements = size_div(sizes, elements, rows);
  return elements ? size_mul(sizes, elements, size_const(sizes, dtype_bytes[node->dtype])) : NULL;
}

/* One line of the log: a value that is cached, or read from the encoder. Returns its bytes, for the total. */
static const Size *record_value(const Cut *cut, PassLog *log, const Node *node, bool is_cache) {
  SizeTable *sizes = cut->graph->sizes;
  const Size *bytes = bytes_of(sizes, node, is_cache ? cut->length : NULL, cut->tokens->dims[0]);
  StrBuf text = strbuf_new(log->arena);
  strbuf_add(&text, is_cache ? "cached: " : "computed once by the encoder: ");
  node_print_shape(&text, sizes, node);
  if (bytes) {
    strbuf_add(&text, ", ");
    size_print(&text, sizes, bytes);
    strbuf_add(&text, is_cache ? " bytes a token" : " bytes");
  }
  record(log, true, node->origin, text.text);
  return bytes ? bytes : size_const(sizes, 0);
}

static bool is_cached(const Cut *cut, const Node *node) {
  const Uses *uses = &cut->uses[node->id];
  for (size_t i = 0; i < uses->items.n; i++)
    if (uses->items.items[i].form == USE_CACHED) return true;
  return false;
}

static const char *state_word(const Node *input) {
  if (input->attr.role.kind == ROLE_RUNNING_SUM) return "sum";
  return input->users.n && input->users.items[0]->op == OP_CONCAT ? "window" : "state";
}

/* One line of the log for each state of a row. Returns the bytes of all of them; NULL: they depend on other sizes. */
static const Size *record_states(const Cut *cut, PassLog *log, const Graph *step) {
  SizeTable *sizes = step->sizes;
  const Size *total = size_const(sizes, 0), *rows = graph_size_with(step, ROLE_ROWS);
  for (size_t i = 0; i < step->inputs.n; i++) {
    const Node *node = step->inputs.items[i];
    if (!role_is_state(node->attr.role)) continue;
    const bool is_shared = cut->batch < 0 || !size_involves(node_elements(sizes, node), (uint32_t)size_symbol_of(rows));
    const Size *bytes = bytes_of(sizes, node, NULL, is_shared ? NULL : rows);
    StrBuf text = strbuf_new(log->arena);
    strbuf_printf(&text, "%s: ", state_word(node));
    node_print_shape(&text, sizes, node);
    strbuf_add(&text, ", ");
    if (bytes) size_print(&text, sizes, bytes);
    strbuf_add(&text, " bytes a row");
    record(log, true, node->origin, text.text);
    if (total) total = bytes ? size_add(sizes, total, bytes) : NULL;
  }
  return total;
}

/* "; kept: 36 states, 20201472 bytes a row" */
static void print_states(StrBuf *text, const Graph *step, const Size *bytes, uint32_t n) {
  if (!n) return;
  strbuf_printf(text, "; kept: %u states", n);
  if (!bytes) return;
  strbuf_add(text, ", ");
  size_print(text, step->sizes, bytes);
  strbuf_add(text, " bytes a row");
}

static void record_result(const Cut *cut, PassLog *log, const Incremental *result) {
  SizeTable *sizes = cut->graph->sizes;
  const Size *total[2] = {size_const(sizes, 0), size_const(sizes, 0)};
  for (const Node *node = cut->graph->first; node; node = node->next)
    for (int is_cache = 0; is_cache < 2; is_cache++) {
      if (is_cache ? !is_cached(cut, node) : !cut->is_read[node->id]) continue;
      const Size *bytes = record_value(cut, log, node, is_cache);
      if (total[is_cache]) total[is_cache] = size_add(sizes, total[is_cache], bytes);
    }
  const Size *state_bytes = record_states(cut, log, result->step);
  StrBuf text = strbuf_new(log->arena);
  strbuf_printf(&text, "a step computes new positions only; cached: %u values of earlier positions, ",
                result->n_caches);
  if (total[1]) size_print(&text, sizes, total[1]);
  strbuf_printf(&text, " bytes a token; from the encoder: %u", result->n_encoded);
  if (result->n_encoded && total[0]) {
    strbuf_add(&text, ", ");
    size_print(&text, sizes, total[0]);
    strbuf_add(&text, " bytes");
  }
  print_states(&text, result->step, state_bytes, result->n_states + result->n_sums);
  record(log, true, cut->logits->origin, text.text);
}

// ---- the cut ----

/* Asks the verifier about a graph that was made. Its sizes and types follow from the model's, but its names need not:
 * a graph that was read as text may use "cache.0" itself, which no model in the language can. */
static bool is_valid(Cut *cut, Graph *graph, const char *what) {
  Diag faults = diag_new(cut->arena); /* its texts become the reason */
  if (!graph) return true;
  graph_renumber(graph);
  if (graph_verify(graph, &faults)) return true;
  return cut_refuse(cut, cut->logits, "its %s graph would be invalid: %s", what, faults.messages.items[0].text);
}

/* The runtime learns the sizes of other inputs from the encoder's inputs and outputs. Without an encoder graph nothing
 * tells the step such a size, so no shape of the step may involve one. */
static bool sizes_are_known(const Cut *cut, const Graph *step) {
  for (const Node *node = step->first; node; node = node->next)
    for (uint32_t i = 0; i < cut->graph->sizes->n_symbols; i++) {
      if (i == cut->time || (int32_t)i == cut->batch) continue;
      const Size *symbol = size_symbol(step->sizes, cut->graph->sizes->symbols[i]);
      for (uint32_t axis = 0; axis < node->rank; axis++)
        if (size_involves(node->dims[axis], symbol->terms[0].symbols[0])) return false;
    }
  return true;
}

/* False: cut->reason says why, or `diag` has an error. */
static bool derive(Cut *cut, Diag *diag, Incremental *result) {
  if (!read_model(cut, result) || !find_logits(cut)) return false;
  graph_renumber(cut->graph);
  const uint32_t n = cut->graph->next_id;
  cut->depends = ARENA_ARRAY(cut->scratch, uint8_t, n);
  cut->uses = ARENA_ARRAY(cut->scratch, Uses, n);
  cut->of_encoder = ARENA_ARRAY(cut->scratch, bool, n);
  cut->is_read = ARENA_ARRAY(cut->scratch, bool, n);
  cut->is_scores = ARENA_ARRAY(cut->scratch, bool, n);
  find_dependences(cut);
  if (!find_scores_of_attention(cut, diag) || !find_uses(cut)) return false;
  if (!build_step(cut, result) || (result->n_encoded && !build_encoder(cut, result)))
    return cut_refuse(cut, cut->logits, "its sizes become too large as polynomials");
  if (!result->encoder && (result->n_ragged || !sizes_are_known(cut, result->step)))
    return cut_refuse(cut, cut->logits, "a step needs the size of an input that it does not read");
  return is_valid(cut, result->step, "step") && is_valid(cut, result->encoder, "encoder");
}

static Node *weight_named(const Graph *graph, const char *name) {
  for (Node *node = graph->first; node; node = node->next)
    if (node->op == OP_WEIGHT && node->users.n && strcmp(node->attr.name, name) == 0) return node;
  return NULL;
}

/* A weight of both graphs is packed once, so the layout must suit both: plan and pack go by this mark. */
static void mark_shared_weights(const Incremental *parts) {
  for (Node *node = parts->encoder ? parts->encoder->first : NULL; node; node = node->next) {
    Node *same = node->op == OP_WEIGHT && node->users.n ? weight_named(parts->step, node->attr.name) : NULL;
    if (same) node->attr.is_shared = same->attr.is_shared = true;
  }
}

Incremental incremental_derive(Arena *arena, Diag *diag, const Graph *graph, PassLog *log) {
  Incremental result = {0};
  if (!graph->generate_input) {
    result.reason = "the model has no generate block";
    return result;
  }
  Arena *scratch = arena_create();
  Cut cut = {.arena = arena, .scratch = scratch, .model = graph, .graph = graph_clone(arena, graph),
             .later = map_new(scratch)};
  keep_logits(cut.graph);
  if (!simplify(cut.graph, diag) || !derive(&cut, diag, &result)) {
    result = (Incremental){.reason = cut.reason, .origin = cut.origin};
    record(log, false, cut.origin, result.reason);
  } else {
    mark_shared_weights(&result);
    if (log) record_result(&cut, log, &result);
  }
  arena_destroy(scratch);
  return result;
}
