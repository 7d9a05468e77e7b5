#include "driver/host.h"
#include "driver/passes_options.h"

#include <unistd.h>

#include "codegen/codegen.h"
#include "compile/compile.h"

const TargetInfo *host_choose_target(Session *session, bool must_run) {
  return compile_target(&session->diag, option_text(&session->options, OPTION_MARCH, "native"), must_run);
}

HostInfo host_info(Arena *arena) {
  return (HostInfo){host_cpu_name(arena), host_target(), (int)sysconf(_SC_NPROCESSORS_ONLN)};
}

const char *host_missing(const TargetInfo *target) { return host_lacks(target); }
