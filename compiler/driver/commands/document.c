/* tfmc document: what the installation and the pages in docs/ take from the tables. Not for people. */
#include "driver/document.h"

#include <string.h>

#include "driver/commands/commands.h"

static const struct {
  const char *name;
  void (*write)(StrBuf *);
} documents[] = {
    {"man", document_man},
    {"bash", document_bash},
    {"zsh", document_zsh},
    {"options", table_of_options},
    {"stages", table_of_stages},
    {"environment", table_of_environment},
    {"generate-options", table_of_generate_options},
    {"diagnostics", table_of_diagnostics},
    {"primitives", table_of_primitives},
    {"ops", table_of_ops},
    {"passes", table_of_passes},
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
