#!/usr/bin/env python3
"""usage: mutate.py TFMC CASES [CASE ...] [--show] [--part json|rotations|tokens|tensors|classes|fitting|ignored] [--quick]
       [--thin N] [--like REGEX] [--keep FOLDER] [--record FOLDER] [--all] [--log FILE]

Changes each folder of a case in one thing at a time: each key of each JSON file to other values of its type, none, or
gone; keys that are not there, those of the lists of ignored keys among them; other ways to write how positions turn;
each tensor gone, renamed, of another shape, with other numbers; tensors that nobody knows; each class of transformers
that the model type has; each key with weights that fit it. `tfmc import` and `tfmc run` must then compute what
transformers computes from the same folder, within 1e-5 of the largest number (where f32 rounds more, within 3 times the
rounding of transformers, or what the last bits of the weights change), or refuse; where transformers refuses, or its result depends on tensors that the folder does
not have, they must refuse. Keys that concern tokens: the same of `tfmc generate`. A warning is no excuse. Of a folder that reads pictures the part for
text is compared; what transformers cannot read the pictures with is counted as `tower`, if the model says that it was
not looked at. The last line
is 'N passed, N failed'; before it one for each case and part. With --keep what transformers made is kept, so that
another binary is compared without asking it again. Needs torch and transformers; test_mutations.py compares a part of
it with what was recorded here (--record). A change by which the process of transformers dies, or for which it wants more than
GIGABYTES of memory, has no answer: it is counted as such, is neither passed nor failed, and the case begins again without it.
"""
import argparse
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import re
import resource
import sys
import tempfile
import traceback
import zlib

import numpy as np
import torch
import transformers as hf
from safetensors.numpy import load_file

import checkpoint
import fork_server
import mutations
import unchanging
from import_and_run import SECONDS, Crash, Ours, Refused, write
from mutation_log import Log
from theirs import Declined, Kept, Theirs, Unanswered, aliases, architecture, prefixed, quiet, related

TOLERANCE = 1e-5
MOST_OF_ROUNDING = 1e-3
SHAKES = 4
VERDICTS = ("equal", "refused", "both refuse", "silent", "theirs refuses", "crash", "tower", "no answer")
GIGABYTES = 6  # of the process of a case, beyond what it has when it begins
TOWER = (r"\b(vision_config|audio_config|mm_tokens_per_image|projector_hidden_act|spatial_merge_size|image_token_\w+|"
         r"scale_factor|downsample_ratio|image_seq_length|vision_feature_\w+|multimodal_projector_bias)\b"
         r"|\b(visual|vision_tower|vision_model|audio_tower|embed_vision|embed_audio|multi_modal_projector|connector)\.")


# Types whose classes have numbers of their own at padding, which nobody reads, in outputs for each position.
PADDED = ("bart bert camembert deberta deberta-v2 eurobert gemma2 gemma3_text gte jina_embeddings_v3 llama mbart modernbert mpnet nomic_bert qwen2 "
          "qwen3 roberta t5 t5gemma umt5 xlm-roberta").split()


def digest(tensors):
    return {n: hashlib.sha256(repr((t.shape, t.dtype)).encode() + t.tobytes()).hexdigest() for n, t in tensors.items()}


def difference(made, wanted, mask, exact):
    """None, or what is wrong. Where f32 rounds more than the tolerance, what counts is exact(), the same in double: then the
    difference from it may be 3 times that of transformers itself, which may be small by luck, or what exact(seed) changes, where each
    weight is off by half of its last bit."""
    if not made:
        return "no output"
    for name, a in made.items():
        b = wanted.get(name)
        if b is None:
            return f"{name} is none of {sorted(wanted)}"
        if a.shape != b.shape:
            return f"{name} is {a.shape}, theirs is {b.shape}"
        if mask is not None and a.shape[:mask.ndim] == mask.shape:
            a, b = a[mask], b[mask]
        if not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return f"{name}: not finite in other places"
        worst = relative(a, b)
        if worst > TOLERANCE:
            def exactly(seed=None):
                c = exact(seed)[name]
                return c[mask] if mask is not None and c.shape[:mask.ndim] == mask.shape else c
            c = exactly()
            rounded = worst <= MOST_OF_ROUNDING and relative(a, c) <= max(TOLERANCE, 3 * relative(b, c))
            if not rounded and (worst > MOST_OF_ROUNDING or relative(a, c) > max(relative(exactly(s), c) for s in range(SHAKES))):
                return f"{name} differs by {worst:.2g} of the largest; from double by {relative(a, c):.2g}, theirs by {relative(b, c):.2g}"
    return None


