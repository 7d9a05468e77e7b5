/* What the passes did: the record of fusions and refusals, --require-fusion, and the report of a compilation.
 *
 * In: what a pass fused or refused to fuse, then the graph that the passes left. Out: one record for each
 * fusion, place and reason; an error for each refusal of a fusion that was required, or if it happened nowhere; lines
 * with the place in the source and the module path. Equal lines of repeated layers become one with a count, their
 * numbers written as *. */
#include <stdarg.h>
#include <string.h>

#include "forms/whole_rows.h"
#include "graph/stable_names.h"
#include "passes/pass.h"
#include "tfm/abi/forms.h"

// ---- the record ----

const FusionInfo fusion_table[N_FUSIONS] = {
#define FUSION(Enum, name, pass, pattern, line) [FUSION_##Enum] = {name, pass, pattern, line},
#include "passes/fusions.def"
};

static bool same_origin(const Origin *a, const Origin *b) {
  return !strcmp(a->path, b->path) && a->span.source == b->span.source && a->span.begin == b->span.begin;
}

/* Refusals repeat, since a pass may look at a node again after a change elsewhere; fusions do not. */
static bool same_record(const FusionRecord *record, Fusion fusion, bool done, const Node *node, const char *reason) {
  return record->done == done && record->fusion == fusion && !strcmp(record->reason, reason) &&
         same_origin(&record->origin, &node->origin);
}

void pass_record(Pass *pass, Fusion fusion, bool done, const Node *node, const char *format, ...) {
  PassLog *log = pass->log;
  if (!log) return;
  va_list args;
  va_start(args, format);
  char *reason = arena_vprintf(log->arena, format, args);
  va_end(args);
  for (size_t i = log->records.n; i-- > 0 && !done;)
    if (same_record(&log->records.items[i], fusion, done, node, reason)) return;
  log->happened[fusion] |= done;
  vec_push(log->arena, &log->records,
           (FusionRecord){.fusion = fusion, .done = done, .reason = reason, .origin = node->origin});
}

void pass_record_while(Pass *pass, const Node *witness, const char *more) {
  PassLog *log = pass->log;
  if (!log || !witness) return;
  FusionRecord *record = &log->records.items[log->records.n - 1];
  record->witness = witness;
  record->more = more;
}

/* A report that says of one place that it was refused and that it was done helps nobody. */
void pass_overrule(Pass *pass, Fusion fusion, const Node *node) {
  PassLog *log = pass->log;
  size_t kept = 0;
  for (size_t i = 0; log && i < log->records.n; i++) {
    const FusionRecord *record = &log->records.items[i];
    if (record->done || record->fusion != fusion || !same_origin(&record->origin, &node->origin))
      log->records.items[kept++] = *record;
  }
  if (log) log->records.n = kept;
}

void pass_log_close(PassLog *log) {
  for (size_t i = 0; log && i < log->records.n; i++) {
    FusionRecord *record = &log->records.items[i];
    if (record->witness && !record->witness->deleted)
      record->reason = arena_printf(log->arena, "%s%s", record->reason, record->more);
    record->witness = NULL;
  }
}

/* The fusion of this name that a pass does; N_FUSIONS after an error. */
static Fusion find_fusion(Diag *diag, const char *name) {
  const char *names[N_FUSIONS];
  uint32_t n = 0;
  StrBuf all = strbuf_new(diag->arena);
  for (int i = 0; i < N_FUSIONS; i++) {
    if (!*fusion_table[i].pass) continue;
    if (!strcmp(fusion_table[i].name, name)) return (Fusion)i;
    strbuf_printf(&all, "%s%s", n ? ", " : "", fusion_table[i].name);
    names[n++] = fusion_table[i].name;
  }
  const char *nearest = diag_nearest(name, names, n);
  if (nearest)
    diag_error_at(diag, NULL, DIAG_PASS_NAME, "there is no fusion \"%s\"; did you mean \"%s\"?", name, nearest);
  else
    diag_error_at(diag, NULL, DIAG_PASS_NAME, "there is no fusion \"%s\"; there are %s", name, all.text);
  return N_FUSIONS;
}

