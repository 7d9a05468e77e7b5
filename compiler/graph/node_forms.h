/* The forms of static values. In: a weight, or what is only moved of weights. Out: the form that
 * holds its elements. Nothing is refused: what is unknown is f32. */
#ifndef TFM_GRAPH_NODE_FORMS_H
#define TFM_GRAPH_NODE_FORMS_H

#include <stdbool.h>

#include "graph/graph.h"
#include "tfm/abi/forms.h"

/* Whether the node's elements are those of what it takes, each as it is, in other places. */
bool node_moves_elements(const Node *node);

/* The form that holds all elements of a static value, each by itself, as those of weights and of rounded weights that
 * were only moved since: BF16 or F16; else F32. */
tfm_form node_form(const Node *node);

/* The form that a product with a static factor is in: what a rule says, or one that holds the factor as it is. */
tfm_form node_product_form(const Node *product);

#endif
