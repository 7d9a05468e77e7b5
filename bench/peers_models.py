"""The models of peers.py and lengths.py, and what each engine gets.

In: nothing. Out: folders with random weights and the inputs of each case, as bench/README.md says, and how a worker reads them.
"""
import json
import os
import pathlib

THREADS = int(os.environ.get("PEERS_THREADS", "2"))
PROJECT = pathlib.Path(__file__).resolve().parent.parent
EPS, PROMPT, NEW, END = 1e-12, 32, 64, 50256
LINEARS = {"attention.self.query": "dd", "attention.self.key": "dd", "attention.self.value": "dd",
           "attention.output.dense": "dd", "intermediate.dense": "fd", "output.dense": "df"}
NORMS = ("attention.output.LayerNorm", "output.LayerNorm")


class Model:
    def __init__(self, title, layers, d, heads, ffn, vocab=0):
        self.title, self.layers, self.d, self.heads, self.ffn, self.vocab = title, layers, d, heads, ffn, vocab

    def size(self, letter):
        return self.ffn if letter == "f" else self.d


MODELS = {"W1": Model("BERT-base", 12, 768, 12, 3072), "W2": Model("MiniLM", 6, 384, 12, 1536, 30522),
          "W5": Model("GPT-2 small", 12, 768, 12, 3072, END + 1)}
RAGGED = [5 + i * 59 // 31 for i in range(32)]
# Name, workload, lengths of the sentences, what the table calls it.
CASES = [("bert16", "W1", [16], "BERT-base, 16 tokens"), ("bert128", "W1", [128], "BERT-base, 128 tokens"),
         ("minilm16", "W2", [16], "MiniLM, 16 tokens"), ("minilm128", "W2", [128], "MiniLM, 128 tokens"),
         ("minilmbatch", "W2", RAGGED, "MiniLM, 32 sentences"), ("gpt2", "W5", [PROMPT], "GPT-2 small, 64 new tokens")]


def bert_weights(np, m):
    rng, weights = np.random.default_rng(1), {}
    uniform = lambda scale, *shape: rng.uniform(-scale, scale, shape).astype(np.float32)
    for i in range(m.layers):
        for name, (n, k) in LINEARS.items():
            weights[f"encoder.layer.{i}.{name}.weight"] = uniform((3 / m.size(k)) ** 0.5, m.size(n), m.size(k))
            weights[f"encoder.layer.{i}.{name}.bias"] = uniform(0.1, m.size(n))
        for name in NORMS:
            weights[f"encoder.layer.{i}.{name}.weight"] = 1 + uniform(0.1, m.d)
            weights[f"encoder.layer.{i}.{name}.bias"] = uniform(0.1, m.d)
    if m.vocab:
        for name, n in (("word", m.vocab), ("position", 512), ("token_type", 2)):
            weights[f"embeddings.{name}_embeddings.weight"] = uniform(1, n, m.d)
        weights["embeddings.LayerNorm.weight"], weights["embeddings.LayerNorm.bias"] = 1 + uniform(0.1, m.d), uniform(0.1, m.d)
    return weights


def gpt2_weights(np, m):
    rng, d = np.random.default_rng(1), m.d
    normal = lambda *shape: (rng.standard_normal(shape, np.float32) * np.float32(0.02))
    weights = {"transformer.wte.weight": normal(m.vocab, d), "transformer.wpe.weight": normal(1024, d)}
    for i in range(m.layers):
        p = f"transformer.h.{i}."
        for name, k, n in (("attn.c_attn", d, 3 * d), ("attn.c_proj", d, d), ("mlp.c_fc", d, 4 * d), ("mlp.c_proj", 4 * d, d)):
            weights[p + name + ".weight"], weights[p + name + ".bias"] = normal(k, n), normal(n)
        for name in ("ln_1", "ln_2"):
            weights[p + name + ".weight"], weights[p + name + ".bias"] = 1 + normal(d), normal(d)
    weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"] = 1 + normal(d), normal(d)
    return weights


def write_folder(np, save_file, workload, folder):
    """What bench/README.md says of FOLDER."""
    m = MODELS[workload]
    save_file((gpt2_weights if workload == "W5" else bert_weights)(np, m), f"{folder}/weights.safetensors")
    for name, of, lengths, _ in CASES:
        if of != workload:
            continue
        rng, shape = np.random.default_rng(3), (len(lengths), max(lengths))
        case = {"batch": shape[0], "length": shape[1]}
        mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int32)
        if workload == "W1":
            rng.standard_normal((*shape, m.d), np.float32).tofile(f"{folder}/{name}.x.f32")
        else:
            (rng.integers(100, min(m.vocab, 30000), shape) * mask).astype(np.int32).tofile(f"{folder}/{name}.ids.i32")
        if workload == "W2":
            mask.tofile(f"{folder}/{name}.mask.i32")
        if workload == "W5":
            case |= {"beam": 1, "new": NEW}
        pathlib.Path(f"{folder}/{name}.json").write_text(json.dumps(case))


class Given:
    """A folder as a worker reads it."""

    def __init__(self, workload, folder):
        import numpy
        from safetensors.numpy import load_file
        self.np, self.workload, self.folder, self.m = numpy, workload, folder, MODELS[workload]
        self.weights = load_file(f"{folder}/weights.safetensors")

    def lengths(self, case):
        return next(lengths for name, _, lengths, _ in CASES if name == case)

    def arguments(self, case):
        """Hidden states; or ids and mask; or the prompt."""
        shape = len(self.lengths(case)), max(self.lengths(case))
        if self.workload == "W1":
            return (self.np.fromfile(f"{self.folder}/{case}.x.f32", "f4").reshape(*shape, self.m.d),)
        ids = self.np.fromfile(f"{self.folder}/{case}.ids.i32", "i4").reshape(shape).astype("i8")
        if self.workload == "W5":
            return (ids,)
        return ids, self.np.fromfile(f"{self.folder}/{case}.mask.i32", "i4").reshape(shape).astype("i8")
