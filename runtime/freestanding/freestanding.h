/* What the runtime takes of a C library, for machines that have none (WebAssembly). The build makes the headers of the
 * system that the runtime includes (string.h and others, cmake/wasm.cmake) of this one.
 *
 * Files cannot be opened. Memory comes from memory.grow and is never given back to the engine. There is no clock. */
#ifndef TFM_FREESTANDING_H
#define TFM_FREESTANDING_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

// ---- string.h ----

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *text);
int strcmp(const char *a, const char *b);
int strncmp(const char *a, const char *b, size_t n);
char *strerror(int number);

// ---- stdlib.h ----

void *malloc(size_t bytes);
void *calloc(size_t n, size_t size);
void *aligned_alloc(size_t alignment, size_t bytes); /* alignment: a power of two */
void free(void *memory);                             /* NULL, and what was not allocated, is ignored */
_Noreturn void abort(void);

// ---- stdio.h ----

/* Of %s, %.*s, %c, %d, %u, with l, ll and z, %g as "%g" alone, and %%. */
int vsnprintf(char *text, size_t size, const char *format, va_list arguments);
int snprintf(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

// ---- math.h: one instruction each, or the compiler's own ----

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define HUGE_VAL __builtin_inf()
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)
#define fabs(x) __builtin_fabs(x)
#define fabsf(x) __builtin_fabsf(x)
#define sqrt(x) __builtin_sqrt(x)
#define sqrtf(x) __builtin_sqrtf(x)
#define floor(x) __builtin_floor(x)
#define floorf(x) __builtin_floorf(x)
#define ceil(x) __builtin_ceil(x)
#define trunc(x) __builtin_trunc(x)
#define truncf(x) __builtin_truncf(x)
#define rint(x) __builtin_rint(x)
#define nearbyint(x) __builtin_nearbyint(x)
#define nearbyintf(x) __builtin_nearbyintf(x)
#define copysign(x, y) __builtin_copysign(x, y)
#define copysignf(x, y) __builtin_copysignf(x, y)
#define fmax(x, y) __builtin_fmax(x, y)
#define fmaxf(x, y) __builtin_fmaxf(x, y)
#define fmin(x, y) __builtin_fmin(x, y)
#define fminf(x, y) __builtin_fminf(x, y)

// ---- errno.h, time.h, sys/types.h, sys/stat.h, fcntl.h, unistd.h, sys/mman.h ----

extern int errno;
enum { ENOENT = 2, EINTR = 4, ENOMEM = 12 };

struct timespec {
  int64_t tv_sec;
  long tv_nsec;
};
enum { CLOCK_MONOTONIC = 1 };
int clock_gettime(int clock, struct timespec *time); /* always 0 s */

typedef long ssize_t;
typedef int64_t off_t;
struct stat {
  uint32_t st_mode;
  int64_t st_size;
};
#define S_ISREG(mode) ((mode) == 0100000)
enum { O_RDONLY = 0, O_CLOEXEC = 0, O_NOCTTY = 0, O_NONBLOCK = 0 };
int open(const char *path, int flags, ...);
int fstat(int file, struct stat *info);
int close(int file);
ssize_t pread(int file, void *to, size_t n, off_t offset);

enum { PROT_READ = 1, PROT_WRITE = 2, MAP_SHARED = 1, MAP_PRIVATE = 2, MAP_ANONYMOUS = 32, MAP_NORESERVE = 0x4000 };
#define MAP_FAILED ((void *)-1)
void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset); /* memory of zeroes alone */
int munmap(void *memory, size_t bytes);                                               /* all that mmap gave */

#endif
