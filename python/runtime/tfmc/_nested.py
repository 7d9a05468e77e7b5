"""Inputs given as a module of torch takes them, as the flat ones that its text has: `batch={"ids": x}` is batch_ids.

In: values by name, and the names of the inputs. Out: values by those names. A dict, a list or a tuple is taken apart where its
own name is no input, by the names that _inputs.py gives its leaves. Refused: two values of one name.
"""
import re

from ._errors import UsageError


def _leaves(name, value, inputs):
    if name in inputs or not isinstance(value, (dict, list, tuple)):
        yield name, value
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(re.sub(r"\W", "_", f"{name}_{key}", flags=re.ASCII), part, inputs)


def flat(values, inputs):
    """The values themselves if none of them has inputs as its parts."""
    apart = {}
    for name, value in values.items():
        if name not in inputs and isinstance(value, (dict, list, tuple)):
            leaves = list(_leaves(name, value, inputs))
            if any(leaf in inputs for leaf, _ in leaves):
                apart[name] = leaves
    if not apart:
        return values
    found = {name: value for name, value in values.items() if name not in apart}
    for leaf, part in [pair for leaves in apart.values() for pair in leaves]:
        if leaf in found:
            raise UsageError(f'input "{leaf}" is given twice')
        found[leaf] = part
    return found
