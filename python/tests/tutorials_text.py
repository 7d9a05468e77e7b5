"""usage: tutorials_text.py FOLDER [WORD]

The code of tutorials about Transformers as it stands in their texts, through from_torch, in evaluation and in 50 steps
of training beside torch in double. FOLDER has the texts, one .txt each, whose names begin with 000 to 004; they are no
part of this project. A text is a page as it was copied: its code stands between fences, behind `>`, behind the numbers of
its lines, or without its indentation. What a page shows as a picture (three small modules of the fourth) is filled in
here; lines that were cut off (the first) are not. Dropouts that a function makes are left out (`dropout=False`), in torch
by a rate of 0. By hand, with torch; no part of run.py.
"""
import ast
import pathlib
import re
import sys
import textwrap
import unittest
import warnings

import numpy as np

import tfmc
from test_torch_tutorials import Tutorials
from torch_cases import compared, floats, ids, nn, torch

D, HEADS, LAYERS, FFN, VOCAB = 16, 4, 2, 32, 20
PROLOGUE = """
import copy, math, warnings
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
from torch.nn.parameter import Parameter
from torch.nn.init import xavier_uniform_, constant_, xavier_normal_
from typing import Optional, Tuple, Any, List
Tensor = torch.Tensor
"""


def parses(code):
    try:
        return bool(ast.parse(code).body)
    except SyntaxError:
        return False


def fenced(text):
    """Blocks between fences. What makes one no Python is put right: a docstring that lost its beginning gets one, of one
    that lost both ends the lines of shapes are left out, names that the text writes with lines below have them, and
    depths are multiples of 4; a method that stands below its class goes into it."""
    text = re.sub(r"^> ?", "", text, flags=re.MULTILINE)
    known = sorted({name for name in re.findall(r"[A-Za-z]\w*_\w+", text) if "__" not in name}, key=len, reverse=True)
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if block.count("'''") % 2:
            block = re.sub(r"^((?:def|class) [^\n]*:\n)", r"\1    '''\n", block)
        if not parses(block):
            block = re.sub(r"^ *[\w ]+: \[[^\]]*\].*\n", "", block, flags=re.MULTILINE)
        for name in () if parses(block) else known:
            block = re.sub(rf"\b{name.replace('_', '[_ ]')}\b", name, block)
        if not parses(block):
            block = re.sub(r"^ +", lambda m: " " * (4 * round(len(m[0]) / 4)), block, flags=re.MULTILINE)
        yield re.sub(r"^def forward\(self.*", lambda m: textwrap.indent(m[0], "    "), block, flags=re.MULTILINE | re.DOTALL)


def numbered(text):
    """Lines that begin with their number, of blocks whose first one may have more digits before it."""
    block = []
    for line in text.splitlines():
        first = re.match(r"(?:x|\d*?)1( ?(?:class|def|if) .*)$", line)
        after = re.match(rf"{len(block) + 1}(?!\d) ?(.*)$", line)
        if first and not (after and block):
            yield block
            block = [first[1].strip()]
        elif after and block:
            block.append(after[1].strip())
    yield block


def indented(lines):
    """A depth for each line of code that lost its own: a class, its methods, their statements, of which an `if` or a
    `for` takes one. Behind `if __name__` is an example."""
    out, depth, opened, text = [], 0, 0, False
    for line in lines:
        if line.startswith("if __name__"):
            break
        if text or opened > 0:
            out.append(" " * 4 * depth + line)
            text ^= line.count('"""') % 2 == 1
        else:
            if line.startswith("class "):
                depth = 0
            elif line.startswith("def "):
                depth = body = int("(self" in line)
                body += 1
            out.append(" " * 4 * depth + line)
            text = line.count('"""') % 2 == 1
        code = re.sub(r"#.*", "", line)
        opened += sum(code.count(c) for c in "([{") - sum(code.count(c) for c in ")]}")
        if not text and opened <= 0 and code.strip():
            depth = depth + 1 if code.rstrip().endswith(":") else body
    return "\n".join(out) + "\n"


def executed(blocks, into):
    """Runs the definitions of the blocks that parse, without classes that have no forward; the names that they made."""
    made = set()
    for block in blocks:
        for one in ast.parse(block).body if parses(block) else ():
            if isinstance(one, ast.FunctionDef) or isinstance(one, ast.ClassDef) and "def forward" in ast.unparse(one):
                exec(compile(ast.Module([one], []), "the text", "exec"), into)
                made.add(one.name)
    return made


def quiet(text):
    """With rates of 0 where functions make dropouts: what torch must compute with `dropout=False`."""
    return re.sub(r"(dropout_p(?:: float)? ?= ?)0?\.\d+", r"\g<1>0.0", text)


def read(folder, number):
    found = sorted(folder.glob(f"{number}*.txt"))
    if not found:
        raise unittest.SkipTest(f"{folder} has no {number}*.txt")
    return found[0].read_text(encoding="utf-8")


def space(**more):
    made = dict(more)
    exec(PROLOGUE, made)
    return made


