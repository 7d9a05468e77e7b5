/* What a trainer consists of, file by file. The head of step.c follows a step through them. */
#ifndef TFM_RUNTIME_TRAINER_PARTS_H
#define TFM_RUNTIME_TRAINER_PARTS_H

#include <stdatomic.h>

#include "base/allocate.h"
#include "context/context.h"
#include "machine/fp_mode.h"
#include "tfm/abi/state_file.h"
#include "tfm/abi/trainer_weights.h"
#include "pool/pool.h"

enum { N_TENSORS = TFM_TENSOR_MEAN + 1 };

enum { MOST_LEVELS = 11 }; /* 1,024 shards of a rank */

typedef struct Ranks { /* processes that train together */
  int32_t rank, ranks;
  int32_t shards; /* of this rank */
  tfm_sum sum;
  tfm_exchange exchange;
  void *user;
} Ranks;

typedef struct Joined Joined;

struct tfm_trainer {
  const tfm_training *training;
  tfm_train_engine engine;
  tfm_train_settings settings;
  tfm_allocator allocator;
  Pool *pool, *own_pool; /* NULL: one thread */
  Ranks ranks;
  uint64_t seed;
  int64_t t, epoch;         /* steps done */
  int64_t bytes;            /* of the memory that the trainer and its arrays lie in */
  float *blocks[N_TENSORS]; /* of what is trained, each `floats` long; NULL: not needed */
  void **places;            /* of all weights: in the block of trained ones, in `frozen`, or with their lender */
  char *frozen;             /* in memory of its own, or mapped from a file */
  int64_t frozen_room, frozen_mapping; /* their bytes; one is 0 */
  bool has_base;            /* what is frozen is known already, whatever a state holds */
  float *part;              /* the gradients of one part of several, or of another rank; made when it is needed */
  float *levels[MOST_LEVELS]; /* sums of shards, made when they are needed; [0] is not used */
  int64_t block_bytes;        /* of each of these */
  double *tops, *bottoms; /* of the results, summed over parts */
  double *numbers;        /* results of the last step, then those of the last evaluation */
  float *outputs, *seeds; /* those of rank 0 of one run; as a run is given them */
  float *cotangents;      /* of the tops of the loss, in a step */
  double *formula;        /* values of the steps of formulas, then what the loss changes with each */
  double *chunk_sums; /* of squares of the gradients */
  int64_t n_chunks;
  tfm_value *values, *results; /* what a run is given */
  void **rests;                /* the same: RunState.rests */
  int64_t *dims, *result_dims; /* TFM_MAX_RANK for each input, where no context has them; for each output */
  Joined *joined;              /* what parts gave, where results mix items; NULL: no step had several parts yet */
  int64_t *sizes;
  char *masks; /* of a run, one behind the other */
  int64_t mask_bytes;
  double loss;        /* of these gradients */
  tfm_state_head head; /* of the state that it began with */
  void *note;          /* of that; NULL: none */
  int64_t note_bytes;
  bool fills;         /* of the options */
  bool has_gradients; /* of a step that is not over */
  bool owns_contexts; /* those of `engine`, and the pool if it is not the caller's */
  tfm_model *owner;   /* keeps the library loaded that the trainer was opened from; NULL: the caller does */
  uint64_t callers_mode; /* of floats, while it is running */
  _Atomic uint32_t cancelled, running; /* 0 or 1 */
};

// ---- programs.c ----

/* Which of the programs of each graph this CPU runs. */
tfm_status training_choose(const tfm_training *training, uint32_t *number, tfm_error *error);
/* The program with its tables, in memory of its own; NULL: there is no memory. */
const tfm_program *training_unpack(const tfm_packed_tables *packed, const tfm_allocator *allocator);
void training_free_unpacked(const tfm_program *program);
/* The same training with its tables, in memory of its own; itself if they are not packed. NULL: there is no memory. */
const tfm_training *training_unpack_tables(const tfm_training *training, const tfm_allocator *allocator);
void training_free_tables(const tfm_training *training); /* NULL, and what is not packed, is ignored */
/* A context for that program of a graph, which keeps its memory when it is bound again; NULL where there is none. */
tfm_status training_context(const tfm_train_graph *graph, uint32_t number, const tfm_context_options *options,
                            tfm_context **context, tfm_error *error);
void training_context_free(tfm_context *context); /* NULL is ignored */
/* The memory that a context and its masks take for these sizes; -1: it cannot be said. */
int64_t training_measure(const tfm_train_graph *graph, uint32_t number, int32_t threads, const int64_t *sizes);
/* The same without what the program itself takes. */
int64_t training_measure_run(const tfm_train_graph *graph, const tfm_program *program, int32_t threads,
                             const int64_t *sizes);

// ---- trainer_tensors.c ----

/* Makes the trainer the caller's, in the runtime's floating-point mode, until training_leave, which returns status. */
tfm_status training_enter(tfm_trainer *trainer, tfm_error *error);
tfm_status training_leave(tfm_trainer *trainer, tfm_status status);

// ---- trainer_state.c ----

