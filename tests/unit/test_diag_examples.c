/* Every row of diag_codes.def is raised: its example runs as it is printed, and tfmc must answer with that code, no
 * other, and with the row's exit code. A row whose example raises something else fails, so no code lacks a test.
 *
 * The one exception is the CPU: which instruction sets it lacks is not ours to choose, so that code is raised by a
 * target that no CPU satisfies. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "../support/compiled_graph.h"
#include "../support/temporary.h"
#include "jit/jit.h"

TestSuite(diag_examples, .init = setup, .fini = teardown);

// ---- what an example says ----

static void write_file(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  cr_assert_not_null(file, "%s", path);
  cr_assert(fputs(text, file) >= 0 && fclose(file) == 0, "%s", path);
}

/* All that the example prints, in a folder of its own, with the tfmc that was built. */
static char *run(const char *folder, const DiagInfo *row, int *exit_code) {
  const char *bin = arena_strndup(arena, TFMC, (size_t)(strrchr(TFMC, '/') - TFMC));
  if (row->model[0]) write_file(arena_printf(arena, "%s/model.tfm", folder), row->model);
  const char *set_up = arena_printf(arena, "exec 2>&1; cd %s; export PATH=%s:$PATH TFM_CACHE_DIR=", folder, bin);
  const char *script = arena_printf(arena, "%s; { %s\n}; status=$?; rm -rf %s; exit $status", set_up, row->command, folder);
  FILE *pipe = popen(script, "r");
  cr_assert_not_null(pipe);
  StrBuf said = strbuf_new(arena);
  char piece[4096];
  for (size_t n; (n = fread(piece, 1, sizeof piece, pipe)) > 0;) strbuf_add_n(&said, piece, n);
  int status = pclose(pipe);
  *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return said.text;
}

/* The "[E0101]" at the end of a message; NULL after the last one. */
static const char *next_id(const char *text) {
  while ((text = strchr(text, '[')) != NULL) {
    bool is_id = (text[1] == 'E' || text[1] == 'W') && strspn(text + 2, "0123456789") == 4 && text[6] == ']';
    if (is_id) return text + 1;
    text++;
  }
  return NULL;
}

static unsigned check_row(const DiagInfo *row) {
  char folder[TEMPORARY_BYTES];
  cr_assert_not_null(mkdtemp(temporary_name(folder, "tfm-diag")));
  int exit_code;
  const char *said = run(folder, row, &exit_code);
  unsigned n = 0, n_others = 0;
  for (const char *id = next_id(said); id; id = next_id(id)) {
    if (strncmp(id, row->id, strlen(row->id)) == 0) n++;
    else n_others++;
  }
  if (n && !n_others && exit_code == row->exit_code) return 0;
  fprintf(stderr, "%s: the example ends with %d and says\n%s\n", row->id, exit_code, said);
  return 1;
}

Test(diag_examples, raise_their_code) {
  unsigned n_failed = 0;
  for (int code = 0; code < N_DIAG_CODES; code++)
    if (code != DIAG_CPU) n_failed += check_row(&diag_table[code]);
  cr_expect_eq(n_failed, 0, "%u examples do not raise their code", n_failed);
}

Test(diag_examples, cpu) {
  Plan *plan = planned(optimized(elaborated(diag_table[DIAG_CPU].model), 2), "x86-64");
  TargetInfo target = *plan->target;
  target.features = UINT32_C(1) << 31; /* that no CPU has */
  plan->target = &target;
  cr_expect_null(jit_create(arena, &diag, plan, NULL, NULL));
  cr_assert_eq(diag.messages.n, 1);
  cr_expect_eq(diag.messages.items[0].code, DIAG_CPU);
  cr_expect_eq(diag.exit_code, diag_table[DIAG_CPU].exit_code);
}

// ---- what the table says ----

static bool is_sentence(const char *text) {
  size_t n = strlen(text);
  return n > 20 && (text[n - 1] == '.' || text[n - 1] == ')') && text[n - 2] != ' ';
}

Test(diag_examples, rows_are_whole) {
  for (int code = 0; code < N_DIAG_CODES; code++) {
    const DiagInfo *row = &diag_table[code];
    cr_expect_eq(row->id[0], row->severity == DIAG_ERROR ? 'E' : 'W', "%s", row->name);
    cr_expect_eq(row->severity == DIAG_WARNING, row->exit_code == 0, "%s", row->id);
    cr_expect(is_sentence(row->explanation) && is_sentence(row->cure) && row->line[0], "%s", row->id);
    cr_expect(code == 0 || strcmp(row->id + 1, diag_table[code - 1].id + 1) > 0, "%s: out of order", row->id);
  }
}
