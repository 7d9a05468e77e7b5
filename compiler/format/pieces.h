/* Pieces: tokens and comments of a text with what decides where lines break and how far apart they stand. Inside format
 * only.
 *
 * In: the tokens and the tree of a text without faults. Out: for each its bracket, whether it begins a statement, and
 * whether a line may or must end before it. */
#ifndef TFM_FORMAT_PIECES_H
#define TFM_FORMAT_PIECES_H

#include "parse/text_tokens.h"

enum { NO_PIECE = -1 };

typedef struct Piece {
  TextToken token;
  const char *text; /* with a NUL */
  int32_t open;     /* the innermost bracket that is open before it */
  int32_t match;    /* of a bracket: the other one */
  uint32_t level;   /* how many brackets are open */
  bool starts_item; /* a member, statement, entry or setting, or what stands in no block */
  bool is_setting;  /* such an item of generate and train, of which several may share a line */
  bool is_inline;   /* of {: the block was written on one line */
  bool wraps;       /* the line before would be too long otherwise */
  bool is_refilled; /* a list that wraps, or an element behind: where the author broke it does not count any more */
} Piece;

typedef struct Pieces {
  Piece *all;
  uint32_t n;
} Pieces;

Pieces pieces_of(Arena *arena, Source *source, const Ast *file);

bool piece_is(const Piece *piece, const char *text);
bool piece_is_comment(const Piece *piece);
bool piece_is_operator(const Pieces *pieces, uint32_t i); /* of two operands */
/* Whether a statement may go on in a new line before the piece. */
bool piece_may_wrap(const Pieces *pieces, uint32_t i);
/* The expression of a function without a block: `fn f(x) = ...`. */
bool piece_begins_body(const Pieces *pieces, uint32_t i);
/* Of two places with as many open brackets a line breaks at the one with the lower rank. */
uint32_t piece_wrap_rank(const Pieces *pieces, uint32_t i);
bool piece_starts_line(const Pieces *pieces, uint32_t i);
/* Blanks between the piece and the one before it on the same line. */
uint32_t piece_gap(const Pieces *pieces, uint32_t i);
uint32_t piece_width(const Piece *piece);

#endif
