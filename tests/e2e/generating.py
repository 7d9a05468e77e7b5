"""What tests of tfmc generate share: models, a case that runs the command on them, and the same cases without the
incremental form. TFMC is the program that the command line names first."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
import numpy as np
from safetensors.numpy import save_file

import tally

TFMC = os.path.abspath(sys.argv[1])

LANGUAGE = """
model Language(vocab = 20, d = 16, end = 2) {
  embed = Embedding(vocab, d)
  encoder = Encoder(d, 2, 2, 32)
  head = Linear(d, vocab)
  forward(ids: i32[BATCH, TIME]) {
    hidden = embed(ids) -> encoder(is_causal = true)
    return logits = head(hidden), hidden
  }
  generate ids from logits { bos = 3  eos = end  pad = 0  max_length = 12 }
}
"""

TRANSLATOR = """
model Translator(vocab = 20, d = 16) {
  embed = Embedding(vocab, d)
  transformer = Transformer(d, 2, 1, 1, 32)
  head = Linear(d, vocab)
  forward(src: i32[batch, SOURCE], scale: f32[SCALE], tgt: i32[batch, time]) {
    factors = FACTORS
    memory = embed(src) * mean(factors, keepdim = true)
    logits = transformer(memory, embed(tgt), tgt_is_causal = true) -> head
    return logits
  }
  generate tgt from logits { bos = 1  eos = 2  pad = 0  max_length = 12 }
}
"""

MASKED = """
model Masked(vocab = 20, d = 16) {
  embed = Embedding(vocab, d)
  table = Embedding(6, d)
  decoder = Decoder(d, 2, 1, 32)
  head = Linear(d, vocab)
  forward(src: i32[batch, source], mask: i32[batch, source], tgt: i32[batch, time]) {
    memory = embed(src) + table.weight[positions(src, 1)]
    hidden, own, weights = decoder(embed(tgt), memory, tgt_is_causal = true, memory_key_padding_mask = mask == 0)
    return logits = head(hidden), weights
  }
  generate tgt from logits { bos = 1  pad = 0  max_length = 8 }
}
"""

SILENT = "model Silent() { forward(x: f32[batch]) { return y = x } }"


def language(batch="batch", time="time"):
    return LANGUAGE.replace("BATCH", batch).replace("TIME", time)


def translator(source, scale, factors):
    return TRANSLATOR.replace("SOURCE", source).replace("SCALE", scale).replace("FACTORS", factors)


class Case(unittest.TestCase):
    PATH = ()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def model(self):
        return self.path("m.tfm")

    def tfmc(self, source, inputs, *options, config=None):
        with open(self.path("m.tfm"), "w") as file:
            file.write(source)
        arguments = [TFMC, "generate", self.model(), "--random-weights", "7"]
        if inputs is not None:
            save_file({k: np.ascontiguousarray(v) for k, v in inputs.items()}, self.path("in.safetensors"))
            arguments += ["--inputs", self.path("in.safetensors")]
        if config is not None:
            with open(self.path("config.json"), "w") as file:
                file.write(config if isinstance(config, str) else json.dumps(config))
            arguments += ["--generation-config", self.path("config.json")]
        return subprocess.run([*arguments, *self.PATH, *options], capture_output=True, text=True, timeout=120)

    def rows(self, source, inputs, *options, config=None):
        """The rows that are printed."""
        proc = self.tfmc(source, inputs, "-q", *options, config=config)
        self.assertEqual((proc.returncode, proc.stderr), (0, ""))
        return [json.loads(line) for line in proc.stdout.splitlines()]

    def refused(self, source, inputs, *options, config=None, code=1, says=()):
        out = self.path("refused.safetensors")
        proc = self.tfmc(source, inputs, "--output", out, *options, config=config)
        self.assertEqual(proc.returncode, code, proc.stderr)
        self.assertFalse(os.path.exists(out))
        self.assertEqual(proc.stdout, "")
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, proc.stderr)


PROMPTS = np.array([[5, 6, 7], [8, 9, 4]], np.int32)


def anew(case):
    """The same tests without the incremental form."""
    return type(case.__name__ + "Anew", (case,), {"PATH": ("--recompute",)})


def main():
    del sys.argv[1]
    return tally.run(verbosity=1)
