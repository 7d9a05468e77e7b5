/* Quantize: weights in fewer bits, as rules say. See docs/weights.md for what a rule is.
 *
 * In: the graph of a model as elaborate made it, and rules. Out: the graph, in which every weight that a rule names
 * (the last one that does decides) is rounded, if it is a factor of a product or a table that rows are taken from, also
 * through views. Then all its uses see the rounded numbers: a table that is an output layer too has one form. Biases,
 * norms and what is only added stay. With int8 products that take the weight, or a view of it, get the attribute int8;
 * look-ups in tables that are large, named, or taken by such a product too take rows that are rounded alike. Both
 * products of an attention get it if the passes would find the attention.
 *
 * This makes another model, so it is no pass: it comes before anything is derived from the graph or interprets it. The
 * reference interpreter rounds too, and to the passes a rounded weight is a static subgraph like any other. Products
 * whose weights are rounded ones and nothing else are packed in 16 bits (plan/plan_values.c).
 *
 * Where no rule says otherwise, and with `as-stored`, a weight is kept in the type that its file has, if that is one of
 * 16 bits; f32 keeps it in f32. This changes no result, so the graph only notes it (NodeAttr.stored): here what rules
 * say, and where a file is opened (engines/weight_source.h) what that has.
 *
 * Refused (DIAG_PRECISION): a type that is none, and a pattern that names no weight of the model. A warning, with the
 * reason (DIAG_PRECISION_UNUSED): a rule of fewer bits that changes nothing. */
#ifndef TFM_COMPILE_QUANTIZE_H
#define TFM_COMPILE_QUANTIZE_H

#include "diag/diag.h"
#include "graph/graph.h"

/* Each text holds rules, "bf16,head=f32". False after an error; then the graph is as it was. */
bool quantize_weights(Graph *graph, Diag *diag, const char *const *rules, uint32_t n);

/* What a rule would call that which the node computes, or rounds, in fewer bits; NULL: it is f32. */
const char *quantized_name(Graph *graph, const Node *node);
/* Takes back what rules did to this, or to everything if `name` is NULL. */
void quantize_undo(Graph *graph, const char *name);

/* What a library remembers of the file that it was compiled with: a letter of graph/stored.def for each declared
 * weight. NULL: all are f32. */
const char *stored_write(Arena *arena, const Graph *graph);
/* Notes it in the graph of the same model. False if it is not about this model. NULL is ignored. */
bool stored_read(Graph *graph, const char *text);

#endif
