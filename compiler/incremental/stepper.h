/* Stepper: the step graph while it is built from the model. Private to incremental/. */
#ifndef TFM_INCREMENTAL_STEPPER_H
#define TFM_INCREMENTAL_STEPPER_H

#include "incremental/cut.h"
#include "incremental/incremental.h"

typedef struct SizeMap { /* sizes of the model as sizes of another graph */
  SizeTable *to;
  const Size *of[SIZE_MAX_SYMBOLS]; /* by symbol of the model; NULL: it has none there */
} SizeMap;

typedef struct Carried Carried;
struct Carried { /* a state; a list in the order of the outputs */
  Carried *next;
  const Node *of; /* of the model: linear_attention, cumsum; of a window, what is shifted */
  bool is_window;
  int64_t rows;   /* of a window: as many as the farthest shift looks back */
  Node *input, *output;
  Node *joined;   /* of a window: its rows with the new ones behind them; NULL: not yet built */
};

typedef struct Stepper {
  Cut *cut;
  Graph *graph;
  SizeMap map, of_new; /* the length as past + fresh; as fresh */
  const Size *past, *fresh, *kept;
  Node **inputs;  /* by id of the model's node: the input that holds the tokens, or a value of the encoder */
  Node **earlier; /* by id: the input that holds the cache of earlier positions */
  Node **caches;  /* by id: that cache with the new positions behind it */
  Carried **states, **windows; /* by id: of the node itself, of what is shifted */
  Carried *first, *last;
} Stepper;

/* A size in the other graph; NULL: the polynomial becomes too large, or it has a symbol that the other graph lacks. */
const Size *step_size(const SizeMap *map, const Size *size);
bool step_attr(const SizeMap *map, NodeAttr *attr); /* likewise those of an attribute; false: one is too large */
/* Whether the use needs the axis for new positions alone. */
bool step_is_new(const Stepper *s, const Node *node, uint8_t whole, uint32_t axis);
/* The shape of the node in the step, for a use that needs these axes whole. False: a size is too large. */
bool step_dims(const Stepper *s, const Node *node, uint8_t whole, const Size **dims);
/* The form of the operand that uses.c chose for this use. */
Node *step_operand(const Stepper *s, const Node *node, size_t i, const Use *use);
const char *step_name(Arena *arena, Role role); /* "cache.3" */
Node *step_input(Stepper *s, const Node *node, Role role, const Size *const *dims);
/* The operation in this graph, of these operands. */
Node *step_copy(Graph *graph, const Node *node, const NodeAttr *attr, const Size *const *dims, Node *const *operands);

#endif
