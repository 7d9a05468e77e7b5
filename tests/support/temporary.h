/* Names for temporary files and folders of tests.
 *
 * They lie in the folder that TMPDIR names, /tmp without it: scripts/check.sh gives the tests one of their own and looks
 * what they leave there. */
#ifndef TFM_TESTS_TEMPORARY_H
#define TFM_TESTS_TEMPORARY_H

#include <stdio.h>
#include <stdlib.h>

enum { TEMPORARY_BYTES = 256 };

/* Writes a name for mkstemp and mkdtemp, which is returned; it aborts if the folder's name is too long for the tests. */
static inline char *temporary_name(char name[TEMPORARY_BYTES], const char *stem) {
  const char *folder = getenv("TMPDIR");
  int n = snprintf(name, TEMPORARY_BYTES, "%s/%s-XXXXXX", folder && *folder ? folder : "/tmp", stem);
  if (n >= TEMPORARY_BYTES) abort();
  return name;
}

#endif
