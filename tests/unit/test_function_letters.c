/* The letters of library_functions.def, which a library's own functions are emitted by, against the parameters that its
 * header declares. x86-64 and AArch64 pass pointers and 64-bit numbers alike; a machine that does not (WebAssembly)
 * refuses a call whose letters are in another order. */
#include <criterion/criterion.h>
#include <string.h>

typedef struct Row {
  const char *suffix, *parameters, *letters;
} Row;

static const Row rows[] = {
#define FUNCTION(suffix, runtime, kind, least, result, parameters, arguments, comment) {#suffix, parameters, arguments},
#include "aot/library_functions.def"
};

enum { N_ROWS = sizeof rows / sizeof *rows, MOST_LETTERS = 16 };

/* p, w or i for each parameter of a declaration. */
static void letters_of(const char *parameters, char letters[MOST_LETTERS]) {
  size_t n = 0;
  while (strcmp(parameters, "void") != 0 && *parameters && n + 1 < MOST_LETTERS) {
    parameters += strspn(parameters, " \n");
    const bool is_pointer = memchr(parameters, '*', strcspn(parameters, ","));
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
