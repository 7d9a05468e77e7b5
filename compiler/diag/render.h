/* Render: the messages of a Diag as text for people or as JSON for editors.
 *
 *   model.tfm:12:14: error: unknown name 'w_k', did you mean 'w_q'? [E0202]
 *      12 |   h = matmul(x, w_k)
 *         |                 ^~~
 *   model.tfm:4:1: note: 'w_q' is declared here
 *
 * In: a Diag. Out: text in a StrBuf; who calls it writes it to stderr. Columns count bytes, the caret is placed by
 * display width. Long lines are cut around the caret. Control bytes, malformed UTF-8 and direction controls are
 * escaped, whether they come from a file or from a message. The same messages always give the same text. */
#ifndef TFM_DIAG_RENDER_H
#define TFM_DIAG_RENDER_H

#include "base/strbuf.h"
#include "diag/diag.h"

/* All messages, each ending its line; with_color adds the usual escape sequences of terminals. */
void render_text(StrBuf *out, const Diag *diag, bool with_color);
/* "tfmc: 2 errors, 1 warning" and a line end; `addition` stands before it (", no output written" or ""). Nothing if
 * there are no messages. */
void render_summary(StrBuf *out, const Diag *diag, const char *addition);
/* One JSON object a line: severity, code, message, file, line, column, end_line, end_column, notes. What is unknown is
 * left out. */
void render_json(StrBuf *out, const Diag *diag);

#endif
