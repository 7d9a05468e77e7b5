/* tfmc generate FOLDER, or FILE.gguf: the command line goes on as `python3 -m tfmc.text`, which has tokenizers.
 *
 * In: the command line. Out: the process is that of Python, with this program as its compiler. The Python is the one
 * beside this program, as in a virtual environment that has both, or else that of PATH. Refused: there is none. */
#include "cli/text_command.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/commands.h"

enum { EXIT_NO_PYTHON = 3 };

static const char LAUNCHER[] =
    "import sys\n"
    "try:\n"
    "    from tfmc.text.__main__ import main\n"
    "except ImportError as error:\n"
    "    print(f'tfmc: error: texts from a folder need the Python package tfmc; {sys.executable}: {error}\\n'\n"
    "          '  = help: pip install tfmc[text], beside this program or for the python3 of PATH', file=sys.stderr)\n"
    "    sys.exit(3)\n"
    "sys.exit(main())\n";

static bool is_checkpoint(const char *path) {
  struct stat status;
  const size_t length = strlen(path);
  return stat(path, &status) == 0 &&
         (S_ISDIR(status.st_mode) || (length > 5 && strcmp(path + length - 5, ".gguf") == 0));
}

/* The own path goes to the environment, and a Python beside it into `python`. */
static void find_python(char *python, size_t size) {
  char own[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  snprintf(python, size, "python3");
  if (length < 0) return;
  own[length] = 0;
  setenv("TFM_COMPILER", own, 1);
  char *end = strrchr(own, '/');
  if (!end) return;
  char beside[PATH_MAX + 8];
  snprintf(beside, sizeof beside, "%.*s/python3", (int)(end - own), own);
  if (access(beside, X_OK) == 0) snprintf(python, size, "%s", beside);
}

int text_command(int argc, char **argv) {
  if (argc < 3 || strcmp(argv[1], "generate") != 0 || !is_checkpoint(argv[2])) return -1;
  char python[PATH_MAX + 8];
  char **arguments = calloc((size_t)argc + 3, sizeof *arguments);
  if (!arguments) return EXIT_NO_PYTHON;
  find_python(python, sizeof python);
  arguments[0] = python;
  arguments[1] = "-c";
  arguments[2] = (char *)LAUNCHER;
  memcpy(arguments + 3, argv + 1, (size_t)(argc - 1) * sizeof *arguments);
  execvp(python, arguments);
  fprintf(stderr,
          "tfmc: error: %s: texts from a folder need Python, which cannot be started: %s\n"
          "  = help: `tfmc import %s -o model.tfm` makes a model that takes tokens\n",
          python, strerror(errno), argv[2]);
  free(arguments);
  return EXIT_NO_PYTHON;
}
