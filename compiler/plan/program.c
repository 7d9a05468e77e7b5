/* In: sizes and checks of the graph; kernel specs, views and the numbers of a step. Out: entries of the program:
 * polynomials and kernels, each once; operands; steps in order with the lifetimes of their buffers; checks with their
 * conditions in postfix order, which the runtime evaluates with a small stack. Refused: products of more symbols than
 * a term of the runtime can hold. */
#include <string.h>

#include "base/checked_size.h"
#include "plan/planner.h"

// ---- polynomials: number 0 is the constant 0, number 1 the constant 1 ----

enum { MAX_DEGREE = (int)sizeof((tfm_term){0}.symbols) };
_Static_assert((int)TFM_FIRST_FLOOR == (int)SIZE_MAX_SYMBOLS, "sizes have the same numbers in a program");

/* Returns the polynomial with these terms: one that exists, or a new one. Sizes keep their terms sorted, so equal
 * polynomials have equal terms. */
static tfm_size intern(Planner *p, uint32_t n, const tfm_term *terms) {
  MapEntry *entry = map_find(&p->polynomials, terms, n * sizeof *terms);
  if (entry) return (tfm_size)(uintptr_t)entry->value;
  uint32_t first = (uint32_t)p->terms.n;
  tfm_size index = (tfm_size)p->polynomial_list.n;
  for (uint32_t i = 0; i < n; i++) vec_push(p->arena, &p->terms, terms[i]);
  vec_push(p->arena, &p->polynomial_list, (tfm_polynomial){first, n});
  map_put_n(&p->polynomials, terms, n * sizeof *terms, (void *)(uintptr_t)index);
  return index;
}

/* Rounds up, and saturates instead of overflowing: scaled sizes are estimates. With 1 / 1 it is exact. */
static int64_t scaled(int64_t coefficient, int64_t numerator, int64_t denominator) {
  int64_t value;
  if (!checked_mul(coefficient, numerator, &value)) return coefficient > 0 ? INT64_MAX : INT64_MIN;
  return value / denominator + (value % denominator > 0);
}

/* Puts the symbols of a term into one of the program. A floor gets its number there when it is first met; its numerator
 * becomes a polynomial then, before the one that asks. */
static void copy_symbols(Planner *p, const SizeTerm *term, tfm_term *copy) {
  for (uint8_t i = 0; i < term->degree; i++) {
    copy->symbols[i] = term->symbols[i];
    if (term->symbols[i] < SIZE_MAX_SYMBOLS) continue;
    const uint8_t floor = (uint8_t)(term->symbols[i] - SIZE_MAX_SYMBOLS);
    if (!p->floor_numbers[floor]) {
      const SizeFloor *of = &p->math.table->floors[floor];
      const tfm_floor made = {plan_size(p, of->numerator), of->divisor};
      vec_push(p->arena, &p->floors, made);
      p->floor_numbers[floor] = (uint8_t)p->floors.n;
    }
    copy->symbols[i] = (uint8_t)(TFM_FIRST_FLOOR + p->floor_numbers[floor] - 1);
  }
}

tfm_size plan_scaled(Planner *p, const Size *size, int64_t numerator, int64_t denominator) {
  tfm_term *terms = ARENA_ARRAY(p->arena, tfm_term, size->n_terms ? size->n_terms : 1);
  uint32_t n = 0;
  for (uint32_t i = 0; i < size->n_terms; i++) {
    const SizeTerm *term = &size->terms[i];
    if (term->degree > MAX_DEGREE) {
      p->math.overflowed = true;
      return 0;
    }
    tfm_term scaled_term = {.coefficient = scaled(term->coefficient, numerator, denominator), .degree = term->degree};
    copy_symbols(p, term, &scaled_term);
    if (scaled_term.coefficient) terms[n++] = scaled_term;
  }
  return intern(p, n, terms);
}

tfm_size plan_size(Planner *p, const Size *size) { return plan_scaled(p, size, 1, 1); }

