/* The models of hand_models.h: kernels in plain C, then the steps, checks and sizes that the planner would have made.
 */
#include "hand_models.h"

#include <math.h>
#include <string.h>

/* Row kernel: result = operand 1, 4 bytes an element. */
static void copy(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++)
    for (int64_t j = 0; j < args->columns; j++) memcpy(hand_at(args, 0, i, j), hand_at(args, 1, i, j), 4);
}

/* The epilogue: result = relu(result + r). memcpy, because an output may have any alignment. */
static void add_relu(const tfm_row_args *args) {
  for (int64_t i = 0; i < args->rows; i++) {
    for (int64_t j = 0; j < args->columns; j++) {
      float sum = hand_float_at(args, 0, i, j) + hand_float_at(args, 1, i, j);
      if (sum < 0) sum = 0;
      memcpy(hand_at(args, 0, i, j), &sum, 4);
    }
  }
}

// ---- linear ----

/* Copies x to rows HAND_A_STRIDE apart, which is the stride that the tiles are compiled for. */
static void linear_copy_step(HandProgram *hand, tfm_size batch, tfm_size time) {
  tfm_size k = hand_constant(hand, LINEAR_K), stride = hand_constant(hand, HAND_A_STRIDE);
  const uint8_t time_number = 1;
  tfm_size from_batch = hand_product(hand, LINEAR_K, 1, &time_number);
  tfm_size to_batch = hand_product(hand, HAND_A_STRIDE, 1, &time_number);
  const tfm_operand operands[] = {
      hand_operand(TFM_SPACE_BUFFER, 0, TFM_F32, 3, (const tfm_size[]){to_batch, stride, 1}),
      hand_operand(TFM_SPACE_INPUT, 0, TFM_F32, 3, (const tfm_size[]){from_batch, k, 1})};
  tfm_row_step *row = &hand->rows[hand->n_rows];
  *row = (tfm_row_step){.kernel = hand_kernel(hand, (void (*)(void))copy), .rank = 3, .n_operands = 2,
                        .first_operand = hand_operands(hand, 2, operands), .dims = {batch, time, k}};
  hand_step(hand, TFM_STEP_ROW, hand->n_rows++, hand_constant(hand, 1000000));
}

/* The product straight into the output, with r added by the epilogue. */
static void linear_gemm_step(HandProgram *hand, tfm_size batch, tfm_size time, tfm_size rows) {
  tfm_size n = hand_constant(hand, LINEAR_N), stride = hand_constant(hand, HAND_A_STRIDE);
  const uint8_t time_number = 1;
  tfm_size batch_stride = hand_product(hand, LINEAR_N, 1, &time_number);
  const tfm_operand operands[] = {
      hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 3, (const tfm_size[]){batch_stride, n, 1}),
      hand_operand(TFM_SPACE_INPUT, 1, TFM_F32, 3, (const tfm_size[]){0, n, 1})};
  tfm_gemm_step *gemm = &hand->gemms[hand->n_gemms];
  *gemm = (tfm_gemm_step){.tile_rows = HAND_TILE_ROWS, .width = HAND_WIDTH, .panel = HAND_WIDTH, .a_bytes = 4,
                          .rank = 3,
                          .n_operands = 2,
                          .rows = rows, .k = LINEAR_K, .n = LINEAR_N, .dims = {batch, time, n},
                          .a = hand_operand(TFM_SPACE_BUFFER, 0, TFM_F32, 1, &stride),
                          .c = hand_operand(TFM_SPACE_OUTPUT, 0, TFM_F32, 1, &n),
                          .two_panels = TFM_NONE,
                          .epilogue = hand_kernel(hand, (void (*)(void))add_relu),
                          .first_operand = hand_operands(hand, 2, operands)};
  hand_use_tiles(hand, HAND_A_768, gemm->tiles);
  hand_step(hand, TFM_STEP_GEMM, hand->n_gemms++, hand_constant(hand, 1000000));
}

/* A check in the order in which conditions are stored: operands before the OR that joins them, as in a stack machine;
 * and a limit for ids. */
