/* Cut: the model that is being cut in two, and what is known of its nodes. Private to incremental/.
 *
 * The files build on one another: axes, neutral, sound, uses, states, build, and incremental at the top.
 *
 * The length is the run-time size of the decoder input. Each use of a value needs each axis of that size in one of
 * two ways: for the new positions alone, or whole, from position 0 on. The axes of batch and length may be merged
 * into one of size batch*length; it is needed in the same two ways, but its coordinates are not positions.
 *
 * Arrays "by id" are indexed by the ids of cut->graph, which are dense from derive() on; all of them live in
 * scratch. */
#ifndef TFM_INCREMENTAL_CUT_H
#define TFM_INCREMENTAL_CUT_H

#include "passes/match.h"
#include "passes/passes.h"

typedef struct Incremental Incremental; /* incremental.h */

enum { ON_TOKENS = 1, ON_INPUTS = 2, ON_LENGTH = 4 }; /* what a value depends on: the decoder input, other inputs */

typedef enum UseForm {
  USE_COMPUTED, /* in the step, from its operands */
  USE_CARRIED,  /* likewise, and from the state that the earlier positions have left (incremental_states.c) */
  USE_CACHED,   /* the earlier positions from a cache, behind them the new ones, computed */
  USE_READ,     /* computed by the encoder graph */
  USE_CUT       /* the new positions of what is computed whole */
} UseForm;

typedef struct Use { /* one form in which the step needs a value */
  uint8_t whole;   /* bit i: all positions of axis i, else the new ones (axes of the length only) */
  bool bare;       /* keys of attention: a constant factor on the value stays outside of the cache */
  UseForm form;
  Node *node;      /* in the step */
} Use;

typedef struct Uses {
  VEC(Use) items;
} Uses;

typedef struct Cut {
  Arena *arena, *scratch;
  const Graph *model;
  Graph *graph; /* a copy of it */
  const Size *length, *merged; /* merged: batch*length; NULL for one item */
  uint32_t time;    /* the symbol of the length */
  int32_t batch;    /* the symbol of the batch; -1: one item */
  const Node *tokens, *logits;
  uint8_t *depends; /* by id: ON_... */
  Uses *uses;       /* by id */
  bool *is_scores;  /* by id: a product that an attention will be fused from */
  bool *of_encoder; /* by id: the encoder graph computes it */
  bool *is_read;    /* by id: and the step reads it */
  Map later;        /* what neutral.c found out: (id, k, q) -> Later */
  const char *reason; /* why there is no incremental form; NULL so far */
  Origin origin;      /* of the node that the reason is about */
} Cut;

static inline bool is_length(const Cut *cut, const Size *size) { return size == cut->length; }
static inline bool is_merged(const Cut *cut, const Size *size) { return cut->merged && size == cut->merged; }
static inline bool has_length(const Cut *cut, const Size *size) { return size_involves(size, cut->time); }
static inline bool has_batch(const Cut *cut, const Size *size) {
  return cut->batch >= 0 && size_involves(size, (uint32_t)cut->batch);
}
static inline bool depends_on(const Cut *cut, const Node *node, unsigned on) { return cut->depends[node->id] & on; }

// ---- axes.c ----

/* Records the first reason; returns false. */
bool cut_refuse(Cut *cut, const Node *node, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Bit i: axis i has the length, or the merged one. */
uint8_t length_axes(const Cut *cut, const Node *node);
/* The axis of an operand whose elements make those of an axis of the result, one by one; -1: the operand broadcasts
 * there, or the axis is not made of one of its axes. An axis of an operand that no axis of the result is made of is
 * used whole. */
int32_t operand_axis(const Cut *cut, const Node *node, size_t operand, uint32_t axis);
/* The axis of the length along which the node goes on from position to position, so that a new position is made of its
 * own operands and a state: of a shift, a running sum, linear_attention. -1: none. */
int32_t carried_axis(const Cut *cut, const Node *node);
/* As operand_axis, and along carried_axis the operand's new positions, beside which a state is needed. */
int32_t step_axis(const Cut *cut, const Node *node, size_t operand, uint32_t axis);
/* The product of the sizes before an axis; NULL: too large a polynomial. */
const Size *elements_before(SizeTable *sizes, const Node *node, uint32_t axis);
/* Which axes of an operand are needed whole for these of the result. */
uint8_t operand_whole(const Cut *cut, const Node *node, size_t operand, uint8_t whole);

/* Makes logits of the last position those of every position, if every operation between keeps rows apart. */
void widen_last_rows(Cut *cut);

// ---- neutral.c ----

/* Whether every element of x whose coordinate on `axis` is greater than that on some other axis of the length is this
 * number: positions that come later add nothing to what is summed up over `axis`. */
bool later_is(Cut *cut, const Node *x, uint32_t axis, double number);
/* What they are if they all are one number, for one other axis. */
bool later_number(Cut *cut, const Node *x, uint32_t axis, uint32_t other, double *number);

// ---- sound.c ----

/* Whether the node's values at the first n positions are the same for every length from n on, and no item of the
 * batch looks at another; its operands are looked at on their own. */
bool node_is_sound(Cut *cut, const Node *node);

// ---- uses.c ----

/* The axes that a use which does not ask for them needs whole all the same, because the node is computed along them:
 * of a softmax, and of what is carried but does not depend on the tokens. */
uint8_t least_whole(const Cut *cut, const Node *node);

/* Sets cut->is_scores; the ids must be dense. False after an error. */
bool find_scores_of_attention(Cut *cut, Diag *diag);

/* Sets cut->uses, of_encoder and is_read, from the logits back to the inputs. False: cut->reason says why. */
bool find_uses(Cut *cut);
/* The use of these axes; NULL: the node has no such use. */
const Use *find_use(const Cut *cut, const Node *node, uint8_t whole, bool bare);
/* Whether a use of the node asks for this operand bare (Use). */
bool operand_bare(const Cut *cut, const Node *node, size_t operand, const Use *use);

// ---- incremental_build.c ----

extern const char logsumexp_name[]; /* the name of the output with that role */
/* Set result->step and result->encoder, and count its caches and encoded values. False: a size is too large, or there
 * are too many. */
bool build_step(Cut *cut, Incremental *result);
bool build_encoder(Cut *cut, Incremental *result);

#endif
