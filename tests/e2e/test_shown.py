#!/usr/bin/env python3
"""usage: test_shown.py TFMC ROOT [--all] [NAME ...]

What is shown is what runs. Every family of models/ (a checkpoint of tests/models/cases for each of its model types, each
head, each kind of a folder of sentence transformers), the golden cases that are whole models, and the examples are run
by `tfmc profile`, which counts the steps that it ran. Beside it:

- `dump --stage=plan` shows that many steps;
- the reports of dump and graph are the report of the run, word for word; no place of a report says both that something
  was fused and that it was not;
- --require-fusion of dump refuses what that of profile refuses, with the same messages, and passes what that passes;
- of generative models the same for a decoding step (`dump --stage=step-plan`, `profile --decode`).

Models with a train block are trained by `tfmc train`, which says what a part of a batch runs: the steps are those of
`dump --stage=gradients-plan`, the reports and what --require-fusion says are the same. `evaluate` runs fewer steps and
says so. Every file of models/ is among the cases. NAME: only these cases; --all: every checkpoint of tests/models and
every golden case, single operations too, in an hour. The last line is 'N passed, N failed'.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import save_file

TFMC, ROOT = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
ALL = "--all" in sys.argv
ONLY = set(sys.argv[3:]) - {"--all"}
sys.path.insert(0, str(ROOT / "tests/models"))
import checkpoint  # noqa: E402

LISTED = subprocess.run([TFMC, "document", "fusions"], capture_output=True, text=True, check=True).stdout
FUSIONS = [name for name in re.findall(r"^\| `([a-z-]+)`", LISTED, re.M) if name != "incremental"]
assert "experts" in FUSIONS and "attention" in FUSIONS, LISTED


def tfmc(*args, code=0):
    done = subprocess.run([TFMC, *map(str, args)], capture_output=True, text=True)
    if done.returncode != code:
        raise AssertionError(f"tfmc {' '.join(map(str, args))} ends with {done.returncode}: {done.stderr[:600]}")
    return done


def shown_steps(text):
    return len(re.findall(r"^    \d+: ", text, re.M))


def run_steps(text):
    return int(re.search(r" in (\d+) steps?", text).group(1))


def trained_steps(text):
    return int(re.search(r"^a part of a batch runs in (\d+) steps?$", text, re.M).group(1))


def report_of(text):
    """The report that stands before what a command prints."""
    return re.search(r"\A(.*?^  weights .*?\n)", text, re.M | re.S).group(1)


def split_fusions(report):
    """Names that were fused and nowhere refused, and all others."""
    fused, refused = (set(re.findall(r"^  ([a-z-]+) +\S", part, re.M)) for part in sections(report))
    passing = [name for name in FUSIONS if name in fused and name not in refused]
    return passing, [name for name in FUSIONS if name not in passing]


def sections(report):
    parts = {title: "" for title in ("fused", "not fused")}
    for title, body in re.findall(r"^(fused|not fused)\n((?:  .*\n)*)", report, re.M):
        parts[title] = body
    return parts["fused"], parts["not fused"]


def contradictions(report):
    """What is done and refused at one place of one module, of fusions that a place hardly has several of."""
    done, refused = ({tuple(line.split()[:3]) for line in part.splitlines() if re.match("  (attention|experts) ", line)}
                     for part in sections(report))
    return done & refused


def probabilities(text):
    """How many attentions a report says write their probabilities out, and how many operations do."""
    said = sum(int(times or 1) for times in re.findall(
        r"^  attention  .*?(?:\((\d+) times\))?\n.*; the probabilities are written out", text, re.M))
    return said, len(re.findall(r" = attention_weights ", text))


def check_report(report, graph):
    """`graph`: the text of dump with the report before it."""
    assert not contradictions(report), f"the report says both of {contradictions(report)}"
    said, done = probabilities(graph)
    assert said == done, f"the report says that {said} probabilities are written out; there are {done}"


def required(names):
    return [f"--require-fusion={name}" for name in names]


def weights_that_decide(weights):
    """dump and graph need the weights where their types decide what is fused: those that are not f32."""
    files = [pathlib.Path(w) for w in weights if w != "--weights"]
    files = [file for path in files for file in (path.glob("*.safetensors") if path.is_dir() else [path])]
    types = set()
    for file in files:
        with open(file, "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        types |= {tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"}
    return weights if types - {"F32", "I32", "I64", "BOOL"} else []


def compare(model, options, weights, run, stages):
    """`options`: of all commands, `run`: of the run; `stages`: the graph after the passes, and the plan."""
    run, options = [*weights, *run], [*options, *weights_that_decide(weights)]
    run = [word for word in run if word not in options]
    fused, plan = stages
    shown = tfmc("dump", *model, *options, f"--stage={plan}", "--report").stdout
    report = report_of(shown)
    passing, failing = split_fusions(report)
    check_report(report, tfmc("dump", *model, *options, f"--stage={fused}", "--report", *required(passing)).stdout)
    ran = tfmc("profile", *model, *options, *run, "--report", *required(passing)).stdout
    assert report_of(ran) == report, f"dump reports\n{report}\nprofile reports\n{report_of(ran)}"
    assert shown_steps(shown) == run_steps(ran), f"{shown_steps(shown)} steps are shown, {run_steps(ran)} run"
    picture = tfmc("graph", *model, *options, f"--stage={plan}", "--format=dot", "--report").stdout
    assert report_of(picture) == report, f"dump reports\n{report}\ngraph reports\n{report_of(picture)}"
    messages = [tfmc(*words, *required(failing), code=1).stderr
                for words in (("dump", *model, *options, f"--stage={fused}", "-o", "/dev/null"),
                              ("profile", *model, *options, *run))]
    # of the weights, which dump does not read, a run may warn: those of a model's other parts lie beside them
    messages = [re.sub(r"^tfmc: .*\n|^.*: warning: (?:tensor|\d+ more tensors) .*\n", "", m, flags=re.M) for m in messages]
    assert messages[0] == messages[1], f"dump refuses\n{messages[0]}\nprofile refuses\n{messages[1]}"


WHOLE, STEP = ("fused", "plan"), ("step-fused", "step-plan")
ONCE = ["--warmup=0", "--iterations=1", "--threads=1"]


def compare_step(model, options, weights, run):
    """Where there is an incremental form."""
    words = [*model, *options, *weights_that_decide(weights), "--stage=step-plan", "-o", "/dev/null"]
    done = subprocess.run([TFMC, *map(str, ["dump", *words])],
                          capture_output=True, text=True)
    if done.returncode == 0:
        compare(model, options, weights, [*run, "--decode"], STEP)


def quiet(options):
    """Without those that a case needs for its own ends."""
    return [o for o in options if not o.startswith("--require-fusion")]


def gradients(path, folder):
    """A step of training, whose graph is the gradients of the objective; the loss alone where a case is an evaluation."""
    spec = json.loads((path / "case.json").read_text())
    model, train = [path / "model.tfm"], spec.get("train", {})
    options = [w for k, v in spec.get("defines", {}).items() for w in ("-D", f"{k}={v}")]
    shown = tfmc("dump", *model, *options, "--stage=gradients-plan", "--report").stdout
    report = report_of(shown)
    check_report(report, tfmc("dump", *model, *options, "--stage=gradients-fused", "--report").stdout)
    passing, failing = split_fusions(report)
    weights = path / "weights.safetensors"
    given = [*options, "--batches", path / "inputs.safetensors", "--threads=1", *(["--weights", weights] if weights.exists() else [])]
    if train.get("mode") != "evaluate" and (path / "inputs.safetensors").exists():
        run = ["train", *model, *given, "--steps=1", "-o", folder / "out.safetensors"]
        ran = tfmc(*run, "--report", *required(passing)).stdout
        assert report_of(ran) == report, f"dump reports\n{report}\ntrain reports\n{report_of(ran)}"
        assert shown_steps(shown) == trained_steps(ran), f"{shown_steps(shown)} steps are shown, {trained_steps(ran)} run"
        messages = [tfmc(*words, *required(failing), code=1).stderr
                    for words in (("dump", *model, *options, "--stage=gradients-plan", "-q", "-o", folder / "plan"), [*run, "-q"])]
        messages = [re.sub(r"^tfmc: .*\n", "", m, flags=re.M) for m in messages]
        assert messages[0] == messages[1], f"dump refuses\n{messages[0]}\ntrain refuses\n{messages[1]}"
    if weights.exists() and (path / "inputs.safetensors").exists():
        ran = tfmc("evaluate", *model, *given, "--report").stdout
        assert not contradictions(report_of(ran)), f"the report says both of {contradictions(report_of(ran))}"
        assert trained_steps(ran) < shown_steps(shown), f"{trained_steps(ran)} steps without gradients, {shown_steps(shown)} with them"


FAMILIES = {name: file.name for file in sorted((ROOT / "models").glob("*.tfm"))
            for name in re.findall(r"^model (\w+)", file.read_text(), re.M)}
SEEN = set()  # files of models/


def family(case, folder):
    checkpoint.write(case, folder)
    text = folder / "model.tfm"
    tfmc("import", folder, "-o", text)
    SEEN.update(FAMILIES[name] for name in re.findall(r"^model (\w+)", text.read_text(), re.M))
    inputs = {k: np.array(v) for k, v in case["inputs"].items()}
    inputs = {k: np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int32) for k, v in inputs.items()}
    save_file(inputs, folder / "in.safetensors")
    weights = ["--weights", folder]
    compare([text], quiet(case.get("options", [])), weights, ["--inputs", folder / "in.safetensors", *ONCE], WHOLE)
    if "tokens" in case:
        start = {k: v for k, v in inputs.items() if k != case["grows"] or not case["encoder"]}
        save_file(start, folder / "start.safetensors")
        run = ["--inputs", folder / "start.safetensors", *ONCE]
        compare_step([text], quiet(case.get("options", [])), weights, run)


def golden(path, folder):
    spec = json.loads((path / "case.json").read_text())
    weights, run = [], list(ONCE)
    if (path / "weights.safetensors").exists():
        weights = ["--weights", path / "weights.safetensors"]
    else:
        run.append("--random-weights=1")
    if (path / "inputs.safetensors").exists():
        run += ["--inputs", path / "inputs.safetensors"]
    options = [w for k, v in spec.get("defines", {}).items() for w in ("-D", f"{k}={v}")] + quiet(spec.get("options", []))
    trial = compare_step if "generate" in spec else compare
    trial([path / "model.tfm"], options, weights, run, *([] if "generate" in spec else [WHOLE]))


def runs(path):
    spec = json.loads((path / "case.json").read_text())
    return "expect_error" not in spec and spec.get("stage") != "check" and "weights_from" not in spec


def example(path, folder):
    """With small random weights; the sizes of the inputs are made up."""
    checked = tfmc("check", path).stdout
    words = re.findall(r"^  (\w+) +\w+\[(.*)\]$", checked.split("outputs:")[0], re.M)
    run = ["--random-weights=1", *ONCE]
    for name, dims in words:
        sizes = [d if d.isdigit() else "3" for d in dims.split(", ")]
        run += ["--input", f"{name}={'x'.join(sizes)}"]
    compare([path], [], [], run, WHOLE)


WHOLE_MODELS = ("hf-", "gen-", "seed-", "experts", "fn-")  # of tests/goldens: others are single operations


def cases():
    seen = set()
    for path in [p for part in ("cases", "tables", "by_hand") for p in sorted((ROOT / "tests/models" / part).glob("*.json"))]:
        case = json.loads(path.read_text())
        config = case["files"].get("config.json", {})
        name = str((config.get("architectures") or [""])[0])
        kinds = {(config.get("model_type"), "tokens" in case, "Encoder" in name, "ImageClassification" in name),
                 ("head", re.search(r"For\w+$|$", name)[0]), ("folder", *sorted(f for f in case["files"] if "generation" not in f))}
        if ALL or not kinds <= seen or f"models/{path.stem}" in ONLY:
            seen |= kinds
            yield f"models/{path.stem}", family, case
    for root in ("tests/goldens", "tests/goldens/ragged", "tests/goldens/lang11", "tests/cases"):
        for path in sorted((ROOT / root).glob("*/case.json")):
            if runs(path.parent) and (ALL or path.parent.name.startswith(WHOLE_MODELS) or root != "tests/goldens"):
                yield f"{root}/{path.parent.name}", golden, path.parent
    for path in sorted((ROOT / "tests/goldens/train").glob("*/case.json")):
        if runs(path.parent):
            yield f"gradients/{path.parent.name}", gradients, path.parent
    for path in sorted((ROOT / "examples").glob("*/*.tfm")):
        yield f"examples/{path.stem}", example, path


def main():
    passed = failed = 0
    for name, trial, what in cases():
        if ONLY and name not in ONLY:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                trial(what, pathlib.Path(folder))
                passed += 1
                print(f"ok   {name}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL {name}: {error}", flush=True)
    missing = {file.name for file in (ROOT / "models").glob("*.tfm")} - SEEN
    if missing and not ONLY:
        failed += 1
        print(f"FAIL no case has {', '.join(sorted(missing))}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
