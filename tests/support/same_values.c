/* Whether two graphs compute the same outputs; see same_values.h. Numbers are random but fixed by names, so a failure
 * can be repeated. */
#include "same_values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* SplitMix64 (Steele, Lea and Flood, 2014). */
uint64_t random_next(uint64_t *state) {
  *state += 0x9e3779b97f4a7c15u;
  uint64_t z = *state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* FNV-1a of the name. */
static uint64_t random_seed(const char *name) {
  uint64_t seed = 0xcbf29ce484222325u;
  while (*name) seed = (seed ^ (unsigned char)*name++) * 0x100000001b3u;
  return seed;
}

/* Floats lie in [-1, 1). Integers are 0 to 2, so that they are ids of every table; a third of the truths is true, so
 * that masks leave something. */
static void random_fill(Tensor *tensor, const char *name) {
  uint64_t state = random_seed(name);
  int64_t n = tensor_elements(tensor);
  for (int64_t i = 0; i < n; i++) {
    uint64_t bits = random_next(&state) >> 40;
    if (tensor->dtype == DTYPE_F32) ((float *)tensor->data)[i] = (float)bits / (float)(1 << 23) - 1.0f;
    if (tensor->dtype == DTYPE_I32) ((int32_t *)tensor->data)[i] = (int32_t)(bits % 3);
    if (tensor->dtype == DTYPE_BOOL) ((uint8_t *)tensor->data)[i] = bits % 3 == 0;
  }
}

/* Matrices are scaled by the square root of their inputs, so that activations stay near 1 through many layers. */
const Tensor *random_weight(void *context, const char *name) {
  RandomWeights *weights = (RandomWeights *)context;
  const Tensor *known = (const Tensor *)map_get(&weights->made, name);
  if (known) return known;
  const Node *node = NULL;
  for (const Node *n = weights->graph->first; n; n = n->next)
    if (n->op == OP_WEIGHT && !strcmp(n->attr.name, name)) node = n;
  int64_t dims[MAX_RANK];
  for (uint32_t i = 0; i < node->rank; i++) size_is_const(node->dims[i], &dims[i]);
  Tensor *tensor = tensor_new(weights->arena, DTYPE_F32, node->rank, dims);
  random_fill(tensor, name);
  for (int64_t i = 0; node->rank == 2 && i < tensor_elements(tensor); i++)
    ((float *)tensor->data)[i] *= 1.5f / sqrtf((float)dims[1]); /* so that activations stay near 1 */
  map_put(&weights->made, name, tensor);
  return tensor;
}

/* The other sizes are 3, 5, 4, 6 ... in the order of declaration: all small and different, so that axes mixed up show. */
void choose_sizes(const Graph *graph, int64_t *values) {
  static const int64_t others[] = {3, 5, 4, 6, 7, 2};
  uint32_t next = 0;
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++)
    values[i] = !strcmp(graph->sizes->symbols[i], "batch") ? 2 : others[next++ % 6];
}

/* Inputs by name, and lengths for ragged sizes, of which at least one is the whole size. */
static EvalInputs random_inputs(Arena *arena, const Graph *graph) {
  int64_t sizes[SIZE_MAX_SYMBOLS], dims[MAX_RANK];
  choose_sizes(graph, sizes);
  uint32_t n = (uint32_t)graph->inputs.n;
  const char **names = ARENA_ARRAY(arena, const char *, n + graph->sizes->n_symbols + 1);
  Tensor *tensors = ARENA_ARRAY(arena, Tensor, n + graph->sizes->n_symbols + 1);
  for (uint32_t i = 0; i < n; i++) {
    const Node *node = graph->inputs.items[i];
    for (uint32_t j = 0; j < node->rank; j++) size_value(node->dims[j], sizes, &dims[j]);
    tensors[i] = *tensor_new(arena, node->dtype, node->rank, dims);
    random_fill(&tensors[i], node->attr.name);
    names[i] = node->attr.name;
  }
  for (uint32_t i = 0; i < graph->sizes->n_symbols && graph->ragged_batch >= 0; i++) {
    if (!graph->ragged[i]) continue;
    names[n] = arena_printf(arena, "%s.lengths", graph->sizes->symbols[i]);
    tensors[n] = *tensor_new(arena, DTYPE_I32, 1, &sizes[graph->ragged_batch]);
    for (int64_t j = 0; j < sizes[graph->ragged_batch]; j++)
      ((int32_t *)tensors[n].data)[j] = (int32_t)(j % 2 ? sizes[i] : sizes[i] / 2 + 1);
    n++;
  }
  return (EvalInputs){.names = names, .tensors = tensors, .n = n};
}

/* 2e-5 covers the rounding of sums of a few hundred terms that a rewriting has reordered. */
bool near(double got, double want) {
  if (isnan(want) || isnan(got)) return isnan(want) && isnan(got);
  if (isinf(want) || isinf(got)) return want == got;
  return fabs(got - want) <= 2e-5 + 2e-5 * fabs(want);
}

/* Any type as a double, which holds each of them exactly. */
double element_of(const Tensor *tensor, int64_t i) {
  if (tensor->dtype == DTYPE_F32) return (double)((const float *)tensor->data)[i];
  return tensor->dtype == DTYPE_I32 ? ((const int32_t *)tensor->data)[i] : ((const uint8_t *)tensor->data)[i];
}

/* Prints the first element that differs. */
static bool same_tensor(const Tensor *got, const Tensor *want, const char *name) {
  if (got->dtype != want->dtype || got->rank != want->rank || tensor_elements(got) != tensor_elements(want)) {
    fprintf(stderr, "output %s has another shape\n", name);
    return false;
  }
  for (int64_t i = 0; i < tensor_elements(got); i++) {
    if (near(element_of(got, i), element_of(want, i))) continue;
    fprintf(stderr, "output %s, element %lld: %.9g, before: %.9g\n", name, (long long)i, element_of(got, i),
            element_of(want, i));
    return false;
  }
  return true;
}

Tensor *random_outputs(Arena *arena, Diag *diag, Graph *graph, const Graph *weights_of) {
  RandomWeights weights = {.arena = arena, .graph = weights_of, .made = map_new(arena)};
  EvalInputs inputs = random_inputs(arena, graph);
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n + 1);
  const EvalCall call = {graph, random_weight, &weights, .inputs = &inputs};
  return graph_eval(arena, diag, &call, outputs) ? outputs : NULL;
}

/* The same, with messages on stderr. */
static Tensor *evaluated(Arena *arena, Graph *graph, const Graph *weights_of) {
  Diag diag = diag_new(arena);
  Tensor *outputs = random_outputs(arena, &diag, graph, weights_of);
  if (outputs) return outputs;
  for (size_t i = 0; i < diag.messages.n; i++) fprintf(stderr, "eval: %s\n", diag.messages.items[i].text);
  return NULL;
}

/* Weights are those of `before` for both graphs: after a rewriting, a weight may have been packed away. */
bool same_values(Arena *arena, Graph *before, Graph *after) {
  Tensor *want = evaluated(arena, before, before), *got = evaluated(arena, after, before);
  if (!want || !got) return false;
  bool same = true;
  for (size_t i = 0; i < before->outputs.n; i++) same &= same_tensor(&got[i], &want[i], before->outputs.items[i].name);
  return same;
}
