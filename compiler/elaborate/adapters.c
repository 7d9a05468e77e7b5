/* In: the line of a model, products with weights. Out: products with adapters. See adapters.h. */
#include "elaborate/adapters.h"

#include <math.h>
#include <string.h>

#include "elaborate/elaborate_eval.h"
#include "elaborate/modules.h"
#include "elaborate/operators.h"
#include "elaborate/tensors.h"
#include "elaborate/train_settings.h"

static const char weight_ending[] = ".weight", a_ending[] = ".lora_A.weight", b_ending[] = ".lora_B.weight";

// ---- the line ----

static void read_patterns(Elaborator *e, const char *name, Value v, Patterns *to) {
  bool good = v.kind == VALUE_LIST;
  for (uint32_t i = 0; good && i < v.as.list->n; i++) {
    good = v.as.list->items[i].kind == VALUE_STRING;
    if (good) vec_push(e->arena, &to->texts, v.as.list->items[i].as.string);
  }
  if (!good && !is_poison(v)) fail(e, DIAG_KIND, "%s must be a list of strings, patterns of paths, not %V", name, v);
}

enum { MOST = 1 << 20 }; /* of a rank */

static void read_rank(Elaborator *e, Value v, Adapters *adapters) {
  if (!integer_of(e, v, "rank", &adapters->rank)) return;
  if (adapters->rank < 1 || adapters->rank > MOST)
    fail(e, DIAG_RANGE, "rank must be from 1 to %d, not %V", (int)MOST, v);
}

static void read_ranks(Elaborator *e, Value v, Adapters *adapters) {
  read_rates(e, "ranks", v, &adapters->ranks);
  for (size_t i = 0; i < adapters->ranks.n; i++) {
    const RateOf *of = &adapters->ranks.items[i];
    if (of->factor >= 1 && of->factor <= MOST && of->factor == floor(of->factor)) continue;
    fail(e, DIAG_RANGE, "ranks: the rank of \"%s\" must be a whole number from 1 to %d", of->pattern, (int)MOST);
  }
}

static void read_number(Elaborator *e, const char *name, Value v, double *to) {
  const bool is_dropout = strcmp(name, "dropout") == 0;
  if (!real_of(e, v, name, to)) return;
  if (is_dropout ? *to >= 0 && *to <= 1 : *to > 0 && isfinite(*to)) return;
  fail(e, DIAG_RANGE, "%s must %s, not %V", name, is_dropout ? "lie in [0, 1]" : "be greater than 0", v);
}

static void read_setting(Elaborator *e, const char *name, Value v, Adapters *adapters) {
  static const char *const names[] = {"rank", "alpha", "dropout", "rslora", "also", "ranks", "alphas"};
  enum { N = sizeof names / sizeof *names };
  if (is_poison(v)) return;
  if (strcmp(name, "rank") == 0)
    read_rank(e, v, adapters);
  else if (strcmp(name, "alpha") == 0)
    read_number(e, name, v, &adapters->alpha);
  else if (strcmp(name, "dropout") == 0)
    read_number(e, name, v, &adapters->dropout);
  else if (strcmp(name, "also") == 0)
    read_patterns(e, name, v, &adapters->also);
  else if (strcmp(name, "ranks") == 0)
    read_ranks(e, v, adapters);
  else if (strcmp(name, "alphas") == 0)
    read_rates(e, name, v, &adapters->alphas);
  else if (strcmp(name, "rslora") != 0)
    fail(e, DIAG_INPUT_DECLARATION, "adapt has no setting '%s'%s", name, nearest_or_all(e, name, "has", names, N));
  else if (v.kind != VALUE_BOOL)
    fail(e, DIAG_KIND, "rslora must be true or false, not %K", v);
  else
    adapters->is_rslora = v.as.boolean;
}

