/* A step: divisors of all batches, gradients of each, one update. See trainer.h.
 *
 * Weights, gradients and moments are blocks of f32 in which each parameter begins at a multiple of 16 numbers. */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/random.h"
#include "train/update.h"

struct Trainer {
  TrainerOptions options;
  TrainGraphs *graphs;
  Engine *gradients, *counts;
  WeightSource *none; /* engines ask for weights; the graphs have none */
  uint32_t n_tops, n_outputs, n_bottoms;
  const Graph *given; /* a copy of the graph: inputs and sizes, which engines rewrite */
  bool counts_drops;  /* a divisor depends on dropout */
  int64_t *offsets;   /* of the parameters in each block */
  int64_t floats;     /* of a block */
  float *weights, *sums, *first, *second;
  double *tops, *bottoms, *seeds;
  int64_t t; /* steps done */
};

static Arena *arena_of(const Trainer *t) { return t->options.settings->compile.arena; }
static Diag *diag_of(const Trainer *t) { return t->options.settings->compile.diag; }

// ---- making ----

static float *new_block(const Trainer *t) { return ARENA_ARRAY(arena_of(t), float, (size_t)t->floats + 1); }

static void lay_out(Trainer *t) {
  enum { ALIGN = 16 };
  const TrainGraphs *graphs = t->graphs;
  t->offsets = ARENA_ARRAY(arena_of(t), int64_t, graphs->parameters.n + 1);
  for (size_t i = 0; i < graphs->parameters.n; i++) {
    t->offsets[i] = t->floats;
    t->floats += (graphs->parameters.items[i].elements + ALIGN - 1) / ALIGN * ALIGN;
  }
  t->weights = new_block(t);
  if (!graphs->seeds.n) return;
  const TrainSettings *s = &graphs->objective->settings;
  const bool is_sgd = s->optimizer == OPTIMIZER_SGD;
  t->sums = new_block(t);
  if (!is_sgd || s->momentum > 0) t->first = new_block(t);
  if (!is_sgd) t->second = new_block(t);
}

Trainer *trainer_new(const TrainerOptions *options, TrainGraphs *graphs) {
  Arena *arena = options->settings->compile.arena;
  Trainer *t = ARENA_NEW(arena, Trainer);
  *t = (Trainer){.options = *options, .graphs = graphs};
  const WeightRequest request = {.check = {.arena = arena, .diag = options->settings->compile.diag}, .is_random = true};
  t->n_outputs = (uint32_t)graphs->gradients->outputs.n;
  for (size_t i = 0; i < graphs->results.n; i++) t->n_tops += (uint32_t)graphs->results.items[i].parts.n;
  t->n_bottoms = graphs->counts ? (uint32_t)graphs->counts->outputs.n : 0;
  t->tops = ARENA_ARRAY(arena, double, t->n_tops);
  t->bottoms = ARENA_ARRAY(arena, double, t->n_bottoms + 1);
  t->seeds = ARENA_ARRAY(arena, double, graphs->seeds.n + 1);
  t->given = graph_clone(arena, graphs->gradients);
  for (size_t i = 0; graphs->counts && i < graphs->objective->masks.n; i++)
    t->counts_drops |= graphs->counts->inputs.items[graphs->n_inputs + i]->users.n > 0;
  lay_out(t);
  t->none = weight_source_open(&request, graphs->gradients);
  t->gradients = t->none ? engine_create(options->kind, options->settings, graphs->gradients, t->none) : NULL;
  if (t->gradients && graphs->counts)
    t->counts = engine_create(options->kind, options->settings, graphs->counts, t->none);
  if (t->gradients && (t->counts || !graphs->counts)) return t;
  trainer_free(t);
  return NULL;
}

void trainer_free(Trainer *t) {
  if (!t) return;
  engine_destroy(t->gradients);
  engine_destroy(t->counts);
  weight_source_close(t->none);
}

float *trainer_weight(Trainer *t, uint32_t parameter) { return t->weights + t->offsets[parameter]; }

const float *trainer_gradient(Trainer *t, uint32_t parameter) { return t->sums + t->offsets[parameter]; }

bool trainer_draw(Trainer *t) {
  int errors = diag_of(t)->n_errors;
  for (uint32_t i = 0; i < t->graphs->parameters.n; i++) {
    const Parameter *p = &t->graphs->parameters.items[i];
    const Initial *initial = map_get(&t->graphs->objective->initials, p->path);
    if (initial)
      draw_initial(p, initial, t->options.seed, trainer_weight(t, i));
    else
      diag_error_at(diag_of(t), "train", DIAG_WEIGHT_MISSING,
                    "weight '%s' has no initial value: write 'weight ...: [...] = xavier_uniform()', or give --weights",
                    p->path);
  }
  return diag_of(t)->n_errors == errors;
}

// ---- a run ----

