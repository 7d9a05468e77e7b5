#!/usr/bin/env python3
"""Whole runs of training beside PyTorch, and `tfmc train` beside a C program with the compiled library.

usage: training.py TFMC RUN... [--steps N] [--seeds N]

RUN is 000, 001, 002, 003 or 004: the models of the golden cases seed-RUN, with the sizes of the tutorials where they are
known. They learn to copy sentences for 200 steps, from initial weights that PyTorch makes; dropout is off. At each step the
loss may be at most twice as far from PyTorch in double as PyTorch's own in f32 have been up to there, and 1e-4. Those are of ROUNDINGS
runs whose initial weights are rounded otherwise: one run alone may have had no relu whose sign falls within rounding.
RUN-dropout: the same with dropout of 0.1, five seeds each; the mean of the last 20 losses of all is within 2 % of PyTorch's.
gpt2: GPT-2 small, ten steps of AdamW on one batch of 4 x 64 tokens, weights from PyTorch's generator: each loss within 1e-3.
dates: examples/dates for 4,000 steps of `tfmc train --data`, and the same by host/train_dates.c, which gets the batches in the
order that docs/training.md says: the same bytes.

The last line is 'N passed, N failed'. Ends with 77 if a run's packages (torch, safetensors; for gpt2 transformers) are missing.
A run takes minutes to half an hour of a processor; it measures nothing.
"""
import argparse
import array
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "goldens" / "models"
STEPS, LAST, ROUNDINGS = 200, 20, 5
PAD, BOS, EOS, FIRST = 0, 1, 2, 4  # of the copied sentences; 002 has PAD 1, BOS 2, EOS 3


def run(*words, **options):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: exit {done.returncode}: {done.stderr[:2000]}")
    return done.stdout


# ---- the models of the tutorials ----

class Tutorial:
    """A model in both languages. `drops` are the texts of the .tfm file that dropout is put around, and the suffixes of the
    modules of PyTorch whose result it is."""

    file = drops = ""
    modules = ()
    settings = 'optimizer = "adam"  lr = 1e-3'
    sizes, pads, items, longest = {}, (PAD, BOS, EOS), 16, 9

    def text(self, p):
        text = (MODELS / self.file).read_text()
        text = re.sub(r"\n  generate [^\n]*", "", text).rstrip()
        text = re.sub(r"(PositionalEncoding\([^()]*)\)", r"\1, dropout = 0)", text)
        if p:
            for words in self.drops:
                assert words in text, words
                text = text.replace(words, f"dropout({words}, {p})")
        train = f"\n{self.objective}  train objective {{ {self.settings} }}\n}}\n"
        assert text.endswith("}")
        return text[:-1].rstrip() + train

    def optimizer(self, torch, parameters):
        return torch.optim.Adam(parameters, lr=1e-3)

    def hooked(self, torch, module, p):
        """The module with dropout behind those that have none of their own."""
        for name, part in module.named_modules() if p else ():
            if name.endswith(tuple(self.modules)):
                part.register_forward_hook(lambda part, given, made: torch.nn.functional.dropout(made, p, part.training))
        return module

    def sentences(self, torch, generator, vocab):
        pad, bos, eos = self.pads
        lengths = torch.randint(2, self.longest + 1, (self.items,), generator=generator)
        lengths[0] = self.longest
        words = torch.randint(FIRST, vocab, (self.items, self.longest), generator=generator)
        behind = torch.arange(self.longest + 1)[None, :]
        source = words.masked_fill(behind[:, :-1] >= lengths[:, None], pad)
        wide = torch.cat([source, torch.full((self.items, 1), pad)], 1)
        labels = torch.where(behind == lengths[:, None], eos, wide)
        target = torch.cat([torch.full((self.items, 1), bos), source], 1)
        return source, target, labels

    def vectors(self, torch, vocab, d):
        """For models that take vectors: one for each word, the same in each batch."""
        return torch.randn((vocab, d), generator=torch.Generator().manual_seed(7))


