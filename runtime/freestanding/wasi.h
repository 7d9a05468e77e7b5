/* The functions of WASI (preview 1) that a command imports, as the engine has them; each returns 0 or the number of an
 * error. */
#ifndef TFM_FREESTANDING_WASI_H
#define TFM_FREESTANDING_WASI_H

#include <stdint.h>

#define WASI_MODULE "wasi_snapshot_preview1"
#define WASI(name) __attribute__((import_module(WASI_MODULE), import_name(#name)))

typedef struct WasiBytes { /* a part of what is read or written */
  const void *data;
  uint32_t size;
} WasiBytes;

typedef struct WasiFile { /* of fd_filestat_get */
  uint64_t device, number, kind, links, size, times[3];
} WasiFile;

enum { WASI_NO_FILE = 8 /* a descriptor that is not open */, WASI_CREATES = 1, WASI_TRUNCATES = 8 };
enum { WASI_READ = 2, WASI_WRITE = 64, WASI_ASK = 1 << 21 /* fd_filestat_get */ };

WASI(args_sizes_get) uint32_t wasi_args_sizes_get(uint32_t *n, uint32_t *bytes);
WASI(args_get) uint32_t wasi_args_get(char **texts, char *bytes);
WASI(fd_read) uint32_t wasi_fd_read(uint32_t file, const WasiBytes *parts, uint32_t n, uint32_t *got);
WASI(fd_write) uint32_t wasi_fd_write(uint32_t file, const WasiBytes *parts, uint32_t n, uint32_t *done);
WASI(fd_filestat_get) uint32_t wasi_fd_filestat_get(uint32_t file, WasiFile *info);
WASI(path_open)
uint32_t wasi_path_open(uint32_t folder, uint32_t follows, const char *path, uint32_t length, uint32_t how,
                        uint64_t rights, uint64_t inherited, uint32_t flags, uint32_t *file);
WASI(proc_exit) _Noreturn void wasi_proc_exit(uint32_t code);

#endif
