/* Scopes, symbols and places in texts. See symbols.h. */
#include "lsp/symbols.h"

#include <string.h>

// ---- scopes ----

NameScope *name_scope_new(Arena *arena, NameScope *parent) {
  NameScope *scope = ARENA_NEW(arena, NameScope);
  *scope = (NameScope){parent, map_new(arena)};
  return scope;
}

Symbol *scope_symbol(const NameScope *scope, const char *name) {
  for (; scope; scope = scope->parent)
    if (map_has(&scope->names, name)) return map_get(&scope->names, name);
  return NULL;
}

void note_name(Walk *walk, Symbol *symbol, SrcSpan span, bool is_declaration) {
  if (!symbol || !span.source) return;
  vec_push(walk->names->arena, &walk->names->occurrences, (Occurrence){span, symbol, is_declaration, false});
}

Symbol *declare_name(Walk *walk, NameScope *scope, SymbolKind kind, const Ast *node, SrcSpan span) {
  Symbol *symbol = map_get(&scope->names, node->name);
  if (!symbol) {
    symbol = ARENA_NEW(walk->names->arena, Symbol);
    *symbol = (Symbol){.kind = kind, .name = node->name, .node = node, .span = span, .is_standard = walk->is_standard};
    symbol->within = walk->function ? walk->function : walk->layer;
    map_put(&scope->names, node->name, symbol);
    vec_push(walk->names->arena, &walk->names->symbols, symbol);
  }
  note_name(walk, symbol, span, true);
  return symbol;
}

// ---- places in the text ----

SrcSpan name_at_end(SrcSpan span, const char *name) {
  return (SrcSpan){span.source, span.end - (uint32_t)strlen(name), span.end};
}

SrcSpan name_at_begin(SrcSpan span, const char *name) {
  return (SrcSpan){span.source, span.begin, span.begin + (uint32_t)strlen(name)};
}

static bool is_word_byte(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (((unsigned char)c | 32u) - 'a' < 26u);
}

/* The end of a comment or string that begins at `at`; `at` if none does. */
static uint32_t skip_comment(const Source *source, uint32_t at) {
  if (source->text[at] == '#') return at + (uint32_t)strcspn(source->text + at, "\r\n");
  if (source->text[at] != '"') return at;
  for (at++; at < source->size && !strchr("\"\r\n", source->text[at]); at++)
    if (source->text[at] == '\\' && at + 1 < source->size) at++;
  return at < source->size ? at + 1 : at;
}

SrcSpan word_after(Source *source, uint32_t from, uint32_t end, const char *word) {
  const uint32_t length = (uint32_t)strlen(word);
  for (uint32_t at = from; at < end;) {
    const uint32_t behind = skip_comment(source, at);
    if (behind > at) {
      at = behind;
      continue;
    }
    uint32_t stop = at;
    while (stop < source->size && is_word_byte(source->text[stop])) stop++;
    if (stop - at == length && memcmp(source->text + at, word, length) == 0) return (SrcSpan){source, at, stop};
    at = stop > at ? stop : at + 1;
  }
  return NO_SPAN;
}

static void note_placeholder(Walk *walk, const NameScope *scope, Source *source, uint32_t begin, uint32_t end) {
  const char *name = arena_strndup(walk->names->arena, source->text + begin, end - begin);
  Symbol *symbol = scope_symbol(scope, name);
  if (!symbol) return;
  note_name(walk, symbol, (SrcSpan){source, begin, end}, false);
  walk->names->occurrences.items[walk->names->occurrences.n - 1].in_text = true;
}

void note_placeholders(Walk *walk, const NameScope *scope, Source *source, uint32_t from) {
  while (from < source->size && source->text[from] != '"') {
    const uint32_t behind = skip_comment(source, from);
    from = behind > from ? behind : from + 1;
  }
  if (from >= source->size) return;
  const uint32_t end = skip_comment(source, from);
  for (uint32_t at = from; at < end; at++) {
    uint32_t stop = at + 1;
    if (source->text[at] != '{') continue;
    while (stop < end && is_word_byte(source->text[stop])) stop++;
    if (source->text[stop] == '}' && stop > at + 1) note_placeholder(walk, scope, source, at + 1, stop);
  }
}
