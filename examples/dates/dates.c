/* Translates written dates to ISO dates. usage: dates [WEIGHTS] (dates.tfmw if none are given)
 *
 * In: dates on standard input, one a line. Out: an ISO date for each; see translate.h. */
#define _POSIX_C_SOURCE 200809L
#include "translate.h"

int main(int argc, char **argv) {
  dates_model *model = NULL;
  tfm_error error;
  tfm_status status = dates_open(argc > 1 ? argv[1] : "dates.tfmw", &model, &error);
  if (!status) status = translate_lines(model, &error);
  if (status) fprintf(stderr, "dates: %s\n", error.message);
  dates_close(model);
  return status;
}