/* The error for a fusion that nothing refused and nothing did. It has no place in the source, so it says what would
 * have been one. */
static void error_nowhere(Diag *diag, const PassLog *log, Fusion wanted) {
  const FusionInfo *info = &fusion_table[wanted];
  if (log->looked_for[wanted])
    diag_error_at(diag, "--require-fusion", DIAG_REQUIRED_FUSION,
                  "%s was asked for, but nothing in the model has its pattern: %s", info->name, info->pattern);
  else
    diag_error_at(diag, "--require-fusion", DIAG_REQUIRED_FUSION,
                  "%s was asked for, but the pass that does it, %s, has not run", info->name, info->pass);
}

bool passes_require(Diag *diag, const PassLog *log, const char *fusion) {
  const Fusion wanted = find_fusion(diag, fusion);
  if (wanted == N_FUSIONS) return false;
  bool met = true;
  for (size_t i = 0; i < log->records.n; i++) {
    const FusionRecord *record = &log->records.items[i];
    if (record->done || record->fusion != wanted) continue;
    origin_error(diag, &record->origin, DIAG_REQUIRED_FUSION, "%s was asked for but not done%s%s: %s", fusion,
                 record->origin.path[0] ? " in " : "", record->origin.path, record->reason);
    met = false;
  }
  if (!met || log->happened[wanted]) return met;
  error_nowhere(diag, log, wanted);
  return false;
}

typedef struct ReportLine {
  const FusionRecord *first;
  const char *path; /* of the first; with * for numbers if there are more */
  unsigned count;
} ReportLine;

typedef struct Report {
  StrBuf *out;
  Arena *arena;
  Graph *graph;
  VEC(ReportLine) lines;
} Report;

// ---- lines ----

static bool same_line(Arena *arena, const ReportLine *line, const FusionRecord *record) {
  const FusionRecord *first = line->first;
  return first->done == record->done && first->fusion == record->fusion &&
         !strcmp(first->reason, record->reason) && first->origin.span.source == record->origin.span.source &&
         first->origin.span.begin == record->origin.span.begin &&
         !strcmp(path_without_numbers(arena, first->origin.path), path_without_numbers(arena, record->origin.path));
}

static void add_record(Report *r, const FusionRecord *record) {
  for (size_t i = 0; i < r->lines.n; i++) {
    ReportLine *line = &r->lines.items[i];
    if (!same_line(r->arena, line, record)) continue;
    line->count++;
    if (strcmp(line->first->origin.path, record->origin.path) != 0)
      line->path = path_without_numbers(r->arena, record->origin.path);
    return;
  }
  vec_push(r->arena, &r->lines, (ReportLine){.first = record, .path = record->origin.path, .count = 1});
}

/* The line of the user's own text, past the calls within standard layers. */
static const char *place(Arena *arena, const Origin *origin) {
  const SrcSpan span = origin_place(origin);
  if (!span.source) return "-";
  return arena_printf(arena, "%s:%u", text_shown(arena, span.source->path), source_place(span.source, span.begin).line);
}

static bool any_looked_for(const PassLog *log) {
  for (int i = 0; i < N_FUSIONS; i++)
    if (log->looked_for[i]) return true;
  return false;
}

/* Without this a report of a model in which nothing was found would look as if nobody had looked. */
static void print_nothing(Report *r, const PassLog *log) {
  for (size_t i = 0; i < r->lines.n; i++)
    if (r->lines.items[i].first->done) return;
  strbuf_printf(r->out, "fused\n  nothing: %s\n",
                any_looked_for(log) ? "the model has none of the patterns of `tfmc document fusions`"
                                    : "no pass that fuses has run");
}

static void print_lines(Report *r, bool done) {
  bool any = false;
  for (size_t i = 0; i < r->lines.n; i++) {
    const ReportLine *line = &r->lines.items[i];
    if (line->first->done != done) continue;
    if (!any) strbuf_add(r->out, done ? "fused\n" : "not fused\n");
    any = true;
    strbuf_printf(r->out, "  %-11s  %s", fusion_table[line->first->fusion].name, place(r->arena, &line->first->origin));
    if (line->path[0]) strbuf_printf(r->out, "  %s", line->path);
    if (line->count > 1) strbuf_printf(r->out, "  (%u times)", line->count);
    strbuf_printf(r->out, "\n               %s\n", line->first->reason);
  }
}