class Translation000(Tutorial):
    file = "seed-000-transformer.tfm"
    drops = "linear2(activation(linear1(src)))", "linear2(activation(linear1(tgt)))", "transpose(output, 0, 1)"
    modules = "linear2", "self_attn.out_proj", "multihead_attn.out_proj"
    objective = """  fn objective(src: f32[source, batch, embed_dim], tgt: f32[target, batch, embed_dim], mask: f32[target, target],
               padding: bool[batch, source], labels: i32[batch, target]) {
    memory = positional(src) -> encoder(none, padding)
    hidden = tgt -> decoder(memory, mask, none, none, padding) -> decoder_norm
    return loss = cross_entropy(linear_head(hidden), transpose(labels, 0, 1), ignore_index = 0)
  }
"""

    def module(self, torch, seeds, p):
        transformer = seeds.ReusedTransformer(24, 4, (2, 3), 40, batch_first=False, encoder_norm=False)
        return torch.nn.ModuleDict(dict(transformer_layer=transformer, linear=torch.nn.Linear(24, 154)))

    def batch(self, torch, seeds, generator):
        source, target, labels = self.sentences(torch, generator, 154)
        words = self.vectors(torch, 154, 24)
        return dict(src=words[source].transpose(0, 1), tgt=words[target].transpose(0, 1), padding=source == PAD, labels=labels,
                    mask=torch.full((self.longest + 1,) * 2, float("-inf")).triu(1))

    def loss(self, torch, model, src, tgt, mask, padding, labels):
        transformer = model["transformer_layer"]
        hidden = transformer.decoder(tgt, transformer.encoder(src, None, padding), mask, None, None, padding)
        return torch.nn.functional.cross_entropy(model["linear"](hidden).flatten(0, 1), labels.t().flatten(), ignore_index=PAD)


class Tutorial001(Tutorial):
    """Without a head: it learns vectors."""

    file = "seed-001-transformer.tfm"
    objective = """  fn objective(src: f32[batch, source, d_model], tgt: f32[batch, target, d_model], padding: bool[batch, source],
               wanted: f32[batch, target, d_model]) {
    output = decoder(tgt, encoder(src, none, padding), causal_mask(tgt, tgt), memory_padding = padding)
    return loss = mean(mean(mean((output - wanted) * (output - wanted))))
  }
"""

    def text(self, p):
        text = super().text(0)
        return re.sub(r"((?:En|De)coderLayer\(d_model, n_head, dim_feedforward, activation)\)", rf"\1, dropout = {p})", text)

    def module(self, torch, seeds, p):
        class Positioned(torch.nn.TransformerEncoderLayer):
            def forward(self, x, mask, padding):
                return super().forward(seeds.positioned(x), mask, padding)

        def layer(kind):
            return kind(32, 8, 48, p, batch_first=True)
        return torch.nn.ModuleDict(dict(
            encoder=seeds.Reused(layer(Positioned), 3, torch.nn.LayerNorm(32), seeds.positioned),
            decoder=seeds.Reused(layer(torch.nn.TransformerDecoderLayer), 2, torch.nn.LayerNorm(32))))

    def batch(self, torch, seeds, generator):
        source, target, labels = self.sentences(torch, generator, 40)
        words = self.vectors(torch, 40, 32)
        return dict(src=words[source], tgt=words[target], padding=source == PAD, wanted=words[labels])

    def loss(self, torch, model, src, tgt, padding, wanted):
        causal = torch.full((tgt.shape[1],) * 2, float("-inf"), dtype=tgt.dtype).triu(1)
        padding = torch.zeros_like(padding, dtype=tgt.dtype).masked_fill(padding, float("-inf"))
        made = model["decoder"](tgt, model["encoder"](src, None, padding), causal, None, None, padding)
        return torch.nn.functional.mse_loss(made, wanted)


