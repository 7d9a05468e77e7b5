/* Errors: every file tests/errors/<name>.tfm, without registration, gives the messages that its comments say and no
 * others.
 *
 *   k = Linaer(d, d)   # error: unknown name 'Linaer'      stands on the line of the fault; several may follow each
 *                                                          other
 *   a = b * 2 + c - d  # error: ...  # under: b * 2 + c    what the message underlines, from its caret to its end
 *   # define: depth=3  # model: Name                       on the first lines: what the command line would say
 *
 * The text must stand in the message. A fault in another file (the standard layers, an include) counts where
 * its notes say that it was called in this file; one in a definition, or with no place here, on line 1 or at the line
 * after `# define:`, `# model:`. Every code that the language can produce has a case. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "../support/elaborate_text.h"

typedef struct Expectation {
  uint32_t line;
  DiagSeverity severity;
  const char *text;
  const char *under; /* the source that is underlined; NULL: any */
  bool is_met;
} Expectation;

typedef struct Case {
  Arena *arena;
  const char *name, *path;
  const char *source;
  VEC(Expectation) expected;
  VEC(Definition) definitions;
  const char *model;
  uint32_t head; /* the line after the directives; faults without a place here are expected up to it */
} Case;

static unsigned n_failed;
static bool covered[N_DIAG_CODES];

// ---- what is expected ----

static const char *trimmed(Arena *arena, const char *begin, const char *end) {
  while (begin < end && *begin == ' ') begin++;
  while (begin < end && (end[-1] == ' ' || end[-1] == '\r')) end--;
  return arena_strndup(arena, begin, (size_t)(end - begin));
}

static void read_directive(Case *c, uint32_t line, const char *key, const char *text) {
  if (strcmp(key, "error") == 0) vec_push(c->arena, &c->expected, (Expectation){line, DIAG_ERROR, text, NULL, false});
  if (strcmp(key, "warning") == 0)
    vec_push(c->arena, &c->expected, (Expectation){line, DIAG_WARNING, text, NULL, false});
  if (strcmp(key, "under") == 0) {
    cr_assert(c->expected.n && c->expected.items[c->expected.n - 1].line == line, "%s: %s", c->name, text);
    c->expected.items[c->expected.n - 1].under = text;
  }
  if (strcmp(key, "model") == 0) c->model = text;
  if (strcmp(key, "define") == 0) {
    const char *equals = strchr(text, '=');
    cr_assert_not_null(equals, "%s: %s", c->name, text);
    vec_push(c->arena, &c->definitions, (Definition){trimmed(c->arena, text, equals), equals + 1});
  }
  if (strcmp(key, "model") == 0 || strcmp(key, "define") == 0) c->head = line + 1;
}

/* "# key: text" up to the next one. */
static void read_line(Case *c, uint32_t line, const char *begin, const char *end) {
  static const char *const keys[] = {"error", "warning", "under", "model", "define"};
  for (const char *at = begin; at < end; at++) {
    for (size_t k = 0; k < sizeof keys / sizeof *keys && *at == '#'; k++) {
      size_t n = strlen(keys[k]);
      if (end - at < (ptrdiff_t)n + 3 || strncmp(at + 2, keys[k], n) != 0 || at[n + 2] != ':') continue;
      const char *text = at + n + 3, *next = text;
      while (next < end && strncmp(next, " # ", 3) != 0) next++;
      read_directive(c, line, keys[k], trimmed(c->arena, text, next));
    }
  }
}

static void read_expectations(Case *c) {
  uint32_t line = 1;
  c->head = 1;
  for (const char *begin = c->source; *begin; line++) {
    const char *end = begin + strcspn(begin, "\n");
    read_line(c, line, begin, end);
    begin = *end ? end + 1 : end;
  }
}

// ---- what is said ----

/* The line of the file that the place is in; 0: it is elsewhere. */
static uint32_t line_here(const Case *c, SrcSpan span) {
  bool is_here = span.source && strcmp(span.source->path, c->path) == 0;
  return is_here ? source_place(span.source, span.begin).line : 0;
}

static const char *underlined(const Case *c, SrcSpan span) {
  return line_here(c, span) ? arena_strndup(c->arena, span.source->text + span.begin, span.end - span.begin) : "";
}

static bool is_expected(Case *c, const DiagMessage *m, uint32_t line) {
  for (size_t i = 0; i < c->expected.n; i++) {
    Expectation *e = &c->expected.items[i];
    bool is_here = e->line == line || (line <= c->head && e->line <= c->head);
    if (e->is_met || !is_here || e->severity != m->severity || !strstr(m->text, e->text)) continue;
    if (e->under && strcmp(e->under, underlined(c, m->span)) != 0) continue;
    return e->is_met = true;
  }
  return false;
}

static void check_messages(Case *c, const Diag *diag) {
  unsigned before = n_failed;
  for (size_t i = 0; i < diag->messages.n; i++) {
    const DiagMessage *m = &diag->messages.items[i];
    uint32_t line = line_here(c, m->span);
    covered[m->code] = true;
    if (is_expected(c, m, line)) continue;
    fprintf(stderr, "%s:%u: unexpected: %s; under: %s\n", c->name, line, m->text, underlined(c, m->span));
    n_failed++;
  }
  for (size_t i = 0; i < c->expected.n; i++) {
    const Expectation *e = &c->expected.items[i];
    if (e->is_met) continue;
    fprintf(stderr, "%s:%u: missing: %s\n", c->name, e->line, e->text);
    n_failed++;
  }
  if (!c->expected.n || before != n_failed) fprintf(stderr, "%s: failed\n", c->name);
  n_failed += !c->expected.n;
}

static void run_case(const char *folder, const char *name) {
  Case c = {.arena = arena_create(), .name = name};
  Diag diag = diag_new(c.arena);
  c.path = arena_printf(c.arena, "%s/%s", folder, name);
  c.source = read_text(c.arena, c.path);
  read_expectations(&c);
  ElaborateOptions options = {
      .model = c.model, .definitions = c.definitions.items, .n_definitions = (uint32_t)c.definitions.n};
  Graph *graph = elaborate_file(c.arena, &diag, c.path, &options);
  cr_expect_eq(graph == NULL, diag_has_errors(&diag), "%s", name);
  cr_expect(!diag_has_errors(&diag) || diag.exit_code == 1, "%s: exit code %d", name, diag.exit_code);
  check_messages(&c, &diag);
  arena_destroy(c.arena);
}

Test(errors, files) {
  const char *folder = TFM_SOURCE_DIR "/tests/errors";
  struct dirent **entries;
  int n = scandir(folder, &entries, NULL, alphasort);
  cr_assert(n > 0, "no cases in tests/errors");
  for (int i = 0; i < n; i++) {
    const char *extension = strrchr(entries[i]->d_name, '.');
    if (extension && strcmp(extension, ".tfm") == 0) run_case(folder, entries[i]->d_name);
    free(entries[i]);
  }
  free(entries);
  cr_assert_eq(n_failed, 0, "%u faults", n_failed);
  for (int code = DIAG_SYNTAX; code <= DIAG_UNUSED; code++) cr_expect(covered[code], "no case has the code %d", code);
}
