/* What of the runtime a program has: what each of its steps is run by, and nothing else. */
#include "../support/compiled_graph.h"
#include "aot/emit_program.h"
#include "jit/jit.h"
#include "tfm/abi/drivers.h"

TestSuite(drivers, .init = setup, .fini = teardown);

/* The drivers for which a table has functions. */
static DriverSet drivers_in(const tfm_drivers *table) {
  DriverSet found = 0;
#define DRIVER(NAME, function) \
  if (table->of_step[TFM_DRIVER_##NAME].run) found |= driver_bit(TFM_DRIVER_##NAME);
#define SCRATCH_DRIVER(NAME, function, scratch) DRIVER(NAME, function)
#define PART(NAME, Type, member, function) \
  if (table->member) found |= driver_bit(TFM_DRIVER_##NAME);
#include "tfm/abi/drivers.def"
  return found;
}

/* The drivers of a graph by the function that chooses them, which are those of the program in memory too. */
static DriverSet drivers_on(const char *text, const char *target) {
  const Plan *plan = planned(read_graph(text), target);
  Jit *jit = jit_create(arena, &diag, plan, NULL, NULL);
  cr_assert(jit, "%s", fault());
  const DriverSet chosen = plan_drivers(plan);
  cr_expect_eq(drivers_in(jit_program(jit)->drivers), chosen);
  jit_destroy(jit);
  return chosen;
}
static DriverSet drivers_of(const char *text) { return drivers_on(text, "x86-64-v3"); }

#define ROWS "graph G(sizes n) {\n  %0 = input \"x\" : f32[n, 64]\n"

Test(drivers, programs_have_those_of_their_steps_alone) {
  cr_expect_eq(drivers_in(&tfm_all_drivers), driver_bit(TFM_ALL_DRIVERS) - 1);
  cr_expect_eq(drivers_of(ROWS "  %1 = pointwise %0, { exp($0) } : f32[n, 64]\n  output y = %1\n}\n"),
               driver_bit(TFM_DRIVER_ROW));
  cr_expect_eq(drivers_of(ROWS "  %1 = weight \"w\" : f32[32, 64]\n  %2 = linear %0, %1 : f32[n, 32]\n"
                               "  output y = %2\n}\n"),
               driver_bit(TFM_DRIVER_GEMM));
  const DriverSet of_chains = driver_bit(TFM_DRIVER_PLAN_CHAINS) | driver_bit(TFM_DRIVER_TAKE_CHAIN);
  cr_expect_eq(drivers_of(ROWS "  %1 = weight \"w\" : f32[32, 64]\n  %2 = linear %0, %1, form=int8 : f32[n, 32]\n"
                               "  output y = %2\n}\n"),
               driver_bit(TFM_DRIVER_QUANTIZE) | driver_bit(TFM_DRIVER_GEMM) | of_chains);
  cr_expect_eq(drivers_of(ROWS "  %1 = cumsum %0, axis=0 : f32[n, 64]\n  output y = %1\n}\n"),
               driver_bit(TFM_DRIVER_ALONG));
  cr_expect_eq(drivers_of(ROWS "  %1 = power %0, %0 : f32[n, 64]\n  output y = %1\n}\n"),
               driver_bit(TFM_DRIVER_ALONG_POWER));
  cr_expect_eq(drivers_of(ROWS "  %1 = topk %0, axis=1 : i32[n, 3]\n  output y = %1\n}\n"),
               driver_bit(TFM_DRIVER_ALONG_SELECT));
  cr_expect_eq(drivers_of(ROWS "  %1 = linear_attention %0, %0, %0 : f32[n, 64]\n  output y = %1\n}\n"),
               driver_bit(TFM_DRIVER_STATE));
}

/* Which of its two drivers a product of k columns has. */
static DriverSet driver_of_product(int k, const char *form) {
  const char *text = arena_printf(arena, "graph G(sizes n) {\n  %%0 = input \"x\" : f32[n, %d]\n"
                                  "  %%1 = weight \"w\" : f32[32, %d]\n  %%2 = linear %%0, %%1%s : f32[n, 32]\n"
                                  "  output y = %%2\n}\n", k, k, form);
  return drivers_of(text) & (driver_bit(TFM_DRIVER_GEMM) | driver_bit(TFM_DRIVER_GEMM_LONG));
}

/* Whole numbers are one chain, whatever k is. */
Test(drivers, products_of_a_long_k_add_up_chains) {
  cr_expect_eq(driver_of_product(16384, ""), driver_bit(TFM_DRIVER_GEMM));
  cr_expect_eq(driver_of_product(16400, ""), driver_bit(TFM_DRIVER_GEMM_LONG));
  cr_expect_eq(driver_of_product(16400, ", form=int8"), driver_bit(TFM_DRIVER_GEMM));
}

/* Tables of sines are filled by the function that is as wide as the vectors of the target. */
Test(drivers, tables_are_as_wide_as_vectors) {
  const char *text = "graph G(sizes n) {\n  %0 = input \"p\" : i32[n]\n"
                     "  %1 = sinusoid %0, base=10000.0, interleaved=true : f32[n, 8]\n  output y = %1\n}\n";
  const DriverSet table = driver_bit(TFM_DRIVER_TABLE);
  cr_expect_eq(drivers_on(text, "x86-64"), table | driver_bit(TFM_DRIVER_FILL_2));
  cr_expect_eq(drivers_on(text, "x86-64-v3"), table | driver_bit(TFM_DRIVER_FILL_4));
  for (const TargetInfo *target = targets; target->name; target++) {
    const Plan *plan = planned(read_graph(text), target->name);
    const bool is_wide = target->family == TFM_FAMILY_X86_64 && target->vector_floats == 16;
    cr_expect_eq(plan_drivers(plan) >> TFM_DRIVER_FILL_8 & 1, is_wide, "%s", target->name);
  }
}

#define HEADS                                                                                       \
  "graph G(sizes t) {\n  %0 = input \"q\" : f32[4, t, 64]\n  %1 = input \"k\" : f32[4, t, 64]\n"     \
  "  %2 = input \"v\" : f32[4, t, 64]\n"

Test(drivers, forms_of_attention_are_drivers_of_their_own) {
  cr_expect_eq(drivers_of(HEADS "  %3 = attention %0, %1, %2 : f32[4, t, 64]\n  output y = %3\n}\n"),
               driver_bit(TFM_DRIVER_ATTENTION));
  cr_expect_eq(drivers_of(HEADS "  %3 = attention %0, %1, %2, form=int8 : f32[4, t, 64]\n  output y = %3\n}\n"),
               driver_bit(TFM_DRIVER_ATTENTION_INT8));
}

/* Whether the text of a module has this function, and not only one whose name begins so. */
static bool names(const char *text, const char *function) {
  return strstr(text, arena_printf(arena, "@%s(", function)) != NULL;
}

/* What a library refers to decides what it is linked with. */
static void check_module(DriverSet needed) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("drivers", context);
  const Plan *plan = planned(read_graph(ROWS "  output y = %0\n}\n"), "x86-64");
  tfm_packed_tables made;
  Blob blob = blob_new(arena, module);
  emit_packed_program(&blob, 0, plan, &(ProgramFunctions){module, "", needed}, &made);
  char *text = LLVMPrintModuleToString(module);
#define DRIVER(NAME, function) \
  cr_expect_eq(names(text, #function), (needed >> TFM_DRIVER_##NAME & 1) != 0, #function " in %s", text);
#define SCRATCH_DRIVER(NAME, function, scratch) DRIVER(NAME, function)
#define PART(NAME, Type, member, function) DRIVER(NAME, function)
#include "tfm/abi/drivers.def"
#define DRIVER(NAME, function)
#define SCRATCH_DRIVER(NAME, function, scratch) \
  if (needed == driver_bit(TFM_DRIVER_##NAME)) cr_expect(names(text, #scratch), #scratch " in %s", text);
#define PART(NAME, Type, member, function)
#include "tfm/abi/drivers.def"
  LLVMDisposeMessage(text);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
}

Test(drivers, libraries_refer_to_those_that_are_needed) {
  check_module(0);
  for (uint32_t number = 0; number < TFM_ALL_DRIVERS; number++) check_module(driver_bit(number));
  check_module(driver_bit(TFM_ALL_DRIVERS) - 1);
}
