/* Golden cases of the passes: every file tests/golden/<pass>/<name>.case, without registration.
 *
 *   --- run: opt --only=fuse-qkv
 *   --- input
 *   graph ... { ... }
 *   --- expect              the graph afterwards; or
 *   --- expect-error        lines that messages must contain
 *   --- log                 may be left out: what was fused and refused, "fused qkv: reason", "refused qkv: reason"
 *
 * A case is also computed before and after: the outputs must agree. `--- run: step` and `--- run: source` give that part
 * of the incremental form of a graph with a generate block; it must read back to the same text. TFM_UPDATE_GOLDEN=1
 * writes what came out into the files; refused where CI is set.
 *
 * The cases must also raise every row of fusions.def and every sentence that the passes and the incremental form can
 * write to the log: a fusion or a refusal without a case fails. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "../support/elaborate_text.h"
#include "../support/same_values.h"
#include "incremental/incremental.h"

typedef struct Case {
  const char *path;
  const char *run;     /* "opt --only=...", "step" or "source" */
  const char *options; /* of opt */
  char *input, *expect, *error, *log; /* NULL: no such section */
} Case;

static Arena *arena;

static VEC(const char *) said;    /* by the cases: the text of each record, reason and message, and of each graph */
static bool is_done[N_FUSIONS];   /* whether a case did it */

static void setup(void) { arena = arena_create(); }
static void teardown(void) { arena_destroy(arena); }
TestSuite(golden, .init = setup, .fini = teardown);

static bool updating(void) { return getenv("TFM_UPDATE_GOLDEN") && !getenv("CI"); }

// ---- files ----

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

typedef VEC(const char *) Names;

static Names entries(const char *folder, const char *suffix) {
  Names names = {0};
  DIR *dir = opendir(folder);
  if (!dir) return names;
  for (struct dirent *entry; (entry = readdir(dir));) {
    size_t length = strlen(entry->d_name), end = strlen(suffix);
    if (entry->d_name[0] != '.' && length > end && !strcmp(entry->d_name + length - end, suffix))
      vec_push(arena, &names, arena_printf(arena, "%s/%s", folder, entry->d_name));
  }
  closedir(dir);
  if (names.n) qsort(names.items, names.n, sizeof *names.items, by_name);
  return names;
}

// ---- cases ----

static char **section_of(Case *c, const char *name) {
  if (!strcmp(name, "input")) return &c->input;
  if (!strcmp(name, "expect")) return &c->expect;
  if (!strcmp(name, "expect-error")) return &c->error;
  if (!strcmp(name, "log")) return &c->log;
  return NULL;
}

static Case read_case(const char *path) {
  Case c = {.path = path, .run = "opt", .options = ""};
  StrBuf *text = NULL, buffers[8];
  char **section = NULL;
  unsigned n = 0;
  for (char *line = read_text(arena, path), *next; line && *line; line = next) {
    char *end = strchr(line, '\n');
    next = end ? end + 1 : NULL;
    if (end) *end = 0;
    if (!strncmp(line, "--- run: ", 9)) {
      c.run = line + 9;
      if (!strncmp(c.run, "opt", 3)) c.options = c.run + 3;
    } else if (!strncmp(line, "--- ", 4)) {
      section = section_of(&c, line + 4);
      cr_assert(section && n < 8, "%s: unknown section %s", path, line);
      text = &buffers[n++];
      *text = strbuf_new(arena);
      *section = text->text;
    } else if (text) {
      strbuf_add(text, line);
      strbuf_add_char(text, '\n');
      *section = text->text;
    }
  }
  cr_assert(c.input, "%s: no input", path);
  return c;
}

static const char **split(const char *list, uint32_t *n) {
  Names names = {0};
  char *rest = arena_strdup(arena, list);
  for (char *name; (name = strtok_r(rest, ",", &rest));) vec_push(arena, &names, name);
  *n = (uint32_t)names.n;
  return names.items;
}

static PassOptions read_options(const Case *c) {
  PassOptions options = {.level = 2, .verify_each = true};
  char *rest = arena_strdup(arena, c->options);
  for (char *word; (word = strtok_r(rest, " ", &rest));) {
    if (!strncmp(word, "--only=", 7)) options.only = split(word + 7, &options.n_only);
    else if (!strncmp(word, "--disable=", 10)) options.disabled = split(word + 10, &options.n_disabled);
    else if (!strncmp(word, "--stop-after=", 13)) options.stop_after = word + 13;
    else if (!strncmp(word, "-O", 2)) options.level = atoi(word + 2);
    else cr_assert_fail("%s: unknown option %s", c->path, word);
  }
  return options;
}

