/* What attributes.def says of the attributes of nodes, and what follows from their types.
 *
 * In: a node, and which of its attributes. Out: its text, whether it is left out there, and its part of what makes two
 * nodes equal. Reading is the counterpart in read.c, copying in graph_copy.c. Refuses nothing. */
#ifndef TFM_GRAPH_ATTRIBUTES_H
#define TFM_GRAPH_ATTRIBUTES_H

#include "graph/graph.h"

typedef enum AttributeType {
  ATTRIBUTE_IS_FLAG,
  ATTRIBUTE_IS_F64,
  ATTRIBUTE_IS_AXIS,
  ATTRIBUTE_IS_AXES,      /* as many as the result has */
  ATTRIBUTE_IS_OPERATION,
  ATTRIBUTE_IS_STORED,
  ATTRIBUTE_IS_FORM,      /* a tfm_form; F32 is left out */
  ATTRIBUTE_IS_TEXT,      /* of an input with its role */
  ATTRIBUTE_IS_VALUE,     /* number or integer, as the type of the node says */
  ATTRIBUTE_IS_DEFAULT,   /* the same, if it is there */
  ATTRIBUTE_IS_RANGE,     /* least, most, and range_text, if that is there */
  ATTRIBUTE_IS_SIZE,
  ATTRIBUTE_IS_STARTS,    /* a size for each axis of the result */
  ATTRIBUTE_IS_SHAPE,     /* sizes, as many as rank_in says */
  ATTRIBUTE_IS_ROWS,      /* an input that is a mask: rows_mask, rows_where, rows_zero */
  ATTRIBUTE_IS_STEPS,     /* the same, of steps of sums */
  ATTRIBUTE_IS_EXPR,
  N_ATTRIBUTE_TYPES
} AttributeType;

AttributeType attribute_type(Attribute attribute);
/* Its (first) member of a node's attributes. */
void *attribute_member(NodeAttr *attr, Attribute attribute);
const void *attribute_value(const NodeAttr *attr, Attribute attribute);
/* Whether it has the value that read.c assumes where it is missing. */
bool attribute_is_left_out(const NodeAttr *attr, Attribute attribute);
/* In the form that the reader of the same type in read.c takes. */
void attribute_print(StrBuf *out, const SizeTable *table, const Node *node, Attribute attribute);
/* Adds bytes that are equal for two nodes of one operation exactly if all their attributes are. Texts go in by content,
 * sizes by address: they are interned. Expressions go in by address too, so only shared ones are equal. */
void attributes_add_key(StrBuf *key, const NodeAttr *attr);
/* What takes the place of a product computes in its forms: all attributes of type FORM. */
void attributes_take_forms(NodeAttr *attr, const NodeAttr *from);

/* "[batch, 8]". A missing size prints as ?, which cannot be read back: only graphs that are broken have one. */
void sizes_print(StrBuf *out, const SizeTable *table, uint32_t n, const Size *const *sizes);
/* " as cache 0"; nothing if there is no role. */
void role_print(StrBuf *out, Role role);

#endif
