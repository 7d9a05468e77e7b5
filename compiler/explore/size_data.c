/* Sizes: what values the run-time sizes of a program may have, and what a run takes with them.
 *
 * * In: a program with the checks of its graph. Out: for each size the stops of its slider, up to what the checks
 * allow, and a default; the bytes of workspace for each combination of stops, which the runtime itself says. Where
 * there are too many combinations, sizes have fewer stops. Refuses nothing: combinations that a check refuses have no
 * bytes. */
#include <string.h>

#include "explore/explorer.h"
#include "tfm/abi/drivers.h"
#include "tfm/abi/measure.h"

/* USUAL: the default of a size that counts positions, and the end of the stops of one that has no limit. */
enum {
  MOST_STOPS = 40,
  MOST_PAIRS = 4096,
  USUAL = 128,
  MOST_OF_ROWS = 512,
  MOST_OF_NEW = 64,
  MOST_OF_POSITIONS = 4096,
  MOST_LIMIT = 1 << 24
};

typedef struct Stops {
  int64_t values[MOST_STOPS];
  uint32_t n;
  int64_t chosen, limit; /* limit 0: none */
} Stops;

// ---- what the checks allow ----

static bool holds(const Cond *cond, const int64_t *symbols) {
  int64_t left, right;
  switch (cond->kind) {
    case COND_AND: return holds(cond->a, symbols) && holds(cond->b, symbols);
    case COND_OR: return holds(cond->a, symbols) || holds(cond->b, symbols);
    case COND_NOT: return !holds(cond->a, symbols);
    case COND_COMPARE: break;
  }
  if (!size_value(cond->left, symbols, &left) || !size_value(cond->right, symbols, &right)) return false;
  switch (cond->op) {
    case OP_NE: return left != right;
    case OP_LT: return left < right;
    case OP_GT: return left > right;
    case OP_LE: return left <= right;
    case OP_GE: return left >= right;
    default: return left == right;
  }
}

static bool involves(const Cond *cond, uint32_t symbol) {
  if (cond->kind == COND_COMPARE) return size_involves(cond->left, symbol) || size_involves(cond->right, symbol);
  return involves(cond->a, symbol) || (cond->b && involves(cond->b, symbol));
}

/* Whether every check that is about this size alone allows the value. */
static bool is_allowed(const Graph *graph, uint32_t symbol, int64_t value) {
  int64_t symbols[SIZE_MAX_SYMBOLS] = {0};
  symbols[symbol] = value;
  for (size_t i = 0; i < graph->checks.n; i++) {
    const Cond *cond = graph->checks.items[i].condition;
    if (!involves(cond, symbol)) continue;
    bool is_alone = true;
    for (uint32_t other = 0; other < graph->sizes->n_symbols; other++)
      is_alone = is_alone && (other == symbol || !involves(cond, other));
    if (is_alone && !holds(cond, symbols)) return false;
  }
  return true;
}

/* The greatest allowed value between one that is and one that is not. */
static int64_t limit_between(const Graph *graph, uint32_t symbol, int64_t allowed, int64_t refused) {
  while (refused - allowed > 1) {
    const int64_t middle = allowed + (refused - allowed) / 2;
    if (is_allowed(graph, symbol, middle)) allowed = middle;
    else refused = middle;
  }
  return allowed;
}

static int64_t limit_of(const Graph *graph, uint32_t symbol) {
  int64_t allowed = 0;
  for (int64_t value = 1; value <= MOST_LIMIT; value *= 2) {
    if (is_allowed(graph, symbol, value)) allowed = value;
    else if (allowed) return limit_between(graph, symbol, allowed, value);
  }
  return 0;
}

// ---- stops ----

static bool has_role(const Graph *graph, SizeRole role, uint32_t symbol) {
  return graph->size_roles[role] == (int32_t)symbol;
}

static bool has_sizes(const Node *node) {
  for (uint32_t axis = 0; axis < node->rank; axis++)
    if (!size_is_const(node->dims[axis], NULL)) return true;
  return false;
}

