/* In: --target and -march. Out: what is made for which machine. See compile_targets.h. */
#include "cli/compile_targets.h"

#include <string.h>

#include "aot/runtime_archives.h"
#include "cli/cli_model.h"
#include "cli/compile_modules.h"

const char *emitted_kind(const Session *session) { return option_text(&session->options, OPTION_EMIT, "lib"); }

bool emits_object(const Session *session) {
  return option_given(&session->options, OPTION_OBJECT) || strcmp(emitted_kind(session), "obj") == 0;
}

// ---- --target ----

/* NULL after an error. */
static const FamilyInfo *family_of_triple(Session *session, const char *triple) {
  const FamilyInfo *info = family_find(triple);
  if (info) return info;
  StrBuf list = strbuf_new(session->arena);
  for (info = cpu_families; info->family != TFM_FAMILY_ANY; info++)
    strbuf_printf(&list, "%s%s", list.length ? ", " : "", info->triple);
  option_error(&session->diag, OPTION_TARGET,
               "unknown target '%s'; there are %s; other 32-bit and big-endian machines are not supported", triple,
               list.text);
  return NULL;
}

static bool add_machine(Session *session, CompileTargets *chosen, const char *triple) {
  const FamilyInfo *info = family_of_triple(session, triple);
  if (!info) return false;
  for (uint32_t i = 0; i < chosen->n_machines; i++)
    if (chosen->machines[i].info == info) {
      option_error(&session->diag, OPTION_TARGET, "%s is named twice", triple);
      return false;
    }
  chosen->machines[chosen->n_machines++] = (CompileMachine){.info = info};
  return true;
}

/* No machine without --target: -march says it then. */
static bool choose_machines(Session *session, CompileTargets *chosen) {
  char *triples = arena_strdup(session->arena, option_text(&session->options, OPTION_TARGET, ""));
  for (char *rest = NULL, *triple = strtok_r(triples, ",", &rest); triple; triple = strtok_r(NULL, ",", &rest))
    if (!add_machine(session, chosen, triple)) return false;
  if (chosen->n_machines || !option_given(&session->options, OPTION_TARGET)) return true;
  family_of_triple(session, "");
  return false;
}

// ---- -march ----

/* Sets are kept from the best to the least, each once: a library tries its sets in this order when it is opened. The
 * table of targets goes from the least to the most and has those of a family together, so addresses compare. */
static bool add_set(Session *session, CompileTargets *chosen, const char *name) {
  const TargetInfo *target = compile_target(&session->diag, name, false);
  if (!target) return false;
  uint32_t place = 0, n_before = 0;
  while (place < chosen->n && chosen->sets[place] > target) place++;
  if (place < chosen->n && chosen->sets[place] == target) return true;
  for (uint32_t i = 0; i < chosen->n; i++) n_before += chosen->sets[i]->family == target->family;
  if (n_before == MAX_SETS_OF_LIBRARY) {
    option_error(&session->diag, OPTION_MARCH, "more than %d instruction sets", MAX_SETS_OF_LIBRARY);
    return false;
  }
  memmove(chosen->sets + place + 1, chosen->sets + place, (chosen->n - place) * sizeof *chosen->sets);
  chosen->sets[place] = target;
  chosen->n++;
  return true;
}

