"""From a module to the document and its weights."""

import dataclasses
import math
import re
from typing import Any

import torch

from . import document as documents
from .draws import refuse_draws, replace_draws
from .export import export, wrap
from .factory import Example
from .graph import DTYPES, Parameter, Step, TensorType, Value, aten_step
from .grouping import Grouping, key_of
from .interpreter import Tensors, join, local_weights
from .layers import ModelWriter
from .named import Context, name_step
from .refused import Refused
from .static import Materials
from .trace import Trace
from .verify import Verification

aten = torch.ops.aten
LOSSES = ("cross_entropy", "mse", "module")


@dataclasses.dataclass
class Imported:
    document: dict[str, Any]
    weights: Tensors
    trained: set[str]  # of the weights; the others are buffers
    unused: list[str]  # parameters of the module that its output does not depend on
    differences: dict[str, float]


def import_module(module: torch.nn.Module, examples: list[Example], name: str, loss: str | None, level: str) -> Imported:
    wrapper = wrap(module, examples, loss == "module")
    exported = export(wrapper, examples)
    trace = Trace(exported)
    graph = Simplified(trace, module)
    document = Writing(graph, module, examples, name, loss, level).document()
    weights = weights_of(document, module)
    verification = Verification(exported, wrapper, examples, document, weights)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    held = {id(parameters[name]) for name in weights if name in parameters}
    unused = [name for name, parameter in module.named_parameters() if id(parameter) not in held]
    return Imported(document, weights, set(weights) & set(parameters), unused, verification.run())


class Simplified:
    """The trace's steps with constants in their places, random operations replaced, dead steps left out, names given."""

    def __init__(self, trace: Trace, module: torch.nn.Module) -> None:
        self.types, self.inputs, self.outputs = trace.types, trace.inputs, trace.outputs
        self.tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
        steps = living(Materials(self.types).steps(trace.steps), self.outputs)
        steps = living(replace_draws(steps, self.types), self.outputs)
        self.owners = owner_names(steps, module)
        steps = image_norms(split_tied(steps, self.types, self.owners), self.types)
        context = Context(steps, self.types, {n: tuple(t.shape) for n, t in self.tensors.items()})
        self.steps = living([name_step(step, context) for step in steps], self.outputs)
        refuse_draws(self.steps)


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
    """A tied parameter has several names in PyTorch; here the one of the module that uses it first."""
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
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
        if step.target != aten.linear.default or not isinstance(bias, Parameter) or getattr(weight, "name", "") not in owners:
            made.append(step)
            continue
        product = aten_step(step.name + "_product", step.path, step.target, {k: v for k, v in step.arguments.items() if k != "bias"},
                            step.outputs)
        types[Value(product.name)] = step.outputs[0]
        made += [product, aten_step(step.name, step.path, aten.add.Tensor, {"self": Value(product.name), "other": bias}, step.outputs)]
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
        made.append(aten_step(names[0], step.path, aten.reshape.default, {"self": source, "shape": shaped.full()}, [shaped]))
        made.append(aten_step(names[1], step.path, step.target, step.arguments | {"input": Value(names[0])}, [shaped]))
        made.append(aten_step(step.name, step.path, aten.reshape.default, {"self": Value(names[1]), "shape": kind.full()}, [kind]))
        types |= {Value(name): shaped for name in names}
    return made


