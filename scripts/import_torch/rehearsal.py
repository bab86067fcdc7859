"""The module itself in training mode, where every draw keeps everything: what an import is compared with. It also tells
what no exported graph shows: state that forward() changes, random numbers of Python, parameters that share memory."""

import dataclasses
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .graph import named_arguments
from .refused import Refused, described, users_code

aten = torch.ops.aten
RUNS = 4  # of a module that must do the same every time


class AllKept(TorchDispatchMode):
    """Every mask of a dropout keeps everything, which leaves its factor 1 / (1 - p): that shows where it stands, and
    its p. `masks`: their numbers of elements."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        packet = getattr(func, "overloadpacket", None)
        if packet in (aten.bernoulli_, aten.bernoulli):
            mask = named_arguments(func, args, kwargs or {})["self"]
            self.masks.append(mask.numel())
            return mask.fill_(1) if packet == aten.bernoulli_ else torch.ones_like(mask)
        made = func(*args, **(kwargs or {}))
        if packet == aten.rand:
            self.masks.append(made.numel())
            made.fill_(1.0 - 1e-7)
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


def forward(module: torch.nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """What the module returns; where its code fails on the examples, what that says."""
    def explain(error: Exception, place: str) -> str:
        given = ", ".join(f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in inputs)
        return (f"{place}forward() fails on the examples ({given}): {described(error)}; say with --example what it takes, ids "
                "of tokens as int64:LENGTH:0..LARGEST")
    with users_code(explain):
        made = module(*(tensor.clone() for tensor in inputs))
    return [made] if isinstance(made, torch.Tensor) else list(made)


@dataclasses.dataclass
class Passed:
    """A pass of the module in training mode, all draws kept."""

    outputs: list[torch.Tensor]
    buffers: dict[str, torch.Tensor]  # after the pass
    masks: list[int]  # of the draws: elements


def training_pass(module: torch.nn.Module, inputs: list[torch.Tensor]) -> Passed:
    with torch.no_grad(), kept_buffers(module), AllKept() as kept:
        made = forward(module, inputs)
        buffers = {name: buffer.clone() for name, buffer in module.named_buffers(remove_duplicate=False)}
    return Passed(made, buffers, kept.masks)


def gradients(module: torch.nn.Module, inputs: list[torch.Tensor], parts: torch.Tensor) -> dict[str, torch.Tensor]:
    """Of sum(parts * first output), all draws kept, by the names of parameters; all names of a tied one."""
    module.zero_grad()
    with kept_buffers(module):
        with AllKept():
            first = forward(module, inputs)[0]
        if first.requires_grad:
            with users_code(lambda error, place: f"{place}the module's backward fails: {described(error)}"):
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


def numbers_of(module: torch.nn.Module) -> dict[tuple[torch.nn.Module, str], float]:
    """Attributes of the module and its parts that are plain numbers."""
    return {(part, name): value for part in module.modules() for name, value in vars(part).items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)}


def refuse_counting(module: torch.nn.Module, inputs: list[torch.Tensor]) -> None:
    """A number that every pass changes, such as a count of steps, and that the outputs depend on."""
    with torch.no_grad(), kept_buffers(module), AllKept():
        states, made = [numbers_of(module)], []
        for _ in range(2):
            made = forward(module, inputs)
            states.append(numbers_of(module))
        counting = [key for key, value in states[2].items() if states[0].get(key) != states[1].get(key) != value]
        for part, name in counting:
            setattr(part, name, type(states[2][part, name])(states[2][part, name] * 1000 + 1000000))
            try:
                same = all(torch.equal(a, b) for a, b in zip(forward(module, inputs), made))
            except Refused:  # no such step
                same = False
            if not same:
                raise Refused(f"forward() changes {type(part).__name__}.{name}, a number that its outputs depend on; an import "
                              "keeps the present one for ever. Fix it, or hand it over as an input")
        for (part, name), value in states[0].items():
            setattr(part, name, value)


def refuse_changing(module: torch.nn.Module, inputs: list[torch.Tensor], statistics: set[str]) -> None:
    """What several passes in training mode show: buffers other than batch norm's `statistics` that change, and results
    that differ though all draws are kept."""
    updated = {id(buffer) for name, buffer in module.named_buffers(remove_duplicate=False)
               if name in statistics or name.endswith("num_batches_tracked")}
    before = [(name, buffer, buffer.detach().clone()) for name, buffer in module.named_buffers()
              if id(buffer) not in updated]
    dice, first = random.getstate(), None
    with torch.no_grad(), kept_buffers(module), AllKept():
        for run in range(RUNS):
            random.seed(run)
            seeded = random.getstate()
            made = forward(module, inputs)
            rolled = random.getstate() != seeded
            random.setstate(dice)
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
