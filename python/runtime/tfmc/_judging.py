"""Runs of fit: which validation is the best, what a metric gives, and what callbacks are told.

In: records of the log, best= and metric= of fit. Out: ratings, the greater the better; numbers of a metric by name; events.
Refused: names that neither a result nor a metric has, metrics that give no number, NaN.
"""
import collections.abc
import math

from ._errors import InputError, UsageError


class Event(dict):
    """A line of the log, as a dict, with kind ("step", "valid" or "checkpoint"), step, epoch, results (of the objective, and of
    a metric) and trainer."""

    APART = ("kind", "step", "epoch", "lr", "norm", "tokens", "items", "padding", "left_out", "seconds")

    def __init__(self, record, trainer):
        super().__init__(record)
        self.trainer = trainer

    @property
    def kind(self):
        return self["kind"]

    @property
    def step(self):
        return self["step"]

    @property
    def epoch(self):
        return self["epoch"]

    @property
    def results(self):
        return {name: value for name, value in self.items() if name not in self.APART}


def refuse_average(given):
    if given.get("average") is not None:
        raise UsageError(f"average= is a setting of the trainer: Trainer(source, average={given['average']!r})")


def _name(best):
    return best[1:] if best.startswith("-") else best


def check(trainer, best, valid, metric):
    """What can be said before a metric has answered."""
    if best is None:
        return
    if not isinstance(best, str) or not _name(best):
        raise UsageError(f'best is {best!r}, not the name of a result, such as "accuracy", or "-loss" for the least')
    if valid is None:
        raise UsageError("best is for a run with valid=")
    if metric is None and _name(best) not in trainer.results:
        raise UsageError(f"best names {_name(best)!r}, and the results are {', '.join(trainer.results)}")


def is_of_metric(trainer, best):
    """Whether the number that judges validations is a metric's."""
    return best is not None and _name(best) not in trainer.results


def rating(record, best):
    """The greater, the better."""
    name = _name(best) if best else "score" if "score" in record else "loss"
    value = record.get(name)
    if value is None:
        return -math.inf
    return -value if (best or ("-loss" if name == "loss" else "")).startswith("-") else value


def _number(value, what):
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{what} gave {value!r}, not a number", reason="type") from None
    if math.isnan(number):
        raise InputError(f"{what} gave NaN, which is no better or worse than another number", reason="value")
    return number


def scores_of(metric, trainer, best):
    """What the metric gives, by name; a single number is `score`."""
    given = metric(trainer)
    if not isinstance(given, collections.abc.Mapping):
        if is_of_metric(trainer, best) and _name(best) != "score":
            raise InputError(f"best names {_name(best)!r}, but metric gave one number, which is called score", reason="value")
        return {"score": _number(given, "metric")}
    taken = [name for name in given if name in trainer.results or name in Event.APART or not isinstance(name, str)]
    if taken:
        raise InputError(f"metric gave {taken[0]!r}, which the log has already: give it another name", reason="value")
    if best is None and "score" not in given:
        raise InputError(f"metric gave several numbers: best= says by which of {', '.join(given)} validations are judged",
                         reason="value")
    if is_of_metric(trainer, best) and _name(best) not in given:
        raise InputError(f"best names {_name(best)!r}, and metric gave {', '.join(given)}", reason="value")
    return {name: _number(value, f"metric: {name}") for name, value in given.items()}
