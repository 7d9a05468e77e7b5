/* Numbers of fewer bits: weights that rules name are rounded where they are made, or where products take them.
 *
 *   %1 = weight "fc1.weight"                  %1 = weight "fc1.weight"
 *   %5 = linear %x, %1                        %2 = round_to %1, form=bf16
 *                                             %5 = linear %x, %2
 *
 *   %5 = linear %x, %1                        %5 = linear %x, %1, form=int8 (or form=int4)
 *   %6 = gather %1, %ids                      %6 = gather (round_to %1, form=int8), %ids
 *
 *   %7 = matmul %q, %kt                       %7 = matmul %q, %kt, form=int8
 *   %8 = softmax %7, axis=3                   %8 = softmax %7, axis=3
 *   %9 = matmul %8, %v                        %9 = matmul %8, %v, form=int8
 *
 * See quantize.h. */
#define _DEFAULT_SOURCE /* strsep */
#include <fnmatch.h>
#include <string.h>

#include "forms/whole_rows.h"
#include "compile/quantize.h"
#include "graph/build.h"
#include "passes/passes.h"

typedef struct PrecisionRule {
  const char *text;    /* as it was given */
  const char *pattern; /* NULL: every weight */
  tfm_form form;       /* F32: no rounding */
  Stored stored;       /* F32: whatever the file has */
} PrecisionRule;

typedef VEC(PrecisionRule) PrecisionRules;

// ---- rules ----

/* Types, in the order in which messages name them: f32, as-stored, the other forms. */
enum { N_TYPES = TFM_N_FORMS + 1 };

static const char *type_name(unsigned type) {
  return type == 0 ? tfm_form_name(TFM_FORM_F32) : type == 1 ? "as-stored" : tfm_form_name(type - 1);
}

static PrecisionRule rule_of_type(unsigned type) {
  return (PrecisionRule){.text = type_name(type),
                         .form = type > 1 ? (tfm_form)(type - 1) : TFM_FORM_F32,
                         .stored = type == 0 ? STORED_F32 : STORED_ANY};
}

static const char *list_of_types(Arena *arena) {
  StrBuf list = strbuf_new(arena);
  for (unsigned i = 0; i < N_TYPES; i++)
    strbuf_printf(&list, "%s%s", i == 0 ? "" : i + 1 < N_TYPES ? ", " : " and ", type_name(i));
  return list.text;
}

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

static bool check_pattern(Diag *diag, const Graph *graph, const char *pattern, tfm_form form) {
  for (size_t i = 0; i < graph->declared_weights.n; i++)
    if (names(pattern, graph->declared_weights.items[i].key)) return true;
  if (!pattern) return true;
  if (names_attention(graph, pattern)) {
    if (form == TFM_FORM_F32 || tfm_form_is_integer(form)) return true;
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
  for (unsigned i = 0; i < N_TYPES; i++) {
    if (strcmp(type_name(i), type) != 0) continue;
    PrecisionRule rule = rule_of_type(i);
    rule.pattern = is ? text : NULL;
    if (is) rule.text = arena_printf(graph->arena, "%s=%s", text, type);
    vec_push(graph->arena, rules, rule);
    return check_pattern(diag, graph, rule.pattern, rule.form);
  }
  diag_error_at(diag, "--quantize", DIAG_PRECISION, "\"%s\" is no type of numbers; there are %s", type,
                list_of_types(graph->arena));
  return false;
}

static bool read_rules(Diag *diag, const Graph *graph, const char *text, PrecisionRules *rules) {
  bool good = true;
  char *rest = arena_strdup(graph->arena, text);
  for (char *rule; (rule = strsep(&rest, ","));) good = read_rule(diag, graph, rule, rules) && good;
  return good;
}

/* The last rule that names the weight; NULL: none does. */
static const PrecisionRule *rule_that_holds(const PrecisionRules *rules, const char *weight) {
  for (size_t i = rules->n; i-- > 0;)
    if (names(rules->items[i].pattern, weight)) return &rules->items[i];
  return NULL;
}

static PrecisionRule rule_of(const PrecisionRules *rules, const char *weight) {
  const PrecisionRule *rule = rule_that_holds(rules, weight);
  return rule ? *rule : (PrecisionRule){NULL, NULL, TFM_FORM_F32, STORED_ANY};
}

// ---- numbers that stand for themselves ----

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
    if (takes(user, node) || (node_moves_elements(user) && is_factor_or_table(user))) return true;
  }
  return false;
}

static Node *rounded(Graph *graph, Node *weight, tfm_form form) {
  Node *by = graph_add(graph, weight->next, OP_ROUND_TO, DTYPE_F32, weight->rank, (const Size *const *)weight->dims, 0,
                       NULL, weight->origin);
  by->attr.form = form;
  return by;
}

