/* What a module has in place of a system: a pool of the caller alone, as pool/pool.c is one of many threads, one
 * processor, a clock that stands still, and the one function that clang calls of its own library; and what it exports
 * beside the functions of a library, module.h.
 *
 * In: what pool.h, processors.h and module.h say; any number of threads that is asked for becomes 1. */
#include "freestanding/module.h"

#include "base/allocate.h"
#include "base/error.h"
#include "context/binding.h"
#include "freestanding/freestanding.h"
#include "pool/pool.h"

struct tfm_pool {
  tfm_allocator allocator;
  bool is_claimed;
};

int32_t pool_threads_wanted(int32_t asked) { return (void)asked, 1; }
int64_t pool_spin_ns(int32_t spin_us) { return (void)spin_us, 0; }

Pool *pool_create(int32_t threads, int64_t spin_ns, const tfm_allocator *allocator) {
  (void)threads, (void)spin_ns;
  Pool *pool = allocate(allocator, sizeof *pool, sizeof(void *));
  if (pool) *pool = (Pool){.allocator = *allocator};
  return pool;
}

void pool_destroy(Pool *pool) {
  if (!pool) return;
  const tfm_allocator allocator = pool->allocator;
  release(&allocator, pool, sizeof *pool);
}

bool pool_claim(Pool *pool) {
  const bool was_claimed = pool->is_claimed;
  pool->is_claimed = true;
  return !was_claimed;
}

void pool_release(Pool *pool) { pool->is_claimed = false; }
int32_t pool_threads(const Pool *pool) { return (void)pool, 1; }
int32_t pool_threads_now(Pool *pool, int32_t worth) { return (void)pool, worth; }
bool pool_alive(const Pool *pool) { return (void)pool, true; }

void pool_run(Pool *pool, int32_t active, PoolWork work, void *argument) {
  PoolMember member = {.pool = pool, .active = active};
  work(argument, &member);
}

void pool_barrier(PoolMember *member) { (void)member; }

// ---- processors ----

int32_t cpus_available(void) { return 1; }

/* Of a usual core: engines do not say. */
int64_t cpu_cache_bytes(int level) { return level == 1 ? 48 << 10 : 1 << 20; }

// ---- time ----

int clock_gettime(int clock, struct timespec *time) {
  (void)clock;
  *time = (struct timespec){0};
  return 0;
}

// ---- products of 128 bits, which checks for overflow of 64 bits call ----

typedef unsigned __int128 Wide;

static Wide wide_of(uint64_t low, uint64_t high) { return (Wide)high << 64 | low; }

/* Of 64 bits, by the product of their halves. */
static Wide whole_product(uint64_t a, uint64_t b) {
  const uint64_t a_low = (uint32_t)a, a_high = a >> 32, b_low = (uint32_t)b, b_high = b >> 32;
  const uint64_t low = a_low * b_low, middle = a_high * b_low + (low >> 32), other = a_low * b_high + (uint32_t)middle;
  return wide_of(other << 32 | (uint32_t)low, a_high * b_high + (middle >> 32) + (other >> 32));
}

Wide __multi3(Wide a, Wide b);
Wide __multi3(Wide a, Wide b) {
  const uint64_t a_low = (uint64_t)a, b_low = (uint64_t)b;
  const uint64_t high = a_low * (uint64_t)(b >> 64) + (uint64_t)(a >> 64) * b_low;
  return whole_product(a_low, b_low) + wide_of(0, high);
}

// ---- exports ----

enum { LINE = 64 };

void *tfm_module_allocate(uint64_t bytes) { return bytes > SIZE_MAX ? NULL : aligned_alloc(LINE, (size_t)bytes); }

void tfm_module_release(void *memory) { free(memory); }

const int64_t *tfm_module_dims(const tfm_context *context, int32_t is_output) {
  if (!context) return NULL;
  return is_output ? context->binding.output_dims : context->binding.input_dims;
}
