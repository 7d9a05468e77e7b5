/* The types that weights are kept in. In: a weight, or what is only moved of weights. Out: the type that holds its
 * elements. Nothing is refused: what is unknown is f32. */
#ifndef TFM_GRAPH_STORED_H
#define TFM_GRAPH_STORED_H

#include <stdbool.h>

#include "tfm/abi/forms.h"

/* The type that a weight is kept in, or that an input of f32 is given in. Its values are those of f32 in any case: what
 * a file holds in 16 bits is exact in f32, and only kept in fewer bits. MXFP4 is that of an axis before the last, in
 * blocks of 32. */
typedef enum Stored { STORED_ANY, STORED_F32, STORED_BF16, STORED_F16, STORED_MXFP4, N_STORED } Stored;

extern const char *const stored_names[N_STORED];

typedef struct Node Node;

/* Whether the node's elements are those of what it takes, each as it is, in other places. */
bool node_moves_elements(const Node *node);

/* The form that holds all elements of a static value or of an input, each by itself, as those of weights and of rounded
 * weights that were only moved since: BF16 or F16; else F32. */
tfm_form node_form(const Node *node);

/* The form that a product with a static factor is in: what a rule says, or one that holds the factor as it is. */
tfm_form node_product_form(const Node *product);

#endif
