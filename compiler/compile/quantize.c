/* Numbers of fewer bits: weights that rules name are rounded where they are made, or where products take them.
 *
 *   %1 = weight "fc1.weight"                  %1 = weight "fc1.weight"
 *   %5 = linear %x, %1                        %2 = to_bf16 %1
 *                                             %5 = linear %x, %2
 *
 *   %5 = linear %x, %1                        %5 = linear %x, %1, int8=true (or int4=true)
 *   %6 = gather %1, %ids                      %6 = gather (to_int8 %1), %ids
 *
 *   %7 = matmul %q, %kt                       %7 = matmul %q, %kt, int8=true
 *   %8 = softmax %7, axis=3                   %8 = softmax %7, axis=3
 *   %9 = matmul %8, %v                        %9 = matmul %8, %v, int8=true
 *
 * See quantize.h. */
#define _DEFAULT_SOURCE /* strsep */
#include <fnmatch.h>
#include <string.h>

#include "base/int8.h"
#include "compile/quantize.h"
#include "graph/build.h"
#include "passes/passes.h"

typedef struct PrecisionType {
  const char *name;
  OpKind rounding; /* OP_WEIGHT: none */
  Stored stored;   /* F32: whatever the file has */
} PrecisionType;

static const PrecisionType types[] = {{"f32", OP_WEIGHT, STORED_F32},
                                      {"as-stored", OP_WEIGHT, STORED_ANY},
                                      {"bf16", OP_TO_BF16, STORED_ANY},
                                      {"f16", OP_TO_F16, STORED_ANY},
                                      {"int8", OP_TO_INT8, STORED_ANY},
                                      {"int4", OP_TO_INT4, STORED_ANY}};

typedef struct PrecisionRule {
  const char *pattern; /* NULL: every weight */
  OpKind rounding;
  Stored stored;
} PrecisionRule;

typedef VEC(PrecisionRule) PrecisionRules;

static bool is_whole(OpKind rounding) { return rounding == OP_TO_INT8 || rounding == OP_TO_INT4; }

// ---- rules ----

/* A pattern without wildcards names a weight, or a module with all weights below it; a wildcard stands for dots too. */
static bool names(const char *pattern, const char *weight) {
  if (!pattern) return true;
  if (strpbrk(pattern, "*?")) return fnmatch(pattern, weight, FNM_NOESCAPE) == 0;
  const size_t n = strlen(pattern);
  return !strncmp(pattern, weight, n) && (weight[n] == '.' || !weight[n]);
}

static const char *nearest_weight(const Graph *graph, const char *pattern) {
  const size_t n = graph->declared_weights.n;
  const char **known = ARENA_ARRAY(graph->arena, const char *, n);
  for (size_t i = 0; i < n; i++) known[i] = graph->declared_weights.items[i].key;
  return diag_nearest(pattern, known, n);
}

/* The attention that a module makes has the module's path and a name of its own. */
static const char *name_of_attention(const Graph *graph, const Node *softmax) {
  const char *path = softmax->origin.path;
  return arena_printf(graph->arena, "%s%sattention", path, *path ? "." : "");
}

static bool names_attention(const Graph *graph, const char *pattern) {
  for (const Node *node = graph->first; node; node = node->next)
    if (node->op == OP_SOFTMAX && names(pattern, name_of_attention(graph, node))) return true;
  return false;
}

static bool check_pattern(Diag *diag, const Graph *graph, const char *pattern, OpKind rounding) {
  for (size_t i = 0; i < graph->declared_weights.n; i++)
    if (names(pattern, graph->declared_weights.items[i].key)) return true;
  if (!pattern) return true;
  if (names_attention(graph, pattern)) {
    if (rounding == OP_WEIGHT || is_whole(rounding)) return true;
    diag_error_at(diag, "--quantize", DIAG_PRECISION, "\"%s\" names attention, which is computed in f32 or int8",
                  pattern);
    return false;
  }
  const char *nearest = nearest_weight(graph, pattern);
  diag_error_at(diag, "--quantize", DIAG_PRECISION, "\"%s\" names no weight of the model%s%s%s", pattern,
                nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
  return false;
}

/* One rule, TYPE or PATTERN=TYPE. */
static bool read_rule(Diag *diag, const Graph *graph, char *text, PrecisionRules *rules) {
  char *is = strchr(text, '=');
  const char *type = is ? is + 1 : text;
  if (is) *is = 0;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
    if (strcmp(types[i].name, type) != 0) continue;
    vec_push(graph->arena, rules, ((PrecisionRule){is ? text : NULL, types[i].rounding, types[i].stored}));
    return check_pattern(diag, graph, is ? text : NULL, types[i].rounding);
  }
  diag_error_at(diag, "--quantize", DIAG_PRECISION,
                "\"%s\" is no type of numbers; there are f32, as-stored, bf16, f16, int8 and int4", type);
  return false;
}

