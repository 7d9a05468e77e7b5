/* Costs of lines, for the language server: "1.77 MFLOP × batch × time, 24 % of the time (batch 1, time 128)".
 *
 * In: the graph of a model as the elaborator made it, and one of its files. Out: a text for each line that steps with
 * arithmetic were made of. The plan is that of a run, the time that of the roofline with round figures for this CPU, as
 * on a page without --profile. A line of a layer that is used twelve times has the sum; a line that calls another has
 * what that has. Of models that cannot be planned, or are larger than a page can hold, nothing is said. */
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "explore/explorer.h"

enum { MOST_TERMS = 3 }; /* that are shown of a sum */

typedef struct CostTerm { /* the factor and `sizes`, such as " × batch × time" */
  const char *sizes;
  double factor, flops; /* flops: with the sizes that a page begins with */
} CostTerm;

typedef struct LineWork {
  VEC(CostTerm) terms;
  double seconds;
  uint32_t seen_by; /* number + 1 of the last step that counts for this line */
} LineWork;

typedef struct Costs {
  Explorer x;
  const ExploredProgram *program;
  const Source *source;
  LineWork *lines; /* by line */
  Node **written;  /* by id */
  int64_t symbols[SIZE_MAX_SYMBOLS];
  Probe most;
  double seconds; /* of a run */
} Costs;

// ---- one term of the arithmetic ----

/* Under a causal mask n queries see (n + 1) / 2 of n keys each, as on the page. */
static CostTerm term_of_step(const Costs *costs, const tfm_step *step, const StepWork *work) {
  const Plan *plan = costs->program->plan;
  WorkTerm flops = work->flops;
  const bool is_half = work->is_causal && flops.n >= 2 && flops.sizes[flops.n - 2] == flops.sizes[flops.n - 1];
  CostTerm term = {.flops = roofline_step_flops_at(&plan->program, step, costs->symbols)};
  if (is_half) flops.factor /= 2;
  term.sizes = explorer_factors(costs->x.arena, plan, &flops, " × ", is_half ? " + 1" : "", &term.factor);
  return term;
}

// ---- a step for its lines ----

static void add_term(const Costs *costs, LineWork *line, const CostTerm *term) {
  for (size_t i = 0; i < line->terms.n; i++) {
    CostTerm *known = &line->terms.items[i];
    if (strcmp(known->sizes, term->sizes) != 0) continue;
    known->factor += term->factor;
    known->flops += term->flops;
    return;
  }
  vec_push(costs->x.arena, &line->terms, *term);
}

static void add_to_line(const Costs *costs, SrcSpan span, uint32_t step, const CostTerm *term, double seconds) {
  if (span.source != costs->source) return;
  LineWork *line = &costs->lines[source_place(span.source, span.begin).line];
  if (line->seen_by == step + 1) return;
  line->seen_by = step + 1;
  line->seconds += seconds;
  if (term->flops > 0) add_term(costs, line, term);
}

static void add_to_lines(const Costs *costs, const Origin *origin, uint32_t step, const CostTerm *term,
                         double seconds) {
  add_to_line(costs, origin->span, step, term, seconds);
  for (const Frame *frame = origin->frame; frame; frame = frame->caller)
    add_to_line(costs, frame->span, step, term, seconds);
}

/* The lines of a step are those of all operations that it computes. */
static void add_step(Costs *costs, uint32_t number) {
  const Plan *plan = costs->program->plan;
  const tfm_step *step = &plan->program.steps[number];
  const Node *node = plan->step_nodes.items[number];
  const StepWork work = roofline_step(&plan->program, step);
  const double seconds = roofline_step_seconds_at(&plan->program, step, costs->symbols, &costs->most);
  costs->seconds += seconds;
  if (!node || seconds <= 0) return;
  const CostTerm term = term_of_step(costs, step, &work);
  const TrackIds *made_of = tracks_of(costs->program->tracks, node);
  add_to_lines(costs, &node->origin, number, &term, seconds);
  for (size_t i = 0; made_of && i < made_of->items.n; i++)
    add_to_lines(costs, &costs->written[made_of->items.items[i]]->origin, number, &term, seconds);
}