// ---- numbers of fewer bits ----

static const Node *rounding_of(const Node *factor) {
  while (node_moves_elements(factor)) factor = factor->inputs.items[0];
  return factor;
}

/* Why a product stayed in f32 while others did not. */
static const char *reason_for_f32(Arena *arena, const Node *product) {
  const Node *factor = product->inputs.items[1], *source = rounding_of(factor);
  const char *name = source->op == OP_WEIGHT ? text_shown(arena, source->attr.name) : "";
  int64_t columns = 0;
  if (source->op == OP_MUL && source->inputs.items[1]->op == OP_FULL) {
    const Node *scaled = rounding_of(source->inputs.items[0]);
    if (scaled->op == OP_WEIGHT)
      return arena_printf(arena, "%s: the factor %g is in it", text_shown(arena, scaled->attr.name),
                          source->inputs.items[1]->attr.number);
  }
  if (source->op != OP_WEIGHT) return "its factor is computed from weights";
  if (factor->rank != 2) return arena_printf(arena, "%s: it has not two axes", name);
  size_is_const(factor->dims[1], &columns);
  if (columns > WHOLE_MAX_COLUMNS)
    return arena_printf(arena, "%s: sums of %lld products need more than 32 bits", name,
                        (long long)columns);
  if (source->attr.stored == STORED_F32) return arena_printf(arena, "%s: a rule says so", name);
  if (source->attr.stored != STORED_ANY)
    return arena_printf(arena, "%s: it is packed with weights of another type", name);
  return arena_printf(arena, "%s: no rule says otherwise", name);
}

/* Scales are left out: they are 4 bytes for each row of a weight. */
static void print_room(Report *r, const int64_t weights[TFM_N_FORMS]) {
  enum { MANY = 4096 }; /* whole groups */
  double before = 0, after = 0;
  for (uint8_t form = 0; form < TFM_N_FORMS; form++) {
    before += 4.0 * (double)weights[form];
    after += (double)tfm_form_bytes(form, MANY) / MANY * (double)weights[form];
  }
  strbuf_printf(r->out, "  %-14s %.4g MB, %.4g in f32\n", "room", after / 1e6, before / 1e6);
}

/* Nothing of models that are f32 throughout. */
static void print_numbers(Report *r) {
  const bool *is_static = graph_static_flags(r->arena, r->graph);
  int64_t products[TFM_N_FORMS] = {0}, weights[TFM_N_FORMS] = {0}, attentions[TFM_N_FORMS] = {0}, elements;
  VEC(const Node *) wide = {0};
  for (const Node *node = r->graph->first; node; node = node->next) {
    if (node->op == OP_ATTENTION) attentions[node->attr.form]++;
    const bool is_product = node->op == OP_LINEAR || node->op == OP_MATMUL || node->op == OP_MATMUL_FUSED;
    if (!is_product || is_static[node->id] || !is_static[node->inputs.items[1]->id]) continue;
    const tfm_form form = node_product_form(node);
    products[form]++;
    if (size_is_const(node_elements(r->graph->sizes, node->inputs.items[1]), &elements)) weights[form] += elements;
    if (form == TFM_FORM_F32) vec_push(r->arena, &wide, node);
  }
  int64_t rounded = attentions[TFM_FORM_INT8];
  for (uint8_t form = 0; form < TFM_N_FORMS; form++) rounded += form == TFM_FORM_F32 ? 0 : products[form];
  if (!rounded) return;
  strbuf_add(r->out, "numbers\n");
  for (uint8_t form = TFM_N_FORMS; form-- > 0;)
    if (products[form] || attentions[form])
      strbuf_printf(r->out, "  %-14s %lld products, %lld weights, %lld attentions\n", tfm_form_name(form),
                    (long long)products[form], (long long)weights[form], (long long)attentions[form]);
  print_room(r, weights);
  for (size_t i = 0; i < wide.n; i++)
    strbuf_printf(r->out, "    %s  %s\n", place(r->arena, &wide.items[i]->origin),
                  reason_for_f32(r->arena, wide.items[i]));
}

