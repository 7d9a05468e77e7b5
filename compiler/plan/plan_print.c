/* In: a Plan. Out: its text, for people and for tests, which is not read back: inputs, outputs, weights, caches,
 * buffers, steps with their kernels and operands, then the kernels. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "plan/plan.h"

static const char *const space_names[] = {"input", "output", "weight", "buffer", "size"};

// ---- numbers ----

/* Whether brackets around it can be left out. */
static bool is_size_alone(const Plan *plan, tfm_size size) {
  const tfm_polynomial *polynomial = &plan->program.polynomials[size];
  const tfm_term *term = &plan->program.terms[polynomial->first_term];
  bool is_symbol = polynomial->n_terms == 1 && term->degree == 1 && term->coefficient == 1;
  return is_symbol && term->symbols[0] < TFM_FIRST_FLOOR;
}

static void print_symbol(StrBuf *out, const Plan *plan, uint8_t symbol) {
  if (symbol < TFM_FIRST_FLOOR) {
    strbuf_add(out, plan->program.symbols[symbol]);
    return;
  }
  const tfm_floor *floor = &plan->program.floors[symbol - TFM_FIRST_FLOOR];
  bool is_alone = is_size_alone(plan, floor->numerator);
  strbuf_add(out, is_alone ? "(" : "((");
  plan_print_size(out, plan, floor->numerator);
  strbuf_printf(out, "%s//%" PRId64 ")", is_alone ? "" : ")", floor->divisor);
}

/* A coefficient of 1 is left out before symbols, and a negative term after the first is subtracted: "2*batch*time -
 * 1". */
static void print_term(StrBuf *out, const Plan *plan, const tfm_term *term, bool is_first) {
  if (!is_first) strbuf_add(out, term->coefficient < 0 ? " - " : " + ");
  int64_t coefficient = term->coefficient < 0 && !is_first ? -term->coefficient : term->coefficient;
  if (!term->degree || coefficient != 1) strbuf_printf(out, "%" PRId64 "%s", coefficient, term->degree ? "*" : "");
  for (uint32_t i = 0; i < term->degree; i++) {
    if (i) strbuf_add_char(out, '*');
    print_symbol(out, plan, term->symbols[i]);
  }
}

void plan_print_size(StrBuf *out, const Plan *plan, tfm_size size) {
  const tfm_polynomial *polynomial = &plan->program.polynomials[size];
  for (uint32_t i = 0; i < polynomial->n_terms; i++)
    print_term(out, plan, &plan->program.terms[polynomial->first_term + i], i == 0);
  if (!polynomial->n_terms) strbuf_add(out, "0");
}

static void print_sizes(StrBuf *out, const Plan *plan, uint32_t n, const tfm_size *sizes) {
  strbuf_add_char(out, '[');
  for (uint32_t i = 0; i < n; i++) {
    if (i) strbuf_add(out, ", ");
    plan_print_size(out, plan, sizes[i]);
  }
  strbuf_add_char(out, ']');
}

/* Prints one operand: its type, memory, offset and strides, all in elements. A size has a value and no memory. */
static void print_operand(StrBuf *out, const Plan *plan, const char *role, const tfm_operand *operand,
                          uint32_t n_strides) {
  strbuf_printf(out, "      %s: %s ", role, dtype_names[operand->dtype]);
  if (operand->space == TFM_SPACE_SIZE) {
    plan_print_size(out, plan, operand->index);
    strbuf_add_char(out, '\n');
    return;
  }
  strbuf_printf(out, "%s %u", space_names[operand->space], operand->index);
  if (operand->offset) {
    strbuf_add(out, " + ");
    plan_print_size(out, plan, operand->offset);
  }
  strbuf_add_char(out, ' ');
  print_sizes(out, plan, n_strides, operand->strides);
  if (operand->form != TFM_FORM_F32) strbuf_printf(out, " in %s", tfm_form_name(operand->form));
  if (operand->gathered) strbuf_printf(out, " rows from operand %d", operand->gathered);
  strbuf_add_char(out, '\n');
}

/* Prints an operand that counts columns of a cache, or an ordinary one if there is no cache. */
static void print_cached(StrBuf *out, const Plan *plan, uint32_t cache, const char *role, const tfm_operand *operand,
                         uint32_t n_strides) {
  if (cache == TFM_NONE) {
    print_operand(out, plan, role, operand, n_strides);
    return;
  }
  strbuf_printf(out, "      %s: cache %u + ", role, cache);
  plan_print_size(out, plan, operand->offset);
  strbuf_add_char(out, ' ');
  print_sizes(out, plan, n_strides, operand->strides);
  strbuf_add_char(out, '\n');
}

/* Prints the operands [from, n) of those that begin at `first` in the program's list. */
static void print_operands(StrBuf *out, const Plan *plan, uint32_t first, uint32_t from, uint32_t n, uint32_t rank) {
  char role[16];
  for (uint32_t i = from; i < n; i++) {
    snprintf(role, sizeof role, "%u", i);
    print_operand(out, plan, role, &plan->program.operands[first + i], rank);
  }
}