def relative(a, b):
    finite = np.isfinite(b)
    return np.abs(a - b)[finite].max(initial=0) / max(1e-30, np.abs(b[finite]).max(initial=0))


def same_numbers(a, b):
    return a == b if isinstance(a, list) else sorted(a) == sorted(b) and all(np.array_equal(a[k], b[k]) for k in a)


def same_but_fill(a, b):
    first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a))
    return len(a) == len(b) and not any(a[first:]) and all(y == b[first - 1] for y in b[first:])


def same_tokens(a, b, beams=False):
    """Of beams transformers fills with the end where the token for that is 0 (docs/generation.md)."""
    if a == b or beams and len(a) == len(b) and all(map(same_but_fill, a, b)):
        return None
    return f"tokens {a}, theirs {b}"


class Case:
    def __init__(self, tfmc, path, folder, args):
        """`tfmc`: a Server of the binary."""
        self.case, self.args, self.name, self.folder = json.loads(path.read_text()), args, path.stem, folder
        self.files = mutations.with_early_end(self.case)
        self.tensors = {n: np.array(checkpoint.weight(n, s, self.case["gain"]), order="C") for n, s in self.case["weights"].items()}
        arrays = {k: np.array(v) for k, v in self.case["inputs"].items()}
        self.inputs = {k: np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int32) for k, v in arrays.items()}
        self.torches = {k: torch.from_numpy(np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int64))
                        for k, v in arrays.items()}
        self.doubles = {k: v.double() if v.is_floating_point() else v for k, v in self.torches.items()}
        masked = self.case.get("masked") or ("attention_mask" if "modules.json" in self.files else None)
        self.mask = self.inputs[masked] != 0 if masked else None
        self.ours = Ours(tfmc, folder, [o for o in self.case.get("options", []) if "fusion" not in o])
        self.theirs = Theirs(self.case)
        self.exact = {seed: Theirs(self.case, torch.float64, seed) for seed in (None, *range(SHAKES))}
        self.counts, self.faults, self.records, self.base = collections.Counter(), [], [], {}  # base: of outputs and of tokens
        self.kept = Kept(args.keep and args.keep / f"{path.stem}.pickle", self.case["inputs"])
        self.unchanged_by, self.is_unchanged = {}, False  # entries of lists; of the last change
        self.digest = digest(self.tensors)  # of the tensors in the folder

    def start(self, kind):
        """What generation begins with: an encoder-decoder begins by itself."""
        return {k: v for k, v in kind.items() if k != self.case["grows"] or not self.case["encoder"]}

    def judge(self, label, make, reference, compare):
        """The verdict, and what transformers made."""
        made = wanted = None
        try:
            made, refusal = make(), None
        except Refused as e:
            refusal = e
        except Crash as e:
            return self.fault(label, "crash", str(e))
        try:
            wanted, declined = None if refusal and self.args.quick else self.asked(label, reference), None
        except Declined as e:
            declined = e
        except Unanswered as e:
            if not refusal:
                return self.without_answer(label, str(e))
            declined = None
        if refusal:
            self.counts["both refuse" if declined else "refused"] += 1
            self.counts["late"] += refusal.late
            if self.args.show:
                print(f"  {'both' if declined else 'ours'}{' late' if refusal.late else ''}: {label}: {str(refusal)[:230]!r}"
                      f"{' / ' + str(declined) if declined else ''}", flush=True)
            return "refused", None
        if declined and self.is_of_tower(label) and "was not looked at" in self.ours.text.read_text():
            self.counts["tower"] += 1
            return "tower", None
        if declined:
            return self.fault(label, "theirs refuses", str(declined))
        wrong = compare(made, wanted)
        if wrong:
            return self.fault(label, "silent", wrong)
        self.counts["equal"] += 1
        self.is_unchanged = type(made) in self.base and same_numbers(made, self.base[type(made)])
        self.base.setdefault(type(made), made)
        if self.args.show:
            print(f"  {'unchanged' if same_numbers(made, self.base[type(made)]) else 'equal'}: {label}", flush=True)
        return "equal", wanted if isinstance(wanted, list) else {k: wanted[k][self.mask] if self.is_masked(wanted[k]) else wanted[k]
                                                                 for k in made}

    def asked(self, label, reference):
        """What transformers makes. Its process may die of it: the parent then finds the label in the file."""
        if label in self.args.deadly:
            raise Unanswered("its process dies")
        self.args.asking.write_text(label)
        try:
            return reference()
        finally:
            self.args.asking.write_text("")

    def without_answer(self, label, text):
        self.counts["no answer"] += 1
        print(f"  {self.name}: no answer: {label}: {text}", flush=True)
        return "no answer", None

    def is_of_tower(self, label):
        """Of a folder that reads pictures only its part for text is taken: what transformers reads them with may not be built.
        The model that is written must say so."""
        return "vision_config" in self.files["config.json"] and "text_config" not in label.split(" = ")[0] and re.search(TOWER, label)

    def is_masked(self, array):
        return self.mask is not None and array.shape[:self.mask.ndim] == self.mask.shape

    def fault(self, label, kind, text):
        self.counts[kind] += 1
        self.faults.append(f"{kind}: {label}: {text[:260]}")
        print(f"FAIL  {self.name}: {self.faults[-1]}", flush=True)
        return kind, None

    def outputs(self, mutation, files, tensors, label=None, tensors_key=None):
        write(self.folder, files, tensors)
        config = files.get("config.json", {})
        self.digest = self.digest if tensors is None else digest(tensors)
        return self.judge(label or mutations.text(mutation), lambda: self.ours.outputs(self.inputs, tensors_key),
                          lambda: self.kept.take(["vectors" if "modules.json" in files else "outputs", files, self.digest],
                                                 lambda: self.theirs.outputs(self.folder, config, self.torches)),
                          lambda a, b: difference(a, b, self.mask,
                                                  lambda seed: self.exact[seed].outputs(self.folder, config, self.doubles)))

    def tokens(self, mutation, files, label=None):
        write(self.folder, files, None)
        config = files["config.json"]
        return self.judge("tokens, " + (label or mutations.text(mutation)), lambda: self.ours.tokens(self.start(self.inputs)),
                          lambda: self.kept.take(["tokens", files, self.digest],
                                                 lambda: self.theirs.tokens(self.folder, config, self.start(self.torches))),
                          lambda a, b: same_tokens(a, b, mutation is not None and mutation[2] == ["num_beams"]))

    # ---- the parts ----

    def of_json(self):
        write(self.folder, self.files, self.tensors)
        config = self.files.get("config.json", {})
        for mutation in [*mutations.of_files(self.files, known_keys(self.args)), *aliases(config)]:
            if not re.search(self.args.like, mutations.text(mutation)) or self.is_thinned(mutation):
                continue
            files, _ = mutations.apply(mutation, self.files, None)
            if mutation[1] != "generation_config.json":
                self.record(mutation, *self.outputs(mutation, files, None))
            if self.case.get("grows") and concerns_tokens(mutation):
                self.record(["tokens", *mutation], *self.tokens(mutation, files))

    def is_thinned(self, mutation):
        """Of keys that a file does not have, --thin leaves some to other cases: which, the case and the change decide."""
        where, path = mutation[1:3]
        has = mutation[0] != "json" or where != "config.json" or path[0] in self.files[where]
        return not has and zlib.crc32(f"{self.name} {mutations.text(mutation)}".encode()) % self.args.thin != 0

    def of_ignored(self):
        """Each entry of the lists of keys that change nothing, of the family that computes the folder. What is the same with
        a change is kept: unchanging.py makes a table of it."""
        write(self.folder, self.files, self.tensors)
        config = self.files.get("config.json", {})
        for entry in unchanging.entries_of(self.args.family) if self.args.family else ():
            path = unchanging.place_of(entry, config)
            if not path or entry in self.args.tried:
                continue
            file, inside = unchanging.place_in_files(path)
            inner = self.files.get(file, {})
            for key in inside[:-1]:
                inner = inner[key]
            has = inside[-1] in inner
            for value in mutations.others(inside[-1], inner[inside[-1]]) if has else self.values_of(file, inside[-1], config):
                mutation = ["json", file, inside, value]
                files, _ = mutations.apply(mutation, self.files, None)
                verdict, _ = self.outputs(mutation, files, None) if file == "config.json" else self.tokens(mutation, files)
                if verdict == "equal" and self.is_unchanged:
                    self.unchanged_by.setdefault(entry, []).append([self.name, path, value])
                if len(self.unchanged_by.get(entry, ())) == 2:
                    break

    def values_of(self, file, key, config):
        """Of a key that the file does not have. An older name of a part must say what the part says."""
        if key.removesuffix("_dict") != key and key.removesuffix("_dict") in config:
            return [config[key.removesuffix("_dict")] | dict(attention_dropout=share) for share in (0.25, 0.5)]
        return mutations.added_to(file).get(key) or mutations.guessed(key)

    def of_rotations(self):
        write(self.folder, self.files, self.tensors)
        for mutation in mutations.of_rotations(self.files.get("config.json", {})):
            self.record(mutation, *self.outputs(mutation, mutations.apply(mutation, self.files, None)[0], None))

    def of_tokens(self):
        """The same keys of the config where there is no generation_config.json."""
        write(self.folder, self.files, self.tensors)
        files = {k: v for k, v in self.files.items() if k != "generation_config.json"}
        for mutation in mutations.of_files(files) if self.case.get("grows") else ():
            if concerns_tokens(mutation):
                self.record(["tokens alone", *mutation], *self.tokens(mutation, mutations.apply(mutation, files, None)[0],
                                                                      "alone, " + mutations.text(mutation)))

    def of_tensors(self):
        for i, mutation in enumerate(mutations.of_tensors(self.case["weights"])):
            _, tensors = mutations.apply(mutation, self.files, self.tensors)
            self.record(mutation, *self.outputs(mutation, self.files, tensors, tensors_key=i))
        for label, tensors in prefixed(self.files.get("config.json", {}), self.tensors):
            self.outputs(None, self.files, tensors, label, label)

    def made(self, kind, config):
        """The folder's files and tensors as `kind` saves them with the config, numbers from their names."""
        with quiet():
            path = self.folder / "config.json"
            path.write_text(json.dumps(config))
            model = kind(hf.CONFIG_MAPPING[config["model_type"]].from_json_file(path)).float()  # of a file infinities are read too
            fixed = {n for n, p in model.named_parameters() if not (p.requires_grad or n in self.case["weights"])} - {"logit_scale", "logit_bias"}
            model.save_pretrained(self.folder)
        kept = {n: list(v.shape) for n, v in load_file(self.folder / "model.safetensors").items()}
        tensors = {n: np.array(checkpoint.weight(n, s, self.case["gain"]), order="C") for n, s in kept.items() if n not in fixed}
        tensors |= {n: v for n, v in self.tensors.items() if "/" in n}  # of the modules behind the body
        saved = json.loads((self.folder / "config.json").read_text())
        return {k: v for k, v in self.files.items() if k != "generation_config.json"} | {"config.json": saved}, tensors

    def of_classes(self):
        """A case whose outputs are of whole texts has no mask, and classes with outputs for each position need one."""
        config, own = self.files.get("config.json", {}), self.mask
        if own is None and config.get("model_type") in PADDED and "attention_mask" in self.inputs:
            self.mask = self.inputs["attention_mask"] != 0
        for name in related(config.get("model_type")):
            try:
                files, tensors = self.made(getattr(hf, name), config)
            except Exception as e:  # what transformers has no model for
                print(f"  {self.name}: {name} is not made: {str(e)[:80]!r}")
                continue
            self.outputs(None, files, tensors, f"class {name}", name)
        self.mask = own

    def of_fitting(self):
        """Each key of config.json with weights that fit its other value, where other weights do."""
        config = self.files.get("config.json", {})
        if config.get("model_type") not in hf.CONFIG_MAPPING:
            return
        kind = getattr(hf, architecture(config))
        known = hf.AutoConfig.for_model(config["model_type"])
        for i, mutation in enumerate(mutations.of_files({"config.json": config})):
            key, value = mutation[2], mutation[3]
            if not re.search(self.args.like, mutations.text(mutation)):
                continue
            if value == mutations.GONE or key == ["architectures"] or key == ["model_type"] or not hasattr(known, key[0]):
                continue
            with contextlib.suppress(Exception):
                files, tensors = self.made(kind, mutations.apply(mutation, self.files, None)[0]["config.json"])
                if {k: v.shape for k, v in tensors.items()} == {k: v.shape for k, v in self.tensors.items()}:
                    continue
                wanted = self.outputs(mutation, files, tensors, "fitting, " + mutations.text(mutation), f"fitting {i}")
                self.record(mutations.fitting(mutation, self.files, self.case["weights"], files, tensors), *wanted)

    def record(self, mutation, verdict, wanted):
        self.records.append([mutation, verdict, wanted])

    def recorded(self):
        """A few of all kinds, with what transformers made: what changes the numbers first, of each key one refusal."""
        base = mutations.shortened(self.unchanged)
        chosen, seen = [], set()
        for mutation, verdict, wanted in self.records:
            kind = (mutation[0], verdict)
            short = wanted if wanted is None or isinstance(wanted, list) else mutations.shortened(wanted)
            key = (*kind, json.dumps(short)) if verdict == "equal" else (*kind, str(mutation[1:3]))
            if verdict not in ("equal", "refused") or key in seen or verdict == "equal" and short == base:
                continue
            seen.add(key)
            chosen.append([mutation, short])
        most = {True: 14, False: 16}
        counts = collections.Counter()
        for mutation, short in chosen:
            kind = (mutation[0], short is None)
            counts[kind] += 1
            if counts[kind] <= most[short is not None] // (1 if mutation[0] in ("json", "made") else 2):
                yield [mutation, short]

    def run(self):
        """The counts of all parts, and of each its line."""
        parts = dict(json=self.of_json, rotations=self.of_rotations, tokens=self.of_tokens, tensors=self.of_tensors,
                     classes=self.of_classes, fitting=self.of_fitting, ignored=self.of_ignored)
        write(self.folder, self.files, self.tensors)
        _, self.unchanged = self.outputs(None, self.files, self.tensors, "as it is")
        if self.unchanged is None:
            self.fault("as it is", "silent", "refused, so nothing else says anything")
            return
        if self.case.get("grows"):
            self.tokens(None, self.files, "as it is")
        before = self.counts.copy()
        for name, part in parts.items():
            if name in (self.args.part or [p for p in parts if p != "ignored"]):
                part()
                counts, before = self.counts - before, self.counts.copy()
                print(f"{self.name} {name}: {sum(counts[k] for k in VERDICTS)} changes: "
                      + ", ".join(f"{counts[k]} {k}" for k in (*VERDICTS, "late")), flush=True)
                self.kept.save()


