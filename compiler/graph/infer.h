/* Infer: the type and shape that an operation's result must have.
 *
 * In: a node whose op, attributes and inputs are set. Operations that carry their own shape (sources, slice, reshape,
 * sinusoid, fused nodes) say it in the node's rank and dims; these are checked. Out: the type of the result, or a text
 * that says what is wrong.
 *
 * Two different polynomials may be equal in a run, so where sizes must agree they are accepted, and the result has the
 * first that is no constant; sizes that differ by a constant are refused. Only a constant 1 broadcasts: a batch of one
 * item must not mean something else than a batch of two. */
#ifndef TFM_GRAPH_INFER_H
#define TFM_GRAPH_INFER_H

#include "graph/graph.h"

typedef struct NodeType {
  DType dtype;
  uint32_t rank;
  const Size *dims[MAX_RANK];
} NodeType;

/* NULL if all is well, else the fault, in the memory of `sizes`. The number of inputs must be one the operation takes
 * (infer_arity). */
const char *infer_node(SizeTable *sizes, const Node *node, NodeType *type);
const char *infer_arity(SizeTable *sizes, const Node *node);
/* Broadcasts `dims` into `into`, aligned at the last axis; false if they do not agree or the rank is too great. */
bool infer_broadcast(SizeTable *sizes, NodeType *into, uint32_t rank, const Size *const *dims);
/* Whether a tensor of these dims broadcasts to the domain without enlarging it. */
bool infer_broadcasts_to(SizeTable *sizes, uint32_t rank, const Size *const *dims, const NodeType *domain);
bool infer_same_type(SizeTable *sizes, const NodeType *a, const NodeType *b);
/* The shape over which a fused node's expression is computed: that of the result, of acc, or dims_in. */
const char *infer_domain(SizeTable *sizes, const Node *node, NodeType *domain);
void type_print(StrBuf *out, const SizeTable *sizes, const NodeType *type); /* "f32[batch, 64]" */
NodeType type_of(const Node *node);

// ---- shape rules, by the column `shape` of ops.def ----

typedef struct Infer {
  SizeTable *sizes;
  const Node *node;
  NodeType *type; /* the result; at first what the node says */
} Infer;

/* Each sets the shape of the result, and its type where ops.def leaves it to the node. NULL or the fault. */
const char *infer_source(const Infer *in);
const char *infer_elementwise(const Infer *in);
const char *infer_same(const Infer *in);
const char *infer_slice(const Infer *in);
const char *infer_reshape(const Infer *in);
const char *infer_permute(const Infer *in);
const char *infer_concat(const Infer *in);
const char *infer_gather(const Infer *in);
const char *infer_take(const Infer *in);
const char *infer_every(const Infer *in);
const char *infer_cumsum(const Infer *in);
const char *infer_shift(const Infer *in);
const char *infer_topk(const Infer *in);
const char *infer_scatter(const Infer *in);
const char *infer_places(const Infer *in);
const char *infer_reduce(const Infer *in);
const char *infer_norm(const Infer *in);
const char *infer_sinusoid(const Infer *in);
const char *infer_rotary(const Infer *in);

/* What the rules of fused nodes share with them. */
const char *infer_fault(const Infer *in, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *infer_reduction(const Infer *in, OpKind reduction, const NodeType *of);
const char *infer_norm_weights(const Infer *in, OpKind norm, uint32_t first);

#endif
