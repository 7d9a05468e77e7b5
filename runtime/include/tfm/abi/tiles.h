/* The tile registers of AMX (Intel SDM volume 1, chapter 19). The system saves them, 8 KB a thread, only for processes
 * that have asked for them (arch_prctl of Linux 5.16 and later). */
#ifndef TFM_TILES_H
#define TFM_TILES_H

#include <stdbool.h>
#include <stdint.h>

/* What ldtilecfg reads. */
typedef struct tfm_tile_setup {
  uint8_t palette, start, unused[14];
  uint16_t bytes[16];
  uint8_t rows[16];
} tfm_tile_setup;

#if defined(__x86_64__) && defined(__linux__)
/* Asks for them. False if this system has none, or gives none to this process. The answer holds for all threads. */
static inline bool tfm_tiles_granted(void) {
  enum { ARCH_PRCTL = 158, ASK = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "0"(ARCH_PRCTL), "D"(ASK), "S"(TILE_DATA) : "rcx", "r11", "memory");
  return result == 0;
}

/* Sets up all eight registers of this thread as 16 rows of 64 bytes, which kernels of tiles rely on; and gives them
 * back, so that a thread that waits has none to be saved. Only where they were granted. */
static inline void tfm_tiles_begin(void) {
  static const tfm_tile_setup whole __attribute__((aligned(64))) = {
      1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
  __asm__ volatile("ldtilecfg %0" : : "m"(whole));
}

static inline void tfm_tiles_end(void) { __asm__ volatile("tilerelease"); }
#else
static inline bool tfm_tiles_granted(void) { return false; }
static inline void tfm_tiles_begin(void) {}
static inline void tfm_tiles_end(void) {}
#endif

#endif
