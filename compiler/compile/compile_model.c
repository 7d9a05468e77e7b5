/* In: the graph of a model and a request. Out: derived graphs, plans, packed weights, programs with code. See
 * compile_model.h for what is refused and who owns what.
 *
 * The order matters for memory: graphs, plans and LLVM are done before the packed weights, which are the largest thing
 * the compiler holds, are allocated. */
#define _DEFAULT_SOURCE /* madvise */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "codegen/codegen.h"
#include "compile/compile_model.h"
#include "jit/compiler_memory.h"
#include "plan/plan_memory.h"
#include "weights/pack.h"

enum {
  HUGE_PAGE = 2 * 1024 * 1024, /* weights on such pages are read about a tenth faster */
  MANY_WEIGHTS = 16 * 1024 * 1024 /* bytes: beside so many, what LLVM leaves behind counts */
};

// ---- graphs ----

/* The records of deriving come first in the log, because a report that said only what the passes did with the step
 * could not explain why there is no step. Without a generate block there is nothing to derive, and that is the
 * reason why `parts.step` stays NULL. */
Derivation *compile_derive(const CompileRequest *request, const Graph *graph) {
  Derivation *derived = ARENA_NEW(request->arena, Derivation);
  derived->log.arena = request->arena;
  if (graph->generate_input) derived->parts = incremental_derive(request->arena, request->diag, graph, &derived->log);
  else derived->parts.reason = "it has no generate block";
  return derived;
}

/* A copy of the records of `derived`: the passes append to a log, and the same derivation can stand before the log of
 * the model and before that of its step. */
static PassLog log_after(const CompileRequest *request, const Derivation *derived) {
  PassLog log = {.arena = request->arena};
  for (size_t i = 0; derived && i < derived->log.records.n; i++)
    vec_push(log.arena, &log.records, derived->log.records.items[i]);
  return log;
}

static bool run_passes(const CompileRequest *request, Graph *graph, const PassOptions *options, PassLog *log) {
  const char *purpose = arena_set_purpose(request->arena, "while compiling the model");
  const bool done = passes_run(graph, request->diag, options, log);
  arena_set_purpose(request->arena, purpose);
  return done;
}

/* Records are kept only if somebody asks for the report: a log of every fusion and refusal of a deep model is larger
 * than its graph. `other`: the log of another part of the model, or NULL; what happened there has happened too. */
static bool run_and_report(const CompileRequest *request, Graph *graph, const PassOptions *options,
                           const Derivation *derived, const PassLog *other) {
  if (!request->report) return run_passes(request, graph, options, NULL);
  PassLog log = log_after(request, derived);
  for (int i = 0; other && i < N_FUSIONS; i++) log.happened[i] = other->happened[i];
  return run_passes(request, graph, options, &log) && request->report(request->report_context, graph, &log);
}

bool compile_fuse(const CompileRequest *request, Graph *graph, const Derivation *derived) {
  return run_and_report(request, graph, &request->passes, derived, NULL);
}

/* --print-after, --dump-dir and the timings are about one graph. If all derived graphs printed, the same pass would
 * appear several times and one dump would overwrite another. */
static PassOptions options_of_part(const CompileRequest *request, bool is_reported) {
  PassOptions options = request->passes;
  if (is_reported) return options;
  options.print_to = NULL;
  options.dump_dir = NULL;
  return options;
}

/* What happened in the encoder counts for --require-fusion of a step: together they are the model. */
bool compile_fuse_parts(const CompileRequest *request, Derivation *derived, DerivedPart reported) {
  const Incremental *parts = &derived->parts;
  const PassOptions of_encoder = options_of_part(request, reported == DERIVED_ENCODER);
  const PassOptions of_step = options_of_part(request, reported == DERIVED_STEP);
  PassLog encoded = {.arena = request->arena};
  const bool is_logged = request->report && reported == DERIVED_STEP;
  if (parts->encoder && reported == DERIVED_ENCODER)
    return run_and_report(request, parts->encoder, &of_encoder, derived, NULL);
  if (parts->encoder && !run_passes(request, parts->encoder, &of_encoder, is_logged ? &encoded : NULL)) return false;
  if (!parts->step) return true;
  return is_logged ? run_and_report(request, parts->step, &of_step, derived, &encoded)
                   : run_passes(request, parts->step, &of_step, NULL);
}

// ---- plans ----

/* All plans of a model name weights by the same offsets after share_weights: one block is packed and mapped for the
 * forward, the encoder and the step, so a library is not three times as large as its model. */
bool compile_plans(const CompileRequest *request, Graph *forward, const Incremental *parts, LibraryPlans *plans) {
  *plans = (LibraryPlans){0};
  if (forward) {
    plans->forward = plan_graph(request->arena, request->diag, forward, request->target);
    if (!plans->forward) return false;
  }
  if (parts && parts->step) {
    plans->decoding = plan_decoding(request->arena, request->diag, parts, request->target);
    if (!plans->decoding) return false;
  }
  const PlanList list = library_plan_list(plans);
  share_weights(request->arena, list.plans, list.n);
  return true;
}

