/* Server: a language server on two descriptors.
 *
 * In: messages of the Language Server Protocol (3.17). Out: answers, and messages about texts. Refused: what is no
 * message, as an error answer, or as the end where nothing can be read any more. It ends with `exit`, with the end of
 * its input, and with the editor that started it. */
#ifndef TFM_LSP_SERVER_H
#define TFM_LSP_SERVER_H

#include "lsp/line_cost.h"

/* Returns the exit code: 0 after `shutdown` and `exit`, else 1. `cost_lines` NULL: lines have no costs. */
int lsp_serve(int in, int out, const char *version, CostLines *cost_lines);

#endif
