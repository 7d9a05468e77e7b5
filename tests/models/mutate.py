#!/usr/bin/env python3
"""usage: mutate.py TFMC CASES [CASE ...] [--show] [--part json|rotations|tokens|tensors|classes|fitting] [--quick]
       [--thin N] [--like REGEX] [--keep FOLDER] [--record FOLDER]

Changes each folder of a case in one thing at a time: each key of each JSON file to other values of its type, none, or
gone; keys that are not there, those of the lists of ignored keys among them; other ways to write how positions turn;
each tensor gone, renamed, of another shape, with other numbers; tensors that nobody knows; each class of transformers
that the model type has; each key with weights that fit it. `tfmc import` and `tfmc run` must then compute what
transformers computes from the same folder, within 1e-5 of the largest number (where f32 rounds more, within 3 times the
rounding of transformers), or refuse; where transformers refuses, or its result depends on tensors that the folder does
not have, they must refuse. Keys that concern tokens: the same of `tfmc generate`. A warning is no excuse. Of a folder that reads pictures the part for
text is compared; what transformers cannot read the pictures with is counted as `tower`. The last line
is 'N passed, N failed'; before it one for each case and part. With --keep what transformers made is kept, so that
another binary is compared without asking it again. Needs torch and transformers; test_mutations.py compares a part of
it with what was recorded here (--record).
"""
import argparse
import collections
import contextlib
import hashlib
import io
import json
import logging
import os
import pathlib
import pickle
import re
import sys
import tempfile
import warnings
import zlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # a thread for each tensor takes longer than tiny tensors
import numpy as np
import torch
import transformers as hf
from safetensors.numpy import load_file

import checkpoint
import mutations
import sentence_reference
from import_and_run import NEW_TOKENS, Crash, Ours, Refused, write

torch.set_num_threads(1)
torch.set_grad_enabled(False)
hf.logging.set_verbosity(logging.CRITICAL)
hf.logging.disable_progress_bar()
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
EXPERTS = dict(experts_implementation="eager")  # torch's grouped products take rows of 16 bytes alone
TOLERANCE = 1e-5
MOST_OF_ROUNDING = 1e-3
TOWER = (r"\b(vision_config|audio_config|mm_tokens_per_image|projector_hidden_act|spatial_merge_size|image_token_\w+)\b"
         r"|\b(visual|vision_tower|audio_tower|embed_vision|embed_audio|multi_modal_projector)\.")
AUTO = {"ForCausalLM": hf.AutoModelForCausalLM, "LMHeadModel": hf.AutoModelForCausalLM, "MTModel": hf.AutoModelForSeq2SeqLM,
        "ForConditionalGeneration": hf.AutoModelForSeq2SeqLM, "ForMaskedLM": hf.AutoModelForMaskedLM,
        "ForSequenceClassification": hf.AutoModelForSequenceClassification,
        "ForTokenClassification": hf.AutoModelForTokenClassification, "ForQuestionAnswering": hf.AutoModelForQuestionAnswering,
        "ForMultipleChoice": hf.AutoModelForMultipleChoice, "ForNextSentencePrediction": hf.AutoModelForNextSentencePrediction,
        "ForPreTraining": hf.AutoModelForPreTraining, "ForImageClassification": hf.AutoModelForImageClassification}


class Declined(Exception):
    """transformers computes nothing, or nothing that the folder determines."""


@contextlib.contextmanager
def quiet():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def architecture(config):
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def classes(config, writes):
    """The auto class first: it takes the config's own type for what it is. Then the class of the name."""
    name = architecture(config)
    suffix = next((s for s in AUTO if name.endswith(s)), None)
    if config.get("model_type") == "whisper" and (suffix or writes):
        return [hf.AutoModelForSpeechSeq2Seq]
    if suffix:
        return [AUTO[suffix], getattr(hf, name, None)]
    if writes and not name:
        return [AUTO[writes]]
    if hasattr(hf, name) and (not name.endswith("Model") or name.endswith("EncoderModel")):
        return [getattr(hf, name)]
    return [hf.AutoModel, getattr(hf, name, None)]  # the towers alone of SigLIP have no auto class


