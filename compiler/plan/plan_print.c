/* In: a Plan. Out: its text, for people and for tests, which is not read back: inputs, outputs, weights, caches,
 * buffers, steps with their kernels and operands, then the kernels. Out, too: its drawing, for `dump --format=...`. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

static void print_kernel(StrBuf *out, const Plan *plan, const char *role, uint32_t kernel) {
  if (kernel != TFM_NONE) strbuf_printf(out, "      %s: %s\n", role, plan->kernels.items[kernel].name);
}

/* A step has one tile per number of rows; the one with the most rows tells them all. */
static void print_tiles(StrBuf *out, const Plan *plan, const char *role, const uint32_t *tiles, uint32_t rows) {
  print_kernel(out, plan, role, tiles[rows]);
}

static void print_dims(StrBuf *out, const Plan *plan, const tfm_size *dims, uint32_t rank) {
  strbuf_add(out, " over ");
  print_sizes(out, plan, rank, dims);
}

/* Ends the line of a step with the sizes of its loops. */
static void print_over_dims(StrBuf *out, const Plan *plan, const tfm_size *dims, uint32_t rank) {
  print_dims(out, plan, dims, rank);
  strbuf_add_char(out, '\n');
}

#define print_over(out, plan, step) print_over_dims((out), (plan), (step)->dims, (step)->rank)

