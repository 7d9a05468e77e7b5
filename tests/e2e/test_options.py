#!/usr/bin/env python3
"""Options that a command would not read beside others: each is refused by its name. usage: test_options.py TFMC

Every row of compiler/cli/option_rules.def for every command that it is for: refused where it says so, not refused where it
does not; and what depends on more than the command line.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

import test_cli
from test_cli import WRITER, Case, save

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTHING = "it would change nothing"
TRAINED = """model T(n = 4) {
  up = Linear(n, 3)
  forward(x: f32[batch, n]) { return y = up(x) }
  fn objective(x: f32[batch, n], labels: i32[batch]) { return loss = cross_entropy(forward(x), labels) }
  train objective { lr = 1e-2 }
}
"""
VALUES = dict(define="n=3", model="M", weights="w.safetensors", weights_prefix="q.", random_weights="2", output="out", march="x86-64-v3",
              optimize="0", golden="g.safetensors", atol="1", rtol="1", generate_num_beams="2", generate_num_return_sequences="2",
              generate_pad_token_id="1", generate_guesses="2", generate_presence_penalty="1", generate_frequency_penalty="1", set="lr=1",
              gradient_values="none", cc="none", quantize="int8", only="cse", disable="cse", stop_after="cse", print_after="all", dump_dir="d",
              require_fusion="attention", names="stable", adapter="a", task="hidden", ignore="x", family="f.tfm", part_tokens="8", pool="2",
              log_every="2", keep="2", early_stopping="2", new="up.*", window="2", batch_tokens="9", batch_items="2", data="d.safetensors",
              compare_with="f32", emit="lib", engine="reference")


def table(name):
    return (ROOT / "compiler/cli" / name).read_text()


def spellings():
    """Of each row of options.def: how it is written on a command line, without its value."""
    found = {}
    for enum, letter, name in re.findall(r"^OPTION\((\w+), ('.'|0), (?:\"([\w-]+)\"|NULL),", table("options.def"), re.M):
        found[enum] = f"-{letter[1]}" if not name else f"-{name}=" if letter == "'-'" else f"--{name}"
    options = (ROOT / "runtime/include/tfm/abi/generate_options.def").read_text()
    for name, flag in re.findall(r'GENERATE_OPTION\((\w+),[^"]*?"([\w-]+)",', options):
        found[f"GENERATE_{name}"] = f"--{flag}"
    return found


def verbs_of(text):
    sets = dict(V_TRIED="run generate verify bench profile check", V_EXECUTE="run generate verify bench profile", V_TRAINING="train evaluate")
    return [verb for one in text.split(" | ") for verb in sets.get(one, one.removeprefix("V_").lower()).split()]


def rules():
    """(verb, option, IF or UNLESS, other, words, the word that counts where the other is not given, why)"""
    text = re.sub(r'"\s*\n\s*"', "", re.sub(r"/\*.*?\*/", "", table("option_rules.def"), flags=re.S))
    text = re.sub(r",\n +", ", ", text)
    stages = dict(re.findall(r'#define (BEFORE_PASSES|NO_PLAN) "([^"]+)"', text))
    for name, words in stages.items():
        text = text.replace(f", {name},", f', "{words}",')
    text = re.sub(r"^IN_STAGE\((\w+), (\"[^\"]+\"), (.*)\)$", r'RULE(V_DUMP | V_GRAPH, \1, IF, STAGE, \2, "graph", \3)', text, flags=re.M)
    rows = re.findall(r'^RULE\(([\w |]+), (\w+), (IF|UNLESS), (\w+), "([^"]*)", "([^"]*)", "([^"]+)"\)$', text, re.M)
    assert len(rows) == len(re.findall(r"^RULE\(", text, re.M)) > 60
    for verbs, option, kind, other, words, otherwise, why in rows:
        for verb in verbs_of(verbs):
            yield verb, option, kind, other, words, otherwise, why


class Rules(Case):
    SPELLED = spellings()

    def line(self, option, value=None):
        spelled, value = self.SPELLED[option], value or VALUES.get(option.lower())
        if value is None:
            return [spelled]
        return [spelled + value] if spelled.endswith("=") or len(spelled) == 2 else [spelled, value]

    def taken(self, verb, option, seen={}):
        """Of a set of commands some may not have the option."""
        if (verb, option) not in seen:
            seen[verb, option] = "has no such option" not in self.tfmc(verb, "none.tfm", *self.line(option), code=None).err
        return seen[verb, option]

    def tfmc(self, *args, code=0, **named):
        if code is not None:
            return super().tfmc(*args, code=code, **named)
        done = subprocess.run([test_cli.TFMC, *args], capture_output=True, cwd=self.folder.name, timeout=60)
        done.err = done.stderr.decode()
        return done

    def test_every_rule(self):
        """The rules are asked before any file is: the model is not there."""
        seen = set()
        for verb, option, kind, other, words, otherwise, why in rules():
            if not self.taken(verb, option):
                continue
            known = words.split("|")[0] if words else None
            with_other = [*self.line(option), *self.line(other, known)]
            without = self.line(option)
            refused, free = (with_other, without) if kind == "IF" else (without, with_other)
            if words and kind == "IF" and otherwise in words.split("|"):
                free = [*self.line(option), *self.line(other, "llvm" if other == "STAGE" and "ast" not in option else None)]
            with self.subTest(verb=verb, option=option, other=other):
                said = self.tfmc(verb, "none.tfm", *refused, code=2).err
                shown = self.line(option)[0].split("=")[0].rstrip("023")
                self.assertRegex(said, rf"{re.escape(shown)}: {NOTHING}: ")
                self.assertIn(f"{NOTHING}: {why}", said)
                self.assertNotIn(f"{NOTHING}: {why}", self.tfmc(verb, "none.tfm", *free, code=None).err)
            seen.add(option)
        self.assertGreater(len(seen), 40)


class Others(Case):
    def test_seeds_of_nothing(self):
        for verb in "run", "verify", "bench", "profile":
            self.tfmc(verb, "model.tfm", "--weights=w.safetensors", "--inputs=in.safetensors", "--seed=1", code=2, says=f"--seed: {NOTHING}")
        self.tfmc("run", "model.tfm", "--weights=w.safetensors", "--input=x=2x3", "--input=ids=2", "--seed=1")

    def test_generation(self):
        self.path("w.tfm").write_text(WRITER)
        save(self.path("src.safetensors"), {"src": ("I32", [1, 3], [3, 4, 5])})
        args = ["generate", "w.tfm", "--random-weights=1", "--inputs=src.safetensors", "--max-new-tokens=2"]
        self.tfmc(*args, "--seed=1", code=2, says=f"--seed: {NOTHING}")
        self.tfmc(*args, "--seed=1", "--do-sample")
        self.tfmc("generate", "w.tfm", "--random-weights=1", "--input=src=1x3", "--max-new-tokens=2", "--seed=1")
        self.tfmc(*args, "--guesses=2", "--num-beams=2", code=2, says=f"--guesses: {NOTHING}")
        self.tfmc(*args, "--guesses=2")

    def test_settings_of_a_config(self):
        """Each is an option, or known to change nothing, or refused: numbers that decide tokens, names that nobody knows."""
        self.path("w.tfm").write_text(WRITER)
        save(self.path("src.safetensors"), {"src": ("I32", [1, 3], [3, 4, 5])})
        args = ["generate", "w.tfm", "--random-weights=1", "--inputs=src.safetensors", "--max-new-tokens=2", "--generation-config=c.json", "-q"]
        self.path("c.json").write_text("{}")
        whole = self.tfmc(*args).out
        keys = (ROOT / "runtime/include/tfm/abi/generation_keys.def").read_text()
        samples = {"bool": True, "int": 2, "float": 0.5, "str": "a", "dict": {}}
        harmless = {key: samples[kinds.split("|")[0]] for key, kinds in re.findall(r'^HARMLESS\("(\w+)", "(\S+)"\)', keys, re.M)}
        neutral = re.findall(r'^NEUTRAL\("(\w+)",', keys, re.M)
        self.assertGreater(min(len(harmless), len(neutral)), 15)
        self.path("c.json").write_text(json.dumps(harmless | {"guidance_scale": 1, "typical_p": 1.0, "cache_implementation": "static", "top_h": None}))
        self.assertEqual(self.tfmc(*args).out, whole)
        for key in neutral:
            with self.subTest(key=key):
                self.path("c.json").write_text(json.dumps({key: 0.37}))
                self.tfmc(*args, code=1, says=f'c.json: error: "{key}": it is no option of generation here')
        for wrong, says in (({"temprature": 2}, 'did you mean "temperature"'), ({"use_cache": "no"}, '"use_cache": it is a string'),
                            ({"eos_token_id": [2, "3"]}, "eos_token_id must be"), ({"suppress_tokens": [1.5]}, "suppress_tokens must be"),
                            ({"do_sample": "false"}, "do_sample must be"), ({"bad_words_ids": [[True]]}, "bad_words_ids must be"),
                            ({"eos_token_id": True}, "eos_token_id must be"), ({"temperature": "0.5"}, "temperature must be")):
            with self.subTest(wrong=wrong):
                self.path("c.json").write_text(json.dumps(wrong))
                self.tfmc(*args, code=1, says=says)

    def test_files_that_are_made(self):
        self.tfmc("compile", "model.tfm", "--weights=w.safetensors", "-o", "m.tfmm", "--embed-weights", code=2, says="--embed-weights")
        self.tfmc("compile", "model.tfm", "--weights=w.safetensors", "-o", "m.tfmm", "--cc=none", code=2, says="--cc")
        self.tfmc("import", "--list", "FOLDER", code=2, says="'FOLDER'")
        self.assertEqual(self.files(), ["in.safetensors", "model.tfm", "w.safetensors"])

    def test_libraries(self):
        self.tfmc("compile", "model.tfm", "--weights=w.safetensors", "-o", "libm.so", "-q")
        for option in "--print-after=all", "--dump-dir=d", "--time-passes":
            self.tfmc("pack", "libm.so", "--weights=w.safetensors", option, code=2, says=["fixed when the library was compiled", option.split("=")[0]])
        self.tfmc("run", "libm.so", "--inputs=in.safetensors", "--reject-nonfinite", code=2, says=f"--reject-nonfinite: {NOTHING}")

    def test_passes_that_are_left_out(self):
        """Of what is left of a graph there is a plan, or a message that names the options: never an internal error."""
        self.path("soft.tfm").write_text("model M {\n  norm = LayerNorm(8)\n  forward(ids: i32[n, 8], x: f32[n, 8]) {\n"
                                         "    return y = softmax(norm(x)) -> gather(ids, -1)\n  }\n}\n")
        names = set(re.findall(r'^PASS\(\w+, "([\w-]+)"', (ROOT / "compiler/passes/passes.def").read_text(), re.M))
        self.assertGreater(len(names), 20)
        refused = 0
        for name in sorted(names):
            for option in "--only", "--disable", "--stop-after":
                with self.subTest(option=option, name=name):
                    done = subprocess.run([test_cli.TFMC, "dump", "soft.tfm", "--stage=plan", f"{option}={name}"], capture_output=True,
                                          cwd=self.folder.name, text=True, timeout=60)
                    self.assertIn(done.returncode, (0, 2), done.stderr)
                    self.assertEqual("[E0307]" in done.stderr, done.returncode == 2, done.stderr)
                    refused += done.returncode == 2
        self.assertGreater(refused, 20)


if __name__ == "__main__":
    test_cli.TFMC = os.path.abspath(sys.argv.pop(1))
    unittest.main()
