/* The code of a plan as text: LLVM IR or assembly. */
#ifndef TFM_AOT_CODE_TEXT_H
#define TFM_AOT_CODE_TEXT_H

#include "plan/plan.h"

/* Appends to `text`. False after an error. */
bool code_text(Diag *diag, const Plan *plan, bool assembly, StrBuf *text);

#endif
