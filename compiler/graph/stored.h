/* The types that weights are kept in. In: a weight, or what is only moved of weights. Out: the type that holds its
 * elements. Nothing is refused: what is unknown is f32. */
#ifndef TFM_GRAPH_STORED_H
#define TFM_GRAPH_STORED_H

#include <stdbool.h>

#include "tfm/abi/forms.h"

/* The type that a weight is kept in, or that an input of f32 is given in. Its values are those of f32 in any case: what
 * a file holds in fewer bits is exact in f32, and only kept in fewer bits. */
typedef enum Stored {
#define STORED(ENUM, ...) STORED_##ENUM,
#include "graph/stored.def"
  N_STORED
} Stored;

typedef struct StoredRow { /* the columns of stored.def */
  const char *name;
  char letter;
  tfm_form form, product;
  unsigned axis;
  const char *title;
} StoredRow;

extern const StoredRow stored_table[N_STORED];

typedef struct Node Node;

/* The type for numbers that `form` holds, with a scale for each `group` neighbours of a row, or for more of them; one
 * without groups if there is none. */
Stored stored_in_groups(tfm_form form, int64_t group);

/* Whether the node's elements are those of what it takes, each as it is, in other places. */
bool node_moves_elements(const Node *node);

/* The form that holds all elements of a static value or of an input, each by itself, as those of weights and of rounded
 * weights that were only moved since: BF16 or F16; else F32. */
tfm_form node_form(const Node *node);

/* The form that a product with a static factor is in: what a rule says, or one that holds the factor as it is. */
tfm_form node_product_form(const Node *product);

#endif