static void read_line(Elaborator *e, const Ast *node, Scope *scope, Adapters *adapters) {
  Map seen = map_new(e->arena);
  e->here = node->children[0]->span;
  read_patterns(e, "what adapt names", eval(e, node->children[0], scope), &adapters->targets);
  if (!adapters->targets.texts.n && !diag_has_errors(e->diag))
    fail(e, DIAG_RANGE, "adapt names no weights: write patterns of paths, as in adapt [\"*.q_proj\"] { rank = 8 }");
  for (uint32_t i = 1; i < node->n_children; i++) {
    const Ast *setting = node->children[i];
    e->here = setting->span;
    if (map_has(&seen, setting->name)) fail(e, DIAG_REDEFINED, "the setting '%s' appears twice", setting->name);
    map_put(&seen, setting->name, NULL);
    read_setting(e, setting->name, eval(e, setting->children[0], scope), adapters);
  }
  e->here = node->span;
  if (!map_has(&seen, "rank")) fail(e, DIAG_INPUT_DECLARATION, "adapt needs the setting 'rank'");
}

void declare_adapters(Elaborator *e, const Module *model) {
  if (!model->adapt) return;
  const SrcSpan saved = e->here;
  const int before = e->diag->n_errors;
  Adapters *adapters = ARENA_NEW(e->arena, Adapters);
  *adapters = (Adapters){.span = model->adapt->span};
  read_line(e, model->adapt, model->scope, adapters);
  e->here = saved;
  if (e->diag->n_errors != before) return;
  e->adapters = adapters;
  if (e->objective) e->objective->adapters = adapters;
}

double adapters_alpha(const Adapters *adapters) {
  return adapters->alpha > 0 ? adapters->alpha : 2 * (double)adapters->rank;
}

double adapters_scale(const Adapters *adapters, double rank, double alpha) {
  return alpha / (adapters->is_rslora ? sqrt(rank) : rank);
}

// ---- weights ----

static bool ends_with(const char *path, const char *ending) {
  const size_t length = strlen(path), end = strlen(ending);
  return length > end && strcmp(path + length - end, ending) == 0;
}

bool adapters_have(const Adapters *adapters, const char *path) {
  for (size_t i = 0; adapters && i < adapters->weights.n; i++) {
    const char *module = adapters->weights.items[i].module;
    const size_t n = strlen(module);
    if (strncmp(path, module, n) == 0 && (strcmp(path + n, a_ending) == 0 || strcmp(path + n, b_ending) == 0))
      return true;
  }
  return false;
}

bool adapters_train(const Adapters *adapters, const char *path) {
  return !adapters || adapters_have(adapters, path) || patterns_match(&adapters->also, path);
}

static const char *path_of(const Elaborator *e, const Node *weight) {
  return weight->attr.name + strlen(e->weights_prefix);
}

static const char *module_of(Elaborator *e, const Node *weight) {
  const char *path = path_of(e, weight);
  if (!ends_with(path, weight_ending)) return path;
  return arena_strndup(e->arena, path, strlen(path) - strlen(weight_ending));
}

static Node *declare(Elaborator *e, const char *path, const Size *rows, const Size *columns, Initial initial) {
  const char *name = arena_printf(e->arena, "%s%s", e->weights_prefix, path);
  if (map_has(&e->weights, path)) {
    fail_at(e, e->adapters->span, DIAG_REDEFINED, "the model has the weight '%s' of an adapter already", path);
    return NULL;
  }
  Node *weight = made(e, build_weight(build_here(e), name, 2, (const Size *const[]){rows, columns}));
  Initial *kept = ARENA_NEW(e->arena, Initial);
  *kept = initial;
  map_put(&e->weights, path, weight);
  map_put(&e->initials, path, kept);
  return weight;
}

