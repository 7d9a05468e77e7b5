"""verify_torch: whether a compiled model gives what a module of torch gives, and if not, which module is the first that
differs.

The outputs are those of the compiled model. Values inside are those of the reference interpreter, which computes the
text that from_torch made with a result for each call of a module; forward hooks have torch's. Of a model that no Source
of from_torch is known of only the outputs are compared.
"""
import contextlib

import numpy as np

from ._errors import UsageError
from ._texts import Texts


class Verified:
    """same; distance: the largest of an output from torch's, relative to its largest value; module: the path of the
    first module whose output differs, or None; text: all of it in words."""

    def __init__(self, distance, tolerance, module, text):
        self.same, self.distance, self.module, self.text = distance <= tolerance, distance, module, text

    def __bool__(self):
        return self.same

    def __repr__(self):
        return f"<tfmc.Verified: {self.text}>"


def _distance(got, wanted):
    """Relative to the largest value, or to 1; infinite if the shapes differ or one alone is no number."""
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    if got.shape != wanted.shape or not (np.isfinite(got) == np.isfinite(wanted)).all():
        return np.inf
    both = np.isfinite(wanted)
    return float(np.abs(got[both] - wanted[both]).max(initial=0) / max(1, np.abs(wanted[both]).max(initial=0)))


# ---- torch's values ----

def _arrays(made):
    """name -> array of the tensors in what a module returns, in order."""
    from torch.utils import _pytree as pytree
    found = {}
    for path, value in pytree.tree_flatten_with_path(made)[0]:
        if hasattr(value, "detach"):
            name = "_".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", "")))) for k in path)
            value = value.detach().cpu()
            found[name or "output0"] = (value.float() if value.is_floating_point() else value).numpy()
    return found


@contextlib.contextmanager
def _watched(module, calls):
    """While this runs each call of a part puts its tensors into calls: path -> a list with an entry for each call."""
    def hook(path):
        return lambda part, inputs, made: calls.setdefault(path, []).append(list(_arrays(made).values()))
    hooks = [part.register_forward_hook(hook(path)) for path, part in module.named_modules() if path]
    try:
        yield
    finally:
        for each in hooks:
            each.remove()


# ---- the reference interpreter's ----

def _first(source, module, inputs, calls, tolerance):
    """(path, class, distance) of the first call that ended with another result than torch's, or None."""
    given = {name: value.astype(np.int32) if value.dtype == np.int64 else value for name, value in inputs.items()}
    with Texts(source.weights or {}) as texts:
        got = texts.run(source.probed, given)
    kinds, counts, seen = dict(module.named_modules()), {}, {}
    for path, _ in source.probes:
        counts[path] = counts.get(path, 0) + 1
    for path, names in source.probes:
        nth = seen[path] = seen.get(path, -1) + 1
        if len(calls.get(path, [])) != counts[path]:
            continue  # the export left out some of its calls
        for name in names:
            like = [v for v in calls[path][nth] if v.shape == got[name].shape]
            distance = min((_distance(got[name], v) for v in like), default=0)
            if distance > tolerance:
                return path, type(kinds[path]).__name__, distance
    return None


def verify_torch(model, module, inputs, *, tolerance=1e-5):
    """Compares a compiled model with a module of torch on these inputs: a Verified, which is true if they agree.

    inputs: name -> tensor, as for from_torch; tolerance: of each output's distance, relative to its largest value.
    """
    import torch

    from ._check import as_input
    from ._export import patched
    from ._inputs import flat
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"verify_torch takes a torch.nn.Module, not a {type(module).__name__}")
    arrays, calls = {name: as_input(name, v) for name, v in flat(inputs).items() if isinstance(v, torch.Tensor)}, {}
    with torch.no_grad(), patched(getattr(getattr(model, "source", None), "dropout", True)), _watched(module, calls):
        wanted = _arrays(module(**inputs))
    got = model.run(arrays)
    if len(got) > len(wanted):
        raise UsageError(f"the model has {len(got)} outputs, the module returns {len(wanted)} tensors")
    by_name = set(got) <= set(wanted)
    pairs = {name: wanted[name] if by_name else list(wanted.values())[i] for i, name in enumerate(got)}
    for name, value in pairs.items():
        if got[name].dtype.kind != ("i" if value.dtype.kind == "u" else value.dtype.kind):
            return Verified(np.inf, tolerance, None, f"the output {name} is {got[name].dtype}, and {value.dtype} in the module")
    far = {name: _distance(got[name], value) for name, value in pairs.items()}
    worst = max(far, key=far.get)
    if far[worst] <= tolerance:
        return Verified(far[worst], tolerance, None, f"the outputs agree within {far[worst]:.2g}")
    said, source = f"the output {worst} differs by {far[worst]:.2g}", getattr(model, "source", None)
    if not getattr(source, "probes", None):
        return Verified(far[worst], tolerance, None, said + "; the model was not compiled from a Source of from_torch, "
                        "so that no module can be named")
    changed = [path for path, value in source.weights.items() if value._version != source.versions[path]]
    if changed:
        owner = changed[0].rpartition(".")[0]
        return Verified(far[worst], tolerance, owner, f"{said}; {changed[0]} was changed after the model was made")
    first = _first(source, module, arrays, calls, tolerance)
    if first is None:
        return Verified(far[worst], tolerance, None, said + "; every module agrees with the reference interpreter")
    path, kind, distance = first
    return Verified(far[worst], tolerance, path, f"{said}; the first module that differs is {path} ({kind}), by "
                    f"{distance:.2g}")