class Translation002(Tutorial):
    file, pads = "seed-002-translator.tfm", (1, 2, 3)
    sizes = dict(src_vocab_size=37, tgt_vocab_size=41, d_model=32, nhead=8, num_encoder_layers=6, num_decoder_layers=6,
                 dim_feedforward=50)
    settings = 'optimizer = "adam"  lr = 1e-4  betas = [0.9, 0.98]  eps = 1e-9'
    objective = """  fn objective(src: i32[batch, source], tgt: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(src, tgt), labels, ignore_index = pad)
  }
"""

    def text(self, p):
        return super().text(0).replace("num_decoder_layers, dim_feedforward)", f"num_decoder_layers, dim_feedforward, dropout = {p})")

    def optimizer(self, torch, parameters):
        return torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def module(self, torch, seeds, p):
        return torch.nn.ModuleDict(dict(
            src_token_embedding=seeds.TokenEmbedding(37, 32), tgt_token_embedding=seeds.TokenEmbedding(41, 32),
            my_transformer=torch.nn.Transformer(32, 8, 6, 6, 50, dropout=p, batch_first=True),
            classification=torch.nn.Linear(32, 41)))

    def batch(self, torch, seeds, generator):
        return dict(zip(("src", "tgt", "labels"), self.sentences(torch, generator, 37)))

    def loss(self, torch, model, src, tgt, labels):
        x, y = (seeds_of().positioned(model[f"{name}_token_embedding"](ids)) for name, ids in (("src", src), ("tgt", tgt)))
        hidden = torch.full((tgt.shape[1],) * 2, float("-inf"), dtype=x.dtype).triu(1)
        padding = [torch.zeros_like(ids, dtype=x.dtype).masked_fill(ids == 1, float("-inf")) for ids in (src, tgt)]
        made = model["my_transformer"](x, y, tgt_mask=hidden, src_key_padding_mask=padding[0], tgt_key_padding_mask=padding[1],
                                       memory_key_padding_mask=padding[0])
        return torch.nn.functional.cross_entropy(model["classification"](made).flatten(0, 1), labels.flatten(), ignore_index=1)


class Transformer003(Tutorial):
    file, settings = "seed-003-transformer.tfm", 'optimizer = "sgd"  lr = 1e-3  momentum = 0.99'
    sizes = dict(src_vocab_size=21, tgt_vocab_size=23, d_model=512, d_k=64, d_v=64, n_heads=8, d_ff=2048, n_layers=6)
    drops, modules = ("fc(merge_heads(attn @ V))", "down(relu(up(x)))"), ("attn.fc", "fc.2")
    items = 8
    objective = """  fn objective(src: i32[batch, source], tgt: i32[batch, time], labels: i32[batch, time]) {
    logits, a, b, c, l, w = forward(src, tgt)
    return loss = cross_entropy(logits, reshape(labels, [shape(labels, 0) * shape(labels, 1)]), ignore_index = 0)
  }
"""

    def optimizer(self, torch, parameters):
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.99)

    def module(self, torch, seeds, p):
        return seeds.BareTransformer((21, 23), 512, 64, 64, 8, 2048, 6, -1e9)

    def batch(self, torch, seeds, generator):
        return dict(zip(("src", "tgt", "labels"), self.sentences(torch, generator, 21)))

    def loss(self, torch, model, src, tgt, labels):
        return torch.nn.functional.cross_entropy(model(src, tgt)[0].flatten(0, 1), labels.flatten(), ignore_index=PAD)


class Transformer004(Tutorial):
    file, settings = "seed-004-transformer.tfm", 'optimizer = "adam"  lr = 5e-4'
    sizes = dict(vocab_size=10000, d_model=128, n_heads=8, n_encoder_layers=6, n_decoder_layers=6, d_ff=2048)
    drops = "fc(merge_heads(softmax(attention) @ v))", "linear2(relu(linear1(x)))"
    modules = "attn.fc", "feedforward.linear2"
    items, longest = 32, 10
    objective = """  fn objective(src: i32[batch, source], trg: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(src, trg), labels, ignore_index = 0)
  }
"""

    def optimizer(self, torch, parameters):
        return torch.optim.Adam(parameters, lr=5e-4)

    def module(self, torch, seeds, p):
        return seeds.SharedEmbeddingTransformer(10000, 128, 8, (6, 6), 2048)

    def batch(self, torch, seeds, generator):
        return dict(zip(("src", "trg", "labels"), self.sentences(torch, generator, 10000)))

    def loss(self, torch, model, src, trg, labels):
        masks = [(ids != PAD)[:, None, None] for ids in (src, trg)]
        return torch.nn.functional.cross_entropy(model(src, trg, *masks).flatten(0, 1), labels.flatten(), ignore_index=PAD)


