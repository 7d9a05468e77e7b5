/* Programs: steps with their work, buffers, inputs and outputs, as formulas of the run-time sizes.
 *
 * * In: a plan. Out: the members of `programs`. The work of steps is that of the roofline, their time the estimate by
 * which the runtime chooses threads. Refuses nothing. */
#include <string.h>

#include "explore/explorer.h"

static const char *const kind_names[TFM_STEP_KINDS] = {
#define STEP(KIND, name, ...) [TFM_STEP_##KIND] = #name,
#include "tfm/abi/steps.def"
};

// ---- inputs and outputs ----

static json_t *tensors(Explorer *x, const Plan *plan, const tfm_tensor_info *infos, uint32_t n) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++) {
    const char *elements = explorer_elements(x, plan, &infos[i]);
    const char *bytes = infos[i].dtype == TFM_BOOL ? elements : arena_printf(x->arena, "4*(%s)", elements);
    json_array_append_new(list, json_pack("{s:o, s:s, s:s, s:i}", "name", explorer_text(x, infos[i].name), "shape",
                                          infos[i].shape, "dtype", dtype_names[infos[i].dtype], "bytes",
                                          explorer_formula(x, bytes)));
  }
  return list;
}

// ---- what a step moves ----

typedef struct MovedTerm {
  const char *factors; /* "*batch*time" */
  double bytes;
} MovedTerm;

/* The memory that a step reads and writes, each once; a sum over products of sizes. */
typedef struct Moved {
  Explorer *x;
  const Plan *plan;
  Map seen; /* of space and index */
  VEC(MovedTerm) terms;
} Moved;

static void add_bytes(Moved *moved, uint8_t dtype, uint32_t n, const tfm_size *sizes) {
  WorkTerm term = {.factor = dtype == TFM_BOOL ? 1 : 4, .n = (uint8_t)n};
  memcpy(term.sizes, sizes, n * sizeof *sizes);
  MovedTerm made;
  made.factors = explorer_factors(moved->x->arena, moved->plan, &term, "*", "", &made.bytes);
  for (size_t i = 0; i < moved->terms.n; i++)
    if (strcmp(moved->terms.items[i].factors, made.factors) == 0) {
      moved->terms.items[i].bytes += made.bytes;
      return;
    }
  vec_push(moved->x->arena, &moved->terms, made);
}

static void add_operand(void *context, const tfm_operand *operand, bool is_written) {
  Moved *moved = context;
  (void)is_written;
  const tfm_program *program = &moved->plan->program;
  const uint32_t key[] = {operand->space, operand->index};
  if (map_find(&moved->seen, key, sizeof key)) return;
  map_put_n(&moved->seen, key, sizeof key, moved);
  if (operand->space == TFM_SPACE_INPUT || operand->space == TFM_SPACE_OUTPUT) {
    const bool is_input = operand->space == TFM_SPACE_INPUT;
    const tfm_tensor_info *tensor = is_input ? &program->inputs[operand->index] : &program->outputs[operand->index];
    add_bytes(moved, tensor->dtype, tensor->rank, tensor->dims);
  } else if (operand->space == TFM_SPACE_BUFFER) {
    const tfm_buffer *buffer = &program->buffers[operand->index];
    add_bytes(moved, buffer->dtype, 1, &buffer->elements);
  }
}

static int moved_bytes(Explorer *x, const Plan *plan, const tfm_step *step) {
  Moved moved = {.x = x, .plan = plan, .seen = map_new(x->arena)};
  plan_visit_operands(plan, step, add_operand, &moved);
  StrBuf text = strbuf_new(x->arena);
  for (size_t i = 0; i < moved.terms.n; i++)
    strbuf_printf(&text, "%s%.17g%s", i ? " + " : "", moved.terms.items[i].bytes, moved.terms.items[i].factors);
  return explorer_formula(x, moved.terms.n ? text.text : "0");
}

// ---- steps ----

/* Under a causal mask, exactly: pairs (n + 1) / 2n of n x n. Where queries and keys are other polynomials, they may
 * still be equal in a run: `causal` says what to compare and what holds then. */
static void add_flop(Explorer *x, const Plan *plan, const StepWork *work, json_t *step) {
  WorkTerm half = work->flops;
  const char *all = explorer_term(x, plan, &work->flops, 0);
  json_object_set_new(step, "whole", json_boolean(work->is_whole));
  if (!work->is_causal || work->flops.n < 2) {
    json_object_set_new(step, "flop", json_integer(explorer_formula(x, all)));
    return;
  }
  const tfm_size queries = half.sizes[half.n - 2], keys = half.sizes[half.n - 1];
  StrBuf size = strbuf_new(x->arena);
  plan_print_size(&size, plan, keys);
  half.factor /= 2;
  const char *left = arena_printf(x->arena, "%s*(%s + 1)", explorer_term(x, plan, &half, 1), size.text);
  const int formula = explorer_formula(x, left);
  json_object_set_new(step, "flop", json_integer(queries == keys ? formula : explorer_formula(x, all)));
  if (queries != keys)
    json_object_set_new(step, "causal", json_pack("{s:i, s:i, s:i}", "queries", explorer_plan_size(x, plan, queries),
                                                  "keys", explorer_plan_size(x, plan, keys), "flop", formula));
}