static bool add_sets(Session *session, CompileTargets *chosen, const char *list) {
  char *names = arena_strdup(session->arena, list);
  for (char *rest = NULL, *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
    if (!add_set(session, chosen, name)) return false;
  return true;
}

/* What is made when -march does not say: for other CPUs of the family too, since a library is usually made to be
 * copied. "native" would be a trap. */
static const char *usual_march(Arena *arena, tfm_family family) {
  if (family_makes_modules(family)) return modules_usual_march(arena);
  if (family == TFM_FAMILY_ANY) family = cpu_family();
  return target_for_libraries(family == TFM_FAMILY_ANY ? targets[0].family : family)->name;
}

static bool choose_sets(Session *session, CompileTargets *chosen) {
  const char *given = option_text(&session->options, OPTION_MARCH, NULL);
  if (given && !add_sets(session, chosen, given)) return false;
  for (uint32_t i = 0; !given && i < chosen->n_machines; i++)
    if (!add_sets(session, chosen, usual_march(session->arena, chosen->machines[i].info->family))) return false;
  if (!given && !chosen->n_machines && !add_sets(session, chosen, usual_march(session->arena, TFM_FAMILY_ANY)))
    return false;
  if (!chosen->n) option_error(&session->diag, OPTION_MARCH, "no instruction set");
  return chosen->n > 0;
}

// ---- what belongs together ----

/* NULL: it is code for none of the machines. */
static CompileMachine *machine_of(CompileTargets *chosen, const TargetInfo *target) {
  for (uint32_t i = 0; i < chosen->n_machines; i++)
    if (chosen->machines[i].info->family == target->family) return &chosen->machines[i];
  return NULL;
}

static void refuse_set(Session *session, const CompileTargets *chosen, const TargetInfo *target) {
  const TargetInfo *first = chosen->sets[0]; /* which names the machine, if --target does not */
  if (chosen->n_machines > 1)
    option_error(&session->diag, OPTION_MARCH, "%s is code for %s, which --target does not name", target->name,
                 target_family(target)->triple);
  else if (option_given(&session->options, OPTION_TARGET))
    option_error(&session->diag, OPTION_MARCH, "%s is code for %s, not for %s", target->name,
                 target_family(target)->triple, chosen->machines[0].info->triple);
  else
    option_error(&session->diag, OPTION_MARCH, "a library holds code for one kind of machine: %s is %s, %s is %s",
                 first->name, target_family(first)->name, target->name, target_family(target)->name);
}

/* Each set goes to its machine, and each machine has one. */
static bool share_sets(Session *session, CompileTargets *chosen) {
  if (!chosen->n_machines)
    chosen->machines[chosen->n_machines++] = (CompileMachine){.info = target_family(chosen->sets[0])};
  for (uint32_t i = 0; i < chosen->n; i++) {
    CompileMachine *machine = machine_of(chosen, chosen->sets[i]);
    if (!machine) {
      refuse_set(session, chosen, chosen->sets[i]);
      return false;
    }
    if (!machine->n++) machine->first = i;
  }
  for (uint32_t i = 0; i < chosen->n_machines; i++) {
    if (chosen->machines[i].n) continue;
    option_error(&session->diag, OPTION_MARCH, "no instruction set for %s", chosen->machines[i].info->triple);
    return false;
  }
  return true;
}

/* Code alone needs no runtime. */
static bool check_machine(Session *session, const CompileMachine *machine) {
  RuntimeArchive runtime;
  const tfm_family family = machine->info->family;
  if (family_makes_modules(family) && option_given(&session->options, OPTION_TRAINING)) {
    option_error(&session->diag, OPTION_TRAINING, "there are no modules that train: not for %s", machine->info->triple);
    return false;
  }
  if (!family_makes_modules(family) && emits_command(session)) {
    option_error(&session->diag, OPTION_EMIT, "a command of WASI is a module: --target=wasm32, not %s",
                 machine->info->triple);
    return false;
  }
  const bool needs_runtime = strcmp(emitted_kind(session), "lib") == 0 || emits_command(session);
  return !needs_runtime || emits_object(session) ||
         runtime_of_family(&session->diag, family, &runtime);
}

bool choose_compile_targets(Session *session, CompileTargets *chosen) {
  *chosen = (CompileTargets){.n = 0};
  if (!choose_machines(session, chosen) || !choose_sets(session, chosen) || !share_sets(session, chosen)) return false;
  for (uint32_t i = 0; i < chosen->n_machines; i++)
    if (!check_machine(session, &chosen->machines[i])) return false;
  return true;
}
