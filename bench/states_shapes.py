"""Models of states.py with random weights: for tfmc as folders of checkpoints, for llama.cpp as GGUF files.

Each family is a row of `FAMILIES`: the config.json of a released shape (of which the words may be fewer: half of a small
model's time would be its head), and its weights with the names that both have. Weights are drawn so that values stay
near 1 through all layers; a write has the same numbers for both.
"""
import json
import pathlib

import numpy as np

VOCAB = 32768
QWEN = dict(model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"], vocab_size=VOCAB, hidden_size=1024, intermediate_size=3584,
            num_attention_heads=8, num_key_value_heads=2, head_dim=256, linear_num_key_heads=16, linear_num_value_heads=16,
            linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4, full_attention_interval=4, hidden_act="silu",
            rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25),
            tie_word_embeddings=True, max_position_embeddings=4096, eos_token_id=VOCAB - 1)
MAMBA = dict(model_type="mamba2", architectures=["Mamba2ForCausalLM"], vocab_size=VOCAB, hidden_size=1024, num_heads=32, head_dim=64,
             state_size=128, n_groups=1, expand=2, conv_kernel=4, use_bias=False, use_conv_bias=True, hidden_act="silu",
             layer_norm_epsilon=1e-5, rms_norm=True, tie_word_embeddings=True, eos_token_id=VOCAB - 1, bos_token_id=0)
LFM = dict(model_type="lfm2", architectures=["Lfm2ForCausalLM"], vocab_size=VOCAB, hidden_size=1024, intermediate_size=6656,
           num_attention_heads=16, num_key_value_heads=8, block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.0,
           block_multiple_of=256, conv_L_cache=3, conv_bias=False, norm_eps=1e-5, tie_word_embeddings=True,
           rope_parameters=dict(rope_type="default", rope_theta=1000000.0), max_position_embeddings=4096, eos_token_id=VOCAB - 1)


class Weight:
    """ours: its name in the folder; theirs: in GGUF, None: it is another one's; draw: shape -> array; turn: ours -> theirs."""

    def __init__(self, ours, theirs, shape, draw="product", turn=None):
        self.ours, self.theirs, self.shape, self.draw, self.turn = ours, theirs, shape, draw, turn

    @property
    def is_product(self):
        return self.draw == "product"


def made(weight, rng):
    """A matrix of a product keeps the size of what it multiplies, a norm's factors lie about 1 or, counted from 1, about 0;
    states forget within some 10 to 1,000 steps."""
    draw = lambda low, high: rng.uniform(low, high, weight.shape).astype(np.float32)
    if weight.draw == "product":
        return rng.random(weight.shape, np.float32) * np.float32(2 * (3 / weight.shape[-1]) ** 0.5) - np.float32((3 / weight.shape[-1]) ** 0.5)
    return draw(*{"one": (0.9, 1.1), "zero": (-0.1, 0.1), "taps": (-0.5, 0.5), "rate": (0, 2), "time": (-5, -2)}[weight.draw])


def flat_taps(x):
    return x.reshape(x.shape[0], x.shape[2])


def qwen_layer(c, i):
    d, f, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    p, b, plus_one = f"model.layers.{i}.", f"blk.{i}.", lambda x: x + 1
    rows = [Weight(p + "input_layernorm.weight", b + "attn_norm.weight", [d], "zero", plus_one),
            Weight(p + "post_attention_layernorm.weight", b + "post_attention_norm.weight", [d], "zero", plus_one),
            Weight(p + "mlp.gate_proj.weight", b + "ffn_gate.weight", [f, d]), Weight(p + "mlp.up_proj.weight", b + "ffn_up.weight", [f, d]),
            Weight(p + "mlp.down_proj.weight", b + "ffn_down.weight", [d, f])]
    if (i + 1) % c["full_attention_interval"] == 0:
        q, kv, a = c["num_attention_heads"] * head, c["num_key_value_heads"] * head, p + "self_attn."
        return rows + [Weight(a + "q_proj.weight", b + "attn_q.weight", [2 * q, d]), Weight(a + "k_proj.weight", b + "attn_k.weight", [kv, d]),
                       Weight(a + "v_proj.weight", b + "attn_v.weight", [kv, d]), Weight(a + "o_proj.weight", b + "attn_output.weight", [d, q]),
                       Weight(a + "q_norm.weight", b + "attn_q_norm.weight", [head], "zero", plus_one),
                       Weight(a + "k_norm.weight", b + "attn_k_norm.weight", [head], "zero", plus_one)]
    heads, a = c["linear_num_value_heads"], p + "linear_attn."
    keys, values = c["linear_num_key_heads"] * c["linear_key_head_dim"], heads * c["linear_value_head_dim"]
    return rows + [Weight(a + "in_proj_qkv.weight", b + "attn_qkv.weight", [2 * keys + values, d]),
                   Weight(a + "in_proj_z.weight", b + "attn_gate.weight", [values, d]),
                   Weight(a + "in_proj_b.weight", b + "ssm_beta.weight", [heads, d]), Weight(a + "in_proj_a.weight", b + "ssm_alpha.weight", [heads, d]),
                   Weight(a + "conv1d.weight", b + "ssm_conv1d.weight", [2 * keys + values, 1, c["linear_conv_kernel_dim"]], "taps", flat_taps),
                   Weight(a + "dt_bias", b + "ssm_dt.bias", [heads], "time"), Weight(a + "A_log", b + "ssm_a", [heads], "rate", lambda x: -np.exp(x)),
                   Weight(a + "norm.weight", b + "ssm_norm.weight", [c["linear_value_head_dim"]], "one"),
                   Weight(a + "out_proj.weight", b + "ssm_out.weight", [d, values])]


