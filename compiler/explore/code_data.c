/* Code: the kernels of all programs as LLVM IR and assembly.
 *
 * * In: the plans that programs have, and for each further instruction set plans of the same graphs for it. Out: the
 * list `kernels`, equal ones of all programs once, with their code as blocks; the numbers of kernels in steps. A kernel
 * of another instruction set belongs to the one that has the same place in the same step. Left out, with a note: code
 * of an instruction set of more than MOST_BYTES. Refused: what LLVM refuses. */
#include "explore/code_data.h"

#include <string.h>

#include "aot/aot.h"
#include "explore/code_counts.h"
#include "explore/explorer.h"

enum { MOST_BYTES = 32 << 20, MOST_ROLES = 128 };

// ---- the kernels of a step ----

typedef struct Roles { /* TFM_NONE: the step has none there */
  uint32_t kernels[MOST_ROLES];
  uint32_t n;
} Roles;

static void add_role(Roles *roles, uint32_t kernel) {
  if (roles->n < MOST_ROLES) roles->kernels[roles->n++] = kernel;
}

/* Places stand for the same in any instruction set, but for tiles of fewer rows, which not all have. */
static Roles roles_of(const tfm_program *program, const tfm_step *info) {
  Roles roles = {0};
  switch ((tfm_step_kind)info->kind) {
#define KERNEL(member, role) add_role(&roles, step->member);
#define TILES(member, rows, role) \
  for (uint32_t i = 0; i < TFM_MAX_TILE_ROWS; i++) \
    add_role(&roles, i < (uint32_t)step->rows ? (step->member)[(uint32_t)step->rows - i] : TFM_NONE);
#define OVER()
#define FIELD(type, member, text)
#define STEP(KIND, name, array, fields, operands)                  \
  case TFM_STEP_##KIND: {                                          \
    const tfm_##name##_step *step = &program->array[info->index]; \
    (void)step;                                                    \
    fields                                                         \
  } break;
#include "tfm/abi/steps.def"
  }
  return roles;
}

// ---- which kernels there are ----

typedef struct Code { /* the kernels of one instruction set */
  const TargetInfo *target;
  Plan all; /* each once; nothing but its kernels is used */
  Map known;
  StrBuf assembly, ir;
} Code;

typedef struct Kernels {
  Explorer *x;
  Code *codes; /* of each target */
  Map numbers; /* name, of the first target -> number + 1 */
  json_t *list, *blocks;
  VEC(const char **) names; /* by kernel: its name on each target; NULL: there is none */
} Kernels;

static void collect(Kernels *k, Code *code, const Plan *plan) {
  for (size_t i = 0; i < plan->kernels.n; i++) {
    if (map_has(&code->known, plan->kernels.items[i].name)) continue;
    map_put(&code->known, plan->kernels.items[i].name, code);
    vec_push(k->x->arena, &code->all.kernels, plan->kernels.items[i]);
  }
}

static uint32_t number_of(Kernels *k, const Plan *plan, uint32_t kernel) {
  const PlannedKernel *info = &plan->kernels.items[kernel];
  const uintptr_t known = (uintptr_t)map_get(&k->numbers, info->name);
  if (known) return (uint32_t)known - 1;
  StrBuf spec = strbuf_new(k->x->arena);
  kernel_spec_print(&spec, &info->spec);
  json_array_append_new(k->list, json_pack("{s:s, s:s, s:o, s:[], s:{}}", "name", info->name, "family",
                                           kernel_families[info->spec.family].name, "spec",
                                           json_string(spec.text), "used_by", "code"));
  const char **names = ARENA_ARRAY(k->x->arena, const char *, k->x->request->n_targets);
  names[0] = info->name;
  vec_push(k->x->arena, &k->names, names);
  map_put(&k->numbers, info->name, (void *)(uintptr_t)k->names.n);
  return (uint32_t)k->names.n - 1;
}

/* Notes that a step uses the kernels of its plan, and what they are called in the plans for other targets. */
static void add_step(Kernels *k, uint32_t p, uint32_t s, const Plan *const *plans, json_t *step) {
  const Roles roles = roles_of(&plans[0]->program, &plans[0]->program.steps[s]);
  json_t *kernels = json_array();
  for (uint32_t i = 0; i < roles.n; i++) {
    if (roles.kernels[i] == TFM_NONE) continue;
    const uint32_t number = number_of(k, plans[0], roles.kernels[i]);
    json_t *used_by = json_object_get(json_array_get(k->list, number), "used_by");
    const json_t *last = json_array_get(used_by, json_array_size(used_by) - 1);
    const bool is_known = last && json_integer_value(json_array_get(last, 0)) == p &&
                          json_integer_value(json_array_get(last, 1)) == s;
    if (!is_known) {
      json_array_append_new(used_by, json_pack("[ii]", (int)p, (int)s));
      json_array_append_new(kernels, json_integer(number));
    }
    for (uint32_t t = 1; t < k->x->request->n_targets; t++) {
      const Plan *plan = plans[t];
      if (!plan || plan->program.n_steps != plans[0]->program.n_steps) continue;
      if (plan->program.steps[s].kind != plans[0]->program.steps[s].kind) continue;
      const Roles others = roles_of(&plan->program, &plan->program.steps[s]);
      if (others.kernels[i] != TFM_NONE) k->names.items[number][t] = plan->kernels.items[others.kernels[i]].name;
    }
  }
  json_object_set_new(step, "kernels", kernels);
}

