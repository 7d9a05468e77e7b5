"""Writes the checkpoint of a case as a GGUF file, as convert_hf_to_gguf.py of llama.cpp does: names, keys, and the rows of q
and k of a Llama in pairs. No package but numpy is needed.

write(path, config, tensors, kind): `kind` F32, F16, BF16, Q8_0 or Q4_0 for tensors of two axes whose rows are whole blocks, F32
for the others. Returns what each tensor holds then, in the names of the checkpoint.
"""
import math
import struct

import numpy as np

U8, U32, F32, BOOL, TEXT, LIST = 0, 4, 6, 7, 8, 9
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}
NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def name_of(name):
    """Of "model.layers.3.mlp.up_proj.weight": "blk.3.ffn_up.weight"."""
    stem, ending = name.rsplit(".", 1)
    layer = ""
    if stem.startswith("model.layers."):
        _, _, number, stem = stem.split(".", 3)
        layer = f"blk.{number}."
    return f"{layer}{NAMES[stem]}.{ending}"


def in_pairs(array, heads):
    """The rows of each head: first of the first half, first of the second, second of the first ..."""
    return array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def rounded(array, kind):
    """(bytes in the file, the numbers that they are)"""
    if kind == "F32":
        return array.tobytes(), array
    if kind == "F16":
        half = array.astype(np.float16)
        return half.tobytes(), half.astype(np.float32)
    if kind == "BF16":
        upper = (array.view(np.uint32) + 0x8000) >> 16
        return upper.astype(np.uint16).tobytes(), (upper << 16).astype(np.uint32).view(np.float32)
    groups = array.reshape(-1, 32)
    most = 127 if kind == "Q8_0" else 7
    d = (np.abs(groups).max(1) / most).astype(np.float16).astype(np.float32)[:, None]
    q = np.clip(np.round(groups / np.where(d == 0, 1, d)), -most, most).astype(np.int8)
    scales = d.astype(np.float16).view(np.uint8).reshape(-1, 2)
    packed = q.view(np.uint8) if kind == "Q8_0" else (q[:, :16] + 8 | (q[:, 16:] + 8) << 4).astype(np.uint8)
    return np.concatenate([scales, packed], 1).tobytes(), (d * q).reshape(array.shape)


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(name, value):
    """A key; the type of its value is that of llama.cpp's converter."""
    if isinstance(value, bool):
        return text(name) + struct.pack("<IB", BOOL, value)
    if isinstance(value, int):
        return text(name) + struct.pack("<II", U32, value)
    if isinstance(value, float):
        return text(name) + struct.pack("<If", F32, value)
    if isinstance(value, list):
        return text(name) + struct.pack("<IIQ", LIST, TEXT, len(value)) + b"".join(map(text, value))
    return text(name) + struct.pack("<I", TEXT) + text(value)


def factors(rotation, head):
    """What llama.cpp divides the speeds of a Llama 3 by."""
    found = []
    for i in range(head // 2):
        wave = 2 * math.pi * rotation["rope_theta"] ** (2 * i / head)
        low, high = (rotation["original_max_position_embeddings"] / rotation[f"{n}_freq_factor"] for n in ("low", "high"))
        smooth = (rotation["original_max_position_embeddings"] / wave - rotation["low_freq_factor"]) / (
            rotation["high_freq_factor"] - rotation["low_freq_factor"])
        found.append(1 if wave < high else rotation["factor"] if wave > low else 1 / ((1 - smooth) / rotation["factor"] + smooth))
    return np.array(found, np.float32)


def keys_of(config, rotation):
    kind = "llama" if config["model_type"] in ("llama", "mistral") else config["model_type"]
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    own = {"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
           "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
           "attention.head_count": heads, "attention.head_count_kv": config["num_key_value_heads"],
           "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]), "rope.freq_base": float(rotation["rope_theta"]),
           "vocab_size": config["vocab_size"], "rope.dimension_count": head, "attention.key_length": head,
           "attention.value_length": head}
    if rotation["rope_type"] in ("linear", "yarn"):
        own |= {"rope.scaling.type": rotation["rope_type"], "rope.scaling.factor": float(rotation["factor"])}
    if rotation["rope_type"] == "yarn":
        own["rope.scaling.original_context_length"] = rotation["original_max_position_embeddings"]
    ends = config["eos_token_id"] if isinstance(config["eos_token_id"], list) else [config["eos_token_id"]]
    tokens = {"bos": config["bos_token_id"], "eos": ends[0], "eot": ends[1] if len(ends) > 1 else None,
              "padding": config.get("pad_token_id")}
    return {"general.architecture": kind, "general.name": "a case", "general.file_type": 1,
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [f"t{i}" for i in range(config["vocab_size"])],
            **{f"{kind}.{name}": value for name, value in own.items()},
            **{f"tokenizer.ggml.{name}_token_id": value for name, value in tokens.items() if value is not None}}


def pack(keys, tensors, alignment=32):
    """`tensors`: {name: (type, shape of PyTorch, bytes)}."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(entry(*item) for item in keys.items())
    data = b""
    for name, (kind, shape, content) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), TYPES[kind], len(data))
        data += content + bytes(-len(content) % alignment)
    return head + bytes(-len(head) % alignment) + data


def write(path, config, tensors, kind="F32", change=None):
    """`change`: of the keys, before they are written; a value of None leaves one out."""
    rotation = config["rope_parameters"]
    keys, packed, held = keys_of(config, rotation), {}, {}
    turns = keys["general.architecture"] == "llama"
    for name, array in tensors.items():
        heads = {"self_attn.q_proj": config["num_attention_heads"], "self_attn.k_proj": config["num_key_value_heads"]}
        heads = next((n for part, n in heads.items() if part in name), 0) if turns else 0
        own = kind if array.ndim == 2 and (array.shape[1] % 32 == 0 or kind in ("F32", "F16", "BF16")) else "F32"
        held[name] = rounded(array, own)[1]
        stored = np.ascontiguousarray(in_pairs(array, heads) if heads else array)
        packed[name_of(name)] = (own, list(array.shape), rounded(stored, own)[0])
    if rotation["rope_type"] == "llama3":
        values = factors(rotation, keys[f"{keys['general.architecture']}.attention.key_length"])
        packed["rope_freqs.weight"] = ("F32", [len(values)], values.tobytes())
    keys = {name: value for name, value in {**keys, **(change or {})}.items() if value is not None}
    path.write_bytes(pack(keys, packed))
    return held
