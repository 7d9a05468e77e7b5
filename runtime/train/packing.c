/* <model>_trainer_model: the model with the weights of a trainer.
 *
 * In: parameters, and the table of where each of their numbers goes (tfm_packing). Out: a model with a block of packed
 * weights of its own: the bytes that `tfmc pack` makes of the same weights, but for what the model computes of weights
 * other than copies, which kernels do here and the interpreter there. Refused: libraries whose weights have fewer bits
 * than f32. */
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"
#include "library/exports.h"
#include "library/open.h"
#include "tfm/abi/forms.h"
#include "train/kept.h"
#include "train/trainer_parts.h"

// ---- pieces ----

typedef struct Numbers { /* of a piece, from its first one on */
  const char *data;
  uint8_t form; /* tfm_form */
} Numbers;

static Numbers numbers_of_piece(const tfm_trainer *t, const tfm_packed_piece *piece, const char *block) {
  if (piece->source == TFM_PIECE_NUMBER) return (Numbers){(const char *)&piece->number, TFM_FORM_F32};
  if (piece->source == TFM_PIECE_MADE)
    return (Numbers){block + piece->first * (int64_t)sizeof(float), TFM_FORM_F32};
  const uint8_t form = t->training->parameters[piece->source].form;
  const char *weight = tfm_trainer_place(t, piece->source);
  return (Numbers){weight + piece->first * tfm_form_element_bytes(form), form};
}

/* Rows from number `row` of the tensor on. In a panel the numbers of a row are `width` apart. */
static void put_piece(const tfm_packed_tensor *tensor, const tfm_packed_piece *piece, Numbers numbers, int64_t row,
                      float *to) {
  const int64_t columns = tensor->columns, width = tensor->width, step = width ? width : 1;
  for (int64_t i = 0; i < piece->rows; i++, row++) {
    float *line = to + (width ? row / width * width * columns + row % width : row * columns);
    for (int64_t k = 0; k < columns; k++) {
      float value = kept_number(numbers.form, numbers.data, i * piece->row_stride + k * piece->column_stride);
      for (uint32_t f = 0; f < piece->n_factors; f++) value *= piece->factors[f];
      line[k * step] = value;
    }
  }
}

static void put_tensors(tfm_trainer *t, char *block) {
  const tfm_packing *p = t->training->packing;
  for (uint32_t i = 0; i < p->n_tensors; i++) {
    const tfm_packed_tensor *tensor = &p->tensors[i];
    int64_t row = 0;
    for (uint32_t k = tensor->first_piece; k < tensor->first_piece + tensor->n_pieces; row += p->pieces[k++].rows)
      put_piece(tensor, &p->pieces[k], numbers_of_piece(t, &p->pieces[k], block), row,
                (float *)(void *)(block + tensor->offset));
  }
}

// ---- what is computed of weights ----

/* Bytes for what a graph takes of weights that are kept in 16 bits. */
static int64_t widened_bytes(const tfm_trainer *t, const tfm_train_graph *graph) {
  int64_t n = 0;
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const tfm_parameter *p = &t->training->parameters[graph->inputs[i].number];
    if (p->form != TFM_FORM_F32) n += round_up(p->elements, ALIGNMENT);
  }
  return n * (int64_t)sizeof(float);
}

static void give_weights(const tfm_trainer *t, const tfm_train_graph *graph, tfm_value *values, float *room) {
  for (uint32_t i = 0; i < graph->n_inputs; i++) {
    const uint32_t number = graph->inputs[i].number;
    const tfm_parameter *p = &t->training->parameters[number];
    values[i] = (tfm_value){.data = tfm_trainer_place(t, number), .rank = p->rank, .dims = p->dims};
    if (p->form == TFM_FORM_F32) continue;
    tfm_trainer_get(t, number, 0, p->elements, room);
    values[i].data = room;
    room += round_up(p->elements, ALIGNMENT);
  }
}

