"""usage: old_configs.py WHEEL < CASES > CONFIGS

What an older release of transformers writes into config.json. WHEEL: that release, as `pip download --no-deps` fetches it;
CASES: {name: config.json of today}. Of each config the keys that the older class takes are given to it under the names that
it has for them, and CONFIGS are what its to_json_string() says, without the types that the release does not know. Nothing of
the release is run but the classes of configs: what else they import is made up here, so that none of what the release
needs has to be installed. make_ages.py calls it.
"""
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import pathlib
import re
import sys
import tempfile
import types
import zipfile

# Settings of such folders that their class of today has no key for.
MEANT = {"marian": dict(normalize_embedding=False, static_position_embeddings=True),
         "pegasus": dict(normalize_embedding=False, static_position_embeddings=True, normalize_before=True, add_final_layer_norm=True),
         "mbart": dict(normalize_before=True, add_final_layer_norm=True)}
NEVER = {"architectures", "model_type", "transformers_version", "dtype", "torch_dtype", "rope_parameters", "_name_or_path"}
NEW_NAME_OF_TYPE = (4, 43)  # "rope_type", before that "type"
DTYPE_SINCE, GENERIC = (4, 7), "float32"
RENAMED = {"num_local_experts": "num_experts"}  # today -> before
BY_ANY_NAME = {"deberta", "deberta-v2"}  # whose models read keys that the class has no parameter for
OLD_NAMES = {"T5ForConditionalGeneration": "T5WithLMHeadModel"}


class Nothing:
    """A function or a module's part that no config needs."""

    def __init__(self, *args, **kwargs):
        pass

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *args, **kwargs):
        return Nothing()

    def __bool__(self):
        return False


class MadeUp(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), dict(push_to_hub=Nothing())) if name[0].isupper() else Nothing()