/* The uses move before the rounding itself uses the weight. */
static void round_weight(Graph *graph, Node *weight, tfm_form form) {
  Node *by = rounded(graph, weight, form);
  graph_replace_uses(graph, weight, by);
  graph_set_inputs(graph, by, 1, &weight);
}

static void round_weights(Graph *graph, const PrecisionRules *rules) {
  for (Node *node = graph->first; node; node = node->next) {
    if (node->op != OP_WEIGHT || node->rank < 2 || !is_factor_or_table(node)) continue;
    const PrecisionRule rule = rule_of(rules, node->attr.name);
    node->attr.stored = rule.stored;
    if (rule.form != TFM_FORM_F32 && !tfm_form_has_scales(rule.form)) round_weight(graph, node, rule.form);
  }
}

// ---- rows with scales: products ----

/* The weight that the factor is a part of; NULL: it is something else. */
static const Node *weight_behind(const Node *factor) {
  while (node_moves_elements(factor) && factor->inputs.n == 1) factor = factor->inputs.items[0];
  return factor->op == OP_WEIGHT ? factor : NULL;
}

static tfm_form form_of(const PrecisionRules *rules, const Node *factor) {
  const Node *weight = weight_behind(factor);
  return weight ? rule_of(rules, weight->attr.name).form : TFM_FORM_F32;
}

/* Sums of more columns would not fit 32 bits. */
static bool columns_fit(const Node *factor, uint32_t axis, int64_t *k) {
  return size_is_const(factor->dims[axis], k) && *k >= 1 && *k <= WHOLE_MAX_COLUMNS;
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
  const tfm_form form = form_of(rules, factor);
  int64_t k;
  if (factor->rank != 2 || !tfm_form_has_scales(form) || !columns_fit(factor, node->op == OP_LINEAR, &k)) return;
  Node *linear = node->op == OP_LINEAR ? node : linear_of(graph, node);
  linear->attr.form = tfm_form_of_row(form, k);
}

// ---- rows with scales: tables ----

enum { LARGE_TABLE = 1 << 20 }; /* bytes of f32: smaller ones are worth it only if a rule names them */

static bool is_large(const Node *weight) {
  double bytes = sizeof(float); /* more than an integer holds are large too */
  int64_t dim;
  for (uint32_t i = 0; i < weight->rank; i++) bytes *= size_is_const(weight->dims[i], &dim) ? (double)dim : 0;
  return bytes >= LARGE_TABLE;
}

/* What a product makes of the weight whose rows it rounds; F32: there is none. */
static tfm_form form_of_product(const Node *node) {
  for (size_t i = 0; i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    if (user->op == OP_LINEAR && user->attr.form != TFM_FORM_F32 && user->inputs.items[1] == node)
      return user->attr.form;
    const tfm_form of_view = node_moves_elements(user) && user->inputs.n == 1 ? form_of_product(user) : TFM_FORM_F32;
    if (of_view != TFM_FORM_F32) return of_view;
  }
  return TFM_FORM_F32;
}

/* Look-ups alone: what else uses the weight sees it as it is. Rows have 4 bits only as a product has them, since
 * reading a few rows takes no time. A look-up leaves the list of users when it moves. */
