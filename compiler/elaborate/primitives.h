/* Primitives: the functions that the language knows without being told, one row each in primitives.def.
 *
 * In: a call's arguments, by parameter. Out: a value, mostly a tensor; poison after an error or for poisoned
 * arguments. */
#ifndef TFM_ELABORATE_PRIMITIVES_H
#define TFM_ELABORATE_PRIMITIVES_H

#include "elaborate/elaborator.h"

enum { MAX_PARAMETERS = 6 };

typedef struct PrimitiveCall {
  const Primitive *primitive;
  Value arguments[MAX_PARAMETERS]; /* by parameter, without the variadic one */
  bool is_given[MAX_PARAMETERS];   /* not the default */
  const Value *rest;               /* the arguments of the variadic one */
  uint32_t n_rest;
  const Scope *scope; /* of the call, for names in texts */
} PrimitiveCall;

struct Primitive {
  const char *name;
  Value (*function)(Elaborator *e, const PrimitiveCall *call);
  OpKind op; /* the operation with this name; N_OPS: none */
  bool is_variadic;
  uint32_t n_parameters; /* without the variadic one */
  const char *parameters[MAX_PARAMETERS];
  Value defaults[MAX_PARAMETERS]; /* MISSING: needed */
};

/* Defines every primitive in the scope. */
void primitives_define(Elaborator *e, Scope *scope);

/* x[ids]: rows of a table. */
Value primitive_gather(Elaborator *e, Node *table, Value ids);
/* The tensors along a new axis. NULL after an error. */
Node *stack_tensors(Elaborator *e, const char *name, uint32_t n, const Value *values, Value axis);

#endif
