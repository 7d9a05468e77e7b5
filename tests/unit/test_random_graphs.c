/* Random graphs, compiled at every level, verified after every pass, compute what they did before.
 *
 * Operations are drawn so that values stay near 1 and nothing is decided by a rounding: comparisons are of integers.
 * A graph depends on its seed alone; a failure prints the seed and the graph. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "../support/same_values.h"
#include "graph/build.h"
#include "passes/passes.h"

enum { N_GRAPHS = 1000, N_OPERATIONS = 40 };

typedef VEC(Node *) Nodes;

typedef struct Random {
  uint64_t state;
  Arena *arena;
  Graph *graph;
  Builder b;
  Nodes nodes;
  unsigned n_weights;
} Random;

static uint32_t draw(Random *r, uint32_t n) { return (uint32_t)(random_next(&r->state) >> 33) % n; }

static const Size *constant(Random *r, int64_t n) { return size_const(r->graph->sizes, n); }

static void keep(Random *r, Node *node) {
  if (node) vec_push(r->arena, &r->nodes, node);
}

/* A node of this type; later ones are drawn more often, so that graphs grow deep. */
static Node *any(Random *r, DType dtype, uint32_t least_rank) {
  for (unsigned tries = 0; tries < 40; tries++) {
    uint32_t n = (uint32_t)r->nodes.n, i = draw(r, n), j = draw(r, n);
    Node *node = r->nodes.items[i > j ? i : j];
    if (node->dtype == dtype && node->rank >= least_rank) return node;
  }
  return NULL;
}

static Node *weight(Random *r, uint32_t rank, const Size *a, const Size *b) {
  return build_weight(&r->b, arena_printf(r->arena, "w%u", r->n_weights++), rank, (const Size *const[]){a, b});
}

/* Whether two shapes broadcast in every run. */
static bool agree(const Node *x, const Node *y) {
  if (!x || !y) return false;
  for (uint32_t i = 1; i <= x->rank && i <= y->rank; i++) {
    const Size *a = x->dims[x->rank - i], *b = y->dims[y->rank - i];
    if (a != b && !size_equals(a, 1) && !size_equals(b, 1)) return false;
  }
  return x->rank <= 4 && y->rank <= 4;
}

// ---- operations ----

static Node *make_unary(Random *r) {
  static const OpKind ops[] = {OP_NEG, OP_ABS, OP_TANH, OP_SIGMOID, OP_RELU, OP_GELU, OP_SILU, OP_TO_F32};
  Node *x = any(r, DTYPE_F32, 0);
  return x ? build_unary(&r->b, ops[draw(r, 8)], x) : NULL;
}

static Node *make_binary(Random *r) {
  static const OpKind ops[] = {OP_ADD, OP_SUB, OP_MUL, OP_MAXIMUM, OP_MINIMUM, OP_ADD};
  Node *x = any(r, DTYPE_F32, 0), *y = any(r, DTYPE_F32, 0);
  if (!agree(x, y)) return NULL;
  Node *node = build_binary(&r->b, ops[draw(r, 6)], x, y);
  return draw(r, 2) ? node : build_unary(&r->b, OP_TANH, node);
}

static Node *make_scaled(Random *r) {
  static const double numbers[] = {0, 1, -1, 0.5, 2, 3, 0.7};
  Node *x = any(r, DTYPE_F32, 0), *c = build_scalar(&r->b, DTYPE_F32, numbers[draw(r, 7)], 0);
  if (!x) return NULL;
  if (c->attr.number != 0 && draw(r, 3) == 0) return build_binary(&r->b, OP_DIV, x, c);
  OpKind op = draw(r, 2) ? OP_MUL : OP_ADD;
  return draw(r, 2) ? build_binary(&r->b, op, x, c) : build_binary(&r->b, op, c, x);
}

static Node *make_mask(Random *r) {
  Node *x = any(r, DTYPE_BOOL, 0), *y = any(r, DTYPE_BOOL, 0);
  if (!agree(x, y)) return NULL;
  if (draw(r, 3) == 0) return build_unary(&r->b, OP_NOT, x);
  return build_binary(&r->b, draw(r, 2) ? OP_AND : OP_OR, x, y);
}

