/* In: the steps of a program and how long each took in several runs. Out: a table, a Chrome trace, an HTML page. The
 * paths of the steps are those of the modules that they come from, so modules can be shown as spans above their steps.
 *
 * Times of steps are taken on one thread, from barrier to barrier: what a step waits for others is part of it. */
#include "measure/profile.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "measure/roofline.h"

static int compare_times(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

/* The median of column `step`; `times` has room for a number per run. */
static double median(const uint64_t *nanoseconds, size_t runs, size_t n_steps, size_t step, uint64_t *times) {
  for (size_t run = 0; run < runs; run++) times[run] = nanoseconds[run * n_steps + step];
  qsort(times, runs, sizeof *times, compare_times);
  return (double)times[runs / 2];
}

/* Of the weights or rows that a product multiplies. */
static uint8_t form_of(const tfm_program *program, const tfm_step *step) {
  if (step->kind == TFM_STEP_GEMM) return program->gemms[step->index].form;
  if (step->kind == TFM_STEP_ATTENTION) return program->attentions[step->index].form;
  return TFM_FORM_F32;
}

/* "linear", or "linear int8" where the numbers are not f32. */
static const char *operation_of(Arena *arena, const tfm_program *program, const tfm_step *step) {
  const int length = (int)strcspn(step->name, " ");
  const uint8_t form = form_of(program, step);
  if (form == TFM_FORM_F32) return arena_strndup(arena, step->name, (size_t)length);
  return arena_printf(arena, "%.*s %s", length, step->name, tfm_form_name(form));
}

/* The name of a step is "operation path" (plan_step); the median of each step counts, so the sum is not the median of
 * whole runs, but nearly. */
Profile *profile_new(Arena *arena, const tfm_program *program, const uint64_t *nanoseconds, size_t runs, int threads,
                     const char *run) {
  Profile *profile = ARENA_NEW(arena, Profile);
  *profile = (Profile){.arena = arena, .threads = threads, .runs = runs, .run = run};
  profile->model = arena_strdup(arena, program->name);
  profile->isa = arena_strdup(arena, program->isa);
  uint64_t *times = ARENA_ARRAY(arena, uint64_t, runs);
  for (uint32_t i = 0; i < program->n_steps; i++) {
    const char *space = strchr(program->steps[i].name, ' ');
    ProfiledStep step = {.operation = operation_of(arena, program, &program->steps[i]),
                         .path = space ? arena_strdup(arena, space + 1) : "",
                         .microseconds = median(nanoseconds, runs, program->n_steps, i, times) * 1e-3,
                         .prepare = program->steps[i].prepare};
    vec_push(arena, &profile->steps, step);
    profile->microseconds += step.microseconds;
  }
  return profile;
}

void profile_add_work(Profile *profile, const tfm_program *program, const int64_t *const *dims) {
  for (uint32_t i = 0; i < program->n_steps; i++)
    profile->steps.items[i].flops = roofline_step_flops(program, &program->steps[i], dims);
}

// ---- modules as spans ----

typedef struct ProfileSpan { /* a step or a run of steps of one module */
  const char *name;          /* of a module: the last part of its path; of a step: the operation */
  const char *path;
  uint32_t depth;    /* 0: the model */
  double begin, end; /* microseconds */
  const ProfiledStep *step; /* NULL: it is a module */
} ProfileSpan;

typedef struct ProfileSpans {
  VEC(ProfileSpan) spans; /* a module stands before what is in it */
  uint32_t depth;         /* of the deepest */
} ProfileSpans;

/* The number of bytes of `path` that its first `parts` parts take; all of it if it has fewer. */
static size_t prefix_length(const char *path, uint32_t parts) {
  size_t length = 0;
  while (parts && path[length]) {
    length++;
    if (path[length] == '.' || !path[length]) parts--;
  }
  return length;
}

static uint32_t count_parts(const char *path) {
  uint32_t n = *path != '\0';
  for (; *path; path++) n += *path == '.';
  return n;
}

/* How many parts two paths have in common at their beginning. "layers.1" and "layers.10" share one, not two: a part
 * ends at a dot or at the end. */
static uint32_t common_parts(const char *a, const char *b) {
  uint32_t parts = 0, most = count_parts(a);
  while (parts < most) {
    size_t length = prefix_length(a, parts + 1);
    if (strncmp(a, b, length) != 0 || (b[length] && b[length] != '.')) break;
    parts++;
  }
  return parts;
}

/* Opens the modules of `path` from `from` parts on; `open` gets the numbers of their spans. */
static void open_modules(const Profile *profile, ProfileSpans *all, size_t *open, const char *path, uint32_t from,
                         double at) {
  uint32_t parts = count_parts(path);
  for (uint32_t i = from; i < parts; i++) {
    const char *module = arena_strndup(profile->arena, path, prefix_length(path, i + 1));
    const char *dot = strrchr(module, '.');
    open[i] = all->spans.n;
    vec_push(profile->arena, &all->spans, (ProfileSpan){dot ? dot + 1 : module, module, i + 1, at, at, NULL});
  }
}

/* Steps are laid one after another, and a module lasts from its first step to its last. A module that is left and
 * entered again gets a second span, as it gets a second bar in the trace; open[k] is the span of the module at depth k
 * that is open now. */
static ProfileSpans profile_spans(const Profile *profile) {
  ProfileSpans all = {0};
  uint32_t deepest = 0;
  for (size_t i = 0; i < profile->steps.n; i++) {
    uint32_t parts = count_parts(profile->steps.items[i].path);
    deepest = parts > deepest ? parts : deepest;
  }
  size_t *open = ARENA_ARRAY(profile->arena, size_t, deepest);
  vec_push(profile->arena, &all.spans, (ProfileSpan){profile->model, "", 0, 0, profile->microseconds, NULL});
  const char *path = "";
  double at = 0;
  for (size_t i = 0; i < profile->steps.n; i++) {
    const ProfiledStep *step = &profile->steps.items[i];
    open_modules(profile, &all, open, step->path, common_parts(path, step->path), at);
    path = step->path;
    uint32_t parts = count_parts(path);
    vec_push(profile->arena, &all.spans,
             (ProfileSpan){step->operation, path, parts + 1, at, at + step->microseconds, step});
    at += step->microseconds;
    for (uint32_t k = 0; k < parts; k++) all.spans.items[open[k]].end = at;
  }
  all.depth = deepest + 1;
  return all;
}

// ---- the table ----

typedef struct Sum {
  const char *name;
  double microseconds;
  size_t steps;
} Sum;

/* Sums keep the order in which names are first met. */
static void add_to(Arena *arena, Map *sums, const char *name, double microseconds) {
  Sum *sum = map_get(sums, name);
  if (!sum) {
    sum = ARENA_NEW(arena, Sum);
    map_put(sums, name, sum);
    sum->name = name;
  }
  sum->microseconds += microseconds;
  sum->steps++;
}

/* The longest first; names decide between equal times, so that the output does not depend on qsort. */
static int by_time(const void *a, const void *b) {
  const Sum *x = *(const Sum *const *)a, *y = *(const Sum *const *)b;
  int order = (x->microseconds < y->microseconds) - (x->microseconds > y->microseconds);
  return order ? order : strcmp(x->name, y->name);
}

static void print_time(StrBuf *out, const Profile *profile, double microseconds) {
  double share = profile->microseconds > 0 ? 100 * microseconds / profile->microseconds : 0;
  strbuf_printf(out, "%12.1f %6.1f", microseconds, share);
}

static void print_operations(StrBuf *out, const Profile *profile) {
  Map sums = map_new(profile->arena);
  for (size_t i = 0; i < profile->steps.n; i++)
    add_to(profile->arena, &sums, profile->steps.items[i].operation, profile->steps.items[i].microseconds);
  const Sum **sorted = ARENA_ARRAY(profile->arena, const Sum *, sums.n);
  for (size_t i = 0; i < sums.n; i++) sorted[i] = sums.items[i].value;
  qsort(sorted, sums.n, sizeof *sorted, by_time);
  strbuf_add(out, "\noperations\n          us      %  steps\n");
  for (size_t i = 0; i < sums.n; i++) {
    print_time(out, profile, sorted[i]->microseconds);
    strbuf_printf(out, "  %5zu  %s\n", sorted[i]->steps, sorted[i]->name);
  }
}

/* Each module once, where it is first met; its spans are added up. */
static void print_modules(StrBuf *out, const Profile *profile) {
  ProfileSpans all = profile_spans(profile);
  Map sums = map_new(profile->arena);
  for (size_t i = 0; i < all.spans.n; i++)
    if (!all.spans.items[i].step)
      add_to(profile->arena, &sums, all.spans.items[i].path, all.spans.items[i].end - all.spans.items[i].begin);
  strbuf_add(out, "\nmodules\n          us      %\n");
  for (size_t i = 0; i < sums.n; i++) {
    const Sum *sum = sums.items[i].value;
    print_time(out, profile, sum->microseconds);
    strbuf_printf(out, "  %s\n", *sum->name ? sum->name : profile->model);
  }
}

void profile_table(StrBuf *out, const Profile *profile) {
  strbuf_printf(out, "%s: a %s takes %.1f us in %zu step%s, median of %zu, %s, %d thread%s\n", profile->model,
                profile->run, profile->microseconds, profile->steps.n, profile->steps.n == 1 ? "" : "s", profile->runs,
                profile->isa, profile->threads, profile->threads == 1 ? "" : "s");
  print_operations(out, profile);
  print_modules(out, profile);
  strbuf_add(out, "\nsteps\n          us      %\n");
  for (size_t i = 0; i < profile->steps.n; i++) {
    const ProfiledStep *step = &profile->steps.items[i];
    print_time(out, profile, step->microseconds);
    strbuf_printf(out, "  %s %s%s\n", step->operation, step->path, step->prepare ? " (when sizes change)" : "");
  }
}

// ---- the trace ----

/* What `data` say of the step, if its program is the one that was measured: "model.tfm:27" and the lines that led
 * there, the shapes of what it computes, its arithmetic as a formula of the sizes. */
static void add_known(json_t *args, const json_t *data, const json_t *step) {
  json_t *lines = json_array(), *shapes = json_array();
  const json_t *places = json_object_get(step, "lines"), *ops = json_object_get(step, "ops");
  const json_t *files = json_object_get(data, "files");
  const json_t *program = json_array_get(json_object_get(data, "programs"), 0);
  for (size_t i = 0; i < json_array_size(places); i++) {
    const json_t *place = json_array_get(places, i);
    const json_t *file = json_array_get(files, (size_t)json_integer_value(json_array_get(place, 0)));
    json_array_append_new(lines, json_sprintf("%s:%lld", json_string_value(json_object_get(file, "name")),
                                              (long long)json_integer_value(json_array_get(place, 1))));
  }
  for (size_t i = 0; i < json_array_size(ops); i++) {
    const size_t number = (size_t)json_integer_value(json_array_get(ops, i));
    json_array_append(shapes, json_object_get(json_array_get(json_object_get(program, "ops"), number), "shape"));
  }
  json_object_set_new(args, "lines", lines);
  json_object_set_new(args, "shapes", shapes);
  json_object_set(args, "flop_formula",
                  json_array_get(json_object_get(data, "formulas"),
                                 (size_t)json_integer_value(json_object_get(step, "flop"))));
}

static json_t *args_of(const Profile *profile, const ProfileSpan *span, const json_t *data) {
  json_t *args = json_pack("{s:s}", "path", span->path);
  if (!span->step) return args;
  json_object_set_new(args, "flop", json_real(span->step->flops));
  if (span->step->flops > 0 && span->step->microseconds > 0)
    json_object_set_new(args, "flop_per_second", json_real(span->step->flops / span->step->microseconds * 1e6));
  const json_t *steps = json_object_get(json_array_get(json_object_get(data, "programs"), 0), "steps");
  if (json_array_size(steps) == profile->steps.n)
    add_known(args, data, json_array_get(steps, (size_t)(span->step - profile->steps.items)));
  return args;
}

/* "X" events of the trace event format: begin and duration in microseconds. One process and one thread, since the
 * steps are laid one after another. */
void profile_chrome(StrBuf *out, const Profile *profile, const struct json_t *data) {
  ProfileSpans all = profile_spans(profile);
  json_t *events = json_array();
  for (size_t i = 0; i < all.spans.n; i++) {
    const ProfileSpan *span = &all.spans.items[i];
    json_array_append_new(events, json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "name", span->name, "cat",
                                            span->step ? "step" : "module", "ph", "X", "ts", span->begin, "dur",
                                            span->end - span->begin, "pid", 1, "tid", 1, "args",
                                            args_of(profile, span, data)));
  }
  json_t *trace = json_pack("{s:o, s:s, s:{s:s, s:s, s:i, s:I}}", "traceEvents", events, "displayTimeUnit", "ms",
                            "otherData", "model", profile->model, "instruction_set", profile->isa, "threads",
                            profile->threads, "runs", (json_int_t)profile->runs);
  char *text = json_dumps(trace, JSON_COMPACT | JSON_REAL_PRECISION(9));
  strbuf_printf(out, "%s\n", text ? text : "{}");
  free(text);
  json_decref(trace);
}