/* Whether a size counts the items of a batch: it is the first axis of all inputs that have sizes, and some have others
 * too. */
static bool is_of_rows(const Graph *graph, uint32_t symbol) {
  bool has_others = false;
  if (has_role(graph, ROLE_ROWS, symbol)) return true;
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *input = graph->inputs.items[i];
    if (has_sizes(input) && size_symbol_of(input->dims[0]) != (int32_t)symbol) return false;
    for (uint32_t axis = 1; axis < input->rank; axis++) has_others |= !size_is_const(input->dims[axis], NULL);
  }
  return has_others;
}

/* A step takes one new token, whatever else it could take. */
static bool is_new(const Graph *graph, uint32_t symbol) {
  return has_role(graph, ROLE_FRESH, symbol) || has_role(graph, ROLE_KEPT, symbol);
}

static void add_stop(Stops *stops, int64_t value) {
  if (stops->n == MOST_STOPS || (stops->n && stops->values[stops->n - 1] == value)) return;
  stops->values[stops->n++] = value;
}

static int64_t chosen_of(const Explorer *x, const Graph *graph, uint32_t symbol, int64_t limit) {
  const char *name = graph->sizes->symbols[symbol];
  for (uint32_t i = 0; i < x->request->n_sizes; i++)
    if (strcmp(x->request->sizes[i].name, name) == 0) return x->request->sizes[i].value;
  if (is_of_rows(graph, symbol) || is_new(graph, symbol)) return 1;
  int64_t value = limit && limit < USUAL ? limit : USUAL;
  while (value > 1 && !is_allowed(graph, symbol, value)) value--;
  return value;
}

int64_t explorer_default_size(const Explorer *x, const Graph *graph, uint32_t symbol) {
  return chosen_of(x, graph, symbol, limit_of(graph, symbol));
}

/* Powers of two up to the limit, the limit, and what the page begins with, in order. */
static Stops stops_of(const Explorer *x, const Graph *graph, uint32_t symbol) {
  Stops stops = {.limit = limit_of(graph, symbol)};
  const int64_t usual = is_new(graph, symbol) ? MOST_OF_NEW : is_of_rows(graph, symbol) ? MOST_OF_ROWS
                                                                                    : MOST_OF_POSITIONS;
  const int64_t most = stops.limit ? stops.limit : usual;
  stops.chosen = chosen_of(x, graph, symbol, stops.limit);
  for (int64_t value = 1, last = 0; last < most; last = value, value *= 2) {
    if (stops.chosen > last && stops.chosen < value) add_stop(&stops, stops.chosen);
    if (value < most && is_allowed(graph, symbol, value)) add_stop(&stops, value);
  }
  if (stops.chosen < most) add_stop(&stops, most);
  else add_stop(&stops, most), add_stop(&stops, stops.chosen);
  return stops;
}

/* Leaves out every second stop, but for the first, the last and the chosen one. */
static void thin(Stops *stops) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < stops->n; i++) {
    const bool is_kept = i % 2 == 0 || i + 1 == stops->n || stops->values[i] == stops->chosen;
    if (is_kept) stops->values[n++] = stops->values[i];
  }
  stops->n = n;
}

/* So many threads have a workspace: one, and what the page begins with. */
static uint32_t threads_of(const Explorer *x, int32_t threads[4]) {
  uint32_t n = 0;
  threads[n++] = 1;
  for (int32_t more = 2; more <= 4; more *= 2)
    if (more != x->request->threads) threads[n++] = more;
  if (x->request->threads > 1) threads[n++] = x->request->threads;
  return n;
}

static int64_t pairs_of(const Stops *all, uint32_t n) {
  int64_t pairs = 4; /* threads */
  for (uint32_t i = 0; i < n; i++) pairs *= all[i].n;
  return pairs;
}

static void thin_until_few(Stops *all, uint32_t n) {
  while (pairs_of(all, n) > MOST_PAIRS) {
    uint32_t longest = 0;
    for (uint32_t i = 1; i < n; i++)
      if (all[i].n > all[longest].n) longest = i;
    if (all[longest].n <= 2) return;
    const uint32_t before = all[longest].n;
    thin(&all[longest]);
    if (all[longest].n == before) return;
  }
}