/* True whatever the value is, but false for NaN, which the interpreter writes into rows that are not computed. Mixed
 * with a given mask that tells these rows apart, if there is one of their shape. */
static Node *make_truth(Random *r) {
  Node *x = any(r, DTYPE_F32, 0), *keep = r->graph->inputs.items[4];
  if (!x) return NULL;
  Node *truth = build_binary(&r->b, OP_LE, build_unary(&r->b, OP_TANH, x), build_scalar(&r->b, DTYPE_F32, 2, 0));
  if (x->rank != 3 || x->dims[0] != keep->dims[0] || x->dims[1] != keep->dims[1]) return truth;
  Node *rows = build_reshape(&r->b, keep, 3, (const Size *const[]){x->dims[0], x->dims[1], constant(r, 1)});
  OpKind op = draw(r, 2) ? OP_AND : OP_OR;
  return draw(r, 2) ? build_binary(&r->b, op, rows, truth) : build_binary(&r->b, op, truth, rows);
}

static Node *make_comparison(Random *r) {
  static const OpKind ops[] = {OP_EQ, OP_NE, OP_LT, OP_GT, OP_LE, OP_GE};
  Node *x = any(r, DTYPE_I32, 0), *y = any(r, DTYPE_I32, 0);
  if (!agree(x, y)) return NULL;
  if (draw(r, 4) == 0) return build_binary(&r->b, draw(r, 2) ? OP_ADD : OP_SUB, x, y);
  return build_binary(&r->b, ops[draw(r, 6)], x, y);
}

static Node *make_where(Random *r) {
  static const double fills[] = {-INFINITY, -1e10, 0};
  Node *c = any(r, DTYPE_BOOL, 0), *x = any(r, DTYPE_F32, 0), *fill = build_scalar(&r->b, DTYPE_F32, fills[draw(r, 3)], 0);
  if (!agree(c, x)) return NULL;
  Node *node = draw(r, 2) ? build_where(&r->b, c, fill, x) : build_where(&r->b, c, x, fill);
  return node->rank ? build_softmax(&r->b, OP_SOFTMAX, node, (int32_t)draw(r, node->rank)) : NULL;
}

static Node *make_permute(Random *r) {
  Node *x = any(r, draw(r, 3) ? DTYPE_F32 : DTYPE_BOOL, 2);
  return x ? build_transpose(&r->b, x, draw(r, x->rank), draw(r, x->rank)) : NULL;
}

/* An axis of 1 more, or less, or two axes as one. */
static Node *make_reshape(Random *r) {
  Node *x = any(r, (DType)draw(r, 3), 1);
  if (!x) return NULL;
  const Size *dims[MAX_RANK];
  uint32_t at = draw(r, x->rank), n = 0;
  bool grow = x->rank < 4 && draw(r, 2);
  bool merge = !grow && at + 1u < x->rank;
  if (!grow && !merge && !size_equals(x->dims[at], 1)) return NULL;
  for (uint32_t i = 0; i < x->rank; i++) {
    if (i == at && grow) dims[n++] = constant(r, 1);
    if (i == at && merge) dims[n++] = size_mul(r->graph->sizes, x->dims[i], x->dims[i + 1]);
    else if ((i != at || grow) && !(merge && i == at + 1)) dims[n++] = x->dims[i];
  }
  return build_reshape(&r->b, x, n, dims);
}

static Node *make_slice(Random *r) {
  Node *x = any(r, (DType)draw(r, 3), 1);
  if (!x) return NULL;
  const Size *starts[MAX_RANK], *dims[MAX_RANK];
  uint32_t axis = draw(r, x->rank);
  int64_t length;
  if (!size_is_const(x->dims[axis], &length) || length < 2) return NULL;
  int64_t start = draw(r, 2) * (length / 2);
  for (uint32_t i = 0; i < x->rank; i++) {
    starts[i] = constant(r, i == axis ? start : 0);
    dims[i] = i == axis ? constant(r, length / 2) : x->dims[i];
  }
  return build_slice(&r->b, x, starts, dims);
}

