/* Repeat: n * module, and calling it. */
#ifndef TFM_ELABORATE_REPEAT_H
#define TFM_ELABORATE_REPEAT_H

#include "elaborate/call.h"

/* n times a template (each with its own weights) or a module (shared weights). */
Value repeat_module(Elaborator *e, Value n, Value module, const Ast *place);
/* The first result goes on as the next first argument; the other results are stacked along a new first axis. */
Value call_repetition(Elaborator *e, const Repetition *r, const Arguments *arguments, const Ast *place, Scope *scope);

#endif
