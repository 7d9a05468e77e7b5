/* In: a tfm_context_options of any version, the environment. Refused: a struct that ends before its first options, half
 * an allocator. What the environment says is ignored unless it is a number in its range. */
#include "options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "threads.h"

enum {
  DEFAULT_SPIN_US = 200,
  MOST_SPIN_US = 10 * 1000 * 1000,
  LEAST_SIZE = offsetof(tfm_context_options, threads) + sizeof(int32_t),
  FIRST_SIZE = offsetof(tfm_context_options, log_user) + sizeof(void *) /* of the first version */
};

/* A number from the environment in [least, most], else `otherwise`. */
static int64_t number_from_environment(const char *name, int64_t least, int64_t most, int64_t otherwise) {
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  long long value = strtoll(text, &end, 10);
  return *end || value < least || value > most ? otherwise : value;
}

int32_t options_threads(int32_t asked) {
  if (asked <= 0) asked = (int32_t)number_from_environment("TFM_NUM_THREADS", 1, POOL_MAX_THREADS, 0);
  if (asked <= 0) asked = cpus_available();
  return asked < POOL_MAX_THREADS ? asked : POOL_MAX_THREADS;
}

int64_t options_spin_ns(int32_t spin_us) {
  if (spin_us < 0) return 0;
  if (spin_us > 0) return spin_us * INT64_C(1000);
  return number_from_environment("TFM_SPIN_US", 0, MOST_SPIN_US, DEFAULT_SPIN_US) * 1000;
}

static tfm_status refuse(tfm_error *error, const char *why) {
  return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "%s", why);
}

tfm_status options_read(const tfm_context_options *given, Options *options, tfm_error *error) {
  tfm_context_options known = {0};
  if (given) {
    size_t size = given->struct_size ? given->struct_size : FIRST_SIZE;
    if (size < LEAST_SIZE) return refuse(error, "struct_size of the options is too small");
    memcpy(&known, given, size < sizeof known ? size : sizeof known);
  }
  if (!known.allocator.allocate != !known.allocator.release)
    return refuse(error, "an allocator needs both functions");
  *options = (Options){.pool = known.pool, .spin_ns = options_spin_ns(known.spin_us), .allocator = known.allocator,
                       .log = known.log, .log_user = known.log_user};
  options->threads = known.pool ? pool_threads(known.pool) : options_threads(known.threads);
  return TFM_OK;
}