static Node *make_concat(Random *r) {
  Node *x = any(r, draw(r, 3) ? DTYPE_F32 : DTYPE_BOOL, 1);
  if (!x) return NULL;
  Node *y = x;
  for (unsigned i = 0; i < 10; i++) {
    Node *other = any(r, x->dtype, 1);
    if (other && node_same_shape(other, x)) y = other;
  }
  return build_concat(&r->b, 2, (Node *const[]){x, y}, (int32_t)draw(r, x->rank));
}

static Node *make_linear(Random *r) {
  Node *x = any(r, DTYPE_F32, 1);
  if (!x || !size_is_const(x->dims[x->rank - 1], NULL)) return NULL;
  const Size *k = x->dims[x->rank - 1], *n = constant(r, 4 + 4 * (int64_t)draw(r, 2));
  Node *w = NULL;
  for (unsigned i = 0; i < 6 && !w; i++) {
    Node *known = any(r, DTYPE_F32, 2);
    if (known && known->op == OP_WEIGHT && known->rank == 2 && known->dims[1] == k) w = known;
  }
  if (!w) keep(r, w = weight(r, 2, n, k));
  Node *node = build_linear(&r->b, x, w);
  if (draw(r, 2)) node = build_binary(&r->b, OP_ADD, node, weight(r, 1, w->dims[0], NULL));
  return draw(r, 2) ? node : build_unary(&r->b, OP_TANH, node);
}

static Node *make_attention(Random *r) {
  Node *x = any(r, DTYPE_F32, 2);
  if (!x || !size_is_const(x->dims[x->rank - 1], NULL)) return NULL;
  Node *y = any(r, DTYPE_F32, 2);
  if (!y || y->rank != x->rank || !node_same_shape(x, y)) y = x;
  Node *scores = build_matmul(&r->b, x, build_transpose(&r->b, y, y->rank - 2u, y->rank - 1u));
  if (draw(r, 2)) scores = build_binary(&r->b, OP_DIV, scores, build_scalar(&r->b, DTYPE_F32, 2, 0));
  if (draw(r, 2)) {
    Node *mask = build_causal_mask(&r->b, scores->dims[scores->rank - 2], scores->dims[scores->rank - 1]);
    scores = build_where(&r->b, mask, build_scalar(&r->b, DTYPE_F32, -INFINITY, 0), scores);
  }
  Node *softmax = build_softmax(&r->b, OP_SOFTMAX, scores, scores->rank - 1);
  if (draw(r, 4) == 0) keep(r, softmax);
  return build_matmul(&r->b, softmax, y);
}

static Node *make_row(Random *r) {
  static const OpKind ops[] = {OP_SUM, OP_MEAN, OP_MAX, OP_MIN};
  Node *x = any(r, DTYPE_F32, 1);
  if (!x) return NULL;
  if (draw(r, 2)) return build_reduce(&r->b, ops[draw(r, 4)], x, (int32_t)draw(r, x->rank), draw(r, 2));
  if (draw(r, 2)) return build_softmax(&r->b, OP_SOFTMAX, x, x->rank - 1);
  Node *w = size_is_const(x->dims[x->rank - 1], NULL) ? weight(r, 1, x->dims[x->rank - 1], NULL) : NULL;
  return build_rms_norm(&r->b, x, w, 0.1);
}

static Node *make_gather(Random *r) {
  Node *ids = r->graph->inputs.items[0];
  Node *node = build_gather(&r->b, weight(r, 2, constant(r, 3), constant(r, 8)), ids);
  return draw(r, 2) ? node : build_binary(&r->b, OP_MUL, node, build_scalar(&r->b, DTYPE_F32, 2, 0));
}

static Node *make_source(Random *r) {
  const Size *time = size_symbol(r->graph->sizes, "time");
  switch (draw(r, 5)) {
    case 0: return build_causal_mask(&r->b, time, time);
    case 1: return build_positions(&r->b, time);
    case 2: return build_full(&r->b, 0.5, 2, (const Size *const[]){time, constant(r, 1)});
    case 3: return build_positions(&r->b, constant(r, 8));
    default: return build_unary(&r->b, OP_RSQRT, build_size(&r->b, DTYPE_F32, time));
  }
}

