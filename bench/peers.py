#!/usr/bin/env python3
"""tfmc beside other engines, in one run, interleaved: the table of README.md.

usage: peers.py BENCH_COMPARE [--rounds N] [--only CASE ...] [--patience SECONDS]

Models in f32 with random weights: the encoder of BERT-base (hidden states to hidden states), MiniLM's shape (ids and a
mask to sentence vectors; one case is 32 sentences of 5 to 64 tokens), and GPT-2 small (64 tokens after 32, greedily).
Every engine is a process of its own with the same number of threads (PEERS_THREADS, else 2), and is stopped while it is
not its turn; in each round each has one, in random order. Printed for each case: the best and the median time, the
median of the ratios to tfmc's time in the same round, and how far the results are from PyTorch's (of tokens: how many
are others). Then the machine, the versions, and the table as Markdown. An engine whose packages are missing is `not
run`, and so is one that does not answer in time; PyTorch, NumPy and safetensors must be there, else the exit code
is 77. Measure on an idle machine: threads that wait for each other by spinning suffer most from other work.

How each is called, so that it is not put at a disadvantage: PyTorch eagerly, with its fused attention, in inference
mode; ONNX Runtime with its optimizer for Transformers; OpenVINO with static shapes, one stream and f32 asked for;
CTranslate2 with sentences without their padding; llama.cpp with an f32 cache and without sampling. They decode with
caches; PyTorch by transformers' generate.

usage of a worker: peers.py --worker ENGINE WORKLOAD FOLDER, with the protocol of bench-compare (README.md here).
"""
import argparse
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

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
ENGINES = {"tfmc": "tfmc", "torch": "PyTorch", "ort": "ONNX Runtime", "openvino": "OpenVINO", "ct2": "CTranslate2",
           "llama": "llama.cpp"}
PACKAGES = {"torch": ["torch", "transformers"], "ort": ["onnxruntime", "onnx"], "openvino": ["openvino"],
            "ct2": ["ctranslate2"], "llama": ["llama-cpp-python"]}
ALONE = {"ort": ("W1", "W2"), "openvino": ("W1", "W2"), "llama": ("W5",)}  # others take all


# ---- what is given ----

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


# ---- engines: each gives a function from a case to a function that runs it ----

def torch_model(given, fused=True):
    """By torch's own operations; its fused attention, or the one that others find in an exported graph."""
    import torch
    F, m = torch.nn.functional, given.m
    torch.set_num_threads(THREADS)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in given.weights.items():
                self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(torch.from_numpy(value), False))

        def get(self, name, kind="weight"):
            return getattr(self, f"{name}.{kind}".replace(".", "_"))

        def linear(self, x, name):
            return F.linear(x, self.get(name), self.get(name, "bias"))

        def norm(self, x, name):
            return F.layer_norm(x, (m.d,), self.get(name), self.get(name, "bias"), EPS)

        def attend(self, q, k, v, hidden):
            if fused:
                return F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(m.d // m.heads)
            return torch.matmul(torch.softmax(scores if hidden is None else scores + hidden, -1), v)

        def forward(self, x, mask=None):
            if m.vocab:
                e = "embeddings."
                x = F.embedding(x, self.get(e + "word_embeddings")) + self.get(e + "token_type_embeddings")[0]
                x = self.norm(x + self.get(e + "position_embeddings")[:x.shape[1]], e + "LayerNorm")
            hidden = None if mask is None else (1.0 - mask[:, None, None, :].to(x.dtype)) * -1e9
            split = lambda x: x.view(x.shape[0], x.shape[1], m.heads, m.d // m.heads).transpose(1, 2)
            for i in range(m.layers):
                p = f"encoder.layer.{i}."
                q, k, v = (split(self.linear(x, p + f"attention.self.{n}")) for n in ("query", "key", "value"))
                a = self.attend(q, k, v, hidden).transpose(1, 2).reshape(x.shape)
                x = self.norm(self.linear(a, p + "attention.output.dense") + x, p + NORMS[0])
                x = self.norm(self.linear(F.gelu(self.linear(x, p + "intermediate.dense")), p + "output.dense") + x, p + NORMS[1])
            if m.vocab:
                real = mask.unsqueeze(-1).to(x.dtype)
                x = F.normalize((x * real).sum(1) / real.sum(1), dim=1)
            return x
    return Encoder().eval()


def transformers_model(given):
    import torch
    import transformers
    torch.set_num_threads(THREADS)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(eos_token_id=END)).eval()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in given.weights.items()}, strict=False)
    model.tie_weights()
    return model


