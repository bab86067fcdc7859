"""What a module computes in float32 whatever its type, as Llama's norms do by x.float(). In float32 such casts do
nothing; an export of the same module in bfloat16 shows them."""

import copy
import dataclasses

import torch

from .export import Choice, export, wrap
from .factory import Example
from .placeholders import narrowed
from .refused import Refused, first_lines
from .trace import Trace


def precise_steps(trace: Trace, module: torch.nn.Module, examples: list[Example], choice: Choice,
                  weights: bool = True) -> tuple[set[str], list[str]]:
    """Names of the steps whose results are float32 where the module is in bfloat16; and why there are none although the
    module casts to float32."""
    if not trace.casts:
        return set(), []
    types = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    note = "in a bfloat16 run its casts to float32 do nothing: "
    try:
        narrow = trace if torch.bfloat16 in types else in_bfloat16(module, examples, choice, weights)
    except (Refused, RuntimeError, TypeError) as error:
        return set(), [f"{note}in bfloat16 {first_lines(error, 1)}"]
    if not trace.results.keys() <= narrow.results.keys():
        return set(), [f"{note}forward() does something else in bfloat16"]
    return {name for key, (name, _) in trace.results.items() if narrow.results[key][1] == "float32"}, []


def in_bfloat16(module: torch.nn.Module, examples: list[Example], choice: Choice, weights: bool) -> Trace:
    narrow = [dataclasses.replace(example, dtype=torch.bfloat16) if example.dtype.is_floating_point else example
              for example in examples]
    if weights:
        return Trace(export(wrap(copy.deepcopy(module).bfloat16(), narrow, dataclasses.replace(choice)), narrow))
    with narrowed(module):
        return Trace(export(wrap(module, narrow, dataclasses.replace(choice)), narrow))
