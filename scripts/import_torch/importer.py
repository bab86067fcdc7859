"""From a module to the document and its weights."""

import dataclasses
import re
from typing import Any

import torch

from . import document as documents
from . import rehearsal
from .export import PREFIX, Choice, export, wrap
from .factory import SAMPLES, Example
from .graph import DTYPES, Buffer, Constant, Parameter, Step, TensorType, Value, replaced
from .grouping import Grouping, key_of
from .interpreter import Tensors, join, local_weights
from .layers import ModelWriter, buffers_of
from .precision import precise_steps
from .refused import Refused
from .simplify import Simplified, all_tensors
from .trace import Trace, statistics
from .verify import Verification


@dataclasses.dataclass
class Imported:
    document: dict[str, Any]
    weights: Tensors
    parameters: set[str]  # of the weights; the others are buffers
    trained: set[str]  # of the parameters; the others are frozen
    unused: list[str]  # parameters of the module that its output does not depend on
    left_out: list[str]  # of what the module returns
    differences: dict[str, float]


def import_module(module: torch.nn.Module, examples: list[Example], name: str, loss: str | None,
                  level: str, output: str | None = None, plan_only: bool = False) -> Imported:
    """`plan_only`: the module has no values (placeholders.py), so nothing runs and nothing is compared."""
    refuse_types(module)
    rehearsal.refuse_shared_memory(module)
    choice = Choice(loss == "module", output)
    wrapper = wrap(module, examples, choice)
    exported = export(wrapper, examples)
    trace = Trace(exported)
    graph = Simplified(trace, module, precise_steps(trace, module, examples, choice, not plan_only))
    if not plan_only:
        kept = {join(PREFIX, name) for name in statistics(trace.steps)}
        rehearsal.refuse_changing(wrapper, [example.draw(SAMPLES) for example in examples], kept)
    writing = Writing(graph, module, examples, name, loss, level)
    document = writing.document()
    weights = weights_of(document, module, writing.large, not plan_only)
    if plan_only:
        document = documents.marked(document, "verified", False)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    held = {id(parameters[name]) for name in weights if name in parameters}
    unused = [name for name, parameter in module.named_parameters() if id(parameter) not in held]
    own = set(weights) & set(parameters)
    trained = {name for name in own if parameters[name].requires_grad}
    differences = {} if plan_only else Verification(wrapper, examples, document, weights).run()
    return Imported(document, weights, own, trained, unused, choice.left_out, differences)


def refuse_types(module: torch.nn.Module) -> None:
    """Weights that pp-run does not compute with, and that an export would compute in another type than it."""
    for name, tensor in module.state_dict().items():
        if tensor.dtype == torch.float16 or tensor.is_complex():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise Refused(f"{name} is {kind}, which pp-run has no weights of; import the module as .float(), without casts "
                          "to float16 in forward(), and train it with --autocast float16 or in bfloat16")


class Writing:
    """The graph's steps as layers and, where the loss is the module's own, as its loss."""

    def __init__(self, graph: Simplified, module: torch.nn.Module, examples: list[Example], name: str, loss: str | None,
                 level: str) -> None:
        self.graph, self.module, self.examples = graph, module, examples
        self.name, self.loss, self.level = name, loss, level
        self.large: dict[int, torch.Tensor] = {}  # as ModelWriter has it

    def document(self) -> dict[str, Any]:
        graph = self.graph
        targets = {example.name for example in self.examples if example.target}
        steps, loss_steps = self.split_loss(targets)
        outputs = self.outputs(steps, loss_steps)
        if not steps:
            raise Refused("the module's outputs do not depend on its inputs and parameters")
        writer = ModelWriter(self.grouping(steps), graph.types, graph.inputs, outputs, graph.tensors, graph.owners)
        self.large = writer.large
        references = [writer.references[value] for value in outputs]
        loss = self.loss_of(references, writer, loss_steps)
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
        first = self.graph.outputs[0]
        if first.producer not in reached or self.graph.types[first] != TensorType("float32", (), 0):
            raise Refused("--loss module: the module's first output must be one number that depends on the target")
        if any(isinstance(weight, Parameter) for step in loss for weight in step.all_weights()):
            raise Refused("--loss module: a layer with parameters reads the target; the loss has no parameters of its "
                          "own")
        constant = lambda leaf: Constant(self.graph.tensors[leaf.name]) if isinstance(leaf, Buffer) else leaf
        loss = [dataclasses.replace(step, arguments=replaced(step.arguments, constant)) for step in loss]
        names = {step.name for step in loss}
        return [step for step in self.graph.steps if step.name not in names], loss

    def outputs(self, steps: list[Step], loss_steps: list[Step]) -> list[Value]:
        """What the layers must hand out: the module's outputs, or what its loss reads."""
        if self.loss == "module":
            read = [value for step in loss_steps for value in step.inputs]
            own = {step.name for step in steps}
            for value in read:
                if value.producer in own and not self.graph.types[value].rows:
                    raise Refused(f"--loss module: the loss reads {value.producer}, which depends on parameters alone; "
                                  "leave it out of the loss: pp-run adds a penalty on weights by --weight-decay")
            return list(dict.fromkeys(value for value in [*self.graph.outputs, *read] if value.producer in own))
        for value in self.graph.outputs:
            if not self.graph.types[value].plain():
                raise Refused(f"the output {value.producer} has no batch as its first dimension; return a tensor "
                              "[batch, ...]")
        return self.graph.outputs

    def loss_of(self, references: list[str], writer: ModelWriter, steps: list[Step]) -> dict[str, Any] | None:
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
        if len(shape) not in (1, 2, 3):
            raise Refused(f"--loss cross_entropy: the output {shape} of a sample is neither [classes] nor [positions, "
                          "classes] nor [classes, height, width]; compute the loss in the module (--loss module)")
        return {"name": self.target_name(), "dtype": "int64", "shape": shape[1:] if len(shape) == 3 else shape[:-1]}


def tensor_entry(example: Example) -> dict[str, Any]:
    return {"name": example.name, "dtype": DTYPES[example.dtype], "shape": list(example.shape)}


def weights_of(document: dict[str, Any], module: torch.nn.Module, large: dict[int, torch.Tensor], copied: bool) -> Tensors:
    """Parameters and buffers by their names in the document, and constants that are too large for it."""
    tensors = all_tensors(module)
    found: Tensors = {}
    for layer in document["layers"]:
        if "weights_of" not in layer:
            constants = {join(scope, entry["name"]): large[id(entry)] for scope, entry in buffers_of(layer)
                         if id(entry) in large}
            for local in local_weights(layer):
                name = join(layer.get("scope", layer["name"]), local)
                tensor = constants[local] if local in constants else tensors[name].detach()
                found[name] = tensor.clone() if copied else tensor
    return found


def default_name(factory: str) -> str:
    """`torchvision.models:resnet18` -> resnet18"""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", factory.partition(":")[2].partition("(")[0]) or "model"
