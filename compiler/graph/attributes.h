/* Attributes: which operation has which, for the text form. */
#ifndef TFM_GRAPH_ATTRIBUTES_H
#define TFM_GRAPH_ATTRIBUTES_H

#include "graph/graph.h"

typedef enum Attribute {
#define ATTRIBUTE(Enum, text, operations) ATTRIBUTE_##Enum,
#include "graph/attributes.def"
  N_ATTRIBUTES
} Attribute;

extern const char *const attribute_names[N_ATTRIBUTES];
bool op_has_attribute(OpKind op, Attribute attribute);

#endif
