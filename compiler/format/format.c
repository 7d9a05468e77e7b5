/* Lays text out line by line. See format.h.
 *
 * A line goes from a piece that starts one to the next. One that is too long opens the block that was on it, or is
 * broken where the fewest brackets are open; the rest stands under the bracket that is open there, or under what
 * follows the `=`. */
#include "format/format.h"

#include <string.h>

#include "format/columns.h"
#include "format/pieces.h"
#include "parse/parse.h"

enum {
  INDENT = 2,
  FARTHEST = 80 /* where a line that goes on may begin; beyond, it is only indented */
};

typedef struct Layout {
  Arena *arena;
  Pieces pieces;
  FormatLines lines;
  uint32_t *columns; /* by piece: where it stands */
  uint32_t *equals;  /* by piece: blanks before an = that stands under others */
  uint32_t item;     /* the statement that the line belongs to */
  uint32_t indent;   /* of that statement */
  uint32_t end;      /* of what stands on one line, if nothing is too long; 0: not known */
  bool has_block;    /* one that was written on that line */
} Layout;

// ---- = in columns ----

/* `name = ...`, alone on its line. */
static bool is_assignment(const Pieces *pieces, uint32_t i) {
  return piece_starts_line(pieces, i) && i + 1 < pieces->n && piece_is(&pieces->all[i + 1], "=");
}

static uint32_t next_item(const Pieces *pieces, uint32_t i) {
  do i++;
  while (i < pieces->n && !pieces->all[i].starts_item);
  return i;
}

/* Whether the item goes on with the run of assignments that the one before it belongs to. */
static bool follows(const Pieces *pieces, uint32_t item, uint32_t other) {
  if (other >= pieces->n) return false;
  const Piece *piece = &pieces->all[other], *left = piece - 1;
  if (piece->token.after_empty || (piece_is_comment(left) && left->token.on_new_line)) return false;
  return piece->open == pieces->all[item].open && is_assignment(pieces, other);
}

/* No = of a run in which settings share a line. */
static bool shares_line(const Pieces *pieces, uint32_t item) {
  const uint32_t next = next_item(pieces, item);
  return next < pieces->n && pieces->all[next].open == pieces->all[item].open && !piece_starts_line(pieces, next);
}

static void align_equals(Layout *l) {
  const Pieces *pieces = &l->pieces;
  for (uint32_t i = 0; i < pieces->n;) {
    uint32_t end = i, widest = 0;
    bool is_run = pieces->all[i].starts_item && is_assignment(pieces, i);
    if (!is_run) {
      i = next_item(pieces, i);
      continue;
    }
    for (bool more = true; more; more = follows(pieces, i, end)) {
      const uint32_t width = piece_width(&pieces->all[end]);
      is_run &= !shares_line(pieces, end);
      if (width > widest) widest = width;
      end = next_item(pieces, end);
    }
    for (uint32_t k = i; k < end && is_run; k = next_item(pieces, k))
      l->equals[k + 1] = widest - piece_width(&pieces->all[k]);
    i = end;
  }
}

// ---- where a line begins ----

static uint32_t depth_of(const Pieces *pieces, uint32_t i) {
  uint32_t depth = 0;
  for (int32_t open = pieces->all[i].open; open != NO_PIECE; open = pieces->all[open].open)
    depth += piece_is(&pieces->all[open], "{") && !pieces->all[open].is_inline;
  return depth;
}

/* The piece under which lines stand that go on with the statement where no bracket is open; 0: there is none. */
static uint32_t head_of(const Pieces *pieces, uint32_t item) {
  static const char *const words[] = {"require", "return", "if", "ignore", "checkpoint"};
  const Piece *all = pieces->all;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (piece_is(&all[item], words[i])) return item + 1;
  if (item + 1 < pieces->n && all[item + 1].token.kind == TEXT_STRING) return item + 1;
  for (uint32_t i = item; i < pieces->n && !piece_is(&all[i], "{") && (i == item || !all[i].starts_item); i++)
    if (piece_is(&all[i], "=") && all[i].open == all[item].open) return i + 1;
  return 0;
}

