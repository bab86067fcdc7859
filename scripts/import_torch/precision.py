"""What a module computes in float32 whatever its type, as Llama's norms do by x.float(). In float32 such casts do
nothing; an export of the same module in bfloat16 shows them."""

import copy
import dataclasses

import torch

from .export import Choice, export, wrap
from .factory import Example
from .placeholders import narrowed
from .refused import Refused
from .trace import Trace


def precise_steps(trace: Trace, module: torch.nn.Module, examples: list[Example], choice: Choice,
                  weights: bool = True) -> set[str]:
    """Names of the steps whose results are float32 where the module is in bfloat16."""
    if not trace.casts:
        return set()
    types = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    narrow = trace if torch.bfloat16 in types else in_bfloat16(module, examples, choice, weights)
    if narrow.results.keys() != trace.results.keys():
        raise Refused("forward() does something else in bfloat16 than in float32, so what it computes in float32 there "
                      "is not known; cast always, or never")
    return {name for name, kind in narrow.results.items() if kind == "float32"}


def in_bfloat16(module: torch.nn.Module, examples: list[Example], choice: Choice, weights: bool) -> Trace:
    narrow = [dataclasses.replace(example, dtype=torch.bfloat16) if example.dtype.is_floating_point else example
              for example in examples]
    try:
        if weights:
            return Trace(export(wrap(copy.deepcopy(module).bfloat16(), narrow, dataclasses.replace(choice)), narrow))
        with narrowed(module):
            return Trace(export(wrap(module, narrow, dataclasses.replace(choice)), narrow))
    except (Refused, RuntimeError, TypeError) as error:
        raise Refused("forward() casts to float32, and what that covers is seen in bfloat16 only, where the module fails: "
                      f"{error}") from error