bool plan_static_size(const Planner *p, tfm_size size, int64_t *value) {
  const tfm_polynomial *polynomial = &p->polynomial_list.items[size];
  *value = 0;
  if (!polynomial->n_terms) return true;
  const tfm_term *term = &p->terms.items[polynomial->first_term];
  *value = term->coefficient;
  return polynomial->n_terms == 1 && !term->degree;
}

// ---- steps ----

uint32_t plan_kernel(Planner *p, const KernelSpec *spec) {
  StrBuf text = strbuf_new(p->arena);
  kernel_spec_print(&text, spec);
  MapEntry *known = map_find(&p->kernels, text.text, text.length);
  if (known) return (uint32_t)(uintptr_t)known->value;
  uint32_t index = (uint32_t)p->plan->kernels.n;
  vec_push(p->arena, &p->plan->kernels, ((PlannedKernel){.spec = *spec, .name = kernel_name(p->arena, spec)}));
  map_put_n(&p->kernels, text.text, text.length, (void *)(uintptr_t)index);
  return index;
}

void plan_whole_tiles(Planner *p) {
  for (size_t i = 0; i < p->plan->kernels.n; i++) {
    PlannedKernel *kernel = &p->plan->kernels.items[i];
    if (kernel->spec.family != KERNEL_TILE || kernel->may_be_cut) continue;
    kernel->spec.has_all_columns = true;
    kernel->name = kernel_name(p->arena, &kernel->spec);
  }
}

/* An output that steps read has a buffer that stands in for it when the caller does not want it; using the output uses
 * the buffer. */
void plan_use(Planner *p, uint8_t space, uint32_t index) {
  if (space == TFM_SPACE_OUTPUT && p->stand_ins[index]) index = p->stand_ins[index] - 1;
  else if (space != TFM_SPACE_BUFFER) return;
  tfm_buffer *buffer = &p->buffers.items[index];
  uint32_t step = (uint32_t)p->steps.n;
  if (buffer->first_step == TFM_NONE) buffer->first_step = step;
  buffer->last_step = step;
}

tfm_operand plan_operand(Planner *p, const View *view) {
  plan_use(p, view->space, view->index);
  return (tfm_operand){.space = view->space, .dtype = (uint8_t)view->dtype, .form = view->form,
                       .index = view->index, .offset = plan_size(p, view->offset)};
}

/* Names are "operation path.of.module", which is what profiles group by. */
void plan_step(Planner *p, tfm_step_kind kind, size_t index, tfm_size work, const char *operation) {
  const char *path = p->node ? p->node->origin.path : NULL;
  const char *name = path && *path ? arena_printf(p->arena, "%s %s", operation, path) : operation;
  tfm_step step = {.kind = (uint8_t)kind, .prepare = p->prepare, .index = (uint32_t)index, .work = work, .name = name};
  /* A prepared result stays for later runs, which may want other outputs; ids are checked whatever is wanted. */
  uint64_t serves = p->node ? p->values[p->node->id].serves : ALL_RUNS;
  if (!p->prepare && kind != TFM_STEP_CHECK_IDS && serves != ALL_RUNS) step.serves = serves;
  vec_push(p->arena, &p->steps, step);
  vec_push(p->arena, &p->plan->step_nodes, p->node);
}

static const char *place_text(const Planner *p, SrcSpan span) {
  if (!span.source) return NULL;
  SrcPlace place = source_place(span.source, span.begin);
  const char *file = p->graph->is_portable ? span.source->name : span.source->path;
  return arena_printf(p->arena, "%s:%u:%u", file, place.line, place.column);
}

const char *plan_place(Planner *p, const Node *node) { return place_text(p, origin_place(&node->origin)); }

/* Where the divisions of integers of each step are written, and what the model says of them. */
void plan_fault_places(Planner *p) {
  for (uint32_t step = 0; step < p->plan->step_nodes.n; step++) {
    const Node *node = p->plan->step_nodes.items[step];
    if (!node || !node->attr.expr) continue;
    const ExprList list = expr_list(p->arena, node->attr.expr);
    for (uint32_t i = 0; i < list.n; i++) {
      const Expr *expr = list.items[i];
      const tfm_fault_place found = {step, 0, place_text(p, expr->place)}, refusal = {step, 1, expr->refusal};
      if (!expr_is_division(expr) || !found.place) continue;
      vec_push(p->arena, &p->fault_places, found);
      if (refusal.place) vec_push(p->arena, &p->fault_places, refusal);
    }
  }
}

