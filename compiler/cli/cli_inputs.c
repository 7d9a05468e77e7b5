/* In: --inputs, --input and the graph. Out: a tensor for each input that was given. What is refused: cli_inputs.h.
 *
 * Random inputs depend on --seed and the input's name alone, so adding an input does not change the others. */
#include "cli/cli_inputs.h"

#include <stdlib.h>
#include <string.h>

#include "engines/weight_source.h"
#include "weights/npy.h"
#include "weights/safetensors.h"

typedef struct Slot { /* an input of the model, or the lengths of a ragged size */
  const char *name;
  const Node *node; /* NULL: lengths */
  bool given;
  Tensor tensor;
} Slot;

typedef struct Loader {
  Session *session;
  const Graph *graph;
  VEC(Slot) slots;
} Loader;

static DType dtype_of(const Slot *slot) { return slot->node ? slot->node->dtype : DTYPE_I32; }

// ---- the inputs that there are ----

static void list_slots(Loader *loader) {
  Arena *arena = loader->session->arena;
  const Graph *graph = loader->graph;
  for (size_t i = 0; i < graph->inputs.n; i++)
    vec_push(arena, &loader->slots, (Slot){.name = graph->inputs.items[i]->attr.name, .node = graph->inputs.items[i]});
  for (uint32_t i = 0; i < graph->sizes->n_symbols; i++)
    if (graph->ragged[i])
      vec_push(arena, &loader->slots, (Slot){.name = arena_printf(arena, "%s.lengths", graph->sizes->symbols[i])});
}

/* The slot of a name, marked as given. NULL after an error: no input has that name, or it was given already. */
static Slot *take_slot(Loader *loader, const char *place, const char *name) {
  Diag *diag = &loader->session->diag;
  const char **names = ARENA_ARRAY(loader->session->arena, const char *, loader->slots.n);
  for (size_t i = 0; i < loader->slots.n; i++) {
    Slot *slot = &loader->slots.items[i];
    names[i] = slot->name;
    if (strcmp(slot->name, name) != 0) continue;
    if (slot->given) {
      diag_error_at(diag, NULL, DIAG_USAGE, "input \"%s\" is given twice", name);
      return NULL;
    }
    slot->given = true;
    return slot;
  }
  const char *nearest = diag_nearest(name, names, loader->slots.n);
  StrBuf list = strbuf_new(loader->session->arena);
  for (size_t i = 0; i < loader->slots.n; i++) strbuf_printf(&list, "%s%s", i ? ", " : "", names[i]);
  if (nearest)
    diag_error_at(diag, place, DIAG_INPUT_UNKNOWN, "the model has no input \"%s\", did you mean \"%s\"?", name,
                  nearest);
  else diag_error_at(diag, place, DIAG_INPUT_UNKNOWN, "the model has no input \"%s\"; it has %s", name, list.text);
  return NULL;
}

/* An f32 input must be given as f32: the 16-bit types are for weights, and converting an input silently would hide a
 * mistake. */
static bool check_type(Loader *loader, const char *place, const Slot *slot, FileDType dtype, const char *dtype_name) {
  DType wanted = dtype_of(slot);
  if (can_convert(dtype, wanted) && (wanted != DTYPE_F32 || dtype == FILE_F32)) return true;
  diag_error_at(&loader->session->diag, place, DIAG_INPUT_TYPE, "input \"%s\": type %s, the model wants %s (%s)",
                slot->name, dtype_name, dtype_names[wanted], wanted == DTYPE_F32 ? "F32" : convertible_names(wanted));
  return false;
}

/* Makes the tensor of a slot; refuses a rank that no input may have. Whether the shape fits is for the engine to say,
 * which knows the sizes. */
static bool make_room(Loader *loader, const char *place, Slot *slot, uint32_t rank, const int64_t *dims) {
  if (rank > MAX_RANK) {
    diag_error_at(&loader->session->diag, place, DIAG_INPUT_SHAPE, "input \"%s\": %u axes; at most %d are possible",
                  slot->name, rank, MAX_RANK);
    return false;
  }
  slot->tensor = *tensor_new_named(loader->session->arena, "input", slot->name, dtype_of(slot), rank, dims);
  return true;
}

// ---- from files ----

