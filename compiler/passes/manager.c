/* The pass manager.
 *
 * In: a graph and options. Out: the graph after the rows of passes.def that the options select, with what was asked for
 * printed, timed or written between them. Refused: unknown names. A pass that breaks the graph is an internal error
 * whose message names the pass. Scratch memory is reset between passes, so none can lean on what another one left
 * there. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "format/line_diff.h"
#include "graph/stable_names.h"
#include "passes/pass.h"

typedef struct PassRow {
  bool (*run)(Pass *pass);
  const char *name;
  unsigned needs, gives, breaks;
  int least;
  const char *line;
} PassRow;

static const PassRow rows[] = {
#define PASS(function, name, needs, gives, breaks, least, line) \
  {pass_##function, name, needs, gives, breaks, least, line},
#include "passes/passes.def"
};

enum { N_ROWS = sizeof rows / sizeof *rows };

static const char *const row_names[] = {
#define PASS(function, name, needs, gives, breaks, least, line) name,
#include "passes/passes.def"
};

const char *const *pass_names(uint32_t *n) {
  *n = N_ROWS;
  return row_names;
}

const char *pass_line(uint32_t row) { return rows[row].line; }

static bool is_pass(const char *name) {
  for (uint32_t i = 0; i < N_ROWS; i++)
    if (!strcmp(rows[i].name, name)) return true;
  return false;
}

static bool check_name(Diag *diag, const char *name, const char *option) {
  if (is_pass(name)) return true;
  const char *nearest = diag_nearest(name, row_names, N_ROWS);
  if (nearest)
    diag_error_at(diag, option, DIAG_PASS_NAME, "there is no pass \"%s\"; did you mean \"%s\"?", name, nearest);
  else
    diag_error_at(diag, option, DIAG_PASS_NAME, "there is no pass \"%s\"", name);
  return false;
}

static bool check_names(Diag *diag, const PassOptions *options) {
  bool good = true;
  for (uint32_t i = 0; i < options->n_only; i++) good &= check_name(diag, options->only[i], "--only");
  for (uint32_t i = 0; i < options->n_disabled; i++) good &= check_name(diag, options->disabled[i], "--disable");
  if (options->stop_after) good &= check_name(diag, options->stop_after, "--stop-after");
  const char *after = options->print_after;
  if (after && strcmp(after, "all") != 0 && strcmp(after, "changed") != 0)
    good &= check_name(diag, after, "--print-after");
  return good;
}

/* Checks that the order of the rows gives every row what it needs, at each level. It runs with every compilation, which
 * is cheap, so that a row that is moved fails in the first test rather than in a rare model. */
static void check_order(void) {
  for (int level = 0; level <= 2; level++) {
    unsigned properties = 0;
    for (uint32_t i = 0; i < N_ROWS; i++) {
      if (rows[i].least > level) continue;
      CHECK((rows[i].needs & ~properties) == 0, "passes.def: row %u (%s) stands too early at -O%d", i, rows[i].name,
            level);
      properties = (properties & ~rows[i].breaks) | rows[i].gives;
    }
    CHECK(properties & PROP_LOWERED, "passes.def: nothing lowers the graph at -O%d", level);
  }
  for (int i = 0; i < N_FUSIONS; i++)
    CHECK(!*fusion_table[i].pass || is_pass(fusion_table[i].pass), "fusions.def: no pass records %s",
          fusion_table[i].name);
}

