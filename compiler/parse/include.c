#define _XOPEN_SOURCE 700 /* realpath */

/* The files of a program, each read once.
 *
 * In: the path of the main file, or texts in memory. Out: parsed files, included ones before those that include them.
 * Refuses cycles, files nested deeper than MAX_DEPTH, folders, FIFOs and devices, files over PARSE_MAX_SIZE (before
 * they are read), and whatever lies outside the folder of the main file, also by way of `..` or a symbolic link:
 * messages quote lines, and a model from elsewhere must not be able to show what stands in other files. Texts live in
 * the arena. */
#include "parse/include.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "parse/parser.h"

// ---- reading files ----

typedef struct FileText {
  const char *text; /* `size` bytes and a NUL; NULL after a fault */
  uint32_t size;
  const char *fault; /* "Is a directory" */
  bool is_too_long;  /* the fault is that */
} FileText;

static const char *text_of_error(Arena *arena, int error) {
  char text[256];
  return strerror_r(error, text, sizeof text) == 0 ? arena_strdup(arena, text) : "unknown error";
}

static FileText fault_of(Arena *arena, int error) { return (FileText){.fault = text_of_error(arena, error)}; }

/* Reads to the end or for `size` bytes; -1 after a fault. */
static ssize_t read_all(int file, char *bytes, size_t size) {
  size_t n = 0;
  while (n < size) {
    ssize_t got = read(file, bytes + n, size - n);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    n += (size_t)got;
  }
  return (ssize_t)n;
}

/* Takes over the open file and closes it. The checks are made on the descriptor rather than the path, so the file
 * cannot be exchanged between check and read. A file that shrinks meanwhile is read as far as it goes, and one that
 * grows up to the size that was checked. */
static FileText read_open_file(Arena *arena, int file) {
  FileText result = {0};
  struct stat status;
  if (fstat(file, &status) != 0)
    result = fault_of(arena, errno);
  else if (S_ISDIR(status.st_mode))
    result = fault_of(arena, EISDIR);
  else if (!S_ISREG(status.st_mode))
    result.fault = "Not a regular file";
  else if (status.st_size > PARSE_MAX_SIZE) {
    result.is_too_long = true;
    result.fault = arena_printf(arena, "%lld bytes; a file may have at most 16 MiB", (long long)status.st_size);
  } else {
    char *bytes = arena_alloc(arena, (size_t)status.st_size + 1);
    ssize_t size = read_all(file, bytes, (size_t)status.st_size);
    if (size < 0)
      result = fault_of(arena, errno);
    else
      result = (FileText){.text = bytes, .size = (uint32_t)size};
  }
  close(file);
  return result;
}

/* O_NONBLOCK, because opening a FIFO must not wait for its other end before the FIFO can be refused; O_NOCTTY,
 * because opening a terminal must not make it ours. */
enum { OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK };

/* The file that the user named. It may be a link: the user, unlike an include, is trusted with paths. */
static FileText read_main_file(Arena *arena, const char *path) {
  int file = open(path, OPEN_FLAGS);
  return file < 0 ? fault_of(arena, errno) : read_open_file(arena, file);
}

/* What stands after `root` and a slash in a real path; NULL if the path lies elsewhere. The root of the file system
 * is the one folder whose path ends with a slash. */
static const char *path_below(const char *root, const char *resolved) {
  size_t length = strlen(root);
  while (length > 0 && root[length - 1] == '/') length--; /* the root of the file system */
  return strncmp(root, resolved, length) == 0 && resolved[length] == '/' ? resolved + length + 1 : NULL;
}

/* Reads a file below the folder `root`; `resolved` is its path there, free of links and `..`. It walks down folder by
 * folder and follows no link, so that nobody can put one in after the path was checked. */
