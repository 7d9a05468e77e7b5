/* WebAssembly modules of `tfmc compile`: NAME.wasm, NAME-relaxed.wasm, NAME.mjs, NAME.d.ts and NAME.d.mts, beside
 * NAME.tfmw; of commands of WASI the modules alone.
 *
 * In: the command line, targets whose code goes into modules, a library's request. Out: the files, each of them
 * complete or not at all, the loader last. Refused: a C compiler, objects, names of other kinds of files. */
#ifndef TFM_CLI_COMPILE_MODULES_H
#define TFM_CLI_COMPILE_MODULES_H

#include "aot/aot.h"
#include "cli/session.h"

typedef struct ModulePaths { /* NULL: it is not made */
  const char *plain, *relaxed, *loader, *types, *types_of_loader;
  const char *made; /* what is told of: the loader, or a module where there is none */
  const char *weights; /* where the loader finds them from its own place; NULL: in the file beside it */
} ModulePaths;

typedef struct ModuleTargets {
  const TargetInfo *const *items;
  uint32_t n;
} ModuleTargets;

/* What all instruction sets of modules are called in -march. */
const char *modules_usual_march(Arena *arena);
/* Whether a command of WASI is asked for. */
bool emits_command(const Session *session);
/* Names of files that begin with `output`. False after an error. The caller checks what else is written. */
bool modules_choose_files(Session *session, const char *output, ModuleTargets targets, ModulePaths *paths);
/* Writes a module for each plan of the request, and what belongs to them. */
bool modules_write(Session *session, const LibraryParts *parts, const ModulePaths *paths);

/* Writes a file, complete or not at all. */
bool publish_file(Session *session, const char *path, Bytes bytes);

#endif
