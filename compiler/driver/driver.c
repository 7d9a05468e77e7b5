#include "driver/driver.h"

#include <stdio.h>

#include "aot/library_file.h"
#include "driver/commands/commands.h"
#include "driver/help.h"

static void (*const commands[N_VERBS])(Session *) = {
#define VERB(Enum, name, arguments, least, most, line, details) [VERB_##Enum] = command_##name,
#include "driver/verbs.def"
};

static void obey(Session *session, int argc, char **argv) {
  Options *options = &session->options;
  if (!options_parse(session->arena, &session->diag, argc, argv, options)) {
    StrBuf usage = strbuf_new(session->arena);
    if (argc < 2) help_usage(&usage);
    fputs(usage.text, stderr);
  } else if (options->wants_version) {
    puts("tfmc " TFM_VERSION);
  } else if (option_given(options, OPTION_HELP)) {
    StrBuf help = strbuf_new(session->arena);
    help_verb(&help, options->verb);
    session_print(&help);
  } else {
    commands[options->verb](session);
  }
}

int driver_main(int argc, char **argv) {
  Arena *arena = arena_create();
  Session session = {.arena = arena, .diag = diag_new(arena), .names = map_new(arena)};
  obey(&session, argc, argv);
  int exit_code = session_finish(&session);
  library_file_close(session.library);
  arena_destroy(arena);
  return exit_code;
}