/* Plans of the graph of a program for each target. False after an error. */
static bool add_program(Kernels *k, uint32_t p, json_t *program) {
  const ExploreRequest *request = k->x->request;
  const ExploredProgram *explored = &k->x->programs.items[p];
  const Plan **plans = ARENA_ARRAY(k->x->arena, const Plan *, request->n_targets);
  plans[0] = explored->plan;
  for (uint32_t t = 1; t < request->n_targets; t++) {
    plans[t] = plan_graph(k->x->arena, request->compile.diag, explored->graph, request->targets[t]);
    if (!plans[t]) return false;
  }
  for (uint32_t t = 0; t < request->n_targets; t++) {
    k->codes[t].all.graph = explored->graph;
    collect(k, &k->codes[t], plans[t]);
  }
  json_t *steps = json_object_get(program, "steps");
  for (uint32_t s = 0; s < plans[0]->program.n_steps; s++) add_step(k, p, s, plans, json_array_get(steps, s));
  return true;
}

// ---- their text ----

/* From `begin`, which names the function, to the line `end`; NULL: it is not there. */
static const char *piece(Arena *arena, const StrBuf *text, const char *begin, const char *end) {
  const char *at = strstr(text->text, begin);
  const char *behind = at ? strstr(at, end) : NULL;
  if (!behind) return NULL;
  if (*at == '\n') at++;
  return arena_strndup(arena, at, (size_t)(behind - at));
}

/* Adds LLVM IR without the lists of predecessors behind labels, which follow from the branches and take a lot of room
 * in a page. */
static void add_ir(StrBuf *out, const char *text) {
  static const char list[] = "; preds = ";
  for (const char *at; (at = strstr(text, list)); text = at + strcspn(at, "\n")) {
    const char *end = at;
    while (end > text && end[-1] == ' ') end--;
    strbuf_add_n(out, text, (size_t)(end - text));
  }
  strbuf_add(out, text);
}

static json_t *loops_of(const CodeCounts *counts) {
  json_t *list = json_array();
  for (size_t i = 0; i < counts->loops.n; i++) {
    const LoopCounts *loop = &counts->loops.items[i];
    json_array_append_new(list, json_pack("{s:i, s:i, s:b, s:i, s:i, s:i, s:i, s:i, s:i}", "line", (int)loop->line,
                                          "depth", (int)loop->depth, "inner", (int)loop->is_inner, "fma",
                                          (int)loop->fma, "loads", (int)loop->loads, "stores", (int)loop->stores,
                                          "broadcasts", (int)loop->broadcasts, "prefetches", (int)loop->prefetches,
                                          "spills", (int)loop->spills));
  }
  return list;
}

static void add_code(Kernels *k, const Code *code, const char *name, json_t *to) {
  Arena *arena = k->x->arena;
  const char *assembly = piece(arena, &code->assembly, arena_printf(arena, "\n%s:", name), "\n.Lfunc_end");
  const char *ir = piece(arena, &code->ir, arena_printf(arena, "@%s(", name), "\n}\n");
  if (!assembly || !ir) return;
  StrBuf text = strbuf_new(arena), ir_text = strbuf_new(arena);
  strbuf_add(&text, assembly);
  strbuf_add(&ir_text, "define void ");
  add_ir(&ir_text, ir);
  strbuf_add(&ir_text, "\n}");
  const CodeCounts counts = code_counts(arena, assembly);
  const int asm_block = block_add(k->blocks, &text), ir_block = block_add(k->blocks, &ir_text);
  json_object_set_new(to, code->target->name,
                      json_pack("{s:s, s:i, s:i, s:i, s:i, s:o}", "name", name, "asm", asm_block, "llvm", ir_block,
                                "spills", (int)counts.spills, "reloads", (int)counts.reloads, "loops",
                                loops_of(&counts)));
}

/* False after an error. */
static bool add_target(Kernels *k, uint32_t t, json_t *notes) {
  Code *code = &k->codes[t];
  Diag *diag = k->x->request->compile.diag;
  if (!code->all.kernels.n) return true;
  if (!code_text(diag, &code->all, true, &code->assembly)) return false;
  if (!code_text(diag, &code->all, false, &code->ir)) return false;
  if (code->assembly.length > MOST_BYTES) {
    const char *note = arena_printf(k->x->arena, "The code for %s is left out: its assembly has %zu MB.",
                                    code->target->name, code->assembly.length >> 20);
    json_array_append_new(notes, json_string(note));
    return true;
  }
  for (size_t i = 0; i < k->names.n; i++)
    if (k->names.items[i][t])
      add_code(k, code, k->names.items[i][t], json_object_get(json_array_get(k->list, i), "code"));
  return true;
}

json_t *explorer_kernels(Explorer *x, json_t *programs, json_t *blocks, json_t *notes) {
  Kernels k = {.x = x, .numbers = map_new(x->arena), .list = json_array(), .blocks = blocks};
  k.codes = ARENA_ARRAY(x->arena, Code, x->request->n_targets);
  for (uint32_t t = 0; t < x->request->n_targets; t++)
    k.codes[t] = (Code){.target = x->request->targets[t],
                        .all = {.arena = x->arena, .target = x->request->targets[t]},
                        .known = map_new(x->arena),
                        .assembly = strbuf_new(x->arena),
                        .ir = strbuf_new(x->arena)};
  bool done = true;
  for (uint32_t p = 0; p < x->programs.n && done; p++) done = add_program(&k, p, json_array_get(programs, p));
  const uint32_t n_texts = x->request->is_for_comparison ? 0 : x->request->n_targets;
  for (uint32_t t = 0; t < n_texts && done; t++) done = add_target(&k, t, notes);
  return done ? k.list : NULL;
}
