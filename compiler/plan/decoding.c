/* In: the two graphs of the incremental form. Out: their plans, and which size, input and output means what; it is all
 * said by names (passes/incremental.h). See decoding.h. */
#include "plan/decoding.h"

#include <string.h>

#include "base/check.h"

static bool begins_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }
static bool is_cache(const char *name) { return begins_with(name, "cache."); }
static bool is_source(const char *name) { return begins_with(name, "source."); }

// ---- finding things by name ----

static uint32_t tensor_named(uint32_t n, const tfm_tensor_info *tensors, const char *name) {
  for (uint32_t i = 0; i < n; i++)
    if (strcmp(tensors[i].name, name) == 0) return i;
  return TFM_NONE;
}

static uint32_t output_named(const tfm_program *program, const char *name) {
  return program ? tensor_named(program->n_outputs, program->outputs, name) : TFM_NONE;
}

static uint32_t symbol_named(const tfm_program *program, const char *name, const char *ending) {
  size_t length = strlen(name);
  for (uint32_t i = 0; program && i < program->n_symbols; i++)
    if (begins_with(program->symbols[i], name) && strcmp(program->symbols[i] + length, ending) == 0) return i;
  return TFM_NONE;
}

static const tfm_polynomial *polynomial(const tfm_program *program, tfm_size size) { return &program->polynomials[size]; }

/* The symbol that the size is; TFM_NONE: it is none. */
static uint32_t symbol_of(const tfm_program *program, tfm_size size) {
  const tfm_polynomial *p = polynomial(program, size);
  const tfm_term *term = &program->terms[p->first_term];
  return p->n_terms == 1 && term->coefficient == 1 && term->degree == 1 ? term->symbols[0] : TFM_NONE;
}

static bool involves(const tfm_program *program, tfm_size size, uint32_t symbol) {
  const tfm_polynomial *p = polynomial(program, size);
  for (uint32_t i = 0; i < p->n_terms; i++)
    for (uint32_t k = 0; k < program->terms[p->first_term + i].degree; k++)
      if (program->terms[p->first_term + i].symbols[k] == symbol) return true;
  return false;
}

static uint32_t axis_of(const tfm_program *program, const tfm_tensor_info *tensor, uint32_t symbol) {
  for (uint32_t i = 0; i < tensor->rank; i++)
    if (involves(program, tensor->dims[i], symbol)) return i;
  return TFM_NONE;
}

// ---- the parts of a decoding ----

static uint32_t find_tokens(const tfm_program *step) {
  for (uint32_t i = 0; i < step->n_inputs; i++)
    if (!is_cache(step->inputs[i].name) && !is_source(step->inputs[i].name)) return i;
  UNREACHABLE("a step without tokens");
}

/* The source program's size with this name, if its inputs say what it is. */
static uint32_t counted_by_inputs(const tfm_program *source, const char *name) {
  uint32_t symbol = symbol_named(source, name, "");
  for (uint32_t i = 0; symbol != TFM_NONE && i < source->n_inputs; i++)
    if (axis_of(source, &source->inputs[i], symbol) != TFM_NONE) return symbol;
  return TFM_NONE;
}

/* "time.fresh" is the length of the tokens; "time.past" and "time.kept" belong to it. */
static void find_sizes(Arena *arena, tfm_decoding *d) {
  const tfm_program *step = d->step;
  const tfm_tensor_info *tokens = &step->inputs[d->tokens];
  d->rows = symbol_of(step, tokens->dims[0]);
  d->fresh = symbol_of(step, tokens->dims[1]);
  CHECK(d->fresh != TFM_NONE, "new tokens of no length");
  const char *fresh = step->symbols[d->fresh];
  const char *length = arena_strndup(arena, fresh, (size_t)(strrchr(fresh, '.') - fresh));
  d->past = symbol_named(step, length, ".past");
  d->kept = symbol_named(step, length, ".kept");
  CHECK(d->past != TFM_NONE && d->kept != TFM_NONE, "a step without earlier positions");
  uint32_t *sizes = ARENA_ARRAY(arena, uint32_t, step->n_symbols);
  for (uint32_t i = 0; i < step->n_symbols; i++) {
    bool is_own = i == d->rows || i == d->fresh || i == d->past || i == d->kept;
    sizes[i] = is_own ? TFM_NONE : symbol_named(d->source, step->symbols[i], "");
  }
  d->sizes = sizes;
  d->source_rows = d->rows == TFM_NONE ? TFM_NONE : counted_by_inputs(d->source, step->symbols[d->rows]);
}

