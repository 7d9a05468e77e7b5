/* A run: every thread walks all steps, with a barrier between two steps unless thread 0 does both alone.
 *
 * When a step reports a fault, the steps after it are skipped by all threads: a fault is set before the barrier that ends
 * its step, so all threads see it at the same step. */
#include "run.h"

#include <string.h>
#include <time.h>

#include "fp_mode.h"
#include "steps.h"

typedef void (*StepFunction)(Walker *walker, const tfm_step *step);

static const StepFunction step_functions[] = {
    [TFM_STEP_ROW] = step_row,             [TFM_STEP_GEMM] = step_gemm,   [TFM_STEP_MATMUL] = step_matmul,
    [TFM_STEP_ATTENTION] = step_attention, [TFM_STEP_TABLE] = step_table, [TFM_STEP_CHECK_IDS] = step_check_ids};

Claimer walker_claimer(Walker *walker, int64_t blocks, int64_t groups) {
  if (walker->threads > 1) walker->serial++;
  return (Claimer){.claims = &walker->context->claims,
                   .grid = share_grid(blocks, groups, walker->threads),
                   .serial = walker->serial,
                   .thread = walker->thread,
                   .threads = walker->threads};
}

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static bool step_is_parallel(const tfm_context *context, uint32_t step, int32_t active) {
  return active > 1 && context->steps[step].parallel;
}

static void do_step(Walker *walker, uint32_t number) {
  tfm_context *context = walker->context;
  const tfm_step *step = &context->program->steps[number];
  bool parallel = step_is_parallel(context, number, walker->member->active);
  walker->thread = walker->member->thread;
  walker->threads = parallel ? walker->member->active : 1;
  if (!parallel && walker->thread != 0) return;
  if (atomic_load_explicit(&context->faults, memory_order_relaxed)) return;
  step_functions[step->kind](walker, step);
}

static void walk(void *argument, PoolMember *member) {
  tfm_context *context = argument;
  char *scratch = context->workspace + context->buffers_bytes + context->scratch_bytes * member->thread;
  Walker walker = {.context = context, .member = member, .scratch = scratch, .serial = context->claims.serial};
  uint64_t *profile = member->thread == 0 ? context->profile : NULL;
  uint64_t start = profile ? now_ns() : 0;
  bool any = false, others = false; /* steps before this one: any at all; the last one by all threads */
  uint64_t fp_mode = fp_mode_enter();
  for (uint32_t i = 0; i < context->program->n_steps; i++) {
    if (context->steps[i].skipped) continue;
    bool parallel = step_is_parallel(context, i, member->active);
    if (any && (others || parallel)) pool_barrier(member);
    do_step(&walker, i);
    any = true;
    others = parallel;
    if (!profile) continue;
    uint64_t now = now_ns();
    profile[i] += now - start;
    start = now;
  }
  fp_mode_leave(fp_mode);
  if (member->thread == 0) context->claims.serial = walker.serial;
}

/* Prepare steps are left out while their results are valid; a step whose output is not wanted is too. */
static void choose_steps(tfm_context *context) {
  const tfm_program *program = context->program;
  for (uint32_t i = 0; i < program->n_steps; i++) {
    const tfm_step *step = &program->steps[i];
    const Operand *c = &context->step_operands[i * STEP_OPERANDS];
    bool unwanted = false;
    switch ((tfm_step_kind)step->kind) {
      case TFM_STEP_ROW: {
        unwanted = operand_unwanted(context, &context->operands[program->rows[step->index].first_operand]);
        break;
      }
      case TFM_STEP_GEMM:
      case TFM_STEP_TABLE: unwanted = operand_unwanted(context, c + 1); break;
      case TFM_STEP_MATMUL: unwanted = operand_unwanted(context, c + 2); break;
      case TFM_STEP_ATTENTION:
        unwanted = operand_unwanted(context, c + 3) &&
                   (!program->attentions[step->index].has_weights || operand_unwanted(context, c + 4));
        break;
      case TFM_STEP_CHECK_IDS: break;
    }
    context->steps[i].skipped = unwanted || (step->prepare && context->prepared);
  }
}

static void reset_claims(tfm_context *context, int32_t active) {
  Claims *claims = &context->claims;
  bool room = claims->serial < SHARE_MAX_SERIAL - context->program->n_steps;
  if (room && context->last_active == active) return;
  for (int32_t i = 0; i < pool_threads(context->pool); i++) atomic_store(&claims->slots[i].state, 0);
  claims->serial = 0; /* steps count from 1: an untouched slot belongs to none */
  context->last_active = active;
}

tfm_status run_steps(tfm_context *context, tfm_error *error) {
  int32_t active = pool_alive(context->pool) ? context->active : 1;
  atomic_store_explicit(&context->faults, 0, memory_order_relaxed);
  choose_steps(context);
  reset_claims(context, active);
  pool_run(context->pool, active, walk, context);
  int32_t faults = atomic_load(&context->faults);
  if (faults & FAULT_IDS) return ids_report_computed(context, atomic_load(&context->faulty_step), error);
  if (faults & TFM_FAULT_DIVISION)
    return tfm_fail(error, TFM_E_INPUT, TFM_REASON_ARITHMETIC, NULL, "integer division by zero");
  context->prepared = true;
  return tfm_succeed(error);
}