static void load_file(Loader *loader, const char *path) {
  Diag *diag = &loader->session->diag;
  TensorFile *file = safetensors_open(loader->session->arena, diag, path);
  for (size_t i = 0; file && i < file->tensors.n; i++) {
    const FileTensor *tensor = file->tensors.items[i];
    Slot *slot = take_slot(loader, path, tensor->name);
    if (!slot || !check_type(loader, path, slot, tensor->dtype, tensor->dtype_name)) continue;
    if (make_room(loader, path, slot, tensor->rank, tensor->dims))
      tensor_file_read(file, diag, tensor, slot->tensor.dtype, slot->tensor.data);
  }
  tensor_file_close(file);
}

static void load_npy(Loader *loader, Slot *slot, const char *path) {
  NpyFile npy;
  Diag *diag = &loader->session->diag;
  if (!npy_open(&npy, diag, path)) return;
  if (check_type(loader, path, slot, npy.dtype, file_dtype_names[npy.dtype]) &&
      make_room(loader, path, slot, npy.rank, npy.dims))
    npy_read(&npy, diag, slot->tensor.dtype, slot->tensor.data);
  npy_close(&npy);
}

// ---- random ----

/* The least number of rows of the tables that an input indexes, through views up to `depth` of them; INT32_MAX if it
 * indexes none that is known. Random ids below it are certainly legal. */
static int64_t id_limit(const Node *node, int depth) {
  int64_t limit = INT32_MAX, rows;
  for (size_t i = 0; depth && i < node->users.n; i++) {
    const Node *user = node->users.items[i];
    bool is_gather = user->op == OP_GATHER && user->inputs.items[1] == node;
    if (is_gather && size_is_const(user->inputs.items[0]->dims[0], &rows) && rows < limit) limit = rows;
    if (op_table[user->op].category != CATEGORY_VIEW) continue;
    rows = id_limit(user, depth - 1);
    if (rows < limit) limit = rows;
  }
  return limit;
}

/* f32: uniform in [-1, 1). i32: legal ids, or 0 and 1 for what is no index, a mask say, or what the model's range has
 * that is next to these. bool: one true in eight. */
static void fill_random(const Slot *slot, uint64_t seed) {
  enum { DEEPEST_VIEW = 16 };
  Random random = random_new(seed, slot->name);
  int64_t n = tensor_elements(&slot->tensor), limit = id_limit(slot->node, DEEPEST_VIEW);
  int64_t least = 0;
  if (limit == INT32_MAX) limit = 2;
  if (slot->node->attr.range_text) {
    if (slot->node->attr.least > 0 || slot->node->attr.most < 0) least = slot->node->attr.least;
    const int64_t end = (int64_t)slot->node->attr.most + 1 - least;
    if (end < limit) limit = end;
  }
  for (int64_t i = 0; i < n; i++) {
    if (slot->tensor.dtype == DTYPE_F32) ((float *)slot->tensor.data)[i] = random_float(&random);
    else if (slot->tensor.dtype == DTYPE_I32)
      ((int32_t *)slot->tensor.data)[i] = (int32_t)(least + (int64_t)random_below(&random, (uint64_t)limit));
    else ((uint8_t *)slot->tensor.data)[i] = random_below(&random, 8) == 0;
  }
}

/* "2x7" gives two sizes, "scalar" none. Returns NULL, or what is wrong with the text. */
static const char *read_sizes(Arena *arena, const char *text, uint32_t *rank, int64_t dims[MAX_RANK]) {
  static const char *const NO_SIZES = "after the name, @FILE.npy or sizes such as 2x7 are expected";
  *rank = 0;
  if (strcmp(text, "scalar") == 0) return NULL;
  for (;; text++) {
    char *end;
    if (*text < '0' || *text > '9') return NO_SIZES;
    if (*rank == MAX_RANK) return arena_printf(arena, "an input has at most %d axes", MAX_RANK);
    long long dim = strtoll(text, &end, 10);
    if (dim > INT32_MAX) return arena_printf(arena, "a size is at most %d, which is 2^31 - 1", INT32_MAX);
    dims[(*rank)++] = dim;
    text = end;
    if (!*text) return NULL;
    if (*text != 'x') return NO_SIZES;
  }
}