static void print_live_rows(StrBuf *out, const Plan *plan, uint32_t number, uint32_t n_strides) {
  if (!number) return;
  const tfm_live_rows *live = &plan->program.live[number - 1];
  strbuf_printf(out, "      rows where mask is %s%s\n", live->where ? "true" : "false",
                live->zeroed ? ", else 0" : "");
  if (live->item) {
    strbuf_add(out, "      before the last of each ");
    plan_print_size(out, plan, live->item);
    strbuf_add_char(out, '\n');
  }
  print_operand(out, plan, "mask", &live->mask, n_strides);
}

// ---- the fields of steps, by the types of tfm/abi/steps.def ----

static void print_NUMBER(StrBuf *out, const Plan *plan, const char *text, int64_t value) {
  (void)plan;
  strbuf_printf(out, "%s%" PRId64, text, value);
}

static void print_COUNT(StrBuf *out, const Plan *plan, const char *text, int64_t value) {
  if (value) print_NUMBER(out, plan, text, value);
}

static void print_INDEX(StrBuf *out, const Plan *plan, const char *text, uint32_t value) {
  if (value != TFM_NONE) print_NUMBER(out, plan, text, value);
}

static void print_REAL(StrBuf *out, const Plan *plan, const char *text, double value) {
  (void)plan;
  strbuf_printf(out, "%s%g", text, value);
}

static void print_SIZE(StrBuf *out, const Plan *plan, const char *text, tfm_size value) {
  strbuf_add(out, text);
  plan_print_size(out, plan, value);
}

static void print_SIZE_IF(StrBuf *out, const Plan *plan, const char *text, tfm_size value) {
  if (value) print_SIZE(out, plan, text, value);
}

static void print_FLAG(StrBuf *out, const Plan *plan, const char *text, bool value) {
  (void)plan;
  if (value) strbuf_add(out, text);
}

static void print_WORD(StrBuf *out, const Plan *plan, const char *text, uint32_t value) {
  (void)plan;
  for (; value; value--) {
    const char *next = strchr(text, '|');
    CHECK(next, "a word behind '%s'", text);
    text = next + 1;
  }
  strbuf_add_n(out, text, strcspn(text, "|"));
}

static void print_FORM(StrBuf *out, const Plan *plan, const char *text, uint8_t value) {
  (void)plan;
  if (value != TFM_FORM_F32) strbuf_printf(out, "%s%s", text, tfm_form_name(value));
}

static void print_kernel(StrBuf *out, const Plan *plan, const char *role, uint32_t kernel) {
  if (kernel != TFM_NONE) strbuf_printf(out, "      %s: %s\n", role, plan->kernels.items[kernel].name);
}

// ---- steps ----

/* Prints what the table of steps says of every kind: the rest of its line, its kernels, its operands by name. The names
 * are those of the members in tfm/abi/steps.def, so a new kind of step is printed without a change here. */
static void print_step(StrBuf *out, const Plan *plan, const tfm_step *info) {
  StrBuf kernels = strbuf_new(out->arena);
  switch ((tfm_step_kind)info->kind) {
#define FIELD(type, member, text) print_##type(out, plan, text, step->member);
#define OVER() strbuf_add(out, " over "), print_sizes(out, plan, step->rank, step->dims);
#define KERNEL(member, role) print_kernel(&kernels, plan, role, step->member);
#define TILES(member, rows, role) \
  if (step->rows) print_kernel(&kernels, plan, role, (step->member)[step->rows]);
#define READ(member, axes) print_operand(out, plan, #member, &step->member, axes);
#define WRITE(member, axes) READ(member, axes)
#define WRITE_IF(flag, member, axes) \
  if (step->flag) READ(member, axes)
#define CACHED(cache, member, axes) print_cached(out, plan, step->cache, #member, &step->member, axes);
#define READ_LIST(from) print_operands(out, plan, step->first_operand, from, step->n_operands, step->rank);
#define WRITE_LIST() READ_LIST(0)
#define MASK(axes) print_live_rows(out, plan, step->live, axes);
#define TEXT(member)
#define STEP(KIND, name, array, fields, operands)                   \
  case TFM_STEP_##KIND: {                                                     \
    const tfm_##name##_step *step = &plan->program.array[info->index];        \
    fields                                                                    \
    strbuf_add_char(out, '\n');                                               \
    strbuf_add_n(out, kernels.text, kernels.length);                          \
    operands                                                                  \
  } break;
#include "tfm/abi/steps.def"
  }
}

static void print_row_chains(StrBuf *out, const Plan *plan) {
  for (uint32_t i = 0; i < plan->program.n_row_chains; i++) {
    const tfm_row_chain *chain = &plan->program.row_chains[i];
    strbuf_printf(out, "  rows may go through steps %u-%u together\n", chain->first_step,
                  chain->first_step + chain->n_steps - 1);
  }
}