def pictures(into):
    """The modules that the fourth text shows as pictures alone, in the manner of the others: attention that is made in
    forward, layers whose norm is."""
    class Attention(nn.Module):
        def forward(self, q, k, v, mask):
            scores = torch.matmul(q, k.transpose(-1, -2)) / np.sqrt(into["d_k"])
            scores.masked_fill_(mask, -1e9)
            weights = nn.Softmax(dim=-1)(scores)
            return torch.matmul(weights, v), weights

    class Feed(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Sequential(nn.Linear(D, FFN, bias=False), nn.ReLU(), nn.Linear(FFN, D, bias=False))

        def forward(self, x):
            return nn.LayerNorm(D).cuda()(self.fc(x) + x)
    into.update(ScaledDotProductAttention=Attention, PoswiseFeedForwardNet=Feed)


class First(nn.Module if nn else object):
    """The first of several results."""
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, ids, given):
        return self.module(ids, given)[0]


@unittest.skipIf(torch is None, "no torch")
class Texts(Tutorials):
    folder_of_texts = None

    def setUp(self):
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        kept = nn.Module.cuda, torch.Tensor.cuda
        nn.Module.cuda = torch.Tensor.cuda = lambda self, *args: self  # there is none here
        self.addCleanup(lambda: (setattr(nn.Module, "cuda", kept[0]), setattr(torch.Tensor, "cuda", kept[1])))

    def both(self, module, exact, calls, sizes, labels, types, but=(), **named):
        """Evaluation at each of the calls, then training on the first, of `module` as `exact` computes it."""
        exact.load_state_dict(module.state_dict())
        source = tfmc.from_torch(module, calls[0], sizes=sizes, outputs=["out"], **named)
        compared(exact, calls, sizes)
        self.trained(exact, source, calls[0], labels, types, but=but)
        print(f"{self.id().split('.')[-1]}: evaluated at {len(calls)} sizes, 50 steps trained")

    def placed(self, number):
        """Encoder and decoder on vectors, [time, batch, d], with a mask of later places and padding."""
        def build(texts):
            made = space()
            for text in texts:
                executed(fenced(text), made)
            return made
        text = read(self.folder_of_texts, number)
        spaces = [build([text]), build([quiet(text)])]
        torch.manual_seed(5)
        modules = [made["Transformer"](D, HEADS, LAYERS, LAYERS, FFN).eval() for made in spaces]
        names = {"src": {0: "source", 1: "batch"}, "tgt": {0: "time", 1: "batch"}, "tgt_mask": {0: "time", 1: "time"},
                 "src_key_padding_mask": {0: "batch", 1: "source"}, "memory_key_padding_mask": {0: "batch", 1: "source"}}

        def call(source, time, batch):
            padding = torch.zeros(batch, source, dtype=torch.bool)
            padding[0, -1] = True
            later = modules[0].generate_square_subsequent_mask(time)
            return {"src": floats(source, batch, D), "tgt": floats(time, batch, D, seed=6), "tgt_mask": later,
                    "src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        self.both(*modules, (call(7, 6, 3), call(5, 4, 2)), names, ids(6, 3, high=D), {
            "src": f"f32[source, batch, {D}]", "tgt": f"f32[time, batch, {D}]", "tgt_mask": "f32[time, time]",
            "src_key_padding_mask": "bool[batch, source]", "memory_key_padding_mask": "bool[batch, source]",
            "labels": "i32[time, batch]"}, but=("in_proj_bias",), dropout=False)

    def test_000(self):
        """Only of a copy whose lines that the page cut off were completed by hand."""
        made = executed(fenced(read(self.folder_of_texts, "000")), space())
        if not made >= {"positional_encoding", "MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoder", "Transformer"}:
            self.skipTest("the lines of the text are cut off")
        self.placed("000")

    def test_001(self):
        self.placed("001")

    def test_001_attention(self):
        """The class of the same name that the text begins with."""
        text, made = read(self.folder_of_texts, "001"), space()
        executed([block for block in fenced(text) if "self.w_q" in block], made)
        torch.manual_seed(5)
        module, exact = (made["MultiheadAttention"](D, HEADS, 0.1).eval() for _ in range(2))

        def call(batch, time, keys):
            mask = torch.ones(batch, 1, 1, keys, dtype=torch.bool)
            mask[1, :, :, -2:] = False
            return {"query": floats(batch, time, D), "key": floats(batch, keys, D, seed=6), "value": floats(batch, keys, D, seed=7),
                    "mask": mask}
        sizes = {"query": {0: "batch", 1: "time"}, "key": {0: "batch", 1: "keys"}, "value": {0: "batch", 1: "keys"},
                 "mask": {0: "batch", 3: "keys"}}
        self.both(module, exact, (call(3, 6, 5), call(2, 4, 7)), sizes, ids(3, 6, high=D), {
            "query": f"f32[batch, time, {D}]", "key": f"f32[batch, keys, {D}]", "value": f"f32[batch, keys, {D}]",
            "mask": "bool[batch, 1, 1, keys]", "labels": "i32[batch, time]"}, but=("w_k.bias",))

    def test_002(self):
        """Tokens, places, encoder and decoder. Its attention, of an earlier page, is nn.MultiheadAttention."""
        made = space(MyMultiheadAttention=nn.MultiheadAttention)
        executed(["".join(indented(block) for block in numbered(read(self.folder_of_texts, "002")))], made)

        class Whole(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.places = made["TokenEmbedding"](VOCAB, D), made["PositionalEncoding"](D)
                self.transformer = made["MyTransformer"](D, HEADS, LAYERS, LAYERS, FFN)

            def forward(self, ids, given, padding):
                later = self.transformer.generate_square_subsequent_mask(given.size(0)).to(self.tokens.embedding.weight.dtype)
                return self.transformer(self.places(self.tokens(ids)), self.places(self.tokens(given)), tgt_mask=later,
                                        src_key_padding_mask=padding, memory_key_padding_mask=padding)

        def call(source, time, batch):
            padding = torch.zeros(batch, source, dtype=torch.bool)
            padding[0, -2:] = True
            return {"ids": ids(source, batch, high=VOCAB), "given": ids(time, batch, seed=8, high=VOCAB), "padding": padding}
        torch.manual_seed(5)
        module, exact = (Whole().eval() for _ in range(2))
        sizes = {"ids": {0: "source", 1: "batch"}, "given": {0: "time", 1: "batch"}, "padding": {0: "batch", 1: "source"}}
        self.both(module, exact, (call(7, 6, 3), call(5, 4, 2)), sizes, ids(6, 3, high=D), {
            "ids": "i32[source, batch]", "given": "i32[time, batch]", "padding": "bool[batch, source]",
            "labels": "i32[time, batch]"}, but=("in_proj_bias",))

    def test_003(self):
        """Ids to scores and three lists of attentions. Its places, a picture, are those of the third text; where its decoder
        gives the encoder's result once, for keys and values, it is given twice, without which torch cannot run it."""
        made = space(d_model=D, d_k=D // HEADS, d_v=D // HEADS, n_heads=HEADS, n_layers=LAYERS, src_vocab_size=VOCAB,
                     tgt_vocab_size=VOCAB)
        executed(["".join(indented(block) for block in numbered(read(self.folder_of_texts, "002")))], made)
        pictures(made)
        executed(fenced(read(self.folder_of_texts, "003")), made)
        attend = made["MultiHeadAttention"].forward
        made["MultiHeadAttention"].forward = lambda self, q, k, v, mask=None: attend(self, q, k, *((k, v) if mask is None else (v, mask)))
        torch.manual_seed(5)
        whole, other = (made["Transformer"]().eval() for _ in range(2))

        def call(source, time, batch):
            rows, given = ids(batch, source, high=VOCAB), ids(batch, time, seed=8, high=VOCAB)
            rows[0, -2:], given[1, -1:] = 0, 0
            return {"enc_inputs": rows, "dec_inputs": given}
        sizes = {"enc_inputs": {0: "batch", 1: "source"}, "dec_inputs": {0: "batch", 1: "time"}}
        compared(whole, (call(7, 6, 3), call(5, 4, 2)), sizes)
        first, exact = First(whole).eval(), First(other).eval()
        calls = [{"ids": c["enc_inputs"], "given": c["dec_inputs"]} for c in (call(7, 6, 3), call(5, 4, 2))]
        self.both(first, exact, calls, {"ids": sizes["enc_inputs"], "given": sizes["dec_inputs"]}, ids(18, high=VOCAB),
                  {"ids": "i32[batch, source]", "given": "i32[batch, time]", "labels": "i32[rows]"})

    def test_004(self):
        """Ids and masks to scores."""
        made = space(device=torch.device("cpu"))
        executed(fenced(read(self.folder_of_texts, "004")), made)
        torch.manual_seed(5)
        module, exact = (made["Transformer"](VOCAB, D, HEADS, LAYERS, LAYERS, FFN).eval() for _ in range(2))

        def call(source, time, batch):
            src, trg = ids(batch, source, high=VOCAB), ids(batch, time, seed=8, high=VOCAB)
            src[0, -2:], trg[1, -1:] = 0, 0
            return {"src": src, "trg": trg, "src_mask": (src != 0)[:, None, None], "trg_mask": (trg != 0)[:, None, None]}
        sizes = {"src": {0: "batch", 1: "source"}, "trg": {0: "batch", 1: "time"}, "src_mask": {0: "batch", 3: "source"},
                 "trg_mask": {0: "batch", 3: "time"}}
        self.both(module, exact, (call(7, 6, 3), call(5, 4, 2)), sizes, ids(3, 6, high=VOCAB), {
            "src": "i32[batch, source]", "trg": "i32[batch, time]", "src_mask": "bool[batch, 1, 1, source]",
            "trg_mask": "bool[batch, 1, 1, time]", "labels": "i32[batch, time]"}, but=("w_k.bias",))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__.split("\n", maxsplit=1)[0])
    Texts.folder_of_texts = pathlib.Path(sys.argv.pop(1))
    unittest.main(defaultTest=sys.argv[1:] or [f"Texts.{name}" for name in vars(Texts) if name.startswith("test_0")])
