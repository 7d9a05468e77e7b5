/* Two models made by hand: what they compute is simple enough to be computed again by a loop. LINEAR_N is no multiple
 * of the tile width, so that partial tiles are met. */
#ifndef TFM_TESTS_HAND_MODELS_H
#define TFM_TESTS_HAND_MODELS_H

#include "hand_program.h"

enum { LINEAR_K = 800, LINEAR_N = 20, LINEAR_IDS = 40, ATTENTION_HEADS = 3, ATTENTION_E = 20 };

/* y = relu(x wT + r), x: f32[batch, time, LINEAR_K], r: f32[time, LINEAR_N], ids: i32[batch, time] below LINEAR_IDS
 * (only checked), time <= 600. Steps: copy of x to rows HAND_A_STRIDE apart, gemm with an epilogue. */
void hand_linear(HandProgram *hand);
int64_t hand_linear_weight_floats(void);
void hand_linear_pack(const float *w /* [LINEAR_N, LINEAR_K] */, float *packed);

/* y, weights = attention of q [batch, heads, time, HAND_H], k [batch, heads, keys, HAND_H], v [batch, heads, keys,
 * ATTENTION_E], scores times 0.3, keys where padding: bool[batch, keys] is true masked; causal too if asked for. */
void hand_attention(HandProgram *hand, int causal);

#endif
