/* Text: the words that the text forms of graphs, checks and expressions are made of.
 *
 * Scanning takes a pointer into a text that ends with a NUL, and gives the word there with the pointer moved past it.
 * Nothing is reported here: a function that finds something else returns false and leaves the pointer where it was. */
#ifndef TFM_GRAPH_TEXT_H
#define TFM_GRAPH_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Skips spaces, tabs, line ends and comments (# to the end of the line). */
void scan_blanks(const char **text);
/* Each of these skips blanks first. */
bool scan_char(const char **text, char c);
bool scan_word(const char **text, const char *word); /* a whole identifier */
bool scan_name(const char **text, const char **begin, size_t *length);
bool scan_integer(const char **text, int64_t *value);
/* Digits with a point or an exponent, inf, nan. */
bool scan_number(const char **text, double *value);
/* What strbuf_add_quoted wrote. */
bool scan_string(Arena *arena, const char **text, const char **value);

bool text_is_name(const char *text);

/* The fewest digits that give the f32 (the double) back, with a point or an exponent if it is finite. */
void print_f32(StrBuf *out, double number);
void print_f64(StrBuf *out, double number);

#endif
