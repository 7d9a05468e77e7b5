/* What is fused in models as users write them: the standard layers, attention written out in several ways, blocks of
 * well-known architectures. Each is compiled from source; the fused graph is looked at, and computes what the graph
 * before did. */
#include "../support/compiled_graph.h"
#include "../support/same_values.h"

static PassLog fusion_log;

static void setup_log(void) {
  setup();
  fusion_log = (PassLog){.arena = arena};
}
TestSuite(fusion, .init = setup_log, .fini = teardown);

static bool is_taken_by_plan(const Node *node) {
  switch (node->op) {
    case OP_INPUT:
    case OP_WEIGHT:
    case OP_SLICE:
    case OP_RESHAPE:
    case OP_PERMUTE:
    case OP_CONCAT:
    case OP_POINTWISE:
    case OP_REDUCE:
    case OP_NORM:
    case OP_LINEAR:
    case OP_MATMUL:
    case OP_MATMUL_FUSED:
    case OP_ATTENTION:
    case OP_ATTENTION_WEIGHTS:
    case OP_TOPK:
    case OP_TAKE:
    case OP_PLACES:
    case OP_BEFORE:
    case OP_SINUSOID:
    case OP_ROTARY_TABLE: return true;
    default: return false;
  }
}

/* The graph after all passes of a level, checked: what is in it, and that it computes the same. */
static Graph *compiled(Graph *before, int level) {
  Graph *after = graph_clone(arena, before);
  PassOptions options = {.level = level, .verify_each = true};
  cr_assert(passes_run(after, &diag, &options, &fusion_log), "%s", fault());
  graph_renumber(after);
  bool *is_static = graph_static_flags(arena, after);
  for (const Node *node = after->first; node; node = node->next)
    cr_assert(is_static[node->id] || is_taken_by_plan(node), "-O%d left %s in\n%s", level, op_table[node->op].name,
              printed(after));
  cr_assert(same_values(arena, before, after), "-O%d computes something else:\n%s", level, printed(after));
  return after;
}

static Graph *fused(const char *text) {
  Graph *before = elaborated(text);
  compiled(before, 0);
  fusion_log = (PassLog){.arena = arena};
  return compiled(before, 2);
}

/* How often an operation is executed in a run. */
static unsigned count(const Graph *graph, OpKind op) {
  bool *is_static = graph_static_flags(arena, graph);
  unsigned n = 0;
  for (const Node *node = graph->first; node; node = node->next) n += node->op == op && !is_static[node->id];
  return n;
}

static void expect(Graph *graph, OpKind op, unsigned n) {
  cr_assert_eq(count(graph, op), n, "%u of %s, expected %u, in\n%s", count(graph, op), op_table[op].name, n,
               printed(graph));
}

static const Node *the(const Graph *graph, OpKind op, unsigned index) {
  for (const Node *node = graph->first; node; node = node->next)
    if (node->op == op && index-- == 0) return node;
  return NULL;
}

static const char *expr_of(const Graph *graph, OpKind op, unsigned index) {
  const Node *node = the(graph, op, index);
  cr_assert(node, "no %s", op_table[op].name);
  StrBuf out = strbuf_new(arena);
  if (node->attr.expr) expr_print(&out, graph->sizes, node->attr.expr);
  return out.text;
}

static void expect_expr(const Graph *graph, OpKind op, unsigned index, const char *text) {
  cr_assert_str_eq(expr_of(graph, op, index), text);
}

// ---- the standard layers ----

Test(fusion, encoder_layer) {
  Graph *graph = fused(
      "model M(d = 8) { layer1 = EncoderLayer(d, 2, 16, gelu)\n"
      "  forward(x: f32[batch, time, d], pad: bool[batch, time]) { y, w = layer1(x, none, pad) return y = y } }");
  expect(graph, OP_LINEAR, 4);
  expect(graph, OP_ATTENTION, 1);
  expect(graph, OP_NORM, 2);
  expect(graph, OP_POINTWISE, 0);
  expect(graph, OP_CONCAT, 0);
  expect_expr(graph, OP_ATTENTION, 0, "where($3, -inf, acc)");
  expect_expr(graph, OP_LINEAR, 0, "add(acc, $2)");
  expect_expr(graph, OP_LINEAR, 1, "add($2, add(acc, $3))");
  expect_expr(graph, OP_LINEAR, 2, "gelu(add(acc, $2))");
}