/* The first or last row of an axis, which may be a run-time size. */
static Node *row_of(Random *r, Node *x) {
  const Size *starts[MAX_RANK], *dims[MAX_RANK], *one = constant(r, 1);
  uint32_t axis = draw(r, x->rank);
  bool last = draw(r, 2);
  for (uint32_t i = 0; i < x->rank; i++) {
    starts[i] = i == axis && last ? size_sub(r->graph->sizes, x->dims[i], one) : constant(r, 0);
    dims[i] = i == axis ? one : x->dims[i];
  }
  return build_slice(&r->b, x, starts, dims);
}

// ---- graphs ----

static void add_inputs(Random *r) {
  const Size *batch = size_symbol(r->graph->sizes, "batch"), *time = size_symbol(r->graph->sizes, "time");
  keep(r, build_input(&r->b, "ids", DTYPE_I32, 2, (const Size *const[]){batch, time}));
  keep(r, build_input(&r->b, "x", DTYPE_F32, 3, (const Size *const[]){batch, time, constant(r, 8)}));
  keep(r, build_input(&r->b, "y", DTYPE_F32, 4, (const Size *const[]){batch, constant(r, 2), time, constant(r, 4)}));
  keep(r, build_input(&r->b, "mask", DTYPE_BOOL, 2, (const Size *const[]){time, time}));
  keep(r, build_input(&r->b, "keep", DTYPE_BOOL, 2, (const Size *const[]){batch, time}));
}

static Graph *random_graph(Arena *arena, uint64_t seed) {
  static Node *(*const makers[])(Random *) = {
      make_unary,   make_binary,  make_binary, make_scaled, make_mask,   make_comparison, make_where,  make_permute,
      make_reshape, make_reshape, make_slice,  make_concat, make_linear, make_linear,     make_linear, make_attention,
      make_row,     make_gather,  make_source, make_unary,  make_truth,  make_mask};
  enum { N_MAKERS = sizeof makers / sizeof *makers };
  Random r = {.state = seed * 7919, .arena = arena, .graph = graph_new(arena, "Random")};
  r.b.graph = r.graph;
  add_inputs(&r);
  for (unsigned i = 0; i < N_OPERATIONS; i++) {
    Node *node = makers[draw(&r, N_MAKERS)](&r);
    if (node && node->rank <= 5) keep(&r, node);
  }
  for (unsigned i = 0; i < 4; i++) {
    Node *node = r.nodes.items[r.nodes.n - 1 - draw(&r, 8)];
    if (draw(&r, 2) && node->rank) node = row_of(&r, node);
    GraphOutput output = {.name = arena_printf(arena, "out%u", i), .node = node};
    vec_push(arena, &r.graph->outputs, output);
  }
  return r.graph;
}

static void check(uint64_t seed) {
  Arena *arena = arena_create();
  Diag diag = diag_new(arena);
  Graph *before = random_graph(arena, seed);
  graph_renumber(before);
  cr_assert(graph_verify(before, &diag), "seed %llu: %s", (unsigned long long)seed, diag.messages.items[0].text);
  for (int level = 0; level <= 2; level += 2) {
    Graph *after = graph_clone(arena, before);
    PassOptions options = {.level = level, .verify_each = true};
    cr_assert(passes_run(after, &diag, &options, NULL));
    bool same = same_values(arena, before, after);
    StrBuf text = strbuf_new(arena);
    if (!same) graph_print(&text, before);
    if (!same) graph_print(&text, after);
    cr_assert(same, "seed %llu, -O%d:\n%s", (unsigned long long)seed, level, text.text);
  }
  arena_destroy(arena);
}

Test(random_graphs, passes_keep_the_values) {
  const char *one = getenv("TFM_SEED");
  if (one) check((uint64_t)atoll(one));
  for (uint64_t seed = 1; seed <= N_GRAPHS && !one; seed++) check(seed);
}
