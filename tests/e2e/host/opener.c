/* Opens libraries by their paths with the runtime alone, several times each.
 *
 * usage: opener TIMES LIBRARY ...; prints one line per library: "opened", or why not, and at the end how much memory and
 * how many descriptors the process has more than after the first round. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tfm/abi/library.h"

static long resident_kib(void) {
  char line[256];
  long kib = 0;
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status))
    if (strncmp(line, "VmRSS:", 6) == 0) kib = atol(line + 6);
  if (status) fclose(status);
  return kib;
}

static int descriptors(void) {
  DIR *dir = opendir("/proc/self/fd");
  int n = 0;
  while (dir && readdir(dir)) n++;
  if (dir) closedir(dir);
  return n;
}

static void open_all(int n, char **paths, int print) {
  for (int i = 0; i < n; i++) {
    tfm_model *model;
    tfm_error error;
    tfm_status status = tfm_model_open(paths[i], NULL, &model, &error);
    if (print) printf("%s\n", status ? error.message : "opened");
    tfm_model_close(model);
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  open_all(argc - 2, argv + 2, 1);
  long kib = resident_kib();
  int open_before = descriptors();
  for (int i = 1; i < atoi(argv[1]); i++) open_all(argc - 2, argv + 2, 0);
  printf("%ld KiB %d descriptors\n", resident_kib() - kib, descriptors() - open_before);
  return 0;
}
