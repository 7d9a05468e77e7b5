#include "driver/host.h"

#include <string.h>
#include <unistd.h>

#include "codegen/codegen.h"

static const TargetInfo *find(Session *session, const char *name) {
  if (strcmp(name, "native") == 0) return host_target();
  const TargetInfo *target = target_find(name);
  if (target) return target;
  StrBuf list = strbuf_new(session->arena);
  for (const TargetInfo *t = targets; t->name; t++) strbuf_printf(&list, ", %s", t->name);
  option_error(&session->diag, OPTION_MARCH, "unknown instruction set '%s'; there are native%s", name, list.text);
  return NULL;
}

const TargetInfo *host_choose_target(Session *session, bool must_run) {
  const TargetInfo *target = find(session, option_text(&session->options, OPTION_MARCH, "native"));
  const char *missing = target && must_run ? host_lacks(target) : NULL;
  if (!missing) return target;
  diag_error_at(&session->diag, NULL, DIAG_CPU, "this CPU cannot run %s code: it lacks %s", target->name, missing);
  return NULL;
}

HostInfo host_info(Arena *arena) {
  return (HostInfo){host_cpu_name(arena), host_target(), (int)sysconf(_SC_NPROCESSORS_ONLN)};
}

const char *host_missing(const TargetInfo *target) { return host_lacks(target); }
