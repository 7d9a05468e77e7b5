/* Numbers of fewer bits: weights that rules name are rounded where they are made.
 *
 *   %1 = weight "fc1.weight"                  %1 = weight "fc1.weight"
 *   %5 = linear %x, %1                        %2 = to_bf16 %1
 *                                             %5 = linear %x, %2
 *
 * See quantize.h. */
#define _DEFAULT_SOURCE /* strsep */
#include <fnmatch.h>
#include <string.h>

#include "compile/quantize.h"

typedef struct PrecisionType {
  const char *name;
  OpKind rounding; /* OP_WEIGHT: none */
} PrecisionType;

static const PrecisionType types[] = {{"f32", OP_WEIGHT}, {"bf16", OP_TO_BF16}, {"f16", OP_TO_F16}};

typedef struct PrecisionRule {
  const char *pattern; /* NULL: every weight */
  OpKind rounding;
} PrecisionRule;

typedef VEC(PrecisionRule) PrecisionRules;

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

static bool check_pattern(Diag *diag, const Graph *graph, const char *pattern) {
  for (size_t i = 0; i < graph->declared_weights.n; i++)
    if (names(pattern, graph->declared_weights.items[i].key)) return true;
  if (!pattern) return true;
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
    vec_push(graph->arena, rules, ((PrecisionRule){is ? text : NULL, types[i].rounding}));
    return check_pattern(diag, graph, is ? text : NULL);
  }
  diag_error_at(diag, "--quantize", DIAG_PRECISION, "\"%s\" is no type of numbers; there are f32, bf16 and f16", type);
  return false;
}

static bool read_rules(Diag *diag, const Graph *graph, const char *text, PrecisionRules *rules) {
  bool good = true;
  char *rest = arena_strdup(graph->arena, text);
  for (char *rule; (rule = strsep(&rest, ","));) good = read_rule(diag, graph, rule, rules) && good;
  return good;
}

/* Of the last rule that names the weight. */
static OpKind rounding_of(const PrecisionRules *rules, const char *weight) {
  for (size_t i = rules->n; i-- > 0;)
    if (names(rules->items[i].pattern, weight)) return rules->items[i].rounding;
  return OP_WEIGHT;
}

// ---- weights ----

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

/* The uses move before the rounding itself uses the weight. */
static void round_weight(Graph *graph, Node *weight, OpKind rounding) {
  Node *rounded = graph_add(graph, weight->next, rounding, DTYPE_F32, weight->rank, (const Size *const *)weight->dims,
                            0, NULL, weight->origin);
  graph_replace_uses(graph, weight, rounded);
  graph_set_inputs(graph, rounded, 1, &weight);
}

bool quantize_weights(Graph *graph, Diag *diag, const char *const *texts, uint32_t n) {
  PrecisionRules rules = {0};
  bool good = true;
  for (uint32_t i = 0; i < n; i++) good = read_rules(diag, graph, texts[i], &rules) && good;
  for (Node *node = graph->first; node && good; node = node->next) {
    if (node->op != OP_WEIGHT || node->rank < 2 || !is_factor_or_table(node)) continue;
    const OpKind rounding = rounding_of(&rules, node->attr.name);
    if (rounding != OP_WEIGHT) round_weight(graph, node, rounding);
  }
  return good;
}
