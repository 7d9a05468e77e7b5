/* Session: what one run of a command shares: memory, messages, options, and where output goes.
 *
 * In: the parsed command line. Out: texts on stdout or in the file of -o, messages on stderr, the exit code. It
 * belongs to cli: nothing below knows it. Its arena lives as long as the command and owns everything that hangs on it,
 * but for the library, which main closes. */
#ifndef TFM_CLI_SESSION_H
#define TFM_CLI_SESSION_H

#include "base/map.h"
#include "base/strbuf.h"
#include "cli/cli_options.h"

struct LibraryFile;
struct ModelText;

typedef struct Session {
  Arena *arena;
  Diag diag;
  Map names; /* interned names of the language */
  Options options;
  struct LibraryFile *library;   /* what the command line names is this compiled library; NULL: it is a .tfm file */
  const struct ModelText *model; /* what the graph was made from */
  struct StableNames *names_of_nodes; /* of --names=stable and --diff; NULL: nodes have numbers */
  struct Derivation *derived;    /* its incremental form, if a command has derived it */
  const char *text;              /* the source, in place of the file; NULL: the file is read */
  size_t text_size;
  bool wrote_output;             /* a file was written */
} Session;

/* How messages name a file: "<stdin>" for -. */
const char *session_text_name(const char *path);
/* Reads a text, of standard input for -. False after an error; a text of more than `most` bytes is one, of the kind
 * `code`. */
bool session_read_text(Session *session, const char *path, size_t most, DiagCode code, StrBuf *text);
/* Writes a text that was asked for to stdout or, if -o is given, to its file. */
void session_write(Session *session, const StrBuf *text);
/* Writes to stdout, whatever -o says. */
void session_print(const StrBuf *text);
/* Why a write of session_print failed, as an error number; 0: none did. */
int session_print_error(void);
/* Checks, before any work is done, that the file `output` can be written and is none of the n files that are read;
 * NULL entries are skipped. False after an error. */
bool session_check_output(Session *session, const char *output, const char *const *inputs, size_t n);
/* Prints the messages on stderr. Returns the exit code. */
int session_finish(Session *session);

/* Progress: a line on stderr about what takes long, if stderr is a terminal and the work takes more than half a
 * second. */
typedef struct Progress Progress;

/* NULL when nothing is to be shown; the functions below then do nothing. `what`: "packing weights". */
Progress *progress_begin(Session *session, const char *what);
/* `done` of `all`; any thread may call it. */
void progress_set(Progress *progress, size_t done, size_t all);
/* Removes the line from the terminal. */
void progress_end(Progress *progress);

#endif
