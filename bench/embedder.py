#!/usr/bin/env python3
"""`Embedder` and `Reranker` beside sentence-transformers with OpenVINO: 1,000 mixed sentences, from texts to vectors and scores.

usage: embedder.py TFMC [--peer PYTHON] [--rounds N] [--sentences N]

TFMC is the command; the package tfmc, with tokenizers, numpy and safetensors, must be in this Python. The peer's Python
(this one unless told) has sentence-transformers, optimum-intel and openvino; without it, or where it ends with an error,
its columns are `not run` and say why. Both get the same folders, made here: a MiniLM of random weights (6 layers of 384,
30,522 words) as a sentence encoder, and one with a head of one label as a cross encoder, with a tokenizer of made-up
words. Sentences have 3 to 60 words, mostly short ones; pairs are a question and one of them. f32 is asked for, since OpenVINO
takes bf16 where the CPU has it.

Each is a process of its own with two threads, stopped while it is not its turn; in each round each has one, in random
order. Printed: median times, the median ratio of tfmc's time to the peer's in the same round, the floor and its share of
tfmc's time, and how far results are apart. The floor is what products with weights and attention take for the real tokens
alone at the rate that `tfmc bench` measures of the machine. It measures, and is no part of the tests; on an idle machine.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LAYERS, D, HEADS, FFN, WORDS = 6, 384, 12, 1536, 30522
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
JOBS = {"encode": "Embedder", "rank": "Reranker"}


# ---- what is given ----

def words():
    """Made-up words, and behind them pieces that longer ones are put together of."""
    pick, made = random.Random(1), dict.fromkeys(SPECIAL)
    while len(made) < WORDS:
        word = "".join(pick.choice("aeiou" if i % 2 else "bcdfghklmnprst") for i in range(pick.randint(2, 8)))
        made[word if len(made) < WORDS * 3 // 4 else "##" + word] = None
    return list(made)


def texts(n):
    pick, known = random.Random(2), [word for word in words()[len(SPECIAL):] if not word.startswith("#")]
    lengths = [min(60, max(3, int(pick.lognormvariate(2.5, 0.7)))) for _ in range(n)]
    return [" ".join(pick.choice(known) for _ in range(length)) for length in lengths]


def write_folder(folder, labels):
    import numpy as np
    from safetensors.numpy import save_file
    rng, weights = np.random.default_rng(3), {}

    def linear(name, n, k):
        weights[f"{name}.weight"] = rng.uniform(-1, 1, (n, k)).astype(np.float32) * (3 / k) ** 0.5
        weights[f"{name}.bias"] = rng.uniform(-0.1, 0.1, n).astype(np.float32)

    def norm(name):
        weights[f"{name}.weight"], weights[f"{name}.bias"] = np.ones(D, np.float32), np.zeros(D, np.float32)

    for name, n in ("word", WORDS), ("position", 512), ("token_type", 2):
        weights[f"embeddings.{name}_embeddings.weight"] = rng.normal(size=(n, D)).astype(np.float32)
    norm("embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        for name in "query", "key", "value":
            linear(f"{layer}.attention.self.{name}", D, D)
        linear(f"{layer}.attention.output.dense", D, D), norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", FFN, D), linear(f"{layer}.output.dense", D, FFN), norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", D, D)
    if labels:
        weights = {f"bert.{name}": array for name, array in weights.items()}
        linear("classifier", labels, D)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {"model_type": "bert", "architectures": ["BertForSequenceClassification" if labels else "BertModel"], "vocab_size": WORDS,
              "hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": FFN, "hidden_act": "gelu",
              "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0}
    if labels:
        config |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)
    if labels:
        return
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    (folder / "modules.json").write_text(json.dumps([{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                                     for i, (path, kind) in enumerate(modules)]))
    (folder / "1_Pooling").mkdir(), (folder / "2_Normalize").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": D, "pooling_mode_mean_tokens": True}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 256, "do_lower_case": False}))


def write_tokenizer(folder):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words())}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.add_special_tokens(SPECIAL)
    made.save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(words()) + "\n")
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL))
    (folder / "tokenizer_config.json").write_text(json.dumps(named | {"tokenizer_class": "BertTokenizer", "model_max_length": 256}))


# ---- the workers: a line for each turn, a line of JSON back ----

def worker(engine, job, folder, n):
    lines, question = texts(n), "which of these is it"
    if engine == "tfmc":
        from tfmc.text import Embedder, Reranker
        made = (Embedder if job == "encode" else Reranker)(folder, threads=2)
    else:
        from sentence_transformers import CrossEncoder, SentenceTransformer
        options = dict(backend="openvino", device="cpu", model_kwargs={"export": True, "ov_config": {"INFERENCE_PRECISION_HINT": "f32"}})
        made = (SentenceTransformer if job == "encode" else CrossEncoder)(folder, **options)
    pairs = [(question, line) for line in lines]
    turn = (lambda: made.encode(lines)) if job == "encode" else (lambda: made.predict(pairs))
    turn()
    print("READY", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        got = turn()
        seconds = time.perf_counter() - start
        print("TURN", json.dumps([seconds, [[float(x) for x in row[:4]] if job == "encode" else float(row) for row in got[:20]]]), flush=True)


class Worker:
    def __init__(self, python, engine, job, folder, n):
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([python, __file__, "--worker", engine, job, str(folder), str(n)], text=True, stderr=self.errors,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"HF_HUB_OFFLINE": "1"})
        self.answer("READY")
        self.process.send_signal(signal.SIGSTOP)

    def answer(self, wanted):
        """The next line that is one of ours: libraries print too."""
        for line in self.process.stdout:
            if line.startswith(wanted):
                return line
        self.errors.seek(0)
        raise RuntimeError((self.errors.read().strip().splitlines() or ["it ended"])[-1])

    def turn(self):
        self.process.send_signal(signal.SIGCONT)
        print("go", file=self.process.stdin, flush=True)
        answer = json.loads(self.answer("TURN")[5:])
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def end(self):
        self.process.kill(), self.process.wait()


# ---- the floor ----

def floor_seconds(tfmc, folder, job, n):
    """What products with weights and attention take of the real tokens, at the machine's rate."""
    from tokenizers import Tokenizer
    known = Tokenizer.from_file(str(folder / "tokenizer.json"))
    known.no_padding()
    lines = texts(n) if job == "encode" else [("which of these is it", line) for line in texts(n)]
    lengths = [len(one.ids) for one in known.encode_batch(lines)]
    weights = LAYERS * (4 * D * D + 2 * D * FFN)
    flop = sum(2 * length * weights + 4 * length * length * D * LAYERS for length in lengths)
    with tempfile.TemporaryDirectory() as made:
        model = pathlib.Path(made) / "m.tfm"
        model.write_text("model M { up = Linear(384, 1536) forward(x: f32[n, 384]) { return y = up(x) } }\n")
        done = subprocess.run([tfmc, "bench", str(model), "--random-weights=1", "--input", "x=128x384", "--threads=2", "--json"],
                              capture_output=True, text=True, check=True)
    return flop / json.loads(done.stdout)["machine_flop_per_second"], sum(lengths)


