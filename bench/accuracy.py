#!/usr/bin/env python3
"""What fewer bits cost on real weights: tfmc's number types beside other engines' int8.

usage: accuracy.py TFMC encoder FOLDER [--text FILE] [--texts N] [--alone]
       accuracy.py TFMC writer FOLDER [--text FILE] [--tokens N] [--length N] [--alone]

FOLDER holds config.json, model.safetensors and tokenizer.json as Hugging Face saves them: a sentence encoder of BERT's
kind (all-MiniLM-L6-v2, which scripts/fetch-weights.sh downloads), or a language model of Llama's kind. All engines get
the same ids, cut from FILE (for an encoder each line is a text), or from the prose of Python's own manual. Printed as Markdown, each
against the f32 result of PyTorch; with --alone other engines are left out, and each is compared with tfmc's own f32, whatever the folder's
pooling is:

encoder   cosine of the sentence vectors (mean, 1 % quantile, worst), how often the nearest sentence is the same, the
          share of the ten nearest that are, Spearman's correlation of all similarities
writer    perplexity, how often the best next token is the same, mean Kullback-Leibler divergence in nats

Others are built as their manuals say and without calibration, as tfmc is: ONNX Runtime by quantize_dynamic with scales
per channel, CTranslate2 by its converter and compute_type int8. Needs torch, transformers, safetensors; an engine whose
package is missing is `not run`. --alone needs numpy, safetensors and tokenizers alone. It measures, and is not part of the test suite.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import numpy as np

TYPES = ("f32", "bf16", "f16", "int8", "int4")


def prose():
    """Paragraphs of Python's manual as sentences on one line, in an order that does not depend on the machine."""
    from pydoc_data.topics import topics
    for name in sorted(topics):
        for paragraph in topics[name].split("\n\n"):
            line = " ".join(paragraph.split())
            if 30 <= len(line) <= 500 and line[0].isupper() and line[-1] in ".:":
                yield line


def texts(path):
    """Lines of the user's file that are not empty."""
    if path is None:
        return list(prose())
    found = [" ".join(line.split()) for line in path.read_text().splitlines() if line.strip()]
    if not found:
        sys.exit(f"{path}: there is no text in it")
    return found


def run_tfmc(tfmc, model, folder, rule, inputs, output, scratch):
    """The output of `tfmc run` under one rule of --quantize."""
    from safetensors.numpy import load_file, save_file
    given, made = scratch / "given.safetensors", scratch / "made.safetensors"
    save_file({name: np.ascontiguousarray(value, np.int32) for name, value in inputs.items()}, given)
    subprocess.run([tfmc, "run", model, "--weights", folder, "--quantize", rule, "--inputs", given, "-o", made, "-q"],
                   check=True)
    return load_file(made)[output]


def of_length_1(vectors):
    return vectors.astype(float) / np.linalg.norm(vectors.astype(float), axis=-1, keepdims=True)


def pooled(hidden, mask):
    """Mean of the rows that are real, of length 1: sentence-transformers' pooling."""
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)


# ------------------------------------------------ sentence encoders
def quantized_session(module, names, outputs, scratch):
    """ONNX Runtime's dynamic int8 of a module that takes int64 tensors [rows, positions] of any sizes."""
    import onnxruntime
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    exact, small = scratch / "exact.onnx", scratch / "int8.onnx"
    sizes = {0: torch.export.Dim("rows", min=1, max=4096), 1: torch.export.Dim("positions", min=2, max=512)}
    example = tuple(torch.ones(2, 8, dtype=torch.int64) for _ in names)
    torch.onnx.export(module.eval(), example, exact, input_names=names, output_names=outputs, dynamo=True,
                      dynamic_shapes=(sizes,) * len(names), external_data=False, verbose=False)
    quantize_dynamic(exact, small, per_channel=True, weight_type=QuantType.QInt8)
    return onnxruntime.InferenceSession(small, providers=["CPUExecutionProvider"])


def ort_encoder(folder, ids, mask, scratch):
    import torch
    from transformers import AutoModel

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder)

        def forward(self, ids, mask):
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    session = quantized_session(Hidden(), ["ids", "mask"], ["hidden"], scratch)
    return pooled(session.run(None, {"ids": ids.astype(np.int64), "mask": mask.astype(np.int64)})[0], mask)


def ct2_encoder(folder, ids, mask, scratch):
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    TransformersConverter(str(folder)).convert(str(scratch / "ct2"), force=True)
    encoder = ctranslate2.Encoder(str(scratch / "ct2"), compute_type="int8")
    lengths = mask.sum(1)
    rows = [row[:n].tolist() for row, n in zip(ids, lengths)]
    hidden = np.array(encoder.forward_batch(rows).last_hidden_state)
    return pooled(hidden, mask[:, :hidden.shape[1]])


def ranks(values):
    order = np.empty(len(values))
    order[values.argsort(kind="stable")] = np.arange(len(values))
    return order


def neighbours(vectors, count):
    similar = vectors @ vectors.T
    np.fill_diagonal(similar, -2)
    return np.argsort(-similar, axis=1, kind="stable")[:, :count]


def encoder_row(vectors, exact):
    cosines = (vectors * exact).sum(-1)
    upper = np.triu_indices(len(exact), 1)
    rho = np.corrcoef(ranks((vectors @ vectors.T)[upper]), ranks((exact @ exact.T)[upper]))[0, 1]
    ours, theirs = neighbours(vectors, 10), neighbours(exact, 10)
    ten = np.mean([len(set(a) & set(b)) for a, b in zip(ours, theirs)]) * 10
    return (f"{1 - cosines.mean():.1e} | {1 - np.quantile(cosines, 0.01):.1e} | {1 - cosines.min():.1e} | "
            f"{100 * (ours[:, 0] == theirs[:, 0]).mean():.1f} | {ten:.1f} | {rho:.5f}")