def engine_torch(given):
    import torch
    torch.inference_mode().__enter__()
    model = transformers_model(given) if given.workload == "W5" else torch_model(given)

    def prepare(case):
        arguments = tuple(torch.from_numpy(a) for a in given.arguments(case))
        if given.workload == "W5":
            more = {"do_sample": False, "min_new_tokens": NEW, "max_new_tokens": NEW, "pad_token_id": 0}
            mask = torch.ones_like(arguments[0])
            return lambda: model.generate(input_ids=arguments[0], attention_mask=mask, **more)[:, -NEW:].numpy()
        return lambda: model(*arguments).numpy()
    return prepare


def some_arguments(given):
    import torch
    return tuple(torch.from_numpy(a) for a in given.arguments(next(name for name, of, _, _ in CASES if of == given.workload)))


def engine_ort(given):
    import torch
    from onnxruntime.transformers.optimizer import optimize_model
    path, names = f"{given.folder}/model.onnx", ["x", "mask"][:1 if given.workload == "W1" else 2]
    torch.onnx.export(torch_model(given, fused=False), some_arguments(given), path, dynamo=False, opset_version=17,
                      input_names=names, output_names=["y"], dynamic_axes={n: {0: "batch", 1: "time"} for n in names})
    optimize_model(path, "bert", given.m.heads, given.m.d, opt_level=0).save_model_to_file(path)
    return ort_session(given, path)


def ort_session(given, path):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def prepare(case):
        feed = dict(zip(names, given.arguments(case)))
        return lambda: session.run(None, feed)[0]
    return prepare


def engine_openvino(given):
    import openvino
    path = f"{given.folder}/openvino.xml"
    openvino.save_model(openvino.convert_model(torch_model(given), example_input=some_arguments(given)), path,
                        compress_to_fp16=False)
    options = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": 1,
               "INFERENCE_PRECISION_HINT": "f32"}
    core = openvino.Core()

    def prepare(case):
        arguments, model = given.arguments(case), core.read_model(path)
        model.reshape({i: list(a.shape) for i, a in enumerate(arguments)})
        request = core.compile_model(model, "CPU", options).create_infer_request()
        return lambda: request.infer(arguments, share_inputs=True, share_outputs=True)[0]
    return prepare


def ct2_encoder(given):
    """Hidden states are given as ids of a table."""
    from ctranslate2.converters import utils
    from ctranslate2.specs import common_spec, transformer_spec
    np, m, w = given.np, given.m, given.weights
    spec = transformer_spec.TransformerEncoderSpec(
        m.layers, m.heads, pre_norm=False, activation=common_spec.Activation.GELU, layernorm_embedding=bool(m.vocab),
        num_source_embeddings=2 if m.vocab else 1, embeddings_merge=common_spec.EmbeddingsMerge.ADD)
    spec.scale_embeddings = False

    def put(part, name):
        first, second = ("gamma", "beta") if isinstance(part, common_spec.LayerNormSpec) else ("weight", "bias")
        setattr(part, first, w[name + ".weight"]), setattr(part, second, w[name + ".bias"])
        return part

    if m.vocab:
        e = "embeddings."
        spec.embeddings[0].weight, spec.embeddings[1].weight = w[e + "word_embeddings.weight"], w[e + "token_type_embeddings.weight"]
        spec.position_encodings.encodings = w[e + "position_embeddings.weight"]
        put(spec.layernorm_embedding, e + "LayerNorm")
        tokens = m.vocab
    else:
        table = np.concatenate([given.arguments(name)[0].reshape(-1, m.d) for name, of, _, _ in CASES if of == "W1"])
        spec.embeddings[0].weight, spec.position_encodings.encodings = table, np.zeros((512, m.d), np.float32)
        tokens = len(table)
    for i, layer in enumerate(spec.layer):
        p, attention = f"encoder.layer.{i}.", layer.self_attention
        utils.fuse_linear(attention.linear[0], [put(common_spec.LinearSpec(), p + name) for name in list(LINEARS)[:3]])
        for part, name in ((attention.linear[1], "attention.output.dense"), (layer.ffn.linear_0, "intermediate.dense"),
                           (layer.ffn.linear_1, "output.dense"), (attention.layer_norm, NORMS[0]), (layer.ffn.layer_norm, NORMS[1])):
            put(part, p + name)
    whole = transformer_spec.TransformerEncoderModelSpec(spec)
    whole.config.layer_norm_epsilon, whole.config.unk_token = EPS, "t0"
    whole.register_vocabulary([f"t{i}" for i in range(tokens)])
    return whole