/* Prints which rows of the result are computed; numbers count from 1, and 0 says all. */
static void print_live_steps(StrBuf *out, const tfm_matmul_step *matmul) {
  static const char *const whose[] = {"", ", some steps", ", some steps of each item"};
  strbuf_add(out, whose[matmul->live_steps]);
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

// ---- steps ----

static void print_row(StrBuf *out, const Plan *plan, const tfm_row_step *row) {
  print_dims(out, plan, row->dims, row->rank);
  strbuf_printf(out, " reduce %d\n", row->reduce);
  print_kernel(out, plan, "kernel", row->kernel);
}

static void print_gemm(StrBuf *out, const Plan *plan, const tfm_gemm_step *gemm) {
  strbuf_add(out, " rows ");
  plan_print_size(out, plan, gemm->rows);
  strbuf_printf(out, " n %" PRId64 " k %" PRId64 " tile %dx%d panel %d weight %u", gemm->n, gemm->k, gemm->tile_rows,
                gemm->width, gemm->panel, gemm->weight);
  print_over(out, plan, gemm);
  print_tiles(out, plan, "tile", gemm->tiles, gemm->tile_rows);
  print_kernel(out, plan, "epilogue", gemm->epilogue);
}

static void print_quantize(StrBuf *out, const Plan *plan, const tfm_quantize_step *quantize) {
  strbuf_printf(out, " k %" PRId64, quantize->k);
  print_over(out, plan, quantize);
  print_kernel(out, plan, "kernel", quantize->kernel);
}

static void print_matmul(StrBuf *out, const Plan *plan, const tfm_matmul_step *matmul) {
  strbuf_add(out, " k ");
  plan_print_size(out, plan, matmul->k);
  static const char *const forms[] = {"", ", direct by columns", ", direct by rows", ", direct by rows of y",
                                      ", one row in f64"};
  static const char *const places[] = {"", ", x in place", ", y in place", ", x and y in place"};
  strbuf_printf(out, " tile %dx%d%s%s", matmul->tile_rows, matmul->width,
                places[matmul->x_stays + 2 * matmul->y_stays], forms[matmul->direct]);
  if (matmul->in_order == TFM_ORDER_GOES_ON) strbuf_add(out, " in order");
  print_live_steps(out, matmul);
  if (matmul->adds_chains) strbuf_add(out, " adding chains");
  print_over(out, plan, matmul);
  print_tiles(out, plan, "tile", matmul->tiles, matmul->tile_rows);
  print_kernel(out, plan, "direct", matmul->direct_kernel);
  print_kernel(out, plan, "pack", matmul->pack);
  print_kernel(out, plan, "epilogue", matmul->epilogue);
}

static void print_attention(StrBuf *out, const Plan *plan, const tfm_attention_step *attention) {
  strbuf_printf(out, " h %" PRId64 " e %" PRId64, attention->h, attention->e);
  print_dims(out, plan, attention->dims, attention->rank);
  if (attention->form == TFM_FORM_INT8) strbuf_add(out, " int8");
  if (attention->causal) strbuf_add(out, " causal");
  if (attention->causal_offset) {
    strbuf_add(out, " from ");
    plan_print_size(out, plan, attention->causal_offset);
  }
  if (attention->k_cache != TFM_NONE)
    strbuf_printf(out, " in caches %u and %u", attention->k_cache, attention->v_cache);
  if (attention->padding)
    strbuf_printf(out, " padding where operand %d is %s", attention->padding,
                  attention->padding_true ? "true" : "false");
  strbuf_add_char(out, '\n');
  print_tiles(out, plan, "qk tile", attention->qk_tiles, attention->tile_rows);
  print_tiles(out, plan, "pv tile", attention->pv_tiles, attention->tile_rows);
  print_tiles(out, plan, "pv exact tile", attention->pv_exact_tiles, attention->tile_rows);
  print_kernel(out, plan, "pack keys", attention->pack_keys);
  print_kernel(out, plan, "pack values", attention->pack_values);
  print_kernel(out, plan, "keys in place", attention->keys_in_place);
  print_kernel(out, plan, "score", attention->score);
}

static void print_attention_grad(StrBuf *out, const Plan *plan, const tfm_attention_grad_step *grad) {
  strbuf_printf(out, " h %" PRId64 " e %" PRId64, grad->h, grad->e);
  print_dims(out, plan, grad->dims, grad->rank);
  if (grad->causal) strbuf_add(out, " causal");
  if (grad->padding) strbuf_printf(out, " padding %d", grad->padding);
  strbuf_add_char(out, '\n');
  print_tiles(out, plan, "qk tile", grad->qk_tiles, grad->tile_rows);
  print_tiles(out, plan, "gv tile", grad->gv_tiles, grad->tile_rows);
  if (grad->narrow_width) {
    print_tiles(out, plan, "narrow qk tile", grad->qk_tiles + TFM_NARROW_TILES, grad->narrow_rows);
    print_tiles(out, plan, "narrow gv tile", grad->gv_tiles + TFM_NARROW_TILES, grad->narrow_rows);
  }
  print_tiles(out, plan, "q tile", grad->q_tiles, grad->tile_rows);
  print_tiles(out, plan, "k tile", grad->k_tiles, grad->tile_rows);
  print_tiles(out, plan, "v tile", grad->v_tiles, grad->tile_rows);
  print_kernel(out, plan, "score", grad->score);
  print_kernel(out, plan, "kept", grad->kept);
  print_kernel(out, plan, "sum of products", grad->sum_products);
  print_kernel(out, plan, "through", grad->through);
}

static void print_table(StrBuf *out, const Plan *plan, const tfm_table_step *table) {
  strbuf_printf(out, " %s d %" PRId64 " base %g",
                table->rotary ? "rotary" : table->interleaved ? "interleaved" : "concatenated", table->d, table->base);
  print_over(out, plan, table);
}

static void print_along(StrBuf *out, const Plan *plan, const tfm_along_step *along) {
  static const char *const names[] = {
      [TFM_ALONG_CUMSUM] = "cumsum",     [TFM_ALONG_TOPK] = "topk",      [TFM_ALONG_TAKE] = "take",
      [TFM_ALONG_POWER] = "power",       [TFM_ALONG_PLACES] = "places",  [TFM_ALONG_BEFORE] = "before",
      [TFM_ALONG_SUM] = "sum",           [TFM_ALONG_MAX] = "max",        [TFM_ALONG_MIN] = "min",
      [TFM_ALONG_TRIANGLE] = "triangle", [TFM_ALONG_LOOK_UP] = "look-up",
      [TFM_ALONG_SCATTER] = "scatter"};
  strbuf_printf(out, " %s of ", names[along->what]);
  plan_print_size(out, plan, along->n);
  print_over(out, plan, along);
}

static void print_ids(StrBuf *out, const Plan *plan, const tfm_ids_step *ids) {
  strbuf_add(out, " below ");
  plan_print_size(out, plan, ids->limit);
  print_over(out, plan, ids);
}

static void print_append(StrBuf *out, const Plan *plan, const tfm_append_step *append) {
  strbuf_printf(out, " to cache %u from ", append->cache);
  plan_print_size(out, plan, append->past);
  print_over(out, plan, append);
}

/* Prints what the table of steps says of every kind: the rest of its line and its kernels, then its operands by name.
 * The names are those of the members in tfm/abi/steps.def, so a new kind of step is printed without a change here. */
static void print_step(StrBuf *out, const Plan *plan, const tfm_step *info) {
  switch ((tfm_step_kind)info->kind) {
#define READ(member, axes) print_operand(out, plan, #member, &step->member, axes);
#define WRITE(member, axes) READ(member, axes)
#define WRITE_IF(flag, member, axes) \
  if (step->flag) READ(member, axes)
#define CACHED(cache, member, axes) print_cached(out, plan, step->cache, #member, &step->member, axes);
#define READ_LIST(from) print_operands(out, plan, step->first_operand, from, step->n_operands, step->rank);
#define WRITE_LIST() READ_LIST(0)
#define MASK(axes) print_live_rows(out, plan, step->live, axes);
#define TEXT(member)
#define STEP(KIND, name, array, scratch, print, operands)                    \
  case TFM_STEP_##KIND: {                                                     \
    const tfm_##name##_step *step = &plan->program.array[info->index];        \
    print(out, plan, step);                                                   \
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
  static const char *const forms[] = {[TFM_FORM_F32] = "",
                                      [TFM_FORM_BF16] = "bf16 ",
                                      [TFM_FORM_F16] = "f16 ",
                                      [TFM_FORM_INT8] = "int8 ",
                                      [TFM_FORM_INT4] = "int4 "};
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const WeightRecipe *recipe = &plan->recipes.items[i];
    strbuf_printf(out, "  weight %zu: ", i);
    if (recipe->node->op == OP_WEIGHT) strbuf_add_quoted(out, recipe->node->attr.name);
    else strbuf_printf(out, "%%%u %s", recipe->node->id, op_table[recipe->node->op].name);
    strbuf_add_char(out, ' ');
    node_print_shape(out, plan->graph->sizes, recipe->node);
    if (recipe->layout == WEIGHT_PANELS) strbuf_printf(out, " in %spanels of %u", forms[recipe->form], recipe->width);
    else if (recipe->form != TFM_FORM_F32)
      strbuf_printf(out, " in %srows", forms[recipe->form]);
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
    if (tfm_cache_form(cache) == TFM_FORM_INT8) strbuf_printf(out, ", int8 by %u", cache->head);
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

// ---- as a picture ----

typedef struct PlanDrawing {
  const Plan *plan;
  Drawing *drawing;
  int64_t *inputs, *outputs, *buffers; /* the item that wrote the value last; -1: none did */
} PlanDrawing;

/* One more than is needed, so that a program without inputs has an array too. */
static int64_t *no_items(Arena *arena, uint32_t n) {
  int64_t *items = ARENA_ARRAY(arena, int64_t, n + 1);
  for (uint32_t i = 0; i < n; i++) items[i] = -1;
  return items;
}

/* Returns where the item that wrote this memory last is noted; NULL for weights and sizes, which no step writes. */
static int64_t *writer_of(const PlanDrawing *d, const tfm_operand *operand) {
  if (operand->space == TFM_SPACE_INPUT) return &d->inputs[operand->index];
  if (operand->space == TFM_SPACE_OUTPUT) return &d->outputs[operand->index];
  return operand->space == TFM_SPACE_BUFFER ? &d->buffers[operand->index] : NULL;
}

/* Returns what the arrow between two steps says: type and shape of what flows along it. */
static const char *flow_of(const PlanDrawing *d, const tfm_operand *operand) {
  const tfm_program *program = &d->plan->program;
  if (operand->space == TFM_SPACE_INPUT) return program->inputs[operand->index].shape;
  if (operand->space == TFM_SPACE_OUTPUT) return program->outputs[operand->index].shape;
  StrBuf text = strbuf_new(d->plan->arena);
  strbuf_printf(&text, "%s ", dtype_names[program->buffers[operand->index].dtype]);
  plan_print_size(&text, d->plan, program->buffers[operand->index].elements);
  return text.text;
}

/* An edge leads from the step that wrote the memory last to the step that reads it. Buffers share memory in a run, but
 * not in the plan, so the last writer is the right one. */
static void draw_operand(const PlanDrawing *d, uint32_t item, const tfm_operand *operand, bool is_written) {
  int64_t *writer = writer_of(d, operand);
  if (!writer) return;
  if (is_written) *writer = item;
  else if (*writer >= 0 && *writer < item) drawing_add_edge(d->drawing, (uint32_t)*writer, item, flow_of(d, operand));
}

/* Draws all that a step reads (`written` false), or all that it writes. Reads must come first: a step may write what
 * it read. */
static void draw_operands(const PlanDrawing *d, uint32_t item, const tfm_step *info, bool written) {
  const tfm_program *program = &d->plan->program;
  switch ((tfm_step_kind)info->kind) {
#define READ(member, axes) \
  if (!written) draw_operand(d, item, &step->member, false);
#define WRITE(member, axes) \
  if (written) draw_operand(d, item, &step->member, true);
#define WRITE_IF(flag, member, axes) \
  if (written && step->flag) draw_operand(d, item, &step->member, true);
#define CACHED(cache, member, axes) \
  if (step->cache == TFM_NONE) READ(member, axes)
#define READ_LIST(from)                                        \
  for (uint32_t i = (from); !written && i < step->n_operands; i++) \
    draw_operand(d, item, &program->operands[step->first_operand + i], false);
#define WRITE_LIST()                                                                       \
  if (written) draw_operand(d, item, &program->operands[step->first_operand], true);       \
  READ_LIST(1)
#define MASK(axes) \
  if (!written && step->live) draw_operand(d, item, &program->live[step->live - 1].mask, false);
#define TEXT(member)
#define STEP(KIND, name, array, scratch, print, operands)       \
  case TFM_STEP_##KIND: {                                        \
    const tfm_##name##_step *step = &program->array[info->index]; \
    operands                                                     \
  } break;
#include "tfm/abi/steps.def"
  }
}

/* Adds the item of a step, "gemm encoder.layer.0.output": the operation, and the module it belongs to. */
static void draw_step(const PlanDrawing *d, const tfm_step *step) {
  const char *space = strchr(step->name, ' '), *path = space ? space + 1 : "";
  const char *label = space ? arena_strndup(d->plan->arena, step->name, (size_t)(space - step->name)) : step->name;
  uint32_t item = drawing_add_item(d->drawing, DRAW_OPERATION, label, path);
  draw_operands(d, item, step, false);
  draw_operands(d, item, step, true);
}

Drawing *drawing_of_plan(const Plan *plan) {
  const tfm_program *program = &plan->program;
  PlanDrawing d = {.plan = plan, .drawing = drawing_new(plan->arena, program->name)};
  d.inputs = no_items(plan->arena, program->n_inputs);
  d.outputs = no_items(plan->arena, program->n_outputs);
  d.buffers = no_items(plan->arena, program->n_buffers);
  for (uint32_t i = 0; i < program->n_inputs; i++)
    d.inputs[i] = drawing_add_item(d.drawing, DRAW_PORT, text_shown(plan->arena, program->inputs[i].name), "");
  for (size_t i = 0; i < plan->recipes.n; i++) {
    const Node *node = plan->recipes.items[i].node;
    StrBuf text = strbuf_new(plan->arena);
    strbuf_add(&text, "packed ");
    node_print_shape(&text, plan->graph->sizes, node);
    const double floats = (double)(plan->recipes.items[i].bytes / sizeof(float));
    drawing_add_weight(d.drawing, node->origin.path, text.text, floats);
  }
  for (uint32_t i = 0; i < program->n_steps; i++) draw_step(&d, &program->steps[i]);
  for (uint32_t i = 0; i < program->n_outputs; i++) {
    uint32_t item = drawing_add_item(d.drawing, DRAW_PORT, text_shown(plan->arena, program->outputs[i].name), "");
    draw_operand(&d, item, &(tfm_operand){.space = TFM_SPACE_OUTPUT, .index = i}, false);
  }
  return d.drawing;
}
