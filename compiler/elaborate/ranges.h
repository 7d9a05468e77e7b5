/* Ranges: `require ids >= 0 and ids < 100, "..."`: what the elements of an input may be. */
#ifndef TFM_ELABORATE_RANGES_H
#define TFM_ELABORATE_RANGES_H

#include "elaborate/elaborate_eval.h"

/* Whether a condition is an order of the elements of a tensor, or joins one by `and`. */
bool is_range(const Ast *condition, const Scope *scope);
/* Notes the range at its inputs. False after an error. */
bool require_range(Elaborator *e, const Ast *condition, const char *text, Scope *scope);

#endif
