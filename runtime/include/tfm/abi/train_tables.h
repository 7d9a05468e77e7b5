/* tfm/abi/train_tables.h: what a model is trained for, as the runtime sees it, and the trainer. C99.
 *
 * A tfm_training is constant data, like a tfm_program: made in memory for `tfmc train`, emitted into a library by `tfmc
 * compile --training`. The trainer owns weights, gradients and moments, and calls programs for everything that the
 * model computes; random numbers, the order of sums, schedules and optimizers are its own. */
#ifndef TFM_TRAIN_TABLES_H
#define TFM_TRAIN_TABLES_H

#include "tfm/abi/library.h"
#include "tfm/abi/packed_program.h"
#include "tfm/abi/packing.h"
#include "tfm/abi/train_formula.h"
#include "tfm/abi/train_graphs.h"
#include "tfm/train_types.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- weights ----

typedef enum tfm_initial_kind {
  TFM_INITIAL_CONSTANT,
  TFM_INITIAL_UNIFORM,
  TFM_INITIAL_NORMAL,
  TFM_INITIAL_XAVIER_UNIFORM,
  TFM_INITIAL_XAVIER_NORMAL,
  TFM_INITIAL_KAIMING_UNIFORM,
  TFM_INITIAL_KAIMING_NORMAL,
  TFM_INITIAL_NONE /* it has to come from a file */
} tfm_initial_kind;

typedef struct tfm_initial {
  uint32_t kind;
  double a, b; /* the value; low, high; mean, std; gain; a of kaiming */
} tfm_initial;

/* What is trained lies in blocks of numbers of equal layout: weights, gradients, moments. What is frozen lies in a
 * block of bytes of its own, each weight in its form. */
typedef struct tfm_parameter {
  const char *path;
  uint64_t offset; /* in its blocks: numbers of what is trained, 16 times n; bytes of what is frozen, 64 times n */
  int64_t elements, dims[TFM_MAX_RANK];
  tfm_initial initial;
  double rate;          /* what the learning rate is multiplied with */
  uint32_t gradient;    /* output of the gradients; TFM_NONE: it is not trained */
  uint8_t rank, decays; /* decays: weight_decay is for it too */
  uint8_t adapts;       /* a tfm_adapts (adapts.h) */
  uint8_t form;         /* tfm_form: F32; of what is frozen also BF16 or F16 */
} tfm_parameter;

// ---- dropout ----

/* An input that says which elements are kept. One axis may count items: `per_item` times as many as there are. Axes are
 * folded by their size if it was known when compiling, else by 2^20. */
typedef struct tfm_dropout {
  double p;
  uint32_t number;          /* of the dropout in the model */
  uint32_t rank, item_axis; /* item_axis TFM_NONE: there is none */
  uint32_t per_item;
  uint32_t fold[TFM_MAX_RANK];
} tfm_dropout;

// ---- results ----

/* factor * top / bottom; factor * top / formula; without a top factor * formula. Tops and bottoms are summed over all
 * parts of a step first. A part with a slope is no term: its top is the value of a step of the loss, and gets what the
 * loss changes with it as its cotangent. */
typedef struct tfm_result_part {
  double factor;
  uint32_t top, bottom;    /* outputs of the two graphs; TFM_NONE: 1 */
  uint32_t formula, slope; /* steps; TFM_NONE: none */
} tfm_result_part;

typedef struct tfm_train_result {
  const char *name;
  uint32_t first_part, n_parts;
} tfm_train_result;

typedef struct tfm_objective { /* the loss first */
  const tfm_train_result *results;
  const tfm_result_part *parts;
  const tfm_formula_step *steps;
  const uint8_t *tops_once, *bottoms_once; /* by output: it is the same in all parts, and counts once; NULL: none is */
  tfm_train_graph tops, bottoms; /* tops: behind the tops of the parts come gradients */
  tfm_train_mixture mixture;
  uint32_t n_results, n_parts, n_tops, n_steps;
} tfm_objective;

typedef enum tfm_optimizer { TFM_OPTIMIZER_SGD, TFM_OPTIMIZER_ADAM, TFM_OPTIMIZER_ADAMW } tfm_optimizer;

typedef struct tfm_training {
  const tfm_library *library; /* NULL: there is none, and graphs have no programs */
  const tfm_parameter *parameters;
  const tfm_dropout *dropouts;
  const uint32_t *sizes, *inputs; /* offsets in the args struct of the objective: run-time sizes, its inputs */
  tfm_mixer_of *mixer;           /* NULL: no result mixes items */
  tfm_formula_walk *formulas;    /* NULL: no result is a formula over sums */
  tfm_optimizer_work *optimize;
  tfm_weight_average *average;   /* NULL: there is no running mean of the weights */
  const char *whole, *whole_why; /* place and reason that a step must be one part; both NULL: it may be several */
  const char *adapter, *no_adapter; /* of adapts.h */
  tfm_objective step, evaluation; /* with dropout and gradients; without. n_results 0: it is not there */
  tfm_train_graph
      packing_graphs[TFM_PACKING_GRAPHS]; /* packed weights that are computed of others; n_outputs 0: none */
  const tfm_packing *packing;     /* NULL: there is no library */
  uint64_t model;                 /* hash of the objective: states of another do not fit */
  uint64_t floats, frozen_bytes;  /* of a block of what is trained; of the block of what is frozen */
  uint32_t n_parameters, n_dropouts, n_seeds; /* seeds: the parts of the loss that have tops, in order */
  uint32_t n_inputs, n_sizes;                 /* of the objective */
  uint32_t batch;                             /* the run-time size that counts items; TFM_NONE: there is none */
  uint32_t args_size, optimizer;
  uint32_t base_is_apart;                     /* checkpoints do not hold what is frozen: it has adapters, or says so */
  uint64_t args_number;                       /* of the args struct of the objective (tfm_args_layout.number) */
  tfm_train_settings settings;
  double average_share;           /* of the mean that a step leaves, once it is old enough */
  /* In a library: the tables of weights, masks and inputs of graphs, and those of `packing`, whose members count from
   * the end of this struct. NULL stands in their place. */
  tfm_packed_tables tables;
} tfm_training;

