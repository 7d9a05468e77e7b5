/* Broken invariants of the compiler itself: what the user did wrong is never reported here (that is diag's).
 * A failed check prints where and what, says that it is our fault, and ends the process with exit code 70. */
#ifndef TFM_BASE_CHECK_H
#define TFM_BASE_CHECK_H

_Noreturn void internal_error(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define CHECK(condition, ...)                                           \
  do {                                                                  \
    if (!(condition)) internal_error(__FILE__, __LINE__, __VA_ARGS__);  \
  } while (0)
#define UNREACHABLE(...) internal_error(__FILE__, __LINE__, __VA_ARGS__)

#endif