def torch_vectors(folder, ids, mask):
    import torch
    from transformers import AutoModel
    module = AutoModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        hidden = module(torch.from_numpy(ids).long(), torch.from_numpy(mask).long()).last_hidden_state.double().numpy()
    return pooled(hidden, mask)


def encoder(tfmc, folder, given, scratch):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(128)
    tokenizer.enable_padding()
    lines = texts(given.text)
    count = min(given.texts, len(lines))
    if count < 12:
        sys.exit(f"{count} texts: the ten nearest of each need at least 12")
    encoded = tokenizer.encode_batch([lines[i * len(lines) // count] for i in range(count)])
    ids = np.array([e.ids for e in encoded], np.int32)
    mask = np.array([e.attention_mask for e in encoded], np.int32)
    model = scratch / "encoder.tfm"
    subprocess.run([tfmc, "import", folder, "-o", model, "-q"], check=True)
    print(f"{count} texts, {mask.sum()} tokens\n\n| | 1 - cos: mean | 1 % | worst | nearest % | ten nearest % | rho |\n"
          "|---|---|---|---|---|---|---|")
    inputs = {"input_ids": ids, "attention_mask": mask}

    def vectors(kind):
        return of_length_1(run_tfmc(tfmc, model, folder, kind, inputs, "sentence_embedding", scratch))

    exact = vectors("f32") if given.alone else torch_vectors(folder, ids, mask)
    for kind in TYPES[1:] if given.alone else TYPES:
        yield f"tfmc {kind}", lambda: vectors(kind), lambda made: encoder_row(made, exact)
    if given.alone:
        return
    yield "ONNX Runtime int8", lambda: ort_encoder(folder, ids, mask, scratch), lambda made: encoder_row(made, exact)
    yield "CTranslate2 int8", lambda: ct2_encoder(folder, ids, mask, scratch), lambda made: encoder_row(made, exact)


# ------------------------------------------------ language models
def ort_writer(folder, scratch):
    import torch
    from transformers import AutoModelForCausalLM

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModelForCausalLM.from_pretrained(folder).float()

        def forward(self, ids):
            return self.model(input_ids=ids, use_cache=False).logits

    session = quantized_session(Logits(), ["ids"], ["logits"], scratch)
    return lambda row: session.run(None, {"ids": row[None].astype(np.int64)})[0][0]


def ct2_writer(folder, scratch):
    import ctranslate2
    from ctranslate2.converters import TransformersConverter
    TransformersConverter(str(folder)).convert(str(scratch / "ct2"), force=True)
    generator = ctranslate2.Generator(str(scratch / "ct2"), compute_type="int8")
    return lambda row: np.array(generator.forward_batch([row.tolist()]))[0]


def log_softmax(scores):
    scores = scores[:-1].astype(float)
    scores -= scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def writer_row(logits_of, rows, exact):
    """Each row alone, so that scores of no more than one are in memory beside the exact ones."""
    loss, same, divergence, count = 0.0, 0, 0.0, 0
    for row, true in zip(rows, exact):
        made = log_softmax(logits_of(row))
        loss -= made[np.arange(len(row) - 1), row[1:]].sum()
        same += int((made.argmax(-1) == true.argmax(-1)).sum())
        divergence += (np.exp(true) * (true - made)).sum()
        count += len(row) - 1
    return f"{np.exp(loss / count):.2f} | {100 * same / count:.1f} | {divergence / count:.4f}"


def torch_logits(folder):
    import torch
    from transformers import AutoModelForCausalLM
    module = AutoModelForCausalLM.from_pretrained(folder).float().eval()

    def exact(row):
        with torch.inference_mode():
            return module(torch.from_numpy(row[None]).long()).logits[0].numpy()
    return exact


def writer(tfmc, folder, given, scratch):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = np.array(tokenizer.encode(" ".join(texts(given.text)), add_special_tokens=False).ids[:given.tokens], np.int32)
    length = given.length
    if len(ids) < length:
        sys.exit(f"the text has {len(ids)} tokens, a row {length}; --length takes fewer")
    rows = ids[:len(ids) // length * length].reshape(-1, length)
    model = scratch / "writer.tfm"
    subprocess.run([tfmc, "import", folder, "-o", model, "-q"], check=True)
    print(f"{rows.size} tokens in rows of {length}\n\n| | perplexity | same best token % | KL |\n|---|---|---|---|")

    def logits(kind):
        return lambda row: run_tfmc(tfmc, model, folder, kind, {"input_ids": row[None]}, "logits", scratch)[0]

    exact = logits("f32") if given.alone else torch_logits(folder)
    true = [log_softmax(exact(row)) for row in rows]
    for kind in TYPES:
        yield f"tfmc {kind}", lambda: logits(kind), lambda made: writer_row(made, rows, true)
    if given.alone:
        return
    yield "ONNX Runtime int8", lambda: ort_writer(folder, scratch), lambda made: writer_row(made, rows, true)
    yield "CTranslate2 int8", lambda: ct2_writer(folder, scratch), lambda made: writer_row(made, rows, true)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tfmc")
    parser.add_argument("kind", choices=("encoder", "writer"))
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=6144)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure = encoder if given.kind == "encoder" else writer
        measured = measure(given.tfmc, given.folder, given, pathlib.Path(folder))
        for name, make, judge in measured:
            try:
                row = judge(make())
            except ImportError as missing:
                row = f"not run: {missing}"
            print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
