/* Libraries of one model for several machines: `tfmc compile NAME.tfm --target=TRIPLE,TRIPLE -o FOLDER`.
 *
 * In: the command line, targets of more than one machine, a library's parts. Out: FOLDER/TRIPLE/libNAME.so of each,
 * FOLDER/wasm32/NAME.wasm with its loader, and what all share: FOLDER/NAME.h and FOLDER/NAME.tfmw. Each file is
 * complete or not made, the libraries last; folders that stay empty are removed. Refused: options that are about one
 * machine. */
#ifndef TFM_CLI_COMPILE_MACHINES_H
#define TFM_CLI_COMPILE_MACHINES_H

#include "cli/compile_modules.h"
#include "cli/compile_targets.h"

typedef struct MachineFile { /* of one machine */
  const char *folder, *library;
  bool made_folder;
  bool has_modules; /* modules, and no library */
  ModulePaths modules;
} MachineFile;

typedef struct MachineFiles {
  const char *folder, *header, *weights;
  bool made_folder;
  MachineFile each[MAX_MACHINES];
} MachineFiles;

/* Makes the folders and checks that the files can be written. NULL after an error. */
MachineFiles *machines_choose_files(Session *session, const CompileTargets *chosen);
/* Writes libraries, modules and the header; `parts` has the plans of all. False after an error. */
bool machines_write(Session *session, const LibraryParts *parts, const CompileTargets *chosen,
                    const MachineFiles *files);
/* Removes folders that were made and are empty: after errors. */
void machines_remove_folders(const CompileTargets *chosen, const MachineFiles *files);
/* "out/aarch64-linux-gnu/libm.so: for armv8-a", a line for each machine. */
void machines_say(Session *session, const CompileTargets *chosen, const MachineFiles *files, bool has_weights);

#endif