/* Initial values are peft's: B is zero, so that the model begins as it was. */
static bool add_weights(Elaborator *e, AdaptedWeight *adapted) {
  const Node *w = adapted->weight;
  const Size *rank = size_const(e->sizes, adapted->rank);
  const Size *in = w->dims[!adapted->is_turned], *out = w->dims[adapted->is_turned];
  const Initial uniform = {.kind = INITIAL_KAIMING_UNIFORM, .a = sqrt(5)}, zero = {.kind = INITIAL_CONSTANT};
  const char *module = adapted->module;
  adapted->a = declare(e, arena_printf(e->arena, "%s%s", module, a_ending), rank, in, uniform);
  adapted->b = declare(e, arena_printf(e->arena, "%s%s", module, b_ending), out, rank, zero);
  if (!adapted->a || !adapted->b) return false;
  const GraphAdapter noted = {w->attr.name, adapted->a->attr.name, adapted->b->attr.name, adapted->scale};
  vec_push(e->graph->arena, &e->graph->adapters, noted);
  return true;
}

// ---- products ----

static Node *scaled(Elaborator *e, Node *x, double by) {
  Node *scale = x ? made(e, build_scalar(build_here(e), DTYPE_F32, by, 0)) : NULL;
  return scale ? made(e, build_binary(build_here(e), OP_MUL, x, scale)) : NULL;
}

static Node *sum(Elaborator *e, Node *x, Node *y) {
  return x && y ? made(e, build_binary(build_here(e), OP_ADD, x, y)) : NULL;
}

static Node *product(Elaborator *e, Node *x, Node *w, bool is_turned) {
  return x && w ? made(e, is_turned ? build_matmul(build_here(e), x, w) : build_linear(build_here(e), x, w)) : NULL;
}

/* W + s B A, turned as W is. */
static Node *merge(Elaborator *e, const AdaptedWeight *adapted) {
  Node *change = made(e, build_matmul(build_here(e), adapted->b, adapted->a));
  if (change && adapted->is_turned) change = made(e, build_permute(build_here(e), change, (const uint8_t[]){1, 0}));
  return sum(e, adapted->weight, scaled(e, change, adapted->scale));
}

static Node *with_adapter(Elaborator *e, Node *x, AdaptedWeight *adapted) {
  if (!e->objective) {
    if (!adapted->merged) adapted->merged = merge(e, adapted);
    return product(e, x, adapted->merged, adapted->is_turned);
  }
  Node *base = product(e, x, adapted->weight, adapted->is_turned);
  Node *down = product(e, dropped_out(e, x, e->adapters->dropout), adapted->a, false);
  return sum(e, base, scaled(e, product(e, down, adapted->b, false), adapted->scale));
}

/* alpha is twice the rank if it is left out. */
static AdaptedWeight new_adapted(const Adapters *adapters, Node *w, const char *module, bool is_turned) {
  AdaptedWeight made = {.weight = w, .module = module, .is_turned = is_turned};
  const double rank = rate_factor(&adapters->ranks, module, (double)adapters->rank);
  const double alpha = rate_factor(&adapters->alphas, module, adapters->alpha);
  made.rank = (int64_t)rank;
  made.alpha = alpha > 0 ? alpha : 2 * rank;
  made.scale = adapters_scale(adapters, rank, made.alpha);
  return made;
}

static AdaptedWeight *known(const Adapters *adapters, const Node *w) {
  for (size_t i = 0; i < adapters->weights.n; i++)
    if (adapters->weights.items[i].weight == w) return &adapters->weights.items[i];
  return NULL;
}

static void note_product(Elaborator *e, const char *module) {
  Adapters *adapters = e->adapters;
  for (size_t i = 0; i < adapters->products.n; i++)
    if (strcmp(adapters->products.items[i], module) == 0) return;
  vec_push(e->arena, &adapters->products, module);
}