def ct2_generator(given):
    import torch
    from ctranslate2.converters import transformers
    with torch.no_grad():
        spec = transformers.GPT2Loader().get_model_spec(transformers_model(given))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = "t1", f"t{END}", f"t{END}"
    spec.register_vocabulary([f"t{i}" for i in range(END + 1)])
    return spec


def engine_ct2(given):
    import ctranslate2
    np, folder = given.np, pathlib.Path(given.folder, "ct2")
    spec = (ct2_generator if given.workload == "W5" else ct2_encoder)(given)
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir()
    spec.save(str(folder))
    kind = ctranslate2.Generator if given.workload == "W5" else ctranslate2.Encoder
    model = kind(str(folder), compute_type="float32", inter_threads=1, intra_threads=THREADS)

    def pooled(hidden, mask):
        vectors = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def prepare(case):
        lengths, arguments = given.lengths(case), given.arguments(case)
        if given.workload == "W1":
            first = 0
            for name, of, others, _ in CASES:
                if name == case:
                    break
                first += sum(others) if of == "W1" else 0
            rows = [list(range(first, first + lengths[0]))]
            return lambda: np.array(model.forward_batch(rows).last_hidden_state)
        rows = [row[:n].tolist() for row, n in zip(arguments[0], lengths)]
        if given.workload == "W2":
            return lambda: pooled(np.array(model.forward_batch(rows).last_hidden_state), arguments[1])
        texts = [[f"t{i}" for i in row] for row in rows]
        more = {"max_length": NEW, "min_length": NEW, "sampling_topk": 1, "include_prompt_in_result": False}
        return lambda: np.array([[int(t[1:]) for t in made.sequences[0]] for made in model.generate_batch(texts, **more)], "i4")
    return prepare


def write_gguf(given, path):
    import gguf
    np, w = given.np, {name.removeprefix("transformer."): value for name, value in given.weights.items()}
    out = gguf.GGUFWriter(path, "gpt2")
    out.add_block_count(given.m.layers), out.add_context_length(1024), out.add_embedding_length(given.m.d)
    out.add_feed_forward_length(given.m.ffn), out.add_head_count(given.m.heads), out.add_layer_norm_eps(1e-5)
    out.add_tokenizer_model("no_vocab"), out.add_vocab_size(END + 1)
    put = lambda name, value: out.add_tensor(name, np.ascontiguousarray(value))
    put("token_embd.weight", w["wte.weight"]), put("position_embd.weight", w["wpe.weight"]), put("output.weight", w["wte.weight"])
    put("output_norm.weight", w["ln_f.weight"]), put("output_norm.bias", w["ln_f.bias"])
    for i in range(given.m.layers):
        for name, theirs in (("attn_norm", "ln_1"), ("attn_qkv", "attn.c_attn"), ("attn_output", "attn.c_proj"),
                             ("ffn_norm", "ln_2"), ("ffn_up", "mlp.c_fc"), ("ffn_down", "mlp.c_proj")):
            put(f"blk.{i}.{name}.weight", w[f"h.{i}.{theirs}.weight"].T), put(f"blk.{i}.{name}.bias", w[f"h.{i}.{theirs}.bias"])
    out.write_header_to_file(), out.write_kv_data_to_file(), out.write_tensors_to_file(), out.close()