Test(fusion, encoder_of_layers_with_norm_first) {
  Graph *graph = fused(
      "model M(d = 8) { layers = Encoder(d, 2, 3, 16, norm_first = true, norm = true)\n"
      "  forward(x: f32[batch, time, d]) { return y = layers(x, is_causal = true)[...] } }");
  expect(graph, OP_LINEAR, 12);
  expect(graph, OP_ATTENTION, 3);
  expect(graph, OP_NORM, 7);
  expect(graph, OP_POINTWISE, 0);
  expect_expr(graph, OP_ATTENTION, 2, "where(gt(index0, index1), -inf, acc)");
}

Test(fusion, attention_weights_as_outputs) {
  Graph *graph = fused(
      "model M(d = 8) { layers = 2 * EncoderLayer(d, 2, 16)\n"
      "  forward(x: f32[batch, time, d]) { y, maps = layers(x) return y, maps } }");
  expect(graph, OP_ATTENTION, 2);
  expect(graph, OP_ATTENTION_WEIGHTS, 2);
}

Test(fusion, decoder_layer) {
  Graph *graph = fused(
      "model M(d = 8) { block = DecoderLayer(d, 2, 16)\n"
      "  forward(x: f32[batch, time, d], memory: f32[batch, source, d], pad: bool[batch, time], mpad: bool[batch, source]) {\n"
      "  y, a, b = block(x, memory, tgt_is_causal = true, tgt_key_padding_mask = pad, memory_key_padding_mask = mpad)\n"
      "  return y = y } }");
  expect(graph, OP_LINEAR, 7); /* qkv, out, q, kv, out, ffn 1, ffn 2 */
  expect(graph, OP_ATTENTION, 2);
  expect(graph, OP_NORM, 3);
  expect(graph, OP_POINTWISE, 0);
  expect_expr(graph, OP_ATTENTION, 0, "where(or(gt(index0, index1), $3), -inf, acc)");
}

Test(fusion, keys_that_are_appended) {
  Graph *graph = fused(
      "model M(d = 8) { attn = MultiheadAttention(d, 2, add_bias_kv = true, add_zero_attn = true)\n"
      "  forward(x: f32[batch, time, d], pad: bool[batch, time]) {\n"
      "  y, w = attn(x, x, x, pad, is_causal = true) return y = y } }");
  expect(graph, OP_ATTENTION, 1);
  expect(graph, OP_LINEAR, 2);
}

Test(fusion, masks_of_every_kind) {
  Graph *graph = fused(
      "model M(d = 8) { attn = MultiheadAttention(d, 2)\n"
      "  forward(x: f32[batch, time, d], pad: f32[batch, time], mask: bool[batch * 2, time, time]) {\n"
      "  y, w = attn(x, x, x, pad, mask, true) return y, w } }");
  expect(graph, OP_ATTENTION, 1);
  expect(graph, OP_ATTENTION_WEIGHTS, 1);
  expect(graph, OP_POINTWISE, 0);
}

// ---- attention written out ----

#define TUTORIAL                                                                                                       \
  "layer Attention(d_model, heads) {\n"                                                                                \
  "  fc_q = Linear(d_model, d_model) fc_k = Linear(d_model, d_model)\n"                                                \
  "  fc_v = Linear(d_model, d_model) fc_o = Linear(d_model, d_model)\n"                                                \
  "  forward(query, key, value, keep = none) {\n"                                                                      \
  "    q = split_heads(fc_q(query), heads)  k = split_heads(fc_k(key), heads)  v = split_heads(fc_v(value), heads)\n"  \
  "    energy = q @ transpose(k, -1, -2) / sqrt(d_model // heads)\n"                                                   \
  "    if keep != none { energy = where(keep, energy, -1e10) }\n"                                                      \
  "    attention = softmax(energy)\n"                                                                                  \
  "    return fc_o(merge_heads(attention @ v)), attention } }\n"

