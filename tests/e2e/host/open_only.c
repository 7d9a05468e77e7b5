/* usage: open_only WEIGHTS: opens the model "m" that it is linked with. Prints the error and ends with its status. */
#include <stdio.h>

#include "m.h"

int main(int argc, char **argv) {
  m_model *model;
  tfm_error error;
  tfm_status status = m_open(argc > 1 ? argv[1] : NULL, &model, &error);
  puts(status ? error.message : "opened");
  if (!status) m_close(model);
  return (int)status;
}