static bool read_rules(Diag *diag, const Graph *graph, const char *text, PrecisionRules *rules) {
  bool good = true;
  char *rest = arena_strdup(graph->arena, text);
  for (char *rule; (rule = strsep(&rest, ","));) good = read_rule(diag, graph, rule, rules) && good;
  return good;
}

/* The last rule that names the weight. */
static PrecisionRule rule_of(const PrecisionRules *rules, const char *weight) {
  for (size_t i = rules->n; i-- > 0;)
    if (names(rules->items[i].pattern, weight)) return rules->items[i];
  return (PrecisionRule){NULL, OP_WEIGHT, STORED_ANY};
}

// ---- 16 bits ----

static bool takes(const Node *user, const Node *node) {
  switch (user->op) {
    case OP_LINEAR:
      return user->inputs.items[1] == node;
    case OP_MATMUL:
      return true;
    case OP_GATHER:
      return user->inputs.items[0] == node;
    default:
      return false;
  }
}

static bool is_factor_or_table(const Node *node) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    const bool is_part = op_table[user->op].category == CATEGORY_VIEW || user->op == OP_CONCAT;
    if (takes(user, node) || (is_part && is_factor_or_table(user))) return true;
  }
  return false;
}

static Node *rounded(Graph *graph, Node *weight, OpKind rounding) {
  return graph_add(graph, weight->next, rounding, DTYPE_F32, weight->rank, (const Size *const *)weight->dims, 0, NULL,
                   weight->origin);
}

/* The uses move before the rounding itself uses the weight. */
static void round_weight(Graph *graph, Node *weight, OpKind rounding) {
  Node *by = rounded(graph, weight, rounding);
  graph_replace_uses(graph, weight, by);
  graph_set_inputs(graph, by, 1, &weight);
}

static void round_weights(Graph *graph, const PrecisionRules *rules) {
  for (Node *node = graph->first; node; node = node->next) {
    if (node->op != OP_WEIGHT || node->rank < 2 || !is_factor_or_table(node)) continue;
    const OpKind rounding = rule_of(rules, node->attr.name).rounding;
    node->attr.stored = rule_of(rules, node->attr.name).stored;
    if (rounding == OP_TO_BF16 || rounding == OP_TO_F16) round_weight(graph, node, rounding);
  }
}

// ---- 8 and 4 bits: products ----

/* The weight that the factor is a view of; NULL: it is something else. */
static const Node *weight_behind(const Node *factor) {
  while (op_table[factor->op].category == CATEGORY_VIEW) factor = factor->inputs.items[0];
  return factor->op == OP_WEIGHT ? factor : NULL;
}

static OpKind rounding_of(const PrecisionRules *rules, const Node *factor) {
  const Node *weight = weight_behind(factor);
  return weight ? rule_of(rules, weight->attr.name).rounding : OP_WEIGHT;
}

/* Sums of more columns would not fit 32 bits. */
static bool columns_fit(const Node *factor, uint32_t axis, int64_t *k) {
  return size_is_const(factor->dims[axis], k) && *k >= 1 && *k <= INT8_MAX_COLUMNS;
}

/* x y, where y is a weight [k, n], as x times the rows of yT. */
static Node *linear_of(Graph *graph, Node *product) {
  Builder b = {graph, product, product->origin};
  Node *rows = build_permute(&b, product->inputs.items[1], (const uint8_t[]){1, 0});
  Node *linear = build_linear(&b, product->inputs.items[0], rows);
  graph_replace_uses(graph, product, linear);
  return linear;
}

static void round_product(Graph *graph, const PrecisionRules *rules, Node *node) {
  if (node->op != OP_LINEAR && node->op != OP_MATMUL) return;
  const Node *factor = node->inputs.items[1];
  const OpKind rounding = rounding_of(rules, factor);
  int64_t k;
  if (factor->rank != 2 || !is_whole(rounding) || !columns_fit(factor, node->op == OP_LINEAR, &k)) return;
  Node *linear = node->op == OP_LINEAR ? node : linear_of(graph, node);
  linear->attr.is_int8 = true;
  linear->attr.is_int4 = rounding == OP_TO_INT4 && int4_fits(k);
}

