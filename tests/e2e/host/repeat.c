/* usage: repeat LIBRARY WEIGHTS TIMES: loads, opens, runs, closes and unloads the model "m" again and again, on this thread
 * and on others, closing the model before and after its context; then neither memory, mappings, descriptors nor threads
 * may have grown. */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "m.h"

typedef struct Held { /* by this process */
  long kilobytes, mappings, descriptors, threads;
} Held;

static long count_entries(const char *folder) {
  long n = 0;
  DIR *dir = opendir(folder);
  while (dir && readdir(dir)) n++;
  if (dir) closedir(dir);
  return n;
}

/* Without the pages of files, of which the kernel maps as many as it likes. */
static long anonymous_kilobytes(void) {
  long kilobytes = -1;
  char line[256];
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file) && sscanf(line, "RssAnon: %ld kB", &kilobytes) != 1) continue;
  if (file) fclose(file);
  if (kilobytes < 0) exit(2);
  return kilobytes;
}

static Held measure(void) {
  Held held = {0, 0, count_entries("/proc/self/fd"), count_entries("/proc/self/task")};
  held.kilobytes = anonymous_kilobytes();
  FILE *file = fopen("/proc/self/maps", "r");
  for (int c; file && (c = fgetc(file)) != EOF;) held.mappings += c == '\n';
  if (file) fclose(file);
  return held;
}

static void *find(void *library, const char *name) {
  void *found = dlsym(library, name);
  if (!found) exit(3);
  return found;
}

/* As the header declares them; a pointer to data becomes one to a function. */
#define FUNCTION(library, name) \
  __typeof__(&name) p_##name;   \
  *(void **)&p_##name = find(library, #name)

static void once(const char *path, const char *weights, int order) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  FUNCTION(library, m_open);
  FUNCTION(library, m_close);
  FUNCTION(library, m_context_new);
  FUNCTION(library, m_context_free);
  FUNCTION(library, m_forward);
  m_model *model;
  m_context *context;
  tfm_error error;
  tfm_context_options options = {.struct_size = sizeof options, .threads = 2};
  float x[6] = {1, 0, 2, 1, 1, 1}, y[4];
  int32_t ids[2] = {3, 4};
  m_args args = {.struct_size = sizeof args, .batch = 2, .x = x, .ids = ids, .y = y, .y_capacity = 4};
  if (p_m_open(weights, &model, &error) || p_m_context_new(model, &options, &context, &error) ||
      p_m_forward(context, &args, &error)) {
    fprintf(stderr, "%s\n", error.message);
    exit(4);
  }
  if (order) p_m_close(model);
  p_m_context_free(context);
  if (!order) p_m_close(model);
  dlclose(library);
}

static void *once_elsewhere(void *argument) {
  char **paths = argument;
  once(paths[1], paths[2], 1);
  return NULL;
}

static void repeat(char **argv, int times) {
  for (int i = 0; i < times; i++) {
    pthread_t thread;
    once(argv[1], argv[2], i % 2);
    if (i % 3 == 0 && (pthread_create(&thread, NULL, once_elsewhere, argv) || pthread_join(thread, NULL))) exit(5);
  }
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  repeat(argv, 100); /* until the heap has found its size */
  Held before = measure();
  repeat(argv, atoi(argv[3]));
  Held after = measure();
  printf("kilobytes %ld %ld, mappings %ld %ld, descriptors %ld %ld, threads %ld %ld\n", before.kilobytes, after.kilobytes,
         before.mappings, after.mappings, before.descriptors, after.descriptors, before.threads, after.threads);
  return after.kilobytes > before.kilobytes + 256 || after.mappings > before.mappings + 4 ||
         after.descriptors != before.descriptors || after.threads != before.threads;
}