// ---- the page ----

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<style>\n"
    "body { font: 14px/1.4 sans-serif; margin: 2em; color: #222; background: #fff }\n"
    ".bars { position: relative; border: 1px solid #ccc; background: #fafafa; overflow: hidden }\n"
    ".bars div { position: absolute; box-sizing: border-box; height: 20px; border: 1px solid #fff;\n"
    "  background: #9ec5e8; font-size: 11px; overflow: hidden; white-space: nowrap; padding: 1px 3px }\n"
    ".bars div.step { background: #f0c890 }\n"
    ".bars div:hover { background: #ffe680 }\n"
    "table { border-collapse: collapse; margin-top: 1.5em } td, th { padding: 1px 10px; text-align: right }\n"
    "td.name, th.name { text-align: left; font-family: monospace } tr:nth-child(even) { background: #f4f4f4 }\n"
    "td.bar { width: 200px; text-align: left } td.bar span { display: block; height: 10px; background: #f0c890 }\n"
    "</style>\n";

enum { BAR_HEIGHT = 21 };

/* Paths are identifiers, but the name of a model is the user's. */
static void add_escaped(StrBuf *out, const char *text) {
  for (; *text; text++) {
    if (*text == '<') strbuf_add(out, "&lt;");
    else if (*text == '>') strbuf_add(out, "&gt;");
    else if (*text == '&') strbuf_add(out, "&amp;");
    else if (*text == '"') strbuf_add(out, "&quot;");
    else strbuf_add_char(out, *text);
  }
}

