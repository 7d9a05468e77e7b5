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

struct json_t;

typedef struct ProfiledStep {
  const char *operation, *path; /* path "": it belongs to the model itself */
  double microseconds;
  bool prepare; /* runs when sizes change only */
  double flops; /* multiplications and additions of a product; 0: it is none, or the sizes are not known */
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

/* `dims`: of the inputs of the runs, as in roofline_work. */
void profile_add_work(Profile *profile, const tfm_program *program, const int64_t *const *dims);

void profile_table(StrBuf *out, const Profile *profile);
/* `data`: of `tfmc explore`, of the same model, for lines, shapes and formulas of the steps; NULL: without these. */
void profile_chrome(StrBuf *out, const Profile *profile, const struct json_t *data);
void profile_html(StrBuf *out, const Profile *profile);

#endif
