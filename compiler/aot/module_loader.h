/* Module loader: the JavaScript beside WebAssembly modules, and its types for TypeScript.
 *
 * In: the parts of a library and the names of its files. Out: NAME.mjs, which opens and runs the model in browsers, in
 * workers and in node, of web/module.mjs and what is known of the model; NAME.d.ts, the same interface with the model's
 * own inputs and outputs. Neither needs another file or package. Refuses nothing. */
#ifndef TFM_AOT_MODULE_LOADER_H
#define TFM_AOT_MODULE_LOADER_H

#include "aot/header.h"

typedef struct ModuleFiles { /* names without folders; NULL: there is no such file */
  const char *plain, *relaxed, *weights;
} ModuleFiles;

void write_module_loader(StrBuf *out, const LibraryParts *parts, const ModuleFiles *files);
void write_module_types(StrBuf *out, const LibraryParts *parts);

#endif
