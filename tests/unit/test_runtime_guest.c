/* The runtime as a guest in a process: how it allocates, what it does when it gets no memory, what it leaves of the
 * floating-point environment, what happens after fork(). Linked with --wrap for the functions that allocate. */
#include <criterion/criterion.h>
#include <fenv.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "counted_allocations.h"
#include "hand_models.h"

/* --- A model ------------------------------------------------------------------------------------------------------- */

enum { MOST_ROWS = 60 };

static HandProgram hand;
static float x[MOST_ROWS * LINEAR_K], r[MOST_ROWS * LINEAR_N], y[MOST_ROWS * LINEAR_N];
static _Alignas(64) float packed[24 * LINEAR_K];
static int32_t ids[MOST_ROWS];

static void open_model(void) {
  hand_linear(&hand);
  hand_fill(packed, hand_linear_weight_floats(), 1);
  hand_fill(x, MOST_ROWS * LINEAR_K, 2);
  hand_fill(r, MOST_ROWS * LINEAR_N, 3);
}

static tfm_context *context_new(int32_t threads) {
  tfm_context *context = NULL;
  const tfm_context_options options = {.struct_size = sizeof options, .threads = threads};
  tfm_context_create(&hand.program, packed, &options, &context, NULL);
  return context;
}

static tfm_status run_rows(tfm_context *context, int64_t rows) {
  const int64_t x_dims[] = {1, rows, LINEAR_K}, r_dims[] = {rows, LINEAR_N}, ids_dims[] = {1, rows};
  const tfm_value inputs[] = {{x, TFM_F32, 3, x_dims}, {r, TFM_F32, 2, r_dims}, {ids, TFM_I32, 2, ids_dims}};
  const tfm_value outputs[] = {{y, TFM_F32, 3, NULL}};
  tfm_status status = tfm_context_bind(context, inputs, NULL);
  return status ? status : tfm_context_run(context, inputs, outputs, NULL);
}

/* --- Tests --------------------------------------------------------------------------------------------------------- */

Test(runtime_guest, runs_within_the_capacity_allocate_nothing) {
  open_model();
  for (int32_t threads = 1; threads <= 3; threads++) {
    tfm_context *context = context_new(threads);
    cr_assert_eq(run_rows(context, MOST_ROWS), TFM_OK);
    long before = atomic_load(&n_allocations);
    for (int64_t rows = 0; rows <= MOST_ROWS; rows++) cr_assert_eq(run_rows(context, rows), TFM_OK);
    cr_expect_eq(atomic_load(&n_allocations), before);
    tfm_context_destroy(context);
  }
}

Test(runtime_guest, every_allocation_may_fail) {
  open_model();
  bool created = false;
  for (long n = 0; !created; n++) {
    atomic_store(&failing, atomic_load(&n_allocations) + n);
    tfm_context *context = NULL;
    tfm_error error;
    tfm_status status = tfm_context_create(&hand.program, packed, NULL, &context, &error);
    atomic_store(&failing, -1);
    created = status == TFM_OK;
    cr_assert(created || (status == TFM_E_NOMEM && error.status == status && !context));
    tfm_context_destroy(context);
    cr_assert_lt(n, 100);
  }
}

Test(runtime_guest, no_memory_for_the_workspace_leaves_the_context_usable) {
  open_model();
  tfm_context *context = context_new(2);
  cr_assert_eq(run_rows(context, 2), TFM_OK);
  atomic_store(&failing, atomic_load(&n_allocations));
  cr_expect_eq(run_rows(context, MOST_ROWS), TFM_E_NOMEM);
  atomic_store(&failing, -1);
  cr_expect_eq(run_rows(context, 2), TFM_OK);
  cr_expect_eq(run_rows(context, MOST_ROWS), TFM_OK);
  tfm_context_destroy(context);
}

Test(runtime_guest, a_run_without_rows_needs_nothing_of_a_plan_that_was_refused) {
  open_model();
  tfm_context *context = context_new(2);
  cr_assert_eq(run_rows(context, 2), TFM_OK);
  atomic_store(&failing, atomic_load(&n_allocations));
  cr_assert_eq(run_rows(context, MOST_ROWS), TFM_E_NOMEM);
  atomic_store(&failing, atomic_load(&n_allocations)); /* the workspace for 2 rows is room enough */
  cr_expect_eq(run_rows(context, 0), TFM_OK);
  cr_expect_eq(run_rows(context, 2), TFM_OK);
  atomic_store(&failing, -1);
  tfm_context_destroy(context);
}

Test(runtime_guest, the_floating_point_environment_is_the_callers) {
  open_model();
  tfm_context *context = context_new(2);
  cr_assert_eq(run_rows(context, MOST_ROWS), TFM_OK);
  float expected[MOST_ROWS * LINEAR_N];
  memcpy(expected, y, sizeof y);
  fesetround(FE_UPWARD);
  cr_assert_eq(run_rows(context, MOST_ROWS), TFM_OK);
  int rounding = fegetround();
  fesetround(FE_TONEAREST);
  cr_expect_eq(rounding, FE_UPWARD);
  cr_expect_arr_eq(expected, y, sizeof y, "numbers depend on the caller's rounding");
  tfm_context_destroy(context);
}

Test(runtime_guest, a_child_of_fork_can_run_and_destroy) {
  open_model();
  tfm_context *context = context_new(3);
  cr_assert_eq(run_rows(context, MOST_ROWS), TFM_OK);
  static float expected[MOST_ROWS * LINEAR_N];
  memcpy(expected, y, sizeof y);
  pid_t child = fork();
  if (child == 0) {
    memset(y, 0, sizeof y);
    bool good = run_rows(context, MOST_ROWS) == TFM_OK && memcmp(expected, y, sizeof y) == 0;
    tfm_context_destroy(context);
    _exit(good ? 0 : 1);
  }
  int status = -1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  cr_expect_eq(run_rows(context, MOST_ROWS), TFM_OK);
  tfm_context_destroy(context);
}

Test(runtime_guest, threads_come_from_the_environment) {
  open_model();
  setenv("TFM_NUM_THREADS", "3", 1);
  setenv("TFM_SPIN_US", "0", 1);
  tfm_context *context = NULL;
  cr_assert_eq(tfm_context_create(&hand.program, packed, NULL, &context, NULL), TFM_OK);
  cr_expect_eq(tfm_context_threads(context), 3);
  for (int i = 0; i < 50; i++) cr_assert_eq(run_rows(context, MOST_ROWS), TFM_OK);
  tfm_context_destroy(context);
  unsetenv("TFM_NUM_THREADS");
  cr_assert_eq(tfm_context_create(&hand.program, packed, NULL, &context, NULL), TFM_OK);
  cr_expect_geq(tfm_context_threads(context), 1);
  tfm_context_destroy(context);
}
