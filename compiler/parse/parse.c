#include "parse/parse.h"

#include <stdarg.h>
#include <string.h>

#include "parse/lexical.h"
#include "parse/scanner.h"
#include "parse/tokens.h"
#include "tfm.tab.h"

// ---- errors of one parse ----

static void add_error(Parser *parser, SrcSpan span, DiagCode code, const char *format, va_list args)
    __attribute__((format(printf, 4, 0)));

static void add_error(Parser *parser, SrcSpan span, DiagCode code, const char *format, va_list args) {
  if (parser->is_stopped || parser->is_skipping) return;
  diag_error(parser->diag, span, code, "%s", arena_vprintf(parser->arena, format, args));
  if (parser->diag->n_errors > DIAG_MAX_ERRORS) parser->is_stopped = true;
}

void parser_error(Parser *parser, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_error(parser, span, code, format, args);
  va_end(args);
}

void parser_stop(Parser *parser, SrcSpan span, DiagCode code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  add_error(parser, span, code, format, args);
  va_end(args);
  parser->is_stopped = true;
}

// ---- entry ----

static Ast *parse(Arena *arena, Map *names, Diag *diag, Source *source, int first_token) {
  Parser parser = {.arena = arena, .names = names, .diag = diag, .source = source};
  int n_errors = diag->n_errors;
  if (source->size > PARSE_MAX_SIZE) {
    diag_error_at(diag, source->path, DIAG_TOO_LONG, "%u bytes, a file may have at most 16 MiB", source->size);
    return NULL;
  }
  if (source->size >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0) parser.scan_offset = 3;
  if (!lexical_check_bytes(&parser)) return NULL;
  parser.tokens = token_stream_new(arena, scanner_new(&parser), first_token);
  bool is_parsed = tfm_yyparse(&parser) == 0;
  return is_parsed && diag->n_errors == n_errors ? parser.result : NULL;
}

Ast *parse_file(Arena *arena, Map *names, Diag *diag, Source *source) {
  return parse(arena, names, diag, source, TOK_START_FILE);
}

Ast *parse_expression(Arena *arena, Map *names, Diag *diag, Source *source) {
  return parse(arena, names, diag, source, TOK_START_EXPRESSION);
}