// ---- costs ----

static const Size *product(SizeTable *sizes, const Size *a, const Size *b) {
  return a && b ? size_mul(sizes, a, b) : NULL;
}

/* Of each step and element of the state: what its key writes and its query reads, and with beta what its key reads. */
static const Size *state_flops(SizeTable *sizes, const Node *node) {
  const Node *k = node->inputs.items[1];
  const Size *each = size_const(sizes, 4 + 2 * node->attr.has_beta);
  return product(sizes, product(sizes, each, k->dims[k->rank - 1]), node_elements(sizes, node));
}

/* Multiplications and additions of a product of matrices, and of states; 0 for everything else. */
static const Size *flops(SizeTable *sizes, const Node *node) {
  if (node->op == OP_LINEAR_ATTENTION) return state_flops(sizes, node);
  if (op_table[node->op].category != CATEGORY_CONTRACT) return size_const(sizes, 0);
  const Node *x = node->inputs.items[0];
  const Size *inner = x->dims[x->rank - 1];
  const Size *elements = node_elements(sizes, node);
  if (node->op != OP_ATTENTION) return product(sizes, size_const(sizes, 2), product(sizes, elements, inner));
  /* [..., t, e]: the scores take h per pair of query and key, the values e. */
  const Size *lead = size_const(sizes, 2);
  for (uint32_t i = 0; i + 1u < node->rank; i++) lead = product(sizes, lead, node->dims[i]);
  const Node *keys = node->inputs.items[1];
  const Size *widths = size_add(sizes, inner, node->dims[node->rank - 1]);
  return product(sizes, product(sizes, lead, keys->dims[keys->rank - 2]), widths);
}

static void print_size_line(Report *r, const char *label, const Size *size) {
  strbuf_printf(r->out, "  %-14s ", label);
  if (size) size_print(r->out, r->graph->sizes, size);
  else strbuf_add(r->out, "too large a polynomial");
  strbuf_add_char(r->out, '\n');
}

/* The cost of one run, as polynomials of its sizes. Static nodes count nothing: they are computed before any run. */
static void print_costs(Report *r) {
  SizeTable *sizes = r->graph->sizes;
  const Size *total = size_const(sizes, 0), *bytes = size_const(sizes, 0);
  unsigned n_weights = 0, n_operations = 0;
  bool *is_static = graph_static_flags(r->arena, r->graph);
  for (const Node *node = r->graph->first; node; node = node->next) {
    if (node->op == OP_WEIGHT) {
      const Size *elements = node_elements(sizes, node);
      const Size *more = product(sizes, elements, size_const(sizes, dtype_bytes[node->dtype]));
      bytes = bytes && more ? size_add(sizes, bytes, more) : NULL;
      n_weights++;
    }
    bool view = op_table[node->op].category == CATEGORY_VIEW;
    if (is_static[node->id] || node->op == OP_INPUT || view) continue;
    n_operations++;
    const Size *more = flops(sizes, node);
    total = total && more ? size_add(sizes, total, more) : NULL;
  }
  strbuf_add(r->out, "cost\n");
  strbuf_printf(r->out, "  %-14s %u\n", "operations", n_operations);
  print_size_line(r, "FLOP of a run", total);
  print_size_line(r, "model bytes", bytes);
  strbuf_printf(r->out, "  %-14s %u\n", "weights", n_weights);
}

void passes_report(StrBuf *out, Graph *graph, const PassLog *log) {
  Report r = {.out = out, .arena = arena_create(), .graph = graph};
  for (size_t i = 0; i < log->records.n; i++) add_record(&r, &log->records.items[i]);
  print_nothing(&r, log);
  print_lines(&r, true);
  print_lines(&r, false);
  print_numbers(&r);
  print_costs(&r);
  arena_destroy(r.arena);
}

void passes_report_numbers(StrBuf *out, Graph *graph) {
  Report r = {.out = out, .arena = arena_create(), .graph = graph};
  graph_renumber(graph);
  print_numbers(&r);
  arena_destroy(r.arena);
}
