/* Drawing: a model as a picture for Graphviz, modules as boxes in boxes.
 *
 * In: items (operations or steps) with the path of their module, edges between items, weights. Out: the text of a
 * picture. Modules at the depth that is asked for are closed: a closed module is one box that says what is in it.
 * Siblings that are numbered and equal inside ("layers.0", "layers.1" ...) are drawn once, with how many there are.
 * Weights are lines in the box of the module that owns them, never nodes. Edges carry what flows along them; equal
 * edges between two boxes are drawn once. A value comes into an open module at one point, and what many modules take,
 * such as a mask, is a line to the first of them and a word in the boxes of the others. */
#ifndef TFM_DRAW_DRAWING_H
#define TFM_DRAW_DRAWING_H

#include "graph/graph.h"

typedef struct Drawing Drawing;

/* PORT: an input or output of the model. */
typedef enum DrawingLook { DRAW_OPERATION, DRAW_VIEW, DRAW_PORT } DrawingLook;

Drawing *drawing_new(Arena *arena, const char *name);
/* Items are numbered from 0 in the order in which they are added, which must be one in which they can be computed. */
uint32_t drawing_add_item(Drawing *drawing, DrawingLook look, const char *label, const char *path);
/* `label` says what flows: "hidden f32[batch, 64]". */
void drawing_add_edge(Drawing *drawing, uint32_t from, uint32_t to, const char *label);
void drawing_add_weight(Drawing *drawing, const char *path, const char *text, double elements);
/* Modules `depth` below the model are closed; 0: the model itself is. Returns how many boxes there are. A drawing is
 * printed once. */
uint32_t drawing_print(StrBuf *out, Drawing *drawing, uint32_t depth);

/* A graph: everything that runs compute. What depends on weights and constants alone is counted as its weights. */
Drawing *drawing_of_graph(Arena *arena, Graph *graph); /* renumbers */

#endif