void plan_limit(Planner *p, const char *what) {
  diag_error(p->diag, p->node ? origin_place(&p->node->origin) : NO_SPAN, DIAG_LIMIT, "%s", what);
}

// ---- checks ----

static tfm_test test_of(OpKind op) {
  switch (op) {
    case OP_NE: return TFM_NE;
    case OP_LT: return TFM_LT;
    case OP_GT: return TFM_GT;
    case OP_LE: return TFM_LE;
    case OP_GE: return TFM_GE;
    default: return TFM_EQ;
  }
}

static void add_condition(Planner *p, const Cond *cond) {
  tfm_condition condition = {0};
  switch (cond->kind) {
    case COND_COMPARE:
      condition = (tfm_condition){(uint8_t)test_of(cond->op), plan_size(p, cond->left), plan_size(p, cond->right)};
      break;
    case COND_NOT:
      add_condition(p, cond->a);
      condition.test = TFM_NOT;
      break;
    default:
      add_condition(p, cond->a);
      add_condition(p, cond->b);
      condition.test = cond->kind == COND_AND ? TFM_AND : TFM_OR;
  }
  vec_push(p->arena, &p->conditions, condition);
}

/* A named size is printed as "batch*time = 12", so that the user sees where a number comes from. */
static void add_part(Planner *p, const CheckPart *part) {
  StrBuf text = strbuf_new(p->arena);
  strbuf_add(&text, part->text ? part->text : "");
  if (part->size && part->named) {
    size_print(&text, p->math.table, part->size);
    strbuf_add(&text, " = ");
  }
  tfm_size value = part->size ? plan_size(p, part->size) : TFM_NONE;
  vec_push(p->arena, &p->parts, (tfm_message_part){text.text, value});
}

void plan_checks(Planner *p) {
  for (size_t i = 0; i < p->graph->checks.n; i++) {
    const Check *check = &p->graph->checks.items[i];
    Node place = {.origin = check->origin};
    tfm_check result = {.first_condition = (uint32_t)p->conditions.n, .first_part = (uint32_t)p->parts.n,
                        .place = plan_place(p, &place)};
    add_condition(p, check->condition);
    for (size_t j = 0; j < check->message.n; j++) add_part(p, &check->message.items[j]);
    result.n_conditions = (uint32_t)p->conditions.n - result.first_condition;
    result.n_parts = (uint32_t)p->parts.n - result.first_part;
    vec_push(p->arena, &p->checks, result);
  }
}

/* Elements of inputs that are limited by the model itself, in terms of input numbers. */
void plan_ranges(Planner *p) {
  for (size_t i = 0; i < p->graph->inputs.n; i++) {
    const Node *input = p->graph->inputs.items[i];
    if (!input->attr.range_text) continue;
    const CheckPart why = {.text = input->attr.range_text};
    tfm_id_limit range = {.input = (uint32_t)i, .least = input->attr.least, .first_part = (uint32_t)p->parts.n,
                          .n_parts = 1, .place = plan_place(p, input)};
    range.limit = plan_size(p, math_const(&p->math, (int64_t)input->attr.most + 1));
    add_part(p, &why);
    vec_push(p->arena, &p->id_limits, range);
  }
}

tfm_tensor_info plan_tensor_info(Planner *p, const char *name, const Node *node) {
  StrBuf shape = strbuf_new(p->arena);
  node_print_shape(&shape, p->math.table, node);
  tfm_tensor_info info = {.name = name, .dtype = (uint8_t)node->dtype, .rank = node->rank, .shape = shape.text};
  for (uint32_t i = 0; i < node->rank; i++) info.dims[i] = plan_size(p, node->dims[i]);
  if (node->op == OP_INPUT && node->attr.has_default) {
    const float number = (float)node->attr.number;
    info.has_default = 1;
    info.fill = (uint32_t)node->attr.integer;
    if (node->dtype == DTYPE_F32) memcpy(&info.fill, &number, sizeof info.fill);
  }
  return info;
}
