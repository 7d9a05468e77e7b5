"""A tiny Llama whose layers are packed in 4 bits as AWQ, GPTQ or compressed-tensors keep them, and the same with the numbers
that their libraries make of it; what a folder of such tensors means, by the operations of these libraries."""
import numpy as np

SIZES = {"q_proj": (64, 64), "k_proj": (32, 64), "v_proj": (32, 64), "o_proj": (64, 64), "gate_proj": (96, 64), "up_proj": (96, 64),
         "down_proj": (64, 96)}
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
AWQ_ORDER, AWQ_PLACES = [0, 2, 4, 6, 1, 3, 5, 7], [0, 4, 1, 5, 2, 6, 3, 7]
CONFIGS = {
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False},
    "compressed-tensors": {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
        "kv_cache_scheme": None, "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": {
            "num_bits": 4, "type": "int", "symmetric": False, "strategy": "group", "group_size": 32}}}}}


def packed_by_four(q):
    """Rows of numbers from 0 to 15 as words, eight to a word."""
    padded = np.pad(q, ((0, 0), (0, -q.shape[1] % 8))).astype(np.uint32).reshape(q.shape[0], -1, 8)
    return np.bitwise_or.reduce(padded << np.arange(0, 32, 4, dtype=np.uint32), axis=2).view(np.int32)


def unpacked(words):
    return (words.view(np.uint32)[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).reshape(words.shape[0], -1).astype(np.int32)


def compressed(name, q, zeros, scale):
    return {f"{name}_packed": packed_by_four(q), f"{name}_scale": scale, f"{name}_shape": np.array(q.shape, np.int64),
            f"{name}_zero_point": packed_by_four(zeros.T).T.copy()}


def gptq(name, q, zeros, scale):
    stem = name.removesuffix(".weight")
    return {f"{stem}.qweight": packed_by_four(q).T.copy(), f"{stem}.qzeros": packed_by_four(zeros.T - 1), f"{stem}.scales": scale.T.copy(),
            f"{stem}.g_idx": (np.arange(q.shape[1]) // 32).astype(np.int32)}


def awq(name, q, zeros, scale):
    stem = name.removesuffix(".weight")
    turned = [a.T.reshape(a.shape[1], -1, 8)[:, :, AWQ_ORDER].reshape(a.shape[1], -1) for a in (q, zeros)]
    return {f"{stem}.qweight": packed_by_four(turned[0]), f"{stem}.qzeros": packed_by_four(turned[1]), f"{stem}.scales": scale.T.copy()}


PACKERS = {"awq": awq, "gptq": gptq, "compressed-tensors": compressed}


def is_packed(name):
    return name.split(".")[-2] in SIZES


def make(method, shapes, seed=8):
    """Tensors in f32, and packed: `shapes` are the names and shapes of a Llama."""
    random, plain, packed = np.random.default_rng(seed), {}, {}
    for name, shape in shapes.items():
        if not is_packed(name):
            plain[name] = packed[name] = random.standard_normal((shape[0], 64) if len(shape) == 2 else (64,)).astype(np.float32)
            continue
        n, k = SIZES[name.split(".")[-2]]
        q, zeros = random.integers(0, 16, (n, k)), random.integers(1, 16, (n, k // 32))
        scale = (random.random((n, k // 32)) * 0.02).astype(np.float16)
        packed |= PACKERS[method](name, q, zeros, scale)
        plain[name] = weight(method, name, packed)
    return plain, packed


def weight(method, name, tensors, second=False):
    """What the library makes of the tensors of a weight [n, k], in groups of 32, as f32; second: of GPTQ's second format."""
    n, k = SIZES[name.split(".")[-2]]
    stem, groups = name.removesuffix(".weight"), np.arange(k) // 32
    if method == "compressed-tensors":
        q, scale = unpacked(tensors[f"{name}_packed"])[:, :k], tensors[f"{name}_scale"]
        zeros = unpacked(tensors[f"{name}_zero_point"].T.copy()).T[:n]
    else:
        q, zeros, scale = (tensors[f"{stem}.{part}"] for part in ("qweight", "qzeros", "scales"))
        scale = scale.T
    if method == "awq":
        q, zeros = (unpacked(a).reshape(a.shape[0], -1, 8)[:, :, AWQ_PLACES].reshape(a.shape[0], -1).T for a in (q, zeros))
    if method == "gptq":
        q, zeros, groups = unpacked(q.T.copy()), unpacked(zeros).T + (not second), tensors[f"{stem}.g_idx"]
    return ((q - zeros[:, groups]).astype(scale.dtype) * scale[:, groups]).astype(np.float32)
