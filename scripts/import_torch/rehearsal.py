"""The module itself in training mode with all draws switched off: what an import is compared with. It also tells what no
exported graph shows: state that forward() changes, random numbers of Python, parameters that share memory."""

import os
import random
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .refused import Refused, first_lines

aten = torch.ops.aten
RUNS = 4  # of a module that must do the same every time


class WithoutDraws(TorchDispatchMode):
    """Masks of dropout keep everything: they are what bernoulli(1 - p) / (1 - p) is on average, 1. So is
    floor(rand + 1 - p) / (1 - p), with 0 for rand and without the floor."""

    def __init__(self) -> None:
        super().__init__()
        self.noise: dict[int, torch.Tensor] = {}  # made of rand, by its place in memory

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        packet = getattr(func, "overloadpacket", None)
        if packet == aten.bernoulli_ and isinstance(args[1], float):
            return args[0].fill_(args[1])
        if packet == aten.bernoulli and len(args) > 1 and isinstance(args[1], float):
            return torch.full_like(args[0], args[1])
        noisy = any(isinstance(argument, torch.Tensor) and argument.data_ptr() in self.noise for argument in args)
        if noisy and packet in (aten.floor, aten.floor_):
            return args[0]
        made = func(*args, **(kwargs or {}))
        if packet == aten.rand or noisy and packet == aten.add:
            self.noise[made.data_ptr()] = made.fill_(0) if packet == aten.rand else made
        return made


@contextmanager
def kept_buffers(module: torch.nn.Module) -> Iterator[None]:
    """Buffers are afterwards what they were."""
    held = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, old in held:
                buffer.copy_(old)


def outputs(module: torch.nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """In training mode without draws."""
    with kept_buffers(module), WithoutDraws():
        made = module(*(tensor.clone() for tensor in inputs))
    return [made] if isinstance(made, torch.Tensor) else list(made)


def gradients(module: torch.nn.Module, inputs: list[torch.Tensor], parts: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of sum(parts * first output), by the names of parameters; all names of a tied one."""
    module.zero_grad()
    with kept_buffers(module):
        with WithoutDraws():
            made = module(*(tensor.clone() for tensor in inputs))
        first = made if isinstance(made, torch.Tensor) else made[0]
        if first.requires_grad:
            (first * parts).sum().backward()
    found = {name: parameter.grad.detach().clone()
             for name, parameter in module.named_parameters(remove_duplicate=False) if parameter.grad is not None}
    module.zero_grad()
    return found


def refuse_shared_memory(module: torch.nn.Module) -> None:
    """Parameters that are two objects on one memory: PyTorch has a gradient and a state of the optimizer for each."""
    seen: dict[int, list[tuple[int, int, str]]] = {}
    for name, parameter in module.named_parameters():
        if not parameter.numel():
            continue
        begin = parameter.data_ptr()
        span = sum((size - 1) * stride for size, stride in zip(parameter.shape, parameter.stride())) + 1
        end = begin + span * parameter.element_size()
        for other_begin, other_end, other in seen.setdefault(parameter.untyped_storage().data_ptr(), []):
            if begin < other_end and other_begin < end:
                raise Refused(f"the parameters {other} and {name} share memory without being one parameter; tie them by "
                              f"assigning the parameter itself, such as module.{name} = module.{other}, or clone one")
        seen[parameter.untyped_storage().data_ptr()].append((begin, end, name))


def forward(module: torch.nn.Module, inputs: list[torch.Tensor]) -> Any:
    """What the module returns; what its code says where it fails on the examples."""
    try:
        return module(*(tensor.clone() for tensor in inputs))
    except Refused:
        raise
    except Exception as error:  # the user's code raises anything
        given = ", ".join(f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in inputs)
        last = [frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}torch{os.sep}" not in frame.filename
                and os.path.dirname(frame.filename) != os.path.dirname(__file__)][-1:]
        place = "".join(f"{frame.filename}:{frame.lineno}: " for frame in last)
        raise Refused(f"{place}forward() fails on the examples ({given}): {first_lines(error)}; say with --example what it "
                      "takes: ids of tokens are int64:LENGTH:0..LARGEST") from error


def refuse_changing(module: torch.nn.Module, inputs: list[torch.Tensor], statistics: set[str]) -> None:
    """What several passes in training mode show: buffers other than batch norm's `statistics` that change, and results
    that differ though all draws are switched off."""
    updated = {id(buffer) for name, buffer in module.named_buffers(remove_duplicate=False)
               if name in statistics or name.endswith("num_batches_tracked")}
    before = [(name, buffer, buffer.detach().clone()) for name, buffer in module.named_buffers()
              if id(buffer) not in updated]
    dice, first = random.getstate(), None
    with torch.no_grad(), kept_buffers(module), WithoutDraws():
        for run in range(RUNS):
            random.seed(run)
            seeded = random.getstate()
            made = forward(module, inputs)
            rolled = random.getstate() != seeded
            random.setstate(dice)
            made = [made] if isinstance(made, torch.Tensor) else list(made)
            first = first or [tensor.clone() for tensor in made]
            worst = max(float((a - b).abs().max()) if a.numel() else 0.0 for a, b in zip(made, first))
            if rolled or worst > 1e-4 * max(float(b.abs().max()) if b.numel() else 0.0 for b in first):
                drawn = "draws numbers of Python's random" if rolled else f"gives other outputs, by up to {worst:.1e}"
                raise Refused(f"forward() {drawn} in training mode without dropout; an export keeps one of its branches "
                              "for ever. Known are dropout, dropout2d and stochastic depth as tensor operations, such "
                              "as torchvision.ops.StochasticDepth")
            for name, buffer, old in before:
                if not torch.equal(buffer, old):
                    raise Refused(f"the module changes {name.partition('.')[2]} in forward(); only batch norm's statistics "
                                  "may change there")