Test(fusion, tutorial_attention) {
  Graph *graph = fused(
      TUTORIAL "model M(d = 6) { attn = Attention(d, 2)\n"
               "  forward(x: f32[batch, time, d], ids: i32[batch, time]) {\n"
               "  y, w = attn(x, x, x, (ids != 0)[:, none, none, :] and not causal_mask(x, x)) return y = y } }");
  expect(graph, OP_LINEAR, 2);
  expect(graph, OP_ATTENTION, 1);
  expect(graph, OP_POINTWISE, 1); /* the padding, once per model */
  expect_expr(graph, OP_ATTENTION, 0, "where(or($3, gt(index0, index1)), -1e+10, acc)");
}

Test(fusion, tutorial_attention_between_two_sequences) {
  Graph *graph = fused(TUTORIAL
                       "model M(d = 6) { attn = Attention(d, 2)\n"
                       "  forward(x: f32[batch, time, d], m: f32[batch, source, d], keep: bool[batch, 1, 1, source]) {\n"
                       "  y, w = attn(x, m, m, keep) return y, w } }");
  expect(graph, OP_LINEAR, 3);
  expect(graph, OP_ATTENTION, 1);
  expect(graph, OP_ATTENTION_WEIGHTS, 1);
  expect(graph, OP_POINTWISE, 0);
}

Test(fusion, mask_before_the_scale) {
  Graph *graph = fused(
      "model M(d = 6) { p = Linear(d, 3 * d)\n"
      "  forward(x: f32[batch, time, d], mask: bool[time, time]) {\n"
      "  y = p(x)  q = split_heads(y[:, :, :d], 2)  k = split_heads(y[:, :, d : 2 * d], 2)  v = split_heads(y[:, :, 2 * d :], 2)\n"
      "  s = where(mask, -inf, q @ transpose(k, -1, -2)) / sqrt(d // 2)\n"
      "  return out = merge_heads(softmax(s) @ v) } }");
  expect(graph, OP_LINEAR, 1);
  expect(graph, OP_ATTENTION, 1);
  expect_expr(graph, OP_ATTENTION, 0, "where($3, -inf, acc)");
}

Test(fusion, additive_mask_before_the_scale) {
  Graph *graph = fused(
      "model M(d = 6) { q = Linear(d, d) k = Linear(d, d) v = Linear(d, d)\n"
      "  forward(x: f32[batch, time, d], mask: f32[time, time]) {\n"
      "  s = (split_heads(q(x), 2) @ transpose(split_heads(k(x), 2), -1, -2) + mask) / sqrt(d // 2)\n"
      "  return out = merge_heads(softmax(s) @ split_heads(v(x), 2)) } }");
  expect(graph, OP_LINEAR, 1);
  expect(graph, OP_ATTENTION, 1);
  expect_expr(graph, OP_ATTENTION, 0, "mul(add(acc, $3), 0.57735026)");
}

Test(fusion, alibi) {
  Graph *graph = fused(
      "model M(d = 8) { weight slopes: [2]  q = Linear(d, d) k = Linear(d, d) v = Linear(d, d)\n"
      "  forward(x: f32[batch, time, d]) {\n"
      "  p = positions(x, 1)  distance = f32(p[none, :] - p[:, none])\n"
      "  s = split_heads(q(x), 2) @ transpose(split_heads(k(x), 2), -1, -2) / sqrt(d // 2)\n"
      "  s = s + slopes[:, none, none] * distance\n"
      "  s = where(causal_mask(x, x), -inf, s)\n"
      "  return out = merge_heads(softmax(s) @ split_heads(v(x), 2)) } }");
  expect(graph, OP_LINEAR, 1);
  expect(graph, OP_ATTENTION, 1);
  expect(graph, OP_POINTWISE, 0);
  expect_expr(graph, OP_ATTENTION, 0,
              "where(gt(index0, index1), -inf, add(acc, mul($3, to_f32(sub(index0, index1)))))");
}

Test(fusion, soft_cap_of_scores_and_logits) {
  Graph *graph = fused(
      "model M(d = 8) { q = Linear(d, d, false) k = Linear(d, d, false) v = Linear(d, d, false) head = Linear(d, 5)\n"
      "  forward(x: f32[batch, time, d]) {\n"
      "  s = split_heads(q(x), 2) @ transpose(split_heads(k(x), 2), -1, -2) / sqrt(d // 2)\n"
      "  s = where(causal_mask(x, x), -inf, tanh(s / 50.0) * 50.0)\n"
      "  y = head(merge_heads(softmax(s) @ split_heads(v(x), 2)))\n"
      "  return logits = tanh(y / 30.0) * 30.0 } }");
  expect(graph, OP_LINEAR, 2);
  expect(graph, OP_ATTENTION, 1);
  expect(graph, OP_POINTWISE, 0);
  expect_expr(graph, OP_ATTENTION, 0, "where(gt(index0, index1), -inf, mul(tanh(acc), 50.0))");
  expect_expr(graph, OP_LINEAR, 1, "mul(tanh(add(acc, $2)), 30.0)");
}

