/* tfmc document: what the installation and the pages in docs/ take from the tables. Not meant for users.
 *
 * In: the tables of verbs, options, environment variables and diagnostics. Out: the manual page (manual.c), scripts
 * that complete the command line (completion.c), or a table (tables.c); the same bytes each time, without a date, so
 * that builds can be reproduced and documents compared. Refuses names of documents that there are not. */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/documents.h"
#include "cli/tables.h"
#include "import/family_list.h"
#include "target/target.h"

static const struct {
  const char *name;
  void (*write)(StrBuf *);
} documents[] = {
    {"man", document_man},
    {"bash", document_bash},
    {"zsh", document_zsh},
    {"fish", document_fish},
    {"options", table_of_options},
    {"commands", table_of_commands},
    {"exit-codes", table_of_exit_codes},
    {"stages", table_of_stages},
    {"environment", table_of_environment},
    {"generate-options", table_of_generate_options},
    {"diagnostics", table_of_diagnostics},
    {"primitives", table_of_primitives},
    {"torch-names", table_of_torch_names},
    {"ops", table_of_ops},
    {"passes", table_of_passes},
    {"fusions", table_of_fusions},
    {"kernels", table_of_kernels},
    {"forms", table_of_forms},
    {"targets", table_of_targets},
    {"tuning", table_of_tuning},
    {"explore-data", table_of_explore_data},
    {"families", family_list_table},
};

void command_document(Session *session) {
  const char *name = session->options.files.items[0];
  StrBuf text = strbuf_new(session->arena), names = strbuf_new(session->arena);
  for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
    strbuf_printf(&names, "%s%s", i ? ", " : "", documents[i].name);
    if (strcmp(documents[i].name, name) == 0) documents[i].write(&text);
  }
  if (!text.length)
    diag_error_at(&session->diag, NULL, DIAG_USAGE, "there is no document '%s'; there are %s", name, names.text);
  session_print(&text);
}
