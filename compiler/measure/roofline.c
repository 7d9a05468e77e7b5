/* What runs cost, and what they would cost at best.
 *
 * In: a graph as it was written, or a program with the values of its sizes; something that runs. Out: floating-point
 * operations, bytes of weights and caches, and the least seconds that a machine would take (roofline.h says what counts
 * and what is free); the times of runs, sorted, as text or JSON. The median is what is reported, since one interrupted
 * run moves a mean but not a median; the least and the largest time say how noisy the machine was. */
#include "measure/roofline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>


// ---- the work that a graph asks for, as it is written ----

/* Reads the sizes off the inputs: a dim that is a symbol alone says what its value is. Symbols that stand in no such
 * dim are 0, and so is the work that contains them. */
static void bind_graph_symbols(const Graph *graph, const EvalInputs *inputs, int64_t symbols[SIZE_MAX_SYMBOLS]) {
  memset(symbols, 0, SIZE_MAX_SYMBOLS * sizeof *symbols);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *node = graph->inputs.items[i];
    for (uint32_t k = 0; k < inputs->n; k++) {
      if (strcmp(inputs->names[k], node->attr.name) != 0 || inputs->tensors[k].rank != node->rank) continue;
      for (uint32_t axis = 0; axis < node->rank; axis++) {
        int32_t symbol = size_symbol_of(node->dims[axis]);
        if (symbol >= 0) symbols[symbol] = inputs->tensors[k].dims[axis];
      }
    }
  }
}

static double graph_value(const Size *size, const int64_t *symbols) {
  int64_t value;
  return size_value(size, symbols, &value) ? (double)value : 0;
}

/* Linear attention adds keys times values to its state and multiplies it with queries; with beta also with keys. */
uint32_t roofline_products(const Node *node) {
  if (node->op == OP_LINEAR || node->op == OP_MATMUL) return 1;
  return node->op == OP_LINEAR_ATTENTION ? 2u + node->attr.has_beta : 0;
}

/* 2 m n k for each product: a multiplication and an addition per element of the sum. Nothing is subtracted for padding
 * and masked keys, since "how much work the model asks for" must not depend on what the compiler does about it. */
double roofline_flops_written(const Graph *graph, const EvalInputs *inputs) {
  int64_t symbols[SIZE_MAX_SYMBOLS];
  bind_graph_symbols(graph, inputs, symbols);
  double flops = 0;
  for (const Node *node = graph->first; node; node = node->next) {
    const uint32_t n_products = roofline_products(node);
    if (!n_products) continue;
    const Node *x = node->inputs.items[0];
    double work = 2.0 * n_products * graph_value(x->dims[x->rank - 1], symbols);
    for (uint32_t axis = 0; axis < node->rank; axis++) work *= graph_value(node->dims[axis], symbols);
    flops += work;
  }
  return flops;
}

// ---- the work of a program, step by step ----

enum { MOST_SYMBOLS = 256 };

typedef struct Sizes {
  const tfm_program *program;
  const int64_t *symbols;
} Sizes;

static double value_of(const Sizes *sizes, tfm_size size);

static double symbol_value(const Sizes *sizes, uint8_t symbol) {
  if (symbol < TFM_FIRST_FLOOR) return (double)sizes->symbols[symbol];
  const tfm_floor *of = &sizes->program->floors[symbol - TFM_FIRST_FLOOR];
  return floor(value_of(sizes, of->numerator) / (double)of->divisor);
}

/* In double: a product of sizes may exceed 64 bits where the model would never fit into memory, and a rounded figure
 * is good enough here. */
static double value_of(const Sizes *sizes, tfm_size size) {
  const tfm_polynomial *polynomial = &sizes->program->polynomials[size];
  double sum = 0;
  for (uint32_t i = 0; i < polynomial->n_terms; i++) {
    const tfm_term *term = &sizes->program->terms[polynomial->first_term + i];
    double product = (double)term->coefficient;
    for (uint8_t j = 0; j < term->degree; j++) product *= symbol_value(sizes, term->symbols[j]);
    sum += product;
  }
  return sum;
}

/* A dimension that is a size and nothing else says what the size is. */
static void bind(const tfm_program *program, tfm_size size, int64_t dim, int64_t *symbols) {
  const tfm_polynomial *polynomial = &program->polynomials[size];
  const tfm_term *term = &program->terms[polynomial->first_term];
  bool is_unknown = polynomial->n_terms == 1 && term->degree == 1 && term->coefficient == 1;
  if (is_unknown && term->symbols[0] < TFM_FIRST_FLOOR) symbols[term->symbols[0]] = dim;
}