// ---- in words ----

static void add_flops(StrBuf *out, double flops) {
  static const char *const units[] = {"", "k", "M", "G", "T", "P"};
  size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++) flops /= 1000;
  strbuf_printf(out, "%.*f %sFLOP", flops >= 100 || flops == (double)(int64_t)flops ? 0 : flops >= 10 ? 1 : 2, flops,
                units[unit]);
}

static int by_flops(const void *a, const void *b) {
  const CostTerm *left = a, *right = b;
  if (left->flops != right->flops) return left->flops < right->flops ? 1 : -1;
  return strcmp(left->sizes, right->sizes);
}

static const char *text_of(const Costs *costs, LineWork *line) {
  StrBuf out = strbuf_new(costs->x.arena);
  const double share = costs->seconds > 0 ? line->seconds / costs->seconds : 0;
  qsort(line->terms.items, line->terms.n, sizeof *line->terms.items, by_flops);
  for (size_t i = 0; i < line->terms.n && i < MOST_TERMS; i++) {
    if (i) strbuf_add(&out, " + ");
    add_flops(&out, line->terms.items[i].factor);
    strbuf_add(&out, line->terms.items[i].sizes);
  }
  if (line->terms.n > MOST_TERMS) strbuf_add(&out, " + ...");
  strbuf_printf(&out, ", %.*f %% of the time", share >= 0.0995 ? 0 : 1, 100 * share);
  const SizeTable *sizes = costs->program->graph->sizes;
  for (uint32_t i = 0; i < sizes->n_symbols; i++)
    strbuf_printf(&out, "%s%s %lld", i ? ", " : " (", sizes->symbols[i], (long long)costs->symbols[i]);
  if (sizes->n_symbols) strbuf_add_char(&out, ')');
  return out.text;
}

// ---- the whole ----

/* NULL: the model cannot be planned. */
static const Plan *plan_model(Costs *costs, Graph *graph) {
  const ExploreRequest *request = costs->x.request;
  ExploredProgram *program = explorer_add_program(&costs->x, "whole", graph, NULL);
  if (!program) return NULL;
  program->plan = plan_graph(costs->x.arena, request->compile.diag, graph, request->targets[0]);
  costs->program = program;
  return program->plan;
}

void explore_line_costs(Arena *arena, const Graph *graph, Source *source, LineCosts *found) {
  if (!explorer_is_small(arena, graph)) return;
  source_place(source, 0); /* counts its lines */
  Diag diag = diag_new(arena);
  const TargetInfo *target = host_target();
  const ExploreRequest request = {
      .compile = {.arena = arena, .diag = &diag, .target = target, .passes = {.level = 2}},
      .targets = &target, .n_targets = 1, .threads = 1};
  Costs costs = {.x = {.arena = arena, .request = &request}, .source = source, .most = explorer_machine(target, 1)};
  if (!plan_model(&costs, graph_clone(arena, graph))) return;
  const Graph *written = costs.program->written;
  costs.lines = ARENA_ARRAY(arena, LineWork, source->n_lines + 2);
  costs.written = ARENA_ARRAY(arena, Node *, written->next_id + 1);
  for (Node *node = written->first; node; node = node->next) costs.written[node->id] = node;
  for (uint32_t i = 0; i < costs.program->graph->sizes->n_symbols; i++)
    costs.symbols[i] = explorer_default_size(&costs.x, costs.program->graph, i);
  for (uint32_t i = 0; i < costs.program->plan->program.n_steps; i++) add_step(&costs, i);
  for (uint32_t line = 1; line <= source->n_lines; line++)
    if (costs.lines[line].terms.n)
      vec_push(arena, &found->items, (LineCost){line, text_of(&costs, &costs.lines[line])});
}
