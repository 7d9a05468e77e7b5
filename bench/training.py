#!/usr/bin/env python3
"""A step of training beside PyTorch, eager and compiled: time and peak memory, interleaved.

usage: training.py TFMC [WORK ...] [--rounds 5] [--threads 1] [--engines tfmc,eager,compile] [--priority]

A step is forward, backward, clipping and AdamW on one batch, with dropout of 0.1 where the model has it. Every engine is
one process with random weights; in each round each takes one step, in random order, while the others wait. Prints the
best and the median time, the median of the ratios round by round, the peak of the resident memory, how long
compiling took (for PyTorch: the first step) and the size of the library. With one thread the times are those of the
processor, which other work on the machine disturbs less. --priority: steps run ahead of all else, on one processor
(root, one thread). Needs torch, for gpt2 transformers; without torch it ends with 77.
"""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

from trainer_library import TrainerLibrary

ROOT = pathlib.Path(__file__).resolve().parents[1]
TRANSLATOR = """layer Table(vocab, d) {
  weight weight: [vocab, d] = normal(std = 1 / sqrt(d))
  forward(ids) = weight[ids]
}
model Translator(vocab, d, heads, layers, ff, p = 0.1) {
  table   = Table(vocab, d)
  encoder = Encoder(d, heads, layers, ff, dropout = p)
  decoder = Decoder(d, heads, layers, ff, dropout = p)
  fn embed(ids) = dropout(table(ids) * sqrt(d) + sinusoid(positions(ids, 1), d), p)
  forward(src: i32[batch, source], tgt: i32[batch, time]) {
    return logits = linear(decoder(embed(tgt), encoder(embed(src)), tgt_is_causal = true), table.weight)
  }
  fn objective(src: i32[batch, source], tgt: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(forward(src, tgt), labels, label_smoothing = 0.1)
  }
  train objective { optimizer = "adamw"  lr = 1e-4  clip_norm = 1 }
}
"""
CLASSIFIER = """model Classifier(vocab = 30522, d = 768, heads = 12, layers = 12, ff = 3072, p = 0.1, classes = 4) {
  table   = Embedding(vocab, d)
  places  = Embedding(512, d)
  encoder = Encoder(d, heads, layers, ff, dropout = p, activation = gelu)
  head    = Linear(d, classes)
  forward(ids: i32[batch, time]) {
    x = encoder(table(ids) + places(positions(ids, 1)), src_key_padding_mask = ids == 0)
    return logits = head(x[:, 0])
  }
  fn objective(ids: i32[batch, time], labels: i32[batch]) {
    return loss = cross_entropy(forward(ids), labels)
  }
  train objective { optimizer = "adamw"  lr = 1e-4  clip_norm = 1 }
}
"""
GPT2 = """  fn objective(ids: i32[batch, time], labels: i32[batch, time]) {
    return loss = cross_entropy(body(ids), labels)
  }
  train objective { optimizer = "adamw"  lr = 1e-4  clip_norm = 1 }
}
"""
# name: (kind, batch, lengths of the items (of sources; of targets), sizes of the model)
WORKS = {
    "base": ("translator", 32, (32, 32), dict(vocab=32000, d=512, heads=8, layers=6, ff=2048)),
    "gpt2": ("gpt2", 4, (64,), dict(vocab=50257)),
    "bert": ("classifier", 8, (128,), dict(vocab=30522)),
    "bert-padded": ("classifier", 8, (128,), dict(vocab=30522)),
    "004": ("translator", 32, (10, 20), dict(vocab=10000, d=128, heads=8, layers=6, ff=2048)),
    "dates": ("translator", 128, (22, 11), dict(vocab=45, d=64, heads=4, layers=2, ff=128)),
}
REAL = 128, 92, 70, 56, 44, 34, 22, 14  # tokens of the items of bert-padded: 460


def text_of(kind):
    if kind != "gpt2":
        return {"translator": TRANSLATOR, "classifier": CLASSIFIER}[kind]
    text = (ROOT / "examples" / "gpt2" / "gpt2.tfm").read_text().rstrip()
    text = re.sub(r"(weight [wb]: \[[^]]*\])( *as)", r"\1 = normal(std = 0.02)\2", text)
    return re.sub(r"\n  generate [^\n]*\n}$", "\n" + GPT2, text).replace("ragged time", "time")


