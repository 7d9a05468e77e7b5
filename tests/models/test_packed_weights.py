#!/usr/bin/env python3
"""usage: test_packed_weights.py TFMC CASES

Weights that are packed in few bits: the numbers of packed_weights.json, which the libraries computed (make_packed_weights.py),
come out to the bit, whole and in rows, by each engine; a whole checkpoint imported so writes what its numbers in f32 write; what
is not read is refused by name. The last line is 'N passed, N failed' of unittest.
"""
import json
import pathlib
import re

import numpy as np
from safetensors.numpy import load_file, save_file

import import_case
import packed_llama
from import_case import ImportCase

MADE = json.loads((pathlib.Path(__file__).parent / "packed_weights.json").read_text())
TYPES = {"F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64, "I8": np.int8, "U8": np.uint8}
MODEL = """model S {{
  weight v: {shape} as "p.score.weight"
  forward(x: f32[n, 2]) {{ return raw = x[0, 0] * 0 + v, part = x[0, 0] * 0 + v[1:, 5:]{product} }}
}}
"""


def write_file(path, tensors):
    """tensors: {name: (type, shape, bytes)}; numpy has no bf16."""
    header, data = {}, b""
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


class PackedWeights(ImportCase):
    def folder_of(self, case, change=None):
        tensors = {name: (kind, shape, bytes.fromhex(content)) for name, (kind, shape, content) in case["tensors"].items()}
        if change:
            change(tensors)
        write_file(self.folder / "model.safetensors", tensors)
        (self.folder / "config.json").write_text(json.dumps({"quantization_config": case["config"]}))
        shape = case["shape"]
        product = ", y = linear(concat([x for i in {}], axis = 1)[:, :{}], v)".format(-(-shape[-1] // 2), shape[-1]) if len(shape) == 2 \
            else ""
        (self.folder / "m.tfm").write_text(MODEL.format(shape=shape, product=product))
        save_file({"x": np.ones((3, 2), np.float32)}, self.folder / "x.safetensors")

    def outputs(self, *options, code=0):
        made = self.folder / "y.safetensors"
        told = self.told(self.folder / "m.tfm", "--weights", self.folder, "--inputs", self.folder / "x.safetensors", "-o", made, *options,
                         verb="run", code=code)
        return told if code else load_file(made)

    def told(self, *args, **named):
        done = self.tfmc(*args, **named)
        return done.stdout + done.stderr

    def test_numbers_are_those_of_the_libraries(self):
        for name, case in MADE.items():
            wanted = np.frombuffer(bytes.fromhex(case["values"]), np.float32).reshape(case["shape"])
            self.folder_of(case)
            for options in [], ["--engine=reference"], ["--quantize=f32"]:
                with self.subTest(name=name, options=options):
                    found = self.outputs(*options)
                    self.assertEqual(found["raw"].tobytes(), (wanted + np.float32(0)).tobytes())
                    self.assertEqual(found["part"].tobytes(), (wanted[1:, 5:] + np.float32(0)).tobytes())
                    if wanted.ndim == 2:
                        exact = wanted.astype(np.float64).sum(axis=1)
                        self.assertLess(np.abs(found["y"] - exact).max(), 1e-5)

    def test_numbers_of_16_bits_stay_so(self):
        self.folder_of(MADE["GPTQ, columns in another order"])
        told = self.told(self.folder / "m.tfm", "--weights", self.folder, verb="check")
        self.assertRegex(told, r"\n  f16 +1 products")

    def test_a_whole_checkpoint(self):
        """A Llama whose layers are packed gives the bytes of one whose tensors hold the same numbers."""
        for method in ("compressed-tensors", "gptq", "awq"):
            with self.subTest(method=method):
                self.whole(method)

    def whole(self, method):
        config = self.take("llama") | packed_llama.SHAPE
        plain, packed = packed_llama.make(method, self.case["weights"])
        save_file(plain, self.folder / "model.safetensors")
        self.write(config)
        wanted = self.written()
        save_file(packed, self.folder / "model.safetensors")
        self.write(config | {"quantization_config": packed_llama.CONFIGS[method]})
        self.assertEqual(self.written("--strict"), wanted)
        self.assertEqual(self.written("--strict", rule="--quantize=as-stored"), wanted)  # heads of 16: their factor is a power of two
        report = self.told(self.folder / "made.tfm", "--weights", self.folder, verb="check")
        self.assertRegex(report, rf"q4g32 +{7 * config['num_hidden_layers']} products")
        room = re.search(r"room +([\d.]+) MB, ([\d.]+) in f32", report)
        layers = config["num_hidden_layers"] * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96)
        head = config["vocab_size"] * 64
        self.assertAlmostEqual(float(room[1]), (layers * 5 / 8 + head * 4) / 1e6, delta=1e-3)

    def test_experts_in_mxfp4(self):
        """gpt-oss as it is published: blocks and powers of two in place of the experts' tensors."""
        config, random = self.take("gpt_oss"), np.random.default_rng(9)
        config |= {"intermediate_size": 64}
        table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
        table = np.concatenate([table, -table])
        packed, plain = {}, {}
        for name, array in load_file(self.folder / "model.safetensors").items():
            shape = tuple(128 if n == 80 else 64 if n == 40 and "down_proj" in name else n for n in array.shape)
            if not name.endswith(("gate_up_proj", "down_proj")):
                plain[name] = packed[name] = (random.standard_normal(shape) * 0.2).astype(np.float32)
                continue
            n, k, rows = shape
            codes, powers = random.integers(0, 16, (n, rows, k)), random.integers(122, 126, (n, rows, k // 32))
            values = table[codes] * np.repeat(np.exp2(powers - 127.0), 32, axis=2).astype(np.float32)
            plain[name] = np.ascontiguousarray(values.transpose(0, 2, 1))
            packed[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8).reshape(n, rows, k // 32, 16)
            packed[f"{name}_scales"] = powers.astype(np.uint8)
        save_file(plain, self.folder / "model.safetensors")
        self.write(config)
        wanted = self.written("--strict")
        save_file(packed, self.folder / "model.safetensors")
        self.write(config | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}})
        self.assertEqual(self.written("--strict"), wanted)
        told = self.told(self.folder / "made.tfm", "--weights", self.folder, "--stage=fused", "--report", verb="dump")
        self.assertRegex(told, r"mxfp4 +\d+ products")
        wanted = {name: np.frombuffer(content, np.float32) for name, content in wanted.items()}
        library = self.folder / "libm.so"
        self.tfmc(self.folder / "made.tfm", "--weights", self.folder, "-march=x86-64-v3", "-o", library, verb="compile")
        for model, *options in ([self.folder / "made.tfm"], [self.folder / "made.tfm", "-march=x86-64"], [library],
                                [self.folder / "made.tfm", "--engine=reference"], [self.folder / "made.tfm", "--threads=1", "-O0"]):
            self.tfmc(model, *(["--weights", self.folder] if model != library else []), *options, "--inputs",
                      self.folder / "inputs.safetensors", "-o", self.folder / "out.safetensors", verb="run")
            for name, found in load_file(self.folder / "out.safetensors").items():
                np.testing.assert_allclose(found.ravel(), wanted[name], rtol=1e-5, atol=1e-5)
        save_file(plain, self.folder / "model.safetensors")
        self.write(config)
        told = self.told(library, "--weights", self.folder, "--inputs", self.folder / "inputs.safetensors", "-o",
                         self.folder / "other.safetensors", verb="run", code=1)
        self.assertIn("the library keeps it in the MXFP4 of the file", told)

    def test_experts_whose_rows_have_8_bits(self):
        """A rule: the numbers of the file stay what they are, and products take 127 times a row of an identity exactly."""
        case = MADE["MXFP4"]
        k = case["shape"][1]
        wanted = np.frombuffer(bytes.fromhex(case["values"]), np.float32).reshape(case["shape"])
        self.folder_of(case)
        model = self.folder / "m.tfm"
        model.write_text(f'model S {{ weight v: {case["shape"]} as "p.score.weight"\n'
                         f'forward(x: f32[n, {k}]) {{ return y = x @ v[1] }} }}\n')
        rule = "--quantize=*score*=mxfp4a8"
        self.assertIn("in mxfp4a8 panels", self.told(model, "--weights", self.folder, "--stage=plan", rule, verb="dump"))
        save_file({"x": np.eye(k, dtype=np.float32) * 127}, self.folder / "x.safetensors")
        for options in [], ["-march=x86-64-v3"], ["-march=x86-64"], ["--engine=reference"], ["-O0"]:
            with self.subTest(options=options):
                self.assertEqual((self.outputs(rule, *options)["y"] / np.float32(127)).tobytes(), (wanted[1] + np.float32(0)).tobytes())

    def test_products_in_mxfp4(self):
        """Rows of an identity give the numbers of the file to the bit, from panels of 4 bits; where a product does not take blocks
        as they are, its weight has 16 bits."""
        case = MADE["MXFP4"]
        n, k, rows = case["shape"]
        wanted = np.frombuffer(bytes.fromhex(case["values"]), np.float32).reshape(case["shape"])
        self.folder_of(case)
        forms = {  # what stands in place of the factor: its columns, what of the file it has, its form
            "v[1]": (k, wanted[1], "mxfp4"),
            "v[0, 32:]": (k - 32, wanted[0, 32:], "mxfp4"),
            "concat([v[0], v[1]], axis = 1)[32:64, 1::2]": (32, np.concatenate([wanted[0], wanted[1]], axis=1)[32:64, 1::2], "mxfp4"),
            "concat([v[0], v[1, :64]], axis = 0)": (k + 64, np.concatenate([wanted[0], wanted[1, :64]]), "mxfp4"),
            "concat([v[0], v[1]], axis = 1)": (k, np.concatenate([wanted[0], wanted[1]], axis=1), "mxfp4"),
            "v[1, 16:48]": (32, wanted[1, 16:48], "bf16"),
            "v[1, :, :][:40]": (40, wanted[1, :40], "bf16"),
            "concat([v[0, 1:], v[1]], axis = 0)[31:63]": (32, wanted[0, 32:64], "bf16"),
            "concat([v[0, :16], v[1, 16:]], axis = 0)": (k, np.concatenate([wanted[0, :16], wanted[1, 16:]]), "bf16"),
        }
        model = self.folder / "m.tfm"
        for factor, (columns, values, form) in forms.items():
            model.write_text(f'model S {{ weight v: {case["shape"]} as "p.score.weight"\n'
                             f'forward(x: f32[n, {columns}]) {{ return y = x @ {factor} }} }}\n')
            plan = self.told(model, "--weights", self.folder, "--stage=plan", verb="dump")
            self.assertIn(f"in {form} panels", plan, factor)
            save_file({"x": np.eye(columns, dtype=np.float32)}, self.folder / "x.safetensors")
            for options in [], ["-march=x86-64-v3"], ["-march=x86-64"], ["--engine=reference"], ["-O0"]:
                with self.subTest(factor=factor, options=options):
                    self.assertEqual(self.outputs(*options)["y"].tobytes(), (values + np.float32(0)).tobytes())

    def test_products_in_groups(self):
        """Rows of an identity give the numbers of the file to the bit, from panels of 4 bits; what is in no groups of 32 or more
        neighbours, or has not 4 bits, has 16 bits, or 32 if its scales have."""
        forms = {"compressed-tensors, groups": "q4g32", "compressed-tensors, zero points of groups of 32": "q4g32",
                 "compressed-tensors, a scale for each row": "q4g128", "GPTQ, symmetric": "q4g32", "GPTQ, groups of 128": "q4g128",
                 "GPTQ, a group of all columns": "q4g64", "GPTQ, a last group of fewer columns": "q4g32",
                 "GPTQ, second format": "q4g32", "AWQ": "q4g32", "AWQ, groups of 64": "q4g64", "AWQ, a group of all columns": "q4g64",
                 "compressed-tensors, rows that end within a word": None, "compressed-tensors, zero points": "bf16",
                 "compressed-tensors, 8 bits": "bf16"}
        for name, case in MADE.items():
            form = forms.get(name, "f16")
            if name != "MXFP4":
                with self.subTest(name=name):
                    self.identity(case, form)

    def identity(self, case, form):
        n, k = case["shape"]
        wanted, model = np.frombuffer(bytes.fromhex(case["values"]), np.float32).reshape(n, k), self.folder / "m.tfm"
        self.folder_of(case)
        parts = {"v": (k, wanted), "concat([v, v[3:]], axis = 0)": (k, np.concatenate([wanted, wanted[3:]])), "v[2:]": (k, wanted[2:])}
        if form and form.startswith("q4g") and k > (group := int(form[3:])):
            parts[f"v[:, {group}:]"] = (k - group, wanted[:, group:])
        for factor, (columns, values) in parts.items():
            model.write_text(f'model S {{ weight v: {case["shape"]} as "p.score.weight"\n'
                             f'forward(x: f32[n, {columns}]) {{ return y = linear(x, {factor}) }} }}\n')
            plan = self.told(model, "--weights", self.folder, "--stage=plan", verb="dump")
            self.assertIn(f"in {form} panels" if form else "in panels", plan, factor)
            save_file({"x": np.eye(columns, dtype=np.float32)}, self.folder / "x.safetensors")
            for options in ([], ["-march=x86-64"]) if factor != "v" else ([], ["-march=x86-64-v3"], ["--engine=reference"]):
                with self.subTest(factor=factor, options=options):
                    self.assertEqual(self.outputs(*options)["y"].T.tobytes(), (values + np.float32(0)).tobytes())
        model.write_text(f'model S {{ weight v: {case["shape"]} as "p.score.weight"\n'
                         f'forward(x: f32[n, {k - 3}]) {{ return y = linear(x, v[:, 3:]) }} }}\n')
        self.assertNotIn("q4g", self.told(model, "--weights", self.folder, "--stage=plan", verb="dump"))

    def written(self, *options, rule="--quantize=f32"):
        model, made = self.folder / "made.tfm", self.folder / "out.safetensors"
        save_file({n: np.array(v, np.int32) for n, v in self.case["inputs"].items()}, self.folder / "inputs.safetensors")
        self.tfmc(self.folder, "-o", model, *options)
        self.tfmc(model, "--weights", self.folder, "--inputs", self.folder / "inputs.safetensors", "-o", made, rule, verb="run")
        return {name: array.tobytes() for name, array in load_file(made).items()}

    def test_configs_that_are_refused(self):
        for case, change, words in [
                ("AWQ", {"version": "gemv"}, 'the format "gemv" of AWQ is not read; gemm is'),
                ("AWQ", {"bits": 8}, "AWQ of 8 bits is not read"), ("AWQ", {"zero_point": False}, "AWQ without zero points"),
                ("AWQ", {"backend": "llm-awq"}, "the layout of llm-awq is not read"),
                ("GPTQ, symmetric", {"bits": 3}, "weights of 3 bits are not read; 2, 4 and 8 bits are"),
                ("GPTQ, symmetric", {"checkpoint_format": "marlin"}, 'the format "marlin" of GPTQ is not read'),
                ("GPTQ, symmetric", {"dynamic": {"+:.*": {"bits": 8}}}, 'its "dynamic" changes more'),
                ("GPTQ, symmetric", {"pack_dtype": "int16"}, "words of int16 are not read"),
                ("MXFP4", {"modules_to_not_convert": 1}, '"modules_to_not_convert" is no list'),
                ("compressed-tensors, groups", {"kv_cache_scheme": {"num_bits": 8}}, 'its "kv_cache_scheme" changes more'),
                ("compressed-tensors, groups", {"format": "int-quantized", "kv_cache_scheme": {"num_bits": 8}}, 'its "kv_cache_scheme" changes'),
                ("compressed-tensors, groups", {"sparsity_config": {"format": "sparse-24-bitmask"}}, "weights that are sparse"),
                ("compressed-tensors, groups", {"transform_config": {"config_groups": {"u": {}}}}, 'its "transform_config" changes more')]:
            with self.subTest(change=change):
                config = self.take("llama")
                self.write(config | {"quantization_config": MADE[case]["config"] | change})
                told = self.told(self.folder, "-o", self.folder / "made.tfm", code=1)
                self.assertIn(words, told)
                self.assertIn("import the original checkpoint", told)

    def test_positions_that_are_not_said(self):
        """transformers scales those of a gpt-oss that has a rope_theta alone; beside rope_parameters it does not."""
        config = self.take("gpt_oss")
        self.write({name: value for name, value in config.items() if name != "rope_parameters"} | {"rope_theta": 500.0})
        told = self.told(self.folder, "-o", self.folder / "made.tfm", code=1)
        self.assertIn("the scaling of positions is not said beside rope_theta", told)
        self.write(config | {"rope_parameters": {"rope_theta": 500.0}})
        self.told(self.folder, "-o", self.folder / "made.tfm")

    def test_schemes_that_are_refused(self):
        for change, words in [({"weights": {"num_bits": 4, "type": "float", "strategy": "group"}}, 'packed weights of type "float"'),
                              ({"weights": {"num_bits": 4, "type": "int", "strategy": "block"}}, 'scales by "block" are not read'),
                              ({"weights": {"num_bits": 5, "type": "int", "strategy": "group"}}, "weights of 5 bits are not read"),
                              ({"input_activations": {"num_bits": 8}}, '"input_activations": the model rounds activations too'),
                              ({"weights": {"num_bits": 4, "type": "int", "strategy": "group", "actorder": "group"}}, '"actorder"'),
                              ({"format": "nvfp4-pack-quantized"}, "groups of different formats")]:
            with self.subTest(change=change):
                config, given = self.take("llama"), json.loads(json.dumps(MADE["compressed-tensors, groups"]["config"]))
                given["config_groups"]["group_0"] |= change
                self.write(config | {"quantization_config": given})
                self.assertIn(words, self.told(self.folder, "-o", self.folder / "made.tfm", code=1))

    def test_tensors_that_are_refused(self):
        def without(name):
            return lambda tensors: tensors.pop(f"p.score.{name}")

        def put(name, kind, shape, content):
            return lambda tensors: tensors.update({f"p.score.{name}": (kind, shape, content)})
        zeros = np.full((2, 4), 0x77777777, np.int32)
        zeros[1, 2] |= 0x0f00
        wrong = np.zeros(64, np.int32)
        wrong[7] = 4
        for case, change, words in [
                ("GPTQ, symmetric", without("qzeros"), 'there is no tensor with the ending ".qzeros" beside it'),
                ("AWQ", without("scales"), 'there is no tensor with the ending ".scales" beside it'),
                ("compressed-tensors, zero points", without("weight_zero_point"), 'the ending "_zero_point" beside it'),
                ("GPTQ, columns in another order", without("g_idx"), 'the ending ".g_idx" beside it'),
                ("compressed-tensors, groups", without("weight_shape"), 'there is no tensor with the ending "_shape" beside it'),
                ("compressed-tensors, groups", put("weight_g_idx", "I32", [64], bytes(256)), "its columns are in another order"),
                ("compressed-tensors, groups", put("weight_shape", "I64", [2], np.array([24, 65]).tobytes()), "does not fit what stands"),
                ("GPTQ, symmetric", put("scales", "F16", [3, 32], bytes(192)), "does not fit what stands beside it"),
                ("GPTQ, symmetric", put("qzeros", "I32", [2, 4], zeros.tobytes()), "the zero point of row 18, group 1 is 0"),
                ("GPTQ, symmetric", put("g_idx", "I32", [64], wrong.tobytes()), "column 7 is of group 4, and there are 2"),
                ("MXFP4", put("weight_scales", "U8", [2, 6, 3], b"\xff" * 36), "scale 0 is 255, which is NaN")]:
            with self.subTest(words=words):
                self.folder_of(MADE[case], change)
                self.assertIn(words, self.outputs(code=1))

    def test_a_group_of_another_size(self):
        """What the config says of groups must be what the scales have."""
        for case, size in (("compressed-tensors, groups", 16), ("GPTQ, symmetric", 64), ("AWQ", 16)):
            with self.subTest(case=case):
                given = json.loads(json.dumps(MADE[case]))
                settings = given["config"]
                (settings["config_groups"]["group_0"]["weights"] if "config_groups" in settings else settings)["group_size"] = size
                self.folder_of(given)
                self.assertIn("does not fit what stands beside it", self.outputs(code=1))

    def test_scales_of_8_bits_that_are_lost(self):
        """Where the config or another weight says that there are scales, F8 without one is no weight; else it is."""
        config, random = self.take("llama"), np.random.default_rng(3)
        tensors = {n: ("F32", a.shape, a.tobytes()) for n, a in load_file(self.folder / "model.safetensors").items()}
        packed = [n for n in tensors if packed_llama.is_packed(n)]
        for name in packed:
            shape = tensors[name][1]
            tensors[name] = ("F8_E4M3", shape, (random.integers(0, 96, shape) | random.integers(0, 2, shape) << 7).astype(np.uint8).tobytes())
        scales = {f"{n}_scale": ("F32", (tensors[n][1][0], 1), np.full(tensors[n][1][0], 0.3, np.float32).tobytes()) for n in packed}
        fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
        weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
        channels = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {"weights": weights}}}
        lost, target = f"{packed[3]}_scale", self.folder / "made.tfm"
        for given, quantized, says in ((scales, fp8, ""), (scales, channels, ""), (scales, None, ""), ({}, None, ""),
                                       ({}, fp8, "weights of fp8 have scales, and there is none beside"),
                                       ({}, channels, "weights of compressed-tensors have scales"),
                                       ({n: s for n, s in scales.items() if n != lost}, fp8, packed[3]),
                                       ({n: s for n, s in scales.items() if n != lost}, None, "no scale beside it, as others")):
            with self.subTest(given=len(given), quantized=quantized):
                write_file(self.folder / "model.safetensors", tensors | given)
                self.write(config | ({"quantization_config": quantized} if quantized else {}))
                told = self.told(self.folder, "-o", target, code=1 if says else 0)
                self.assertIn(says, told)
        write_file(self.folder / "model.safetensors", tensors | scales)
        for block in [64, 64], [128, 64], "64x64":
            weights |= {"strategy": "block", "block_structure": block}
            self.write(config | {"quantization_config": channels})
            self.assertIn("in a way that is not read", self.told(self.folder, "-o", target, code=1))

    def test_without_a_config(self):
        self.folder_of(MADE["AWQ"])
        (self.folder / "config.json").unlink()
        self.assertIn('it is packed, and no "quantization_config" of a config.json beside it says how', self.outputs(code=1))

    def test_info_tells_the_tensors_of_the_file(self):
        self.folder_of(MADE["AWQ"])
        told = self.told(self.folder / "model.safetensors", verb="info")
        self.assertIn("3 tensors in 1 file", told)
        self.assertNotIn('"p.score.weight"', told)


if __name__ == "__main__":
    import_case.main()