static uint32_t hanging_column(const Layout *l, uint32_t i) {
  const int32_t open = l->pieces.all[i].open;
  const uint32_t head = head_of(&l->pieces, l->item);
  uint32_t column = 0;
  if (piece_begins_body(&l->pieces, i)) return l->indent + INDENT;
  if (open != NO_PIECE && !piece_is(&l->pieces.all[open], "{"))
    column = l->columns[open] + 1;
  else if (head && head < i)
    column = l->columns[head];
  return column && column <= FARTHEST ? column : l->indent + 2 * INDENT;
}

static bool goes_on(const Layout *l, uint32_t i) {
  const Piece *piece = &l->pieces.all[i];
  if (i == 0 || piece->starts_item || piece_is(piece, "}")) return false;
  if (!piece_is_comment(piece)) return true;
  return piece->open != NO_PIECE && !piece_is(&l->pieces.all[piece->open], "{");
}

static uint32_t first_column(const Layout *l, uint32_t i) {
  return goes_on(l, i) ? hanging_column(l, i) : INDENT * depth_of(&l->pieces, i);
}

// ---- one line ----

static void find_end(Layout *l, uint32_t first) {
  const Pieces *pieces = &l->pieces;
  l->end = first;
  l->has_block = false;
  do l->has_block |= piece_is(&pieces->all[l->end], "{") && pieces->all[l->end].is_inline;
  while (++l->end < pieces->n && !piece_starts_line(pieces, l->end));
}

/* Gives pieces their columns up to the first one that ends beyond column `most`, which is returned; else l->end.
 * Comments do not count. */
static uint32_t place(Layout *l, uint32_t first, uint32_t most) {
  uint32_t column = first_column(l, first);
  for (uint32_t i = first; i < l->end; i++) {
    if (i > first) column += piece_gap(&l->pieces, i) + l->equals[i];
    l->columns[i] = column;
    column += piece_width(&l->pieces.all[i]);
    if (column > most && !piece_is_comment(&l->pieces.all[i])) return i;
  }
  return l->end;
}

static bool open_block(Layout *l, uint32_t first) {
  for (uint32_t i = first; i < l->end && l->has_block; i++) {
    Piece *piece = &l->pieces.all[i];
    if (!piece_is(piece, "{") || !piece->is_inline) continue;
    piece->is_inline = false;
    l->end = 0;
    return true;
  }
  return false;
}

/* Elements of a list that wraps fill the lines that follow, or a short one would stand wherever the author broke it. */
static void refill(Layout *l, uint32_t i) {
  Piece *all = l->pieces.all;
  const int32_t open = all[i].open;
  if (open == NO_PIECE || piece_is(&all[open], "{") || all[open].is_refilled) return;
  all[open].is_refilled = true;
  for (uint32_t k = i + 1; k < (uint32_t)all[open].match; k++)
    if (all[k].open == open && piece_is(&all[k - 1], ",")) all[k].is_refilled = true;
  l->end = 0;
}

/* Not between the names that a statement assigns to. */
static bool is_target(const Layout *l, uint32_t i) {
  return i < head_of(&l->pieces, l->item) && l->pieces.all[i].open == l->pieces.all[l->item].open;
}

/* Whether a line breaks rather before `i` than before `other`, which comes first: where fewer brackets are open, then
 * where the operands are larger. */
static bool is_better(const Pieces *pieces, uint32_t i, uint32_t other) {
  if (piece_begins_body(pieces, other)) return false;
  if (piece_begins_body(pieces, i)) return true;
  if (pieces->all[i].level != pieces->all[other].level) return pieces->all[i].level < pieces->all[other].level;
  return piece_wrap_rank(pieces, i) <= piece_wrap_rank(pieces, other);
}

/* The best place for a break before what is too long; 0: there is none. */
static uint32_t place_to_wrap(const Layout *l, uint32_t first, uint32_t beyond) {
  uint32_t best = 0;
  for (uint32_t i = first + 1; i <= beyond; i++) {
    if (!piece_may_wrap(&l->pieces, i) || is_target(l, i) || hanging_column(l, i) >= l->columns[i]) continue;
    if (!best || is_better(&l->pieces, i, best)) best = i;
  }
  return best;
}