class Release(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the classes of configs in the folder and makes up what is beside them."""

    def __init__(self, folder, version):
        self.folder, self.version = folder, version

    def is_real(self, name):
        return re.search(r"\.configuration_\w+$|\.utils\.backbone_utils$", name) and not name.endswith("configuration_auto")

    def find_spec(self, name, path, target=None):
        top = name.split(".")[0]
        if top == "transformers" and self.is_real(name):
            place = self.folder / (name.replace(".", "/") + ".py")
            if place.exists():
                return importlib.util.spec_from_file_location(name, place)
        if top in ("transformers", "huggingface_hub", "requests", "torch", "tokenizers", "six"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = MadeUp(spec.name)
        module.__path__ = [str(self.folder / spec.name.replace(".", "/"))]
        module.__version__ = self.version
        if spec.name in ("transformers.models.auto", "transformers.models.auto.configuration_auto"):
            module.CONFIG_MAPPING = Mapping(self)
        return module

    def exec_module(self, module):
        pass

    @functools.cached_property
    def places(self):
        """{type: (file, class)}; before version 3.1 classes did not say their type, but the file did."""
        found, of_files = {}, {}
        for place in sorted(self.folder.glob("transformers/**/configuration_*.py")):
            name = None
            for kind, said in re.findall(r'^class (\w+)\(|^    model_type = "([^"]+)"', place.read_text(errors="replace"), re.M):
                name = kind or name
                if said:
                    found.setdefault(said, (place, name))
                elif name.endswith("Config"):
                    of_files.setdefault(place.stem.removeprefix("configuration_").replace("_", "-"), (place, name))
        return of_files | found

    def class_of(self, model_type):
        """The class of a type, or None."""
        place = self.places.get(model_type)
        return place and self.imported(*place)

    def imported(self, place, name):
        module = ".".join(place.relative_to(self.folder).with_suffix("").parts)
        return getattr(importlib.import_module(module), name)


class Mapping:
    def __init__(self, release):
        self.release = release

    def __getitem__(self, model_type):
        return self.release.class_of(model_type)

    def __contains__(self, model_type):
        return self.release.class_of(model_type) is not None


def rotary(config, names, version):
    """rope_parameters of today in the keys of before version 5."""
    today = config.get("rope_parameters")
    if not isinstance(today, dict):
        return {}
    whole = today.get("full_attention", today)
    near = today.get("sliding_attention") or {}
    scaling = {k: v for k, v in whole.items() if k not in ("rope_theta", "partial_rotary_factor", "rope_type")}
    kind = whole.get("rope_type", "default")
    if kind != "default":
        scaling = {"rope_type" if version >= NEW_NAME_OF_TYPE else "type": kind} | scaling
    found = dict(rope_theta=whole.get("rope_theta"), rotary_emb_base=whole.get("rope_theta"), global_rope_theta=whole.get("rope_theta"),
                 rope_local_base_freq=near.get("rope_theta"), local_rope_theta=near.get("rope_theta"),
                 partial_rotary_factor=whole.get("partial_rotary_factor"), rotary_pct=whole.get("partial_rotary_factor"),
                 rope_scaling=scaling or None)
    return {k: v for k, v in found.items() if k in names and (v is not None or k == "rope_scaling")}


def names_of(kind):
    """The keys that a class of configs takes."""
    names = set()
    for each in kind.__mro__[:-1]:
        names |= set(inspect.signature(each.__init__).parameters)
    return names - {"self", "kwargs"}


def older(kind, config, version, generic, whole=True):
    names = names_of(kind)
    given = rotary(config, names, version)
    try:
        parts = {k: type(v) for k, v in vars(kind()).items() if hasattr(v, "to_diff_dict") or hasattr(v, "to_json_string")}
    except Exception:
        parts = {}
    for key, value in config.items():
        key = f"{key}_dict" if f"{key}_dict" in names and key not in names else key  # CLIP's parts, at first
        key = RENAMED[key] if key in RENAMED and key not in names else key
        is_taken = key in names | generic or config.get("model_type") in BY_ANY_NAME
        if key in NEVER or not is_taken:
            continue
        given[key] = value
        if (part := parts.get(key.removesuffix("_dict"))) and isinstance(value, dict):
            given[key] = older(part, value, version, generic, False)
    if whole and version >= DTYPE_SINCE:
        given["dtype" if version >= (4, 56) else "torch_dtype"] = GENERIC
    if "id2label" in given and not config.get("id2label"):
        del given["id2label"]
    return given


def written(release, version, config, classes):
    """None: the release does not know the class."""
    name = config["architectures"][0]
    kind = release.class_of(config["model_type"])
    if kind is None or not {name, OLD_NAMES.get(name)} & classes:
        return None
    base = importlib.import_module("transformers.configuration_utils").PretrainedConfig
    generic = set(vars(base())) | {"id2label", "label2id"}
    meant = {k: v for k, v in MEANT.get(config["model_type"], {}).items() if k in names_of(kind)}
    made = kind(**meant | older(kind, config, version, generic))
    made.architectures = [name if name in classes else OLD_NAMES[name]]
    text = json.loads(made.to_json_string())
    text.setdefault("transformers_version", ".".join(map(str, version))) if version >= (4, 0) else None
    return text


def main():
    wheel = pathlib.Path(sys.argv[1])
    number = re.search(r"transformers-([\d.]+)", wheel.name)[1]
    version = tuple(map(int, number.split(".")))
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder, [n for n in packed.namelist() if "configuration_" in n or n.endswith("utils/backbone_utils.py")])
        texts = (packed.read(n).decode() for n in packed.namelist() if re.search(r"/modeling_(?!tf_|flax_)\w+\.py$", n))
        classes = {name for text in texts for name in re.findall(r"^class (\w+)\(", text, re.M)}
        release = Release(pathlib.Path(folder), number)
        sys.meta_path.insert(0, release)
        found = {}
        for name, config in json.load(sys.stdin).items():
            try:
                found[name] = written(release, version, config, classes)
            except Exception as e:  # whatever an old class raises
                found[name] = f"{type(e).__name__}: {str(e)[:200]}"
        json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