static void find_inputs(Arena *arena, tfm_decoding *d) {
  const tfm_program *step = d->step;
  tfm_step_input *inputs = ARENA_ARRAY(arena, tfm_step_input, step->n_inputs);
  for (uint32_t i = 0; i < step->n_inputs; i++) {
    const tfm_tensor_info *info = &step->inputs[i];
    inputs[i] = (tfm_step_input){.is_cache = is_cache(info->name), .batch_axis = TFM_NONE, .past_axis = TFM_NONE};
    if (i == d->tokens) continue;
    inputs[i].number = output_named(inputs[i].is_cache ? step : d->source, info->name);
    CHECK(inputs[i].number != TFM_NONE, "nothing fills the input %s", info->name);
    if (d->rows != TFM_NONE) inputs[i].batch_axis = axis_of(step, info, d->rows);
    if (inputs[i].is_cache) inputs[i].past_axis = axis_of(step, info, d->past);
  }
  d->inputs = inputs;
}

static void find_outputs(tfm_decoding *d) {
  const tfm_program *step = d->step;
  d->log_sum = output_named(step, "log_sum");
  d->scores = 0;
  while (d->scores == d->log_sum || is_cache(step->outputs[d->scores].name)) d->scores++;
  const tfm_tensor_info *scores = &step->outputs[d->scores];
  const tfm_polynomial *vocab = polynomial(step, scores->dims[scores->rank - 1]);
  d->vocab = vocab->n_terms ? step->terms[vocab->first_term].coefficient : 0;
}

static void find_sources_of_caches(Arena *arena, tfm_decoding *d) {
  uint32_t *outputs = ARENA_ARRAY(arena, uint32_t, d->step->n_caches);
  for (uint32_t i = 0; i < d->step->n_caches; i++) {
    const tfm_cache *cache = &d->step->caches[i];
    outputs[i] = TFM_NONE;
    if (!cache->of_source) continue;
    outputs[i] = output_named(d->source, arena_printf(arena, "source.%u", cache->number));
    CHECK(outputs[i] != TFM_NONE, "nothing fills source.%u", cache->number);
  }
  d->cache_sources = outputs;
}

static void find_ragged(Arena *arena, const Incremental *incremental, tfm_decoding *d) {
  if (!incremental->n_ragged) return;
  uint8_t *ragged = ARENA_ARRAY(arena, uint8_t, d->source->n_symbols);
  for (uint32_t i = 0; i < incremental->n_ragged; i++) {
    uint32_t symbol = counted_by_inputs(d->source, incremental->ragged[i]);
    CHECK(symbol != TFM_NONE, "no input has the ragged size %s", incremental->ragged[i]);
    ragged[symbol] = 1;
  }
  d->ragged = ragged;
}

DecodingPlan *plan_decoding(Arena *arena, Diag *diag, const Incremental *incremental, const TargetInfo *target) {
  DecodingPlan *plans = ARENA_NEW(arena, DecodingPlan);
  plans->step = plan_graph(arena, diag, incremental->step, target);
  if (plans->step && incremental->source) plans->source = plan_graph(arena, diag, incremental->source, target);
  if (!plans->step || (incremental->source && !plans->source)) return NULL;
  tfm_decoding *d = &plans->decoding;
  d->step = &plans->step->program;
  if (plans->source) d->source = &plans->source->program;
  d->tokens = find_tokens(d->step);
  find_sizes(arena, d);
  find_inputs(arena, d);
  find_outputs(d);
  find_sources_of_caches(arena, d);
  find_ragged(arena, incremental, d);
  return plans;
}
