/* What stands in which bracket, what begins a line, and the blanks between two pieces. See pieces.h. */
#include "format/pieces.h"

#include <string.h>

bool piece_is(const Piece *piece, const char *text) { return strcmp(piece->text, text) == 0; }

bool piece_is_comment(const Piece *piece) { return piece->token.kind == TEXT_COMMENT; }

static bool is_one_of(const Piece *piece, const char *const *words) {
  for (; *words; words++)
    if (piece_is(piece, *words)) return true;
  return false;
}

/* Words that no call and no index follows. */
static bool is_keyword(const Piece *piece) {
  static const char *const words[] = {"if", "then",    "else", "in",     "and",     "or",     "not", "for",
                                      "as", "require", "from", "return", "include", "ragged", NULL};
  return is_one_of(piece, words);
}

static bool opens(const Piece *piece) { return piece_is(piece, "(") || piece_is(piece, "[") || piece_is(piece, "{"); }
static bool closes(const Piece *piece) { return piece_is(piece, ")") || piece_is(piece, "]") || piece_is(piece, "}"); }

uint32_t piece_width(const Piece *piece) {
  uint32_t width = 0;
  for (const char *c = piece->text; *c; c++) width += ((unsigned char)*c & 0xc0) != 0x80;
  return width;
}

// ---- operators ----

static bool looks_like_operator(const Piece *piece) {
  static const char *const operators[] = {
      "+", "-", "*", "\xc3\x97", "/", "//", "%", "@", "**", "==", "!=", "<", ">", "<=", ">=", "->", "and", "or", NULL};
  return is_one_of(piece, operators);
}

/* The piece before it that is no comment. */
static const Piece *before(const Pieces *pieces, uint32_t i) {
  while (i > 0 && piece_is_comment(&pieces->all[i - 1])) i--;
  return i ? &pieces->all[i - 1] : NULL;
}

bool piece_is_operator(const Pieces *pieces, uint32_t i) {
  const Piece *left = before(pieces, i);
  if (!looks_like_operator(&pieces->all[i]) || !left || pieces->all[i].starts_item) return false;
  const TextKind kind = left->token.kind;
  if (kind == TEXT_NUMBER || kind == TEXT_STRING || (closes(left) && !piece_is(left, "}"))) return true;
  return (kind == TEXT_WORD && !is_keyword(left)) || piece_is(left, "...");
}

// ---- where lines end ----

bool piece_may_wrap(const Pieces *pieces, uint32_t i) {
  static const char *const closers[] = {")", "]", "}", "{", ",", ".", ":", "=", NULL};
  static const char *const starters[] = {"then", "else", "for", "as", NULL};
  const Piece *piece = &pieces->all[i], *left = before(pieces, i);
  if (!left || is_one_of(piece, closers) || piece_is_operator(pieces, i) || opens(left)) return false;
  const uint32_t number = (uint32_t)(left - pieces->all);
  if (piece_is(left, ",") || is_one_of(piece, starters) || piece_begins_body(pieces, i)) return true;
  return piece_is_operator(pieces, number);
}

bool piece_begins_body(const Pieces *pieces, uint32_t i) {
  return i > 1 && piece_is(&pieces->all[i - 1], "=") && piece_is(&pieces->all[i - 2], ")");
}

uint32_t piece_wrap_rank(const Pieces *pieces, uint32_t i) {
  static const char *const ranks[][5] = {{",", NULL}, {"then", "else", "for", "->", NULL}, {"or", NULL}, {"and", NULL}};
  enum { N_RANKS = sizeof ranks / sizeof *ranks };
  for (uint32_t rank = 0; rank < N_RANKS; rank++)
    if (is_one_of(&pieces->all[i - 1], ranks[rank]) || is_one_of(&pieces->all[i], ranks[rank])) return rank;
  return N_RANKS;
}

/* An operator at the beginning of a line moves to the end of the one before. */
static bool was_broken(const Pieces *pieces, uint32_t i) {
  const Piece *left = &pieces->all[i - 1];
  if (!piece_may_wrap(pieces, i) || pieces->all[i].is_refilled) return false;
  return pieces->all[i].token.on_new_line || (left->token.on_new_line && piece_is_operator(pieces, i - 1));
}

static bool is_in_inline_block(const Pieces *pieces, const Piece *piece) {
  return piece->open != NO_PIECE && pieces->all[piece->open].is_inline;
}

bool piece_starts_line(const Pieces *pieces, uint32_t i) {
  const Piece *piece = &pieces->all[i];
  if (i == 0) return true;
  const Piece *left = &pieces->all[i - 1];
  if (piece_is_comment(left)) return true;
  if (piece_is_comment(piece)) return piece->token.on_new_line;
  if (piece_is(left, "{") && !left->is_inline) return true;
  if (piece_is(piece, "}")) return !pieces->all[piece->match].is_inline;
  if (piece->starts_item && is_in_inline_block(pieces, piece)) return false;
  if (piece->starts_item) return !piece->is_setting || piece->token.on_new_line;
  return !piece_is(left, "}") && (piece->wraps || was_broken(pieces, i));
}

// ---- blanks ----

static bool is_comma_of(const Piece *piece, int32_t open) { return piece->open == open && piece_is(piece, ","); }