static void round_table(Graph *graph, const PrecisionRules *rules, Node *weight) {
  if (weight->op != OP_WEIGHT || weight->rank != 2) return;
  const PrecisionRule rule = rule_of(rules, weight->attr.name);
  const tfm_form of_product = form_of_product(weight);
  if (!tfm_form_is_integer(rule.form) || !(rule.pattern || is_large(weight) || of_product != TFM_FORM_F32)) return;
  Node *table = NULL;
  for (size_t i = 0; i < weight->users.n;) {
    Node *user = weight->users.items[i];
    if (user->op != OP_GATHER || user->inputs.items[0] != weight) {
      i++;
      continue;
    }
    if (!table) table = rounded(graph, weight, of_product == TFM_FORM_F32 ? TFM_FORM_INT8 : of_product);
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
         width <= WHOLE_MAX_COLUMNS;
}

/* With int4 too: it is weights that have 4 bits. */
static bool wants_int8(const Graph *graph, const PrecisionRules *rules, const Node *softmax) {
  return tfm_form_is_integer(rule_of(rules, name_of_attention(graph, softmax)).form);
}

/* Marks both products. */
static bool round_attention(Graph *graph, const PrecisionRules *rules, const Node *softmax) {
  if (softmax->op != OP_SOFTMAX || !wants_int8(graph, rules, softmax)) return false;
  Node *values = product_with_values(softmax), *scores = product_of_scores(graph, softmax);
  if (!values || !scores || !has_static_width(scores->inputs.items[0], 1) ||
      !has_static_width(values->inputs.items[1], 1))
    return false;
  scores->attr.form = values->attr.form = TFM_FORM_INT8;
  return true;
}

/* Products that the passes would leave alone become f32 again, with all of the same module. Returns whether there were
 * any. */
static bool keep_f32(Graph *graph, Diag *diag) {
  Arena *arena = arena_create();
  Graph *trial = graph_clone(arena, graph);
  bool any = false;
  passes_run(trial, diag, &(PassOptions){.level = 2, .stop_after = "fuse-attention"}, NULL);
  for (const Node *left = trial->first; left; left = left->next) {
    if (left->op != OP_MATMUL || left->attr.form == TFM_FORM_F32) continue;
    for (Node *node = graph->first; node; node = node->next) {
      if (node->op != OP_MATMUL || strcmp(node->origin.path, left->origin.path) != 0) continue;
      if (node->attr.form == TFM_FORM_F32) continue;
      node->attr.form = TFM_FORM_F32;
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

// ---- rules that change nothing ----

/* Whether a product, a look-up or an attention has fewer bits because of the rule. */
static bool is_used(Graph *graph, const PrecisionRules *rules, const PrecisionRule *rule) {
  for (const Node *node = graph->first; node; node = node->next) {
    const char *name = quantized_name(graph, node);
    if (name && rule_that_holds(rules, name) == rule) return true;
  }
  return false;
}

/* Why the first weight that the rule decides stays as it is. */
static void warn_of_rule(Diag *diag, const Graph *graph, const PrecisionRules *rules, const PrecisionRule *rule) {
  const Node *weight = NULL;
  bool is_shadowed = false;
  for (size_t i = 0; i < graph->declared_weights.n && !weight; i++) {
    const char *name = graph->declared_weights.items[i].key;
    if (!names(rule->pattern, name)) continue;
    if (rule_that_holds(rules, name) == rule) weight = graph->declared_weights.items[i].value;
    else is_shadowed = true;
  }
  if (!weight)
    diag_warning_at(diag, "--quantize", DIAG_PRECISION_UNUSED, "\"%s\" changes nothing: %s", rule->text,
                    is_shadowed ? "later rules decide about all weights that it names"
                                : "the attention that it names stays f32; --report says why");
  else if (weight->rank < 2 || !is_factor_or_table(weight))
    diag_warning_at(diag, "--quantize", DIAG_PRECISION_UNUSED,
                    "\"%s\" changes nothing: no product and no look-up takes \"%s\"", rule->text, weight->attr.name);
  else
    diag_warning_at(diag, "--quantize", DIAG_PRECISION_UNUSED,
                    "\"%s\" changes nothing: what takes \"%s\" stays f32; so few bits are for products with a weight "
                    "of two axes and at most %d columns, and for look-ups in tables of 1 MiB or that a rule names",
                    rule->text, weight->attr.name, WHOLE_MAX_COLUMNS);
}

static void warn_of_rules(Graph *graph, Diag *diag, const PrecisionRules *rules) {
  for (size_t i = 0; i < rules->n; i++) {
    const PrecisionRule *rule = &rules->items[i];
    if (rule->form != TFM_FORM_F32 && !is_used(graph, rules, rule)) warn_of_rule(diag, graph, rules, rule);
  }
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
  warn_of_rules(graph, diag, &rules);
  return true;
}

// ---- what has fewer bits ----

/* The name of the attention that has the product; NULL: none has. */
static const char *attention_of(Graph *graph, const Node *product) {
  for (const Node *node = graph->first; node; node = node->next)
    if (node->op == OP_SOFTMAX && (product_with_values(node) == product || product_of_scores(graph, node) == product))
      return name_of_attention(graph, node);
  return NULL;
}

const char *quantized_name(Graph *graph, const Node *node) {
  if (node->op == OP_ROUND_TO) return node->inputs.items[0]->attr.name;
  if (node->attr.form == TFM_FORM_F32) return NULL;
  return node->op == OP_LINEAR ? weight_behind(node->inputs.items[1])->attr.name : attention_of(graph, node);
}

void quantize_undo(Graph *graph, const char *name) {
  for (Node *node = graph->first; node; node = node->next) {
    const char *own = quantized_name(graph, node);
    if (!own || (name && strcmp(own, name) != 0)) continue;
    if (node->op == OP_ROUND_TO) graph_replace_uses(graph, node, node->inputs.items[0]);
    else node->attr.form = TFM_FORM_F32;
  }
}

// ---- as stored ----

const char *stored_write(Arena *arena, const Graph *graph) {
  const size_t n = graph->declared_weights.n;
  char *text = ARENA_ARRAY(arena, char, n + 1);
  bool any = false;
  for (size_t i = 0; i < n; i++) {
    text[i] = stored_table[((const Node *)graph->declared_weights.items[i].value)->attr.stored].letter;
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
      if (text[i] == stored_table[stored].letter) weight->attr.stored = stored;
    if (text[i] != '-' && text[i] != stored_table[weight->attr.stored].letter) return false;
  }
  return true;
}
