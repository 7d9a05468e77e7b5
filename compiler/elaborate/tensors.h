/* Tensors: the rules that operands of operations keep, and what is said when they don't. */
#ifndef TFM_ELABORATE_TENSORS_H
#define TFM_ELABORATE_TENSORS_H

#include "elaborate/elaborator.h"

enum { ANY_DTYPE = 0, F32 = 1 << DTYPE_F32, I32 = 1 << DTYPE_I32, BOOL = 1 << DTYPE_BOOL };

typedef struct Shape {
  uint32_t rank;
  const Size *dims[MAX_RANK];
} Shape;

/* The builder, with the origin of what is evaluated now. */
Builder *build_here(Elaborator *e);
/* A node just made: counted, its dimensions checked. NULL after an error, also if `node` is NULL. */
Node *made(Elaborator *e, Node *node);
Value made_value(Elaborator *e, Node *node);
/* False after an error: more than MAX_RANK axes. */
bool rank_fits(Elaborator *e, const char *what, int64_t rank);
/* The dimensions are no sizes of a tensor: false after an error. */
bool dims_fit(Elaborator *e, uint32_t rank, const Size *const *dims);

/* The value as a tensor, the first one of a tuple; of one of the dtypes, if any are given. `what` and `name` together
 * say which operand it is. NULL after an error. */
Node *tensor_of(Elaborator *e, Value v, unsigned dtypes, const char *what, const char *name);
/* The values as tensors of one dtype: numbers become that of the tensors, else f32. False after an error. */
bool operands_of(Elaborator *e, const char *what, uint32_t n, const Value *values, unsigned dtypes, Node **nodes);

/* The axis counted from the front; -1 after an error. */
int32_t axis_of(Elaborator *e, Value axis, uint32_t rank);
/* An axis along which something is computed: not that of the items of a ragged batch. */
int32_t own_axis(Elaborator *e, const char *what, const Node *x, Value axis);
/* The error of a value that should be a size of a shape or a bound; `what` begins the message. */
Value fail_no_size(Elaborator *e, SrcSpan span, const char *what, Value v);
/* False after an error: */
bool integer_of(Elaborator *e, Value v, const char *what, int64_t *integer);
bool real_of(Elaborator *e, Value v, const char *what, double *number);

/* Whether a dimension involves the batch whose items are computed alone. */
bool involves_items(const Elaborator *e, const Size *dim);
/* Fails if a computation along these dimensions would mix items of a ragged batch. */
bool within_items(Elaborator *e, const char *what, uint32_t n, const Size *const *dims);
/* The shape that all broadcast to; checks of the run where it depends on sizes. `nodes` are for the message. */
bool broadcast_shapes(Elaborator *e, const char *what, uint32_t n, const Shape *shapes, Node *const *nodes,
                      Shape *result);
Shape shape_of(const Node *node);
/* The shape without its last n axes. */
Shape leading(const Node *node, uint32_t n);
/* How many elements every `step`th of so many is, rounded up. NULL after an error. */
const Size *places_of(Elaborator *e, const Size *dim, int64_t step);
/* The product; NULL after an error. */
const Size *product_of(Elaborator *e, uint32_t n, const Size *const *dims);

/* The node, in another shape where `dims` (of its first axes) have a number for a size of the run that it has: the size
 * must equal that number, so it is that number from here on. NULL after an error. */
Node *with_known_dims(Elaborator *e, Node *node, uint32_t rank, const Size *const *dims);
/* A pointwise operation on tensors of agreeing dtypes; `what` names it in messages. */
Value elementwise(Elaborator *e, const char *what, OpKind op, uint32_t n, Node *const *xs);

#endif