/* `dims` holds the dims of each input in the order of the program; NULL for one that was left out. */
static void find_symbols(const tfm_program *program, const int64_t *const *dims, int64_t symbols[MOST_SYMBOLS]) {
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (uint8_t axis = 0; dims[i] && axis < program->inputs[i].rank; axis++)
      bind(program, program->inputs[i].dims[axis], dims[i][axis], symbols);
}

/* A product of factors, all sizes of the program. */
static WorkTerm term_of(double factor, uint32_t n, const tfm_size *sizes) {
  WorkTerm term = {.factor = factor, .n = (uint8_t)n};
  for (uint32_t i = 0; i < n; i++) term.sizes[i] = sizes[i];
  return term;
}

static double term_value(const Sizes *sizes, const WorkTerm *term) {
  double product = term->factor;
  for (uint8_t i = 0; i < term->n; i++) product *= value_of(sizes, term->sizes[i]);
  return product;
}

/* A packed weight is read once, whatever the number of rows: panels are walked in the order in which they lie. Rows are
 * bytes in both int8 and int4, which widens its weights while it multiplies. */
static StepWork gemm_work(const tfm_program *program, const tfm_gemm_step *step) {
  return (StepWork){.flops = term_of(2 * (double)step->n * (double)step->k, 1, &step->rows),
                    .is_whole = tfm_form_has_whole_rows(step->form),
                    .weight_bytes = (double)program->weights[step->weight].bytes};
}

/* The keys and values of all positions of all rows, read once by a step; nothing for attention without a cache. */
static WorkTerm cache_bytes(const tfm_program *program, const tfm_attention_step *step) {
  if (step->k_cache == TFM_NONE) return (WorkTerm){0};
  const tfm_cache *keys = &program->caches[step->k_cache], *values = &program->caches[step->v_cache];
  const double floats = (double)(tfm_cache_floats(keys) + tfm_cache_floats(values)) / TFM_CACHE_PAGE;
  const tfm_size sizes[] = {step->dims[0], step->dims[step->rank - 1]};
  return term_of(floats * sizeof(float), 2, sizes); /* of a position */
}

/* Two products: queries with keys (h numbers each) and probabilities with values (e numbers each). */
static StepWork attention_work(const tfm_program *program, const tfm_attention_step *step) {
  return (StepWork){.flops = term_of(2 * (double)(step->h + step->e), step->rank, step->dims),
                    .is_whole = tfm_form_has_whole_rows(step->form),
                    .cache_bytes = cache_bytes(program, step),
                    .is_causal = step->causal};
}

/* Five products: those of the attention again, or with g for q, and one for each of q, k and v. The forward half has
 * two. */
static StepWork attention_grad_work(const tfm_attention_grad_step *step) {
  const double widths = step->is_forward ? (double)(step->h + step->e) : (double)(3 * step->h + 2 * step->e);
  return (StepWork){.flops = term_of(2 * widths, step->rank, step->dims), .is_causal = step->causal};
}

static StepWork matmul_work(const tfm_matmul_step *step) {
  StepWork work = {.flops = term_of(2, step->rank, step->dims)};
  work.flops.sizes[work.flops.n++] = step->k;
  return work;
}

/* As roofline_products counts the node that it is. States that go on from run to run are read and written by each. */
static StepWork state_work(const tfm_state_step *step) {
  const double n_products = step->beta == TFM_BETA_NONE ? 2 : 3, passes = step->has_initial + step->has_last;
  StepWork work = {.flops = term_of(2 * n_products * (double)step->n, step->rank, step->dims)};
  work.cache_bytes = term_of(passes * (double)step->n * sizeof(float), step->rank - 1u, step->dims);
  work.cache_bytes.sizes[step->rank - 2] = step->dims[step->rank - 1]; /* columns in place of steps */
  return work;
}

/* The states twice, once beside what keys read, and for each element what step_state_grad's kernels do. */
static StepWork state_grad_work(const tfm_state_grad_step *step) {
  const double takes = step->beta != TFM_BETA_NONE, states = 2 + takes, back = 4 + 2 * takes + step->has_decay;
  return (StepWork){.flops = term_of(2 * (states + back) * (double)step->n, step->rank, step->dims)};
}

