/* The programs of a library that trains: which one fits the processor, and the contexts that run them.
 *
 * In: graphs of a tfm_training with their packed programs (abi/train_tables.h). Out: contexts, each with the memory
 * that its program's tables were unpacked to; how much that takes. Refused: a processor that none of the programs is
 * for, and what no memory is left for. Packed tables are the compiler's own and are not checked. */
#include <string.h>

#include "base/error.h"
#include "machine/features.h"
#include "library/open.h"
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

static uint64_t unpacked_bytes(const tfm_packed_program *packed) { return sizeof(Unpacked) + packed->tables.bytes; }

static uint64_t unpack_number(const uint8_t **at) {
  uint64_t number = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = *(*at)++;
    number |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) return number;
  }
}

static uint64_t read_count(const uint8_t **at, uint64_t told, uint64_t most) {
  return told < most ? told : told + unpack_number(at);
}

static void read_runs(const uint8_t *from, uint8_t *to, uint64_t bytes) {
  const uint8_t *end = to + bytes;
  while (to < end) {
    const uint8_t run = *from++;
    uint64_t n = read_count(&from, run >> TFM_NEW_SHIFT, TFM_MOST_NEW);
    memcpy(to, from, n);
    to += n;
    from += n;
    if (to == end) return;
    n = read_count(&from, run & TFM_MOST_OLD, TFM_MOST_OLD) + TFM_LEAST_RUN;
    for (const uint8_t *old = to - unpack_number(&from); n; n--) *to++ = *old++; /* they may overlap */
  }
}

static void add_differences(uint32_t *words, const tfm_packed_table *table) {
  const uint64_t stride = table->stride / sizeof *words, n = table->bytes / sizeof *words;
  for (uint64_t i = stride; i < n; i++) words[i] += words[i - stride];
}

/* Unpacks to `start`; pointers of the struct `whole` name the tables then. */
static void read_tables(const tfm_packed_tables *packed, char *start, char *whole) {
  read_runs(packed->packed, (uint8_t *)start, packed->bytes);
  const tfm_packed_table *tables = (const tfm_packed_table *)(const void *)start;
  for (uint32_t i = 0; i < packed->n_tables; i++) {
    void *table = start + tables[i].offset;
    add_differences(table, &tables[i]);
    memcpy(whole + tables[i].member, &table, sizeof table);
  }
}

const tfm_program *training_unpack(const tfm_packed_program *packed, const tfm_allocator *allocator) {
  const uint64_t bytes = unpacked_bytes(packed);
  Unpacked *made = allocate(allocator, bytes, ALIGNMENT);
  if (!made) return NULL;
  made->program = *packed->program;
  made->allocator = *allocator;
  made->bytes = bytes;
  read_tables(&packed->tables, (char *)made->tables, (char *)&made->program);
  if (packed->n_named)
    memcpy((tfm_tensor_info *)(uintptr_t)made->program.inputs, packed->named, packed->n_named * sizeof *packed->named);
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
  read_tables(&training->tables, (char *)made->tables, (char *)made);
  made->training.packing = &made->packing;
  tfm_parameter *parameters = (tfm_parameter *)(uintptr_t)made->training.parameters;
  const char *path = made->training.paths;
  for (uint32_t i = 0; i < training->n_parameters; i++, path += strlen(path) + 1) parameters[i].path = path;
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
