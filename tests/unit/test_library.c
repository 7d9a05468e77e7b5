/* Compiled libraries, made by hand: what opening refuses, args and what is wrong with them, sizes, options, shared pools,
 * cancelling, the stack. Linked with --wrap for the functions that allocate. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted_allocations.h"
#include "machine/features.h"
#include "hand_library.h"
#include "library/open.h"

/* --- Threads counted ----------------------------------------------------------------------------------------------- */

static atomic_int threads_left = 1000; /* that the system still gives */

typedef void *(*ThreadFunction)(void *);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, ThreadFunction function, void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, ThreadFunction function, void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, ThreadFunction function, void *argument) {
  if (atomic_fetch_sub(&threads_left, 1) <= 0) return EAGAIN;
  return __real_pthread_create(thread, attributes, function, argument);
}

/* --- The model ----------------------------------------------------------------------------------------------------- */

enum { BATCH = 3, TIME = 40, ROWS = BATCH * TIME };

static HandLibrary hand;
static _Alignas(64) float packed[24 * LINEAR_K];
static float x[ROWS * LINEAR_K], r[TIME * LINEAR_N], y[ROWS * LINEAR_N], expected[ROWS * LINEAR_N];
static int32_t ids[ROWS];
static tfm_model *model;
static tfm_error error;

static LinearArgs args_of(int64_t batch, int64_t time) {
  return (LinearArgs){sizeof(LinearArgs), batch, time, x, r, ids, y, ROWS * LINEAR_N};
}

static tfm_context *context_new(const tfm_context_options *options) {
  tfm_context *context = NULL;
  cr_assert_eq(tfm_library_context_new(model, options, &context, &error), TFM_OK, "%s", error.message);
  return context;
}

static tfm_context *context_of(int32_t threads) { return context_new(&(tfm_context_options){.threads = threads}); }

static void open_model(void) {
  hand_fill(packed, hand_linear_weight_floats(), 1);
  hand_fill(x, ROWS * LINEAR_K, 2);
  hand_fill(r, TIME * LINEAR_N, 3);
  hand_library(&hand, packed);
  cr_assert_eq(tfm_library_open(&hand.library, NULL, &model, &error), TFM_OK, "%s", error.message);
  tfm_context *context = context_of(1);
  LinearArgs args = args_of(BATCH, TIME);
  args.y = expected;
  cr_assert_eq(tfm_library_forward(context, &args, &error), TFM_OK, "%s", error.message);
  tfm_context_destroy(context);
}

static void close_model(void) { tfm_model_close(model); }

TestSuite(library, .init = open_model, .fini = close_model);

static void gives(tfm_context *context, const LinearArgs *args, tfm_status status, const char *message) {
  memset(y, 0x7f, sizeof y);
  cr_expect_eq(tfm_library_forward(context, args, &error), status, "%s", error.message);
  cr_expect_eq(error.status, status);
  cr_expect(strstr(error.message, message), "\"%s\" is not in \"%s\"", message, error.message);
  for (size_t i = 0; status && i < sizeof y; i++) cr_assert_eq(((char *)y)[i], 0x7f, "an output was touched");
}

static void runs(tfm_context *context) {
  const LinearArgs args = args_of(BATCH, TIME);
  gives(context, &args, TFM_OK, "");
  cr_expect(memcmp(y, expected, sizeof y) == 0, "other numbers");
}

/* --- Opening ------------------------------------------------------------------------------------------------------- */

static void does_not_open(tfm_status status, const char *message) {
  tfm_model *refused = (tfm_model *)&hand;
  cr_expect_eq(tfm_library_open(&hand.library, NULL, &refused, &error), status);
  cr_expect_null(refused);
  cr_expect(strstr(error.message, message), "\"%s\" is not in \"%s\"", message, error.message);
}

