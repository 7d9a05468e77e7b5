/* In: measured subjects. Out: a table for people, a JSON file for programs. Rates come from medians; "best" is the
 * best round, which tells how much of the rest is noise. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "codegen/codegen.h"
#include "subject.h"

/* How the probes of a subject varied over the rounds: the noise of the machine itself. */
static Spread probe_spread(const Bench *bench, const Subject *subject, bool flops) {
  double values[MOST_ROUNDS];
  for (int i = 0; i < bench->rounds; i++) values[i] = flops ? subject->probes[i].flops : subject->probes[i].bytes;
  return spread_of(values, bench->rounds);
}

// ---- the table ----

static void print_machine(const Bench *bench, const Subject *subject) {
  Spread flops = probe_spread(bench, subject, true), bytes = probe_spread(bench, subject, false);
  printf("%-26s %3d %10.1f %10.1f %10.1f %10.1f\n", subject->name, (int)subject->threads, bytes.median * 1e-9,
         bytes.most * 1e-9, flops.median * 1e-9, flops.most * 1e-9);
}

static void print_rate(double amount, double seconds) {
  if (amount > 0) printf(" %8.1f", amount / seconds * 1e-9);
  else printf(" %8s", "");
}

/* Time, rates, the share of what is possible, and for row kernels nanoseconds per element. */
static void print_measured(const Bench *bench, const Subject *subject) {
  Spread seconds = spread_of(subject->seconds, bench->rounds), shares = spread_of(subject->shares, bench->rounds);
  printf("%-26s %3d %10.4f %10.4f", subject->name, (int)subject->threads, seconds.median * 1e3, seconds.least * 1e3);
  print_rate(subject->flops, seconds.median);
  print_rate(subject->bytes, seconds.median);
  printf(" %6.1f %6.1f", 100 * shares.median, 100 * shares.most);
  if (subject->elements > 0) printf(" %7.3f", seconds.median * 1e9 / subject->elements);
  putchar('\n');
}

static void print_head(const Subject *subject) {
  printf("\n== %s\n", subject->group);
  if (!subject->run)
    printf("%-26s %3s %10s %10s %10s %10s\n", "read from", "thr", "GB/s", "best", "GFLOP/s", "best");
  else
    printf("%-26s %3s %10s %10s %8s %8s %6s %6s %7s\n", "", "thr", "ms", "best", "GFLOP/s", "GB/s", "% of", "best",
           "ns/elem");
}

/* Subjects with a smaller twin: what the additional bytes cost, beside what reading them would cost at the rate of the
 * probe. */
static void print_growths(const Bench *bench) {
  bool begun = false;
  for (size_t i = 0; i < bench->subjects.n; i++) {
    const Subject *subject = bench->subjects.items[i];
    if (!subject->smaller) continue;
    if (!begun) printf("\n== growth\n%-26s %-26s %10s %10s %10s\n", "", "over", "ms", "MB", "reading ms");
    begun = true;
    Growth growth = growth_of(bench, subject);
    printf("%-26s %-26s %10.4f %10.1f %10.4f\n", subject->name, subject->smaller->name, growth.seconds.median * 1e3,
           (subject->bytes - subject->smaller->bytes) * 1e-6, growth.reading.median * 1e3);
  }
}

/* Subjects beside the same work for one: medians of the rounds, the best time over the best, and what the probes
 * allow. */
static void print_multiples(const Bench *bench) {
  bool begun = false;
  for (size_t i = 0; i < bench->subjects.n; i++) {
    const Subject *subject = bench->subjects.items[i];
    if (!subject->one) continue;
    if (!begun) printf("\n== multiples\n%-26s %3s %-26s %8s %8s %8s\n", "", "thr", "of", "times", "best", "at best");
    begun = true;
    const double least = spread_of(subject->seconds, bench->rounds).least;
    printf("%-26s %3d %-26s %8.3f %8.3f %8.3f\n", subject->name, (int)subject->threads, subject->one->name,
           multiple_of(bench, subject, false).median, least / spread_of(subject->one->seconds, bench->rounds).least,
           multiple_of(bench, subject, true).median);
  }
}

void report_table(const Bench *bench) {
  printf("%s, %d rounds; medians, and the best round. '%% of': what the probe of the same round allows\n",
         bench->target->name, bench->rounds);
  for (size_t i = 0; i < bench->subjects.n; i++) {
    const Subject *subject = bench->subjects.items[i];
    if (i == 0 || strcmp(bench->subjects.items[i - 1]->group, subject->group) != 0) print_head(subject);
    if (subject->run) print_measured(bench, subject);
    else print_machine(bench, subject);
  }
  print_growths(bench);
  print_multiples(bench);
}

// ---- the JSON file ----

static json_t *spread_json(Spread spread) {
  return json_pack("{s:f, s:f, s:f}", "median", spread.median, "least", spread.least, "most", spread.most);
}

static json_t *list_json(const double *values, int n) {
  json_t *list = json_array();
  for (int i = 0; i < n; i++) json_array_append_new(list, json_real(values[i]));
  return list;
}

static json_t *growth_json(const Bench *bench, const Subject *subject) {
  Growth growth = growth_of(bench, subject);
  return json_pack("{s:s, s:o, s:f, s:o}", "over", subject->smaller->name, "seconds", spread_json(growth.seconds),
                   "bytes", subject->bytes - subject->smaller->bytes, "reading_seconds", spread_json(growth.reading));
}

/* Every round is in the file, so that two files can be compared by more than their medians. */
static json_t *subject_json(const Bench *bench, const Subject *subject) {
  json_t *object =
      json_pack("{s:s, s:s, s:i, s:o, s:o}", "group", subject->group, "name", subject->name, "threads",
                (int)subject->threads, "probe_flop_per_second", spread_json(probe_spread(bench, subject, true)),
                "probe_bytes_per_second", spread_json(probe_spread(bench, subject, false)));
  json_object_set_new(object, "probe_bytes", json_integer((json_int_t)subject->probe_bytes));
  if (!subject->run) return object;
  json_object_set_new(object, "seconds", spread_json(spread_of(subject->seconds, bench->rounds)));
  json_object_set_new(object, "share_of_possible", spread_json(spread_of(subject->shares, bench->rounds)));
  json_object_set_new(object, "rounds", list_json(subject->seconds, bench->rounds));
  if (subject->flops > 0) json_object_set_new(object, "flop", json_real(subject->flops));
  if (subject->bytes > 0) json_object_set_new(object, "bytes", json_real(subject->bytes));
  if (subject->elements > 0) json_object_set_new(object, "elements", json_real(subject->elements));
  if (subject->smaller) json_object_set_new(object, "growth", growth_json(bench, subject));
  if (!subject->one) return object;
  json_object_set_new(object, "times_of_one", spread_json(multiple_of(bench, subject, false)));
  json_object_set_new(object, "times_at_best", spread_json(multiple_of(bench, subject, true)));
  return object;
}

bool report_json(const Bench *bench, const char *path) {
  json_t *subjects = json_array();
  for (size_t i = 0; i < bench->subjects.n; i++)
    json_array_append_new(subjects, subject_json(bench, bench->subjects.items[i]));
  json_t *all = json_pack("{s:s, s:s, s:i, s:i, s:o}", "cpu", host_cpu_name(bench->arena), "isa", bench->target->name,
                          "rounds", bench->rounds, "threads", (int)bench->threads, "subjects", subjects);
  bool written = all && json_dump_file(all, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) == 0;
  json_decref(all);
  if (!written) fprintf(stderr, "%s could not be written\n", path);
  return written;
}
