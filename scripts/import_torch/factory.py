"""The user's module and its example inputs, from what the command line says."""

import ast
import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import os
import pathlib
import sys
from typing import Any

import torch

from .placeholders import WithoutMemory, placed
from .refused import Refused, described, users_code

SAMPLES = 3  # of the examples: neither one nor a likely size


@dataclasses.dataclass
class Example:
    """One input of the module: `float32:3x64x64`, `int64:128:0..999`, with a name in front where it is no position."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    low: float
    high: float
    name: str = ""
    target: bool = False
    positional: bool = False  # handed to forward() by position; else by its name

    def draw(self, samples: int) -> torch.Tensor:
        size = (samples, *self.shape)
        if self.dtype.is_floating_point:
            if self.low == self.high:
                return torch.randn(size, dtype=self.dtype)
            return torch.rand(size, dtype=self.dtype) * (self.high - self.low) + self.low
        return torch.randint(int(self.low), int(self.high) + 1, size, dtype=self.dtype)


def parse_example(text: str) -> Example:
    form = "--example is [NAME=]TYPE:SHAPE[:LOW..HIGH], such as float32:3x64x64 or int64:128:0..999"
    name, _, spec = text.rpartition("=")
    parts = spec.split(":")
    kinds = {"float32": torch.float32, "int64": torch.int64, "uint8": torch.uint8}
    if len(parts) not in (2, 3) or parts[0] not in kinds:
        raise Refused(f"--example {text}: the type is float32, int64 or uint8; {form}")
    try:
        shape = tuple(int(size) for size in parts[1].split("x")) if parts[1] else ()
        low, high = (float(bound) for bound in parts[2].split("..")) if len(parts) == 3 else (0.0, 0.0)
    except ValueError:
        raise Refused(f"--example {text}: {form}") from None
    if any(size < 1 for size in shape) or low > high:
        raise Refused(f"--example {text}: sizes are from 1 upwards, and LOW is not above HIGH")
    if parts[0] != "float32" and len(parts) == 2:
        high = 1.0
    return Example(kinds[parts[0]], shape, low, high, name)


def load(text: str, seed: int, weights: bool = True) -> torch.nn.Module:
    """`PACKAGE.MODULE:FACTORY`, `FILE.py:FACTORY`, each with arguments in brackets where it takes some."""
    place, separator, call = text.partition(":")
    if not separator or not call:
        raise Refused(f"{text}: write PACKAGE.MODULE:FACTORY or FILE.py:FACTORY, such as torchvision.models:resnet18")
    name, arguments = parse_call(call, text)
    factory = getattr(import_place(place), name, None)
    if factory is None:
        raise Refused(f"{place} has no {name}")
    torch.manual_seed(seed)
    with users_code(lambda error, at: f"{at}{text} failed: {described(error)}"), \
            contextlib.nullcontext() if weights else WithoutMemory():
        made = factory(**arguments) if callable(factory) and not isinstance(factory, torch.nn.Module) else factory
    if not isinstance(made, torch.nn.Module):
        raise Refused(f"{text} gave a {type(made).__name__}, not a torch.nn.Module")
    if isinstance(made, torch.jit.ScriptModule):
        raise Refused(f"{text} gave a scripted module, whose Python code is gone; return it as it is before torch.jit")
    lazy = [name for name, tensor in [*made.named_parameters(), *made.named_buffers()]
            if torch.nn.parameter.is_lazy(tensor)]
    if lazy:
        raise Refused(f"{text}: {lazy[0]} of a lazy module has no size yet; call the module once on a batch before the factory "
                      "returns it")
    if not weights:
        return placed(made)
    bare = [name for name, tensor in [*made.named_parameters(), *made.named_buffers()] if tensor.is_meta]
    if bare:
        raise Refused(f'{text}: {bare[0]} has no values; make the module without torch.device("meta"), or plan alone, with '
                      "--plan-only")
    return made


def parse_call(call: str, text: str) -> tuple[str, dict[str, Any]]:
    """`name(a=1, b="x")` -> name and arguments; only literals, by name."""
    try:
        node = ast.parse(call, mode="eval").body
        if isinstance(node, ast.Name):
            return node.id, {}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
            return node.func.id, {str(k.arg): ast.literal_eval(k.value) for k in node.keywords if k.arg}
    except (SyntaxError, ValueError):
        pass
    raise Refused(f'{text}: arguments are literals by name, such as name(layers=2, kind="small")')


def import_place(place: str) -> Any:
    with users_code(lambda error, at: f"{at}{place} cannot be imported: {described(error)}"):
        if not place.endswith(".py"):
            sys.path.insert(0, os.getcwd())
            return importlib.import_module(place)
        path = pathlib.Path(place)
        sys.path.insert(0, str(path.parent.resolve()))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module


def name_inputs(module: torch.nn.Module, examples: list[Example]) -> None:
    """Examples without a name get that of forward's parameter at their position."""
    if not examples:
        raise Refused("an import needs --example for every input of the module, such as --example float32:3x64x64")
    parameters = inspect.signature(module.forward).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    kinds = {p.kind for p in parameters}
    variable, takes = inspect.Parameter.VAR_POSITIONAL in kinds, f"forward() of {type(module).__name__} takes "
    named = False
    for position, example in enumerate(examples):
        if example.name:
            named = True
            if example.name not in by_name and inspect.Parameter.VAR_KEYWORD not in kinds:
                others = [*by_name, *(["*args (by position: leave the name out)"] if variable else [])]
                raise Refused(f"--example {example.name}=...: {takes}no input of this name, but {', '.join(others)}")
            continue
        if position >= len(names) and not variable:
            raise Refused(f"{len(examples)} --example, but {takes}{len(names)}: " + ", ".join(names))
        example.name = names[position] if position < len(names) else f"input{position}"
        example.positional = variable or example.name not in by_name
        if example.positional and named:
            raise Refused(f"--example: {takes}inputs by position; those without a name come before those with one")
    if len({example.name for example in examples}) < len(examples):
        raise Refused(f"--example: two inputs have one name: {', '.join(example.name for example in examples)}")
    for example in examples:
        if not set(example.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"):
            raise Refused(f"--example {example.name}=...: a name has letters, digits and _")
