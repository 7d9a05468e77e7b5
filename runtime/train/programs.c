/* The programs of a library that trains: which one fits the processor, and the contexts that run them.
 *
 * In: graphs of a tfm_training with their packed programs (abi/train_tables.h). Out: contexts, each with the memory
 * that its program's tables were unpacked to; how much that takes. Refused: a processor that none of the programs is
 * for, and what no memory is left for. */
#include "base/error.h"
#include "library/open.h"
#include "library/unpack.h"
#include "machine/features.h"
#include "train/trainer_parts.h"

tfm_status training_choose(const tfm_training *training, uint32_t *number, tfm_error *error) {
  const tfm_program *program = NULL;
  const tfm_status status = model_choose(training->library, cpu_features(), &program, error);
  *number = 0;
  while (!status && training->library->programs[*number] != program) ++*number;
  return status;
}

// ---- unpacking ----

typedef struct Unpacked { /* a program; the tables follow it */
  tfm_program program;
  tfm_allocator allocator;
  uint64_t bytes; /* of all */
  uint64_t tables[];
} Unpacked;

static uint64_t unpacked_bytes(const tfm_packed_tables *packed) { return sizeof(Unpacked) + packed->bytes; }

const tfm_program *training_unpack(const tfm_packed_tables *packed, const tfm_allocator *allocator) {
  const uint64_t bytes = unpacked_bytes(packed);
  Unpacked *made = allocate(allocator, bytes, ALIGNMENT);
  if (!made) return NULL;
  made->allocator = *allocator;
  made->bytes = bytes;
  tables_unpack(packed, (char *)made->tables, (char *)&made->program);
  return &made->program;
}

void training_free_unpacked(const tfm_program *program) {
  Unpacked *made = (Unpacked *)(void *)program;
  const tfm_allocator allocator = made->allocator;
  release(&allocator, made, made->bytes);
}

typedef struct UnpackedTraining { /* the tables follow it */
  tfm_training training;
  tfm_packing packing;
  tfm_allocator allocator;
  uint64_t bytes; /* of all */
  uint64_t tables[];
} UnpackedTraining;

_Static_assert(offsetof(UnpackedTraining, packing) == sizeof(tfm_training), "where packed tables say that it is");

const tfm_training *training_unpack_tables(const tfm_training *training, const tfm_allocator *allocator) {
  if (!training->tables.packed) return training;
  const uint64_t bytes = sizeof(UnpackedTraining) + training->tables.bytes;
  UnpackedTraining *made = allocate(allocator, bytes, ALIGNMENT);
  if (!made) return NULL;
  made->training = *training;
  made->packing = *training->packing;
  made->allocator = *allocator;
  made->bytes = bytes;
  tables_unpack(&training->tables, (char *)made->tables, (char *)made);
  made->training.packing = &made->packing;
  return &made->training;
}

void training_free_tables(const tfm_training *training) {
  if (!training || !training->tables.packed) return;
  UnpackedTraining *made = (UnpackedTraining *)(void *)training;
  const tfm_allocator allocator = made->allocator;
  release(&allocator, made, made->bytes);
}

// ---- contexts ----

tfm_status training_context(const tfm_train_graph *graph, uint32_t number, const tfm_context_options *options,
                            tfm_context **context, tfm_error *error) {
  *context = NULL;
  if (!graph->n_outputs) return TFM_OK;
  const tfm_program *program = training_unpack(&graph->programs[number], &options->allocator);
  if (!program) return tfm_refuse(error, TFM_E_NOMEM, "no memory for the tables of a program");
  const tfm_status status = tfm_context_create(program, graph->weights, options, context, error);
  if (status)
    training_free_unpacked(program);
  else
    (*context)->memory.keeps_room = true;
  return status;
}

void training_context_free(tfm_context *context) {
  if (!context) return;
  const tfm_program *program = context->program;
  tfm_context_destroy(context);
  training_free_unpacked(program);
}

/* Contexts without a pool are enough to measure. */
int64_t training_measure_run(const tfm_train_graph *graph, const tfm_program *program, int32_t threads,
                             const int64_t *sizes) {
  tfm_context *context = context_new(program, &(tfm_allocator){0}, threads);
  int64_t bytes = context ? context_measure(context, sizes) : -1, more = 0;
  for (uint32_t i = 0; context && i < graph->n_inputs; i++) {
    int64_t n = graph->inputs[i].source == TFM_FROM_DROPOUT;
    for (uint32_t axis = 0; axis < program->inputs[i].rank; axis++)
      n *= context->binding.input_dims[(size_t)i * TFM_MAX_RANK + axis];
    more += n;
  }
  tfm_context_destroy(context);
  return bytes < 0 ? -1 : bytes + more;
}

int64_t training_measure(const tfm_train_graph *graph, uint32_t number, int32_t threads, const int64_t *sizes) {
  const tfm_allocator usual = {0};
  if (!graph->n_outputs) return 0;
  const tfm_program *program = training_unpack(&graph->programs[number], &usual);
  int64_t bytes = program ? training_measure_run(graph, program, threads, sizes) : -1;
  if (bytes >= 0) bytes += (int64_t)unpacked_bytes(&graph->programs[number]);
  if (program) training_free_unpacked(program);
  return bytes;
}
