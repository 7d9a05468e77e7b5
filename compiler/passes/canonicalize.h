/* Rules: each looks at one node and gives the simpler node that computes the same, or NULL.
 *
 * In: a node and a builder that adds before it. Out: a node of the same shape and type. One table, by operation. */
#ifndef TFM_PASSES_CANONICALIZE_H
#define TFM_PASSES_CANONICALIZE_H

#include "passes/match.h"

typedef Node *Rule(Pass *pass, Builder *b, Node *node);

/* canonicalize_arithmetic.c */
Rule rule_add, rule_sub, rule_mul, rule_div, rule_neg, rule_convert, rule_not, rule_logic, rule_where;
/* canonicalize_views.c */
Rule rule_reshape, rule_permute, rule_slice, rule_concat;
/* canonicalize_products.c */
Rule rule_matmul;

#endif