def loaded(folder, config, writes, attention, dtype=torch.float32):
    fault = None
    for kind in filter(None, classes(config, writes)):
        try:
            with quiet():
                model, info = kind.from_pretrained(folder, output_loading_info=True, dtype=dtype, attn_implementation=attention,
                                                   **EXPERTS)
            return model.eval(), info
        except Exception as e:  # whatever transformers, torch and its checks of configs raise
            fault = e
            if "Unrecognized configuration class" not in str(e):
                break
    raise Declined(f"{type(fault).__name__}: {str(fault)[:200]}")


def missing_of(model, info):
    """The parameters that the folder lacks, but for tables of sines, which the class computes."""
    sines = tuple(n + "." for n, m in model.named_modules() if "Sinusoidal" in type(m).__name__)
    return [(n, p) for n, p in model.named_parameters() if n in info["missing_keys"] and not n.startswith(sines or ("\0",))]


def attention_of(config):
    """Eager, which rounds least, but where the classes have their own rounding of ALiBi."""
    return "sdpa" if config.get("alibi") else "eager"


class Theirs:
    def __init__(self, case, dtype=torch.float32):
        self.case, self.dtype = case, dtype
        self.writes = None
        if case.get("grows"):
            name = architecture(case["files"]["config.json"])
            self.writes = next(s for s in AUTO if name.endswith(s))

    def run(self, model, inputs):
        try:
            with quiet():
                made = model(**inputs, return_dict=True)
        except Exception as e:
            raise Declined(f"{type(e).__name__}: {str(e)[:200]}") from e
        return {k: v.numpy() for k, v in made.items() if isinstance(v, torch.Tensor)}

    def outputs(self, folder, config, inputs):
        """Where no class is named, what the case's own class makes, too."""
        if (folder / "modules.json").exists():
            return self.of_sentences(folder, config, inputs)
        if "modules.json" in self.case["files"]:
            inputs = dict(inputs, attention_mask=(inputs["attention_mask"] != 0).long())
        made = self.of_class(folder, config, inputs)
        if not architecture(config):
            with contextlib.suppress(Declined):
                own = dict(architectures=self.case["files"]["config.json"]["architectures"])
                made = self.of_class(folder, config | own, inputs) | made
        return made

    def of_sentences(self, folder, config, inputs):
        try:
            with quiet():
                made = sentence_reference.outputs(folder, inputs, attention_of(config), self.dtype)
        except Exception as e:
            raise Declined(f"{type(e).__name__}: {str(e)[:200]}") from e
        if not made:
            raise Declined("missing: tensors that the vectors need")
        return made

    def of_class(self, folder, config, inputs):
        model, info = loaded(folder, config, self.writes, attention_of(config), self.dtype)
        made = self.run(model, inputs)
        missing = missing_of(model, info)
        for seed in (1, 2) if missing else ():
            for _, p in missing:
                p.normal_(generator=torch.Generator().manual_seed(seed))
            again = self.run(model, inputs)
            made = {k: v for k, v in made.items() if np.array_equal(v, again[k], equal_nan=True)}
        if missing and not any(v.size for v in made.values()):
            raise Declined(f"missing: {sorted(n for n, _ in missing)[:3]}")
        return made

    def tokens(self, folder, config, inputs):
        model, info = loaded(folder, config, self.writes, attention_of(config))
        missing = missing_of(model, info)
        if missing:
            raise Declined(f"missing: {sorted(n for n, _ in missing)[:3]}")
        try:
            with quiet():
                more = {} if model.config.is_encoder_decoder else dict(attention_mask=torch.ones_like(inputs["input_ids"]))
                made = hf.GenerationMixin.generate(model, **inputs, **more, do_sample=False, max_new_tokens=NEW_TOKENS,
                                                   return_dict_in_generate=False)
                return made.tolist()
        except Exception as e:
            raise Declined(f"{type(e).__name__}: {str(e)[:200]}") from e