// ---- well-known architectures ----

Test(fusion, bert_layer) {
  Graph *graph = fused(
      "layer BertLayer(d, heads, ffn, eps) {\n"
      "  query = Linear(d, d) as \"attention.self.query\"  key = Linear(d, d) as \"attention.self.key\"\n"
      "  value = Linear(d, d) as \"attention.self.value\"  project = Linear(d, d) as \"attention.output.dense\"\n"
      "  norm1 = LayerNorm(d, eps)  up = Linear(d, ffn)  down = Linear(ffn, d)  norm2 = LayerNorm(d, eps)\n"
      "  forward(x, padding = none) {\n"
      "    q = split_heads(query(x), heads)  k = split_heads(key(x), heads)  v = split_heads(value(x), heads)\n"
      "    s = q @ transpose(k, -1, -2) / sqrt(d // heads)\n"
      "    if padding != none { s = where(padding[:, none, none, :], -inf, s) }\n"
      "    x = norm1(x + project(merge_heads(softmax(s) @ v)))\n"
      "    return norm2(x + down(gelu(up(x)))) } }\n"
      "model Bert(d = 8) {\n"
      "  words = Embedding(11, d) places = Embedding(9, d) types = Embedding(3, d) norm = LayerNorm(d)\n"
      "  layers = 2 * BertLayer(d, 2, 16, 1e-12)  pooler = Linear(d, d)\n"
      "  forward(ids: i32[batch, time], kinds: i32[batch, time], pad: bool[batch, time]) {\n"
      "    x = norm(words(ids) + places(positions(ids, 1)) + types(kinds))\n"
      "    hidden = layers(x, pad)\n"
      "    return hidden, pooled = tanh(pooler(hidden[:, 0])) } }");
  expect(graph, OP_LINEAR, 9);
  expect(graph, OP_ATTENTION, 2);
  expect(graph, OP_NORM, 5);
  expect(graph, OP_POINTWISE, 1); /* the positions, as ids */
  expect_expr(graph, OP_NORM, 0, "add(add(gather($0, $1), gather($2, $3)), gather($4, $5))");
  expect_expr(graph, OP_LINEAR, 8, "tanh(add(acc, $2))");
}

Test(fusion, gpt2_with_packed_projection) {
  Graph *graph = fused(
      "layer Conv1D(n, k) { weight weight: [k, n]  weight bias: [n]  forward(x) = x @ weight + bias }\n"
      "layer Block(d, heads) {\n"
      "  ln_1 = LayerNorm(d) c_attn = Conv1D(3 * d, d) c_proj = Conv1D(d, d) ln_2 = LayerNorm(d) c_fc = Conv1D(4 * d, d)\n"
      "  out = Conv1D(d, 4 * d)\n"
      "  forward(x) {\n"
      "    y = c_attn(ln_1(x))\n"
      "    q = split_heads(y[:, :, :d], heads) k = split_heads(y[:, :, d : 2 * d], heads) v = split_heads(y[:, :, 2 * d :], heads)\n"
      "    s = where(causal_mask(q, k), -inf, q @ transpose(k, -1, -2) / sqrt(d // heads))\n"
      "    x = x + c_proj(merge_heads(softmax(s) @ v))\n"
      "    return x + out(gelu_tanh(c_fc(ln_2(x)))) } }\n"
      "model Gpt2(d = 8) { wte = Embedding(11, d) wpe = Embedding(9, d) h = 2 * Block(d, 2) ln_f = LayerNorm(d)\n"
      "  forward(ids: i32[batch, time]) {\n"
      "    x = h(wte(ids) + wpe(positions(ids, 1)))\n"
      "    return logits = linear(ln_f(x), wte.weight) } }");
  expect(graph, OP_LINEAR, 9);
  expect(graph, OP_ATTENTION, 2);
  expect(graph, OP_NORM, 5);
  expect(graph, OP_POINTWISE, 2); /* the embeddings, and positions as ids */
  expect(graph, OP_CONCAT, 0);
  expect_expr(graph, OP_ATTENTION, 1, "where(gt(index0, index1), -inf, acc)");
}

