#!/usr/bin/env python3
"""usage: test_explore.py TFMC ROOT

The data and the text of the page of `tfmc explore`: members are those of its table, numbers refer to what is there,
formulas are those of `tfmc bench`, what is fused is what the report says, the same command gives the same bytes, and no
text of a model is anything but text. What the page does in a browser is tested by test_explore_page.py. The last line is
'N passed, N failed'.
"""
import hashlib
import base64
import html.parser
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import tally

TFMC, ROOT = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
sys.argv[1:] = []

MINILM, DATES = ROOT / "examples/minilm/minilm.tfm", ROOT / "examples/dates/dates.tfm"
SMALL = {"MINILM": ["-D", "depth=2"], "DATES": ["-D", "depth=2"]}
INDEXES = {"formula": "formulas", "module": "modules", "file": "files", "program": "programs", "block": "blocks"}
REFUSED = """layer Odd(d) {
  q = Linear(d, d)
  forward(x) = softmax(q(x) @ transpose(x, -1, -2), axis = 0) @ x
}
model Refused(d = 8) { odd = Odd(d) forward(x: f32[time, 8]) { return y = odd(x) } }
"""
TWO_KINDS = """layer Wide(d) {
  norm = RMSNorm(d)
  up   = Linear(d, 4 * d)
  down = Linear(4 * d, d)
  forward(x) = x + down(relu(up(norm(x))))
}
model Two(d = 16, depth = 96) {
  layers = [if i % 3 == 0 then Wide(d) else Block(d) for i in depth]
  forward(x: f32[batch, time, d]) { return y = layers(x) }
}
"""
# One round of each, since no test looks at how long it takes.
MEASURED = ["--profile", "--iterations=2", "--warmup=0", "--threads=1", "-march=native"]
HOSTILE = """include "a<b.tfm"
# </script><script>window.hacked = 1</script> <!-- \u2028 </style>
layer L(n) {
  weight w: [n, n] as "</script><img src=x onerror=alert(1)>.__proto__.constructor"
  forward(x) = x @ w
}
model __proto__(n = 4) {
  require n > 1, "</script><b>"
  l = L(n)
  forward(x: f32[batch, n]) { require batch < 1000, "</script>{batch}<svg onload=alert(1)>" return y = l(x) }
}
"""


def explore(*args, code=0):
    march = [] if any(str(arg).startswith("-march") for arg in args) else ["-march=x86-64-v3"]
    done = subprocess.run([TFMC, "explore", *map(str, args), *march], capture_output=True, text=True)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done


def data_of(*args):
    return json.loads(explore(*args, "--format=json").stdout)


def members(value, path=""):
    """(path, value) of all that the table has a row for."""
    if isinstance(value, dict):
        data = re.fullmatch(r"programs\[\]\.(workspace(\{\})?|scratch)", path) or re.fullmatch(r"kernels\[\]\.code", path)
        for name, inner in value.items():
            at = path + "{}" if data else f"{path}.{name}" if path else name
            yield at, inner
            yield from members(inner, at)
    elif isinstance(value, list) and path not in ("formulas", "blocks", "compare.programs", "compare.runs"):
        for inner in value:
            if isinstance(inner, dict):
                yield from members(inner, path + "[]")


def value_of(formula, sizes):
    """Of a formula, computed as Python does: its operators are the same."""
    names = sorted(sizes, key=len, reverse=True)
    text = re.sub("|".join(map(re.escape, names)) or "$^", lambda m: f"({sizes[m[0]]})", formula)
    assert re.fullmatch(r"[\d\s()*+/.e-]+", text), text
    return eval(text)  # of digits and operators alone