def batch_of(work):
    """{input: (shape, ids)}, in the order of the objective"""
    kind, items, lengths, sizes = WORKS[work]
    rng = random.Random(3)
    ids = lambda n: [rng.randrange(1, sizes["vocab"]) for _ in range(items * n)]
    if kind == "translator":
        return {"src": ([items, lengths[0]], ids(lengths[0])), "tgt": ([items, lengths[1]], ids(lengths[1])),
                "labels": ([items, lengths[1]], ids(lengths[1]))}
    batch = {"ids": ([items, lengths[0]], ids(lengths[0]))}
    if work == "bert-padded":
        batch["ids"][1][:] = [x if i % 128 < REAL[i // 128] else 0 for i, x in enumerate(batch["ids"][1])]
    batch["labels"] = ([items], [i % 4 for i in range(items)]) if kind == "classifier" else ([items, lengths[0]], ids(lengths[0]))
    return batch


# ---- engines: each prepares (a step, what else there is to say) ----

def by_tfmc(work, threads, tfmc, folder):
    kind, items, lengths, sizes = WORKS[work]
    (folder / "m.tfm").write_text(text_of(kind))
    library = TrainerLibrary(tfmc, folder / "m.tfm", folder, sizes)
    library.begin([items, *lengths], [ids for _, ids in batch_of(work).values()], threads)
    return library.step, {"prepare": library.seconds, "size": library.size}


def torch_model(torch, work):
    """A module: batch -> loss."""
    nn, (kind, _, _, s) = torch.nn, WORKS[work]
    cross_entropy = nn.functional.cross_entropy

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.drop = nn.Embedding(s["vocab"], s["d"]), nn.Dropout(0.1)
            nn.init.normal_(self.table.weight, std=s["d"] ** -0.5)
            self.transformer = nn.Transformer(s["d"], s["heads"], s["layers"], s["layers"], s["ff"], 0.1, batch_first=True)
            angle = torch.arange(64.0)[:, None] * torch.exp(torch.arange(0.0, s["d"], 2) * (-9.210340371976184 / s["d"]))
            self.register_buffer("places", torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

        def embed(self, ids):
            return self.drop(self.table(ids) * s["d"] ** 0.5 + self.places[:ids.shape[1]])

        def forward(self, src, tgt, labels):
            mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
            x = self.transformer(self.embed(src), self.embed(tgt), tgt_mask=mask, tgt_is_causal=True)
            return cross_entropy(nn.functional.linear(x, self.table.weight).flatten(0, 1), labels.flatten(), label_smoothing=0.1)

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.places = nn.Embedding(30522, 768), nn.Embedding(512, 768)
            layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.1, activation="gelu", batch_first=True)
            self.encoder, self.head = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(768, 4)

        def forward(self, ids, labels):
            padding = ids == 0 if work == "bert-padded" else None
            x = self.encoder(self.table(ids) + self.places.weight[:ids.shape[1]], src_key_padding_mask=padding)
            return cross_entropy(self.head(x[:, 0]), labels)

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            import transformers
            self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()  # no dropout

        def forward(self, ids, labels):
            return cross_entropy(self.model(ids).logits.flatten(0, 1), labels.flatten())
    return {"translator": Translator, "classifier": Classifier, "gpt2": Gpt2}[kind]()


def by_torch(work, threads, is_compiled):
    import torch
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = torch_model(torch, work)
    if WORKS[work][0] != "gpt2":
        model.train()
    batch = {name: torch.tensor(ids).reshape(shape) for name, (shape, ids) in batch_of(work).items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    call = torch.compile(model) if is_compiled else model

    def step():
        optimizer.zero_grad()
        loss = call(**batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        return loss.item()
    begin = time.monotonic()
    step()
    return step, {"prepare": time.monotonic() - begin}


def run_ahead(is_ahead):
    os.sched_setaffinity(0, {os.cpu_count() - 1} if is_ahead else range(os.cpu_count()))
    os.sched_setscheduler(0, os.SCHED_FIFO if is_ahead else os.SCHED_OTHER, os.sched_param(50 if is_ahead else 0))


def work_as(engine, work, threads, tfmc, folder, priority):
    """One line for each line of the standard input: seconds and loss of a step."""
    if engine == "tfmc":
        step, said = by_tfmc(work, threads, tfmc, pathlib.Path(folder))
    else:
        step, said = by_torch(work, threads, engine == "compile")
    print(json.dumps(said), flush=True)
    for _ in sys.stdin:
        if priority:
            run_ahead(True)
        clock = time.process_time if threads == 1 else time.monotonic
        begin = clock()
        loss = step()
        seconds = clock() - begin
        if priority:
            run_ahead(False)
        peak = int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])
        print(json.dumps({"seconds": seconds, "loss": loss, "peak": peak / 1024}), flush=True)


# ---- the table ----

class Worker:
    def __init__(self, engine, work, options, folder):
        words = [sys.executable, __file__, "worker", engine, work, options.threads, options.tfmc, folder, int(options.priority)]
        self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_NUM_THREADS": str(options.threads)})
        self.said, self.times = self.read(), []

    def read(self):
        while (line := self.process.stdout.readline()) and not line.startswith("{"):
            continue
        if not line:
            raise RuntimeError(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(line)

    def step(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.said |= self.read()
        self.times.append(self.said["seconds"])

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(work, options):
    workers, order = {}, random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for engine in options.engines.split(","):
            workers[engine] = Worker(engine, work, options, folder)
            workers[engine].step()  # memory is taken and caches are warm
            workers[engine].times.clear()
        for _ in range(options.rounds):
            for worker in order.sample(list(workers.values()), len(workers)):
                worker.step()
    for engine, worker in workers.items():
        worker.end()
        ratios = [statistics.median(a / b for a, b in zip(worker.times, other.times)) for other in workers.values()]
        size = f"{worker.said['size'] / 1000:.0f}" if "size" in worker.said else ""
        print(f"| {work} | {engine} | {min(worker.times) * 1e3:.4g} | {statistics.median(worker.times) * 1e3:.4g} | "
              + "".join(f"{r:.2f} | " for r in ratios) + f"{worker.said['peak']:.0f} | {worker.said['prepare']:.2f} | {size} | "
              f"{worker.said['loss']:.3f} |", flush=True)


def main():
    if sys.argv[1:2] == ["worker"]:
        engine, work, threads, tfmc, folder, priority = sys.argv[2:]
        return work_as(engine, work, int(threads), tfmc, folder, priority == "1")
    parser = argparse.ArgumentParser()
    parser.add_argument("tfmc", type=os.path.abspath)
    parser.add_argument("works", nargs="*", metavar="WORK", help=" ".join(WORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engines", default="tfmc,eager,compile")
    parser.add_argument("--priority", action="store_true")
    options = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        print("not run: there is no torch")
        return 77
    engines = options.engines.split(",")
    print("| work | engine | best ms | median ms | " + "".join(f"/{e} | " for e in engines) + "peak MiB | prepare s | library kB | loss |\n"
          "|" + "---|" * (8 + len(engines)))
    for work in options.works or WORKS:
        measure(work, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
