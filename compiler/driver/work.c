#include "driver/work.h"

#include <string.h>

/* The symbols that stand alone in a dim of some input; the others are 0. */
static void bind_symbols(const Graph *graph, const EvalInputs *inputs, int64_t symbols[SIZE_MAX_SYMBOLS]) {
  memset(symbols, 0, SIZE_MAX_SYMBOLS * sizeof *symbols);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const Node *node = graph->inputs.items[i];
    for (uint32_t k = 0; k < inputs->n; k++) {
      if (strcmp(inputs->names[k], node->attr.name) != 0 || inputs->tensors[k].rank != node->rank) continue;
      for (uint32_t axis = 0; axis < node->rank; axis++) {
        int32_t symbol = size_symbol_of(node->dims[axis]);
        if (symbol >= 0) symbols[symbol] = inputs->tensors[k].dims[axis];
      }
    }
  }
}

static double value_of(const Size *size, const int64_t *symbols) {
  int64_t value;
  return size_value(size, symbols, &value) ? (double)value : 0;
}

double work_flops(const Graph *graph, const EvalInputs *inputs) {
  int64_t symbols[SIZE_MAX_SYMBOLS];
  bind_symbols(graph, inputs, symbols);
  double flops = 0;
  for (const Node *node = graph->first; node; node = node->next) {
    if (node->op != OP_LINEAR && node->op != OP_MATMUL) continue;
    const Node *x = node->inputs.items[0];
    double work = 2 * value_of(x->dims[x->rank - 1], symbols);
    for (uint32_t axis = 0; axis < node->rank; axis++) work *= value_of(node->dims[axis], symbols);
    flops += work;
  }
  return flops;
}