TUTORIALS = {"000": Translation000, "001": Tutorial001, "002": Translation002, "003": Transformer003, "004": Transformer004}


def seeds_of():
    """make_seeds.py, whose tables of positions have the type that tensors are made with."""
    import torch
    sys.path.insert(0, str(MODELS.parent))
    import make_seeds
    if not hasattr(make_seeds, "in_double"):
        make_seeds.in_double = make_seeds.sinusoids
        make_seeds.sinusoids = lambda *given: make_seeds.in_double(*given).to(torch.get_default_dtype())
    return make_seeds


# ---- runs beside PyTorch ----

def given(torch, tutorial, seeds, count):
    """(a fresh module with PyTorch's initial weights, batches), both in f32 and the same each time"""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(3)
    module = tutorial.module(torch, seeds, 0.0)
    for name, weight in module.named_parameters():  # those of make_seeds that are not made by torch.nn
        if "in_proj_weight" in name:
            torch.nn.init.xavier_uniform_(weight)
        elif "in_proj_bias" in name or "out_proj.bias" in name:
            torch.nn.init.zeros_(weight)
    generator = torch.Generator().manual_seed(4)
    return module.state_dict(), [tutorial.batch(torch, seeds, generator) for _ in range(count)]


def rounded_otherwise(torch, weights, seed):
    """The weights times up to 1 + 2^-24, either way; those of seed 0 as they are."""
    generator = torch.Generator().manual_seed(seed)
    share = 2.0**-24 if seed else 0.0
    return {name: (tensor.double() * (1 + share * (2 * torch.rand(tensor.shape, generator=generator, dtype=torch.float64) - 1))).float()
            for name, tensor in weights.items()}