def farthest(a, b):
    flat = lambda rows: [x for row in rows for x in (row if isinstance(row, list) else [row])]
    return max(abs(x - y) for x, y in zip(flat(a), flat(b)))


def measure(given, job, folder):
    workers, why = {"tfmc": Worker(sys.executable, "tfmc", job, folder, given.sentences)}, "not run"
    try:
        workers["peer"] = Worker(given.peer, "peer", job, folder, given.sentences)
    except (RuntimeError, OSError) as error:
        why = f"not run: {error}"
    times, got, order = {name: [] for name in workers}, {}, random.Random(4)
    floors = []
    for _ in range(given.rounds):
        for name in order.sample(list(workers), len(workers)):
            seconds, got[name] = workers[name].turn()
            times[name].append(seconds)
        floor, tokens = floor_seconds(given.tfmc, folder, job, given.sentences)
        floors.append(floor)
    for one in workers.values():
        one.end()
    median = {name: statistics.median(values) for name, values in times.items()}
    share = statistics.median(floor / seconds for floor, seconds in zip(floors, times["tfmc"]))
    peer = f"{1e3 * median['peer']:.0f} ms | {statistics.median(a / b for a, b in zip(times['tfmc'], times['peer'])):.2f} | " \
           f"{farthest(got['tfmc'], got['peer']):.1e}" if "peer" in workers else f"{why} | |"
    print(f"| `{JOBS[job]}`, {given.sentences} texts, {tokens} tokens | {1e3 * median['tfmc']:.0f} ms | "
          f"{1e3 * statistics.median(floors):.0f} ms | {share:.2f} | {peer} |", flush=True)


def main():
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:5], int(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tfmc")
    parser.add_argument("--peer", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sentences", type=int, default=1000)
    given = parser.parse_args()
    print("| | tfmc | floor | floor / tfmc | sentence-transformers, OpenVINO | tfmc / that | apart |\n|---|---|---|---|---|---|---|")
    for job in JOBS:
        with tempfile.TemporaryDirectory() as made:
            write_folder(pathlib.Path(made), labels=int(job == "rank"))
            measure(given, job, pathlib.Path(made))


if __name__ == "__main__":
    main()