static bool listed(const char *const *names, uint32_t n, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

/* Attention in 8 bits is computed as one operation, so what makes it one always runs: the number of rows up to there,
 * or 0 if the graph has none. */
static uint32_t count_needed(const Graph *graph) {
  const Node *node = graph->first;
  while (node && !(node->op == OP_MATMUL && node->attr.form != TFM_FORM_F32)) node = node->next;
  uint32_t n = 0;
  while (node && n < N_ROWS && strcmp(rows[n].name, "fuse-attention") != 0) n++;
  return node ? n + 1 : 0;
}

/* --disable wins over --only; --only runs rows whatever their level. */
static bool selected(const PassOptions *options, const PassRow *row, uint32_t needed) {
  if (listed(options->disabled, options->n_disabled, row->name)) return false;
  if (options->n_only) return listed(options->only, options->n_only, row->name);
  if (row->run == pass_recompute_layers && options->recompute != RECOMPUTE_LAYER) return false;
  if (row->run == pass_recompute && options->recompute == RECOMPUTE_NONE) return false;
  return row->least <= options->level || row - rows < needed;
}

// ---- what happens between passes ----

static void print_graph(const PassOptions *options, Graph *graph, StrBuf *text) {
  if (options->names) graph_print_with_names(text, graph, options->names);
  else graph_print(text, graph);
}

/* `before`: the graph before the pass, if changes are shown. */
static void print_after(const PassOptions *options, Graph *graph, const PassRow *row, bool changed,
                        const StrBuf *before) {
  const char *after = options->print_after;
  if (!after || !options->print_to) return;
  bool all = !strcmp(after, "all");
  if (!all && strcmp(after, row->name) != 0 && (!changed || strcmp(after, "changed") != 0)) return;
  if (all && !changed) {
    fprintf(options->print_to, "# after %s: (unchanged)\n", row->name);
    return;
  }
  StrBuf text = strbuf_new(before->arena);
  print_graph(options, graph, &text);
  if (options->shows_changes) {
    const LineDiff diff = line_diff(before->arena, before, &text);
    text = strbuf_new(before->arena);
    line_diff_print(&text, row->name, &diff);
  }
  fprintf(options->print_to, "# after %s\n%s\n", row->name, text.text);
}

static bool dump_after(const PassOptions *options, Diag *diag, Graph *graph, const PassRow *row, unsigned number,
                       Arena *scratch) {
  if (!options->dump_dir) return true;
  const char *path = arena_printf(scratch, "%s/%02u-%s.graph", options->dump_dir, number, row->name);
  FILE *file = fopen(path, "w");
  StrBuf text = strbuf_new(scratch);
  print_graph(options, graph, &text);
  bool written = file && fputs(text.text, file) >= 0;
  if (file && fclose(file) != 0) written = false;
  if (!written) diag_error_at(diag, path, DIAG_FILE, "cannot be written: %s", strerror(errno));
  return written;
}

/* NULL: nobody asks. */
static const char *text_to_verify(const PassOptions *options, Graph *graph, Arena *arena) {
  if (!options->verify_each) return NULL;
  StrBuf text = strbuf_new(arena);
  graph_print(&text, graph);
  return text.text;
}

/* The verifier costs about as much as a pass, so it runs in tests only. A pass that says that it
 * changed something must have done so, and the other way round: --print-after and --time-passes repeat what it says. */
static void verify_after(const PassOptions *options, Graph *graph, const PassRow *row, const char *before, bool changed,
                         Arena *scratch) {
  if (!options->verify_each) return;
  Diag faults = diag_new(scratch);
  if (!graph_verify(graph, &faults)) {
    const char *text = faults.messages.n ? faults.messages.items[0].text : "no message";
    internal_error(__FILE__, __LINE__, "pass %s broke the graph: %s", row->name, text);
  }
  if (changed == (strcmp(before, text_to_verify(options, graph, scratch)) == 0))
    internal_error(__FILE__, __LINE__, "pass %s %s", row->name,
                   changed ? "changed nothing but says that it did" : "changed the graph but says that it did not");
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef struct RunTimes {
  double seconds[N_ROWS];
  bool ran[N_ROWS], changed[N_ROWS];
} RunTimes;

static void print_times(FILE *to, const RunTimes *times) {
  double total = 0;
  for (uint32_t i = 0; i < N_ROWS; i++) total += times->seconds[i];
  fprintf(to, "%12s  %5s  %s\n", "microseconds", "share", "pass");
  for (uint32_t i = 0; i < N_ROWS; i++) {
    if (!times->ran[i]) continue;
    fprintf(to, "%12.1f  %4.0f%%  %s%s\n", times->seconds[i] * 1e6, total > 0 ? 100 * times->seconds[i] / total : 0,
            rows[i].name, times->changed[i] ? "" : " (unchanged)");
  }
  fprintf(to, "%12.1f  %5s  total\n", total * 1e6, "");
}

/* A report can tell a pattern that is not there from one that nobody looked for. */
static void note_looked_for(PassLog *log, const PassRow *row) {
  for (int i = 0; i < N_FUSIONS && log; i++) log->looked_for[i] |= !strcmp(fusion_table[i].pass, row->name);
}

typedef struct PassRun { /* what all passes of a run have in common */
  Graph *graph;
  Diag *diag;
  const PassOptions *options;
  PassLog *log;
  Arena *scratch, *kept; /* scratch: of a pass; kept: of what is shown of it when it is done */
  RunTimes times;
  unsigned number; /* of the next pass that runs */
} PassRun;

/* Runs the pass of row number `i`, and what observers, verifier and dumps want around it. False: a dump could not be
 * written. */
static bool run_row(PassRun *run, uint32_t i) {
  const PassRow *row = &rows[i];
  const PassOptions *options = run->options;
  Graph *graph = run->graph;
  Pass pass = {.graph = graph, .scratch = run->scratch, .log = run->log};
  const char *before = text_to_verify(options, graph, run->kept);
  StrBuf shown = strbuf_new(run->kept);
  if (options->shows_changes) print_graph(options, graph, &shown);
  if (options->observer) options->observer->before(options->observer->context, graph, row->name);
  double start = seconds_now();
  graph_renumber(graph); /* passes compare places in the list by id */
  const bool changed = run->times.changed[i] = row->run(&pass);
  run->times.seconds[i] = seconds_now() - start;
  if (options->observer)
    options->observer->after(options->observer->context, graph, changed, run->times.seconds[i]);
  run->times.ran[i] = true;
  note_looked_for(run->log, row);
  arena_reset(run->scratch);
  verify_after(options, graph, row, before, changed, run->scratch);
  if (options->names) stable_names_note(options->names, graph);
  print_after(options, graph, row, changed, &shown);
  arena_reset(run->kept);
  const bool good = dump_after(options, run->diag, graph, row, run->number++, run->scratch);
  arena_reset(run->scratch);
  return good;
}

/* What runs is the uniform graph, so it is the uniform graph that every command shows, reports on and makes
 * requirements of: nobody can run passes over another. */
bool passes_run(Graph *graph, Diag *diag, const PassOptions *options, PassLog *log) {
  check_order();
  if (!check_names(diag, options)) return false;
  graph_make_uniform(graph);
  PassRun run = {.graph = graph, .diag = diag, .options = options, .log = log,
                 .scratch = arena_create(), .kept = arena_create()};
  if (options->names) stable_names_note(options->names, graph);
  const uint32_t needed = count_needed(graph);
  bool good = true, stopped = false;
  graph->is_half_lowered = false;
  for (uint32_t i = 0; i < N_ROWS && good; i++) {
    if (stopped || !selected(options, &rows[i], needed)) {
      graph->is_half_lowered |= rows[i].least == 0;
      continue;
    }
    good = run_row(&run, i);
    stopped = options->stop_after && !strcmp(options->stop_after, rows[i].name);
  }
  pass_log_close(log);
  if (options->time_passes && options->print_to) print_times(options->print_to, &run.times);
  arena_destroy(run.kept);
  arena_destroy(run.scratch);
  return good;
}
