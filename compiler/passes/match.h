/* Match: small questions about nodes, and views that come out simple.
 *
 * In: nodes of the graph that a pass rewrites. Out: answers, and nodes added to that graph. A question costs a walk of
 * a few nodes, or more where its comment says so. New nodes belong to the graph's arena, everything else to
 * pass->scratch. */
#ifndef TFM_PASSES_MATCH_H
#define TFM_PASSES_MATCH_H

#include "passes/pass.h"

// ---- constants ----

/* An f32 whose elements all are one number known now (FULL, also through views). */
bool match_number(const Node *node, double *number);
/* The same for i32 and bool. */
bool match_integer(const Node *node, int64_t *integer);

/* node_is_static, remembered for the time of the pass. */
bool match_is_static(Pass *pass, const Node *node);

// ---- shapes ----

static inline const Size *dim_from_end(const Node *node, uint32_t axis) { return node->dims[node->rank - 1 - axis]; }
/* A 1 known now. Every other size is, where shapes were broadcast, equal to the result's (checked at the run). */
static inline bool dim_is_one(const Size *size) { return size_equals(size, 1); }
/* Whether a node's elements and those of a domain correspond one to one: axes of 1 in front apart, nothing
 * broadcasts. */
bool match_fills(const Node *node, uint32_t rank, const Size *const *dims);
static inline bool match_fills_node(const Node *node, const Node *domain) {
  return match_fills(node, domain->rank, domain->dims);
}

// ---- uses ----

/* Whether outputs of the graph are gradients: then it is of a step of training. */
bool match_has_gradients(const Graph *graph);
/* The greatest id of a result; what comes behind it is of the backward half. 0: there are no gradients. */
uint32_t match_end_of_forward(const Graph *graph);
/* The node that alone uses this one (perhaps twice); NULL if there are more, none, or if it is an output. */
Node *match_only_user(const Pass *pass, const Node *node);
/* Whether `node` is computed from `from`, or is it. Walks as much of the graph as it must. */
bool match_depends(Pass *pass, const Node *node, const Node *from);
/* Whether the module paths are equal, or siblings: "a.b.query" and "a.b.key". */
bool match_sibling_paths(const char *a, const char *b);

// ---- who else uses (a part of) a weight ----

/* A weight is changed or laid out anew only if all its uses agree, else it would be copied. A region is a box of the
 * tensor that views were taken of: rows 0 to 512 of "in_proj_weight", say. */
typedef struct WeightRegion {
  Node *root;
  int64_t from[MAX_RANK], to[MAX_RANK];
} WeightRegion;

/* The region behind rows [from, to) (axis 0) of a static node; to = -1: all rows. */
WeightRegion weight_region(Node *node, int64_t from, int64_t to);
bool weight_region_equal(const WeightRegion *a, const WeightRegion *b);

/* Whether `user`, which uses `as` (a view of the root, or the root), agrees. */
typedef bool WeightAgrees(const void *context, const Node *user, const Node *as);
/* Asks every user of any element of the region. False too if an output shows one. */
bool weight_uses_agree(Pass *pass, const WeightRegion *region, WeightAgrees *agrees, const void *context);

// ---- rewriting ----

/* Views that are composed with the view they are put on, and left out where they change nothing. */
Node *match_reshape(Builder *b, Node *x, uint32_t rank, const Size *const *dims);
Node *match_permute(Builder *b, Node *x, const uint8_t *axes);
Node *match_swap_last_two(Builder *b, Node *x);
/* Elements [start, start + n) of one axis. */
Node *match_slice(Builder *b, Node *x, uint32_t axis, int64_t start, int64_t n);
/* Every use of `node` becomes one of `by`; `node` and what it alone used is deleted. */
void match_replace(Pass *pass, Node *node, Node *by);
/* Deletes a node without users, and then those that it alone used. Inputs of the model stay: they are its interface. */
void match_delete_unused(Pass *pass, Node *node);
/* Puts nodes behind their inputs again, otherwise in the order in which they stand. */
void match_sort(Pass *pass);

#endif