static double percent(const Profile *profile, double microseconds) {
  return profile->microseconds > 0 ? 100 * microseconds / profile->microseconds : 0;
}

/* Positions are shares of the whole width, so the page scales with its window. Spans without duration would be
 * invisible and are left out. */
static void add_bars(StrBuf *out, const Profile *profile) {
  ProfileSpans all = profile_spans(profile);
  strbuf_printf(out, "<div class=\"bars\" style=\"height:%upx\">\n", (all.depth + 1) * BAR_HEIGHT);
  for (size_t i = 0; i < all.spans.n; i++) {
    const ProfileSpan *span = &all.spans.items[i];
    double duration = span->end - span->begin;
    if (duration <= 0) continue;
    strbuf_printf(out, "<div%s style=\"left:%.4f%%;width:%.4f%%;top:%upx\" title=\"",
                  span->step ? " class=\"step\"" : "", percent(profile, span->begin), percent(profile, duration),
                  span->depth * BAR_HEIGHT);
    add_escaped(out, span->step ? span->name : *span->path ? span->path : profile->model);
    if (span->step && *span->path) {
      strbuf_add_char(out, ' ');
      add_escaped(out, span->path);
    }
    strbuf_printf(out, ": %.1f us, %.1f %%\">", duration, percent(profile, duration));
    add_escaped(out, span->name);
    strbuf_add(out, "</div>\n");
  }
  strbuf_add(out, "</div>\n");
}

