/* Adapters: low-rank changes of weights, the line `adapt [PATTERNS] { rank = 8 }` of a model (LoRA).
 *
 * In: the model's line, and every product whose second factor is a weight. Out: for those that a pattern matches,
 * with W, A [rank, in] and B [out, rank], and s = alpha / rank, where `ranks` and `alphas` may say other numbers of
 * some: in an objective linear(x, W) + s linear(linear(dropout(x), A), B), where W is frozen; in a run one product with
 * W + s B A, which depends on weights alone and is computed when they are packed. A and B are weights
 * PATH.lora_A.weight and PATH.lora_B.weight, where W is PATH.weight. Refuses settings out of range, patterns that meet
 * no product, and weights that something else reads too. */
#ifndef TFM_ELABORATE_ADAPTERS_H
#define TFM_ELABORATE_ADAPTERS_H

#include "elaborate/elaborator.h"
#include "elaborate/objective.h"

typedef struct AdaptedWeight {
  Node *weight, *a, *b;
  Node *merged;       /* in a run; else NULL */
  const char *module; /* the path of the weight without ".weight" */
  int64_t rank;
  double alpha, scale;
  bool is_turned; /* it is [in, out], of x @ w; else [out, in], of linear(x, w) */
} AdaptedWeight;

typedef struct Adapters {
  SrcSpan span;
  Patterns targets, also; /* also: weights that are trained whole */
  int64_t rank;
  double alpha, dropout; /* alpha 0: twice the rank */
  Rates ranks, alphas;   /* of some weights */
  bool is_rslora;
  VEC(AdaptedWeight) weights;
  VEC(const char *) products; /* modules whose weights are a second factor: what patterns could name */
} Adapters;

/* Reads the line of a model, if it has one, into e->adapters. */
void declare_adapters(Elaborator *e, const Module *model);
/* x @ w or linear(x, w), with the adapter of w, if it gets one. NULL after an error. */
Node *product_with_adapter(Elaborator *e, Node *x, Node *w, bool is_turned);
/* When the model has run: what the line says and nothing meets. */
void check_adapters(Elaborator *e);

/* The alpha of those of which the line says no other: its own, or twice its rank; how often a change counts. */
double adapters_alpha(const Adapters *adapters);
double adapters_scale(const Adapters *adapters, double rank, double alpha);

/* Whether the weight of this path (without a prefix) is an adapter's; whether it is trained, which without adapters
 * all are. `adapters` may be NULL. */
bool adapters_have(const Adapters *adapters, const char *path);
bool adapters_train(const Adapters *adapters, const char *path);

#endif