Test(fusion, llama_with_grouped_heads) {
  Graph *graph = fused(
      "layer Block(d, heads, groups, h, ffn) {\n"
      "  q_proj = Linear(d, heads * h, false) k_proj = Linear(d, groups * h, false) v_proj = Linear(d, groups * h, false)\n"
      "  o_proj = Linear(heads * h, d, false) gate = Linear(d, ffn, false) up = Linear(d, ffn, false)\n"
      "  down = Linear(ffn, d, false) norm1 = RMSNorm(d) norm2 = RMSNorm(d)\n"
      "  forward(x) {\n"
      "    y = norm1(x)  p = positions(x, 1)  b = shape(x, 0)  t = shape(x, 1)\n"
      "    q = rotary(split_heads(q_proj(y), heads), p)  k = rotary(split_heads(k_proj(y), groups), p)\n"
      "    v = split_heads(v_proj(y), groups)\n"
      "    q = reshape(q, [b, groups, heads // groups, t, h])\n"
      "    s = q @ transpose(k[:, :, none], -1, -2) / sqrt(h)\n"
      "    s = where(causal_mask(x, x), -inf, s)\n"
      "    a = reshape(softmax(s) @ v[:, :, none], [b, heads, t, h])\n"
      "    x = x + o_proj(merge_heads(a))\n"
      "    z = norm2(x)\n"
      "    return x + down(silu(gate(z)) * up(z)) } }\n"
      "model Llama(d = 8) { embed = Embedding(11, d) layers = 2 * Block(d, 4, 2, 4, 12) norm = RMSNorm(d) head = Linear(d, 11, false)\n"
      "  forward(ids: i32[batch, time]) { return logits = head(norm(layers(embed(ids)))) } }");
  expect(graph, OP_LINEAR, 11);
  expect(graph, OP_ATTENTION, 2);
  expect(graph, OP_ROTARY_TABLE, 1);
  expect(graph, OP_POINTWISE, 4); /* the embedding, positions, and a rotation of q and k together per layer */
  expect(graph, OP_CONCAT, 0);
  expect(graph, OP_NORM, 5);
  expect_expr(graph, OP_ATTENTION, 1, "where(gt(index0, index1), -inf, acc)");
}

Test(fusion, sinusoids_scaled_embeddings_and_a_tied_head) {
  Graph *graph = fused(
      "model M(d = 8) { embed = Embedding(11, d) pos = PositionalEncoding(d, 50) layers = 2 * EncoderLayer(d, 2, 16)\n"
      "  forward(ids: i32[batch, time]) {\n"
      "    x, maps = embed(ids) * sqrt(d) -> pos -> layers(src_key_padding_mask = ids == 0)\n"
      "    return logits = linear(x, embed.weight) } }");
  expect(graph, OP_SINUSOID, 1);
  expect(graph, OP_POINTWISE, 3); /* the embedding, the padding, positions for the sinusoid */
  expect(graph, OP_ATTENTION, 2);
}

Test(fusion, a_module_used_twice_shares_its_packed_weight) {
  Graph *graph = fused(
      "model M(d = 8) { block = EncoderLayer(d, 2, 16)\n"
      "  forward(x: f32[batch, time, d]) { y, a = block(x) z, b = block(y) return z = z } }");
  expect(graph, OP_LINEAR, 8);
  expect(graph, OP_ATTENTION, 2);
  cr_assert_eq(the(graph, OP_LINEAR, 0)->inputs.items[1], the(graph, OP_LINEAR, 4)->inputs.items[1]);
}

// ---- refusals ----

static const FusionRecord *refusal(Fusion fusion) {
  for (size_t i = 0; i < fusion_log.records.n; i++)
    if (!fusion_log.records.items[i].done && fusion_log.records.items[i].fusion == fusion)
      return &fusion_log.records.items[i];
  return NULL;
}