class Kept:
    """What transformers made of a folder, by all that is in it; `file`: where it is kept, or None."""

    def __init__(self, file, inputs):
        self.file, self.basis = file, [hf.__version__, torch.__version__, inputs]
        self.made = pickle.loads(file.read_bytes()) if file and file.exists() else {}

    def take(self, key, make):
        key = hashlib.sha256(json.dumps([*self.basis, *key]).encode()).hexdigest()
        if key not in self.made:
            try:
                self.made[key] = make()
            except Declined as e:
                self.made[key] = e
        if isinstance(self.made[key], Declined):
            raise self.made[key]
        return self.made[key]

    def save(self):
        if self.file:
            self.file.write_bytes(pickle.dumps(self.made))


def digest(tensors):
    return {n: hashlib.sha256(repr((t.shape, t.dtype)).encode() + t.tobytes()).hexdigest() for n, t in tensors.items()}


def difference(made, wanted, mask, exact):
    """None, or what is wrong. Where f32 rounds more than the tolerance, what counts is exact(), the same in double: then the
    difference from it may be 3 times that of transformers itself."""
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
            c = exact()[name]
            c = c[mask] if mask is not None and c.shape[:mask.ndim] == mask.shape else c
            if worst > MOST_OF_ROUNDING or relative(a, c) > max(TOLERANCE, 3 * relative(b, c)):
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
        self.theirs, self.exact = Theirs(self.case), Theirs(self.case, torch.float64)
        self.counts, self.faults, self.records, self.base = collections.Counter(), [], [], {}  # base: of outputs and of tokens
        self.kept = Kept(args.keep and args.keep / f"{path.stem}.pickle", self.case["inputs"])
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
            wanted, declined = None if refusal and self.args.quick else reference(), None
        except Declined as e:
            declined = e
        if refusal:
            self.counts["both refuse" if declined else "refused"] += 1
            self.counts["late"] += refusal.late
            if self.args.show:
                print(f"  {'both' if declined else 'ours'}{' late' if refusal.late else ''}: {label}: {str(refusal)[:230]!r}"
                      f"{' / ' + str(declined) if declined else ''}", flush=True)
            return "refused", None
        if declined and self.is_of_tower(label):
            self.counts["tower"] += 1
            return "tower", None
        if declined:
            return self.fault(label, "theirs refuses", str(declined))
        wrong = compare(made, wanted)
        if wrong:
            return self.fault(label, "silent", wrong)
        self.counts["equal"] += 1
        self.base.setdefault(type(made), made)
        if self.args.show:
            print(f"  {'unchanged' if same_numbers(made, self.base[type(made)]) else 'equal'}: {label}", flush=True)
        return "equal", wanted if isinstance(wanted, list) else {k: wanted[k][self.mask] if self.is_masked(wanted[k]) else wanted[k]
                                                                 for k in made}

    def is_of_tower(self, label):
        """Of a folder that reads pictures only its part for text is taken: what transformers reads them with may not be built."""
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
                          lambda a, b: difference(a, b, self.mask, lambda: self.exact.outputs(self.folder, config, self.doubles)))

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
        config = self.files.get("config.json", {})
        for name in related(config.get("model_type")):
            try:
                files, tensors = self.made(getattr(hf, name), config)
            except Exception as e:  # what transformers has no model for
                print(f"  {self.name}: {name} is not made: {str(e)[:80]!r}")
                continue
            self.outputs(None, files, tensors, f"class {name}", name)

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
        parts = dict(json=self.of_json, rotations=self.of_rotations, tokens=self.of_tokens, tensors=self.of_tensors,
                     classes=self.of_classes, fitting=self.of_fitting)
        write(self.folder, self.files, self.tensors)
        _, self.unchanged = self.outputs(None, self.files, self.tensors, "as it is")
        if self.unchanged is None:
            self.fault("as it is", "silent", "refused, so nothing else says anything")
            return
        if self.case.get("grows"):
            self.tokens(None, self.files, "as it is")
        order = ("equal", "refused", "both refuse", "silent", "theirs refuses", "crash", "tower", "late")
        before = self.counts.copy()
        for name, part in parts.items():
            if name in (self.args.part or parts):
                part()
                counts, before = self.counts - before, self.counts.copy()
                print(f"{self.name} {name}: {sum(counts[k] for k in order[:-1])} changes: "
                      + ", ".join(f"{counts[k]} {k}" for k in order), flush=True)
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


