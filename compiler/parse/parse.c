/* The entry of the parser: a source goes through scanner, token stream and grammar.
 *
 * In: a source. Out: its tree, or messages. Refuses files over PARSE_MAX_SIZE, and bytes that no text has. */
#include "parse/parse.h"

#include <string.h>

#include "parse/scanner.h"
#include "parse/tokens.h"
#include "tfm.tab.h"

/* Errors are counted rather than flagged, since scanner, grammar and recovery all report; a tree with a fault in it
 * is not handed out. */
static Ast *parse(Arena *arena, Map *names, Diag *diag, Source *source, int first_token) {
  Parser parser = {.arena = arena, .names = names, .diag = diag, .source = source};
  if (source->size > PARSE_MAX_SIZE) {
    diag_error_at(diag, source->path, DIAG_TOO_LONG, "%u bytes; a file may have at most 16 MiB", source->size);
    return NULL;
  }
  if (source->size >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0) parser.scan_offset = 3;
  if (!lexical_check_bytes(&parser)) return NULL;
  parser.tokens = token_stream_new(arena, scanner_new(&parser), first_token);
  return tfm_yyparse(&parser) == 0 ? parser.result : NULL;
}

static Ast *parse_without_faults(Arena *arena, Map *names, Diag *diag, Source *source, int first_token) {
  int n_errors = diag->n_errors;
  Ast *tree = parse(arena, names, diag, source, first_token);
  return diag->n_errors == n_errors ? tree : NULL;
}

Ast *parse_file(Arena *arena, Map *names, Diag *diag, Source *source) {
  return parse_without_faults(arena, names, diag, source, TOK_START_FILE);
}

Ast *parse_file_with_faults(Arena *arena, Map *names, Diag *diag, Source *source) {
  return parse(arena, names, diag, source, TOK_START_FILE);
}

Ast *parse_expression(Arena *arena, Map *names, Diag *diag, Source *source) {
  return parse_without_faults(arena, names, diag, source, TOK_START_EXPRESSION);
}