def known_keys(args):
    """The keys of compiler/import/ignored_keys.def, and those that the blocks of the type's families name: a class may pass over
    what others of its family read.
    """
    root = pathlib.Path(__file__).resolve().parents[2]
    found = re.findall(r'IGNORED\("([^"]+)"', (root / "compiler/import/ignored_keys.def").read_text())
    for path in sorted((root / "models").glob("*.tfm")):
        head, block = re.search(r"^checkpoint (.*?) \{\n(.*?)^\}", path.read_text(), re.M | re.S).groups()
        if args.model_type in re.findall(r'"([\w-]+)"', head):
            for line in re.findall(r"^  (?:ignore|needed|spellings) ((?:.*,\n)*.*)$", block, re.M):
                found += re.findall(r'"([^"]+)"', line)
            found += re.findall(r"(?<![\w.])[a-z_]\w+(?![\w(.])", re.sub(r'"(?:\\.|[^"\\])*"|#.*|^  \w+ +=|\b(first|dims|has)\b', "", block, flags=re.M))
    words = {"key", "architectures", "model_type", "architecture", "require", "expect", "ignore", "needed", "spellings", "classes", "unused",
             "if", "then", "else", "and", "or", "not", "none", "true", "false"}
    return [k for k in dict.fromkeys(found) if "." not in k and k not in words]


