/* Maps: levels of a list of operations, each the inside of a module with the modules in it closed. Private to explore/.
 *
 * In: operations as JSON (`ops`, `primitives` or `steps`), modules. Out: levels with boxes and lines; then their
 * places. */
#ifndef TFM_EXPLORE_MAP_DATA_H
#define TFM_EXPLORE_MAP_DATA_H

#include "explore/explorer.h"

typedef struct MapBox {
  const char *label;
  const char *kind; /* op, module, in, out */
  int32_t item;     /* the first operation that it stands for; -1: none */
  int32_t module;   /* that it opens; -1: none */
  uint32_t times;
} MapBox;

typedef struct MapLine {
  uint32_t from, to;
} MapLine;

typedef struct MapLevel {
  VEC(uint32_t) modules; /* whose inside this is */
  VEC(MapBox) boxes;
  VEC(MapLine) lines;
} MapLevel;

typedef struct MapLevels {
  VEC(MapLevel *) all;
} MapLevels;

MapLevels map_levels(Explorer *x, const json_t *items);
/* The list `maps`: levels of all programs, laid out by one process; a note if there is no `dot`. */
json_t *explorer_maps(Explorer *x, const json_t *programs, json_t *notes);

#endif