static void print_steps(StrBuf *out, const Plan *plan) {
  strbuf_add(out, "  steps\n");
  for (uint32_t i = 0; i < plan->program.n_steps; i++) {
    const tfm_step *step = &plan->program.steps[i];
    strbuf_printf(out, "    %u: %s%s%s", i, step->prepare ? "prepare " : "", step->joined ? "joined " : "", step->name);
    print_step(out, plan, step);
    strbuf_add(out, "      work: ");
    plan_print_size(out, plan, step->work);
    strbuf_add_char(out, '\n');
  }
}

// ---- the rest ----

static void print_tensors(StrBuf *out, const char *what, uint32_t n, const tfm_tensor_info *tensors) {
  for (uint32_t i = 0; i < n; i++) {
    strbuf_printf(out, "  %s %u: %s %s", what, i, text_shown(out->arena, tensors[i].name), tensors[i].shape);
    if (tensors[i].has_default) strbuf_printf(out, ", if left out each 0x%08x", tensors[i].fill);
    if (tensors[i].stand_in) strbuf_printf(out, ", if not wanted in buffer %u", tensors[i].stand_in - 1);
    strbuf_add_char(out, '\n');
  }
}

static void print_limits(StrBuf *out, const Plan *plan) {
  for (uint32_t i = 0; i < plan->program.n_id_limits; i++) {
    const tfm_id_limit *limit = &plan->program.id_limits[i];
    if (limit->n_parts) strbuf_printf(out, "  elements of input %u from %d, below ", limit->input, limit->least);
    else strbuf_printf(out, "  ids of input %u below ", limit->input);
    plan_print_size(out, plan, limit->limit);
    strbuf_add_char(out, '\n');
  }
  strbuf_printf(out, "  checks: %u\n", plan->program.n_checks);
}

static void print_weights(StrBuf *out, const Plan *plan) {
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const WeightRecipe *recipe = &plan->recipes.items[i];
    strbuf_printf(out, "  weight %zu: ", i);
    if (recipe->node->op == OP_WEIGHT) strbuf_add_quoted(out, recipe->node->attr.name);
    else strbuf_printf(out, "%%%u %s", recipe->node->id, op_table[recipe->node->op].name);
    strbuf_add_char(out, ' ');
    node_print_shape(out, plan->graph->sizes, recipe->node);
    const bool is_f32 = recipe->form == TFM_FORM_F32;
    if (!is_f32) strbuf_printf(out, " in %s", tfm_form_name(recipe->form));
    if (recipe->layout == WEIGHT_PANELS) strbuf_printf(out, "%s panels of %u", is_f32 ? " in" : "", recipe->width);
    else if (!is_f32) strbuf_add(out, " rows");
    strbuf_printf(out, ", %" PRIu64 " bytes at %" PRIu64 "\n", recipe->bytes, recipe->offset);
  }
}

static void print_caches(StrBuf *out, const Plan *plan) {
  const tfm_program *program = &plan->program;
  for (uint32_t i = 0; i < program->n_caches; i++) {
    const tfm_cache *cache = &program->caches[i];
    strbuf_printf(out, "  cache %u: %s of %s.%u, %" PRId64 " columns at %" PRId64, i,
                  cache->kind == TFM_CACHE_KEYS ? "keys" : "values", cache->of_encoder ? "encoded" : "cache",
                  cache->number, cache->columns, cache->offset);
    if (cache->form != TFM_FORM_F32) strbuf_printf(out, ", %s by %u", tfm_form_name(cache->form), cache->head);
    strbuf_add_char(out, '\n');
  }
  if (program->n_caches)
    strbuf_printf(out, "  floats of a page: %" PRId64 ", of an encoder's page: %" PRId64 "\n", program->own_page_floats,
                  program->encoder_page_floats);
}

static void print_buffers(StrBuf *out, const Plan *plan) {
  for (uint32_t i = 0; i < plan->program.n_buffers; i++) {
    const tfm_buffer *buffer = &plan->program.buffers[i];
    strbuf_printf(out, "  buffer %u: %s[", i, dtype_names[buffer->dtype]);
    plan_print_size(out, plan, buffer->elements);
    strbuf_printf(out, "] steps %u-%u%s\n", buffer->first_step, buffer->last_step,
                  buffer->persistent ? " persistent" : "");
  }
}

void plan_print(StrBuf *out, const Plan *plan) {
  strbuf_printf(out, "plan %s for %s\n", plan->program.name, plan->target->name);
  print_tensors(out, "input", plan->program.n_inputs, plan->program.inputs);
  print_tensors(out, "output", plan->program.n_outputs, plan->program.outputs);
  print_limits(out, plan);
  print_weights(out, plan);
  print_caches(out, plan);
  print_buffers(out, plan);
  print_row_chains(out, plan);
  print_steps(out, plan);
  for (size_t i = 0; i < plan->kernels.n; i++) {
    strbuf_printf(out, "kernel %s: ", plan->kernels.items[i].name);
    kernel_spec_print(out, &plan->kernels.items[i].spec);
  }
}