def by_torch(torch, tutorial, seeds, weights, batches, dtype, p=0.0, seed=0):
    torch.set_default_dtype(dtype)
    torch.manual_seed(seed)
    model = tutorial.hooked(torch, tutorial.module(torch, seeds, p), p)
    model.load_state_dict(weights)
    optimizer, losses = tutorial.optimizer(torch, model.parameters()), []
    for batch in batches:
        batch = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in batch.items()}
        loss = tutorial.loss(torch, model.train(), **batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def write_files(torch, folder, weights, batches):
    from safetensors.torch import save_file
    plain = lambda t: (t.int() if t.dtype == torch.int64 else t).contiguous().clone()
    save_file({name: plain(tensor) for name, tensor in weights.items()}, folder / "weights.safetensors")
    save_file({f"{name}@{i}": plain(tensor) for i, batch in enumerate(batches) for name, tensor in batch.items()},
              folder / "batches.safetensors")


def by_tfmc(tfmc, folder, text, steps, sizes=(), seed=0):
    from safetensors.torch import load_file
    (folder / "model.tfm").write_text(text)
    defines = [word for name, value in dict(sizes).items() for word in ("-D", f"{name}={value}")]
    run(tfmc, "train", folder / "model.tfm", *defines, "--weights", folder / "weights.safetensors", "--batches",
        folder / "batches.safetensors", f"--steps={steps}", f"--seed={seed}", "--gradients", "--quiet", "-o", folder / "out")
    return load_file(folder / "out")["losses"].tolist()


def compare_losses(ours, theirs, double):
    """theirs: of several runs. What is wrong, or None; and what is seen."""
    worst, share, far = 0.0, 0.0, 0.0
    if len(ours) != len(double):
        return f"{len(ours)} losses in place of {len(double)}", ""
    for step, (a, c, *runs) in enumerate(zip(ours, double, *theirs), 1):
        far = max([far] + [abs(b - c) for b in runs])
        worst = max(worst, abs(a - c))
        share = max(share, abs(a - c) / (2 * far + 1e-4))
        if not share <= 1:
            return f"step {step}: the loss is {a:.7f}, PyTorch's in double {c:.7f} and in f32 {', '.join(f'{b:.7f}' for b in runs)}", ""
    return None, (f"loss {double[0]:.4f} to {double[-1]:.4f}; from PyTorch in double at most {worst:.1e}, its own in f32 {far:.1e}; "
                  f"{share:.0%} of the limit")


def tutorial_run(tfmc, name, folder, options):
    import torch
    seeds, tutorial, dropout = seeds_of(), TUTORIALS[name[:3]](), name.endswith("-dropout")
    torch.set_num_threads(1)
    weights, batches = given(torch, tutorial, seeds, options.steps)
    write_files(torch, folder, weights, batches)
    if not dropout:
        ours = by_tfmc(tfmc, folder, tutorial.text(0), options.steps, tutorial.sizes)
        double = by_torch(torch, tutorial, seeds, weights, batches, torch.float64)
        theirs = [by_torch(torch, tutorial, seeds, rounded_otherwise(torch, weights, seed), batches, torch.float32) for seed in range(ROUNDINGS)]
        return compare_losses(ours, theirs, double)
    last, sums = min(LAST, options.steps), [0.0, 0.0]
    for seed in range(1, options.seeds + 1):
        sums[0] += sum(by_tfmc(tfmc, folder, tutorial.text(0.1), options.steps, tutorial.sizes, seed)[-last:])
        sums[1] += sum(by_torch(torch, tutorial, seeds, weights, batches, torch.float32, 0.1, seed)[-last:])
    ours, theirs = (total / last / options.seeds for total in sums)
    seen = f"the mean of the last {last} losses of {options.seeds} seeds is {ours:.5f}, PyTorch's {theirs:.5f}: {ours / theirs - 1:+.2%}"
    return (None, seen) if abs(ours / theirs - 1) <= 0.02 else (seen, "")


def gpt2_run(tfmc, name, folder, options):
    import torch
    import transformers
    torch.set_num_threads(1)
    torch.manual_seed(5)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()  # no dropout
    ids, steps = torch.randint(0, 50257, (4, 65)), min(10, options.steps)
    weights = {n: t for n, t in model.state_dict().items() if n != "lm_head.weight" and not n.endswith((".attn.bias", ".attn.masked_bias"))}
    write_files(torch, folder, weights, [{"ids": ids}])
    text = re.sub(r"\n  generate [^\n]*\n}", "", (ROOT / "examples" / "gpt2" / "gpt2.tfm").read_text().rstrip()) + """
  fn objective(ids: i32[batch, n]) {
    return loss = cross_entropy(body(ids[:, :-1]), ids[:, 1:])
  }
  train objective { optimizer = "adamw"  lr = 1e-4  weight_decay = 0.01 }
}
"""
    text = text.replace("ragged time", "time")
    batches = folder / "batches.safetensors"
    batches.rename(folder / "one")  # one batch has no number
    from safetensors.torch import load_file, save_file
    save_file({"ids": load_file(folder / "one")["ids@0"]}, batches)
    ours = by_tfmc(tfmc, folder, text, steps)
    optimizer, theirs = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01), []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    seen = f"losses {theirs[0]:.4f} to {theirs[-1]:.4f}, at most {worst:.1e} apart"
    return (None, seen) if worst <= 1e-3 and len(ours) == len(theirs) else (f"{seen}: {ours}, PyTorch's {theirs}", "")


# ---- dates by tfmc train and by a C program ----

def numbers_of(path):
    sys.path.insert(0, str(ROOT / "tests" / "e2e"))
    from tensor_files import read_tensors
    return {name: numbers for name, (_, _, numbers) in read_tensors(path).items()}


def items_of(tensors, name):
    at, items = 0, []
    for length in tensors[name + ".lengths"]:
        items.append(tensors[name][at:at + length])
        at += length
    return items


def fitting(lengths, items, tokens):
    """How many of the items, at least one, fit into `tokens` once they are padded to the longest."""
    widest = [0, 0]
    for n, item in enumerate(items):
        widest = list(map(max, widest, lengths[item]))
        if n and (n + 1) * sum(widest) > tokens:
            return n
    return len(items)