static void linear_checks(HandProgram *hand, tfm_size time) {
  hand->conditions[0] = (tfm_condition){TFM_LE, time, hand_constant(hand, 600)};
  hand->conditions[1] = (tfm_condition){TFM_LT, time, 0};
  hand->conditions[2] = (tfm_condition){TFM_OR, 0, 0};
  hand->parts[0] = (tfm_message_part){"a sequence of ", time};
  hand->parts[1] = (tfm_message_part){" is longer than 600", TFM_NONE};
  hand->checks[0] = (tfm_check){.n_conditions = 3, .n_parts = 2, .place = "linear.tfm:3:5"};
  hand->program.n_checks = 1;
  hand->id_limits[0] = (tfm_id_limit){.input = 2, .limit = hand_constant(hand, LINEAR_IDS), .place = "linear.tfm:4:1"};
  hand->program.n_id_limits = 1;
}

void hand_linear(HandProgram *hand) {
  hand_open(hand, "linear");
  tfm_size batch = hand_symbol(hand, "batch"), time = hand_symbol(hand, "time"), k = hand_constant(hand, LINEAR_K),
           n = hand_constant(hand, LINEAR_N);
  const uint8_t both[] = {0, 1};
  tfm_size rows = hand_product(hand, 1, 2, both);
  hand_input(hand, "x", TFM_F32, "f32[batch, time, 800]", 3, (const tfm_size[]){batch, time, k});
  hand_input(hand, "r", TFM_F32, "f32[time, 20]", 2, (const tfm_size[]){time, n});
  hand_input(hand, "ids", TFM_I32, "i32[batch, time]", 2, (const tfm_size[]){batch, time});
  hand_output(hand, "y", TFM_F32, "f32[batch, time, 20]", 3, (const tfm_size[]){batch, time, n});
  hand_buffer(hand, TFM_F32, hand_product(hand, HAND_A_STRIDE, 2, both), 0, 1);
  hand->program.weights_bytes = (uint64_t)hand_linear_weight_floats() * sizeof(float);
  hand->weights[0] = (tfm_weight){0, hand->program.weights_bytes};
  hand->program.n_weights = 1;
  linear_copy_step(hand, batch, time);
  linear_gemm_step(hand, batch, time, rows);
  linear_checks(hand, time);
  hand_close(hand);
}

/* Packed panels are padded to whole widths. */
int64_t hand_linear_weight_floats(void) {
  return (LINEAR_N + HAND_WIDTH - 1) / HAND_WIDTH * (int64_t)LINEAR_K * HAND_WIDTH;
}

/* [panel][k][column of the panel], zeros in the padding. */
void hand_linear_pack(const float *w, float *packed) {
  for (int64_t n = 0; n < (LINEAR_N + HAND_WIDTH - 1) / HAND_WIDTH * HAND_WIDTH; n++)
    for (int64_t k = 0; k < LINEAR_K; k++)
      packed[n / HAND_WIDTH * LINEAR_K * HAND_WIDTH + k * HAND_WIDTH + n % HAND_WIDTH] =
          n < LINEAR_N ? w[n * LINEAR_K + k] : 0;
}

// ---- attention ----

/* The score function of attention: masked keys get -inf, so softmax gives them 0. `coordinates` are the column and
 * row at which the block begins. */
static void score(const tfm_row_args *args, int causal) {
  for (int64_t i = 0; i < args->rows; i++) {
    for (int64_t j = 0; j < args->columns; j++) {
      int masked = *hand_at(args, 1, i, j) || (causal && args->coordinates[0] + j > args->coordinates[1] + i);
      float value = masked ? -INFINITY : hand_float_at(args, 0, i, j) * 0.3f;
      memcpy(hand_at(args, 0, i, j), &value, 4);
    }
  }
}

static void score_padding(const tfm_row_args *args) { score(args, 0); }
static void score_causal(const tfm_row_args *args) { score(args, 1); }

/* A tensor [batch, heads, length, width], dense, whose length is a run-time size. */
static tfm_operand attention_tensor(HandProgram *hand, int space, uint32_t index, int length_symbol, int width,
                                    tfm_size inner) {
  const uint8_t symbol = (uint8_t)length_symbol;
  tfm_size strides[] = {hand_product(hand, ATTENTION_HEADS * width, 1, &symbol), hand_product(hand, width, 1, &symbol),
                        hand_constant(hand, width), inner};
  return hand_operand(space, index, TFM_F32, 4, strides);
}