class Table(unittest.TestCase):
    def test_members_are_those_of_the_table(self):
        rows = dict(re.findall(r'^DATA\("([^"]+)",\s*"([^"]+)"', (ROOT / "compiler/explore/data.def").read_text(), re.M))
        with tempfile.TemporaryDirectory() as folder:
            refused = pathlib.Path(folder, "refused.tfm")
            refused.write_text(REFUSED)
            small = pathlib.Path(folder, "small.tfm")
            small.write_text(STACK)
            found = [data_of(MINILM, *SMALL["MINILM"], "--compare", MINILM, "--compare-with=-D depth=3"),
                     data_of(DATES, "--compare", DATES, "--compare-with=--quantize=int8"), data_of(refused),
                     data_of(small, "-D", "depth=1", *MEASURED, "--compare", small, "--compare-with=-D depth=2")]
            page = subprocess.run([TFMC, "profile", small, "-D", "depth=1", "--random-weights=1", "--input=x=1x2x16", "--format=html",
                                   *MEASURED[1:]], capture_output=True, text=True, check=True).stdout
            found.append(json.loads(page.split('id="tfm-data">')[1].split("</script>")[0]))
        seen = set()
        for data in found:
            for path, value in members(data):
                self.assertIn(path, rows)
                seen.add(path)
                what = rows[path]
                if value is None:
                    self.assertTrue(what.startswith("("), path)
                    continue
                kind = {bool: "flag", int: "number", float: "number", str: "text", list: "list", dict: "object"}[type(value)]
                what = what.strip("()")
                if what in INDEXES:
                    self.assertTrue(0 <= value < len(data[INDEXES[what]]), path)
                elif what == "place":
                    self.assertTrue(1 <= value[1] <= len(data["files"][value[0]]["text"].split("\n")), (path, value))
                else:
                    self.assertEqual(kind, what, path)
        self.assertEqual(set(rows), seen)

    def test_numbers_refer_to_what_is_there(self):
        data = data_of(DATES)
        for program in data["programs"]:
            n = {name: len(program[name]) for name in ("primitives", "ops", "steps")}
            for step, each in enumerate(program["steps"]):
                for op in each["ops"]:
                    self.assertIn(step, program["ops"][op]["steps"])
            for op in program["ops"]:
                self.assertTrue(all(p < n["primitives"] for p in op["fused_from"]))
                self.assertTrue(all(p < n["ops"] for p in op["inputs"]))
            for buffer in program["buffers"]:
                self.assertTrue(-1 <= buffer["first"] <= buffer["last"] < n["steps"])


