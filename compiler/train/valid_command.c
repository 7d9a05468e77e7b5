/* In: a command and weights. Out: its score. See valid_command.h. */
#include "train/valid_command.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strbuf.h"

extern char **environ;

/* The environment of this process with these two in it, in `arena`. */
static char **environment(Arena *arena, const char *weights, int64_t step) {
  size_t n = 0, kept = 0;
  while (environ[n]) n++;
  char **made = ARENA_ARRAY(arena, char *, n + 3);
  for (size_t i = 0; i < n; i++)
    if (strncmp(environ[i], "TFM_WEIGHTS=", 12) != 0 && strncmp(environ[i], "TFM_STEP=", 9) != 0)
      made[kept++] = environ[i];
  made[kept++] = arena_printf(arena, "TFM_WEIGHTS=%s", weights);
  made[kept] = arena_printf(arena, "TFM_STEP=%lld", (long long)step);
  return made;
}

/* Starts the shell; what it prints comes out of *out. 0, or an errno. */
static int start(Arena *arena, const char *command, char **environment, pid_t *process, FILE **out) {
  int ends[2];
  posix_spawn_file_actions_t actions;
  char *words[] = {arena_strdup(arena, "sh"), arena_strdup(arena, "-c"), arena_strdup(arena, command), NULL};
  if (pipe(ends) != 0) return errno;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, ends[0]);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  const int fault = posix_spawn(process, "/bin/sh", &actions, NULL, words, environment);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  *out = fault ? NULL : fdopen(ends[0], "r");
  if (!*out) close(ends[0]);
  return fault;
}

/* The last number of the last line that is not empty: of "BLEU = 31.4" it is 31.4. NaN: there is none. */
static double number_of(const char *line) {
  double found = NAN;
  for (const char *at = line; *at;) {
    char *end;
    const double number = strtod(at, &end);
    if (end > at && isfinite(number)) found = number;
    at = end > at ? end : at + 1;
  }
  return found;
}

/* Everything is read, so that the command never waits for us. */
static double read_score(FILE *out) {
  char *line = NULL;
  size_t room = 0;
  double score = NAN;
  while (getline(&line, &room, out) >= 0)
    if (line[strspn(line, " \t\r\n")]) score = number_of(line);
  free(line);
  return score;
}

const char *valid_command_run(Arena *arena, const char *command, const char *weights, int64_t step, double *score) {
  pid_t process;
  FILE *out;
  int status = 0;
  *score = NAN;
  fflush(stdout);
  const int fault = start(arena, command, environment(arena, weights, step), &process, &out);
  if (fault) return arena_printf(arena, "could not be started: %s", strerror(fault));
  if (out) *score = read_score(out);
  if (out) fclose(out);
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) continue;
  const double found = *score;
  if (status || isnan(found)) *score = NAN;
  if (WIFSIGNALED(status)) return arena_printf(arena, "was ended by signal %d", WTERMSIG(status));
  if (status) return arena_printf(arena, "failed with exit code %d", WEXITSTATUS(status));
  return isnan(found) ? "printed no number on its last line" : NULL;
}