/* Of a range in an index, as x[a : b + 1]: blanks if something is computed and stands on both sides. */
static uint32_t gap_at_colon(const Pieces *pieces, uint32_t colon) {
  static const char *const ends[] = {"[", "]", ",", ":", NULL};
  const Piece *all = pieces->all;
  const int32_t open = all[colon].open;
  bool computes = false;
  int32_t first = (int32_t)colon, last = (int32_t)colon;
  while (first > open + 1 && !is_comma_of(&all[first - 1], open)) first--;
  while (last < all[open].match && !is_comma_of(&all[last], open)) last++;
  for (int32_t i = first; i < last; i++) computes |= all[i].open == open && piece_is_operator(pieces, (uint32_t)i);
  return computes && !is_one_of(&all[colon - 1], ends) && !is_one_of(&all[colon + 1], ends);
}

static bool is_range(const Pieces *pieces, uint32_t i) {
  const Piece *piece = &pieces->all[i];
  return piece_is(piece, ":") && piece->open != NO_PIECE && piece_is(&pieces->all[piece->open], "[");
}

/* A bracket that calls or indexes what stands before it. */
static bool is_postfix(const Piece *left, const Piece *piece) {
  if (!piece_is(piece, "(") && !piece_is(piece, "[")) return false;
  if (left->token.kind == TEXT_WORD) return !is_keyword(left) && !(left->starts_item && piece_is(left, "adapt"));
  return piece_is(left, ")") || piece_is(left, "]") || left->token.kind == TEXT_STRING;
}

uint32_t piece_gap(const Pieces *pieces, uint32_t i) {
  static const char *const sticks[] = {")", "]", ",", ".", NULL};
  const Piece *piece = &pieces->all[i], *left = &pieces->all[i - 1];
  if (piece->starts_item && !piece_is(left, "{")) return 2;
  if (piece_is_comment(piece) || piece_is(left, "{") || piece_is(piece, "{") || piece_is(piece, "}")) return 1;
  if (piece_is(left, "(") || piece_is(left, "[") || piece_is(left, ".") || is_one_of(piece, sticks)) return 0;
  if (piece_is(left, ",")) return 1;
  if (piece_is(piece, ":")) return is_range(pieces, i) ? gap_at_colon(pieces, i) : 0;
  if (is_range(pieces, i - 1)) return gap_at_colon(pieces, i - 1);
  if (is_postfix(left, piece)) return 0;
  return !piece_is(left, "-") || piece_is_operator(pieces, i - 1);
}

// ---- making ----

/* Where the items of blocks begin, by byte: 1, and 2 for settings. Blocks of expressions nest, so the walk recurses
 * (AST_MAX_DEPTH). */
static void find_items(uint8_t *starts, const Ast *node) {
  const bool has_settings = node->kind == AST_GENERATE || node->kind == AST_TRAIN || node->kind == AST_ADAPT;
  const bool has_items = has_settings || node->kind == AST_FILE || node->kind == AST_BLOCK;
  for (uint32_t i = 0; i < node->n_children; i++) {
    if (!node->children[i]) continue;
    if (has_items && !(node->kind == AST_ADAPT && i == 0)) starts[node->children[i]->span.begin] = has_settings ? 2 : 1;
    find_items(starts, node->children[i]);
  }
}

static bool is_on_one_line(const Pieces *pieces, const Piece *open) {
  for (const Piece *piece = open + 1; piece <= pieces->all + open->match; piece++)
    if (piece->token.on_new_line || piece_is_comment(piece)) return false;
  return true;
}

/* The text parses, so brackets match. */
static void match_brackets(Pieces *pieces) {
  int32_t open = NO_PIECE;
  uint32_t level = 0;
  for (uint32_t i = 0; i < pieces->n; i++) {
    Piece *piece = &pieces->all[i];
    const bool is_mark = piece->token.kind == TEXT_MARK;
    piece->match = NO_PIECE;
    if (is_mark && closes(piece)) {
      piece->match = open;
      pieces->all[open].match = (int32_t)i;
      open = pieces->all[open].open;
      level--;
    }
    piece->open = open;
    piece->level = level;
    if (!is_mark || !opens(piece)) continue;
    open = (int32_t)i;
    level++;
  }
}

Pieces pieces_of(Arena *arena, Source *source, const Ast *file) {
  const TextTokens tokens = text_tokens(arena, source);
  uint8_t *starts = ARENA_ARRAY(arena, uint8_t, source->size + 1);
  Pieces pieces = {.all = ARENA_ARRAY(arena, Piece, tokens.all.n), .n = (uint32_t)tokens.all.n - 1};
  find_items(starts, file);
  for (uint32_t i = 0; i < pieces.n; i++) {
    const TextToken token = tokens.all.items[i];
    const uint8_t start = token.kind == TEXT_COMMENT ? 0 : starts[token.begin];
    pieces.all[i] = (Piece){.token = token,
                            .text = arena_strndup(arena, source->text + token.begin, token.end - token.begin),
                            .starts_item = start != 0,
                            .is_setting = start == 2};
  }
  match_brackets(&pieces);
  for (uint32_t i = 0; i < pieces.n; i++)
    if (piece_is(&pieces.all[i], "{")) pieces.all[i].is_inline = is_on_one_line(&pieces, &pieces.all[i]);
  return pieces;
}
