/* Adapters of a graph's model (`adapt`). In: what the elaborator finds. Out: names that files are read by. */
#ifndef TFM_GRAPH_ADAPTER_H
#define TFM_GRAPH_ADAPTER_H

/* A weight that has one, and the weights A and B of scale B A, by name. */
typedef struct GraphAdapter {
  const char *weight, *a, *b;
  double scale;
} GraphAdapter;

#endif
