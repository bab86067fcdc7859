"""Documents that the tools have written, checked for what a script reads of them: no others get past read_document()."""

import json
import math
import pathlib
import typing


class Failed(Exception):
    """Why a part of a script's work could not be done: what a tool said, or what its document lacks."""


class Rule(typing.NamedTuple):
    """What a value must be, in words and as a test."""
    words: str
    fits: typing.Callable[[typing.Any], bool]


def is_number(value: typing.Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


NUMBER = Rule("a number", is_number)
POSITIVE = Rule("a number above 0", lambda value: is_number(value) and value > 0)
WHOLE = Rule("a whole number", lambda value: type(value) is int)
TEXT = Rule("a text", lambda value: isinstance(value, str))
LIST = Rule("a list", lambda value: isinstance(value, list))


class Optional(typing.NamedTuple):
    """A key that may be absent or null."""
    shape: typing.Any


class Filled(typing.NamedTuple):
    """A list of such values that is not empty."""
    shape: typing.Any


def check(value: typing.Any, shape: typing.Any, place: str = "") -> None:
    """`shape`: a Rule; an object with the shapes of the keys that are read; a list with the shape of its elements, or Filled. Raises
    Failed with the place of what is otherwise."""
    def refuse(what: str) -> typing.NoReturn:
        raise Failed(f"{place or '/'}: {what}")

    if isinstance(shape, Rule):
        if not shape.fits(value):
            refuse(f"must be {shape.words}")
    elif isinstance(shape, (list, Filled)):
        if not isinstance(value, list) or (isinstance(shape, Filled) and not value):
            refuse("must be a list" if isinstance(shape, list) else "must be a list that is not empty")
        for number, element in enumerate(value):
            check(element, shape[0], f"{place}/{number}")
    else:
        if not isinstance(value, dict):
            refuse("must be an object")
        for key, inner in shape.items():
            optional = isinstance(inner, Optional)
            if value.get(key) is None and optional:
                continue
            if key not in value:
                refuse(f"has no {key}")
            check(value[key], inner.shape if optional else inner, f"{place}/{key}")


def read_document(path: pathlib.Path, shape: typing.Any) -> typing.Any:
    """Raises Failed that names the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        check(document, shape)
    except (OSError, ValueError, RecursionError, Failed) as error:
        raise Failed(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    return document


STAGE = {"layers": LIST, "workers": LIST}
PLAN = {"schedule": {"name": TEXT, "weight_policy": TEXT}, "stages": Filled(STAGE), "training": {"micro_batches": WHOLE},
        "workers": Filled({"id": WHOLE, "device": WHOLE}), "alternatives": Optional(LIST)}
REPORT = {
    "plan": {**PLAN, "predicted": {"step_s": Optional(NUMBER), "samples_per_s": Optional(NUMBER), "stages": [{"gradients_bytes": NUMBER}]}},
    "samples_per_s": NUMBER, "steps": POSITIVE, "step_losses": LIST,
    "epochs": [{"elapsed_s": NUMBER, **{key: Optional(NUMBER) for key in ("evaluation_s", "train_loss", "test_loss", "test_accuracy")}}],
    "workers": Filled({"id": WHOLE, "bubble_fraction": NUMBER, "peak_bytes": NUMBER, "sent_bytes_per_step": NUMBER,
                       "swaps_in": Optional({"bytes": NUMBER}), "swaps_out": Optional({"bytes": NUMBER})})}
STEPS = {"plan": {**PLAN, "predicted": {"step_s": POSITIVE}}, "step_s": POSITIVE}
CLUSTER = {"devices": LIST}
