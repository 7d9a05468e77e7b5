"""Options of calls: each that has another type than it may have is named.

In: the option's name and what was given. Out: the value, of Python's own types. Refused: True for a number and 1 for a flag,
numbers with a fraction, numbers out of their range.
"""
import collections.abc
import operator
import os

import numpy as np

from ._errors import UsageError


def whole(name, value, least=1, most=None):
    """An integer, one of numpy's too."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        ends = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise UsageError(f"{name} is {value!r:.60}, not a whole number {ends}")
    return number


def flag(name, value):
    """True or False, those of numpy too."""
    if not isinstance(value, (bool, np.bool_)):
        raise UsageError(f"{name} is {value!r:.60}, not True or False")
    return bool(value)


def word(name, value, *words):
    """One of the words, or None."""
    if value is not None and not (isinstance(value, str) and value in words):
        *most, last = (f'"{one}"' for one in words)
        raise UsageError(f"{name} is {value!r:.60}, not {', '.join(most)} or {last}")
    return value


def mapping(name, value, what):
    if not isinstance(value, collections.abc.Mapping):
        raise UsageError(f"{name} is of type {type(value).__name__}, not {what}")
    return value


def patterns(name, value):
    """Patterns of paths: one, or several. Not a mapping, whose values nobody would read."""
    is_one = isinstance(value, (str, bytes, collections.abc.Mapping)) or not isinstance(value, collections.abc.Iterable)
    given = [value] if is_one else list(value)
    if not all(isinstance(one, str) and one for one in given):
        raise UsageError(f"{name} are patterns of paths, such as \"*.query\", not {value!r:.60}")
    return given


def rules(quantize):
    """Those of quantize= in one text, as the compiler takes them; None: none."""
    if isinstance(quantize, (str, type(None))):
        return quantize
    if not isinstance(quantize, (list, tuple)) or not all(isinstance(rule, str) for rule in quantize):
        raise UsageError(f"quantize is {quantize!r:.60}, not a form such as \"int8\" or a list of rules")
    return ",".join(quantize)


def path(name, value):
    if not isinstance(value, (str, os.PathLike)):
        raise UsageError(f"{name} is of type {type(value).__name__}, not a path")
    if not os.fspath(value) or "\0" in os.fsdecode(value):
        raise UsageError(f"{name} is {value!r:.60}, which no file is called")
    return value


def argument(name, value):
    """As the command line takes it, which says what is wrong with it otherwise."""
    if "\0" in str(value):
        raise UsageError(f"{name} is {value!r:.60}, which no option can be")
    return value


def function(name, value):
    if value is not None and not callable(value):
        raise UsageError(f"{name} is of type {type(value).__name__}, not a function")
    return value


def apart(settings, more):
    """Settings from two places, which say of none two things."""
    twice = [name for name in more if name in settings]
    if twice:
        raise UsageError(f"the setting {twice[0]} is given twice, in settings= and as {twice[0]}=")
    return {**settings, **more}
