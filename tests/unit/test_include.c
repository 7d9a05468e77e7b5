/* Programs of several files: order, cycles, depth, and what may not be read. Each test has a folder of its own. */
#define _XOPEN_SOURCE 700 /* mkdtemp, nftw */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/compiled_graph.h"
#include "../support/temporary.h"

static char folder[TEMPORARY_BYTES];

static void setup_folder(void) {
  setup();
  cr_assert(mkdtemp(temporary_name(folder, "tfm-include")) != NULL);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *walk) {
  (void)status, (void)kind, (void)walk;
  return remove(path);
}

static void teardown_folder(void) {
  nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  teardown();
}
TestSuite(include, .init = setup_folder, .fini = teardown_folder);

static const char *path_of(const char *name) { return arena_printf(arena, "%s/%s", folder, name); }

static void write_file(const char *name, const char *text) {
  FILE *file = fopen(path_of(name), "wb");
  cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void make_folder(const char *name) { cr_assert(mkdir(path_of(name), 0700) == 0); }

/* The names of the files in their order, without the folder of the test. */
static void expect_order(const char *main, const char *want) {
  ParsedProgram *program = parse_program(arena, &interned, &diag, path_of(main));
  cr_assert(program, "%s", messages());
  StrBuf got = strbuf_new(arena);
  for (size_t i = 0; i < program->files.n; i++) {
    const ParsedFile *file = &program->files.items[i];
    strbuf_printf(&got, "%s%s ", file->source->path + strlen(folder) + 1, file->is_main ? "!" : "");
  }
  cr_expect(strcmp(got.text, want) == 0, "got '%s', want '%s'", got.text, want);
}

/* One error with this code, whose text contains `part`. */
static void expect_error(const char *path, DiagCode code, int exit_code, const char *part) {
  cr_expect(!parse_program(arena, &interned, &diag, path));
  cr_assert(diag.messages.n == 1, "%s", messages());
  const DiagMessage *message = &diag.messages.items[0];
  cr_expect(message->code == code && diag.exit_code == exit_code && strstr(message->text, part), "%s", messages());
  diag = diag_new(arena);
}

static void expect_include_error(const char *path, const char *part) {
  write_file("main.tfm", arena_printf(arena, "include \"%s\" model M { }", path));
  expect_error(path_of("main.tfm"), DIAG_INCLUDE, 1, part);
}

// ---- what is read ----

Test(include, included_files_come_first_and_once) {
  make_folder("parts");
  make_folder("parts/common");
  write_file("main.tfm", "include \"parts/a.tfm\" include \"./parts//common/b.tfm\" model M { }");
  write_file("parts/a.tfm", "include \"common/b.tfm\" include \"../c.tfm\" layer A { }");
  write_file("parts/common/b.tfm", "layer B { }");
  write_file("c.tfm", "layer C { }");
  expect_order("main.tfm", "parts/common/b.tfm c.tfm parts/a.tfm main.tfm! ");
}

/* Only `.` and `..` are more than names. */
Test(include, short_and_hidden_names) {
  make_folder("m");
  make_folder(".parts");
  write_file("main.tfm", "include \"m/a.tfm\" include \".parts/.b.tfm\" include \"./c\" model M { }");
  write_file("m/a.tfm", "layer A { }");
  write_file(".parts/.b.tfm", "layer B { }");
  write_file("c", "layer C { }");
  expect_order("main.tfm", "m/a.tfm .parts/.b.tfm c main.tfm! ");
}

Test(include, a_link_inside_the_folder_is_the_same_file) {
  write_file("main.tfm", "include \"a.tfm\" include \"b.tfm\" model M { }");
  write_file("a.tfm", "layer A { }");
  cr_assert(symlink("a.tfm", path_of("b.tfm")) == 0);
  expect_order("main.tfm", "a.tfm main.tfm! ");
}

Test(include, the_main_file_may_be_named_without_folder) {
  write_file("main.tfm", "include \"a.tfm\" model M { }");
  write_file("a.tfm", "layer A { }");
  cr_assert(chdir(folder) == 0);
  ParsedProgram *program = parse_program(arena, &interned, &diag, "main.tfm");
  cr_assert(program && program->files.n == 2, "%s", messages());
  cr_expect_str_eq(program->files.items[0].source->path, "a.tfm");
}

static void write_chain(unsigned n) {
  for (unsigned i = 1; i < n; i++)
    write_file(arena_printf(arena, "%u.tfm", i), arena_printf(arena, "include \"%u.tfm\"", i + 1));
  write_file(arena_printf(arena, "%u.tfm", n), "layer A { }");
}

Test(include, depth_at_the_limit) {
  write_chain(32);
  cr_expect(parse_program(arena, &interned, &diag, path_of("1.tfm")), "%s", messages());
}

Test(include, depth_over_the_limit) {
  write_chain(33);
  expect_error(path_of("1.tfm"), DIAG_INCLUDE, 1, "more than 32 files deep");
}

// ---- what is refused ----

Test(include, D19_cycles) {
  write_file("main.tfm", "include \"a.tfm\"");
  write_file("a.tfm", "include \"b.tfm\"");
  write_file("b.tfm", "include \"a.tfm\"");
  const char *a = path_of("a.tfm"), *b = path_of("b.tfm");
  expect_error(path_of("main.tfm"), DIAG_INCLUDE, 1, arena_printf(arena, "include cycle: %s -> %s -> %s", a, b, a));
  write_file("main.tfm", "include \"main.tfm\"");
  expect_error(path_of("main.tfm"), DIAG_INCLUDE, 1, "include cycle: ");
}

Test(include, D20_only_files_below_the_folder) {
  expect_include_error("../x.tfm", "outside the folder");
  expect_include_error("a/../../x.tfm", "outside the folder");
  expect_include_error("/etc/passwd", "must be relative");
  cr_assert(symlink("/etc/passwd", path_of("link.tfm")) == 0);
  expect_include_error("link.tfm", "outside the folder");
  cr_assert(symlink("/etc", path_of("etc")) == 0);
  expect_include_error("etc/passwd", "outside the folder");
  cr_assert(symlink("loop.tfm", path_of("loop.tfm")) == 0);
  expect_include_error("loop.tfm", "symbolic links");
}

Test(include, D20_only_regular_files) {
  make_folder("folder");
  expect_include_error("folder", "Is a directory");
  cr_assert(mkfifo(path_of("fifo"), 0600) == 0);
  expect_include_error("fifo", "Not a regular file");
  expect_include_error("absent.tfm", "No such file or directory");
  expect_include_error("", "");
}

Test(include, D30_a_main_file_that_cannot_be_read) {
  expect_error(path_of("absent.tfm"), DIAG_FILE, 3, "No such file or directory");
  expect_error(folder, DIAG_FILE, 3, "Is a directory");
  cr_assert(mkfifo(path_of("fifo"), 0600) == 0);
  expect_error(path_of("fifo"), DIAG_FILE, 3, "Not a regular file");
  expect_error("/dev/zero", DIAG_FILE, 3, "Not a regular file");
  expect_error("", DIAG_FILE, 3, "No such file or directory");
}

Test(include, D08_a_file_of_2_GiB_is_refused_unread) {
  write_file("big.tfm", "");
  cr_assert(truncate(path_of("big.tfm"), (off_t)2 * 1024 * 1024 * 1024 + 1) == 0);
  expect_error(path_of("big.tfm"), DIAG_TOO_LONG, 1, "16 MiB");
}

Test(include, faults_in_several_files) {
  write_file("main.tfm", "include \"a.tfm\" include \"b.tfm\" include \"c.tfm\" model M { }");
  write_file("a.tfm", "layer A { x = ) }");
  write_file("b.tfm", "layer B {\n  y = 1 +\n}");
  cr_expect(!parse_program(arena, &interned, &diag, path_of("main.tfm")));
  cr_assert(diag.n_errors == 3, "%s", messages());
  cr_expect(
      strstr(messages(), "a.tfm:1:15:") && strstr(messages(), "b.tfm:3:1:") && strstr(messages(), "main.tfm:1:33:"),
      "%s", messages());
}

Test(include, a_text_in_memory_includes_nothing) {
  const char *text = "include \"a.tfm\" model M { }";
  cr_expect(!parse_text(arena, &interned, &diag, "memory", text, strlen(text)));
  cr_expect(diag.messages.n == 1 && diag.messages.items[0].code == DIAG_INCLUDE, "%s", messages());
}
