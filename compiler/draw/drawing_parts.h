/* What the files of a drawing share: modules with their items, and a picture of them while it is made.
 *
 * drawing_items.c makes drawings, drawing_fold.c finds what one box stands for, drawing_lines.c decides which lines
 * there are and where they end, and drawing_print.c prints boxes and lines. All memory is the drawing's arena. */
#ifndef TFM_DRAW_DRAWING_PARTS_H
#define TFM_DRAW_DRAWING_PARTS_H

#include "draw/drawing.h"

typedef struct Module Module;

typedef struct Edge {
  uint32_t from;
  const char *label;
} Edge;

typedef struct Item {
  DrawingLook look;
  const char *label;
  Module *module;
  VEC(Edge) inputs;
  uint32_t members; /* of a kind that it stands for, with itself; 0: it stands for itself */
  const char *last; /* the label of the last of them */
} Item;

typedef struct Weight {
  const char *text;
  double elements; /* of a text that nobody has checked there may be more than an integer holds */
} Weight;

struct Module {
  const char *name; /* the last part of its path; the model's name at the root */
  Module *parent, *first;
  uint32_t depth, number; /* the root has depth 0; number: of its box */
  uint32_t place;         /* index among its siblings */
  VEC(Module *) children;
  VEC(uint32_t) items;    /* its own */
  VEC(uint32_t) all;      /* and those of the modules in it, in the order of the drawing */
  VEC(Weight) weights;    /* its own */
  uint32_t repeated;      /* how many siblings are equal, with this one; 0: an earlier one stands for it */
  VEC(const Module *) equal; /* the other siblings that it stands for */
  const char *inside;     /* what makes siblings equal */
};

struct Drawing {
  Arena *arena;
  VEC(Item) items;
  Map modules; /* path -> Module * */
  Module *root;
  uint32_t n_modules;
};

typedef struct Picture {
  StrBuf *out;
  Drawing *drawing;
  uint32_t depth;
  int64_t *stands_for; /* per item: the one that is drawn in its place */
  uint32_t boxes;      /* items and closed modules so far */
  StrBuf lines;        /* printed, between boxes and points */
  VEC(uint32_t) *points; /* per module: where values come in at its frame */
  uint32_t n_points;
  Map flags; /* box -> const char *: what it gets without a line */
} Picture;

bool drawing_is_in(const Module *module, const Module *around);
/* Equal siblings among the children of a module; `local` has room for a number per item. */
void drawing_find_repetition(Drawing *drawing, Module *parent, uint32_t *local);
/* Which item is drawn in the place of each. */
void drawing_fold(Picture *picture);
/* "n7" of an item, or "m3" of the closed module that it is in. */
const char *drawing_box_of(const Picture *picture, uint32_t item);
void drawing_find_lines(Picture *picture);

#endif
