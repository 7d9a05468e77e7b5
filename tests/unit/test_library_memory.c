/* H01: every allocation of the runtime fails once, alone or with all that follow. Each such call says TFM_E_NOMEM and
 * touches no output; repeated with memory it succeeds, gives the bits of a run that never failed, and nothing is left
 * behind. Linked with --wrap for the functions that allocate, release and map. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "hand_library.h"
#include "temporary.h"
#include "tfm/abi/weights_file.h"

/* --- Memory that can be refused ------------------------------------------------------------------------------------ */

static atomic_long n_asked, n_live, first_failing = -1, n_failing; /* those numbered first_failing ... fail, n_failing in number */
static atomic_long n_refused;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
void __real_free(void *memory);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);
void __wrap_free(void *memory);

static bool refused(void) {
  long number = atomic_fetch_add(&n_asked, 1) - atomic_load(&first_failing);
  if (atomic_load(&first_failing) < 0 || number < 0 || number >= atomic_load(&n_failing)) return false;
  atomic_fetch_add(&n_refused, 1);
  return true;
}

static void *counted(void *memory) {
  if (memory) atomic_fetch_add(&n_live, 1);
  return memory;
}

void *__wrap_malloc(size_t size) { return refused() ? NULL : counted(__real_malloc(size)); }
void *__wrap_calloc(size_t n, size_t size) { return refused() ? NULL : counted(__real_calloc(n, size)); }
void *__wrap_aligned_alloc(size_t alignment, size_t size) {
  return refused() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

void __wrap_free(void *memory) {
  if (memory) atomic_fetch_sub(&n_live, 1);
  __real_free(memory);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
  if (refused()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  atomic_fetch_add(&n_live, 1);
  return __real_mmap(at, size, protection, flags, fd, offset);
}

int __wrap_munmap(void *at, size_t size) {
  atomic_fetch_sub(&n_live, 1);
  return __real_munmap(at, size);
}

/* --- The model, its weights in a file ------------------------------------------------------------------------------ */

enum { SMALL = 5, LARGE = 60 }; /* rows */

static HandLibrary hand;
static _Alignas(64) float packed[24 * LINEAR_K];
static float x[LARGE * LINEAR_K], r[LARGE * LINEAR_N], y[LARGE * LINEAR_N];
static float small[SMALL * LINEAR_N], large[LARGE * LINEAR_N]; /* what runs give */
static int32_t ids[LARGE];
static char path[TEMPORARY_BYTES];
static tfm_error error;

static void write_weights(void) {
  static char page[TFM_WEIGHTS_HEADER_BYTES];
  tfm_weights_header header = {.magic = TFM_WEIGHTS_MAGIC, .byte_order = TFM_WEIGHTS_BYTE_ORDER,
                               .version = TFM_WEIGHTS_VERSION, .bytes = hand.hand.program.weights_bytes, .model = "linear"};
  XXH128_canonical_t hash;
  memcpy(header.layout, hand.library.layout, sizeof header.layout);
  memcpy(page, &header, sizeof header);
  XXH128_canonicalFromHash(&hash, XXH3_128bits(page, sizeof page));
  memcpy(page + offsetof(tfm_weights_header, header), hash.digest, sizeof header.header);
  int fd = mkstemp(temporary_name(path, "tfm-memory"));
  cr_assert(fd >= 0 && write(fd, page, sizeof page) == sizeof page);
  cr_assert_eq(write(fd, packed, header.bytes), (ssize_t)header.bytes);
  close(fd);
}

static LinearArgs args_of(int64_t rows) {
  return (LinearArgs){sizeof(LinearArgs), 1, rows, x, r, ids, y, LARGE * LINEAR_N};
}

/* --- What a program does with a model ------------------------------------------------------------------------------ */

typedef struct Use {
  int32_t threads;
  bool shared; /* threads of a pool */
  tfm_model *model;
  tfm_pool *pool;
  tfm_context *context;
} Use;

static tfm_status open_it(Use *use) { return tfm_library_open(&hand.library, path, &use->model, &error); }

static tfm_status make_pool(Use *use) {
  return use->shared ? tfm_pool_create(use->threads, &use->pool, &error) : TFM_OK;
}

static tfm_status make_context(Use *use) {
  const tfm_context_options options = {.struct_size = sizeof options, .threads = use->threads, .pool = use->pool};
  return tfm_library_context_new(use->model, &options, &use->context, &error);
}

static tfm_status measure(Use *use) {
  const LinearArgs args = args_of(LARGE);
  if (tfm_library_workspace_bytes(use->model, &args) > 0) return TFM_OK;
  return error.status = TFM_E_NOMEM; /* the function has no error of its own */
}

static tfm_status forward(Use *use, int64_t rows, const float *expected) {
  const LinearArgs args = args_of(rows);
  memset(y, 0x7f, sizeof y);
  tfm_status status = tfm_library_forward(use->context, &args, &error);
  const size_t bytes = status ? 0 : sizeof(float) * (size_t)rows * LINEAR_N;
  for (size_t i = bytes; i < sizeof y; i++) cr_assert_eq(((char *)y)[i], 0x7f, "outputs were touched");
  cr_assert(!expected || memcmp(y, expected, bytes) == 0, "other numbers");
  return status;
}

static tfm_status run_small(Use *use) { return forward(use, SMALL, small); }
static tfm_status run_large(Use *use) { return forward(use, LARGE, large); } /* beyond what there is room for */

static tfm_status reserve_large(Use *use) {
  const LinearArgs args = {.batch = 1, .time = LARGE};
  return tfm_library_reserve(use->context, &args, &error);
}

/* The interface of tfm.h: sizes from the shapes of inputs. */
static tfm_status bind_and_run(Use *use) {
  const int64_t x_dims[] = {1, LARGE, LINEAR_K}, r_dims[] = {LARGE, LINEAR_N}, ids_dims[] = {1, LARGE};
  const tfm_value inputs[] = {{x, TFM_F32, 3, x_dims}, {r, TFM_F32, 2, r_dims}, {ids, TFM_I32, 2, ids_dims}};
  const tfm_value outputs[] = {{y, TFM_F32, 3, NULL}};
  memset(y, 0x7f, sizeof y);
  tfm_status status = tfm_context_bind(use->context, inputs, &error);
  if (!status) status = tfm_context_run(use->context, inputs, outputs, &error);
  cr_assert(status || memcmp(y, large, sizeof large) == 0, "other numbers");
  return status;
}

typedef tfm_status (*Step)(Use *);

static void end(Use *use) {
  if (use->threads == 2) tfm_model_close(use->model); /* in any order */
  tfm_context_destroy(use->context);
  tfm_pool_destroy(use->pool);
  if (use->threads != 2) tfm_model_close(use->model);
}

/* Does the steps in order; one that lacks memory must say so and succeeds when there is some again. */
static void do_steps(Use *use, const Step *steps) {
  for (; *steps; steps++) {
    long before = atomic_load(&n_refused);
    tfm_status status = (*steps)(use);
    cr_assert(!status || (status == TFM_E_NOMEM && error.status == status && atomic_load(&n_refused) > before), "%d: %s",
              status, error.message);
    if (!status) continue;
    atomic_store(&first_failing, -1);
    cr_assert_eq((*steps)(use), TFM_OK, "again, with memory: %s", error.message);
  }
}

static void every_allocation_fails(Use use, const Step *steps, long at_once) {
  const Use fresh = use;
  long n = 0;
  for (bool all_granted = false; !all_granted; n++) {
    cr_assert_lt(n, 100);
    long live = atomic_load(&n_live), refused_before = atomic_load(&n_refused);
    use = fresh;
    atomic_store(&n_failing, at_once);
    atomic_store(&first_failing, atomic_load(&n_asked) + n);
    do_steps(&use, steps);
    atomic_store(&first_failing, -1);
    all_granted = atomic_load(&n_refused) == refused_before;
    end(&use);
    cr_assert_eq(atomic_load(&n_live), live, "allocation %ld: something is left", n);
  }
  cr_expect_geq(n, 4, "fewer allocations than a model, a context, a pool and a workspace");
}

static void set_up(void) {
  hand_fill(packed, hand_linear_weight_floats(), 1);
  hand_fill(x, LARGE * LINEAR_K, 2);
  hand_fill(r, LARGE * LINEAR_N, 3);
  hand_library(&hand, NULL);
  write_weights();
  Use use = {.threads = 1};
  cr_assert(!open_it(&use) && !make_context(&use), "%s", error.message);
  cr_assert_eq(forward(&use, SMALL, NULL), TFM_OK);
  memcpy(small, y, sizeof small);
  cr_assert_eq(forward(&use, LARGE, NULL), TFM_OK);
  memcpy(large, y, sizeof large);
  end(&use);
}

static void tear_down(void) { unlink(path); }

TestSuite(library_memory, .init = set_up, .fini = tear_down);

/* --- Tests --------------------------------------------------------------------------------------------------------- */

static void try_all(const Step *steps) {
  for (int32_t threads = 1; threads <= 3; threads++) {
    for (int shared = 0; shared < 2; shared++) {
      every_allocation_fails((Use){.threads = threads, .shared = shared}, steps, 1);
      every_allocation_fails((Use){.threads = threads, .shared = shared}, steps, LONG_MAX);
    }
  }
}

Test(library_memory, H01_opening_running_and_growing) {
  static const Step steps[] = {open_it, make_pool, make_context, run_small, run_large, run_small, NULL};
  try_all(steps);
}

Test(library_memory, H01_reserving_and_measuring) {
  static const Step steps[] = {open_it, make_pool, measure, make_context, reserve_large, run_large, run_small, NULL};
  try_all(steps);
}

Test(library_memory, H01_binding_shapes) {
  static const Step steps[] = {open_it, make_pool, make_context, run_small, bind_and_run, run_small, run_large, NULL};
  try_all(steps);
}
