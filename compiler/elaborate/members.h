/* Members: what stands in a layer, evaluated for one module. */
#ifndef TFM_ELABORATE_MEMBERS_H
#define TFM_ELABORATE_MEMBERS_H

#include "elaborate/elaborator.h"

/* The members of an AST_BLOCK, in order. After an error the next one is evaluated; the faulty one is poison. */
void run_members(Elaborator *e, const Ast *block, Module *m);
/* a.b; an empty part adds nothing. */
const char *join_path(Elaborator *e, const char *a, const char *b);

#endif