// ---- 8 and 4 bits: tables ----

enum { LARGE_TABLE = 1 << 20 }; /* bytes of f32: smaller ones are worth it only if a rule names them */

static bool is_large(const Node *weight) {
  double bytes = sizeof(float); /* more than an integer holds are large too */
  int64_t dim;
  for (uint32_t i = 0; i < weight->rank; i++) bytes *= size_is_const(weight->dims[i], &dim) ? (double)dim : 0;
  return bytes >= LARGE_TABLE;
}

/* What a product in whole numbers makes of the weight; OP_WEIGHT: there is none. */
static OpKind rounding_of_product(const Node *node) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (user->op == OP_LINEAR && user->attr.is_int8 && user->inputs.items[1] == node)
      return user->attr.is_int4 ? OP_TO_INT4 : OP_TO_INT8;
    const OpKind of_view = op_table[user->op].category == CATEGORY_VIEW ? rounding_of_product(user) : OP_WEIGHT;
    if (of_view != OP_WEIGHT) return of_view;
  }
  return OP_WEIGHT;
}

/* Look-ups alone: what else uses the weight sees it as it is. Rows have 4 bits only as a product has them, since
 * reading a few rows takes no time. A look-up leaves the list of users when it moves. */
static void round_table(Graph *graph, const PrecisionRules *rules, Node *weight) {
  if (weight->op != OP_WEIGHT || weight->rank != 2) return;
  const PrecisionRule rule = rule_of(rules, weight->attr.name);
  const OpKind of_product = rounding_of_product(weight);
  if (!is_whole(rule.rounding) || !(rule.pattern || is_large(weight) || of_product != OP_WEIGHT)) return;
  Node *table = NULL;
  for (size_t i = 0; i < weight->users.n;) {
    Node *user = weight->users.items[i];
    if (user->op != OP_GATHER || user->inputs.items[0] != weight) {
      i++;
      continue;
    }
    if (!table) table = rounded(graph, weight, of_product == OP_WEIGHT ? OP_TO_INT8 : of_product);
    graph_set_inputs(graph, user, 2, (Node *[]){table, user->inputs.items[1]});
  }
  if (table) graph_set_inputs(graph, table, 1, &weight);
}

// ---- 8 bits: attention ----

/* The product that the scores are made of: the first that a walk from the softmax meets through pointwise work and
 * views. */
static Node *product_of_scores(Graph *graph, const Node *softmax) {
  enum { MOST_NODES = 256 };
  VEC(Node *) pending = {0};
  vec_push(graph->arena, &pending, softmax->inputs.items[0]);
  for (size_t i = 0; i < pending.n && pending.n < MOST_NODES; i++) {
    Node *node = pending.items[i];
    if (node->op == OP_MATMUL) return node;
    if (!op_is_pointwise(node->op) && node->op != OP_RESHAPE) continue;
    for (size_t j = 0; j < node->inputs.n; j++) vec_push(graph->arena, &pending, node->inputs.items[j]);
  }
  return NULL;
}

/* The product of the weights of a softmax with values. */
static Node *product_with_values(const Node *weights) {
  for (size_t i = 0; i < weights->users.n; i++) {
    Node *user = weights->users.items[i];
    if (user->op == OP_RESHAPE && (user = product_with_values(user))) return user;
    if (user && user->op == OP_MATMUL && user->inputs.items[0] == weights) return user;
  }
  return NULL;
}

static bool has_static_width(const Node *node, uint32_t from_end) {
  int64_t width;
  return node->rank >= 2 && size_is_const(node->dims[node->rank - from_end], &width) && width >= 1 &&
         width <= INT8_MAX_COLUMNS;
}

/* With int4 too: it is weights that have 4 bits. */
static bool wants_int8(const Graph *graph, const PrecisionRules *rules, const Node *softmax) {
  return is_whole(rule_of(rules, name_of_attention(graph, softmax)).rounding);
}

/* Marks both products. */
static bool round_attention(Graph *graph, const PrecisionRules *rules, const Node *softmax) {
  if (softmax->op != OP_SOFTMAX || !wants_int8(graph, rules, softmax)) return false;
  Node *values = product_with_values(softmax), *scores = product_of_scores(graph, softmax);
  if (!values || !scores || !has_static_width(scores->inputs.items[0], 1) ||
      !has_static_width(values->inputs.items[1], 1))
    return false;
  return scores->attr.is_int8 = values->attr.is_int8 = true;
}

