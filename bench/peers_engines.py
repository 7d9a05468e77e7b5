"""The engines of peers.py: each gives a function from a case to a function that runs it.

In: a folder (peers_models.Given). Out: answers by the protocol of bench-compare (README.md here). An engine whose packages are
missing fails, and says so.
"""
import math
import os
import pathlib
import sys
import time

import peers_models
from peers_models import END, EPS, LINEARS, NEW, NORMS, THREADS, Given


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
    return tuple(torch.from_numpy(a) for a in given.arguments(next(name for name, of, _, _ in peers_models.CASES if of == given.workload)))


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
        table = np.concatenate([given.arguments(name)[0].reshape(-1, m.d) for name, of, _, _ in peers_models.CASES if of == "W1"])
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
            for name, of, others, _ in peers_models.CASES:
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
