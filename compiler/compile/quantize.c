/* Numbers of fewer bits: weights that rules name are rounded where they are made.
 *
 *   %1 = weight "fc1.weight"                  %1 = weight "fc1.weight"
 *   %5 = linear %x, %1                        %2 = to_bf16 %1
 *                                             %5 = linear %x, %2
 *
 * See quantize.h. */
#include <fnmatch.h>
#include <string.h>

#include "compile/quantize.h"

enum { MOST_PATTERN = 255 };

typedef struct PrecisionRule {
  char pattern[MOST_PATTERN + 1]; /* "": every weight */
  const char *type;
  size_t n_type;
} PrecisionRule;

typedef struct PrecisionType {
  const char *name;
  OpKind rounding; /* OP_WEIGHT: none */
} PrecisionType;

static const PrecisionType types[] = {{"f32", OP_WEIGHT}, {"bf16", OP_TO_BF16}, {"f16", OP_TO_F16}};
enum { N_TYPES = sizeof types / sizeof *types };

// ---- rules ----

/* Takes the next rule of a text such as "bf16,head=f32". False at its end; a pattern that is too long names nothing. */
static bool next_rule(const char **text, PrecisionRule *rule) {
  if (!*text) return false;
  const size_t n = strcspn(*text, ",");
  const char *is = memchr(*text, '=', n);
  const size_t n_pattern = is ? (size_t)(is - *text) : 0;
  rule->type = is ? is + 1 : *text;
  rule->n_type = n - (size_t)(rule->type - *text);
  const size_t kept = n_pattern < MOST_PATTERN ? n_pattern : MOST_PATTERN;
  memcpy(rule->pattern, *text, kept);
  rule->pattern[kept] = 0;
  *text = (*text)[n] ? *text + n + 1 : NULL;
  return true;
}

static const PrecisionType *type_of_rule(const PrecisionRule *rule) {
  for (int i = 0; i < N_TYPES; i++)
    if (strlen(types[i].name) == rule->n_type && !memcmp(types[i].name, rule->type, rule->n_type)) return &types[i];
  return NULL;
}

/* A pattern without wildcards names a weight, or a module with all weights below it; a wildcard stands for dots too. */
static bool names(const PrecisionRule *rule, const char *weight) {
  if (!*rule->pattern) return true;
  if (strpbrk(rule->pattern, "*?")) return fnmatch(rule->pattern, weight, FNM_NOESCAPE) == 0;
  const size_t n = strlen(rule->pattern);
  return !strncmp(rule->pattern, weight, n) && (weight[n] == '.' || !weight[n]);
}

static bool names_any(const PrecisionRule *rule, const Graph *graph) {
  for (size_t i = 0; i < graph->declared_weights.n; i++)
    if (names(rule, graph->declared_weights.items[i].key)) return true;
  return !*rule->pattern;
}

static const char *nearest_weight(Arena *arena, const Graph *graph, const char *pattern) {
  const uint32_t n = (uint32_t)graph->declared_weights.n;
  const char **known = ARENA_ARRAY(arena, const char *, n + 1);
  for (uint32_t i = 0; i < n; i++) known[i] = graph->declared_weights.items[i].key;
  return diag_nearest(pattern, known, n);
}

static bool check_rule(Diag *diag, const Graph *graph, const PrecisionRule *rule) {
  if (!type_of_rule(rule)) {
    diag_error_at(diag, "--quantize", DIAG_PRECISION, "\"%.*s\" is no type of numbers; there are f32, bf16 and f16",
                  (int)rule->n_type, rule->type);
    return false;
  }
  if (names_any(rule, graph)) return true;
  const char *nearest = nearest_weight(graph->arena, graph, rule->pattern);
  diag_error_at(diag, "--quantize", DIAG_PRECISION, "\"%s\" names no weight of the model%s%s%s", rule->pattern,
                nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
  return false;
}

static bool check_rules(Diag *diag, const Graph *graph, const char *const *rules, uint32_t n) {
  bool good = true;
  for (uint32_t i = 0; i < n; i++) {
    const char *text = rules[i];
    for (PrecisionRule rule; next_rule(&text, &rule);) good = check_rule(diag, graph, &rule) && good;
  }
  return good;
}

/* Of the last rule that names the weight. */
static OpKind rounding_of(const char *const *rules, uint32_t n, const char *weight) {
  OpKind rounding = OP_WEIGHT;
  for (uint32_t i = 0; i < n; i++) {
    const char *text = rules[i];
    for (PrecisionRule rule; next_rule(&text, &rule);)
      if (type_of_rule(&rule) && names(&rule, weight)) rounding = type_of_rule(&rule)->rounding;
  }
  return rounding;
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

bool quantize_weights(Graph *graph, Diag *diag, const char *const *rules, uint32_t n) {
  if (!check_rules(diag, graph, rules, n)) return false;
  for (Node *node = graph->first; node; node = node->next) {
    if (node->op != OP_WEIGHT || node->rank < 2 || !is_factor_or_table(node)) continue;
    const OpKind rounding = rounding_of(rules, n, node->attr.name);
    if (rounding != OP_WEIGHT) round_weight(graph, node, rounding);
  }
  return true;
}
