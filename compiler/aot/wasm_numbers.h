/* Numbers of WebAssembly files: LEB128, seven bits a byte, the lowest first. Reading trusts the bytes (wasm_objects.h).
 * Writing takes as few bytes as the number needs. */
#ifndef TFM_AOT_WASM_NUMBERS_H
#define TFM_AOT_WASM_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"

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

static inline void wasm_write(StrBuf *out, uint32_t value) {
  do {
    const uint8_t byte = value & 0x7f;
    value >>= 7;
    strbuf_add_char(out, (char)(value ? byte | 0x80 : byte));
  } while (value);
}

static inline void wasm_write_signed(StrBuf *out, int32_t value) {
  for (;;) {
    const uint8_t byte = value & 0x7f;
    value = value < 0 ? ~(~value >> 7) : value >> 7;
    const bool is_last = value == (byte & 0x40 ? -1 : 0);
    strbuf_add_char(out, (char)(is_last ? byte : byte | 0x80));
    if (is_last) return;
  }
}

#endif