def engine_llama(given):
    import llama_cpp
    np, path = given.np, f"{given.folder}/model.gguf"
    write_gguf(given, path)
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise RuntimeError("llama.cpp cannot read its file")
    p = llama_cpp.llama_context_default_params()
    p.n_ctx, p.n_batch, p.n_threads, p.n_threads_batch, p.type_k, p.type_v = 256, 256, THREADS, THREADS, 0, 0
    context, batch = llama_cpp.llama_init_from_model(model, p), llama_cpp.llama_batch_init(256, 0, 1)

    def step(tokens, past):
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = token, past + i, 1, 0
            batch.logits[i] = i == len(tokens) - 1
        batch.n_tokens = len(tokens)
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama_decode failed")
        return int(np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, len(tokens) - 1), (END,)).argmax())

    def prepare(case):
        prompt = given.arguments(case)[0][0].tolist()

        def run():
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
            tokens, past, made = prompt, 0, []
            while len(made) < NEW:
                made.append(step(tokens, past))
                past, tokens = past + len(tokens), made[-1:]
            return np.array([made], "i4")
        return run
    return prepare


def work(engine, workload, folder):
    """bench-compare's protocol."""
    say = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is no answer
    try:
        prepare, runs = globals()["engine_" + engine](Given(workload, folder)), {}
    except Exception as reason:  # whatever an engine raises
        print("@fail", " ".join(str(reason).split())[:200] or type(reason).__name__, file=say)
        return
    print("@ready", file=say)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "quit":
            break
        if command == "out":
            runs[words[0]] = prepare(words[0])
            result = runs[words[0]]()
            result.astype("i4" if workload == "W5" else "f4").tofile(words[1])
            print("@ok", file=say)
        elif command == "go":
            run, times = runs[words[0]], []
            for i in range(int(words[1]) + int(words[2])):
                start = time.perf_counter()
                run()
                times.append(time.perf_counter() - start)
            print("@times", *times[int(words[1]):], file=say)


# ---- the rounds ----

class Worker:
    """A process, stopped while it is not asked."""

    def __init__(self, engine, command, patience):
        environment = {**os.environ, "PEERS_THREADS": str(THREADS), "OMP_NUM_THREADS": str(THREADS)}
        self.engine, self.patience, self.log = engine, patience, tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        cwd=PROJECT, env=environment)
        self.failure = None
        self.answer()

    def answer(self):
        """The words after the first; none after a failure."""
        late = threading.Timer(self.patience, self.process.kill)
        late.start()
        line = next((line for line in self.process.stdout if line.startswith("@")), None)
        late.cancel()
        if line and not line.startswith("@fail"):
            self.process.send_signal(signal.SIGSTOP)
            return line.split()[1:]
        self.log.seek(0)
        last = (self.log.read().strip().splitlines() or ["it ended"])[-1][:200]
        self.failure = line[5:].strip() if line else last if self.process.wait() != -signal.SIGKILL else "no answer in time"
        return []

    def ask(self, line):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.kill()
        self.process.wait()


def start_workers(program, workload, folder, patience, workers):
    """Adds those that can run; returns why the others cannot."""
    reasons = {}
    for engine in ENGINES:
        if workload not in ALONE.get(engine, MODELS):
            continue
        own = [sys.executable, os.path.abspath(__file__), "--worker", engine]
        worker = Worker(engine, [*([program] if engine == "tfmc" else own), workload, folder], patience)
        if worker.failure:
            reasons[engine] = worker.failure
            worker.close()
        else:
            workers.append(worker)
    return reasons


def differences(np, workload, results):
    """Of each engine from PyTorch."""
    base = results.get("torch")
    if base is None:
        return {}
    if workload == "W5":
        return {engine: f"{int((result != base).sum())} of {base.size} tokens" for engine, result in results.items()}
    return {engine: f"{np.abs(result - base).max():.0e}" for engine, result in results.items()}