// ---- the trainer ----

/* Some of the items of a step each: [n][n_inputs] values of the objective's inputs, or structs of args. */
typedef struct tfm_train_parts {
  int64_t n;
  const tfm_value *values;
  const void *args; /* read if `values` is NULL: n structs, `stride` bytes apart */
  size_t stride;
} tfm_train_parts;

/* What runs graphs: a context for each, made by the caller, or functions. */
typedef struct tfm_train_engine {
  tfm_context *step_tops, *step_bottoms, *tops, *bottoms; /* of the objective in a step; as it is evaluated */
  tfm_context *step_vectors, *step_whole, *step_back, *vectors, *whole; /* of their mixtures */
  void *user;
  /* Sets the dims of the inputs that are masks, and those of outputs with axes. `sizes`: all zeroes, and set from the
   * inputs; else those of the run. */
  tfm_status (*bind)(void *user, const tfm_train_graph *graph, tfm_value *inputs, tfm_value *outputs, int64_t *sizes,
                     tfm_error *error);
  tfm_status (*run)(void *user, const tfm_train_graph *graph, const tfm_value *inputs, const tfm_value *outputs,
                    tfm_error *error);
} tfm_train_engine;

/* The settings of `options` may be NULL: those of the block. Weights are zeroes at first. What is given outlives the
 * trainer, but for the options. */
tfm_status tfm_trainer_create(const tfm_training *training, const tfm_train_engine *engine,
                              const tfm_trainer_options *options, tfm_trainer **trainer, tfm_error *error);
/* Initial values for all weights, from the seed. */
tfm_status tfm_trainer_draw(tfm_trainer *trainer, tfm_error *error);
tfm_status tfm_trainer_draw_one(tfm_trainer *trainer, uint32_t parameter, tfm_error *error);
/* A tensor of a parameter, to be read or written; NULL: the trainer has none, or keeps it in 16 bits. */
float *tfm_trainer_data(tfm_trainer *trainer, uint32_t parameter, tfm_train_tensor which);
/* After how many steps, and in which epoch, the moments were zero and the schedule began anew; zeroes: at the start. */
typedef struct tfm_trainer_origin { int64_t optimizer, schedule, epoch; } tfm_trainer_origin;
void tfm_trainer_set_origin(tfm_trainer *trainer, const tfm_trainer_origin *origin);
/* Gradients over the parts of a step, whose first item is number `first_item` of it; results: of the objective, in
 * their order. TFM_E_INPUT: nothing to divide by, or an input is refused; weights are as before. */
tfm_status tfm_train_gradients(tfm_trainer *trainer, const tfm_train_parts *parts, int64_t first_item,
                                 double *results, tfm_error *error);
/* One step of the optimizer with these gradients. TFM_E_DIVERGED: the loss or the norm is not finite; the weights are
 * as before. */
tfm_status tfm_train_update(tfm_trainer *trainer, double loss, double *norm, double *rate, tfm_error *error);
/* The results over all parts, without dropout. */
tfm_status tfm_train_evaluate(tfm_trainer *trainer, const tfm_train_parts *parts, double *results,
                                tfm_error *error);
/* Bytes of the run of a part with these run-time sizes (-1: one is out of range). */
int64_t tfm_trainer_part_bytes(const tfm_trainer *trainer, const int64_t *sizes);
/* Bytes of what mixes the items of a whole batch with these sizes, where its parts are run one by one; 0: nothing. */
int64_t tfm_trainer_whole_bytes(const tfm_trainer *trainer, const int64_t *sizes);

// ---- what a library that trains exports, as <model>_trainer_new and so on ----

/* With those of tfm.h that take no values: tfm_trainer_update, tfm_trainer_save and others. `layout`: args_number of
 * the caller's header; a table with another refuses. */
void tfm_library_training_defaults(const tfm_training *training, tfm_train_settings *settings);
tfm_status tfm_library_trainer_new(const tfm_training *training, const char *state, const tfm_trainer_options *options,
                                   tfm_trainer **trainer, tfm_error *error);
tfm_status tfm_library_trainer_new_as(const tfm_training *training, uint64_t layout, const char *state,
                                      const tfm_trainer_options *options, tfm_trainer **trainer, tfm_error *error);
tfm_status tfm_library_trainer_reserve(tfm_trainer *trainer, const void *largest, tfm_error *error);
tfm_status tfm_library_trainer_step(tfm_trainer *trainer, const void *parts, int64_t n, int64_t first_item,
                                    tfm_step_result *result, tfm_error *error);
tfm_status tfm_library_trainer_gradients(tfm_trainer *trainer, const void *parts, int64_t n, int64_t first_item,
                                         tfm_step_result *result, tfm_error *error);
tfm_status tfm_library_trainer_evaluate(tfm_trainer *trainer, const void *parts, int64_t n, tfm_step_result *result,
                                        tfm_error *error);
int64_t tfm_library_trainer_bytes(const tfm_training *training, const tfm_trainer_options *options,
                                  const void *largest);
/* The library's own table, from which tfm_trainer_open makes trainers. */
const tfm_training *tfm_library_training_self(const tfm_training *training);

/* Philox4x32-10 (Salmon et al. 2011). */
void tfm_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t words[4]);

#ifdef __cplusplus
}
#endif
#endif
