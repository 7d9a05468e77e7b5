/* In: what steps gave. Out: the log, the line of a terminal, the curve. See journal.h. */
#include "train/journal.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weights/files.h"

typedef VEC(Point) Points;

struct Journal {
  JournalRequest request;
  const char *path; /* of the log */
  FILE *log;
  bool has_terminal, has_line, failed;
  double begun, before; /* when this process began; how long the run took before it */
  double shown;
  int64_t tokens, tokens_before; /* since this process began; up to the newest record of steps */
  Points steps, valid;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool fails(Journal *journal, const char *what) {
  if (!journal->failed)
    diag_error_at(journal->request.diag, journal->path, DIAG_FILE, "cannot %s: %s", what, strerror(errno));
  journal->failed = true;
  return false;
}

// ---- the log of a run that goes on ----

/* The number behind "name": in a line that this file wrote; NaN: it is not there. */
static double number_of(const char *line, const char *name) {
  const char *at = strstr(line, name);
  return at ? strtod(at + strlen(name), NULL) : NAN;
}

static void add_point(Journal *journal, bool is_valid, int64_t step, double loss) {
  Points *points = is_valid ? &journal->valid : &journal->steps;
  if (isfinite(loss)) vec_push(journal->request.arena, points, ((Point){step, loss}));
}

/* Lines of later steps are of a run that was killed: those steps are done again. */
static void keep_line(Journal *journal, StrBuf *kept, const char *line) {
  const double step = number_of(line, "\"step\":"), seconds = number_of(line, "\"seconds\":");
  const bool is_step = strstr(line, "\"kind\":\"step\"") != NULL, is_valid = strstr(line, "\"kind\":\"valid\"") != NULL;
  if (!(step <= (double)journal->request.from)) return;
  strbuf_add(kept, line);
  strbuf_add_char(kept, '\n');
  if (seconds > journal->before) journal->before = seconds;
  if (is_step || is_valid) add_point(journal, is_valid, (int64_t)step, number_of(line, "\"loss\":"));
}

static bool keep_log(Journal *journal) {
  enum { MOST = 1 << 30 };
  Arena *arena = journal->request.arena;
  StrBuf kept = strbuf_new(arena);
  size_t size;
  if (journal->request.from && access(journal->path, F_OK) == 0) {
    char *text = in_file_text(journal->request.diag, journal->path, MOST, DIAG_FILE, &size);
    if (!text) return false;
    for (char *end; (end = strchr(text, '\n')); text = end + 1) {
      *end = 0;
      keep_line(journal, &kept, text);
    }
  }
  OutFile *file = ARENA_NEW(arena, OutFile);
  if (!out_file_open(file, journal->request.diag, journal->path)) return false;
  out_file_write(file, kept.text, kept.length);
  return out_file_commit(file);
}

Journal *journal_open(const JournalRequest *request) {
  Journal *journal = ARENA_NEW(request->arena, Journal);
  *journal = (Journal){.request = *request, .begun = now()};
  journal->path = arena_printf(request->arena, "%s/log.jsonl", request->folder);
  journal->has_terminal = !request->is_quiet && isatty(STDERR_FILENO);
  if (!keep_log(journal)) return NULL;
  journal->log = fopen(journal->path, "ae");
  return journal->log || fails(journal, "write the file") ? journal : NULL;
}

// ---- the log ----

static void add_number(StrBuf *out, const char *name, double value) {
  strbuf_add_char(out, ',');
  strbuf_add_json(out, name);
  strbuf_add_char(out, ':');
  if (isfinite(value))
    number_add(out, value);
  else
    strbuf_add(out, "null");
}

static void add_count(StrBuf *out, const char *name, int64_t value) {
  strbuf_printf(out, ",\"%s\":%lld", name, (long long)value);
}

void journal_write(Journal *journal, const Record *record) {
  static const char *const kinds[] = {"step", "valid", "checkpoint"};
  Arena *arena = arena_create();
  StrBuf out = strbuf_new(arena);
  const JournalRequest *request = &journal->request;
  strbuf_printf(&out, "{\"kind\":\"%s\"", kinds[record->kind]);
  add_count(&out, "step", record->step);
  add_count(&out, "epoch", record->epoch);
  if (record->results) add_number(&out, "loss", record->results[0]);
  for (uint32_t i = 0; record->results && i < request->n_results; i++)
    if (strcmp(request->names[i], "loss") != 0) add_number(&out, request->names[i], record->results[i]);
  if (record->kind == RECORD_STEP) {
    add_number(&out, "lr", record->rate);
    add_number(&out, "norm", record->norm);
    add_count(&out, "tokens", record->tokens);
    add_count(&out, "items", record->items);
    add_count(&out, "padding", record->padding);
  }
  add_number(&out, "seconds", journal->before + now() - journal->begun);
  strbuf_add(&out, "}\n");
  if (record->results) add_point(journal, record->kind == RECORD_VALID, record->step, record->results[0]);
  if (record->kind == RECORD_STEP) journal->tokens_before += record->tokens;
  if (fwrite(out.text, 1, out.length, journal->log) != out.length || fflush(journal->log) != 0)
    fails(journal, "write the file");
  arena_destroy(arena);
}

// ---- the terminal ----

void journal_results(StrBuf *out, const Journal *journal, const double *results) {
  for (uint32_t i = 0; i < journal->request.n_results; i++) {
    strbuf_printf(out, "%s%s %.6g", i ? "  " : "", journal->request.names[i], results[i]);
    if (strcmp(journal->request.names[i], "nll") == 0) strbuf_printf(out, " (ppl %.4g)", exp(results[i]));
  }
}

static void add_time(StrBuf *out, double seconds) {
  const long long s = (long long)(seconds + 0.5);
  if (s >= 3600)
    strbuf_printf(out, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else
    strbuf_printf(out, "%02lld:%02lld", s / 60, s % 60);
}

/* Ten times a second at most; `tokens` of the record are those since the newest line of the log. */
void journal_show(Journal *journal, const Record *record) {
  const JournalRequest *request = &journal->request;
  const double time = now(), gone = time - journal->begun;
  const int64_t done = record->step - request->from, left = request->steps - record->step;
  if (!journal->has_terminal || (time - journal->shown < 0.1 && left > 0)) return;
  Arena *arena = arena_create();
  StrBuf out = strbuf_new(arena);
  strbuf_printf(&out, "\rstep %lld", (long long)record->step);
  if (request->steps) strbuf_printf(&out, "/%lld", (long long)request->steps);
  strbuf_printf(&out, "  epoch %lld  ", (long long)record->epoch);
  journal_results(&out, journal, record->results);
  strbuf_printf(&out, "  lr %.3g  norm %.3g", record->rate, record->norm);
  if (gone > 0) strbuf_printf(&out, "  %.0f tok/s", (double)(journal->tokens_before + record->tokens) / gone);
  if (left >= 0 && done > 0) strbuf_add(&out, "  eta ");
  if (left >= 0 && done > 0) add_time(&out, gone / (double)done * (double)left);
  strbuf_add(&out, "\033[K");
  fwrite(out.text, 1, out.length, stderr);
  fflush(stderr);
  arena_destroy(arena);
  journal->shown = time;
  journal->has_line = true;
}

static void end_line(Journal *journal) {
  if (journal->has_line) fputs("\r\033[K", stderr);
  journal->has_line = false;
}

void journal_say(Journal *journal, const char *format, ...) {
  va_list args;
  if (journal->request.is_quiet) return;
  end_line(journal);
  va_start(args, format);
  vprintf(format, args);
  va_end(args);
  putchar('\n');
  fflush(stdout);
}

// ---- the curve ----

bool journal_draw(Journal *journal) {
  Arena *arena = arena_create();
  Diag *diag = journal->request.diag;
  StrBuf out = strbuf_new(arena);
  OutFile *file = ARENA_NEW(arena, OutFile);
  curve_draw(&out, journal->steps.items, journal->steps.n, journal->valid.items, journal->valid.n);
  bool good = out_file_open(file, diag, arena_printf(diag->arena, "%s/curve.svg", journal->request.folder));
  if (good) out_file_write(file, out.text, out.length);
  good = good && out_file_commit(file);
  arena_destroy(arena);
  return good;
}

bool journal_close(Journal *journal) {
  if (!journal) return true;
  end_line(journal);
  if (journal->log && fclose(journal->log) != 0) fails(journal, "write the file");
  return !journal->failed;
}
