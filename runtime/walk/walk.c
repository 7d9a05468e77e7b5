/* A run: every thread walks all steps, with a barrier between two steps unless thread 0 does both alone, or the second
 * is joined to the first. If a call has several parts, each step is done for all of them before the next.
 * Where rows are many, threads take them through chains of steps without a barrier (chains.c).
 *
 * In: a bound context whose RunState.callers hold the addresses of inputs and outputs. Out: the outputs, or the first
 * fault: a computed id out of its range, an integer division by zero, a cancellation.
 *
 * When a step reports a fault, the steps after it are skipped by all threads: a fault is set before the barrier that
 * ends its step, so all threads know it before the next step. Cancelling is such a fault, which thread 0 sets between
 * two steps; once a step that writes into an output may have begun, it is too late. */
#include "walk/walk.h"

#include <string.h>

#include "base/clock.h"
#include "context/binding.h"
#include "machine/fp_mode.h"

bool walk_is_idle(const RunCall *call, uint32_t step) {
  const StepState *state = &call->parts[0].context->run.steps[step];
  return call->n > 1 ? state->idle : state->skipped;
}

static bool step_is_shared(const RunCall *call, uint32_t step, int32_t active) {
  const StepState *state = &call->parts[0].context->run.steps[step];
  return active > 1 && (call->n > 1 ? state->shared : state->parallel);
}

/* Threads that are at different steps may both find one: the earlier step is reported. */
static void note_fault(Walker *walker, uint32_t number) {
  RunState *run = &walker->context->run;
  uint32_t earliest = atomic_load(&run->dividing_step);
  while (number < earliest && !atomic_compare_exchange_weak(&run->dividing_step, &earliest, number)) {}
  atomic_fetch_or(&run->faults, *walker->faults);
  *walker->faults = 0;
}

void walk_step(Walker *walker, const RunPart *part, uint32_t number, int32_t thread, int32_t threads) {
  tfm_context *context = part->context;
  walker->part = part;
  walker->context = context;
  walker->thread = thread;
  walker->threads = threads;
  context->run.steps[number].driver->run(walker, &context->program->steps[number]);
  if (*walker->faults) note_fault(walker, number);
}

/* The same step of several parts. Where it is too small to be worth all threads, each part has one thread, so that the
 * parts run side by side. */
static void do_in_each(Walker *walker, uint32_t number, int32_t thread, int32_t threads) {
  const RunCall *call = walker->call;
  for (int32_t place = 0; place < call->n; place++) {
    const StepState *state = &call->parts[place].context->run.steps[number];
    if (state->skipped) continue;
    if (threads > 1 && state->parallel) walk_step(walker, &call->parts[place], number, thread, threads);
    else if (place % threads == thread) walk_step(walker, &call->parts[place], number, 0, 1);
  }
}

bool walk_has_fault(const RunCall *call) {
  for (int32_t i = 0; i < call->n; i++)
    if (atomic_load_explicit(&call->parts[i].context->run.faults, memory_order_relaxed)) return true;
  return false;
}

/* Threads beyond those that the step is worth go straight to the barrier. After a fault nothing is computed, but every
 * thread still walks to the end, because the barriers count all of them. */
static void do_step(Walker *walker, uint32_t number) {
  const RunCall *call = walker->call;
  const tfm_step *step = &call->parts[0].context->program->steps[number];
  int32_t threads = step_is_shared(call, number, walker->member->active) ? walker->member->active : 1;
  int32_t thread = walker->member->thread;
  if (thread >= threads || walk_has_fault(call)) return;
  walker->of_all = call->n > 1 && step->kind == TFM_STEP_GEMM && call->lockstep->is_one_product(call, step);
  if (call->n > 1 && !walker->of_all) do_in_each(walker, number, thread, threads);
  else walk_step(walker, &call->parts[0], number, thread, threads);
}

/* Called before the barrier in front of a step. Threads that are late may see the fault early and skip the step before
 * it as well; that does no harm, because the results of a cancelled run are not used. */
static void poll_cancelled(const RunCall *call, const PoolMember *member, uint32_t step) {
  const tfm_context *first = call->parts[0].context;
  if (member->thread || step > first->run.committed) return;
  if (!atomic_load_explicit(&first->stop->run, memory_order_relaxed)) return;
  for (int32_t i = 0; i < call->n; i++) atomic_fetch_or(&call->parts[i].context->run.faults, FAULT_CANCELLED);
}

void course_end_step(Course *course, uint32_t step, bool shared) {
  course->any = true;
  course->others = shared;
  course->last = step + 1;
  if (!course->profile) return;
  const uint64_t now = (uint64_t)now_ns();
  course->profile[step] += now - course->start;
  course->start = now;
}

