/* The text of the first message, for tests that fail because there is one. */
#ifndef TFM_TESTS_FIRST_MESSAGE_H
#define TFM_TESTS_FIRST_MESSAGE_H

#include "diag/diag.h"

static inline const char *first_message(const Diag *diag) {
  return diag->messages.n ? diag->messages.items[0].text : "no message";
}

#endif