/* Elementwise work and reductions are free: they are bound by activations, which stay in caches. Steps of preparation
 * do not count, since a run does not repeat them. */
StepWork roofline_step(const tfm_program *program, const tfm_step *step) {
  if (step->prepare) return (StepWork){0};
  if (step->kind == TFM_STEP_GEMM) return gemm_work(program, &program->gemms[step->index]);
  if (step->kind == TFM_STEP_ATTENTION) return attention_work(program, &program->attentions[step->index]);
  if (step->kind == TFM_STEP_ATTENTION_GRAD) return attention_grad_work(&program->attention_grads[step->index]);
  if (step->kind == TFM_STEP_STATE) return state_work(&program->states[step->index]);
  if (step->kind == TFM_STEP_STATE_GRAD) return state_grad_work(&program->state_grads[step->index]);
  return step->kind == TFM_STEP_MATMUL ? matmul_work(&program->matmuls[step->index]) : (StepWork){0};
}

/* Under a causal mask of as many queries as keys only the pairs that it leaves count: (n + 1) / 2n of n x n. */
static Work work_of(const Sizes *sizes, const tfm_step *step) {
  const StepWork work = roofline_step(sizes->program, step);
  double flops = term_value(sizes, &work.flops);
  if (work.is_causal) {
    const double queries = value_of(sizes, work.flops.sizes[work.flops.n - 2]);
    const double keys = value_of(sizes, work.flops.sizes[work.flops.n - 1]);
    if (queries == keys && keys > 0) flops *= (keys + 1) / (2 * keys);
  }
  return (Work){.flops = flops,
                .whole = work.is_whole ? flops : 0,
                .weight_bytes = work.weight_bytes,
                .cache_bytes = term_value(sizes, &work.cache_bytes)};
}

Work roofline_work_at(const tfm_program *program, const int64_t *symbols) {
  const Sizes sizes = {program, symbols};
  Work sum = {0};
  for (uint32_t i = 0; i < program->n_steps; i++) {
    Work work = work_of(&sizes, &program->steps[i]);
    sum.flops += work.flops;
    sum.whole += work.whole;
    sum.weight_bytes += work.weight_bytes;
    sum.cache_bytes += work.cache_bytes;
  }
  return sum;
}

static double computing_seconds(const Work *work, const Probe *most) {
  return (work->flops - work->whole) / most->flops + (work->whole > 0 ? work->whole / most->whole : 0);
}

double roofline_rate(const Work *work, const Probe *most) {
  return work->flops > 0 ? work->flops / computing_seconds(work, most) : most->flops;
}

double roofline_step_flops_at(const tfm_program *program, const tfm_step *step, const int64_t *symbols) {
  return work_of(&(Sizes){program, symbols}, step).flops;
}

double roofline_step_seconds_at(const tfm_program *program, const tfm_step *step, const int64_t *symbols,
                                const Probe *most) {
  const Work work = work_of(&(Sizes){program, symbols}, step);
  const double computing = computing_seconds(&work, most);
  const double reading = (work.weight_bytes + work.cache_bytes) / most->bytes;
  return computing > reading ? computing : reading;
}

/* Steps do not overlap: a barrier stands between them. */
double roofline_seconds_at(const tfm_program *program, const int64_t *symbols, const Probe *most) {
  double sum = 0;
  for (uint32_t i = 0; i < program->n_steps; i++)
    sum += roofline_step_seconds_at(program, &program->steps[i], symbols, most);
  return sum;
}

double roofline_step_flops(const tfm_program *program, const tfm_step *step, const int64_t *const *dims) {
  int64_t symbols[MOST_SYMBOLS] = {0};
  find_symbols(program, dims, symbols);
  return work_of(&(Sizes){program, symbols}, step).flops;
}

Work roofline_work(const tfm_program *program, const int64_t *const *dims) {
  int64_t symbols[MOST_SYMBOLS] = {0};
  find_symbols(program, dims, symbols);
  return roofline_work_at(program, symbols);
}

double roofline_seconds(const tfm_program *program, const int64_t *const *dims, const Probe *most) {
  int64_t symbols[MOST_SYMBOLS] = {0};
  find_symbols(program, dims, symbols);
  return roofline_seconds_at(program, symbols, most);
}
