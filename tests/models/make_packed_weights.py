#!/usr/bin/env python3
"""usage: make_packed_weights.py packed_weights.json

Writes weights that are packed in few bits, and the numbers that the libraries make of them: compressed-tensors packs and unpacks
its own (it must be installed: pip install compressed-tensors), transformers unpacks MXFP4; those of GPTQ and AWQ are packed and
unpacked here by the operations of AutoGPTQ's QuantLinear and AutoAWQ's WQLinear_GEMM, in torch and in the type of the scales.
"""
import json
import sys

import torch

KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.int64: "I64", torch.int8: "I8",
         torch.uint8: "U8"}


def numbers(seed, shape, high):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)


def scales(seed, shape, dtype):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.02 + 0.001).to(dtype)


def words(values, bits, order=None):
    """Runs of 32 / bits columns as words."""
    per = 32 // bits
    runs = values.reshape(values.shape[0], -1, per).long()
    runs = runs[:, :, order] if order else runs
    packed = sum(runs[:, :, i] << bits * i for i in range(per))
    return torch.where(packed >= 2 ** 31, packed - 2 ** 32, packed).to(torch.int32)


def compressed(seed, rows, columns, bits, dtype, group=None, symmetric=True):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    args = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric, strategy="group" if group else "channel", group_size=group)
    scheme = QuantizationScheme(targets=["Linear"], weights=args, format="pack-quantized")
    groups = columns // group if group else 1
    state = {"weight_scale": scales(seed, (rows, groups), dtype)}
    zeros = numbers(seed + 1, (rows, groups), 1 << bits).to(torch.int8) - (1 << bits - 1)
    if not symmetric:
        state["weight_zero_point"] = zeros.to(torch.int8)
    q = numbers(seed + 2, (rows, columns), 1 << bits) - (1 << bits - 1)
    spread = state["weight_scale"].repeat_interleave(columns // groups, 1)
    steps = q - (zeros.to(torch.int32).repeat_interleave(columns // groups, 1) if not symmetric else 0)
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    packed = compressor.compress({**state, "weight": steps.to(dtype) * spread}, scheme)
    values = compressor.decompress(dict(packed), scheme)["weight"]
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "ignore": ["lm_head"],
              "kv_cache_scheme": None, "config_groups": {"group_0": {"targets": ["Linear"], "input_activations": None, "weights": {
                  "num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group" if group else "channel", "group_size": group}}}}
    return config, {f"p.score.{name}": tensor for name, tensor in packed.items()}, values


def gptq(seed, rows, columns, bits, group, second=False, turned=False, symmetric=False):
    groups = -(-columns // group) if group > 0 else 1
    q, scale = numbers(seed, (columns, rows), 1 << bits), scales(seed + 1, (groups, rows), torch.float16)
    zeros = torch.full((groups, rows), 1 << bits - 1) if symmetric else numbers(seed + 2, (groups, rows), 1 << bits)
    zeros = zeros if second else zeros.clamp(1)
    index = torch.arange(columns) // (group if group > 0 else columns)
    if turned:
        index = index[torch.randperm(columns, generator=torch.Generator().manual_seed(seed))]
    kept = words((zeros - (0 if second else 1)).to(torch.int32), bits)
    tensors = {"p.score.qweight": words(q.T.contiguous(), bits).T.contiguous(), "p.score.qzeros": kept, "p.score.scales": scale,
               "p.score.g_idx": index.to(torch.int32)}
    shifts = torch.arange(0, 32, bits)
    found = (tensors["p.score.qweight"].long()[:, None, :] >> shifts[None, :, None] & (1 << bits) - 1).reshape(columns, rows)
    points = (kept.long()[:, :, None] >> shifts & (1 << bits) - 1).reshape(groups, rows) + (0 if second else 1)
    values = scale[index] * (found - points[index]).to(torch.float16)
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": turned, "sym": symmetric}
    if second:
        config["checkpoint_format"] = "gptq_v2"
    return config, tensors, values.T.contiguous()


def awq(seed, rows, columns, group):
    groups = columns // group if group > 0 else 1
    q, zeros = numbers(seed, (columns, rows), 16), numbers(seed + 1, (groups, rows), 16)
    scale = scales(seed + 2, (groups, rows), torch.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    tensors = {"p.score.qweight": words(q, 4, order), "p.score.qzeros": words(zeros, 4, order), "p.score.scales": scale}
    back = [0, 4, 1, 5, 2, 6, 3, 7]

    def unpacked(packed):
        found = packed.long()[:, :, None] >> torch.arange(0, 32, 4) & 15
        return found[:, :, back].reshape(packed.shape[0], -1)
    size = columns // groups
    steps = unpacked(tensors["p.score.qweight"]) - unpacked(tensors["p.score.qzeros"]).repeat_interleave(size, 0)
    values = steps.to(torch.float16) * scale.repeat_interleave(size, 0)
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    return config, tensors, values.T.contiguous()


def mxfp4(seed, experts, rows, groups):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    blocks = numbers(seed, (experts, rows, groups, 16), 256).to(torch.uint8)
    powers = numbers(seed + 1, (experts, rows, groups), 12).to(torch.uint8) + 118
    powers.view(-1)[:3] = torch.tensor([0, 254, 1], dtype=torch.uint8)
    blocks[0, 0, 1] %= 120  # what is finite at the greatest power of two: below 2
    blocks[0, 0, 1] = (blocks[0, 0, 1] & 0x33)
    values = convert_moe_packed_tensors(blocks, powers, dtype=torch.bfloat16)
    return {"quant_method": "mxfp4"}, {"p.score.weight_blocks": blocks, "p.score.weight_scales": powers}, values


def main(path):
    half, brain = torch.float16, torch.bfloat16
    made = {
        "compressed-tensors, groups": compressed(1, 24, 64, 4, half, 32),
        "compressed-tensors, zero points": compressed(2, 20, 64, 4, brain, 16, symmetric=False),
        "compressed-tensors, rows that end within a word": compressed(3, 12, 30, 4, torch.float32),
        "compressed-tensors, zero points of groups of 32": compressed(17, 24, 96, 4, brain, 32, symmetric=False),
        "compressed-tensors, a scale for each row": compressed(18, 16, 256, 4, brain),
        "compressed-tensors, 8 bits": compressed(4, 8, 64, 8, brain, 32),
        "compressed-tensors, 2 bits": compressed(5, 8, 64, 2, half, 16),
        "GPTQ, symmetric": gptq(6, 32, 64, 4, 32, symmetric=True),
        "GPTQ, zero points": gptq(7, 32, 64, 4, 16),
        "GPTQ, columns in another order": gptq(8, 32, 64, 4, 16, turned=True),
        "GPTQ, a group of all columns": gptq(9, 32, 64, 4, -1),
        "GPTQ, a last group of fewer columns": gptq(10, 32, 96, 4, 64),
        "GPTQ, second format": gptq(11, 32, 64, 4, 32, second=True),
        "GPTQ, groups of 128": gptq(19, 16, 256, 4, 128),
        "GPTQ, 8 bits": gptq(12, 32, 64, 8, 32),
        "GPTQ, 2 bits": gptq(13, 32, 64, 2, 32),
        "AWQ": awq(14, 24, 64, 32),
        "AWQ, groups of 64": awq(20, 16, 192, 64),
        "AWQ, a group of all columns": awq(15, 16, 64, -1),
        "MXFP4": mxfp4(16, 2, 6, 3),
    }
    cases = {}
    for name, (config, tensors, values) in made.items():
        assert bool(torch.isfinite(values).all()), name
        cases[name] = {"config": config, "shape": list(values.shape), "type": KINDS[values.dtype],
                       "tensors": {n: [KINDS[t.dtype], list(t.shape), t.contiguous().view(torch.uint8).numpy().tobytes().hex()]
                                   for n, t in tensors.items()},
                       "values": values.float().numpy().tobytes().hex()}
    with open(path, "w") as file:
        json.dump(cases, file, indent=0)
        file.write("\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