/* The chain that begins with step number `step`, if memory is planned for it. */
static const tfm_row_chain *chain_at(const RunCall *call, uint32_t step) {
  const tfm_context *context = call->parts[0].context;
  if (!context->memory.chained || call->n > 1) return NULL;
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_row_chains; i++)
    if (program->row_chains[i].first_step == step) return &program->row_chains[i];
  return NULL;
}

// ---- a thread's way ----

static void walk(void *argument, PoolMember *member) {
  const RunCall *call = argument;
  tfm_context *context = call->parts[0].context;
  const Memory *memory = &context->memory;
  char *scratch = memory->workspace + memory->buffers_bytes + memory->scratch_bytes * member->thread;
  int32_t faults = 0;
  Walker walker = {.call = call, .part = &call->parts[0], .context = context, .member = member, .scratch = scratch,
                   .serial = context->run.claims.serial, .faults = &faults};
  Course course = {.profile = member->thread == 0 ? context->run.profile : NULL};
  if (course.profile) course.start = (uint64_t)now_ns();
  uint64_t fp_mode = fp_mode_enter();
  for (uint32_t i = 0; i < context->program->n_steps; i++) {
    if (walk_is_idle(call, i)) continue;
    const tfm_row_chain *chain = chain_at(call, i);
    const bool shared = chain || step_is_shared(call, i, member->active);
    if (course.any) poll_cancelled(call, member, i);
    const bool joined = context->program->steps[i].joined && course.last == i && course.others == shared && !chain;
    if (course.any && (course.others || shared) && !joined) pool_barrier(member);
    if (chain && context->program->drivers->take_chain(&walker, chain, &course)) {
      i += chain->n_steps - 1;
      continue;
    }
    do_step(&walker, i);
    course_end_step(&course, i, shared);
  }
  fp_mode_leave(fp_mode);
  if (member->thread == 0) context->run.claims.next = walker.serial;
}

/* As in tfm_step.serves. */
static uint64_t wanted_outputs(const tfm_context *context) {
  uint64_t wanted = 0;
  for (uint32_t i = 0; i < context->program->n_outputs; i++)
    if (context->run.callers[context->program->n_inputs + i]) wanted |= (uint64_t)1 << least_of(i, 63);
  return wanted;
}

/* An output that the caller does not want may still be read by steps whose results are wanted: it gets its stand-in
 * buffer as memory. */
static void place_stand_ins(tfm_context *context) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    void **place = &context->run.callers[program->n_inputs + i];
    if (*place || !program->outputs[i].stand_in) continue;
    *place = context->memory.workspace + context->memory.buffer_offsets[program->outputs[i].stand_in - 1];
  }
}

/* Skips prepare steps whose results are still valid, and steps none of whose results is wanted. `committed` becomes
 * the first step that writes an output of the caller's. */
static void choose_steps(tfm_context *context) {
  RunState *run = &context->run;
  const tfm_program *program = context->program;
  run->committed = program->n_steps;
  uint64_t wanted = wanted_outputs(context);
  place_stand_ins(context);
  inputs_place_defaults(context);
  for (uint32_t i = 0; i < program->n_steps; i++) {
    const Operand *const *results = run->steps[i].results;
    bool unwanted = results[0] && operand_unwanted(context, results[0]) &&
                    (!results[1] || operand_unwanted(context, results[1]));
    unwanted = unwanted || (program->steps[i].serves && !(program->steps[i].serves & wanted));
    run->steps[i].skipped = unwanted || (program->steps[i].prepare && context->binding.prepared);
    bool writes_output = (results[0] && results[0]->slot >= 0) || (results[1] && results[1]->slot >= 0);
    if (writes_output && !run->steps[i].skipped && run->committed == program->n_steps) run->committed = i;
  }
}

static void clear_claims(tfm_context *context) {
  for (int32_t i = 0; i < context->threads; i++) atomic_store(&context->run.claims.slots[i].state, 0);
  context->run.claims.serial = 0; /* steps count from 1: an untouched slot belongs to none */
}

/* Lockstep runs count their steps together, so all their claims begin anew. A single run may go on counting
 * where the last one ended, unless the number of threads has changed or the serial would overflow. */
static void reset_claims(const RunCall *call, int32_t active) {
  tfm_context *first = call->parts[0].context;
  bool room = first->run.claims.serial < SHARE_MAX_SERIAL - first->program->n_steps;
  if (call->n == 1 && room && first->run.last_active == active) return;
  for (int32_t i = 0; i < call->n; i++) clear_claims(call->parts[i].context);
  first->run.last_active = active;
}