/* The trainer goes on from the state in a file. */
tfm_status trainer_load(tfm_trainer *trainer, const char *path, tfm_error *error);
/* The frozen weights of a state. */
tfm_status trainer_load_base(tfm_trainer *trainer, const char *path, tfm_error *error);

// ---- saved.c: of a weight's numbers, in whichever form they are kept; never 0 ----

uint64_t trainer_weight_hash(const tfm_trainer *trainer, uint32_t parameter);

// ---- part_run.c ----

typedef struct Run {
  tfm_trainer *t;
  const tfm_train_graph *graph;
  tfm_context *context; /* NULL: the engine's functions */
  const tfm_train_parts *parts;
  int64_t part, first_item, items;
  const int64_t *sizes; /* of a run on what all parts gave; NULL: those of the part */
} Run;

/* Gives inputs; afterwards `results` of the trainer have their shapes, but not their data. */
tfm_status run_bind(Run *run, tfm_error *error);
/* Runs a graph that is bound, to where `results` of the trainer say. */
tfm_status run_bound(const Run *run, tfm_error *error);
/* The run-time sizes that a struct of args holds, or that values of the graph's inputs from the batch have. */
void training_read_sizes(const tfm_training *training, const void *args, int64_t *sizes);
void training_find_sizes(const tfm_train_graph *graph, const tfm_program *program, const tfm_value *values,
                         int64_t *sizes);
/* Room for the masks of dropout that these inputs are. */
tfm_status training_reserve_masks(tfm_trainer *trainer, const tfm_train_graph *graph, const tfm_value *inputs,
                                  tfm_error *error);

// ---- step.c ----

/* Adds to a message in which part it was. */
tfm_status step_explain(const tfm_trainer *trainer, tfm_status status, int64_t part, tfm_error *error);
/* data becomes its sum over all ranks; `other` has room for as much. Floats are blocks of gradients. */
tfm_status sum_ranks(tfm_trainer *trainer, void *data, void *other, int64_t n, bool is_double, tfm_error *error);

// ---- joined.c: results that mix items, of several parts ----

typedef struct JoinedRequest {
  const tfm_objective *objective;
  tfm_context *vectors, *whole; /* NULL: the engine's functions */
  const tfm_train_parts *parts;
  int64_t first_item;
} JoinedRequest;

typedef struct Mixer {
  /* Runs all parts forwards, joins what they gave, over all ranks, and computes the results, cotangents and the
   * gradients of weights that the mixture reads itself. */
  tfm_status (*compute)(tfm_trainer *trainer, const JoinedRequest *request, double *results, tfm_error *error);
  /* What an input of the mixture, or of the backward half of the part that was aimed at, is. */
  const tfm_value *(*value)(const Joined *joined, const tfm_train_input *input);
  void (*aim_part)(tfm_trainer *trainer, int64_t part);
  void (*add_gradients)(tfm_trainer *trainer, float *gradients); /* that the mixture itself gives, once a step */
  void (*free)(tfm_trainer *trainer);
} Mixer;

static inline const Mixer *mixer_of(const tfm_trainer *trainer) { return trainer->training->mixer(); }

// ---- mixture.c: results of sums over all parts ----

/* Whether what the loss is divided by is 0. */
bool mixture_lacks_divisor(tfm_trainer *trainer, const tfm_objective *objective);
/* The cotangents of the tops of the loss; what it is divided by, and is a formula of, is known. */
void mixture_find_seeds(tfm_trainer *trainer);
/* For the next run: tops that count once have none but in the first part. */
void mixture_give_seeds(tfm_trainer *trainer, bool is_first);
void mixture_results(tfm_trainer *trainer, const tfm_objective *objective, double *results);

// ---- formulas.c: random numbers ----

typedef struct MaskPlace { /* which elements of which step a mask is for */
  uint64_t seed;
  uint32_t step; /* from 1 */
  int64_t first_item;
  uint32_t features; /* that may be used, as in a program; the bits do not depend on them */
} MaskPlace;

/* The first values of a weight. */
void draw_initial(const tfm_parameter *parameter, uint64_t seed, float *values);
/* The mask of a dropout with these dims, 1 where the element is kept. The threads of the pool share the work. */
void draw_mask(Pool *pool, const tfm_dropout *dropout, const int64_t *dims, const MaskPlace *place, uint8_t *mask);

// ---- optimizers.c ----

/* The rate of step t (from 1), in epoch `epoch` (from 0). */
double optimizer_rate(const tfm_train_settings *settings, int64_t t, int64_t epoch);
int64_t optimizer_chunks(const tfm_training *training); /* how many doubles chunk_sums has */
double optimizer_norm(tfm_trainer *trainer);            /* of all gradients */
/* Changes weights and moments; `clip` multiplies gradients, `rate` is that of step trainer->t. */
void optimizer_update(tfm_trainer *trainer, double clip, double rate);

/* The least size of what is the trainer's without its contexts; -1: it is too large to count. */
int64_t trainer_bytes(const tfm_training *training, const tfm_trainer_options *options);

/* Calls `work` with the threads of the pool, or with the caller alone if it is busy. */
void train_share(Pool *pool, PoolWork work, void *argument);

#endif
