/* The types that weights are kept in. In: a weight, or what is only moved of weights. Out: the type that holds its
 * elements. Nothing is refused: what is unknown is f32. */
#ifndef TFM_GRAPH_STORED_H
#define TFM_GRAPH_STORED_H

#include "tfm/abi/forms.h"

/* The type that a weight is kept in. Its values are those of f32 in any case: what a file holds in 16 bits is exact in
 * f32, and only kept in fewer bits. */
typedef enum Stored { STORED_ANY, STORED_F32, STORED_BF16, STORED_F16, N_STORED } Stored;

extern const char *const stored_names[N_STORED];

typedef struct Node Node;

/* The form that holds all elements of a static value, each by itself, as those of weights and of rounded weights that
 * were only moved since: BF16 or F16; else F32. */
tfm_form node_form(const Node *node);

#endif
