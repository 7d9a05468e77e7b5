/* Random numbers, and the source that gives the weights of a run. See weight_source.h.
 *
 * Random tensors depend on the seed and on the weight's name alone, never on the order in which they are asked for:
 * the native engine, the reference and two processes get the same numbers. */
#include "engines/weight_source.h"

#include <math.h>
#include <string.h>

#include "aot/packed_weights.h"
#include "base/check.h"
#include "tfm/abi/half.h"
#include "weights/adapter.h"

// ---- random numbers ----

/* SplitMix64 (Steele, Lea, Flood 2014): a counter in steps of the golden ratio, mixed. Its constants are the
 * published ones. */
static uint64_t next(Random *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

Random random_new(uint64_t seed, const char *name) {
  Random random = {seed};
  for (; *name; name++) random.state = next(&random) ^ (unsigned char)*name;
  return random;
}

/* The state of a counter moves by as many steps at once as one wants. */
static void skip(Random *random, uint64_t n) { random->state += n * 0x9e3779b97f4a7c15u; }

uint64_t random_below(Random *random, uint64_t limit) { return next(random) % limit; }

/* The upper 24 bits, centred: every value is a multiple of 2^-23 and exact in f32, so no rounding mode can change
 * it. */
float random_float(Random *random) { return (float)((int64_t)(next(random) >> 40) - (1 << 23)) * 0x1p-23f; }

// ---- opening ----

typedef struct NeededWeight {
  Tensor shape;  /* without data */
  Stored stored; /* in a library that was compiled with a file of 16 bits; else ANY or F32 */
} NeededWeight;

/* Shapes are noted before the graph becomes an engine's: the passes rewrite it, and weights are asked for by name
 * afterwards. */
static void note_needed(WeightSource *source, Graph *graph) {
  Arena *arena = source->arena;
  NodeList nodes = needed_weights(arena, graph);
  source->needed = map_new(arena);
  for (size_t i = 0; i < nodes.nodes.n; i++) {
    const Node *node = nodes.nodes.items[i];
    NeededWeight *needed = ARENA_NEW(arena, NeededWeight);
    needed->stored = node->attr.stored;
    needed->shape.rank = node->rank;
    for (uint32_t axis = 0; axis < node->rank; axis++) size_is_const(node->dims[axis], &needed->shape.dims[axis]);
    map_put(&source->needed, node->attr.name, needed);
  }
}

/* False after an error. A model without weights needs neither option. */
static bool check_request(const WeightSource *source, const WeightRequest *request) {
  if (request->path && request->is_random)
    diag_error_at(source->diag, NULL, DIAG_USAGE, "--weights and --random-weights exclude each other");
  else if (!request->path && !request->is_random && source->needed.n)
    diag_error_at(source->diag, NULL, DIAG_USAGE,
                  "the model has weights: give --weights FILE, or --random-weights SEED for a trial");
  else if (request->path && is_packed_file(source->arena, request->path))
    diag_error_at(
        source->diag, request->path, DIAG_LIBRARY,
        "packed weights only serve a compiled library; give the file that they were made from");
  return !diag_has_errors(source->diag);
}

/* Whether the library brings its weights, or --weights names a packed file: then there are no tensors by name, and
 * the file is the runtime's to open. */
static bool is_packed(const WeightSource *source, const WeightRequest *request) {
  return request->may_be_packed && !request->is_random &&
         (!request->path || is_packed_file(source->arena, request->path));
}

/* Everything that does not fit is reported before the first tensor is read. */
static bool open_set(WeightSource *source, const WeightRequest *request, Graph *graph) {
  source->set = weight_set_open(source->arena, source->diag, request->path);
  if (!source->set) return false;
  if (adapter_take_apart(source->arena, source->diag, source->set, graph))
    weight_set_check(&request->check, graph, source->set);
  if (!diag_has_errors(source->diag)) return true;
  weight_set_close(source->set);
  return false;
}

/* Whole tensors live in an arena of their own: they are the bulk of the memory and go away long before the rest. */
WeightSource *weight_source_open(const WeightRequest *request, Graph *graph) {
  WeightSource *source = ARENA_NEW(request->check.arena, WeightSource);
  source->arena = request->check.arena;
  source->diag = request->check.diag;
  source->seed = request->seed;
  source->packed_path = request->path;
  source->is_packed = is_packed(source, request);
  if (!source->is_packed) {
    note_needed(source, graph);
    if (!check_request(source, request)) return NULL;
    if (request->path && !open_set(source, request, graph)) return NULL;
  }
  source->loaded = arena_create();
  source->by_name = map_new(source->loaded);
  return source;
}

/* Vectors are never kept in panels. */
void weight_set_note_types(const WeightSet *set, Graph *graph) {
  for (Node *node = graph->first; set && node; node = node->next) {
    if (node->op != OP_WEIGHT || node->rank < 2 || node->attr.stored != STORED_ANY) continue;
    const WeightEntry *entry = weight_set_find(set, node->attr.name);
    if (entry) node->attr.stored = weight_entry_stored(entry);
  }
}

static void release(void *context) {
  WeightSource *source = context;
  arena_reset(source->loaded);
  source->by_name = map_new(source->loaded);
}

void weight_source_close(WeightSource *source) {
  if (!source) return;
  weight_set_close(source->set);
  arena_destroy(source->loaded);
}

// ---- tensors ----

/* Values of the size that trained weights have, so that activations neither vanish nor overflow in deep models: a
 * matrix keeps the variance of its input (uniform in +-sqrt(3/n) has variance 1/n), and a vector called `weight`, the
 * gain of a normalisation, lies around 1. */
static void fill_random(const WeightSource *source, const char *name, int64_t first, int64_t n, float *values) {
  const NeededWeight *needed = map_get(&source->needed, name);
  const Tensor *shape = &needed->shape;
  Random random = random_new(source->seed, name);
  float scale = 0.1f, middle = 0;
  const char *dot = strrchr(name, '.');
  skip(&random, (uint64_t)first);
  if (shape->rank >= 2 && shape->dims[shape->rank - 1])
    scale = (float)sqrt(3.0 / (double)shape->dims[shape->rank - 1]);
  else if (strcmp(dot ? dot + 1 : name, "weight") == 0)
    middle = 1;
  for (int64_t i = 0; i < n; i++) values[i] = middle + scale * random_float(&random);
  for (int64_t i = 0; i < n && needed->stored == STORED_BF16; i++) values[i] = bf16_to_f32(f32_to_bf16(values[i]));
  for (int64_t i = 0; i < n && needed->stored == STORED_F16; i++) values[i] = f16_to_f32(f32_to_f16(values[i]));
}

static bool read_part(void *context, const char *name, int64_t first, int64_t n, float *to) {
  const WeightSource *source = context;
  if (source->set) {
    const WeightEntry *entry = weight_set_find(source->set, name);
    return weight_entry_read_part(entry, source->diag, first, n, to);
  }
  fill_random(source, name, first, n, to);
  return true;
}

WeightReader weight_source_reader(WeightSource *source) {
  return (WeightReader){weight_source_get, read_part, release, source};
}

/* A tensor is read once, unless it was released since. NULL after an error of reading, which is in the diag. */
const Tensor *weight_source_get(void *context, const char *name) {
  WeightSource *source = context;
  Tensor *tensor = map_get(&source->by_name, name);
  if (tensor) return tensor;
  const NeededWeight *needed = map_get(&source->needed, name);
  CHECK(needed, "weight %s is asked for, but the model does not need it", name);
  const Tensor *shape = &needed->shape;
  tensor = tensor_new_named(source->loaded, "weight", name, DTYPE_F32, shape->rank, shape->dims);
  if (!read_part(source, name, 0, tensor_elements(tensor), tensor->data)) return NULL;
  map_put(&source->by_name, name, tensor);
  return tensor;
}