/* The product is bounded before anything is allocated. */
static void load_random(Loader *loader, Slot *slot, const char *text) {
  uint32_t rank;
  int64_t dims[MAX_RANK], elements = 1;
  Diag *diag = &loader->session->diag;
  const char *wrong = read_sizes(loader->session->arena, text, &rank, dims);
  if (wrong) {
    option_error(diag, OPTION_INPUT, "\"%s=%s\": %s", slot->name, text, wrong);
    return;
  }
  for (uint32_t i = 0; i < rank; i++)
    if (__builtin_mul_overflow(elements, dims[i], &elements) || elements > (int64_t)1 << 40) {
      option_error(diag, OPTION_INPUT, "\"%s=%s\": more than 2^40 elements", slot->name, text);
      return;
    }
  if (make_room(loader, NULL, slot, rank, dims))
    fill_random(slot, option_count(&loader->session->options, OPTION_SEED, 0));
}

// ---- all ----

static void load_one(Loader *loader, const char *text) {
  const char *equals = strchr(text, '=');
  if (!equals) {
    option_error(&loader->session->diag, OPTION_INPUT, "\"%s\": expected NAME=@FILE.npy or NAME=2x7", text);
    return;
  }
  const char *name = arena_strndup(loader->session->arena, text, (size_t)(equals - text));
  Slot *slot = take_slot(loader, "--input", name);
  if (!slot) return;
  if (equals[1] == '@') load_npy(loader, slot, equals + 2);
  else if (!slot->node)
    option_error(&loader->session->diag, OPTION_INPUT, "lengths cannot be random; give %s=@FILE.npy", name);
  else load_random(loader, slot, equals + 1);
}

/* Every missing input is named with its shape, so that one look is enough to write the command line. */
static void report_missing(Loader *loader, const char *optional) {
  for (size_t i = 0; i < loader->slots.n; i++) {
    const Slot *slot = &loader->slots.items[i];
    if (slot->given || !slot->node || slot->node->attr.has_default) continue;
    if (optional && strcmp(slot->name, optional) == 0) continue;
    StrBuf shape = strbuf_new(loader->session->arena);
    node_print_shape(&shape, loader->graph->sizes, slot->node);
    diag_error_at(&loader->session->diag, "run", DIAG_INPUT_MISSING,
                  "input \"%s\": %s is not given; --input %s=@FILE.npy gives it", slot->name, shape.text, slot->name);
  }
}

/* Inputs that were not given are left out; names and tensors are in the order of the slots. */
static EvalInputs *collect(const Loader *loader) {
  Arena *arena = loader->session->arena;
  const char **names = ARENA_ARRAY(arena, const char *, loader->slots.n);
  Tensor *tensors = ARENA_ARRAY(arena, Tensor, loader->slots.n);
  EvalInputs *inputs = ARENA_NEW(arena, EvalInputs);
  *inputs = (EvalInputs){names, tensors, 0};
  for (size_t i = 0; i < loader->slots.n; i++) {
    if (!loader->slots.items[i].given) continue;
    names[inputs->n] = loader->slots.items[i].name;
    tensors[inputs->n++] = loader->slots.items[i].tensor;
  }
  return inputs;
}

EvalInputs *inputs_load_except(Session *session, const Graph *graph, const char *optional) {
  Loader loader = {.session = session, .graph = graph};
  list_slots(&loader);
  const char *path = option_text(&session->options, OPTION_INPUTS, NULL);
  if (path) load_file(&loader, path);
  const OptionValues *values = &session->options.values[OPTION_INPUT];
  for (size_t i = 0; i < values->texts.n; i++) load_one(&loader, values->texts.items[i]);
  if (!diag_has_errors(&session->diag)) report_missing(&loader, optional);
  return diag_has_errors(&session->diag) ? NULL : collect(&loader);
}

EvalInputs *inputs_load(Session *session, const Graph *graph) { return inputs_load_except(session, graph, NULL); }

/* Needs no graph: it is asked before the model is read. */
void inputs_list_files(Session *session, const char ***paths, size_t *n) {
  const OptionValues *values = &session->options.values[OPTION_INPUT];
  *paths = ARENA_ARRAY(session->arena, const char *, values->texts.n + 1);
  *n = 0;
  const char *path = option_text(&session->options, OPTION_INPUTS, NULL);
  if (path) (*paths)[(*n)++] = path;
  for (size_t i = 0; i < values->texts.n; i++) {
    const char *at = strstr(values->texts.items[i], "=@");
    if (at) (*paths)[(*n)++] = at + 2;
  }
}