def mamba_layer(c, i):
    d, heads, n = c["hidden_size"], c["num_heads"], c["n_groups"] * c["state_size"]
    inner, p, b = heads * c["head_dim"], f"backbone.layers.{i}.", f"blk.{i}."
    a, column = p + "mixer.", lambda x: x.reshape(-1, 1)
    return [Weight(p + "norm.weight", b + "attn_norm.weight", [d], "one"),
            Weight(a + "in_proj.weight", b + "ssm_in.weight", [2 * inner + 2 * n + heads, d]),
            Weight(a + "conv1d.weight", b + "ssm_conv1d.weight", [inner + 2 * n, 1, c["conv_kernel"]], "taps", flat_taps),
            Weight(a + "conv1d.bias", b + "ssm_conv1d.bias", [inner + 2 * n], "zero"), Weight(a + "dt_bias", b + "ssm_dt.bias", [heads], "time"),
            Weight(a + "A_log", b + "ssm_a", [heads], "rate", lambda x: -np.exp(column(x))), Weight(a + "D", b + "ssm_d", [heads], "one", column),
            Weight(a + "norm.weight", b + "ssm_norm.weight", [inner], "one", lambda x: x.reshape(c["n_groups"], -1)),
            Weight(a + "out_proj.weight", b + "ssm_out.weight", [d, inner])]


