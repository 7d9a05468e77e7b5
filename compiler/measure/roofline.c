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

#include "measure/bench.h"

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

/* 2 m n k for each product: a multiplication and an addition per element of the sum. Nothing is subtracted for padding
 * and masked keys, since "how much work the model asks for" must not depend on what the compiler does about it. */
double roofline_flops_written(const Graph *graph, const EvalInputs *inputs) {
  int64_t symbols[SIZE_MAX_SYMBOLS];
  bind_graph_symbols(graph, inputs, symbols);
  double flops = 0;
  for (const Node *node = graph->first; node; node = node->next) {
    if (node->op != OP_LINEAR && node->op != OP_MATMUL) continue;
    const Node *x = node->inputs.items[0];
    double work = 2 * graph_value(x->dims[x->rank - 1], symbols);
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

static double product_of(const Sizes *sizes, const tfm_size *dims, uint8_t rank) {
  double product = 1;
  for (uint8_t i = 0; i < rank; i++) product *= value_of(sizes, dims[i]);
  return product;
}

/* Rows are bytes in both: int4 widens its weights while it multiplies. */

/* A packed weight is read once, whatever the number of rows: panels are walked in the order in which they lie. */
static Work gemm_work(const Sizes *sizes, const tfm_gemm_step *step) {
  const double flops = 2 * value_of(sizes, step->rows) * (double)step->n * (double)step->k;
  return (Work){.flops = flops,
                .whole = tfm_form_is_integer(step->form) ? flops : 0,
                .weight_bytes = (double)sizes->program->weights[step->weight].bytes};
}

/* The keys and values of all positions of all rows, read once by a step; 0 for attention without a cache. */
static double cache_bytes(const Sizes *sizes, const tfm_attention_step *step) {
  if (step->k_cache == TFM_NONE) return 0;
  const tfm_cache *caches = sizes->program->caches;
  double floats = (double)(tfm_cache_floats(&caches[step->k_cache]) + tfm_cache_floats(&caches[step->v_cache]));
  floats /= TFM_CACHE_PAGE; /* of a position */
  return value_of(sizes, step->dims[0]) * value_of(sizes, step->dims[step->rank - 1]) * floats * sizeof(float);
}

/* Two products: queries with keys (h numbers each) and probabilities with values (e numbers each). Under a causal mask
 * only the pairs that it leaves count: (n + 1) / 2n of n x n. */
static Work attention_work(const Sizes *sizes, const tfm_attention_step *step) {
  double queries = value_of(sizes, step->dims[step->rank - 2]), keys = value_of(sizes, step->dims[step->rank - 1]);
  double pairs = product_of(sizes, step->dims, step->rank);
  if (step->causal && queries == keys && keys > 0) pairs *= (keys + 1) / (2 * keys);
  const double flops = 2 * pairs * (double)(step->h + step->e);
  return (Work){.flops = flops,
                .whole = tfm_form_is_integer(step->form) ? flops : 0,
                .cache_bytes = cache_bytes(sizes, step)};
}

/* Five products: those of the attention again, or with g for q, and one for each of q, k and v. The forward half has
 * two. */
static Work attention_grad_work(const Sizes *sizes, const tfm_attention_grad_step *step) {
  double queries = value_of(sizes, step->dims[step->rank - 2]), keys = value_of(sizes, step->dims[step->rank - 1]);
  double pairs = product_of(sizes, step->dims, step->rank);
  if (step->causal && queries == keys && keys > 0) pairs *= (keys + 1) / (2 * keys);
  if (step->is_forward) return (Work){.flops = 2 * pairs * (double)(step->h + step->e)};
  return (Work){.flops = 2 * pairs * (double)(3 * step->h + 2 * step->e)};
}

/* Elementwise work and reductions are free: they are bound by activations, which stay in caches. Steps of preparation
 * do not count, since a run does not repeat them. */
static Work step_work(const Sizes *sizes, const tfm_step *step) {
  const tfm_program *program = sizes->program;
  if (step->prepare) return (Work){0};
  if (step->kind == TFM_STEP_GEMM) return gemm_work(sizes, &program->gemms[step->index]);
  if (step->kind == TFM_STEP_ATTENTION) return attention_work(sizes, &program->attentions[step->index]);
  if (step->kind == TFM_STEP_ATTENTION_GRAD) return attention_grad_work(sizes, &program->attention_grads[step->index]);
  if (step->kind != TFM_STEP_MATMUL) return (Work){0};
  const tfm_matmul_step *matmul = &program->matmuls[step->index];
  return (Work){.flops = 2 * value_of(sizes, matmul->k) * product_of(sizes, matmul->dims, matmul->rank)};
}

Work roofline_work_at(const tfm_program *program, const int64_t *symbols) {
  const Sizes sizes = {program, symbols};
  Work sum = {0};
  for (uint32_t i = 0; i < program->n_steps; i++) {
    Work work = step_work(&sizes, &program->steps[i]);
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

/* Each step is bound by whichever takes longer, and steps do not overlap: a barrier stands between them. */
double roofline_seconds_at(const tfm_program *program, const int64_t *symbols, const Probe *most) {
  const Sizes sizes = {program, symbols};
  double sum = 0;
  for (uint32_t i = 0; i < program->n_steps; i++) {
    Work work = step_work(&sizes, &program->steps[i]);
    double computing = computing_seconds(&work, most), reading = (work.weight_bytes + work.cache_bytes) / most->bytes;
    sum += computing > reading ? computing : reading;
  }
  return sum;
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

// ---- the time of runs ----

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// ---- measuring ----

/* Whether run i is one more that warms up. */
static bool is_warming(const Repetition *repetition, size_t i, double begin) {
  return i < repetition->warmup || (repetition->warmup && now() - begin < repetition->warmup_seconds);
}

/* Runs that warm up are not timed: they fill caches, wake the threads and let the clock of the CPU rise. A large cache
 * keeps what is read again and again only after a while, so their number alone does not say when that is over. Progress
 * is drawn between runs, never inside one. */
bool bench_repeat(const Repetition *repetition, double *seconds) {
  const size_t warmup = repetition->warmup, all = warmup + repetition->iterations;
  const double start = now();
  for (size_t i = 0; is_warming(repetition, i, start); i++) {
    if (!repetition->run(repetition->context, i < warmup ? i : warmup - 1)) return false;
    repetition->progress(repetition->context, i < warmup ? i + 1 : warmup, all);
  }
  for (size_t i = warmup; i < all; i++) {
    const double begin = now();
    if (!repetition->run(repetition->context, i)) return false;
    if (seconds) seconds[i - warmup] = now() - begin;
    repetition->progress(repetition->context, i + 1, all);
  }
  return true;
}

bool bench_measure(Arena *arena, const Repetition *repetition, Bench *bench) {
  bench->n = repetition->iterations;
  bench->seconds = ARENA_ARRAY(arena, double, bench->n);
  bool done = bench_repeat(repetition, bench->seconds);
  qsort(bench->seconds, bench->n, sizeof *bench->seconds, compare_doubles);
  return done;
}

/* The dims of the inputs in the order of the program; NULL for one that was left out. The extra element keeps the
 * array from being empty. */
static const int64_t **dims_of_inputs(Arena *arena, const tfm_program *program, const EvalInputs *inputs) {
  const int64_t **dims = ARENA_ARRAY(arena, const int64_t *, program->n_inputs + 1);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    for (uint32_t k = 0; k < inputs->n; k++)
      if (strcmp(program->inputs[i].name, inputs->names[k]) == 0) dims[i] = inputs->tensors[k].dims;
  return dims;
}

/* The probe reads as many bytes as the program has weights, so a model that fits into a cache is compared with that
 * cache and not with memory. Below 1 MiB the clock would be measured, above 256 MiB nothing changes. */
void bench_probe(Arena *arena, const tfm_program *program, const EvalInputs *inputs, int threads, Bench *bench) {
  enum { LEAST_BYTES = 1 << 20, MOST_BYTES = 256 << 20 };
  const TargetInfo *target = target_find(program->isa);
  const int64_t **dims = dims_of_inputs(arena, program, inputs);
  bench->work = roofline_work(program, dims);
  bench->leaves_rows_out = program->n_live > 0;
  double bytes = bench->work.weight_bytes;
  bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
  if (target && probe_measure(target, threads, (size_t)bytes, &bench->most))
    bench->least_possible = roofline_seconds(program, dims, &bench->most);
  else
    bench->most = (Probe){0};
}

// ---- printing ----

/* Lines without a figure behind them are left out: the reference interpreter has no work and no roofline. */
void bench_text(StrBuf *out, const Bench *bench) {
  const double median = bench->seconds[bench->n / 2], flops = bench->flops / median;
  const Probe most = bench->most;
  strbuf_printf(out, "%s: median %.3f ms of %zu runs, from %.3f to %.3f ms\n", bench->model, median * 1e3, bench->n,
                bench->seconds[0] * 1e3, bench->seconds[bench->n - 1] * 1e3);
  if (bench->flops > 0) {
    strbuf_printf(out, "%.3f GFLOP in matrix products as they are written, %.1f GFLOP/s", bench->flops * 1e-9,
                  flops * 1e-9);
    const double rate = most.flops > 0 ? roofline_rate(&bench->work, &most) : 0;
    if (rate > 0)
      strbuf_printf(out, ", %.0f %% of the %.1f that these threads can do", 100 * flops / rate, rate * 1e-9);
    if (rate > 0 && bench->work.whole > 0)
      strbuf_printf(out, " (%.1f in f32, %.1f in int8)", most.flops * 1e-9, most.whole * 1e-9);
    strbuf_add_char(out, '\n');
  }
  if (bench->work.weight_bytes > 0 && most.bytes > 0)
    strbuf_printf(out, "%.1f MB of weights that products read, %.1f GB/s, "
                       "%.0f %% of the %.1f that these threads can read\n",
                  bench->work.weight_bytes * 1e-6, bench->work.weight_bytes / median * 1e-9,
                  100 * bench->work.weight_bytes / median / most.bytes, most.bytes * 1e-9);
  if (bench->least_possible > 0)
    strbuf_printf(out, "at best %.3f ms, each step bound by one of the two: %.0f %% of that speed\n",
                  bench->least_possible * 1e3, 100 * bench->least_possible / median);
  if (bench->leaves_rows_out && bench->flops > 0)
    strbuf_add(out,
               "arithmetic and what is best count rows that a run leaves out (padding, experts that were not chosen),\n"
               "so the shares may be more than 100 %\n");
}

void bench_json(StrBuf *out, const Bench *bench) {
  double median = bench->seconds[bench->n / 2];
  strbuf_add(out, "{\"model\": ");
  strbuf_add_json(out, bench->model);
  strbuf_printf(out, ", \"runs\": %zu, \"median_seconds\": %.9f", bench->n, median);
  strbuf_printf(out, ", \"least_seconds\": %.9f", bench->seconds[0]);
  strbuf_printf(out, ", \"most_seconds\": %.9f", bench->seconds[bench->n - 1]);
  strbuf_printf(out, ", \"flop\": %.0f, \"flop_per_second\": %.0f, \"machine_flop_per_second\": %.0f", bench->flops,
                bench->flops / median, bench->most.flops);
  strbuf_printf(out, ", \"int8_flop\": %.0f, \"machine_int8_flop_per_second\": %.0f", bench->work.whole,
                bench->most.whole);
  strbuf_printf(out, ", \"weight_bytes\": %.0f, \"weight_bytes_per_second\": %.0f, \"machine_bytes_per_second\": %.0f",
                bench->work.weight_bytes, bench->work.weight_bytes / median, bench->most.bytes);
  strbuf_printf(out, ", \"roofline_seconds\": %.9f", bench->least_possible);
  strbuf_printf(out, ", \"counts_rows_left_out\": %s}\n", bench->leaves_rows_out ? "true" : "false");
}
