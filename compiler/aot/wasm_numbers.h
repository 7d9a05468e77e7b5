/* Numbers of WebAssembly files are read: LEB128, seven bits a byte, the lowest first. The bytes are trusted to be whole
 * (wasm_objects.h). */
#ifndef TFM_AOT_WASM_NUMBERS_H
#define TFM_AOT_WASM_NUMBERS_H

#include <stdint.h>

typedef struct WasmCursor {
  const uint8_t *now, *end;
} WasmCursor;

static inline uint32_t wasm_read(WasmCursor *at) {
  uint32_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const uint8_t byte = *at->now++;
    if (shift < 32) value |= (uint32_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
}

static inline int64_t wasm_read_signed(WasmCursor *at) {
  uint64_t value = 0;
  for (unsigned shift = 0;;) {
    const uint8_t byte = *at->now++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    shift += 7;
    if (byte & 0x80) continue;
    if (byte & 0x40 && shift < 64) value |= ~UINT64_C(0) << shift;
    return (int64_t)value;
  }
}

#endif