// ---- weights ----

/* Without a reader of weights nothing is packed, and the block stays zero: the benchmarks fill it with random
 * numbers. */
bool compile_pack_to(const CompileRequest *request, const LibraryPlans *plans, char *packed) {
  const PlanList list = library_plan_list(plans);
  bool done = true;
  for (uint32_t i = 0; i < list.n && done && request->weights.whole; i++)
    done = pack_weights(request->diag, list.plans[i], &request->weights, packed);
  return done;
}

char *compile_pack(const CompileRequest *request, const LibraryPlans *plans) {
  const uint64_t needed = library_plan_list(plans).plans[0]->program.weights_bytes;
  size_t alignment = needed < HUGE_PAGE ? 64 : HUGE_PAGE;
  size_t bytes = (needed / alignment + 1) * alignment;
  char *packed = aligned_alloc(alignment, bytes);
  if (!packed) {
    diag_error_at(request->diag, NULL, DIAG_MEMORY, "not enough memory for %zu bytes of weights", bytes);
    return NULL;
  }
  if (alignment == HUGE_PAGE) madvise(packed, needed / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* only faster */
  memset(packed, 0, needed); /* what is behind it takes no memory */
  if (compile_pack_to(request, plans, packed)) return packed;
  free(packed);
  return NULL;
}

// ---- code ----

static Jit *make_code(const CompileRequest *request, const Plan *plan, const tfm_program **program) {
  Jit *jit = jit_create(request->arena, request->diag, plan, request->cache, NULL);
  if (jit) *program = jit_program(jit);
  return jit;
}

static bool make_all_code(const CompileRequest *request, Compiled *compiled) {
  const DecodingPlan *decoding = compiled->plans.decoding;
  const Plan *forward = compiled->plans.forward;
  if (forward && !(compiled->forward_code = make_code(request, forward, &compiled->forward))) return false;
  if (!decoding) return true;
  compiled->decoding = decoding->decoding;
  compiled->step_code = make_code(request, decoding->step, &compiled->decoding.step);
  if (!compiled->step_code || !decoding->encoder) return compiled->step_code != NULL;
  compiled->encoder_code = make_code(request, decoding->encoder, &compiled->decoding.encoder);
  return compiled->encoder_code != NULL;
}

/* Code comes before weights, which need the most memory. Giving back what the compiler needed takes a millisecond, so
 * small models keep it. */
static bool finish(const CompileRequest *request, Graph *forward, const Incremental *parts, Compiled *compiled) {
  *compiled = (Compiled){0};
  bool done = compile_plans(request, forward, parts, &compiled->plans) && make_all_code(request, compiled);
  if (done && library_plan_list(&compiled->plans).plans[0]->program.weights_bytes >= MANY_WEIGHTS)
    compiler_give_back_memory();
  done = done && (compiled->packed = compile_pack(request, &compiled->plans));
  if (!done) compiled_free(compiled);
  return done;
}

bool compile_forward(const CompileRequest *request, Graph *graph, const Derivation *derived, Compiled *compiled) {
  return compile_fuse(request, graph, derived) && finish(request, graph, NULL, compiled);
}

bool compile_decoder(const CompileRequest *request, Derivation *derived, Compiled *compiled) {
  return compile_fuse_parts(request, derived, DERIVED_STEP) && finish(request, NULL, &derived->parts, compiled);
}

/* Contexts and decoders point into all of this, so the caller destroys them first. */
void compiled_free(Compiled *compiled) {
  free(compiled->packed);
  jit_destroy(compiled->forward_code);
  jit_destroy(compiled->step_code);
  jit_destroy(compiled->encoder_code);
  *compiled = (Compiled){0};
}

// ---- instruction sets ----

/* "native" is resolved here and nowhere else, so that every message and every file names the instruction set that was
 * really used. */
static const TargetInfo *find_target(Diag *diag, const char *name) {
  if (strcmp(name, "native") == 0) return host_target();
  const TargetInfo *target = target_find(name);
  if (target) return target;
  StrBuf list = strbuf_new(diag->arena);
  for (const TargetInfo *t = targets; t->name; t++) strbuf_printf(&list, ", %s", t->name);
  diag_error_at(diag, NULL, DIAG_USAGE, "-march: unknown instruction set '%s'; there are native%s", name, list.text);
  return NULL;
}

/* The CPU is checked before anything is compiled: an illegal instruction in generated code would end the process with
 * a signal that names nothing. */
const TargetInfo *compile_target(Diag *diag, const char *name, bool must_run) {
  const TargetInfo *target = find_target(diag, name);
  const char *why = target && must_run ? host_refuses(diag->arena, target) : NULL;
  if (!why) return target;
  diag_error_at(diag, NULL, DIAG_CPU, "%s", why);
  return NULL;
}
