"""Modules without the memory of their weights, for --plan-only: parameters have shapes and types, and no values."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .refused import Refused

LARGE = 2**16  # elements: smaller tensors are made as they are
FACTORIES = {torch.empty, torch.empty_strided, torch.rand, torch.randn, torch.normal}  # whose values nobody needs


class WithoutMemory(TorchFunctionMode):
    """While a module is made: large tensors that are empty or random lie on the device `meta`."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        bare = not any(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values()))
        if func in FACTORIES and bare and kwargs.get("device") is None:
            made = func(*args, **kwargs | {"device": "meta", "pin_memory": False})
            if made.numel() >= LARGE:
                return made
        return func(*args, **kwargs)


def placed(module: torch.nn.Module) -> torch.nn.Module:
    """Every parameter, and every buffer of the state_dict that has no values, as one zero that is spread over its shape:
    to torch.export a tensor of the CPU like any other."""
    made: dict[int, torch.nn.Parameter] = {}
    for path, part in module.named_modules():
        for name, parameter in part.named_parameters(recurse=False, remove_duplicate=False):
            made.setdefault(id(parameter), spread(parameter, parameter.dtype))
            setattr(part, name, made[id(parameter)])
        for name, buffer in part.named_buffers(recurse=False, remove_duplicate=False):
            if not buffer.is_meta:
                continue
            if name in part._non_persistent_buffers_set:
                raise Refused(f"the buffer {path}.{name} has no values here and stands in no weights file; make the module "
                              'without torch.device("meta") and without random numbers in its buffers, or register it '
                              "with persistent=True")
            setattr(part, name, torch.zeros((), dtype=buffer.dtype).expand(buffer.shape))
    return module


def spread(parameter: torch.nn.Parameter, dtype: torch.dtype) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.zeros((), dtype=dtype).expand(parameter.shape), parameter.requires_grad)


@contextlib.contextmanager
def narrowed(module: torch.nn.Module) -> Iterator[None]:
    """Floating parameters and buffers are bfloat16 for a while."""
    held, made = [], {}
    for part in module.modules():
        for name, tensor in [*part.named_parameters(recurse=False, remove_duplicate=False),
                             *part.named_buffers(recurse=False, remove_duplicate=False)]:
            if tensor.is_floating_point():
                held.append((part, name, tensor))
                narrow = spread(tensor, torch.bfloat16) if isinstance(tensor, torch.nn.Parameter) else tensor.bfloat16()
                made.setdefault(id(tensor), narrow)
    for part, name, tensor in held:
        setattr(part, name, made[id(tensor)])
    try:
        yield
    finally:
        for part, name, tensor in held:
            setattr(part, name, tensor)
