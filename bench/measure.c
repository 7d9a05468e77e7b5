/* bench-measure: the machine, kernels and models, in interleaved rounds.
 *
 *   bench-measure [--rounds N] [--threads N] [--march SET] [--only GROUP] [--json FILE]
 *
 * Out: a table on standard output, and FILE. How to read it: bench/README.md. */
#include <popt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "subject.h"

static const struct {
  const char *name;
  bool (*add)(Bench *bench);
} groups[] = {{"machine", machine_subjects},
              {"tiles", tile_subjects},
              {"kernels", kernel_subjects},
              {"models", model_subjects},
              {"decoding", decoding_subjects},
              {"steps", step_subjects}};
enum { N_GROUPS = sizeof groups / sizeof *groups };

static int rounds = 15, threads;
static char *march, *only, *json;

static struct poptOption options[] = {
    {"rounds", 'r', POPT_ARG_INT | POPT_ARGFLAG_SHOW_DEFAULT, &rounds, 0, "interleaved rounds", "N"},
    {"threads", 't', POPT_ARG_INT, &threads, 0, "most threads (all CPUs)", "N"},
    {"march", 0, POPT_ARG_STRING, &march, 0, "instruction set (the best of this machine)", "SET"},
    {"only", 0, POPT_ARG_STRING, &only, 0, "machine, tiles, kernels, models, decoding or steps", "GROUP"},
    {"json", 0, POPT_ARG_STRING, &json, 0, "where the figures go too", "FILE"},
    POPT_AUTOHELP POPT_TABLEEND};

/* What is wrong with the command line, or NULL. */
static const char *fault_of(const TargetInfo *target) {
  if (!target) return "--march: no such instruction set";
  if (host_lacks(target)) return "--march: this CPU cannot run it";
  if (rounds < 1 || rounds > MOST_ROUNDS) return "--rounds: from 1 to 200";
  if (threads < 1) return "--threads: at least 1";
  for (int i = 0; i < N_GROUPS; i++)
    if (!only || strcmp(only, groups[i].name) == 0) return NULL;
  return "--only: machine, tiles, kernels, models, decoding or steps";
}

/* Returns the exit code. Subjects live in the arena until everything is reported. */
static int measure(const TargetInfo *target) {
  Bench bench = {.arena = arena_create(), .target = target, .threads = threads, .rounds = rounds};
  bool done = true;
  for (int i = 0; i < N_GROUPS && done; i++)
    if (!only || strcmp(only, groups[i].name) == 0) done = groups[i].add(&bench);
  done = done && subjects_measure(&bench);
  if (done) report_table(&bench);
  if (done && json) done = report_json(&bench, json);
  arena_destroy(bench.arena);
  return done ? 0 : 1;
}

int main(int argc, char **argv) {
  threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
  poptContext context = poptGetContext("bench-measure", argc, (const char **)argv, options, 0);
  int parsed = poptGetNextOpt(context);
  bool too_many = poptPeekArg(context) != NULL;
  const TargetInfo *target = march ? target_find(march) : host_target();
  const char *fault = parsed < -1 ? poptStrerror(parsed) : too_many ? "no arguments are taken" : fault_of(target);
  if (fault) fprintf(stderr, "bench-measure: %s\n", fault);
  int code = fault ? 2 : measure(target);
  poptFreeContext(context);
  return code;
}
