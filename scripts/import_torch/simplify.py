"""The trace's steps as the document will have them: constants in their places, what draws random numbers replaced, our
named operations, nothing that no output depends on."""

import dataclasses
import math

import torch

from .draws import refuse_draws, replace_draws
from .graph import Parameter, Step, TensorType, Value, aten_step
from .named import Context, name_step
from .patterns import fused
from .static import Materials
from .trace import Trace

aten = torch.ops.aten


class Simplified:
    """`precise`: names of steps that stay in float32."""

    def __init__(self, trace: Trace, module: torch.nn.Module, precise: set[str]) -> None:
        self.types, self.inputs, self.outputs = trace.types, trace.inputs, trace.outputs
        self.tensors = all_tensors(module)
        steps = living(Materials(self.types).steps(trace.steps), self.outputs)
        steps = living(replace_draws(steps, self.types), self.outputs)
        self.owners = owner_names(steps, module)
        steps = image_norms(split_tied(steps, self.types, self.owners), self.types)
        for step in steps:
            step.precise = step.name in precise and step.target != aten.batch_norm.default  # which writes its buffers
        context = Context(steps, self.types, {n: tuple(t.shape) for n, t in self.tensors.items()})
        steps = living(fused(steps, context), self.outputs)
        self.steps = living([name_step(step, context) for step in steps], self.outputs)
        refuse_draws(self.steps)


def all_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by all of their names."""
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))


def living(steps: list[Step], outputs: list[Value]) -> list[Step]:
    """What an output depends on."""
    used = {value.producer for value in outputs}
    kept = []
    for step in reversed(steps):
        if step.name in used:
            kept.append(step)
            used |= {value.producer for value in step.inputs}
    return kept[::-1]


def owner_names(steps: list[Step], module: torch.nn.Module) -> dict[str, str]:
    """A tied tensor has several names in PyTorch; here the one of the module that uses it first."""
    names: dict[int, list[str]] = {}
    for name, tensor in all_tensors(module).items():
        names.setdefault(id(tensor), []).append(name)
    ties = {name: group for group in names.values() if len(group) > 1 for name in group}
    owners: dict[str, str] = {}
    for step in steps:
        for weight in step.all_weights():
            if weight.name in ties and weight.name not in owners:
                group = ties[weight.name]
                owner = next((n for n in group if n.rpartition(".")[0] == step.path), group[0])
                owners |= {n: owner for n in group}
    return owners


def split_tied(steps: list[Step], types: dict[Value, TensorType], owners: dict[str, str]) -> list[Step]:
    """A linear layer with another's weight and a bias of its own: its bias is added by a step of its own."""
    made = []
    for step in steps:
        weight, bias = step.arguments.get("weight"), step.arguments.get("bias")
        tied = isinstance(weight, Parameter) and weight.name in owners
        if step.target != aten.linear.default or not tied or not isinstance(bias, Parameter):
            made.append(step)
            continue
        product = Value(step.name + "_product")
        types[product] = step.outputs[0]
        rest = {name: value for name, value in step.arguments.items() if name != "bias"}
        made.append(aten_step(product.producer, step.path, step.target, rest, step.outputs))
        made.append(aten_step(step.name, step.path, aten.add.Tensor, {"self": product, "other": bias}, step.outputs))
    return made


def image_norms(steps: list[Step], types: dict[Value, TensorType]) -> list[Step]:
    """Batch norm of volumes as that of images, [b, c, h, w], between two changes of shape."""
    made = []
    for step in steps:
        source = step.arguments.get("input")
        kind = types.get(source) if isinstance(source, Value) else None
        fits = step.target == aten.batch_norm.default and step.arguments["training"] and kind is not None
        if not fits or kind.rows != 1 or kind.batch_dim or len(kind.shape) <= 3:
            made.append(step)
            continue
        image = (*kind.shape[:2], math.prod(kind.shape[2:]))
        shaped = dataclasses.replace(kind, shape=image)
        names = (step.name + "_image", step.name + "_norm")
        made.append(aten_step(names[0], step.path, aten.reshape.default, {"self": source, "shape": shaped.full()},
                              [shaped]))
        made.append(aten_step(names[1], step.path, step.target, step.arguments | {"input": Value(names[0])}, [shaped]))
        made.append(aten_step(step.name, step.path, aten.reshape.default,
                              {"self": Value(names[1]), "shape": kind.full()}, [kind]))
        types |= {Value(name): shaped for name in names}
    return made
