/* The letters of library_functions.def and kernels.def, which a library's functions and kernels are emitted by, against
 * the parameters that headers declare; and kernels have one type where they are defined and where a table of a library
 * names them. x86-64 and AArch64 pass pointers and 64-bit numbers alike; a machine that does not (WebAssembly)
 * refuses a call whose letters are in another order. */
#include <stdio.h>
#include <string.h>

#include "../support/compiled_graph.h"
#include "aot/emit_program.h"
#include "kernels/kernel_module.h"

TestSuite(function_letters, .init = setup, .fini = teardown);

typedef struct Row {
  const char *suffix, *parameters, *letters;
} Row;

static const Row rows[] = {
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) {#suffix, parameters, arguments},
#include "aot/library_functions.def"
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) {#suffix, parameters, arguments},
#include "aot/module_functions.def"
};

enum { N_ROWS = sizeof rows / sizeof *rows, MOST_LETTERS = 16 };

/* p, w or i for each parameter of a declaration; letters: room for MOST_LETTERS. */
static void letters_of(const char *parameters, char *letters) {
  size_t n = 0;
  while (strcmp(parameters, "void") != 0 && *parameters && n + 1 < MOST_LETTERS) {
    parameters += strspn(parameters, " \n");
    const bool is_pointer = memchr(parameters, '*', strcspn(parameters, ",")) != NULL;
    const bool is_word = strncmp(parameters, "int32_t ", 8) == 0;
    const bool is_wide = strncmp(parameters, "int64_t ", 8) == 0 || strncmp(parameters, "uint64_t ", 9) == 0;
    letters[n++] = is_pointer ? 'p' : is_word ? 'w' : is_wide ? 'i' : '?';
    parameters += strcspn(parameters, ",");
    parameters += *parameters == ',';
  }
  letters[n] = '\0';
}

Test(function_letters, are_those_of_the_declared_parameters) {
  cr_assert_gt(N_ROWS, 20);
  for (size_t i = 0; i < N_ROWS; i++) {
    char letters[MOST_LETTERS];
    letters_of(rows[i].parameters, letters);
    cr_expect_str_eq(rows[i].letters, letters, "%s(%s): letters %s, not %s", rows[i].suffix, rows[i].parameters,
                     rows[i].letters, letters);
  }
}

// ---- kernels ----

static char *header_of_kernels(void) {
  static const char *const names[] = {"kernels.h", "state_kernels.h"};
  enum { MOST = 1 << 16 };
  char *text = arena_alloc(arena, MOST);
  size_t length = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    FILE *file = fopen(arena_printf(arena, TFM_SOURCE_DIR "/runtime/include/tfm/abi/%s", names[i]), "r");
    cr_assert(file);
    length += fread(text + length, 1, MOST - 1 - length, file);
    fclose(file);
  }
  text[length] = '\0';
  return text;
}

/* Of `typedef RESULT (*NAME)(PARAMETERS);`: v or w for the result, then the parameters. */
static void letters_of_type(const char *header, const char *name, char *letters) {
  const char *at = strstr(header, arena_printf(arena, "(*%s)(", name));
  cr_assert(at, "%s", name);
  const char *parameters = strchr(at + 2, '(') + 1;
  letters[0] = strncmp(at - 5, "void ", 5) == 0 ? 'v' : strncmp(at - 8, "int32_t ", 8) == 0 ? 'w' : '?';
  letters_of(arena_printf(arena, "%.*s", (int)strcspn(parameters, ")"), parameters), letters + 1);
}

Test(function_letters, of_kernels_are_those_of_their_types) {
  const char *header = header_of_kernels();
  for (size_t i = 0; i < N_KERNEL_FAMILIES; i++) {
    char letters[MOST_LETTERS + 1];
    letters_of_type(header, kernel_families[i].function, letters);
    cr_expect_str_eq(kernel_families[i].letters, letters, "%s: letters %s, not %s", kernel_families[i].function,
                     kernel_families[i].letters, letters);
  }
}

Test(function_letters, kernels_are_declared_with_the_type_they_are_defined_with) {
  const Plan *plan = planned(read_graph("graph G(sizes t) {\n  %0 = input \"x\" : f32[t, 64]\n"
                                        "  %1 = weight \"w\" : f32[64, 64]\n"
                                        "  %2 = linear %0, %1, form=int8 : f32[t, 64]\n"
                                        "  %3 = attention %2, %2, %2 : f32[t, 64]\n  output y = %3\n}\n"),
                             "x86-64-v3");
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef defined = kernels_module(context, plan);
  LLVMModuleRef tables = LLVMModuleCreateWithNameInContext("tables", context);
  PackedTables packed = packed_tables_new(arena);
  emit_program(&packed, 0, plan, &(ProgramFunctions){tables, "", plan_drivers(plan)});
  cr_assert_gt(plan->kernels.n, 3);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    const char *name = plan->kernels.items[i].name;
    const LLVMValueRef of_kernel = LLVMGetNamedFunction(defined, name), of_table = LLVMGetNamedFunction(tables, name);
    cr_assert(of_kernel && of_table, "%s", name);
    cr_expect_eq(LLVMGlobalGetValueType(of_kernel), LLVMGlobalGetValueType(of_table), "%s", name);
  }
  LLVMDisposeModule(tables);
  LLVMDisposeModule(defined);
  LLVMContextDispose(context);
}