/* The sizes of a product, for people. */
static void add_product(Explorer *x, const Plan *plan, const tfm_step *info, json_t *step) {
  if (info->kind == TFM_STEP_GEMM) {
    const tfm_gemm_step *gemm = &plan->program.gemms[info->index];
    json_object_set_new(step, "rows", json_integer(explorer_plan_size(x, plan, gemm->rows)));
    json_object_set_new(step, "n", json_integer(gemm->n));
    json_object_set_new(step, "k", json_integer(gemm->k));
    json_object_set_new(step, "form", json_string(tfm_form_name(gemm->form)));
  } else if (info->kind == TFM_STEP_ATTENTION) {
    const tfm_attention_step *attention = &plan->program.attentions[info->index];
    json_object_set_new(step, "h", json_integer(attention->h));
    json_object_set_new(step, "e", json_integer(attention->e));
    json_object_set_new(step, "form", json_string(tfm_form_name(attention->form)));
  }
}

/* "linear encoder.0": the operation, then the path, which the data have apart. */
static const char *operation_of(Explorer *x, const tfm_step *step) {
  return arena_strndup(x->arena, step->name, strcspn(step->name, " "));
}

static json_t *step_of(Explorer *x, const Plan *plan, uint32_t number) {
  const tfm_step *info = &plan->program.steps[number];
  const Node *node = plan->step_nodes.items[number];
  const StepWork work = roofline_step(&plan->program, info);
  json_t *step = json_pack(
      "{s:s, s:s, s:i, s:o, s:f, s:i, s:i, s:i, s:b}", "op", operation_of(x, info), "kind", kind_names[info->kind],
      "module", explorer_module(x, node ? node->origin.path : ""), "lines",
      node ? explorer_lines(x, &node->origin) : json_array(), "weight_bytes", work.weight_bytes, "cache_bytes",
      explorer_formula(x, explorer_term(x, plan, &work.cache_bytes, 0)), "moved_bytes", moved_bytes(x, plan, info),
      "time_ns", explorer_plan_size(x, plan, info->work), "prepare", (int)info->prepare);
  add_flop(x, plan, &work, step);
  add_product(x, plan, info, step);
  json_t *serves = json_array();
  for (uint32_t i = 0; i < plan->program.n_outputs; i++)
    if (info->serves >> (i < 63 ? i : 63) & 1) json_array_append_new(serves, json_integer((json_int_t)i));
  json_object_set_new(step, "serves", serves);
  return step;
}

// ---- buffers and caches ----

/* A buffer without a first step is never used. */
static json_t *buffers_of(Explorer *x, const Plan *plan) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < plan->program.n_buffers; i++) {
    const tfm_buffer *info = &plan->program.buffers[i];
    const Node *node = plan->buffer_nodes.items[i];
    const char *name = node && node->origin.name ? node->origin.name : node ? op_table[node->op].name : "";
    const bool is_used = info->first_step != TFM_NONE;
    json_array_append_new(
        list, json_pack("{s:i, s:s, s:i, s:i, s:b, s:o, s:i}", "elements", explorer_plan_size(x, plan, info->elements),
                        "dtype", dtype_names[info->dtype], "first", is_used ? (int)info->first_step : -1, "last",
                        is_used ? (int)info->last_step : -1, "persistent", (int)info->persistent, "name",
                        explorer_text(x, name), "module", explorer_module(x, node ? node->origin.path : "")));
  }
  return list;
}

static json_t *caches_of(const Plan *plan) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < plan->program.n_caches; i++) {
    const tfm_cache *cache = &plan->program.caches[i];
    const double bytes = (double)tfm_cache_floats(cache) / TFM_CACHE_PAGE * (double)sizeof(float);
    json_array_append_new(list, json_pack("{s:s, s:b, s:I, s:f}", "kind",
                                          cache->kind == TFM_CACHE_KEYS ? "keys" : "values", "of_encoder",
                                          (int)cache->of_encoder, "columns", (json_int_t)cache->columns,
                                          "bytes_per_token", bytes));
  }
  return list;
}

// ---- the program ----

json_t *explorer_program(Explorer *x, uint32_t number) {
  const ExploredProgram *program = &x->programs.items[number];
  const Plan *plan = program->plan;
  json_t *steps = json_array(), *sizes = explorer_sizes(x, program);
  for (uint32_t i = 0; i < plan->program.n_steps; i++) json_array_append_new(steps, step_of(x, plan, i));
  explorer_add_flow(x, plan, steps);
  json_t *made = json_pack("{s:s, s:o, s:o, s:o, s:i, s:o, s:o, s:o}", "name", program->name, "inputs",
                           tensors(x, plan, plan->program.inputs, plan->program.n_inputs), "outputs",
                           tensors(x, plan, plan->program.outputs, plan->program.n_outputs), "sizes", sizes, "flop",
                           explorer_flop_written(x, program->written), "steps", steps, "buffers",
                           buffers_of(x, plan), "caches",
                           caches_of(plan));
  explorer_add_operations(x, number, made);
  explorer_add_workspace(x, program, made);
  return made;
}