/* No caches: keys and values are packed at each run. */
static void attention_kernels(HandProgram *hand, tfm_attention_step *attention, int causal) {
  hand_use_tiles(hand, HAND_A_H, attention->qk_tiles);
  hand_use_tiles(hand, HAND_A_STRIP, attention->pv_tiles);
  hand_use_tiles(hand, HAND_A_STRIP_EXACT, attention->pv_exact_tiles);
  attention->keys_in_place = TFM_NONE;
  attention->pack_keys = attention->pack_values = hand_kernel(hand, (void (*)(void))hand_pack);
  attention->k_cache = attention->v_cache = TFM_NONE;
  attention->score = hand_kernel(hand, causal ? (void (*)(void))score_causal : (void (*)(void))score_padding);
  attention->softmax = hand_kernel(hand, (void (*)(void))hand_softmax);
  attention->scale_rows = hand_kernel(hand, (void (*)(void))hand_multiply);
  attention->finite = hand_kernel(hand, (void (*)(void))hand_finite);
}

static void attention_weights_strides(HandProgram *hand, tfm_operand *weights, tfm_size keys) {
  const uint8_t both[] = {1, 2};
  weights->strides[0] = hand_product(hand, ATTENTION_HEADS, 2, both);
  weights->strides[1] = hand_product(hand, 1, 2, both);
  weights->strides[2] = keys;
  weights->strides[3] = 1;
}

void hand_attention(HandProgram *hand, int causal) {
  hand_open(hand, "attention");
  tfm_size batch = hand_symbol(hand, "batch"), time = hand_symbol(hand, "time"), keys = hand_symbol(hand, "keys");
  tfm_size heads = hand_constant(hand, ATTENTION_HEADS), h = hand_constant(hand, HAND_H);
  tfm_size e = hand_constant(hand, ATTENTION_E);
  hand_input(hand, "q", TFM_F32, "f32[batch, 3, time, 12]", 4, (const tfm_size[]){batch, heads, time, h});
  hand_input(hand, "k", TFM_F32, "f32[batch, 3, keys, 12]", 4, (const tfm_size[]){batch, heads, keys, h});
  hand_input(hand, "v", TFM_F32, "f32[batch, 3, keys, 20]", 4, (const tfm_size[]){batch, heads, keys, e});
  hand_input(hand, "padding", TFM_BOOL, "bool[batch, keys]", 2, (const tfm_size[]){batch, keys});
  hand_output(hand, "y", TFM_F32, "f32[batch, 3, time, 20]", 4, (const tfm_size[]){batch, heads, time, e});
  hand_output(hand, "weights", TFM_F32, "f32[batch, 3, time, keys]", 4, (const tfm_size[]){batch, heads, time, keys});
  tfm_attention_step *attention = &hand->attentions[hand->n_attentions];
  *attention = (tfm_attention_step){.tile_rows = HAND_TILE_ROWS, .qk_width = HAND_WIDTH, .pv_width = HAND_WIDTH,
                                    .v_packed = 1, .rank = 4, .n_operands = 2, .has_weights = 1,
                                    .causal = (uint8_t)causal, .padding = 1, .padding_true = 1, .h = HAND_H,
                                    .e = ATTENTION_E, .dims = {batch, heads, time, keys}};
  attention->q = attention_tensor(hand, TFM_SPACE_INPUT, 0, 1, HAND_H, 0);
  attention->k = attention_tensor(hand, TFM_SPACE_INPUT, 1, 2, HAND_H, 1);
  attention->v = attention_tensor(hand, TFM_SPACE_INPUT, 2, 2, ATTENTION_E, 0);
  attention->c = attention_tensor(hand, TFM_SPACE_OUTPUT, 0, 1, ATTENTION_E, 0);
  attention->weights = hand_operand(TFM_SPACE_OUTPUT, 1, TFM_F32, 0, NULL);
  attention_weights_strides(hand, &attention->weights, keys);
  attention_kernels(hand, attention, causal);
  const tfm_operand operands[] = {hand_operand(TFM_SPACE_BUFFER, TFM_NONE, TFM_F32, 0, NULL),
                                  hand_operand(TFM_SPACE_INPUT, 3, TFM_BOOL, 4, (const tfm_size[]){keys, 0, 0, 1})};
  attention->first_operand = hand_operands(hand, 2, operands);
  hand_step(hand, TFM_STEP_ATTENTION, hand->n_attentions++, hand_constant(hand, 1000000));
  hand_close(hand);
}
