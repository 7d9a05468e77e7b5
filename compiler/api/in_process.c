#define _GNU_SOURCE /* dladdr */
#include "api/in_process.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "api/fault.h"

enum { MOST_PATH = 4096 };

void installed_path(const char *relative, char *path, size_t size) {
  tfm_status (*function)(const tfm_compile_options *, tfm_compiled **, tfm_error *) = tfm_compile;
  void *own;
  memcpy(&own, &function, sizeof own);
  Dl_info info;
  const char *slash = dladdr(own, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
  int folder = slash ? (int)(slash - info.dli_fname) : 1;
  int length = snprintf(path, size, "%.*s/%s", folder, slash ? info.dli_fname : ".", relative);
  if (length < 0 || (size_t)length >= size) *path = '\0';
}

tfm_status in_process_run(const Request *request, int *exit_code, tfm_error *error) {
  char path[MOST_PATH];
  installed_path(TFM_WORKER_FROM_LIBRARY, path, sizeof path);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void *symbol = library ? dlsym(library, "tfm_worker") : NULL;
  if (!symbol) return fault(error, TFM_E_ENV, "the compiler cannot be loaded into this process: %s", dlerror());
  WorkerFunction worker;
  memcpy(&worker, &symbol, sizeof worker);
  *exit_code = worker(request->n_arguments, request->arguments, request->text, request->output, request->messages);
  return TFM_OK;
}