json_t *explorer_sizes(Explorer *x, const ExploredProgram *program) {
  const Graph *graph = program->graph;
  Stops *all = ARENA_ARRAY(x->arena, Stops, graph->sizes->n_symbols + 1);
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++) all[i] = stops_of(x, graph, i);
  thin_until_few(all, graph->sizes->n_symbols);
  json_t *sizes = json_array();
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++) {
    json_t *stops = json_array();
    for (uint32_t k = 0; k < all[i].n; k++) json_array_append_new(stops, json_integer(all[i].values[k]));
    json_t *size = json_pack("{s:s, s:o, s:I}", "name", graph->sizes->symbols[i], "stops", stops, "default",
                             (json_int_t)all[i].chosen);
    if (all[i].limit) json_object_set_new(size, "limit", json_integer(all[i].limit));
    json_array_append_new(sizes, size);
  }
  return sizes;
}

// ---- the workspace ----

/* What the runtime measures: a program with the functions that it calls, without kernels. */
static tfm_program measured_program(const Explorer *x, const ExploredProgram *program) {
  tfm_program made = program->plan->program;
  made.kernels = ARENA_ARRAY(x->arena, void *, made.n_kernels + 1);
  made.drivers = &tfm_all_drivers;
  return made;
}

/* "2,7": the numbers of the stops, the last size counting fastest. False behind the last one. */
static bool next_stops(const json_t *sizes, uint32_t *at) {
  for (size_t i = json_array_size(sizes); i-- > 0;) {
    if (++at[i] < json_array_size(json_object_get(json_array_get(sizes, i), "stops"))) return true;
    at[i] = 0;
  }
  return false;
}

/* Calls `visit` with the values of the sizes and the name of each combination of stops. */
typedef void (*VisitStops)(void *context, const char *key, const int64_t *symbols);

static void visit_stops(const Explorer *x, const json_t *sizes, VisitStops visit, void *context) {
  uint32_t *at = ARENA_ARRAY(x->arena, uint32_t, json_array_size(sizes) + 1);
  int64_t symbols[SIZE_MAX_SYMBOLS] = {0};
  do {
    StrBuf key = strbuf_new(x->arena);
    for (size_t i = 0; i < json_array_size(sizes); i++) {
      const json_t *stops = json_object_get(json_array_get(sizes, i), "stops");
      symbols[i] = json_integer_value(json_array_get(stops, at[i]));
      strbuf_printf(&key, "%s%u", i ? "," : "", at[i]);
    }
    visit(context, key.text, symbols);
  } while (next_stops(sizes, at));
}

typedef struct Measured {
  tfm_measure *measure;
  json_t *bytes, *scratch; /* scratch NULL: not wanted */
} Measured;

static void add_measured(void *context, const char *key, const int64_t *symbols) {
  const Measured *measured = context;
  const tfm_workspace found = tfm_measure_at(measured->measure, symbols);
  if (found.bytes < 0) return;
  json_object_set_new(measured->bytes, key, json_integer(found.bytes));
  if (measured->scratch) json_object_set_new(measured->scratch, key, json_integer(found.bytes - found.buffers));
}

void explorer_add_workspace(Explorer *x, const ExploredProgram *program, json_t *to) {
  const tfm_program made = measured_program(x, program);
  int32_t threads[4];
  const uint32_t n = threads_of(x, threads);
  json_t *all = json_object(), *scratch = json_object();
  for (uint32_t i = 0; i < n; i++) {
    Measured measured = {tfm_measure_open(&made, threads[i]), json_object(), threads[i] == 1 ? scratch : NULL};
    if (!measured.measure) out_of_memory("for the page", 0);
    visit_stops(x, json_object_get(to, "sizes"), add_measured, &measured);
    tfm_measure_close(measured.measure);
    json_object_set_new(all, arena_printf(x->arena, "%d", threads[i]), measured.bytes);
  }
  json_object_set_new(to, "workspace", all);
  json_object_set_new(to, "scratch", scratch);
}