Test(library, a_library_of_another_time_or_machine_is_refused) {
  hand.library.abi = 99;
  does_not_open(TFM_E_ENV, "interface 99");
  hand.library.abi = TFM_LIBRARY_ABI;
  hand.hand.program.version = TFM_PROGRAM_VERSION + 1;
  char message[40];
  snprintf(message, sizeof message, "has version %d, ", TFM_PROGRAM_VERSION + 1);
  does_not_open(TFM_E_ENV, message);
  hand.hand.program.version = TFM_PROGRAM_VERSION;
  hand.hand.program.isa = "vax";
  hand.hand.program.family = 200;
  does_not_open(TFM_E_ENV, "compiled for vax");
  hand.hand.program.isa = "C";
  hand.hand.program.family = TFM_FAMILY_ANY;
  hand.library.weights = NULL;
  does_not_open(TFM_E_USAGE, ".tfmw");
  hand.library.n_programs = 0;
  does_not_open(TFM_E_ENV, "no program");
  cr_expect_eq(tfm_library_open(&hand.library, NULL, NULL, NULL), TFM_E_USAGE);
  cr_expect_eq(tfm_library_open(NULL, NULL, &(tfm_model *){NULL}, NULL), TFM_E_USAGE);
}

Test(library, callers_with_another_header) {
  tfm_model *made = (tfm_model *)&error;
  cr_expect_eq(tfm_library_open_as(&hand.library, 12, NULL, &made, &error), TFM_E_USAGE);
  cr_expect(!made && strstr(error.message, "compile it again"), "%s", error.message);
  made = (tfm_model *)&error;
  cr_expect_eq(tfm_library_open_memory_as(&hand.library, 0, "", 0, &made, &error), TFM_E_USAGE);
  cr_expect_null(made);
  cr_expect_eq(tfm_library_open_as(&hand.library, 11, NULL, &made, &error), TFM_OK, "%s", error.message);
  tfm_model_close(made);
  cr_expect_eq(tfm_library_open_as(NULL, 11, NULL, &made, &error), TFM_E_USAGE);
  hand.library.abi++;
  cr_expect_eq(tfm_library_open_as(&hand.library, 12, NULL, &made, &error), TFM_E_ENV, "the version is told first");
}

#if defined(__x86_64__)
enum { LEVEL_3 = CPU_AVX | CPU_AVX2 | CPU_FMA | CPU_F16C | CPU_BMI1 | CPU_BMI2 | CPU_LZCNT | CPU_MOVBE | CPU_POPCNT };

Test(library, a_missing_feature_is_named) {
  cr_expect_null(cpu_missing(0, 0));
  cr_expect_null(cpu_missing(LEVEL_3, LEVEL_3));
  cr_expect_str_eq(cpu_missing(LEVEL_3, LEVEL_3 & ~(uint32_t)CPU_FMA), "FMA");
  cr_expect_str_eq(cpu_missing(LEVEL_3 | CPU_AVX512F | CPU_AVX512VL, LEVEL_3), "AVX512F");
#define FEATURE(name, bit, text, ...) cr_expect_str_eq(cpu_missing(UINT32_MAX, ~(UINT32_C(1) << bit)), text);
#include "tfm/abi/features_x86.def"
  cr_expect_str_eq(cpu_missing(UINT32_C(1) << 31, 0), "what this runtime does not know");
}

Test(library, the_best_program_that_the_cpu_can_run_is_chosen) {
  const uint32_t avx2_only = LEVEL_3;
  const tfm_program wide = {.isa = "x86-64-v4", .family = TFM_FAMILY_X86_64, .features = LEVEL_3 | CPU_AVX512F},
                    narrow = {.isa = "x86-64-v3", .family = TFM_FAMILY_X86_64, .features = LEVEL_3},
                    *programs[] = {&wide, &narrow}, *chosen;
  const tfm_library both = {.model = "m", .n_programs = 2, .programs = programs};
  cr_expect_eq(model_choose(&both, UINT32_MAX, &chosen, &error), TFM_OK);
  cr_expect_eq(chosen, &wide);
  cr_expect_eq(model_choose(&both, avx2_only, &chosen, &error), TFM_OK);
  cr_expect_eq(chosen, &narrow);
  cr_expect_eq(model_choose(&both, CPU_AVX, &chosen, &error), TFM_E_ENV);
  cr_expect_str_eq(error.message, "\"m\" is compiled for x86-64-v3: this CPU lacks AVX2");
}
#endif

/* --- Args ---------------------------------------------------------------------------------------------------------- */

Test(library, every_number_of_threads_gives_the_same_bits) {
  for (int32_t threads = 1; threads <= 4; threads++) {
    tfm_context *context = context_of(threads);
    for (int run = 0; run < 3; run++) runs(context);
    tfm_context_destroy(context);
  }
}