def measure(np, case, workload, workers, folder, rounds):
    """Times of each engine by rounds, and how far its result is from PyTorch's."""
    results, times = {}, {}
    for worker in list(workers):
        path = f"{folder}/{worker.engine}.out"
        worker.ask(f"out {case} {path}")
        if worker.failure:
            print(f"not run: {case} by {ENGINES[worker.engine]}: {worker.failure}")
            workers.remove(worker)
            worker.close()
            continue
        results[worker.engine] = np.fromfile(path, "i4" if workload == "W5" else "f4")
        times[worker.engine] = []
    for _ in range(rounds):
        for worker in random.sample(workers, len(workers)):
            burst = "0 1" if workload == "W5" else "1 3"  # 64 tokens are enough to be warm
            times[worker.engine].append([float(t) for t in worker.ask(f"go {case} {burst}")])
            if worker.failure:
                raise SystemExit(f"{case} by {ENGINES[worker.engine]}: {worker.failure}")
    return times, differences(np, workload, results)


def summarize(case, times, far):
    """Prints the case; returns the median time of tfmc and the ratios of the others."""
    median = {engine: [statistics.median(burst) for burst in bursts] for engine, bursts in times.items()}
    row = {}
    print(f"\n{case}")
    for engine, medians in median.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(medians, median["tfmc"])) if "tfmc" in median else math.nan
        row[engine] = statistics.median(medians) if engine == "tfmc" else ratio
        best = min(min(burst) for burst in times[engine])
        print(f"  {ENGINES[engine]:14} best {best * 1e3:8.2f} ms, median {statistics.median(medians) * 1e3:8.2f} ms, "
              f"{ratio:5.2f} of tfmc's, from PyTorch's: {far.get(engine, '-')}", flush=True)
    return row


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    flags = open("/proc/cpuinfo").read()
    width = "AVX-512" if "avx512f" in flags else "AVX2" if "avx2" in flags else "SSE"
    return f"{model}, {width}, {THREADS} threads, {platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f}"


def versions():
    found = []
    for engine, packages in PACKAGES.items():
        for package in packages:
            try:
                found.append(f"{package} {importlib.metadata.version(package)}")
            except importlib.metadata.PackageNotFoundError:
                found.append(f"{package} is not installed")
    return ", ".join(found)


def print_table(rows, reasons):
    print("\n| | " + " | ".join(ENGINES.values()) + " |\n|---|" + "---|" * len(ENGINES))
    for _, workload, _, title in [case for case in CASES if case[0] in rows]:
        row, cells = rows[next(c[0] for c in CASES if c[3] == title)], []
        for engine in ENGINES:
            if engine in row:
                cells.append(f"{row[engine] * 1e3:.1f} ms" if engine == "tfmc" else f"{row[engine]:.2f}")
            else:
                cells.append("–" if workload not in ALONE.get(engine, MODELS) else "not run")
        print(f"| {title} | " + " | ".join(cells) + " |")
    for (workload, engine), reason in reasons.items():
        print(f"not run: {MODELS[workload].title} by {ENGINES[engine]}: {reason}")


def lacks_packages():
    missing = [name for name in ("numpy", "safetensors", "torch") if not importlib.util.find_spec(name)]
    if missing:
        print(f"not run: this Python lacks {', '.join(missing)}")
    return bool(missing)


def main():
    if sys.argv[1:2] == ["--worker"]:
        return work(*sys.argv[2:])
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--patience", type=float, default=600)
    parser.add_argument("--only", nargs="*", choices=[case[0] for case in CASES], default=[case[0] for case in CASES])
    args = parser.parse_args()
    if lacks_packages():
        return 77
    import numpy as np
    from safetensors.numpy import save_file
    rows, reasons, workers = {}, {}, []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # workers must not stay behind, least of all stopped
    for workload in MODELS:
        cases = [case for case in CASES if case[1] == workload and case[0] in args.only]
        if not cases:
            continue
        with tempfile.TemporaryDirectory() as folder:
            write_folder(np, save_file, workload, folder)
            try:
                why = start_workers(os.path.abspath(args.program), workload, folder, args.patience, workers)
                reasons |= {(workload, engine): reason for engine, reason in why.items()}
                for case, _, _, title in cases:
                    rows[case] = summarize(title, *measure(np, case, workload, workers, folder, args.rounds))
            finally:
                while workers:
                    workers.pop().close()
    print(f"\n{machine()}\n{versions()}\n{args.rounds} rounds; tfmc: median time; others: time / tfmc's in the same round")
    print_table(rows, reasons)
    return 0


if __name__ == "__main__":
    sys.exit(main())
