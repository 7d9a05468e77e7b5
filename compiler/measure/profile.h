/* Profile: where the time of a run goes, by step, by module and by operation.
 *
 * In: the steps of a program with their times in several runs; the median of each counts. Out: a table, a trace in
 * Chrome's format, or an HTML page that needs nothing else. In the last two the steps stand one after another, with the
 * modules that they belong to above them. */
#ifndef TFM_MEASURE_PROFILE_H
#define TFM_MEASURE_PROFILE_H

#include <stdbool.h>

#include "base/strbuf.h"
#include "base/vec.h"
#include "tfm/abi/program.h"

typedef struct ProfiledStep {
  const char *operation, *path; /* path "": it belongs to the model itself */
  double microseconds;
  bool prepare; /* runs when sizes change only */
} ProfiledStep;

typedef struct Profile {
  Arena *arena;
  const char *model, *isa;
  int threads;
  size_t runs;
  const char *run;     /* what one of them is: "run", "decoding step of 4 rows" */
  double microseconds; /* of all steps */
  VEC(ProfiledStep) steps;
} Profile;

/* `nanoseconds` holds a row per run with a number per step. The profile outlives the program. */
Profile *profile_new(Arena *arena, const tfm_program *program, const uint64_t *nanoseconds, size_t runs, int threads,
                     const char *run);

void profile_table(StrBuf *out, const Profile *profile);
void profile_chrome(StrBuf *out, const Profile *profile);
void profile_html(StrBuf *out, const Profile *profile);

#endif