/* A step may have several divisions, and does not say which of them met a 0: then the message has another place. */
static tfm_status report_division(tfm_context *context, tfm_error *error) {
  const tfm_program *program = context->program;
  const uint32_t step = atomic_load(&context->run.dividing_step);
  const char *place = NULL, *other = NULL, *refusal = NULL;
  bool is_more = false;
  for (uint32_t i = 0; i < program->n_fault_places; i++) {
    const tfm_fault_place *found = &program->fault_places[i];
    if (found->step == step && found->is_refusal && !other) refusal = found->place;
    if (found->step != step || found->is_refusal || (place && strcmp(place, found->place) == 0)) continue;
    is_more |= other && strcmp(other, found->place) != 0;
    if (place && !other) other = found->place;
    if (!place) place = found->place;
  }
  const char *said = refusal ? refusal : "integer division by zero";
  const char *between = !other ? "" : refusal ? ", or what is divided by is 0 at " : ", here or at ";
  return tfm_fail(error, TFM_E_INPUT, refusal ? TFM_REASON_CHECK : TFM_REASON_ARITHMETIC, place, "%s%s%s%s", said,
                  between, other ? other : "", is_more ? " or another place of this step" : "");
}

/* After a fault, threads have skipped steps at different places and disagree about the serial: last_active 0 makes the
 * next run count anew. */
static tfm_status report_fault(tfm_context *context, int32_t faults, tfm_error *error) {
  context->run.last_active = 0;
  if (faults & FAULT_IDS) return ids_report_computed(context, atomic_load(&context->run.faulty_step), error);
  if (faults & TFM_FAULT_DIVISION) return report_division(context, error);
  return tfm_fail(error, TFM_E_CANCELLED, TFM_REASON_OTHER, NULL, "the run was cancelled");
}

/* A pool that another run holds is not waited for: the caller's thread does everything, with the same bits. */
tfm_status walk_run(const RunCall *call, tfm_error *error) {
  tfm_context *first = call->parts[0].context;
  for (int32_t i = 0; i < call->n; i++) {
    atomic_store_explicit(&call->parts[i].context->run.faults, 0, memory_order_relaxed);
    atomic_store_explicit(&call->parts[i].context->run.dividing_step, TFM_NONE, memory_order_relaxed);
    choose_steps(call->parts[i].context);
  }
  int32_t worth = call->n > 1 ? call->lockstep->share_steps(call) : first->run.active;
  bool claimed = worth > 1 && pool_claim(first->pool);
  int32_t active = claimed ? pool_threads_now(first->pool, worth) : 1;
  reset_claims(call, active);
  pool_run(first->pool, active, walk, (void *)call);
  first->run.claims.serial = first->run.claims.next;
  if (claimed) pool_release(first->pool);
  for (int32_t i = 0; i < call->n; i++) {
    int32_t faults = atomic_load(&call->parts[i].context->run.faults);
    if (faults) return report_fault(call->parts[i].context, faults, error);
  }
  /* Only now: a fault of one part ends all of them, perhaps before the prepare steps of another. */
  for (int32_t i = 0; i < call->n; i++) call->parts[i].context->binding.prepared = true;
  return tfm_succeed(error);
}

tfm_status run_steps(tfm_context *context, tfm_error *error) {
  const RunPart part = {.context = context};
  const RunCall call = {.parts = &part, .n = 1};
  return walk_run(&call, error);
}

/* Shapes are compared again although bind has seen them: a caller that changes an input in between would write beyond
 * buffers. */
tfm_status tfm_context_run(tfm_context *context, const tfm_value *inputs, const tfm_value *outputs, tfm_error *error) {
  if (!context) return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the context is a null pointer");
  const tfm_program *program = context->program;
  if (!outputs && program->n_outputs)
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL, "the outputs are a null pointer");
  tfm_status status = inputs_read(context, inputs, error);
  if (status) return status;
  if (!context->binding.bound || !inputs_same_as_bound(context, inputs))
    return tfm_fail(error, TFM_E_USAGE, TFM_REASON_OTHER, NULL,
                    "the context is not bound to the sizes of these inputs");
  if ((status = ids_check_inputs(context, inputs, error))) return status;
  for (uint32_t i = 0; i < program->n_inputs; i++) context->run.callers[i] = inputs[i].data;
  for (uint32_t i = 0; i < program->n_outputs; i++) context->run.callers[program->n_inputs + i] = outputs[i].data;
  run_forget_cancelled(context);
  return run_steps(context, error);
}