def concerns_tokens(mutation):
    return mutation[1] == "generation_config.json" or any(
        part in str(mutation[2][-1]) if mutation[2] else "" for part in
        (*mutations.TOKENS, "num_beams", "length", "penalty", "ngram", "sample", "temperature", "top_", "eos", "bos", "pad"))


def family_of(server, case):
    """The file of models/ that computes the folder: the one with the model that is written."""
    write(case.folder, case.files, case.tensors)
    name = re.search(r"^model (\w+)\(", case.ours.imported(), re.M)[1]
    found = [p.stem for p in (unchanging.ROOT / "models").glob("*.tfm") if re.search(rf"^model {name}\(", p.read_text(), re.M)]
    return found[0] if len(found) == 1 else None


def run_case(path, args):
    """The counts of a case, what is wrong in it, and what changed nothing."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(fork_server.Server(args.tfmc, SECONDS)) as server:
        args.model_type = json.loads(path.read_text())["files"].get("config.json", {}).get("model_type")
        case = Case(server, path, pathlib.Path(folder), args)
        args.family = family_of(server, case) if args.part and "ignored" in args.part else None
        case.run()
        if args.record and case.unchanged is not None:
            rows = list(case.recorded())
            (args.record / path.name).write_text(json.dumps(rows, separators=(",", ":")).replace("],[[", "],\n[[") + "\n")
        return dict(case.counts), case.faults, case.unchanged_by


def forked(path, args):
    """The same in a process of its own: what one case leaves in torch, or how it dies, is no matter of the next. The changes that
    transformers dies of are left out one by one."""
    args.deadly = set()
    with tempfile.TemporaryDirectory() as folder:
        args.asking = pathlib.Path(folder, "asking")
        while True:
            args.asking.write_text("")
            made = in_a_process(path, args)
            label = args.asking.read_text()
            if made:
                return made
            if not label or label in args.deadly:
                return {}, ["broken: the process of the case died"], {}
            args.deadly.add(label)


def in_a_process(path, args):
    """Without a result if the process died."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        made = {}, ["broken: the script itself"], {}
        try:
            limit = GIGABYTES * 2**30 + int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
            made = run_case(path, args)
        except BaseException:
            traceback.print_exc()
        with os.fdopen(writing, "w") as out:
            json.dump(made, out)
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as made:
        text = made.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def paths_of(args):
    """The named cases first; with --all, then all others, and the tables of vectors beside them."""
    named = [args.cases / f"{n}.json" for n in args.only]
    if named and not args.all:
        return named
    found = sorted(args.cases.glob("*.json")) + (sorted((args.cases.parent / "tables").glob("*.json")) if args.all else [])
    return list(dict.fromkeys([*(p for n in args.only for p in found if p.stem == n), *found]))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0][7:])
    parser.add_argument("tfmc")
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--all", action="store_true", help="all cases, the named ones first")
    parser.add_argument("--log", type=pathlib.Path, metavar="FILE", help="a line for each case that ended; those of FILE are not run again")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--part", action="append")
    parser.add_argument("--quick", action="store_true", help="transformers is not asked where tfmc refuses")
    parser.add_argument("--thin", type=int, default=1, metavar="N", help="of keys that config.json does not have only each Nth change")
    parser.add_argument("--like", default="", metavar="REGEX", help="of the JSON files only changes whose text has this, such as ' = null$'")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what transformers made, to be used again")
    parser.add_argument("--record", type=pathlib.Path, help="a folder: a part of the changes, with what transformers made")
    args = parser.parse_args()
    args.tried = set()  # entries of --part ignored
    log = Log(args)
    passed = failed = 0
    for path in paths_of(args):
        counts, faults, unchanged = log.find(path) or forked(path, args)
        args.tried.update(unchanged)
        log.add(path, counts, faults, unchanged)
        passed, failed = passed + sum(counts.get(k, 0) for k in ("equal", "refused", "both refuse")), failed + len(faults)
    log.print_summary()
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or not passed


if __name__ == "__main__":
    sys.exit(main())
