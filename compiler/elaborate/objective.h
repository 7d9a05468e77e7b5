/* Objective: what a model is trained for: the function that its train block names, as a graph.
 *
 * In: a parsed program, as elaborate.h takes it. Out: the graph of the objective with its results as outputs (the first
 * is the loss), the settings of the block, and what the weights are before the first step. Refuses objectives whose
 * results are no f32 scalars, settings out of range, and what docs/language.md calls an error. */
#ifndef TFM_ELABORATE_OBJECTIVE_H
#define TFM_ELABORATE_OBJECTIVE_H

#include "elaborate/elaborate.h"

// ---- initial values ----

/* INITIAL(Enum, "the function of the language") */
#define INITIAL_KINDS(INITIAL)                \
  INITIAL(CONSTANT, "constant")               \
  INITIAL(UNIFORM, "uniform")                 \
  INITIAL(NORMAL, "normal")                   \
  INITIAL(XAVIER_UNIFORM, "xavier_uniform")   \
  INITIAL(XAVIER_NORMAL, "xavier_normal")     \
  INITIAL(KAIMING_UNIFORM, "kaiming_uniform") \
  INITIAL(KAIMING_NORMAL, "kaiming_normal")

typedef enum InitialKind {
#define INITIAL(Enum, name) INITIAL_##Enum,
  INITIAL_KINDS(INITIAL)
#undef INITIAL
      N_INITIALS
} InitialKind;

typedef struct Initial {
  InitialKind kind;
  double a, b; /* the value; low, high; mean, std; gain; a of kaiming */
} Initial;

// ---- settings ----

typedef enum Optimizer { OPTIMIZER_SGD, OPTIMIZER_ADAM, OPTIMIZER_ADAMW } Optimizer;
typedef enum Schedule {
  SCHEDULE_CONSTANT,
  SCHEDULE_LINEAR,
  SCHEDULE_COSINE,
  SCHEDULE_EXPONENTIAL,
  SCHEDULE_NOAM,
  SCHEDULE_INVERSE_SQRT
} Schedule;

/* What matrices that are not trained are kept in: the 16 bits of their file, if it has them so, else f32; f32; bf16, to
 * which they are rounded. */
typedef enum Frozen { FROZEN_AS_STORED, FROZEN_F32, FROZEN_BF16 } Frozen;

/* What checkpoints hold: all weights; those that are trained, beside a base. */
typedef enum Saved { SAVED_ALL, SAVED_TRAINED } Saved;

typedef struct Patterns { /* of weight paths, where `*` matches anything */
  VEC(const char *) texts;
} Patterns;

typedef struct RateOf { /* of the weights of a pattern: a factor of the learning rate */
  const char *pattern;
  double factor;
} RateOf;

typedef VEC(RateOf) Rates; /* of two that match a weight the later one counts */

typedef struct TrainSettings {
  Optimizer optimizer;
  Schedule schedule;
  double lr, beta1, beta2, eps, weight_decay, momentum, warmup, steps, final_lr, model_size, gamma;
  double clip_norm; /* 0: none */
  bool nesterov;
  Patterns freeze, no_decay;
  Patterns train_only; /* empty where it is not given: all that freeze leaves */
  Rates rates;
  Frozen frozen;
  Saved saved;
  bool drops;     /* dropouts of the objective are kept */
  double average; /* share of the running mean that a step leaves; 0: there is none */
} TrainSettings;

/* Whether the values of the setting are words of a list. */
bool setting_is_word(const char *name);

bool patterns_match(const Patterns *patterns, const char *path);
/* The number of a weight; `otherwise`: no pattern matches it. */
double rate_factor(const Rates *rates, const char *path, double otherwise);

// ---- the objective ----

typedef struct DropoutMask { /* an INPUT of the graph, bool: true where an element is kept */
  const Node *input;
  uint32_t number; /* of the dropout, in the order of elaboration */
  double p;
} DropoutMask;

typedef struct Objective {
  Graph *graph;
  const char *name; /* of the function; NULL: the model has no train block */
  TrainSettings settings;
  const struct Adapters *adapters; /* of the model; NULL: none (elaborate/adapters.h) */
  int32_t batch;             /* the symbol of the size that counts the items; -1: there is none */
  VEC(const Node *) stopped; /* behind these nothing flows back */
  VEC(DropoutMask) masks;
  Map initials; /* name of a weight -> Initial *, of those that have one */
} Objective;

/* Whether the weight of this path is one that training may change: no setting freezes it, and adapters do not. */
bool objective_trains(const Objective *objective, const char *path);

/* NULL after an error. Without a name if the model has no train block. */
Objective *elaborate_objective(Arena *arena, Map *names, Diag *diag, const ParsedProgram *program,
                               const ElaborateOptions *options);

#endif
