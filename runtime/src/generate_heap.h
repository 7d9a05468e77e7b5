/* A binary heap whose root has the largest key; of equal keys the largest id. No key is NaN. */
#ifndef TFM_RUNTIME_GENERATE_HEAP_H
#define TFM_RUNTIME_GENERATE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct HeapEntry {
  double key;
  int64_t id;
} HeapEntry;

static inline bool heap_is_before(HeapEntry a, HeapEntry b) { return a.key != b.key ? a.key > b.key : a.id > b.id; }

static inline void heap_sink(HeapEntry *heap, int64_t n, int64_t i) {
  const HeapEntry entry = heap[i];
  for (int64_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && heap_is_before(heap[child + 1], heap[child])) child++;
    if (!heap_is_before(heap[child], entry)) break;
    heap[i] = heap[child];
  }
  heap[i] = entry;
}

static inline void heap_order(HeapEntry *heap, int64_t n) {
  for (int64_t i = n / 2; i-- > 0;) heap_sink(heap, n, i);
}

/* Takes the root out of a heap of n > 0 entries. */
static inline HeapEntry heap_pop(HeapEntry *heap, int64_t n) {
  HeapEntry root = heap[0];
  heap[0] = heap[n - 1];
  heap_sink(heap, n - 1, 0);
  return root;
}

#endif
