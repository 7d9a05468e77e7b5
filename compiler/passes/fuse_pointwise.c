/* Pointwise groups: trees of pointwise operations that are left become one operation each.
 *
 *   %3 = gather %table, %ids
 *   %4 = mul %3, 22.6               %5 = pointwise %table, %ids, %p, { add(mul(gather($0, $1), 22.6), $2) }
 *   %5 = add %4, %p
 *
 * Legal: a producer is taken in if nobody else uses it and it is computed over the same shape; what is known from the
 * position (a causal mask, a constant) is taken in always. Pays: one pass over memory instead of one per operation. */
#include "passes/pointwise.h"

bool pass_fuse_pointwise(Pass *pass) { return pointwise_replace_all(pass, true); }
