/* In: the two graphs of the incremental form. Out: their plans, and which size, input and output of the programs has
 * which role (graph/roles.def). See plan_decoding.h. */
#include "plan/plan_decoding.h"

#include <string.h>

#include "base/check.h"

// ---- finding things by role, and sizes that two programs share by name ----

static uint32_t with_role(uint32_t n, const Role *roles, Role role) {
  for (uint32_t i = 0; i < n; i++)
    if (role_is(roles[i], role)) return i;
  return TFM_NONE;
}

static uint32_t input_with(const Plan *plan, Role role) {
  return plan ? with_role(plan->program.n_inputs, plan->input_roles, role) : TFM_NONE;
}

static uint32_t output_with(const Plan *plan, Role role) {
  return plan ? with_role(plan->program.n_outputs, plan->output_roles, role) : TFM_NONE;
}

/* The symbols of a program are those of its graph. */
static uint32_t symbol_with(const Plan *plan, SizeRole role) {
  int32_t symbol = plan ? plan->graph->size_roles[role] : -1;
  return symbol < 0 ? TFM_NONE : (uint32_t)symbol;
}

/* The two graphs have size tables of their own; a size that both have is found by its name. */
static uint32_t symbol_named(const tfm_program *program, const char *name) {
  for (uint32_t i = 0; program && i < program->n_symbols; i++)
    if (strcmp(program->symbols[i], name) == 0) return i;
  return TFM_NONE;
}

static const tfm_polynomial *polynomial(const tfm_program *program, tfm_size size) {
  return &program->polynomials[size];
}

/* Whether a size depends on the symbol. */
static bool involves(const tfm_program *program, tfm_size size, uint32_t symbol) {
  const tfm_polynomial *p = polynomial(program, size);
  for (uint32_t i = 0; i < p->n_terms; i++)
    for (uint32_t k = 0; k < program->terms[p->first_term + i].degree; k++) {
      const uint8_t factor = program->terms[p->first_term + i].symbols[k];
      if (factor == symbol) return true;
      if (factor < TFM_FIRST_FLOOR) continue;
      if (involves(program, program->floors[factor - TFM_FIRST_FLOOR].numerator, symbol)) return true;
    }
  return false;
}

/* Returns the first axis whose size depends on the symbol, or TFM_NONE. */
static uint32_t axis_of(const tfm_program *program, const tfm_tensor_info *tensor, uint32_t symbol) {
  for (uint32_t i = 0; i < tensor->rank; i++)
    if (involves(program, tensor->dims[i], symbol)) return i;
  return TFM_NONE;
}

// ---- the parts of a decoding ----

/* Returns the symbol of the encoder program if some input has an axis of it, so that the runtime can read it off the
 * inputs. */
static uint32_t counted_by_inputs(const tfm_program *encoder, uint32_t symbol) {
  for (uint32_t i = 0; symbol != TFM_NONE && i < encoder->n_inputs; i++)
    if (axis_of(encoder, &encoder->inputs[i], symbol) != TFM_NONE) return symbol;
  return TFM_NONE;
}

/* Sizes of the step program that are not its own (rows, past, fresh, kept) must have the value that the encoder ran
 * with. */
static void find_sizes(Arena *arena, const DecodingPlan *plans, tfm_decoding *d) {
  const tfm_program *step = d->step;
  d->rows = symbol_with(plans->step, ROLE_ROWS);
  d->past = symbol_with(plans->step, ROLE_PAST);
  d->fresh = symbol_with(plans->step, ROLE_FRESH);
  d->kept = symbol_with(plans->step, ROLE_KEPT);
  CHECK(d->past != TFM_NONE && d->fresh != TFM_NONE && d->kept != TFM_NONE, "the graph is no step");
  uint32_t *sizes = ARENA_ARRAY(arena, uint32_t, step->n_symbols);
  for (uint32_t i = 0; i < step->n_symbols; i++) {
    bool is_own = i == d->rows || i == d->fresh || i == d->past || i == d->kept;
    sizes[i] = is_own ? TFM_NONE : symbol_named(d->encoder, step->symbols[i]);
  }
  d->sizes = sizes;
  d->encoder_rows = counted_by_inputs(d->encoder, symbol_with(plans->encoder, ROLE_ROWS));
}

/* What a sum begins with must leave -0 as it is. */
static uint8_t first_value(Role role, const tfm_tensor_info *info) {
  return role.kind == ROLE_RUNNING_SUM && info->dtype == TFM_F32 ? TFM_FIRST_MINUS_ZERO : TFM_FIRST_ZERO;
}