def aliases(config):
    if config.get("model_type") not in hf.CONFIG_MAPPING:  # tables of vectors
        return []
    kind = type(hf.AutoConfig.for_model(config["model_type"]))
    return mutations.aliases(config, dict(kind.attribute_map))


def prefixed(config, tensors):
    """All names with the base model's prefix, or without."""
    with contextlib.suppress(Exception):
        name = architecture(config)
        prefix = getattr(hf, name).base_model_prefix + "."
        if any(n.startswith(prefix) for n in tensors):
            yield f"without the prefix {prefix}", {n.removeprefix(prefix): v for n, v in tensors.items()}
        yield f"with the prefix {prefix}", {prefix + n: v for n, v in tensors.items()}


def related(model_type):
    """The classes of transformers for the type."""
    if model_type not in hf.CONFIG_MAPPING:
        return []
    module = type(hf.AutoConfig.for_model(model_type)).__module__.rpartition(".")[0].rpartition(".")[2]
    found = []
    place = getattr(hf, "_class_to_module", {})  # without it, every class of transformers is loaded to see where it is from
    for name in dir(hf):
        if not re.search(r"(Model|For\w+)$", name) or name.startswith(("TF", "Flax", "Auto")):
            continue
        if f".{module}." not in place.get(name, f".{module}."):
            continue
        kind = getattr(hf, name, None)
        if isinstance(kind, type) and issubclass(kind, hf.PreTrainedModel) and kind.__module__.split(".")[-2] == module:
            found.append(name)
    return [n for n in found if not n.endswith("PreTrainedModel")]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0][7:])
    parser.add_argument("tfmc")
    parser.add_argument("cases", type=pathlib.Path)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--part", action="append")
    parser.add_argument("--quick", action="store_true", help="transformers is not asked where tfmc refuses")
    parser.add_argument("--thin", type=int, default=1, metavar="N", help="of keys that config.json does not have only each Nth change")
    parser.add_argument("--like", default="", metavar="REGEX", help="of the JSON files only changes whose text has this, such as ' = null$'")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for what transformers made, to be used again")
    parser.add_argument("--record", type=pathlib.Path, help="a folder: a part of the changes, with what transformers made")
    args = parser.parse_args()
    passed = failed = 0
    for path in [args.cases / f"{n}.json" for n in args.only] or sorted(args.cases.glob("*.json")):
        with tempfile.TemporaryDirectory() as folder:
            args.model_type = json.loads(path.read_text())["files"].get("config.json", {}).get("model_type")
            case = Case(args.tfmc, path, pathlib.Path(folder), args)
            case.run()
            if args.record and case.unchanged is not None:
                rows = list(case.recorded())
                (args.record / path.name).write_text(json.dumps(rows, separators=(",", ":")).replace("],[[", "],\n[[") + "\n")
            bad = len(case.faults)
            passed, failed = passed + sum(case.counts[k] for k in ("equal", "refused", "both refuse")), failed + bad
    print(f"{passed} passed, {failed} failed")
    return failed != 0 or not passed


if __name__ == "__main__":
    sys.exit(main())