static const char *log_text(const PassLog *log) {
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < log->records.n; i++) {
    const FusionRecord *record = &log->records.items[i];
    strbuf_printf(&out, "%s %s: %s\n", record->done ? "fused" : "refused", fusion_table[record->fusion].name, record->reason);
  }
  return out.text;
}

static void remember(const char *text) { vec_push(arena, &said, text); }

static void remember_log(const PassLog *log) {
  for (size_t i = 0; i < log->records.n; i++) {
    remember(log->records.items[i].reason);
    is_done[log->records.items[i].fusion] |= log->records.items[i].done;
  }
}

static void rewrite(const Case *c, const char *expect, const char *log) {
  FILE *file = fopen(c->path, "wb");
  cr_assert_not_null(file, "%s", c->path);
  fprintf(file, "--- run: %s\n--- input\n%s--- expect\n%s", c->run, c->input, expect);
  if (c->log) fprintf(file, "--- log\n%s", log);
  fclose(file);
}

// ---- checks ----

static bool complain(const Case *c, const char *what, const char *want, const char *got) {
  fprintf(stderr, "%s: %s\nexpected:\n%s\ncame out:\n%s\n", c->path, what, want, got);
  return false;
}

static const char *messages(const Diag *diag) {
  StrBuf out = strbuf_new(arena);
  for (size_t i = 0; i < diag->messages.n; i++) {
    strbuf_add(&out, diag->messages.items[i].text);
    strbuf_add_char(&out, '\n');
  }
  return out.text;
}

static bool has_errors(const Case *c, const char *got) {
  char *rest = arena_strdup(arena, c->error);
  for (char *line; (line = strtok_r(rest, "\n", &rest));)
    if (!strstr(got, line)) return complain(c, "another message", c->error, got);
  return *got || complain(c, "no error", c->error, got);
}

static bool check_text(const Case *c, const StrBuf *text, const PassLog *log) {
  if (updating()) {
    rewrite(c, text->text, log_text(log));
    return true;
  }
  if (!c->expect || strcmp(c->expect, text->text) != 0)
    return complain(c, "another graph (TFM_UPDATE_GOLDEN=1 rewrites)", c->expect ? c->expect : "", text->text);
  if (c->log && strcmp(c->log, log_text(log)) != 0) return complain(c, "another log", c->log, log_text(log));
  return true;
}

static bool check_result(const Case *c, Graph *before, Graph *after, const PassLog *log) {
  StrBuf text = strbuf_new(arena);
  graph_print(&text, after);
  if (!same_values(arena, before, after)) return complain(c, "other values", c->input, text.text);
  return check_text(c, &text, log);
}

static bool check_part(const Case *c, Diag *diag, const Graph *graph) {
  PassLog log = {.arena = arena};
  StrBuf text = strbuf_new(arena), again = strbuf_new(arena);
  const Incremental parts = incremental_derive(arena, diag, graph, &log);
  Graph *part = strcmp(c->run, "step") ? parts.encoder : parts.step;
  remember_log(&log);
  if (parts.reason) remember(parts.reason);
  if (c->error) return has_errors(c, parts.reason ? parts.reason : "");
  if (!part) return complain(c, "no such part", "", parts.reason ? parts.reason : "");
  graph_print(&text, part);
  remember(text.text);
  Graph *read = graph_read(arena, diag, source_new(arena, c->path, text.text, (uint32_t)text.length));
  if (!read || !graph_verify(read, diag)) return complain(c, "it cannot be read back", text.text, messages(diag));
  graph_print(&again, read);
  if (strcmp(text.text, again.text) != 0) return complain(c, "it reads back as another", text.text, again.text);
  return check_text(c, &text, &log);
}

static bool run_case(const char *path) {
  Case c = read_case(path);
  Diag diag = diag_new(arena);
  Source *source = source_new(arena, path, c.input, (uint32_t)strlen(c.input));
  Graph *before = graph_read(arena, &diag, source);
  bool good = before && graph_verify(before, &diag);
  if (good && strncmp(c.run, "opt", 3) != 0) return check_part(&c, &diag, before);
  PassLog log = {.arena = arena};
  PassOptions options = read_options(&c);
  Graph *after = good ? graph_clone(arena, before) : NULL;
  good = good && passes_run(after, &diag, &options, &log);
  remember_log(&log);
  if (c.error) return has_errors(&c, messages(&diag));
  if (before) graph_make_uniform(before);
  return good ? check_result(&c, before, after, &log) : complain(&c, "errors", "none", messages(&diag));
}