Node *product_with_adapter(Elaborator *e, Node *x, Node *w, bool is_turned) {
  Adapters *adapters = e->adapters;
  if (!adapters || w->op != OP_WEIGHT || w->rank != 2) return product(e, x, w, is_turned);
  const char *module = module_of(e, w);
  note_product(e, module);
  if (!patterns_match(&adapters->targets, module) && !patterns_match(&adapters->targets, path_of(e, w)))
    return product(e, x, w, is_turned);
  AdaptedWeight *adapted = known(adapters, w);
  if (!adapted) {
    AdaptedWeight found = new_adapted(adapters, w, module, is_turned);
    if (!add_weights(e, &found)) return NULL;
    vec_push(e->arena, &adapters->weights, found);
    adapted = known(adapters, w);
  }
  if (adapted->is_turned == is_turned) return with_adapter(e, x, adapted);
  fail(e, DIAG_INPUT_DECLARATION, "adapt: '%s' is a factor both as linear(x, w) and as x @ w", path_of(e, w));
  return NULL;
}

// ---- what nothing meets ----

static void check_met(Elaborator *e, const char *pattern) {
  const Patterns one = {.texts = {.items = &pattern, .n = 1}};
  enum { SHOWN = 12 };
  const Adapters *adapters = e->adapters;
  for (size_t i = 0; i < adapters->weights.n; i++) {
    const AdaptedWeight *adapted = &adapters->weights.items[i];
    if (patterns_match(&one, adapted->module) || patterns_match(&one, path_of(e, adapted->weight))) return;
  }
  const size_t n = adapters->products.n;
  fail(e, DIAG_INPUT_DECLARATION,
       "adapt: \"%s\" matches no weight of two axes that is the second factor of a product%s%s%s", pattern,
       n ? "; there are " : ", and there is none", listed(e, adapters->products.items, n < SHOWN ? n : SHOWN),
       n > SHOWN ? " ..." : "");
}

/* Whatever else reads a weight would read it without its adapter. */
static void check_uses(Elaborator *e, const AdaptedWeight *adapted) {
  const Node *w = adapted->weight;
  for (size_t i = 0; i < w->users.n; i++) {
    const Node *user = w->users.items[i];
    const bool is_product = user->op == (adapted->is_turned ? OP_MATMUL : OP_LINEAR) && user->inputs.items[1] == w &&
                            user->inputs.items[0] != w;
    if (user == adapted->merged || (e->objective && is_product)) continue;
    fail_at(e, origin_place(&user->origin), DIAG_INPUT_DECLARATION,
            "adapt: '%s' is read here too, not as the second factor of a product, so it cannot have an adapter",
            path_of(e, w));
  }
}

static void check_also(Elaborator *e, const char *pattern) {
  const Patterns one = {.texts = {.items = &pattern, .n = 1}};
  for (size_t i = 0; i < e->weights.n; i++)
    if (patterns_match(&one, e->weights.items[i].key)) return;
  fail(e, DIAG_INPUT_DECLARATION, "adapt: no weight matches \"%s\" of also", pattern);
}

/* Patterns of ranks and alphas are of modules, as those of targets without ".weight". */
static void check_numbers(Elaborator *e, const char *name, const Rates *rates) {
  for (size_t i = 0; i < rates->n; i++) {
    const char *pattern = rates->items[i].pattern;
    const Patterns one = {.texts = {.items = &pattern, .n = 1}};
    size_t k = 0;
    while (k < e->adapters->weights.n && !patterns_match(&one, e->adapters->weights.items[k].module)) k++;
    if (k == e->adapters->weights.n)
      fail(e, DIAG_INPUT_DECLARATION, "adapt: no module with an adapter matches \"%s\" of %s", pattern, name);
  }
}

void check_adapters(Elaborator *e) {
  const Adapters *adapters = e->adapters;
  if (!adapters || diag_has_errors(e->diag)) return;
  const SrcSpan saved = e->here;
  e->here = adapters->span;
  for (size_t i = 0; i < adapters->targets.texts.n; i++) check_met(e, adapters->targets.texts.items[i]);
  for (size_t i = 0; i < adapters->also.texts.n; i++) check_also(e, adapters->also.texts.items[i]);
  check_numbers(e, "ranks", &adapters->ranks);
  check_numbers(e, "alphas", &adapters->alphas);
  for (size_t i = 0; i < adapters->weights.n; i++) check_uses(e, &adapters->weights.items[i]);
  e->here = saved;
}