/* The values of the run-time sizes, from axes that are one size and nothing more. */
static void bind_sizes(const Trainer *t, const EvalInputs *batch, int64_t *symbols) {
  for (uint32_t i = 0; i < t->graphs->n_inputs; i++) {
    const Node *node = t->given->inputs.items[i];
    for (uint32_t k = 0; k < batch->n; k++) {
      if (strcmp(batch->names[k], node->attr.name) != 0 || batch->tensors[k].rank != node->rank) continue;
      for (uint32_t axis = 0; axis < node->rank; axis++) {
        int32_t symbol = size_symbol_of(node->dims[axis]);
        if (symbol >= 0) symbols[symbol] = batch->tensors[k].dims[axis];
      }
    }
  }
}

typedef struct Given { /* the inputs of a run */
  Arena *arena;
  const char **names;
  Tensor *tensors;
  uint32_t n;
} Given;

static void give(Given *given, const char *name, const Tensor *tensor) {
  given->names[given->n] = name;
  given->tensors[given->n++] = *tensor;
}

/* Masks that nothing reads are given without being drawn, for the shapes of all inputs are checked. */
static void give_masks(const Trainer *t, Given *given, const int64_t *symbols, int64_t first_item, bool are_drawn) {
  const Objective *objective = t->graphs->objective;
  const MaskPlace place = {t->options.seed, (uint32_t)(t->t + 1), first_item};
  for (size_t i = 0; i < objective->masks.n; i++) {
    DropoutMask mask = objective->masks.items[i];
    int64_t dims[MAX_RANK];
    mask.input = t->given->inputs.items[t->graphs->n_inputs + i];
    for (uint32_t axis = 0; axis < mask.input->rank; axis++)
      if (!size_value(mask.input->dims[axis], symbols, &dims[axis])) dims[axis] = 0;
    Tensor *tensor = tensor_new_named(given->arena, "input", mask.input->attr.name, DTYPE_BOOL, mask.input->rank, dims);
    if (are_drawn) draw_mask(&mask, t->given->sizes, objective->batch, symbols, &place, tensor);
    give(given, mask.input->attr.name, tensor);
  }
}

/* Runs one of the two engines on a batch; `first_item` is moved past its items. Outputs are in `arena`. */
static bool run(Trainer *t, Engine *engine, Arena *arena, const EvalInputs *batch, int64_t *first_item,
                Tensor *outputs) {
  const TrainGraphs *graphs = t->graphs;
  const size_t most = batch->n + graphs->objective->masks.n + graphs->seeds.n + graphs->parameters.n;
  int64_t symbols[SIZE_MAX_SYMBOLS] = {0};
  Given given = {arena, ARENA_ARRAY(arena, const char *, most), ARENA_ARRAY(arena, Tensor, most), 0};
  bind_sizes(t, batch, symbols);
  for (uint32_t i = 0; i < batch->n; i++) give(&given, batch->names[i], &batch->tensors[i]);
  give_masks(t, &given, symbols, *first_item, engine == t->gradients || t->counts_drops);
  for (size_t i = 0; i < graphs->seeds.n && engine == t->gradients; i++) {
    Tensor *seed = tensor_new(arena, DTYPE_F32, 0, NULL);
    *(float *)seed->data = (float)t->seeds[i];
    give(&given, graphs->seeds.items[i], seed);
  }
  for (uint32_t i = 0; i < graphs->parameters.n; i++) {
    const Parameter *p = &graphs->parameters.items[i];
    Tensor tensor = {.dtype = DTYPE_F32, .rank = p->rank, .data = trainer_weight(t, i)};
    memcpy(tensor.dims, p->dims, sizeof p->dims);
    give(&given, p->input, &tensor);
  }
  const EvalInputs inputs = {given.names, given.tensors, given.n};
  if (graphs->objective->batch >= 0) *first_item += symbols[graphs->objective->batch];
  return engine_run(engine, arena, &inputs, outputs);
}

// ---- results ----

/* Which batch it was, and what computed ids may be: the runtime knows neither. */
static bool explain_fault(const Trainer *t, uint32_t batch) {
  const Diag *diag = diag_of(t);
  const bool is_id = diag->messages.n && diag->messages.items[diag->messages.n - 1].code == DIAG_INPUT_VALUE;
  diag_note(diag_of(t), NO_SPAN, "in step %lld, in batch %u of it%s", (long long)t->t + 1, batch,
            is_id ? "; the labels of cross_entropy are ids too, all but those that are its ignore_index" : "");
  return false;
}

static bool count(Trainer *t, const EvalInputs *batches, uint32_t n) {
  int64_t first_item = 0;
  bool good = true;
  memset(t->bottoms, 0, t->n_bottoms * sizeof *t->bottoms);
  for (uint32_t i = 0; i < n && t->counts && good; i++) {
    Arena *arena = arena_create();
    Tensor *outputs = ARENA_ARRAY(arena, Tensor, t->n_bottoms);
    good = run(t, t->counts, arena, &batches[i], &first_item, outputs) || explain_fault(t, i);
    for (uint32_t k = 0; good && k < t->n_bottoms; k++) t->bottoms[k] += (double)*(float *)outputs[k].data;
    arena_destroy(arena);
  }
  return good;
}