def lfm_ffn(c):
    return -(-int(c["block_ffn_dim_multiplier"] * (2 * c["intermediate_size"] // 3)) // c["block_multiple_of"]) * c["block_multiple_of"]


def lfm_layer(c, i):
    d, f, head, p, b = c["hidden_size"], lfm_ffn(c), c["hidden_size"] // c["num_attention_heads"], f"model.layers.{i}.", f"blk.{i}."
    rows = [Weight(p + "operator_norm.weight", b + "attn_norm.weight", [d], "one"), Weight(p + "ffn_norm.weight", b + "ffn_norm.weight", [d], "one"),
            Weight(p + "feed_forward.w1.weight", b + "ffn_gate.weight", [f, d]), Weight(p + "feed_forward.w3.weight", b + "ffn_up.weight", [f, d]),
            Weight(p + "feed_forward.w2.weight", b + "ffn_down.weight", [d, f])]
    if c["layer_types"][i] == "conv":
        return rows + [Weight(p + "conv.in_proj.weight", b + "shortconv.in_proj.weight", [3 * d, d]),
                       Weight(p + "conv.conv.weight", b + "shortconv.conv.weight", [d, 1, c["conv_L_cache"]], "taps", flat_taps),
                       Weight(p + "conv.out_proj.weight", b + "shortconv.out_proj.weight", [d, d])]
    a, kv = p + "self_attn.", c["num_key_value_heads"] * head
    return rows + [Weight(a + "q_proj.weight", b + "attn_q.weight", [d, d]), Weight(a + "k_proj.weight", b + "attn_k.weight", [kv, d]),
                   Weight(a + "v_proj.weight", b + "attn_v.weight", [kv, d]), Weight(a + "out_proj.weight", b + "attn_output.weight", [d, d]),
                   Weight(a + "q_layernorm.weight", b + "attn_q_norm.weight", [head], "one"),
                   Weight(a + "k_layernorm.weight", b + "attn_k_norm.weight", [head], "one")]


class Family:
    """title; layers(config, number) -> weights; word and norm: names of both; states: elements of all layers, and operations on
    each and step; caches: f32 numbers that a token leaves."""

    def __init__(self, title, arch, config, depth, layer, word, norm, norm_theirs="output_norm.weight", plain_norm=True):
        self.title, self.arch, self.depth, self.layer = title, arch, depth, layer
        self.config, self.word, self.norm, self.norm_theirs, self.plain_norm = dict(config), word, norm, norm_theirs, plain_norm

    def with_depth(self, depth):
        """Of as many layers; 0: of the shape's."""
        depth, c = depth or self.depth, dict(self.config)
        c["num_hidden_layers"] = depth
        if self.arch == "qwen35":
            c["layer_types"] = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(depth)]
        if self.arch == "lfm2":
            c["layer_types"] = ["full_attention" if i in (2, 5, 8, 10, 12, 14) else "conv" for i in range(depth)]
        made = Family(self.title, self.arch, c, depth, self.layer, self.word, self.norm, self.norm_theirs, self.plain_norm)
        return made

    def weights(self):
        d = self.config["hidden_size"]
        last = Weight(self.norm, self.norm_theirs, [d], "one") if self.plain_norm else \
            Weight(self.norm, self.norm_theirs, [d], "zero", lambda x: x + 1)
        return [Weight(self.word, "token_embd.weight", [VOCAB, d]), last] + \
            [w for i in range(self.depth) for w in self.layer(self.config, i)]

    def products(self):
        """Numbers of weights of a token's products, and of the head's."""
        sizes = [int(np.prod(w.shape)) for w in self.weights() if w.is_product]
        return sum(sizes[1:]), sizes[0]

    def states(self):
        """Elements of the states of linear attention of all layers, and operations on each element and step."""
        c = self.config
        if self.arch == "qwen35":
            return c["layer_types"].count("linear_attention") * c["linear_num_value_heads"] * c["linear_key_head_dim"] * c["linear_value_head_dim"], 4
        if self.arch == "mamba2":
            return self.depth * c["num_heads"] * c["head_dim"] * c["state_size"], 3
        return 0, 3

    def caches(self):
        c = self.config
        head = c.get("head_dim", c["hidden_size"] // c.get("num_attention_heads", 1))
        return c.get("layer_types", []).count("full_attention") * 2 * c.get("num_key_value_heads", 0) * head


FAMILIES = {
    "qwen3_5": Family("Qwen3.5 (d 1,024, 24 layers)", "qwen35", QWEN, 24, qwen_layer, "model.embed_tokens.weight", "model.norm.weight", plain_norm=False),
    "mamba2": Family("Mamba 2 (d 1,024, 48 layers)", "mamba2", MAMBA, 48, mamba_layer, "backbone.embeddings.weight", "backbone.norm_f.weight"),
    "lfm2": Family("LFM2 (d 1,024, 16 layers)", "lfm2", LFM, 16, lfm_layer, "model.embed_tokens.weight", "model.embedding_norm.weight",
                   norm_theirs="token_embd_norm.weight")}


def drawn(family):
    rng = np.random.default_rng(1)
    return {w.ours: made(w, rng) for w in family.weights()}


def write_folder(family, weights, folder):
    from safetensors.numpy import save_file
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(family.config))
    save_file(weights, folder / "model.safetensors")


def head_of(out, family):
    """The keys of a GGUF file that llama.cpp asks for."""
    c, arch = family.config, family.arch
    number, real = lambda key, value: out.add_uint32(f"{arch}.{key}", value), lambda key, value: out.add_float32(f"{arch}.{key}", value)
    number("block_count", family.depth), number("context_length", 4096), number("embedding_length", c["hidden_size"])
    real("attention.layer_norm_rms_epsilon", next(c[k] for k in ("rms_norm_eps", "layer_norm_epsilon", "norm_eps") if k in c))
    out.add_tokenizer_model("no_vocab"), out.add_vocab_size(VOCAB)
    if arch == "mamba2":
        number("feed_forward_length", 0), number("attention.head_count", 0)
        inner, n, heads, groups, kernel = c["num_heads"] * c["head_dim"], c["state_size"], c["num_heads"], c["n_groups"], c["conv_kernel"]
    else:
        head = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
        number("feed_forward_length", lfm_ffn(c) if arch == "lfm2" else c["intermediate_size"])
        number("attention.head_count", c["num_attention_heads"]), number("attention.key_length", head), number("attention.value_length", head)
        real("rope.freq_base", c["rope_parameters"]["rope_theta"])
    if arch == "lfm2":
        number("shortconv.l_cache", c["conv_L_cache"])
        return out.add_array("lfm2.attention.head_count_kv", [c["num_key_value_heads"] if t == "full_attention" else 0 for t in c["layer_types"]])
    if arch == "qwen35":
        number("attention.head_count_kv", c["num_key_value_heads"]), number("full_attention_interval", c["full_attention_interval"])
        number("rope.dimension_count", 64), out.add_array("qwen35.rope.dimension_sections", [11, 11, 10, 0])
        heads, n, groups, kernel = c["linear_num_value_heads"], c["linear_key_head_dim"], c["linear_num_key_heads"], c["linear_conv_kernel_dim"]
        inner = heads * c["linear_value_head_dim"]
    number("ssm.inner_size", inner), number("ssm.state_size", n), number("ssm.time_step_rank", heads)
    return number("ssm.group_count", groups), number("ssm.conv_kernel", kernel)


def write_gguf(family, weights, form, path):
    """form: F32, Q8_0, Q4_0, of the weights of products."""
    import gguf
    out = gguf.GGUFWriter(str(path), family.arch)
    head_of(out, family)
    kind = gguf.GGMLQuantizationType[form]
    for w in family.weights():
        x = weights[w.ours] if w.turn is None else np.ascontiguousarray(w.turn(weights[w.ours]).astype(np.float32))
        if w.is_product and form != "F32":
            out.add_tensor(w.theirs, gguf.quants.quantize(x, kind), raw_dtype=kind)
        else:
            out.add_tensor(w.theirs, x)
    out.write_header_to_file(), out.write_kv_data_to_file(), out.write_tensors_to_file(), out.close()