class Formulas(unittest.TestCase):
    def check_bench(self, model, inputs, sizes, options=()):
        data = data_of(model, *options)
        bench = json.loads(subprocess.run(
            [TFMC, "bench", model, "--random-weights=1", "--json", "--iterations=1", "--warmup=0", "--threads=1",
             "-march=x86-64-v3", *[f"--input={one}" for one in inputs], *options], capture_output=True, text=True, check=True).stdout)
        program, formulas = data["programs"][0], data["formulas"]
        at = lambda number: value_of(formulas[number], sizes)
        self.assertEqual(at(program["flop"]), bench["flop"])
        self.assertEqual(sum(step["weight_bytes"] for step in program["steps"]), bench["weight_bytes"])
        self.assertEqual(sum(at(step["flop"]) for step in program["steps"] if step["whole"]), bench["int8_flop"])
        seconds = 0
        for step in program["steps"]:
            rate = bench["machine_int8_flop_per_second" if step["whole"] else "machine_flop_per_second"]
            seconds += max(at(step["flop"]) / rate, step["weight_bytes"] / bench["machine_bytes_per_second"])
        self.assertAlmostEqual(seconds, bench["roofline_seconds"], delta=1e-8)

    def test_of_an_encoder_are_those_of_bench(self):
        self.check_bench(MINILM, ["input_ids=2x17", "attention_mask=2x17"], {"batch": 2, "time": 17}, SMALL["MINILM"])

    def test_of_int8_are_those_of_bench(self):
        self.check_bench(MINILM, ["input_ids=1x9", "attention_mask=1x9"], {"batch": 1, "time": 9},
                         [*SMALL["MINILM"], "--quantize=int8"])

    def test_of_causal_attention_are_those_of_bench(self):
        self.check_bench(ROOT / "models/gpt2.tfm", ["input_ids=1x33"], {"batch": 1, "time": 33},
                         ["-D", "depth=1", "-D", "vocab=100"])

    def test_of_floors_keep_their_brackets(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "floors.tfm")
            model.write_text("model M { c = Conv1d(4, 6, 3, stride = 2, padding = 1) "
                             "forward(x: f32[batch, 4, time]) { return y = c(x) } }")
            data = data_of(model)
        self.assertTrue(any("//2" in formula for formula in data["formulas"]))
        for formula in data["formulas"]:
            value_of(formula, {"batch": 3, "time": 7})

    def test_of_workspace_are_those_of_a_context(self):
        data = data_of(MINILM, *SMALL["MINILM"], "--threads=1")
        program = data["programs"][0]
        sizes = {size["name"]: size for size in program["sizes"]}
        self.assertEqual(sizes["time"]["limit"], 512)
        self.assertEqual(sizes["time"]["stops"], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
        combinations = 1
        for size in program["sizes"]:
            combinations *= len(size["stops"])
        for bytes_of in program["workspace"].values():
            self.assertEqual(len(bytes_of), combinations)


class Fusions(unittest.TestCase):
    def test_are_those_of_the_report(self):
        data = data_of(MINILM, *SMALL["MINILM"])
        report = subprocess.run([TFMC, "dump", MINILM, "--stage=fused", "--report", *SMALL["MINILM"]], capture_output=True,
                                text=True, check=True).stdout
        for fusion in data["fusions"]:
            self.assertIn(f":{fusion['line']}", report)
            self.assertIn(fusion["reason"], report)

    def test_that_were_refused_are_there(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "refused.tfm")
            model.write_text(REFUSED)
            refused = [fusion for fusion in data_of(model)["fusions"] if not fusion["done"]]
        self.assertEqual([(f["fusion"], f["line"]) for f in refused if f["fusion"] == "attention"], [("attention", 3)])

    def test_operations_say_what_they_were_made_of(self):
        program = data_of(MINILM, *SMALL["MINILM"])["programs"][0]
        names = lambda op: [program["primitives"][n]["op"] for n in op["fused_from"]]
        attentions = [op for op in program["ops"] if op["op"] == "attention"]
        self.assertEqual(len(attentions), 2)
        for op in attentions:
            self.assertGreaterEqual(names(op).count("matmul"), 2)
            self.assertIn("softmax", names(op))
        qkv = [op for op in program["ops"] if op["op"] == "linear" and names(op).count("linear") == 3]
        self.assertEqual(len(qkv), 2)
        whole = sorted(n for op in program["ops"] for n in op["fused_from"] if program["primitives"][n]["op"] == "linear")
        self.assertEqual(whole, [n for n, p in enumerate(program["primitives"]) if p["op"] == "linear"])

    def test_changes_of_passes_name_the_operations_that_went_and_came(self):
        data = data_of(MINILM, *SMALL["MINILM"])
        program, passes = data["programs"][0], {each["name"]: each for each in data["passes"] if each["program"] == 0}
        [attention] = passes["fuse-attention"]["groups"]
        self.assertEqual(attention["times"], 2)
        self.assertEqual([program["ops"][n]["op"] for n in attention["came"] if program["ops"][n]["op"] == "attention"],
                         ["attention"] * 2)
        went = [program["primitives"][n]["op"] for n in attention["went"]]
        self.assertEqual((went.count("softmax"), went.count("matmul")), (2, 4))
        for each in data["passes"]:
            for group in each["groups"]:
                texts = [text.split()[0] for text in group["after"]]
                self.assertTrue(all(data["programs"][each["program"]]["ops"][n]["op"] in texts for n in group["came"]), each["name"])


STACK = """layer Block(d) {
  norm = LayerNorm(d)
  up   = Linear(d, 2 * d)
  down = Linear(2 * d, d)
  forward(x) = x + down(gelu(up(norm(x))))
}
layer Other(d) {
  only = Linear(d, d)
  forward(x) = x + only(x)
}
model Stack(d = 16, depth = 12) {
  first  = Other(d)
  layers = depth * Block(d)
  last   = Other(d)
  forward(x: f32[batch, time, d]) { return y = last(layers(first(x))) }
}
"""


class Code(unittest.TestCase):
    def test_tiles_have_a_loop_that_multiplies_and_adds(self):
        tiles = [kernel for kernel in data_of(MINILM, *SMALL["MINILM"])["kernels"] if kernel["family"] == "tile"]
        self.assertTrue(tiles)
        for kernel in tiles:
            for code in kernel["code"].values():
                best = max((loop for loop in code["loops"] if loop["inner"]), key=lambda loop: loop["fma"])
                rows, lanes = map(int, re.match(r"tile (\d+)x(\d+)", kernel["spec"]).groups())
                self.assertEqual(best["fma"] % (rows * lanes // 8), 0, kernel["spec"])
                self.assertGreater(min(best["fma"], best["loads"], best["broadcasts"]), 0, kernel["spec"])


class Comparison(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compare(self, text, *options):
        """Of STACK with another text, or with other options."""
        one, other = self.folder / "one.tfm", self.folder / "other.tfm"
        one.write_text(STACK)
        other.write_text(text)
        return data_of(one, "--compare", other, *(f"--compare-with={option}" for option in options))

    def groups(self, text, *options):
        return [(group["kind"], group["module"], group["times"])
                for group in self.compare(text, *options)["compare"]["groups"]]

    def test_of_a_model_with_itself_finds_nothing(self):
        compared = self.compare(STACK)["compare"]
        self.assertEqual((compared["groups"], compared["of_steps"]), ([], True))

    def test_of_another_activation_in_all_layers_is_one_group(self):
        data = self.compare(STACK.replace("gelu", "relu"))
        [group] = data["compare"]["groups"]
        self.assertEqual((group["kind"], group["module"], group["times"]), ("changed", "layers.*", 12))
        self.assertEqual([data["modules"][m]["path"] for m in group["modules"]], [f"layers.{i}" for i in range(12)])
        self.assertTrue(all(text.startswith("relu") or "max" in text or "0" in text for text in group["after"]))

    def test_of_more_and_fewer_layers_is_one_group(self):
        self.assertEqual(self.groups(STACK, "-D depth=13"), [("added", "layers.*", 1)])
        self.assertEqual(self.groups(STACK, "-D", "depth=14"), [("added", "layers.*", 2)])
        self.assertEqual(self.groups(STACK, "-Ddepth=9"), [("removed", "layers.*", 3)])

    def test_of_both_at_once_is_two(self):
        self.assertEqual(sorted(self.groups(STACK.replace("gelu", "relu"), "-D depth=13")),
                         [("added", "layers.*", 1), ("changed", "layers.*", 12)])

    def test_of_a_layer_among_others_finds_that_one(self):
        mixed = ("model Mixed { layers = [Block(16), Block(16), %sOther(16), Block(16)] "
                 "forward(x: f32[n, 16]) { return y = layers(x) } }")
        blocks = STACK[:STACK.index("model")]
        one, other = self.folder / "one.tfm", self.folder / "other.tfm"
        one.write_text(blocks + mixed % "")
        other.write_text(blocks + mixed % "Other(16), ")
        groups = data_of(one, "--compare", other)["compare"]["groups"]
        self.assertEqual([(g["kind"], g["times"], g["before"]) for g in groups], [("added", 1, [])])

    def test_of_a_member_with_another_name_says_so(self):
        renamed = STACK.replace("  up   =", "  fc1  =").replace("(up(", "(fc1(")
        [group] = self.compare(renamed)["compare"]["groups"]
        self.assertEqual((group["before"], group["after"], group["times"]), (["module up"], ["module fc1"], 12))

    def test_of_8_bits_is_of_steps_and_says_what_it_saves(self):
        compared = self.compare(STACK, "--quantize=int8")["compare"]
        self.assertTrue(compared["of_steps"])
        [up] = [group for group in compared["groups"] if group["module"] == "layers.*.up"]
        self.assertEqual((up["kind"], up["times"]), ("changed", 12))
        self.assertIn("linear 16 to 32 in f32", up["before"])
        self.assertIn("linear 16 to 32 in int8", up["after"])
        self.assertLess(up["weight_bytes"][1], up["weight_bytes"][0])

    def test_groups_name_the_operations_of_this_model(self):
        data = self.compare(STACK.replace("gelu", "relu"))
        [group] = data["compare"]["groups"]
        ops = [data["programs"][0]["primitives"][n] for n in group["ops"]]
        self.assertEqual({op["module"] for op in ops}, set(group["modules"]))
        self.assertEqual(len(ops), 12 * len(group["before"]))
        self.assertTrue(all(any(text.startswith(op["op"]) for text in group["before"]) for op in ops))
        compared = self.compare(STACK, "--quantize=int8")
        for group in compared["compare"]["groups"]:
            self.assertEqual(bool(group["ops"]), bool(group["before"]))
            self.assertLessEqual({compared["programs"][0]["steps"][n]["module"] for n in group["ops"]}, set(group["modules"]))

    def test_gradients_have_groups_of_their_own(self):
        compared = data_of(DATES, "-D", "layers=2", "--compare", DATES, "--compare-with=-D layers=3")["compare"]
        self.assertTrue(compared["groups"])
        kinds = {(group["kind"], group["module"]) for group in compared["gradients"]}
        self.assertTrue({module for _, module in kinds if "*" in module}, kinds)
        self.assertEqual(data_of(DATES, "--compare", DATES)["compare"]["gradients"], [])

    def test_kernels_that_one_has_alone_are_named(self):
        compared = self.compare(STACK, "--quantize=int8")
        kernels = compared["compare"]["kernels"]
        self.assertTrue(kernels["here"] and kernels["there"])
        self.assertEqual(kernels["both"] + len(kernels["here"]), len(compared["kernels"]))
        self.assertTrue(any("int8" in text or "s8" in text or "byte" in text for text in kernels["there"]), kernels["there"])
        same = self.compare(STACK, "-D depth=13")["compare"]["kernels"]
        self.assertEqual((same["here"], same["there"]), ([], []))

    def test_totals_of_the_other_are_those_of_its_own_page(self):
        data = self.compare(STACK, "-D depth=3")
        own = data_of(self.folder / "other.tfm", "-D", "depth=3")
        sizes = {"batch": 3, "time": 7}
        other, program = data["compare"]["programs"][0], own["programs"][0]
        self.assertEqual(value_of(data["formulas"][other["flop"]], sizes), value_of(own["formulas"][program["flop"]], sizes))
        self.assertEqual([value_of(data["formulas"][step["flop"]], sizes) for step in other["steps"]],
                         [value_of(own["formulas"][step["flop"]], sizes) for step in program["steps"]])
        self.assertEqual(other["workspace"], program["workspace"])

    def test_refuses_what_another_model_cannot_have(self):
        for options, says in ((["--compare", MINILM, "--compare-with=--threads=2"], "no --threads of its own"),
                              (["--compare", MINILM, "--compare-with=more.tfm"], "takes"),
                              (["--compare-with=-O0"], "no --compare")):
            done = subprocess.run([TFMC, "explore", MINILM, *options, "--format=json"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""), options)
            self.assertIn(says.split()[0], done.stderr)
        explore(MINILM, "--compare", MINILM, "--compare-with=-D dpth=2", "-o", self.folder / "page.html", code=1)
        self.assertFalse((self.folder / "page.html").exists())


class Maps(unittest.TestCase):
    def test_of_many_layers_of_two_kinds_and_of_many_outputs_are_small(self):
        with tempfile.TemporaryDirectory() as folder:
            two, many = pathlib.Path(folder, "two.tfm"), pathlib.Path(folder, "many.tfm")
            two.write_text(STACK[:STACK.index("model")] + TWO_KINDS)
            many.write_text("model Many { forward(x: f32[batch, 4]) { return " +
                            ", ".join(f"y{i} = x + {i}" for i in range(1000)) + " } }\n")
            for file in (two, many):
                for data, _, level in self.levels(file):
                    self.assertLessEqual(len(level["boxes"]), 60)
                    self.assertLess(max(level.get("w", 0), level.get("h", 0)), 2000)
                if shutil.which("dot"):
                    picture = subprocess.run([TFMC, "graph", file, "--depth=2", "--format=svg"], capture_output=True, text=True, check=True)
                    self.assertLess(max(map(int, re.findall(r'<svg width="(\d+)pt" height="(\d+)pt"', picture.stdout)[0])), 2000)

    def levels(self, *args):
        data = data_of(*args)
        for map_ in data["maps"]:
            items = data["programs"][map_["program"]][{"fused": "ops", "primitive": "primitives", "plan": "steps"}[map_["level"]]]
            for level in map_["levels"]:
                for line in level["lines"]:
                    self.assertLess(max(line["from"], line["to"]), len(level["boxes"]))
                self.assertTrue(all(box.get("op", 0) < len(items) for box in level["boxes"]))
                yield data, map_, level

    def test_have_a_picture_that_can_be_read_of_each_inside(self):
        if not shutil.which("dot"):
            self.skipTest("no dot")
        with tempfile.TemporaryDirectory() as folder:
            many = pathlib.Path(folder, "many.tfm")
            many.write_text("model Many { forward(x: f32[batch, 4]) { return " +
                            ", ".join(f"y{i} = x + {i}" for i in range(1000)) + " } }\n")
            for args in ([MINILM, *SMALL["MINILM"]], [DATES], [ROOT / "models/t5.tfm", "-D", "depth=2", "-D", "decoder_depth=14"],
                         [many]):
                for data, map_, level in self.levels(*args):
                    if level["boxes"]:
                        self.assertLess(max(level["w"], level["h"]), 2000, (args, map_["level"]))
                        self.assertTrue(all("x" in box for box in level["boxes"]))

    def test_draw_equal_layers_once(self):
        for data, map_, level in self.levels(MINILM):
            repeated = [box for box in level["boxes"] if box["kind"] == "module" and box["times"] == 6]
            if repeated:
                return self.assertEqual(repeated[0]["label"], "0 ... 5")
        self.fail("six layers are not one box")

    def test_without_dot_are_lists_and_a_note_says_so(self):
        done = subprocess.run([TFMC, "explore", MINILM, *SMALL["MINILM"], "-march=x86-64-v3", "--format=json"],
                              capture_output=True, text=True, check=True, env={**os.environ, "PATH": "/nonexistent"})
        data = json.loads(done.stdout)
        self.assertIn("dot", data["notes"][0])
        self.assertTrue(all("w" not in level for map_ in data["maps"] for level in map_["levels"]))


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_is_the_same_twice_and_wherever_the_model_lies(self):
        first, second = self.folder / "1.html", self.folder / "2.html"
        other = self.folder / "minilm.tfm"
        other.write_bytes(MINILM.read_bytes())
        explore(MINILM, *SMALL["MINILM"], "-o", first)
        explore(other, *SMALL["MINILM"], "-o", second)
        self.assertEqual(first.read_bytes(), second.read_bytes())
        self.assertNotIn(str(ROOT).encode(), first.read_bytes())

    def test_has_the_name_of_the_model_here(self):
        subprocess.run([TFMC, "explore", MINILM, *SMALL["MINILM"]], cwd=self.folder, check=True)
        self.assertEqual(os.listdir(self.folder), ["minilm.html"])

    def test_of_a_model_with_errors_is_none(self):
        model = self.folder / "bad.tfm"
        model.write_text("model M { forward(x: f32[batch, 4]) { return y = z } }")
        done = explore(model, "-o", self.folder / "bad.html", code=1)
        self.assertIn("z", done.stderr)
        self.assertFalse((self.folder / "bad.html").exists())

    def test_asks_for_nothing_and_allows_its_own_script_alone(self):
        page = self.folder / "page.html"
        explore(MINILM, *SMALL["MINILM"], "-o", page)
        text = page.read_text()
        policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
        self.assertTrue(policy.startswith("default-src 'none'; script-src 'sha256-"))
        for name, element in (("script-src", r"<script>(.*?)</script>"), ("style-src", r"<style>(.*?)</style>")):
            inner = re.search(element, text, re.S)[1]
            digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
            self.assertIn(f"{name} 'sha256-{digest}'", policy)
        outside = re.sub(r"<script.*?</script>", "", text, flags=re.S)
        self.assertNotRegex(outside, r"https?:|src=|<link|@import|url\(")

    def test_of_hostile_names_has_them_as_text_alone(self):
        (self.folder / "a<b.tfm").write_text("layer Unused(n) { forward(x) = x }\n")
        model = self.folder / "hostile.tfm"
        model.write_text(HOSTILE)
        done = subprocess.run([TFMC, "check", model], capture_output=True, text=True)
        if done.returncode:
            self.fail(done.stderr)
        page = self.folder / "hostile.html"
        explore(model, "-o", page)
        elements = []
        parser = html.parser.HTMLParser()
        parser.handle_starttag = lambda tag, attributes: elements.append(tag)
        parser.feed(page.read_text())
        self.assertEqual(elements.count("script"), 2)
        self.assertFalse({"img", "svg", "b"} & set(elements))
        inside = re.search(r'id="tfm-data">(.*?)</script>', page.read_text(), re.S)[1]
        self.assertNotIn("<", inside)
        self.assertIn("</script>", json.dumps(json.loads(inside)))

    def test_sources_write_text_as_text(self):
        for file in sorted((ROOT / "compiler/explore/page").glob("*.js")):
            code = re.sub(r"//[^\n]*", "", file.read_text())
            for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "javascript:",
                         "setAttribute('style'", "setAttribute('on", ".onclick", "fetch(", "XMLHttpRequest", "import("):
                self.assertNotIn(word, code, file.name)
            self.assertNotRegex(code, r"https?://(?!www\.w3\.org/2000/svg)", file.name)
            self.assertLessEqual(max(map(len, file.read_text().split("\n"))), 120, file.name)


class Refusals(unittest.TestCase):
    def test_of_sizes_that_no_input_has(self):
        for given, says in (("x=1x2", "an input of the model"), ("input_ids=1", "2 sizes"), ("input_ids=1x0", "2 sizes")):
            done = explore(MINILM, f"--input={given}", "--format=json", code=2)
            self.assertIn(says, done.stderr)

    def test_of_what_it_does_not_do(self):
        for option in ("--depth=2", "--iterations=3", "--warmup=1", "--random-weights=7"):
            done = subprocess.run([TFMC, "explore", MINILM, option], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, option)


class States(unittest.TestCase):
    def test_linear_attention_counts_what_it_adds_to_its_state_and_reads_from_it(self):
        sizes = {"batch": 2, "heads": 3, "time": 5, **{f"t{n}": n for n in (1, 63, 64, 65, 130)}}
        for name, products in (("prim-delta", 3), ("prim-linear", 2)):
            data = data_of(ROOT / f"tests/goldens/state/{name}/model.tfm", "--threads=1")
            program = data["programs"][0]
            inputs = {each["name"]: [value_of(dim, sizes) for dim in re.search(r"\[(.*)\]", each["shape"])[1].split(", ")]
                      for each in program["inputs"]}
            flops = [value_of(data["formulas"][step["flop"]], sizes) for step in program["steps"] if step["kind"] == "state"]
            queries = [shape for name, shape in inputs.items() if re.fullmatch(r"q\d*", name)]
            values = [shape for name, shape in inputs.items() if re.fullmatch(r"v\d*", name)]
            if name == "prim-delta":
                queries, values = 4 * queries, 4 * values
            self.assertEqual(flops, [2 * products * q[-1] * math.prod(v) for q, v in zip(queries, values)])
            self.assertEqual(value_of(data["formulas"][program["flop"]], sizes), sum(flops))


class Measured(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "stack.tfm")
        self.file.write_text(STACK)

    def test_each_step_of_the_whole_has_a_time_and_its_runs_have_sizes(self):
        data = data_of(self.file, "-D", "depth=2", *MEASURED, "--input=x=3x8x16")
        steps = data["programs"][0]["steps"]
        self.assertTrue(all(step["measured"] >= 0 for step in steps))
        self.assertGreater(sum(step["measured"] for step in steps), 0)
        self.assertTrue(data["machine"]["measured"])
        self.assertIn(" --profile", data["command"])
        stops = [size["stops"] for size in data["programs"][0]["sizes"]]
        self.assertEqual(data["runs"][0]["sizes"], [3, 8])
        self.assertGreater(len(data["runs"]), 4)
        for run in data["runs"]:
            self.assertTrue(all(value in known for value, known in zip(run["sizes"], stops)), run)
            self.assertEqual(run["runs"], 2)
            self.assertLessEqual(0, run["least_seconds"])
            self.assertLessEqual(run["least_seconds"], run["median_seconds"])

    def test_all_else_is_as_without_it(self):
        plain = data_of(self.file, "-D", "depth=2", "--threads=1", "-march=native")
        measured = data_of(self.file, "-D", "depth=2", *MEASURED)
        for step in measured["programs"][0]["steps"]:
            del step["measured"]
        for name in ("command", "machine"):
            plain.pop(name), measured.pop(name)
        measured.pop("runs")
        self.assertEqual(plain, measured)

    def test_programs_besides_the_whole_are_not_measured(self):
        data = data_of(DATES, *MEASURED)
        self.assertTrue(all("measured" in step for step in data["programs"][0]["steps"]))
        self.assertFalse(any("measured" in step for each in data["programs"][1:] for step in each["steps"]))

    def test_what_a_run_refuses_is_refused(self):
        for option, code in (("-march=nothing", 2), ("--weights=none.safetensors", None)):
            done = subprocess.run([TFMC, "explore", self.file, *MEASURED[:-1], option, "--format=json"], capture_output=True, text=True)
            self.assertTrue(done.returncode == code if code else done.returncode > 0, done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    sys.exit(tally.run())
