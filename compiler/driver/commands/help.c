/* tfmc help [VERB] */
#include "driver/help.h"

#include "driver/commands/commands.h"

void command_help(Session *session) {
  StrBuf text = strbuf_new(session->arena);
  const Options *options = &session->options;
  if (options->files.n) {
    Verb verb = verb_find(options->files.items[0]);
    if (verb != N_VERBS) help_verb(&text, verb);
    else diag_error_at(&session->diag, NULL, DIAG_USAGE, "there is no command '%s'; `tfmc help` lists them", options->files.items[0]);
  } else {
    help_usage(&text);
  }
  session_print(&text);
}
