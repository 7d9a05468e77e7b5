/* Unused: warnings for members and weights of the user's layers that nothing mentions. */
#ifndef TFM_ELABORATE_UNUSED_H
#define TFM_ELABORATE_UNUSED_H

#include "elaborate/elaborator.h"

void warn_unused(Elaborator *e, const ParsedProgram *program);

#endif
