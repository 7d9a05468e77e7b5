/* tfmc document: what the installation makes of the tables of verbs and options. Not for people. */
#include "driver/document.h"

#include <string.h>

#include "driver/commands/commands.h"

void command_document(Session *session) {
  static const struct {
    const char *form;
    void (*write)(StrBuf *);
  } forms[] = {{"man", document_man}, {"bash", document_bash}, {"zsh", document_zsh}};
  const char *form = session->options.files.items[0];
  StrBuf text = strbuf_new(session->arena);
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (strcmp(forms[i].form, form) == 0) forms[i].write(&text);
  if (!text.length) diag_error_at(&session->diag, NULL, DIAG_USAGE, "there is no document '%s'", form);
  session_print(&text);
}