Test(library, wrong_args_are_refused_and_the_context_stays_usable) {
  tfm_context *context = context_of(2);
  LinearArgs args = args_of(BATCH, TIME);
  gives(context, NULL, TFM_E_USAGE, "args");
  gives(NULL, &args, TFM_E_USAGE, "context");
  args.struct_size = 16;
  gives(context, &args, TFM_E_USAGE, "struct_size");
  args = args_of(-1, TIME);
  gives(context, &args, TFM_E_INPUT, "batch is negative (-1)");
  args = args_of(INT64_MAX / 2, TIME);
  gives(context, &args, TFM_E_INPUT, "too large");
  args = args_of(1, 601);
  gives(context, &args, TFM_E_INPUT, "a sequence of 601");
  cr_expect_str_eq(error.place, "linear.tfm:3:5");
  args = args_of(BATCH, TIME), args.r = NULL;
  gives(context, &args, TFM_E_INPUT, "input \"r\" is a null pointer");
  args = args_of(BATCH, TIME), args.y_capacity--;
  gives(context, &args, TFM_E_INPUT, "room for 2399 elements, needs 2400");
  ids[7] = LINEAR_IDS;
  args = args_of(BATCH, TIME);
  gives(context, &args, TFM_E_INPUT, "input \"ids\"[0,7] = 40");
  ids[7] = 0;
  runs(context);
  tfm_context_destroy(context);
}

Test(library, struct_size_and_capacity_may_be_left_out) {
  tfm_context *context = context_of(2);
  LinearArgs args = args_of(BATCH, TIME);
  args.struct_size = 0, args.y_capacity = 0;
  gives(context, &args, TFM_OK, "");
  cr_expect(memcmp(y, expected, sizeof y) == 0);
  args.y = NULL;
  gives(context, &args, TFM_OK, "");
  args = args_of(0, TIME), args.x = NULL, args.ids = NULL;
  gives(context, &args, TFM_OK, "");
  tfm_context_destroy(context);
}

Test(library, an_output_that_overlaps_is_refused) {
  tfm_context *context = context_of(1);
  LinearArgs args = args_of(1, 1);
  float before = x[LINEAR_K - 1];
  args.y = x + LINEAR_K - 1;
  gives(context, &args, TFM_E_INPUT, "output \"y\" overlaps input \"x\"");
  args.y = (float *)((uintptr_t)r - LINEAR_N * sizeof(float) + 1); /* an integer: compilers know how large r is */
  gives(context, &args, TFM_E_INPUT, "output \"y\" overlaps input \"r\"");
  cr_expect_eq(before, x[LINEAR_K - 1]);
  args.y = x + LINEAR_K;
  gives(context, &args, TFM_OK, "");
  tfm_context_destroy(context);
}

Test(library, any_alignment_will_do) {
  static char shifted_x[sizeof x + 1], shifted_y[sizeof y + 3];
  memcpy(shifted_x + 1, x, sizeof x);
  LinearArgs args = args_of(BATCH, TIME);
  args.x = (const float *)(const void *)(shifted_x + 1);
  args.y = (float *)(void *)(shifted_y + 3);
  tfm_context *context = context_of(2);
  gives(context, &args, TFM_OK, "");
  cr_expect(memcmp(shifted_y + 3, expected, sizeof expected) == 0);
  tfm_context_destroy(context);
}

/* --- Memory -------------------------------------------------------------------------------------------------------- */

Test(library, runs_within_what_was_reserved_allocate_nothing) {
  for (int32_t threads = 1; threads <= 3; threads++) {
    tfm_context *context = context_of(threads);
    LinearArgs args = {.batch = BATCH, .time = TIME};
    cr_assert_eq(tfm_library_reserve(context, &args, &error), TFM_OK);
    long before = atomic_load(&n_allocations);
    for (int64_t time = 0; time <= TIME; time++) {
      args = args_of(time % (BATCH + 1), time);
      cr_assert_eq(tfm_library_forward(context, &args, &error), TFM_OK);
    }
    runs(context);
    cr_expect_eq(atomic_load(&n_allocations), before);
    tfm_context_destroy(context);
  }
}