class Writing:
    def __init__(self, graph: Simplified, module: torch.nn.Module, examples: list[Example], name: str, loss: str | None,
                 level: str) -> None:
        self.graph, self.module, self.examples, self.name, self.loss, self.level = graph, module, examples, name, loss, level

    def document(self) -> dict[str, Any]:
        graph = self.graph
        targets = {example.name for example in self.examples if example.target}
        steps, loss_steps = self.split_loss(targets)
        outputs = self.outputs(steps, loss_steps)
        if not steps:
            raise Refused("the module's outputs do not depend on its inputs and parameters")
        writer = ModelWriter(self.grouping(steps), graph.types, graph.inputs, outputs, graph.tensors, graph.owners)
        references = [writer.references[value] for value in outputs]
        loss = self.loss_of(references, outputs, writer, loss_steps)
        inputs = [tensor_entry(example) for example in self.examples if not example.target]
        entries = [tensor_entry(example) for example in self.examples if example.target]
        if self.loss in ("cross_entropy", "mse"):
            entries.append(self.target(graph.types[outputs[0]]))
        return documents.model_document(self.name, inputs, entries, writer.layers, references, loss)

    def grouping(self, steps: list[Step]) -> Grouping:
        """Steps that share parameters with other groups stand alone, so that whole layers share."""
        keys = {step.name: key_of(step, self.level, self.module) for step in steps}
        alone: set[str] = set()
        while True:
            grouping = Grouping(steps, self.graph.types, self.graph.inputs, keys, alone)
            users: dict[str, set[int]] = {}
            for index, group in enumerate(grouping.groups):
                for step in group.steps:
                    for weight in step.all_weights():
                        users.setdefault(self.graph.owners.get(weight.name, weight.name), set()).add(index)
            tied = {step.name for step in steps for weight in step.all_weights()
                    if len(users[self.graph.owners.get(weight.name, weight.name)]) > 1}
            if tied <= alone:
                return grouping
            alone |= tied

    # The loss.

    def split_loss(self, targets: set[str]) -> tuple[list[Step], list[Step]]:
        """Steps that depend on a target belong to the loss."""
        if self.loss != "module":
            return self.graph.steps, []
        if not targets:
            raise Refused("--loss module: no input is a target; give it as --target labels=int64:128:0..999")
        reached, loss = set(targets), []
        for step in self.graph.steps:
            if any(value.producer in reached for value in step.inputs):
                reached.add(step.name)
                loss.append(step)
        if self.graph.outputs[0].producer not in reached or self.graph.types[self.graph.outputs[0]] != TensorType("float32", (), 0):
            raise Refused("--loss module: the module's first output must be one number that depends on the target")
        if any(isinstance(weight, Parameter) for step in loss for weight in step.all_weights()):
            raise Refused("--loss module: a layer with parameters reads the target; the loss has no parameters of its own")
        names = {step.name for step in loss}
        return [step for step in self.graph.steps if step.name not in names], loss

    def outputs(self, steps: list[Step], loss_steps: list[Step]) -> list[Value]:
        """What the layers must hand out: the module's outputs, or what its loss reads."""
        own = {step.name for step in steps}
        if self.loss != "module":
            found = self.graph.outputs
        else:
            read = [value for step in loss_steps for value in step.inputs if value.producer in own]
            found = list(dict.fromkeys([*(v for v in self.graph.outputs if v.producer in own), *read]))
        for value in found:
            if not self.graph.types[value].plain() and self.loss != "module":
                raise Refused(f"the output {value.producer} has no batch as its first dimension; return a tensor [batch, ...]")
        return found

    def loss_of(self, references: list[str], outputs: list[Value], writer: ModelWriter,
                steps: list[Step]) -> dict[str, Any] | None:
        if self.loss is None:
            return None
        if self.loss == "module":
            return writer.loss(steps, self.graph.outputs[0])
        return {"op": self.loss, "inputs": [references[0], self.target_name()]}

    def target_name(self) -> str:
        taken = {example.name for example in self.examples} | {step.path for step in self.graph.steps}
        return next(n for n in ("label", "labels", "target_label") if n not in taken)

    def target(self, kind: TensorType) -> dict[str, Any]:
        shape = list(kind.shape)
        if self.loss == "mse":
            return {"name": self.target_name(), "dtype": "float32", "shape": shape}
        if len(shape) not in (1, 2):
            raise Refused(f"--loss cross_entropy: the output {shape} of a sample is neither [classes] nor [positions, classes]; "
                          "compute the loss in the module (--loss module)")
        return {"name": self.target_name(), "dtype": "int64", "shape": shape[:-1]}


def tensor_entry(example: Example) -> dict[str, Any]:
    return {"name": example.name, "dtype": DTYPES[example.dtype], "shape": list(example.shape)}


def weights_of(document: dict[str, Any], module: torch.nn.Module) -> Tensors:
    """Parameters and buffers by their names in the document."""
    tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    found: Tensors = {}
    for layer in document["layers"]:
        if "weights_of" not in layer:
            for local in local_weights(layer):
                name = join(layer.get("scope", layer["name"]), local)
                found[name] = tensors[name].detach().clone()
    return found


def default_name(factory: str) -> str:
    """`torchvision.models:resnet18` -> resnet18"""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", factory.partition(":")[2].partition("(")[0]) or "model"
