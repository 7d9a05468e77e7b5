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

typedef struct Point {
  int64_t step;
  double loss;
} Point;

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
    if (record->left_out) add_count(&out, "left_out", record->left_out);
  }
  if (record->has_score) add_number(&out, "score", record->score);
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

/* An SVG picture: two lines over the steps and an axis with round numbers, logarithmic if the losses span a factor of
 * ten. Steps are thinned out to a thousand points, each the mean of its neighbours, so the picture stays small. */
enum { WIDTH = 800, HEIGHT = 480, LEFT = 70, RIGHT = 20, TOP = 40, BOTTOM = 50, MOST_POINTS = 1000 };

typedef struct Frame { /* what of the plane is shown */
  double most_step, low, high;
  bool is_log;
} Frame;

static double x_of(const Frame *frame, double step) { return LEFT + step / frame->most_step * (WIDTH - LEFT - RIGHT); }

static double height_of(const Frame *frame, double loss) { return frame->is_log ? log10(loss) : loss; }

static double y_of(const Frame *frame, double loss) {
  const double part = (height_of(frame, loss) - frame->low) / (frame->high - frame->low);
  return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

static void widen(Frame *frame, double *low, double *high, const Point *points, size_t n) {
  for (size_t i = 0; i < n; i++) {
    frame->most_step = fmax(frame->most_step, (double)points[i].step);
    *low = fmin(*low, points[i].loss);
    *high = fmax(*high, points[i].loss);
  }
}

/* 1, 2 or 5 times a power of ten, about a fifth of the range. */
static double round_step(double range) {
  const double power = pow(10, floor(log10(range / 5))), part = range / 5 / power;
  return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static Frame frame_of(const Point *steps, size_t n_steps, const Point *valid, size_t n_valid) {
  Frame frame = {.most_step = 1};
  double low = INFINITY, high = -INFINITY;
  widen(&frame, &low, &high, steps, n_steps);
  widen(&frame, &low, &high, valid, n_valid);
  frame.is_log = low > 0 && high >= 10 * low;
  frame.low = height_of(&frame, low);
  frame.high = height_of(&frame, high);
  const double margin = fmax(0.05 * (frame.high - frame.low), 1e-9 + 1e-6 * fabs(frame.high));
  frame.low -= margin;
  frame.high += margin;
  return frame;
}

static void add_line(StrBuf *out, const Frame *frame, const Point *points, size_t n, const char *color) {
  const size_t group = (n + MOST_POINTS - 1) / MOST_POINTS;
  strbuf_printf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"", color);
  for (size_t i = 0; i < n; i += group) {
    const size_t m = n - i < group ? n - i : group;
    double sum = 0;
    for (size_t k = i; k < i + m; k++) sum += points[k].loss;
    strbuf_printf(out, "%s%.1f,%.1f", i ? " " : "", x_of(frame, (double)points[i + m - 1].step),
                  y_of(frame, sum / (double)m));
  }
  strbuf_add(out, "\"/>\n");
}

static void add_text(StrBuf *out, double x, double y, const char *anchor, const char *color, const char *text) {
  strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, color,
                text);
}

static void add_height(StrBuf *out, const Frame *frame, double loss) {
  const double y = y_of(frame, loss);
  if (y < TOP - 1 || y > HEIGHT - BOTTOM + 1) return;
  strbuf_printf(out, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>\n", LEFT, y, WIDTH - RIGHT);
  add_text(out, LEFT - 6, y + 4, "end", "#444", arena_printf(out->arena, "%.6g", loss));
}

static void add_axes(StrBuf *out, const Frame *frame) {
  const double across = round_step(frame->most_step), up = round_step(frame->high - frame->low);
  for (double step = 0; step <= frame->most_step * 1.0001; step += across) {
    strbuf_printf(out, "<path d=\"M%.1f %dV%d\" stroke=\"#ddd\"/>\n", x_of(frame, step), TOP, HEIGHT - BOTTOM);
    add_text(out, x_of(frame, step), HEIGHT - BOTTOM + 18, "middle", "#444", arena_printf(out->arena, "%.6g", step));
  }
  if (frame->is_log) {
    for (double power = floor(frame->low); power <= frame->high; power++)
      for (int digit = 1; digit <= 5; digit += digit == 1 ? 1 : 3) add_height(out, frame, digit * pow(10, power));
  } else {
    for (double at = ceil(frame->low / up) * up; at <= frame->high; at += up)
      add_height(out, frame, fabs(at) < up / 2 ? 0 : at);
  }
  strbuf_printf(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#444\"/>\n", LEFT, TOP, HEIGHT - BOTTOM,
                WIDTH - RIGHT);
  add_text(out, (LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12, "middle", "#444", "step");
}

static void draw(StrBuf *out, const Point *steps, size_t n_steps, const Point *valid, size_t n_valid) {
  static const char *const blue = "#1f6fb4", *const orange = "#d1620a";
  strbuf_printf(out,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
                "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
                WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
  if (n_steps + n_valid == 0) {
    add_text(out, WIDTH / 2.0, HEIGHT / 2.0, "middle", "#444", "no step yet");
  } else {
    const Frame frame = frame_of(steps, n_steps, valid, n_valid);
    add_axes(out, &frame);
    if (n_steps) add_line(out, &frame, steps, n_steps, blue);
    if (n_valid) add_line(out, &frame, valid, n_valid, orange);
    for (size_t i = 0; i < n_valid; i++)
      strbuf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\" fill=\"%s\"/>\n", x_of(&frame, (double)valid[i].step),
                    y_of(&frame, valid[i].loss), orange);
    add_text(out, LEFT, TOP - 14, "start", blue, frame.is_log ? "loss (logarithmic)" : "loss");
    if (n_valid) add_text(out, LEFT + 130, TOP - 14, "start", orange, "validation");
  }
  strbuf_add(out, "</svg>\n");
}

bool journal_draw(Journal *journal) {
  Arena *arena = arena_create();
  Diag *diag = journal->request.diag;
  StrBuf out = strbuf_new(arena);
  OutFile *file = ARENA_NEW(arena, OutFile);
  draw(&out, journal->steps.items, journal->steps.n, journal->valid.items, journal->valid.n);
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