/* A loss without a value is an error; a metric is NaN then. */
static bool check_divisors(const Trainer *t) {
  const ResultParts *loss = &t->graphs->results.items[0];
  for (size_t i = 0; i < loss->parts.n; i++) {
    if (loss->parts.items[i].bottom == NO_OUTPUT || t->bottoms[loss->parts.items[i].bottom] != 0) continue;
    diag_error_at(diag_of(t), "run", DIAG_RUN_CHECK,
                  "'%s' has no value in step %lld: what it is divided by is 0, so there is no label that counts",
                  loss->name, (long long)t->t + 1);
    return false;
  }
  return true;
}

static double factor_of(const Trainer *t, const ResultPart *part) {
  return part->bottom == NO_OUTPUT ? part->factor : part->factor / t->bottoms[part->bottom];
}

static void sum_results(const Trainer *t, double *results) {
  for (size_t i = 0; i < t->graphs->results.n; i++) {
    const ResultParts *result = &t->graphs->results.items[i];
    results[i] = 0;
    for (size_t k = 0; k < result->parts.n; k++)
      results[i] += factor_of(t, &result->parts.items[k]) * t->tops[result->parts.items[k].top];
  }
}

static void add_gradients(Trainer *t, const Tensor *outputs) {
  for (uint32_t i = 0; i < t->graphs->parameters.n; i++) {
    const Parameter *p = &t->graphs->parameters.items[i];
    if (p->gradient == NO_OUTPUT) continue;
    float *sum = t->sums + t->offsets[i];
    const float *more = outputs[p->gradient].data;
    for (int64_t k = 0; k < p->elements; k++) sum[k] += more[k];
  }
}

/* Everything but the update. */
static bool compute(Trainer *t, const EvalInputs *batches, uint32_t n, double *results) {
  int64_t first_item = 0;
  bool good = true;
  if (n > 1 && t->graphs->whole.source) {
    diag_error(
        diag_of(t), t->graphs->whole, DIAG_INPUT_DECLARATION,
        "this divisor depends on weights, so batches cannot be added up: a step must be one batch, --accumulate=1");
    return false;
  }
  if (!count(t, batches, n) || !check_divisors(t)) return false;
  for (size_t i = 0; i < t->graphs->seeds.n; i++)
    t->seeds[i] = factor_of(t, &t->graphs->results.items[0].parts.items[i]);
  memset(t->tops, 0, t->n_tops * sizeof *t->tops);
  if (t->sums) memset(t->sums, 0, (size_t)t->floats * sizeof *t->sums);
  for (uint32_t i = 0; i < n && good; i++) {
    Arena *arena = arena_create();
    Tensor *outputs = ARENA_ARRAY(arena, Tensor, t->n_outputs);
    good = run(t, t->gradients, arena, &batches[i], &first_item, outputs) || explain_fault(t, i);
    for (uint32_t k = 0; good && k < t->n_tops; k++) t->tops[k] += (double)*(float *)outputs[k].data;
    if (good && t->sums) add_gradients(t, outputs);
    arena_destroy(arena);
  }
  if (good) sum_results(t, results);
  return good;
}

bool trainer_evaluate(Trainer *t, const EvalInputs *batches, uint32_t n, double *results) {
  return compute(t, batches, n, results);
}

// ---- the update ----

static double norm_of(const Trainer *t) {
  double squares = 0;
  for (uint32_t i = 0; i < t->graphs->parameters.n; i++)
    if (t->graphs->parameters.items[i].gradient != NO_OUTPUT)
      squares += update_squares(t->sums + t->offsets[i], t->graphs->parameters.items[i].elements);
  return sqrt(squares);
}

static void update_all(Trainer *t, double clip, double rate) {
  const TrainSettings *s = &t->graphs->objective->settings;
  for (uint32_t i = 0; i < t->graphs->parameters.n; i++) {
    const Parameter *p = &t->graphs->parameters.items[i];
    const int64_t at = t->offsets[i];
    if (p->gradient == NO_OUTPUT) continue;
    const Update update = {.weight = t->weights + at,
                           .first = t->first ? t->first + at : NULL,
                           .second = t->second ? t->second + at : NULL,
                           .gradient = t->sums + at,
                           .n = p->elements,
                           .clip = clip,
                           .rate = rate,
                           .decay = patterns_match(&s->no_decay, p->path) ? 0 : s->weight_decay,
                           .t = t->t};
    update_weight(s, &update);
  }
}

bool trainer_step(Trainer *t, const EvalInputs *batches, uint32_t n, int64_t epoch, StepResult *result) {
  const TrainSettings *s = &t->graphs->objective->settings;
  if (!compute(t, batches, n, result->results)) return false;
  result->norm = norm_of(t);
  if (!isfinite(result->results[0]) || !isfinite(result->norm)) {
    diag_error_at(
        diag_of(t), "run", DIAG_RUN_CHECK,
        "training diverged in step %lld: the loss is %g, the norm of the gradient %g; a smaller lr, warmup or "
        "clip_norm may help",
        (long long)t->t + 1, result->results[0], result->norm);
    return false;
  }
  t->t++;
  result->rate = update_rate(s, t->t, epoch);
  update_all(t, s->clip_norm > 0 ? fmin(1, s->clip_norm / (result->norm + 1e-6)) : 1, result->rate);
  return true;
}