/* The end of the line that begins with `first`, laid out. */
static uint32_t settle_line(Layout *l, uint32_t first) {
  for (;;) {
    if (first >= l->end) find_end(l, first);
    const uint32_t beyond = place(l, first, MOST_COLUMNS);
    if (beyond == l->end) return beyond;
    if (open_block(l, first)) continue;
    const uint32_t best = place_to_wrap(l, first, beyond);
    if (!best) return place(l, first, UINT32_MAX);
    l->pieces.all[best].wraps = true;
    refill(l, best);
    return best;
  }
}

// ---- the text ----

static const char *text_of(Layout *l, uint32_t first, uint32_t end) {
  StrBuf out = strbuf_new(l->arena);
  for (uint32_t i = first; i < end; i++) {
    uint32_t blanks = i > first ? piece_gap(&l->pieces, i) + l->equals[i] : 0;
    while (blanks--) strbuf_add_char(&out, ' ');
    strbuf_add(&out, l->pieces.all[i].text);
  }
  return out.text;
}

/* Where `as "path"` begins at the end of a statement that is one line; else `end`. */
static uint32_t path_of(const Layout *l, uint32_t first, uint32_t end) {
  const Piece *all = l->pieces.all;
  if (end < first + 4 || !all[first].starts_item || !piece_is(&all[end - 2], "as")) return end;
  return all[end - 2].open == all[first].open ? end - 2 : end;
}

static bool is_large(const Layout *l, uint32_t i) {
  const Piece *piece = &l->pieces.all[i];
  return piece->starts_item && (piece_is(piece, "layer") || piece_is(piece, "model") || piece_is(piece, "checkpoint"));
}

/* Empty lines are kept within blocks, and stand around what has a block at the top. */
static bool needs_empty_line(const Layout *l, uint32_t first) {
  const Piece *piece = &l->pieces.all[first], *left = piece - 1;
  if (first == 0 || goes_on(l, first) || piece_is(piece, "}")) return false;
  if (piece_is(left, "{")) return false;
  if (piece->token.after_empty) return true;
  if (piece->open != NO_PIECE || (piece_is_comment(left) && left->token.on_new_line)) return false;
  return is_large(l, first) || (piece_is(left, "}") && !l->pieces.all[left->match].is_inline);
}

static void add_line(Layout *l, uint32_t first, uint32_t end) {
  FormatLine line = {.indent = l->columns[first], .after_empty = needs_empty_line(l, first)};
  uint32_t last = end;
  if (last > first + 1 && piece_is_comment(&l->pieces.all[last - 1])) line.comment = l->pieces.all[--last].text;
  const uint32_t path = path_of(l, first, last);
  if (path < last) line.path = text_of(l, path, last);
  line.text = text_of(l, first, path);
  vec_push(l->arena, &l->lines.all, line);
}

static void lay_out(Layout *l) {
  for (uint32_t i = 0; i < l->pieces.n;) {
    if (!goes_on(l, i) && !piece_is_comment(&l->pieces.all[i])) {
      l->item = i;
      l->indent = INDENT * depth_of(&l->pieces, i);
    }
    const uint32_t end = settle_line(l, i);
    add_line(l, i, end);
    i = end;
  }
}

static const StrBuf *format_once(Arena *arena, Source *source, const Ast *file) {
  StrBuf *out = ARENA_NEW(arena, StrBuf);
  Layout l = {.arena = arena, .pieces = pieces_of(arena, source, file)};
  *out = strbuf_new(arena);
  l.columns = ARENA_ARRAY(arena, uint32_t, l.pieces.n + 1);
  l.equals = ARENA_ARRAY(arena, uint32_t, l.pieces.n + 1);
  align_equals(&l);
  lay_out(&l);
  lines_print(out, &l.lines);
  return out;
}

/* A line that is broken may leave the run whose `as` stands in a column, and so move others: the text is laid out until
 * nothing changes, which takes two rounds, seldom three. */
const StrBuf *format_text(Arena *arena, Diag *diag, const char *path, const StrBuf *text) {
  enum { MOST_ROUNDS = 6 };
  for (int round = 0; round < MOST_ROUNDS; round++) {
    Map names = map_new(arena);
    Source *source = source_new(arena, path, text->text, (uint32_t)text->length);
    const Ast *file = parse_file(arena, &names, diag, source);
    if (!file) return NULL;
    const StrBuf *made = format_once(arena, source, file);
    if (made->length == text->length && memcmp(made->text, text->text, text->length) == 0) return made;
    text = made;
  }
  return text;
}
