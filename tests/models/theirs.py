"""What transformers makes of a checkpoint's folder: outputs and tokens, or Declined.

Needs torch and transformers, which it loads once with one thread. Models are built on no device and filled from the file,
so numbers that nobody reads are not drawn; what the file lacks is drawn twice, and outputs that depend on it are left out.
"""
import contextlib
import hashlib
import io
import json
import logging
import os
import pickle
import re
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")  # a thread for each tensor takes longer than tiny tensors
import numpy as np
import torch
import transformers as hf

import mutations
import sentence_reference
from import_and_run import NEW_TOKENS

torch.set_num_threads(1)
torch.set_grad_enabled(False)
hf.logging.set_verbosity(logging.CRITICAL)
hf.logging.disable_progress_bar()
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


def leave_out_on_meta(kind):
    """A module of this kind draws no numbers for a tensor that has none."""
    draw = kind.reset_parameters

    def reset_parameters(self):
        if not all(p.is_meta for p in self.parameters(recurse=False)):
            draw(self)
    kind.reset_parameters = reset_parameters


for _kind in (torch.nn.Linear, torch.nn.Embedding, torch.nn.LayerNorm, torch.nn.modules.conv._ConvNd):
    leave_out_on_meta(_kind)
# The whole of Llama 4 asks its part for text for this, which is not there in transformers 5.24.
hf.models.llama4.modeling_llama4.MoeCausalLMOutputWithPast.image_outputs = None
EXPERTS = dict(experts_implementation="eager")  # torch's grouped products take rows of 16 bytes alone
AUTO = {"ForCausalLM": hf.AutoModelForCausalLM, "LMHeadModel": hf.AutoModelForCausalLM, "MTModel": hf.AutoModelForSeq2SeqLM,
        "ForConditionalGeneration": hf.AutoModelForSeq2SeqLM, "ForMaskedLM": hf.AutoModelForMaskedLM,
        "ForSequenceClassification": hf.AutoModelForSequenceClassification,
        "ForTokenClassification": hf.AutoModelForTokenClassification, "ForQuestionAnswering": hf.AutoModelForQuestionAnswering,
        "ForMultipleChoice": hf.AutoModelForMultipleChoice, "ForNextSentencePrediction": hf.AutoModelForNextSentencePrediction,
        "ForPreTraining": hf.AutoModelForPreTraining, "ForImageClassification": hf.AutoModelForImageClassification,
        "ForCTC": hf.AutoModelForCTC, "ForXVector": hf.AutoModelForAudioXVector, "ForAudioFrameClassification": hf.AutoModelForAudioFrameClassification}


class Declined(Exception):
    """transformers computes nothing, or nothing that the folder determines."""


class Unanswered(Exception):
    """transformers wants more memory than there is, or its process dies: what the folder gives is not known."""


def declined(fault):
    """What stands for whatever transformers, torch and its checks of configs raise."""
    if isinstance(fault, MemoryError) or re.search("can('t|not) allocate memory", str(fault), re.I) or "std::bad_alloc" in str(fault):
        return Unanswered("it wants more memory than it may have")
    return Declined(f"{type(fault).__name__}: {str(fault)[:200]}")


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
    if config.get("model_type") in ("whisper", "moonshine", "moonshine_streaming") and (suffix or writes):
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
        except Exception as e:
            fault = declined(e)  # not e, whose frames hold the model
            if "Unrecognized configuration class" not in str(e):
                break
    raise fault


def missing_of(model, info):
    """The parameters that the folder lacks, but for tables of sines, which the class computes."""
    sines = tuple(n + "." for n, m in model.named_modules() if "Sinusoidal" in type(m).__name__)
    return [(n, p) for n, p in model.named_parameters() if n in info["missing_keys"] and not n.startswith(sines or ("\0",))]


def attention_of(config):
    """Eager, which rounds least, but where the classes have their own rounding of ALiBi."""
    return "sdpa" if config.get("alibi") else "eager"


def forgets_limits(config):
    """Limits of time steps hold for each token, but not where transformers writes with a cache (docs/import.md): there each
    token is computed from the whole row.
    """
    low, high = 0.0, float("inf")
    if config.model_type == "nemotron_h":
        low = config.time_step_min
    elif isinstance(getattr(config, "time_step_limit", None), (list, tuple)) and len(config.time_step_limit) == 2:
        low, high = config.time_step_limit
    return low > 0 or high < float("inf")


class Theirs:
    """`shaken`: a seed; weights are then changed in their last bit of f32, which shows what rounding alone may do."""

    def __init__(self, case, dtype=torch.float32, shaken=None):
        self.case, self.dtype, self.shaken = case, dtype, shaken
        self.writes = None
        if case.get("grows"):
            name = architecture(case["files"]["config.json"])
            self.writes = next(s for s in AUTO if name.endswith(s))

    def run(self, model, inputs):
        try:
            with quiet():
                made = model(**inputs, return_dict=True)
        except Exception as e:
            raise declined(e) from e
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
            raise declined(e) from e
        if not made:
            raise Declined("missing: tensors that the vectors need")
        return made

    def of_class(self, folder, config, inputs):
        model, info = loaded(folder, config, self.writes, attention_of(config), self.dtype)
        if self.shaken is not None:
            signs = torch.Generator().manual_seed(self.shaken)
            for weight in model.parameters():
                weight.mul_(1 + 2.0**-24 * (2 * torch.randint(0, 2, weight.shape, generator=signs) - 1))
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
                more |= dict(use_cache=False) if forgets_limits(model.config) else {}
                made = hf.GenerationMixin.generate(model, **inputs, **more, do_sample=False, max_new_tokens=NEW_TOKENS,
                                                   return_dict_in_generate=False)
                return made.tolist()
        except Exception as e:
            raise declined(e) from e


class Kept:
    """What transformers made of a folder, by all that is in it; `file`: where it is kept, or None. Of a refusal its words are kept,
    not its frames: they hold a model, which may have the size that the class takes for granted.
    """

    def __init__(self, file, inputs):
        self.file, self.basis = file, [hf.__version__, torch.__version__, inputs]
        self.made = pickle.loads(file.read_bytes()) if file and file.exists() else {}

    def take(self, key, make):
        key = hashlib.sha256(json.dumps([*self.basis, *key]).encode()).hexdigest()
        if key not in self.made:
            try:
                self.made[key] = make()
            except Declined as e:
                self.made[key] = Declined(*e.args)
        if isinstance(self.made[key], Declined):
            raise Declined(*self.made[key].args)
        return self.made[key]

    def save(self):
        if self.file:
            self.file.write_bytes(pickle.dumps(self.made))


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
