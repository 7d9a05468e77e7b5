/* For test_library_inputs.py: calls <model>_forward while MXCSR is `mode`; gives the status, and MXCSR after the call. */
#include <xmmintrin.h>

typedef int (*Forward)(void *context, const void *args, void *error);

int call_with_mode(Forward forward, void *context, const void *args, void *error, unsigned mode, unsigned *after);

int call_with_mode(Forward forward, void *context, const void *args, void *error, unsigned mode, unsigned *after) {
  unsigned before = _mm_getcsr();
  _mm_setcsr(mode);
  int status = forward(context, args, error);
  *after = _mm_getcsr();
  _mm_setcsr(before);
  return status;
}