static void add_steps(StrBuf *out, const Profile *profile) {
  strbuf_add(
      out,
      "<table><tr><th>us</th><th>%</th><th></th><th class=\"name\">step</th><th class=\"name\">module</th></tr>\n");
  for (size_t i = 0; i < profile->steps.n; i++) {
    const ProfiledStep *step = &profile->steps.items[i];
    double share = percent(profile, step->microseconds);
    strbuf_printf(
        out,
        "<tr><td>%.1f</td><td>%.1f</td><td class=\"bar\"><span style=\"width:%.2f%%\"></span></td><td class=\"name\">",
        step->microseconds, share, share);
    add_escaped(out, step->operation);
    strbuf_add(out, "</td><td class=\"name\">");
    add_escaped(out, step->path);
    strbuf_printf(out, "%s</td></tr>\n", step->prepare ? " (when sizes change)" : "");
  }
  strbuf_add(out, "</table>\n");
}

/* The page refers to nothing outside itself: it can be mailed. */
void profile_html(StrBuf *out, const Profile *profile) {
  strbuf_add(out, head);
  strbuf_add(out, "<title>");
  add_escaped(out, profile->model);
  strbuf_add(out, "</title></head><body>\n<h1>");
  add_escaped(out, profile->model);
  strbuf_printf(out, "</h1>\n<p>%.1f us in %zu step%s, median of %zu runs, %s, %d thread%s</p>\n",
                profile->microseconds, profile->steps.n, profile->steps.n == 1 ? "" : "s", profile->runs, profile->isa,
                profile->threads, profile->threads == 1 ? "" : "s");
  add_bars(out, profile);
  add_steps(out, profile);
  strbuf_add(out, "</body></html>\n");
}
