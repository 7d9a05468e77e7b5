"""usage: tutorials_text.py FOLDER [WORD]

The code of tutorials about Transformers as it stands in their texts, through from_torch, in evaluation, in 50 steps
of training beside torch in double, and with training=True in 200 steps of fit over a loader, beside torch in double and in
f32; then tokens are written with the weights of both, greedily, as the texts do it: the whole of what is written in each step. FOLDER has the texts, one .txt each, whose names begin with 000 to 004; they are no
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
STEPS = 200
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


class Shuffled:
    """Batches of two sizes, with the padding of the first call, again in another order in each epoch; the same each time that
    it is gone through from the beginning of a run."""
    def __init__(self, call, labels, axes, vocabulary):
        self.batches = []
        for number in range(6):
            self.batches.append(self.batch(number, {**call, "labels": labels}, axes, vocabulary))

    def batch(self, number, call, axes, vocabulary):
        random, made = torch.Generator().manual_seed(number), {}
        for name, value in call.items():
            if name == "labels":
                made[name] = torch.randint(1, vocabulary, value.shape, generator=random)
            elif value.dtype == torch.int64:
                drawn = torch.randint(1, VOCAB, value.shape, generator=random)
                made[name] = torch.where(value == 0, 0, drawn)
            elif value.dtype == torch.float32 and axes[name][-1].isdigit():
                made[name] = torch.randn(value.shape, generator=random)
            else:
                made[name] = value
        return made

    def __iter__(self):
        return iter([self.batches[i] for i in (2, 0, 5, 1, 4, 3)])


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
        """Evaluation at each of the calls, then training on the first, of `module` as `exact` computes it. `apart`: labels and
        types for fit, which needs items, where the module puts them together."""
        apart = named.pop("apart", (labels, types))
        exact.load_state_dict(module.state_dict())
        source = tfmc.from_torch(module, calls[0], sizes=sizes, outputs=["out"], **named)
        compared(exact, calls, sizes)
        self.trained(exact, source, calls[0], labels, types, but=but)
        print(f"{self.id().split('.')[-1]}: evaluated at {len(calls)} sizes, 50 steps trained")
        self.fitted(module, exact, calls[0], sizes, *apart)

    def fitted(self, module, exact, call, sizes, labels, types):
        """200 steps of fit, beside loops of torch on `exact` in double and in f32 with the same batches. All rates of dropout
        are 0: what there is of them is another test's."""
        for one in (module, exact):
            for part in one.modules():
                if isinstance(part, nn.Dropout):
                    part.p = 0.0
                for name in "dropout", "dropout_p":
                    if isinstance(getattr(part, name, None), float):
                        setattr(part, name, 0.0)
        exact = exact.float()
        exact.load_state_dict(module.state_dict())
        axes = {name: re.search(r"\[(.*)\]", kind)[1].split(", ") for name, kind in types.items()}
        vocabulary = int(labels.max()) + 1

        def loss_of(result, labels):
            result = result[0] if isinstance(result, (tuple, list)) else result
            return nn.functional.cross_entropy(result.reshape(-1, result.shape[-1]), labels.flatten())
        source = tfmc.from_torch(
            exact.eval(), call, targets={"labels": labels}, training=True, loss=loss_of, outputs=["out"],
            sizes={**sizes, "labels": {i: name for i, name in enumerate(axes["labels"]) if not name.isdigit()}})
        loader = Shuffled(call, labels, axes, vocabulary)
        trainer = tfmc.Trainer(source, optimizer="adam", lr=1e-3, seed=1, threads=1)
        fit = trainer.fit(loader, steps=STEPS, log_every=1)
        ours = np.array([r["loss"] for r in fit.history if r["kind"] == "step"])
        start = {name: value.detach().clone() for name, value in exact.state_dict().items()}
        double, single = (self.looped(exact, start, loader, loss_of, kind) for kind in (torch.float64, torch.float32))
        off = [float(np.abs(losses / double - 1).max()) for losses in (ours, single)]
        print(f"{self.id().split('.')[-1]}: {STEPS} steps of fit, loss {double[0]:.4f} to {double[-1]:.4f}, off double by {off[0]:.1e}, "
              f"torch f32 by {off[1]:.1e}")
        self.assertEqual(len(ours), STEPS)
        self.assertLess(double[-1], double[0])
        self.assertLess(off[0], max(3 * off[1], 1e-5))
        exact.float().load_state_dict(start)
        trainer.to_torch(exact)
        self.written(trainer.model(), exact.eval(), call)

    def looped(self, module, start, loader, loss_of, dtype):
        old, losses = torch.get_default_dtype(), []
        module.load_state_dict(start)
        module.to(dtype)
        torch.set_default_dtype(dtype)
        try:
            optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=1e-3)
            while len(losses) < STEPS:
                for batch in loader:
                    labels = batch["labels"]
                    values = {name: x.to(dtype) if x.dtype == torch.float32 else x for name, x in batch.items() if name != "labels"}
                    loss = loss_of(module(**values), labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses.append(float(loss.detach()))
                    if len(losses) == STEPS:
                        break
        finally:
            torch.set_default_dtype(old)
        return np.array(losses)

    def written(self, model, module, call):
        """Tokens of a module that takes what it has written as `given` or `trg`: the greatest score of the last position."""
        name = next((n for n in ("given", "trg") if n in call), None)
        if name is None:
            return
        is_time_first, rows = "padding" in call, {}
        for who in ("ours", "torch"):
            made = torch.ones_like(call[name][:1] if is_time_first else call[name][:, :1])
            for _ in range(8):
                values = {**call, name: made}
                if "trg_mask" in values:
                    values["trg_mask"] = (made != 0)[:, None, None]
                if who == "ours":
                    out = model.run({n: v.numpy().astype(np.int32) if v.dtype == torch.int64 else v.numpy() for n, v in values.items()})
                    scores = torch.from_numpy(np.asarray(out["out"]))
                else:
                    with torch.no_grad():
                        scores = module(**values)
                shape = (*made.shape, scores.shape[-1])
                scores = scores.reshape(shape)
                last = (scores[-1:] if is_time_first else scores[:, -1:]).argmax(-1)
                made = torch.cat([made, last], 0 if is_time_first else 1)
            rows[who] = made.tolist()
        self.assertEqual(rows["ours"], rows["torch"])
        print(f"{self.id().split('.')[-1]}: decoded {rows['ours'][0]}")

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
        types = {"ids": "i32[batch, source]", "given": "i32[batch, time]"}
        calls = [{"ids": c["enc_inputs"], "given": c["dec_inputs"]} for c in (call(7, 6, 3), call(5, 4, 2))]
        self.both(first, exact, calls, {"ids": sizes["enc_inputs"], "given": sizes["dec_inputs"]}, ids(18, high=VOCAB),
                  {**types, "labels": "i32[rows]"}, apart=(ids(3, 6, high=VOCAB), {**types, "labels": "i32[batch, time]"}))

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
