#include "driver/weight_source.h"

#include <math.h>
#include <string.h>

#include "aot/packed_weights.h"
#include "base/check.h"
#include "driver/random.h"

// ---- opening ----

static void note_shapes(WeightSource *source, Graph *graph) {
  Arena *arena = source->session->arena;
  NodeList needed = model_needed_weights(arena, graph);
  source->shapes = map_new(arena);
  for (size_t i = 0; i < needed.nodes.n; i++) {
    const Node *node = needed.nodes.items[i];
    Tensor *shape = ARENA_NEW(arena, Tensor);
    shape->rank = node->rank;
    for (uint32_t axis = 0; axis < node->rank; axis++) size_is_const(node->dims[axis], &shape->dims[axis]);
    map_put(&source->shapes, node->attr.name, shape);
  }
}

/* Whether the options say where the weights come from; a model without weights needs nothing. */
static bool check_options(const WeightSource *source) {
  const Options *options = &source->session->options;
  bool from_file = option_given(options, OPTION_WEIGHTS), random = option_given(options, OPTION_RANDOM_WEIGHTS);
  Diag *diag = &source->session->diag;
  if (from_file && random)
    diag_error_at(diag, NULL, DIAG_USAGE, "--weights and --random-weights exclude each other");
  else if (!from_file && !random && source->shapes.n)
    diag_error_at(diag, NULL, DIAG_USAGE, "the model has weights: give --weights FILE, or --random-weights SEED for a trial");
  return !diag_has_errors(diag);
}

/* Whether a library brings its weights, or --weights names a file of packed ones. */
static bool choose_packed(WeightSource *source) {
  const Options *options = &source->session->options;
  bool may_be_packed = source->session->library && options->verb != VERB_PACK && options->verb != VERB_CHECK;
  source->packed_path = option_text(options, OPTION_WEIGHTS, NULL);
  source->is_packed = may_be_packed && !option_given(options, OPTION_RANDOM_WEIGHTS) &&
                      (!source->packed_path || is_packed_file(source->session->arena, source->packed_path));
  return source->is_packed;
}

WeightSource *weight_source_open(Session *session, Graph *graph) {
  WeightSource *source = ARENA_NEW(session->arena, WeightSource);
  source->session = session;
  if (choose_packed(source)) {
    source->loaded = arena_create();
    return source;
  }
  note_shapes(source, graph);
  if (!check_options(source)) return NULL;
  source->seed = option_count(&session->options, OPTION_RANDOM_WEIGHTS, 0);
  const char *path = option_text(&session->options, OPTION_WEIGHTS, NULL);
  if (path && is_packed_file(session->arena, path)) {
    diag_error_at(&session->diag, path, DIAG_LIBRARY,
                  "packed weights are for running a compiled library; here the file that they were made from is wanted");
    return NULL;
  }
  if (path) {
    source->set = weight_set_open(session->arena, &session->diag, path);
    if (!source->set) return NULL;
    weight_set_check(session, graph, source->set);
    if (diag_has_errors(&session->diag)) {
      weight_set_close(source->set);
      return NULL;
    }
  }
  source->loaded = arena_create();
  source->by_name = map_new(source->loaded);
  return source;
}

void weight_source_release(WeightSource *source) {
  arena_reset(source->loaded);
  source->by_name = map_new(source->loaded);
}

void weight_source_close(WeightSource *source) {
  if (!source) return;
  weight_set_close(source->set);
  arena_destroy(source->loaded);
}

// ---- tensors ----

/* Numbers of the size that trained weights have: a matrix keeps the scale of what it is applied to, a vector called
 * `weight`, the gain of a normalisation, lies around 1. */
static void fill_random(const WeightSource *source, const char *name, Tensor *tensor) {
  Random random = random_new(source->seed, name);
  float *values = tensor->data, scale = 0.1f, middle = 0;
  const char *dot = strrchr(name, '.');
  if (tensor->rank >= 2 && tensor->dims[tensor->rank - 1]) scale = (float)sqrt(3.0 / (double)tensor->dims[tensor->rank - 1]);
  else if (strcmp(dot ? dot + 1 : name, "weight") == 0) middle = 1;
  int64_t n = tensor_elements(tensor);
  for (int64_t i = 0; i < n; i++) values[i] = middle + scale * random_float(&random);
}

const Tensor *weight_source_get(void *context, const char *name) {
  WeightSource *source = context;
  Tensor *tensor = map_get(&source->by_name, name);
  if (tensor) return tensor;
  const Tensor *shape = map_get(&source->shapes, name);
  CHECK(shape, "weight %s is asked for, but the model does not need it", name);
  tensor = tensor_new(source->loaded, DTYPE_F32, shape->rank, shape->dims);
  if (source->set) {
    const WeightEntry *entry = weight_set_find(source->set, name);
    if (!safetensors_read(entry->file, &source->session->diag, entry->tensor, DTYPE_F32, tensor->data)) return NULL;
  } else {
    fill_random(source, name, tensor);
  }
  map_put(&source->by_name, name, tensor);
  return tensor;
}