static tfm_status compute_packed(tfm_trainer *t, const tfm_train_graph *graph, const uint64_t *places, char *block,
                                 tfm_error *error) {
  uint32_t number;
  tfm_context *context = NULL;
  const tfm_context_options options = {.struct_size = sizeof options, .pool = t->pool, .allocator = t->allocator};
  tfm_status status = training_choose(t->training, &number, error);
  if (status) return status;
  const size_t bytes = (graph->n_inputs + graph->n_outputs + 1) * sizeof(tfm_value);
  tfm_value *values = allocate(&t->allocator, bytes, ALIGNMENT);
  if (!values) return tfm_refuse(error, TFM_E_NOMEM, "no memory for a list of weights");
  tfm_value *results = values + graph->n_inputs;
  int64_t wide = widened_bytes(t, graph);
  float *room = wide ? allocate_room(&t->allocator, &wide) : NULL;
  status = wide && !room ? tfm_refuse(error, TFM_E_NOMEM, "no memory for weights in f32")
                         : training_context(graph, number, &options, &context, error);
  if (!status) give_weights(t, graph, values, room);
  for (uint32_t i = 0; i < graph->n_outputs; i++) results[i] = (tfm_value){.data = block + places[i]};
  if (!status) status = tfm_context_bind(context, values, error);
  if (!status) status = tfm_context_run(context, values, results, error);
  training_context_free(context);
  release_room(&t->allocator, room, wide);
  release(&t->allocator, values, bytes);
  return status;
}

// ---- the model ----

static tfm_status fill_block(tfm_trainer *t, char *block, tfm_error *error) {
  const tfm_packing *p = t->training->packing;
  const tfm_train_graph *graphs = t->training->packing_graphs;
  uint32_t first = 0; /* place of a graph's; without any there is no list of places */
  tfm_status status = TFM_OK;
  for (uint32_t i = 0; i < p->n_constants; i++)
    memcpy(block + p->constants[i].offset, p->bytes_of_constants + p->constants[i].from, p->constants[i].bytes);
  for (int i = 0; i < TFM_PACKING_GRAPHS && !status; first += graphs[i++].n_outputs)
    if (graphs[i].n_outputs) status = compute_packed(t, &graphs[i], p->places + first, block, error);
  const uint64_t mode = fp_mode_enter();
  if (!status) put_tensors(t, block);
  fp_mode_leave(mode);
  return status;
}

/* The block is the model's, which unmaps it. */
static tfm_status make_packing(tfm_trainer *t, tfm_model *model, tfm_error *error) {
  const size_t bytes = (size_t)t->training->packing->bytes;
  if (!bytes) return TFM_OK;
  void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return tfm_refuse(error, TFM_E_NOMEM, "no memory for %zu bytes of weights", bytes);
  model->weights = (Weights){.packed = block, .mapping = block, .mapping_bytes = bytes};
  return fill_block(t, block, error);
}

static int release_owner(void *owner) {
  model_release(owner);
  return 0;
}

/* The model is of the trainer's library, so it keeps that loaded as the trainer does. */
static void keep_owner(const tfm_trainer *t, tfm_model *model) {
  if (!t->owner) return;
  model_keep(t->owner);
  model->handle = t->owner;
  model->unload = release_owner;
}

tfm_status tfm_trainer_model(tfm_trainer *t, tfm_model **model, tfm_error *error) {
  if (!model) return tfm_refuse_call(error, "the pointer for the model is null");
  *model = NULL;
  tfm_status status = training_enter(t, error);
  if (status) return status;
  const char *why = t->training->packing->refused;
  status = why ? tfm_refuse(error, TFM_E_USAGE, "%s: save the trainer, and `tfmc pack` makes its weights ready", why)
               : model_new(t->training->library, model, error);
  if (!status) keep_owner(t, *model);
  if (!status) status = make_packing(t, *model, error);
  if (status) tfm_model_close(*model);
  if (status) *model = NULL;
  return training_leave(t, status ? status : tfm_succeed(error));
}