/* An input of the step is a cache or a state, which an output of the step before fills, or a value of the encoder. */
static void find_inputs(Arena *arena, const DecodingPlan *plans, tfm_decoding *d) {
  const tfm_program *step = d->step;
  tfm_step_input *inputs = ARENA_ARRAY(arena, tfm_step_input, step->n_inputs);
  d->decoder_input = input_with(plans->step, (Role){ROLE_TOKENS, 0});
  CHECK(d->decoder_input != TFM_NONE, "a step without tokens");
  for (uint32_t i = 0; i < step->n_inputs; i++) {
    const tfm_tensor_info *info = &step->inputs[i];
    const Role role = plans->step->input_roles[i];
    const bool goes_on = role_goes_on(role);
    inputs[i] = (tfm_step_input){.is_cache = goes_on, .batch_axis = TFM_NONE, .past_axis = TFM_NONE};
    if (role_is_state(role)) inputs[i].first = first_value(role, info);
    if (i == d->decoder_input) continue;
    inputs[i].number = output_with(goes_on ? plans->step : plans->encoder, role);
    CHECK(inputs[i].number != TFM_NONE, "nothing fills the input %s", info->name);
    if (d->rows != TFM_NONE) inputs[i].batch_axis = axis_of(step, info, d->rows);
    if (role.kind == ROLE_CACHE) inputs[i].past_axis = axis_of(step, info, d->past);
  }
  d->inputs = inputs;
}

/* The vocabulary is the constant that the last axis of the logits has. */
static void find_outputs(const DecodingPlan *plans, tfm_decoding *d) {
  const tfm_program *step = d->step;
  d->logsumexp = output_with(plans->step, (Role){ROLE_LOGSUMEXP, 0});
  d->logits = output_with(plans->step, (Role){ROLE_LOGITS, 0});
  CHECK(d->logits != TFM_NONE, "a step without logits");
  const tfm_tensor_info *scores = &step->outputs[d->logits];
  const tfm_polynomial *vocab = polynomial(step, scores->dims[scores->rank - 1]);
  d->vocab = vocab->n_terms ? step->terms[vocab->first_term].coefficient : 0;
}

/* A cache of the encoder is filled from an output of the encoder program, once for each batch. */
static void find_sources_of_caches(Arena *arena, const DecodingPlan *plans, tfm_decoding *d) {
  uint32_t *outputs = ARENA_ARRAY(arena, uint32_t, d->step->n_caches);
  for (uint32_t i = 0; i < d->step->n_caches; i++) {
    const tfm_cache *cache = &d->step->caches[i];
    outputs[i] = TFM_NONE;
    if (!cache->of_encoder) continue;
    outputs[i] = output_with(plans->encoder, (Role){ROLE_ENCODED, cache->number});
    CHECK(outputs[i] != TFM_NONE, "nothing fills encoded %u", cache->number);
  }
  d->cache_encoded = outputs;
}

/* Marks the sizes of which every item of a batch has its own. */
static void find_ragged(Arena *arena, const Incremental *incremental, tfm_decoding *d) {
  if (!incremental->n_ragged) return;
  uint8_t *ragged = ARENA_ARRAY(arena, uint8_t, d->encoder->n_symbols);
  for (uint32_t i = 0; i < incremental->n_ragged; i++) {
    uint32_t symbol = counted_by_inputs(d->encoder, symbol_named(d->encoder, incremental->ragged[i]));
    CHECK(symbol != TFM_NONE, "no input has the ragged size %s", incremental->ragged[i]);
    ragged[symbol] = 1;
  }
  d->ragged = ragged;
}

DecodingPlan *plan_decoding(Arena *arena, Diag *diag, const Incremental *incremental, const TargetInfo *target) {
  DecodingPlan *plans = ARENA_NEW(arena, DecodingPlan);
  plans->step = plan_graph(arena, diag, incremental->step, target);
  if (plans->step && incremental->encoder) plans->encoder = plan_graph(arena, diag, incremental->encoder, target);
  if (!plans->step || (incremental->encoder && !plans->encoder)) return NULL;
  tfm_decoding *d = &plans->decoding;
  d->step = &plans->step->program;
  if (plans->encoder) d->encoder = &plans->encoder->program;
  find_sizes(arena, plans, d);
  find_inputs(arena, plans, d);
  find_outputs(plans, d);
  find_sources_of_caches(arena, plans, d);
  find_ragged(arena, incremental, d);
  return plans;
}
