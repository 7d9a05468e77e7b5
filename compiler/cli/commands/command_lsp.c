/* tfmc lsp: a language server on standard input and output, which editors start.
 *
 * In: messages of the Language Server Protocol. Out: answers. Nothing is executed, and no file is written but copies of
 * the standard layers, which an editor shows. */
#include <unistd.h>

#include "cli/commands/commands.h"
#include "explore/explore.h"
#include "lsp/server.h"

void command_lsp(Session *session) {
  session->diag.exit_code = lsp_serve(STDIN_FILENO, STDOUT_FILENO, TFM_VERSION, explore_line_costs);
}