def batches_of(lengths, seed, epoch, tokens=4096, pool=100):
    """The batches of an epoch, as docs/training.md has them and test_train_data.py checks them; for many items."""
    sys.path.insert(0, str(ROOT / "tests" / "e2e"))
    from test_train_data import shuffle
    left, at, number = list(range(len(lengths))), 0, 0
    shuffle(left, seed, epoch, 0)
    while at < len(left):
        end, held = at, 0
        while end < len(left) and (end == at or held + sum(lengths[left[end]]) <= pool * tokens):
            held += sum(lengths[left[end]])
            end += 1
        here = sorted(left[at:end], key=lambda item: sorted(lengths[item], reverse=True))  # stable
        batches, first = [], 0
        while first < len(here):
            n = fitting(lengths, here[first:first + tokens], tokens)
            batches.append(here[first:first + n])
            first += n
        at, number = end, number + 1
        shuffle(batches, seed, epoch, number)
        yield from batches


def write_batches(path, data, seed, steps):
    """Records of 32-bit integers: items, length of sources and of sentences, and both, padded with 0."""
    tensors = [items_of(data, name) for name in ("src", "sentence")]
    lengths = [tuple(map(len, item)) for item in zip(*tensors)]
    order = (batch for epoch in itertools.count() for batch in batches_of(lengths, seed, epoch))
    with open(path, "wb") as file:
        for batch in itertools.islice(order, steps):
            widths = [max(len(rows[i]) for i in batch) for rows in tensors]
            record = array.array("i", [len(batch), *widths])
            for rows, width in zip(tensors, widths):
                for i in batch:
                    record.extend(rows[i])
                    record.extend([0] * (width - len(rows[i])))
            record.tofile(file)


def dates_run(tfmc, name, folder, options):
    steps = 4000 if options.steps == STEPS else options.steps
    dates, count = ROOT / "examples" / "dates", min(512000, 2000 + 130 * steps)
    run(sys.executable, dates / "make_data.py", folder, count)
    run(tfmc, "train", dates / "dates.tfm", "--data", folder / "train.safetensors", "--out", folder / "run", f"--steps={steps}", "--seed=1",
        "--quiet")
    write_batches(folder / "batches", numbers_of(folder / "train.safetensors"), 1, steps)
    run(tfmc, "compile", "--training", "--quiet", dates / "dates.tfm", "-o", folder / "libdates.so")
    run(os.environ.get("CC", "cc"), "-O1", "-Wall", "-Wextra", "-Werror", "-I", folder, ROOT / "tests" / "e2e" / "host" / "train_dates.c", "-o",
        folder / "train_dates", folder / "libdates.so", f"-Wl,-rpath,{folder}")
    for threads in (1, 2):
        shutil.rmtree(folder / "saved", ignore_errors=True)
        run(folder / "train_dates", folder / "batches", folder / "saved", threads)
        file = f"step-{steps:08}/weights.safetensors"
        ours, theirs = numbers_of(folder / "run" / file), numbers_of(folder / "saved" / file)
        if ours.keys() != theirs.keys() or any(ours[n].tobytes() != theirs[n].tobytes() for n in ours):
            return f"{threads} threads: the C program's weights are others: {[n for n in ours if ours[n] != theirs.get(n)][:5]}", ""
    return None, f"{steps} steps, {len(ours)} weights with the same bytes, by one thread and by two"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tfmc", type=os.path.abspath)
    parser.add_argument("runs", nargs="+", metavar="RUN", choices=[*TUTORIALS, *(f"{n}-dropout" for n in TUTORIALS), "gpt2", "dates"])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seeds", type=int, default=5)
    options, missing, counts = parser.parse_args(), False, [0, 0]
    for name in options.runs:
        kind = {"gpt2": gpt2_run, "dates": dates_run}.get(name, tutorial_run)
        with tempfile.TemporaryDirectory() as folder:
            try:
                why, seen = kind(options.tfmc, name, pathlib.Path(folder), options)
            except ImportError as error:
                print(f"not run: {name}: {error}")
                missing = True
                continue
        counts[why is not None] += 1
        print(f"FAIL {name}: {why}" if why else f"ok   {name}: {seen}", flush=True)
    print(f"{counts[0]} passed, {counts[1]} failed")
    return 1 if counts[1] else 77 if missing and not counts[0] else 0


if __name__ == "__main__":
    sys.exit(main())