// ---- what the sources can say ----

/* A string of a C source at *at, with those that follow it directly, as the compiler sees it; *at is moved past it. */
static const char *c_string(const char **at) {
  StrBuf out = strbuf_new(arena);
  const char *p = *at;
  while (*p == '"') {
    for (p++; *p != '"'; p++) {
      if (*p == '\\') p++;
      strbuf_add_char(&out, *p);
    }
    *at = ++p;
    while (isspace((unsigned char)*p)) p++;
  }
  return out.text;
}

/* Past a comment, a line of the preprocessor, a character or an internal error, which no user reads; NULL: none begins
 * here. */
static const char *past_other_text(const char *p) {
  if (!strncmp(p, "/*", 2)) return strstr(p, "*/") + 2;
  if (!strncmp(p, "//", 2) || *p == '#') return strchr(p, '\n');
  if (!strncmp(p, "CHECK(", 6)) return strchr(p, ';');
  return *p == '\'' ? strchr(p + (p[1] == '\\' ? 3 : 2), '\'') + 1 : NULL;
}

static bool is_sentence(const char *text) {
  for (; *text; text++)
    if (isalpha((unsigned char)text[0]) && text[1] == ' ' && isalpha((unsigned char)text[2])) return true;
  return false;
}

/* Whether the parts of a format between its conversions occur in the text in this order. */
static bool could_be(const char *text, const char *format) {
  while (*format) {
    size_t n = strcspn(format, "%");
    const char *part = arena_printf(arena, "%.*s", (int)n, format);
    text = strstr(text, part);
    if (!text) return false;
    text += n;
    format += n;
    if (*format) format += strcspn(format, "sdugx") + 1;
  }
  return true;
}

static bool is_said(const char *format) {
  for (size_t i = 0; i < said.n; i++)
    if (could_be(said.items[i], format)) return true;
  return false;
}

/* How many sentences of a source no case makes it say. */
static unsigned count_unsaid(const char *path) {
  unsigned n = 0;
  for (const char *p = read_text(arena, path), *past; *p;) {
    if ((past = past_other_text(p))) {
      p = past;
    } else if (*p == '"') {
      const char *text = c_string(&p);
      if (!is_sentence(text) || is_said(text)) continue;
      fprintf(stderr, "%s: no case in tests/golden raises \"%s\"\n", path, text);
      n++;
    } else {
      p++;
    }
  }
  return n;
}

/* The manager and the report speak to the command line, and what differentiates to the author of a model; their messages
 * are tested there (of the latter in tests/e2e/test_train.py). */
static bool speaks_to_the_log(const char *path) {
  return !strstr(path, "passes/manager.c") && !strstr(path, "passes/pass.c") && !strstr(path, "passes/differentiate");
}

static void expect_all_said(void) {
  static const char *const folders[] = {"/compiler/passes", "/compiler/incremental"};
  unsigned unsaid = 0;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    const Names files = entries(arena_printf(arena, "%s%s", TFM_SOURCE_DIR, folders[i]), ".c");
    cr_assert(files.n > 0, "no sources in %s", folders[i]);
    for (size_t j = 0; j < files.n; j++)
      if (speaks_to_the_log(files.items[j])) unsaid += count_unsaid(files.items[j]);
  }
  cr_expect_eq(unsaid, 0, "%u sentences have no case", unsaid);
  for (int i = 0; i < N_FUSIONS; i++) cr_expect(is_done[i], "no case does the fusion %s", fusion_table[i].name);
}

Test(golden, passes) {
  Names folders = entries(TFM_SOURCE_DIR "/tests/golden", "");
  unsigned n = 0, failed = 0;
  for (size_t i = 0; i < folders.n; i++) {
    Names cases = entries(folders.items[i], ".case");
    for (size_t j = 0; j < cases.n; j++, n++) failed += !run_case(cases.items[j]);
  }
  cr_assert(n > 0, "no cases in tests/golden");
  cr_assert_eq(failed, 0, "%u of %u cases failed", failed, n);
  expect_all_said();
}