/* Products that the passes would leave alone become f32 again, with all of the same module. Returns whether there were
 * any. */
static bool keep_f32(Graph *graph, Diag *diag) {
  Arena *arena = arena_create();
  Graph *trial = graph_clone(arena, graph);
  bool any = false;
  passes_run(trial, diag, &(PassOptions){.level = 2, .stop_after = "fuse-attention"}, NULL);
  for (const Node *left = trial->first; left; left = left->next) {
    if (left->op != OP_MATMUL || !left->attr.is_int8) continue;
    for (Node *node = graph->first; node; node = node->next) {
      if (node->op != OP_MATMUL || !node->attr.is_int8 || strcmp(node->origin.path, left->origin.path) != 0) continue;
      node->attr.is_int8 = false;
      any = true;
    }
  }
  arena_destroy(arena);
  return any;
}

/* Attention is computed in 8 bits as a whole or not at all, so only what the passes find counts. */
static void round_attentions(Graph *graph, Diag *diag, const PrecisionRules *rules) {
  bool any = false;
  for (const Node *node = graph->first; node; node = node->next) any = round_attention(graph, rules, node) || any;
  while (any && keep_f32(graph, diag)) continue;
}

bool quantize_weights(Graph *graph, Diag *diag, const char *const *texts, uint32_t n) {
  PrecisionRules rules = {0};
  bool good = true;
  for (uint32_t i = 0; i < n; i++) good = read_rules(diag, graph, texts[i], &rules) && good;
  if (!good || !rules.n) return good;
  round_weights(graph, &rules);
  for (Node *node = graph->first; node; node = node->next) round_product(graph, &rules, node);
  for (Node *node = graph->first; node; node = node->next) round_table(graph, &rules, node);
  round_attentions(graph, diag, &rules);
  return true;
}

// ---- what has fewer bits ----

static bool is_rounding(OpKind op) {
  return op == OP_TO_BF16 || op == OP_TO_F16 || op == OP_TO_INT8 || op == OP_TO_INT4;
}

/* The name of the attention that has the product; NULL: none has. */
static const char *attention_of(Graph *graph, const Node *product) {
  for (const Node *node = graph->first; node; node = node->next)
    if (node->op == OP_SOFTMAX && (product_with_values(node) == product || product_of_scores(graph, node) == product))
      return name_of_attention(graph, node);
  return NULL;
}

const char *quantized_name(Graph *graph, const Node *node) {
  if (is_rounding(node->op)) return node->inputs.items[0]->attr.name;
  if (!node->attr.is_int8) return NULL;
  return node->op == OP_LINEAR ? weight_behind(node->inputs.items[1])->attr.name : attention_of(graph, node);
}

void quantize_undo(Graph *graph, const char *name) {
  for (Node *node = graph->first; node; node = node->next) {
    const char *own = quantized_name(graph, node);
    if (!own || (name && strcmp(own, name) != 0)) continue;
    node->attr.is_int8 = node->attr.is_int4 = false;
    if (is_rounding(node->op)) graph_replace_uses(graph, node, node->inputs.items[0]);
  }
}

// ---- as stored ----

static char letter_of(Stored stored) {
  return stored == STORED_BF16 || stored == STORED_F16 ? *stored_names[stored] : '-';
}

const char *stored_write(Arena *arena, const Graph *graph) {
  const size_t n = graph->declared_weights.n;
  char *text = ARENA_ARRAY(arena, char, n + 1);
  bool any = false;
  for (size_t i = 0; i < n; i++) {
    text[i] = letter_of(((const Node *)graph->declared_weights.items[i].value)->attr.stored);
    any = any || text[i] != '-';
  }
  return any ? text : NULL;
}

bool stored_read(Graph *graph, const char *text) {
  const size_t n = graph->declared_weights.n;
  if (!text) return true;
  if (strlen(text) != n) return false;
  for (size_t i = 0; i < n; i++) {
    Node *weight = graph->declared_weights.items[i].value;
    for (Stored stored = STORED_BF16; stored < N_STORED; stored++)
      if (text[i] == letter_of(stored)) weight->attr.stored = stored;
    if (text[i] != '-' && text[i] != letter_of(weight->attr.stored)) return false;
  }
  return true;
}