static FileText read_file_below(Arena *arena, const char *root, const char *resolved) {
  const char *rest = path_below(root, resolved);
  if (!rest) return fault_of(arena, EACCES);
  int folder = open(root, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  while (folder >= 0) {
    size_t length = strcspn(rest, "/");
    const char *name = arena_strndup(arena, rest, length);
    bool is_last = rest[length] == '\0';
    int next =
        openat(folder, name, is_last ? OPEN_FLAGS | O_NOFOLLOW : O_RDONLY | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW);
    int error = errno;
    close(folder);
    if (next < 0) return fault_of(arena, error);
    if (is_last) return read_open_file(arena, next);
    folder = next;
    rest += length + 1;
  }
  return fault_of(arena, errno);
}

/* The real path of a file, in the arena; NULL, and `*fault`, if there is none. */
static const char *resolve_path(Arena *arena, const char *path, const char **fault) {
  char *real = realpath(path, NULL);
  if (!real) {
    *fault = text_of_error(arena, errno);
    return NULL;
  }
  const char *copy = arena_strdup(arena, real);
  free(real);
  return copy;
}

// ---- the files that are open ----

/* Files that include one another in a chain. Reading recurses once per file. */
enum { MAX_DEPTH = 32 };

/* A file that is being read; its includer is `outer`. */
typedef struct OpenFile {
  const struct OpenFile *outer;
  const char *resolved;
  const char *shown;  /* the path in messages */
  const char *folder; /* of the file, below the root: "", "parts/common/" */
  unsigned depth;
} OpenFile;

typedef struct Reader {
  Arena *arena;
  Map *names;
  Diag *diag;
  Map seen;           /* resolved paths of files that are done or being read */
  const char *root;   /* the folder of the main file, resolved */
  const char *prefix; /* what the user wrote before the name of the main file */
  const OpenTexts *open; /* NULL: only files count, and those with faults are left out */
  ParsedProgram *program;
} Reader;

static void read_file(Reader *reader, const OpenFile *file, FileText text);

// ---- paths ----

/* `folder` and `path` as one path without `.` and `..`; NULL if it leaves the root. */
static const char *join_below(Arena *arena, const char *folder, const char *path) {
  StrBuf joined = strbuf_new(arena);
  strbuf_add(&joined, folder);
  while (*path) {
    size_t length = strcspn(path, "/");
    if (length == 2 && path[0] == '.' && path[1] == '.') {
      if (joined.length == 0) return NULL;
      do joined.length--;
      while (joined.length > 0 && joined.text[joined.length - 1] != '/');
      joined.text[joined.length] = '\0';
    } else if (length > 0 && !(length == 1 && path[0] == '.')) {
      strbuf_add_n(&joined, path, length);
      strbuf_add_char(&joined, '/');
    }
    path += length + (path[length] == '/');
  }
  if (joined.length > 0) joined.text[--joined.length] = '\0';
  return joined.text;
}

static const char *folder_of(Arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? arena_strndup(arena, path, (size_t)(slash - path) + 1) : "";
}

// ---- includes ----

static bool refuse(Reader *reader, const Ast *include, const char *why) {
  diag_error(reader->diag, include->span, DIAG_INCLUDE, "cannot include '%s': %s", include->name, why);
  return false;
}

/* Names the chain from the file that is included again down to the one that includes it. */
static void report_cycle(Reader *reader, const Ast *include, const OpenFile *file, const char *resolved) {
  StrBuf chain = strbuf_new(reader->arena);
  const char *shown = "";
  /* From the innermost file outwards, so each goes before what is there. */
  for (const OpenFile *open = file; open; open = open->outer) {
    shown = open->shown;
    if (strcmp(open->resolved, resolved) == 0) break;
    StrBuf longer = strbuf_new(reader->arena);
    strbuf_printf(&longer, "%s -> %s", shown, chain.text);
    chain = longer;
  }
  diag_error(reader->diag, include->span, DIAG_INCLUDE, "include cycle: %s -> %s%s", shown, chain.text, shown);
}

static bool is_open(const OpenFile *file, const char *resolved) {
  for (; file; file = file->outer)
    if (strcmp(file->resolved, resolved) == 0) return true;
  return false;
}

/* Where the include leads; false, with a message, if it may not be followed. The path is checked twice: as text, for
 * a message that speaks of `..`, and resolved, because a link can lead anywhere. */
static bool find_target(Reader *reader, const Ast *include, const OpenFile *file, OpenFile *target) {
  const char *below, *fault = NULL;
  if (include->name[0] == '/') return refuse(reader, include, "the path must be relative to this file");
  if (!(below = join_below(reader->arena, file->folder, include->name)))
    return refuse(reader, include, "it lies outside the folder of the main file");
  target->outer = file;
  target->depth = file->depth + 1;
  target->shown = arena_printf(reader->arena, "%s%s", reader->prefix, below);
  target->folder = folder_of(reader->arena, below);
  target->resolved = resolve_path(reader->arena, arena_printf(reader->arena, "%s/%s", reader->root, below), &fault);
  if (!target->resolved) return refuse(reader, include, fault);
  if (!path_below(reader->root, target->resolved))
    return refuse(reader, include, "it is a link that leads outside the folder of the main file");
  if (target->depth > MAX_DEPTH)
    return refuse(reader, include, arena_printf(reader->arena, "more than %d files deep", MAX_DEPTH));
  return true;
}

/* No text if the file is not open. */
static FileText open_text(const Reader *reader, const char *resolved) {
  const NamedText *found = reader->open ? reader->open->find(reader->open->context, resolved) : NULL;
  return found ? (FileText){.text = found->text, .size = (uint32_t)found->size} : (FileText){0};
}

/* A file that was read before is not read again: its layers are in scope already. One that is still open is a cycle.
 */
static void follow_include(Reader *reader, const Ast *include, const OpenFile *file) {
  OpenFile target = {0};
  if (!find_target(reader, include, file, &target)) return;
  if (is_open(file, target.resolved)) {
    report_cycle(reader, include, file, target.resolved);
    return;
  }
  if (map_has(&reader->seen, target.resolved)) return;
  FileText text = open_text(reader, target.resolved);
  if (!text.text) text = read_file_below(reader->arena, reader->root, target.resolved);
  if (text.text)
    read_file(reader, &target, text);
  else if (text.is_too_long)
    diag_error_at(reader->diag, target.shown, DIAG_TOO_LONG, "%s", text.fault);
  else
    refuse(reader, include, text.fault);
}

/* Parses a file, then the files it includes, and adds itself last: its layers may refer to theirs. */
static void read_file(Reader *reader, const OpenFile *file, FileText text) {
  map_put(&reader->seen, file->resolved, NULL);
  Source *source = source_new(reader->arena, file->shown, text.text, text.size);
  source->name = file->shown + strlen(reader->prefix);
  Ast *ast = (reader->open ? parse_file_with_faults : parse_file)(reader->arena, reader->names, reader->diag, source);
  if (!ast) return;
  for (uint32_t i = 0; i < ast->n_children; i++)
    if (ast->children[i]->kind == AST_INCLUDE) follow_include(reader, ast->children[i], file);
  vec_push(reader->arena, &reader->program->files, (ParsedFile){source, ast, file->outer == NULL});
}

// ---- entry ----

/* Reads the main file and what it includes. `text`: of the main file. */
static void read_program(Reader *reader, const char *path, FileText text) {
  reader->seen = map_new(reader->arena);
  reader->program = ARENA_NEW(reader->arena, ParsedProgram);
  reader->prefix = folder_of(reader->arena, path);
  const char *fault = NULL, *folder = *reader->prefix ? reader->prefix : ".";
  OpenFile file = {.shown = path, .folder = "", .depth = 1, .resolved = resolve_path(reader->arena, path, &fault)};
  reader->root = resolve_path(reader->arena, folder, &fault);
  if (file.resolved && reader->root)
    read_file(reader, &file, text);
  else
    diag_error_at(reader->diag, path, DIAG_FILE, "%s", fault);
}

/* Success is judged by the number of errors rather than by a result: several files are parsed after a fault in one,
 * so that each reports its own. */
ParsedProgram *parse_program(Arena *arena, Map *names, Diag *diag, const char *path) {
  int n_errors = diag->n_errors;
  FileText text = read_main_file(arena, path);
  if (!text.text) {
    diag_error_at(diag, path, text.is_too_long ? DIAG_TOO_LONG : DIAG_FILE, "%s", text.fault);
    return NULL;
  }
  Reader reader = {.arena = arena, .names = names, .diag = diag};
  read_program(&reader, path, text);
  return diag->n_errors == n_errors ? reader.program : NULL;
}

/* The main file is open itself, and need not exist yet: then it includes nothing. */
ParsedProgram *parse_open_program(Arena *arena, Map *names, Diag *diag, const char *path, const OpenTexts *open) {
  const NamedText *main = open->find(open->context, path);
  Reader reader = {.arena = arena, .names = names, .diag = diag, .open = open};
  const char *fault = NULL;
  const FileText text = {.text = main ? main->text : "", .size = main ? (uint32_t)main->size : 0};
  if (resolve_path(arena, path, &fault)) {
    read_program(&reader, path, text);
  } else {
    const ParsedFile file = {source_new(arena, path, text.text, text.size), NULL, true};
    reader.program = ARENA_NEW(arena, ParsedProgram);
    vec_push(arena, &reader.program->files, file);
    reader.program->files.items[0].ast = parse_file_with_faults(arena, names, diag, file.source);
    if (!reader.program->files.items[0].ast) return NULL;
  }
  const size_t n = reader.program->files.n;
  return n && reader.program->files.items[n - 1].is_main ? reader.program : NULL;
}

/* A text of the caller as a file; it need not end with a NUL, nor live as long as the tree. */
static ParsedFile parse_named(Arena *arena, Map *names, Diag *diag, const NamedText *named) {
  if (named->size > PARSE_MAX_SIZE) {
    diag_error_at(diag, named->name, DIAG_TOO_LONG, "%zu bytes; a text may have at most 16 MiB", named->size);
    return (ParsedFile){0};
  }
  const char *name = arena_strdup(arena, named->name);
  Source *source = source_new(arena, name, arena_strndup(arena, named->text, named->size), (uint32_t)named->size);
  return (ParsedFile){source, parse_file(arena, names, diag, source), named->is_main};
}

ParsedProgram *parse_texts(Arena *arena, Map *names, Diag *diag, const NamedText *texts, size_t n) {
  int n_errors = diag->n_errors;
  ParsedProgram *program = ARENA_NEW(arena, ParsedProgram);
  for (size_t i = 0; i < n; i++) vec_push(arena, &program->files, parse_named(arena, names, diag, &texts[i]));
  return diag->n_errors == n_errors ? program : NULL;
}

ParsedProgram *parse_text(Arena *arena, Map *names, Diag *diag, const char *path, const char *text, size_t size) {
  int n_errors = diag->n_errors;
  ParsedFile file = parse_named(arena, names, diag, &(NamedText){path, text, size, true});
  Ast *ast = file.ast;
  for (uint32_t i = 0; ast && i < ast->n_children; i++)
    if (ast->children[i]->kind == AST_INCLUDE)
      diag_error(diag, ast->children[i]->span, DIAG_INCLUDE, "a text in memory cannot include '%s'",
                 ast->children[i]->name);
  if (diag->n_errors != n_errors) return NULL;
  ParsedProgram *program = ARENA_NEW(arena, ParsedProgram);
  vec_push(arena, &program->files, file);
  return program;
}