Test(library, workspace_is_told_without_a_context) {
  const LinearArgs one = args_of(1, 1), all = args_of(BATCH, TIME), negative = args_of(-1, 1), longer = args_of(1, 601);
  cr_expect_geq(tfm_library_workspace_bytes(model, &all), (int64_t)ROWS * HAND_A_STRIDE * 4);
  cr_expect_lt(tfm_library_workspace_bytes(model, &one), tfm_library_workspace_bytes(model, &all));
  cr_expect_eq(tfm_library_workspace_bytes(model, &negative), -1);
  cr_expect_eq(tfm_library_workspace_bytes(model, &longer), -1);
  cr_expect_eq(tfm_library_workspace_bytes(NULL, &all), -1);
  cr_expect_eq(tfm_library_workspace_bytes(model, NULL), -1);
  tfm_context *context = context_new(NULL);
  cr_assert_eq(tfm_library_reserve(context, &all, &error), TFM_OK);
  cr_expect_eq(tfm_library_workspace_bytes(model, &all), (int64_t)tfm_context_workspace_bytes(context));
  tfm_context_destroy(context);
}

typedef struct Hooks {
  long allocated, released, calls, fail_at;
  char message[256];
} Hooks;

static void *hook_allocate(void *user, size_t bytes, size_t alignment) {
  Hooks *hooks = user;
  if (hooks->calls++ == hooks->fail_at) return NULL;
  hooks->allocated += (long)bytes;
  return __real_aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void hook_release(void *user, void *memory, size_t bytes) {
  ((Hooks *)user)->released += (long)bytes;
  free(memory);
}

static void hook_log(void *user, const char *message) {
  Hooks *hooks = user;
  strncpy(hooks->message, message, sizeof hooks->message - 1);
}

Test(library, memory_comes_from_the_callers_functions) {
  bool done = false;
  for (long n = 0; !done; n++) {
    Hooks hooks = {.fail_at = n};
    const tfm_context_options options = {.struct_size = sizeof options, .threads = 1, .log = hook_log, .log_user = &hooks,
                                         .allocator = {hook_allocate, hook_release, &hooks}};
    long before = atomic_load(&n_allocations);
    tfm_context *context = NULL;
    tfm_status status = tfm_library_context_new(model, &options, &context, &error);
    if (!status) {
      const LinearArgs args = args_of(BATCH, TIME);
      status = tfm_library_forward(context, &args, &error);
      cr_expect(strstr(hooks.message, "linear for C: 1 of 1 threads"), "%s", hooks.message);
    }
    done = status == TFM_OK;
    cr_assert(done || status == TFM_E_NOMEM);
    tfm_context_destroy(context);
    cr_expect_eq(hooks.allocated, hooks.released);
    cr_expect_eq(atomic_load(&n_allocations), before, "memory from elsewhere");
    cr_assert_lt(n, 20);
  }
}

Test(library, opening_may_find_no_memory) {
  atomic_store(&failing, atomic_load(&n_allocations));
  does_not_open(TFM_E_NOMEM, "no memory");
  atomic_store(&failing, -1);
}

Test(library, fewer_threads_than_asked_for_give_the_same_bits) {
  for (int given = 0; given < 4; given++) {
    atomic_store(&threads_left, given);
    tfm_context *context = context_of(4);
    cr_expect_eq(tfm_context_threads(context), 1 + (given < 3 ? given : 3));
    runs(context);
    tfm_context_destroy(context);
  }
}

Test(library, half_an_allocator_is_refused) {
  tfm_context *context = (tfm_context *)&hand;
  const tfm_context_options options = {.allocator = {.allocate = hook_allocate}};
  cr_expect_eq(tfm_library_context_new(model, &options, &context, &error), TFM_E_USAGE);
  cr_expect_null(context);
}

/* --- Pools and threads --------------------------------------------------------------------------------------------- */

typedef struct Caller {
  pthread_t thread;
  tfm_context *context;
  float y[ROWS * LINEAR_N];
  bool good;
} Caller;

static void *call(void *argument) {
  Caller *caller = argument;
  LinearArgs args = args_of(BATCH, TIME);
  args.y = caller->y;
  caller->good = true;
  for (int run = 0; run < 50 && caller->good; run++) {
    memset(caller->y, 0, sizeof caller->y);
    caller->good = tfm_library_forward(caller->context, &args, NULL) == TFM_OK &&
                   memcmp(caller->y, expected, sizeof expected) == 0;
  }
  return NULL;
}

Test(library, contexts_share_a_pool) {
  static Caller callers[4];
  tfm_pool *pool = NULL;
  cr_assert_eq(tfm_pool_create(3, &pool, &error), TFM_OK);
  const tfm_context_options options = {.struct_size = sizeof options, .pool = pool};
  for (int i = 0; i < 4; i++) callers[i].context = context_new(&options);
  cr_expect_eq(tfm_context_threads(callers[0].context), 3);
  for (int i = 0; i < 4; i++) cr_assert_eq(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
  for (int i = 0; i < 4; i++) pthread_join(callers[i].thread, NULL);
  for (int i = 0; i < 4; i++) cr_expect(callers[i].good);
  pid_t child = fork();
  if (child == 0) {
    call(&callers[0]);
    tfm_context_destroy(callers[0].context);
    tfm_pool_destroy(pool);
    _exit(callers[0].good ? 0 : 1);
  }
  int status = -1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (int i = 0; i < 4; i++) tfm_context_destroy(callers[i].context);
  tfm_pool_destroy(pool);
  tfm_pool_destroy(NULL);
  cr_expect_eq(tfm_pool_create(1, NULL, NULL), TFM_E_USAGE);
}

/* Kernels in place of the first, the copy of x, which do something while a run is under way. */
static tfm_context *running;
static tfm_row_kernel copy_kernel;
static tfm_status status_inside;

static void set_copy_kernel(tfm_row_kernel kernel) {
  void **place = &hand.hand.kernels[hand.hand.rows[0].kernel];
  memcpy(&copy_kernel, place, sizeof copy_kernel);
  memcpy(place, &kernel, sizeof kernel);
}

static void cancelling_copy(const tfm_row_args *args) {
  tfm_context_cancel(running);
  copy_kernel(args);
}

static void nested_copy(const tfm_row_args *args) {
  const LinearArgs own = args_of(1, 1);
  status_inside = tfm_library_forward(running, &own, NULL);
  copy_kernel(args);
}

Test(library, a_run_can_be_cancelled_until_it_writes_outputs) {
  for (int32_t threads = 1; threads <= 3; threads++) {
    running = context_of(threads);
    tfm_context_cancel(running);
    runs(running); /* no run was under way */
    set_copy_kernel(cancelling_copy);
    const LinearArgs args = args_of(BATCH, TIME);
    for (int i = 0; i < 20; i++) gives(running, &args, TFM_E_CANCELLED, "cancelled");
    set_copy_kernel(copy_kernel);
    for (int i = 0; i < 20; i++) runs(running);
    tfm_context_destroy(running);
  }
  tfm_context_cancel(NULL);
}

Test(library, a_context_in_use_refuses_a_second_caller) {
  running = context_of(1);
  set_copy_kernel(nested_copy);
  runs(running);
  cr_expect_eq(status_inside, TFM_E_USAGE);
  tfm_context_destroy(running);
}

/* A debatable order, but one that programs have: the model is closed while contexts of it exist. */
Test(library, H09_a_model_ends_with_its_last_context) {
  tfm_context *first = context_of(1), *second = context_of(2);
  tfm_model_close(model);
  runs(first);
  tfm_context_destroy(first);
  runs(second);
  cr_assert_eq(tfm_library_open(&hand.library, NULL, &model, &error), TFM_OK);
  runs(second);
  tfm_context_destroy(second);
}

/* --- The stack ----------------------------------------------------------------------------------------------------- */

enum { STACK = 64 << 10, MOST_STACK = 16 << 10 };

static void *nothing(void *argument) { return argument; }

/* How much of a painted stack a thread used. */
static size_t stack_used(void *(*function)(void *), void *argument) {
  static _Alignas(4096) unsigned char stack[STACK];
  memset(stack, 0xa5, sizeof stack);
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  cr_assert_eq(pthread_attr_setstack(&attributes, stack, sizeof stack), 0);
  cr_assert_eq(pthread_create(&thread, &attributes, function, argument), 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
  size_t untouched = 0;
  while (untouched < sizeof stack && stack[untouched] == 0xa5) untouched++;
  return sizeof stack - untouched;
}

static void *call_once(void *argument) {
  Caller *caller = argument;
  LinearArgs args = args_of(BATCH, TIME);
  args.y = caller->y;
  caller->good = tfm_library_forward(caller->context, &args, NULL) == TFM_OK;
  return NULL;
}

Test(library, a_run_needs_little_stack) {
  static Caller caller;
  caller.context = context_of(2);
  size_t before = stack_used(nothing, NULL), used = stack_used(call_once, &caller);
  cr_expect(caller.good);
#if !defined(__SANITIZE_ADDRESS__)
  cr_expect_lt(used - before, MOST_STACK, "%zu bytes", used - before);
#endif
  tfm_context_destroy(caller.context);
}