#define MIXTURE(y)                                                                              \
  "layer Expert(d, ffn) { w1 = Linear(d, ffn) w2 = Linear(ffn, d) w3 = Linear(d, ffn, false)\n" \
  "  forward(x) = w2(silu(w1(x)) * w3(x)) }\n"                                                  \
  "model M(d = 6, n = 4) { gate = Linear(d, n, false) experts = [Expert(d, 9) for e in n]\n"    \
  "  shared = Expert(d, 9) shared_gate = Linear(d, 1)\n"                                        \
  "  forward(x: f32[batch, time, d]) {\n"                                                       \
  "    p, chosen = topk(sigmoid(gate(x)), 2)\n"                                                 \
  "    w = sum(p[..., none] * one_hot(chosen, n), axis = -2)\n"                                 \
  "    y = " y                                                                                  \
  "\n"                                                                                          \
  "    return y, z = sigmoid(shared_gate(x)) * shared(x) } }"

Test(fusion, experts_that_topk_chose) {
  Graph *graph = fused(MIXTURE("sum([w[..., e, none] * experts[e](x) for e in n])"));
  unsigned routed = 0;
  for (const Node *node = graph->first; node; node = node->next)
    routed += node->op == OP_LINEAR && node_rows_mask(node);
  cr_assert_eq(routed, 12);
  expect(graph, OP_LINEAR, 17); /* the router, the expert that all rows have, and its gate */
  expect(graph, OP_PLACES, 1);
  cr_assert(passes_require(&diag, &fusion_log, "experts"));
  fused(MIXTURE("sum(w[..., none] * stack([experts[e](x) for e in n], axis = -2), axis = -2)"));
  cr_assert(refusal(FUSION_EXPERTS));
  cr_assert(!passes_require(&diag, &fusion_log, "experts"));
}

Test(fusion, a_required_fusion_that_is_refused) {
  fused(
      "model M(d = 8) { q = Linear(d, d) k = Linear(d, d) v = Linear(d, d)\n"
      "  forward(x: f32[batch, time, d]) {\n"
      "    s = q(x) @ transpose(k(x), -1, -2)\n"
      "    return y = softmax(s) @ v(x), scores = s } }");
  cr_assert(refusal(FUSION_ATTENTION));
  cr_assert(passes_require(&diag, &fusion_log, "qkv"));
  cr_assert(!passes_require(&diag, &fusion_log, "attention"));
  cr_assert(strstr(fault(), "the scores are used elsewhere too"), "%s", fault());
  cr_assert_eq(diag.messages.items[0].code, DIAG_REQUIRED_FUSION);
}

Test(fusion, a_required_fusion_that_happened_nowhere) {
  fused("model M(d = 8) { up = Linear(d, d) forward(x: f32[batch, time, d]) { return y = up(x) } }");
  cr_assert(passes_require(&diag, &fusion_log, "epilogue"));
  cr_assert(!passes_require(&diag, &fusion_log, "attention"));
  cr_assert(strstr(fault(), "nothing in the model has its pattern: softmax(f(q kT)) v"), "%s", fault());
  fusion_log.happened[FUSION_ATTENTION] = true; /* in its encoder, say */
  cr_assert(passes_require(&diag, &fusion_log, "attention"));
}

Test(fusion, a_required_fusion_that_does_not_exist) {
  cr_assert(!passes_require(&diag, &fusion_log, "atention"));
  cr_assert(strstr(fault(), "did you mean \"attention\""), "%s", fault());
  diag = diag_new(arena);
  cr_assert(!passes_require(&diag, &fusion_log, "incremental"), "no pass does it");
  const char *all = "attention, attention-grad, row-grad, experts, qkv, weight-fold, epilogue, prologue, pointwise, rows, live-rows";
  cr_assert(strstr(fault(), "there are "), "%s", fault());
  cr_assert(strstr(fault(), all), "%s", fault());
}

Test(fusion, the_report_folds_repeated_layers) {
  Graph *graph = fused(
      "model M(d = 8) { layers = 5 * EncoderLayer(d, 2, 16)\n"
      "  forward(x: f32[batch, time, d]) { y, maps = layers(x) return y = y } }");
  StrBuf out = strbuf_new(arena);
  passes_report(&out, graph, &fusion_log);
  cr_assert(strstr(out.text, "layers.*.self_attn  (5 times)"), "%s", out.text);
  cr_assert(strstr(out.text, "model bytes    12000\n"), "%s", out.text);
  cr_assert(strstr(out.text, "160*batch*time*time + 5120*batch*time"), "%s", out.text);
}
