"""From a module to the document and its weights."""

import dataclasses
import re
from typing import Any

import torch

from . import document as documents
from . import rehearsal
from .export import PREFIX, Choice, export, wrap
from .factory import SAMPLES, Example
from .graph import DTYPES, Buffer, Constant, Parameter, Step, TensorType, Value, join, replaced, target_name
from .grouping import Grouping, copied_steps, key_of, without_data
from .layers import ModelWriter
from .precision import precise_steps
from .refused import Refused
from .runtime import Tensors
from .simplify import Simplified, all_tensors
from .trace import Trace, statistics
from .verify import Verification

aten = torch.ops.aten
ELEMENTWISE = ("add", "multiply", "scale", "bias", "relu", "sigmoid", "tanh", "dropout", "soft_cap")


@dataclasses.dataclass
class Imported:
    document: dict[str, Any]
    weights: Tensors
    parameters: set[str]  # of the weights; the others are buffers
    trained: set[str]  # of the parameters; the others are frozen
    unused: list[str]  # parameters of the module that its output does not depend on
    left_out: list[str]  # of what the module returns
    differences: dict[str, float]
    notes: list[str]  # for who trains it
    further: dict[str, str]  # names of the state_dict that no layer has: `same as NAME`, `steps`, `kept`
    kept: Tensors  # values of the last kind


def import_module(module: torch.nn.Module, examples: list[Example], name: str, loss: str | None,
                  level: str, output: str | None = None, plan_only: bool = False) -> Imported:
    """`plan_only`: the module has no values (placeholders.py), so nothing runs and nothing is compared."""
    refuse_types(module)
    rehearsal.refuse_shared_memory(module)
    loss, _, loss_output = (loss or "").partition(":")
    choice = Choice(loss == "module", loss_output or None, output)
    wrapper = wrap(module, examples, choice)
    exported = export(wrapper, examples, runs=not plan_only)
    trace = Trace(exported)
    precise, notes = precise_steps(trace, module, examples, choice, not plan_only)
    graph = Simplified(trace, module, precise)
    kept = {join(PREFIX, name) for name in statistics(trace.steps, all_tensors(module))}
    if not plan_only:
        rehearsal.refuse_changing(wrapper, [example.draw(SAMPLES) for example in examples], kept)
        rehearsal.refuse_counting(wrapper, [example.draw(SAMPLES) for example in examples])
    writing = Writing(graph, module, examples, name, loss or None, level)
    document = writing.document()
    tensors = all_tensors(module)
    weights = {name: tensors[name].detach() if values is None else values for name, values in writing.weights.items()}
    if not plan_only:
        weights = {name: tensor.clone() for name, tensor in weights.items()}
    if plan_only:
        document = documents.marked(document, "verified", False)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    held = {id(parameters[name]) for name in weights if name in parameters}
    unused = [name for name, parameter in module.named_parameters() if id(parameter) not in held]
    own = set(weights) & set(parameters)
    trained = {name for name in own if parameters[name].requires_grad}
    differences = {} if plan_only else Verification(wrapper, examples, document, weights).run()
    return Imported(document, weights, own, trained, unused, choice.left_out, differences, notes,
                    *further_state(module, weights))


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
        self.weights: dict[str, torch.Tensor | None] = {}  # as ModelWriter has them

    def document(self) -> dict[str, Any]:
        graph = self.graph
        targets = {example.name for example in self.examples if example.target}
        steps, loss_steps = self.split_loss(targets)
        outputs = self.outputs(steps, loss_steps)
        if not steps:
            raise Refused("the module's outputs do not depend on its inputs and parameters")
        writer = ModelWriter(self.grouping(steps), graph.types, graph.inputs, outputs, graph.tensors, graph.owners)
        self.weights = writer.weights
        references = [writer.references[value] for value in outputs]
        loss = self.loss_of(references, writer, loss_steps)
        inputs = [tensor_entry(example) for example in self.examples if not example.target]
        entries = [tensor_entry(example) for example in self.examples if example.target]
        if self.loss in ("cross_entropy", "mse"):
            entries.append(self.target(graph.types[outputs[0]], classes_first(outputs[0], steps)))
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
            raise Refused("--loss module: the module's first output must be one number that depends on the target; "
                          "--loss module:NAME|INDEX says which output is the loss")
        loss = self.with_reductions(loss)
        if any(isinstance(weight, Parameter) for step in loss for weight in step.all_weights()):
            raise Refused("--loss module: a layer with parameters reads the target; the loss has no parameters of its "
                          "own")
        constant = lambda leaf: Constant(self.graph.tensors[leaf.name]) if isinstance(leaf, Buffer) else leaf
        names = {step.name for step in loss}
        loss = [dataclasses.replace(step, arguments=replaced(step.arguments, constant)) for step in self.with_copies(loss)]
        return [step for step in self.graph.steps if step.name not in names], loss

    def with_reductions(self, loss: list[Step]) -> list[Step]:
        """Also what the loss alone reads of all samples, such as the mean of an auxiliary loss."""
        alone = without_data(self.graph.steps, set(self.graph.inputs))
        taken, read_by_layers = {step.name for step in loss}, set()
        for step in reversed(self.graph.steps):
            whole = all(kind.rows == 0 for kind in step.outputs) and step.name not in alone | read_by_layers
            if whole and not any(isinstance(weight, Parameter) for weight in step.all_weights()):
                taken.add(step.name)
            if step.name not in taken:
                read_by_layers |= {value.producer for value in step.inputs}
        return [step for step in self.graph.steps if step.name in taken]

    def with_copies(self, loss: list[Step]) -> list[Step]:
        """Also what every reader has a copy of."""
        copied = copied_steps(self.graph.steps, self.graph.types, set(self.graph.inputs))
        taken, read = {step.name for step in loss}, {value.producer for step in loss for value in step.inputs}
        for step in reversed(self.graph.steps):
            if step.name in copied & read:
                taken.add(step.name)
                read |= {value.producer for value in step.inputs}
        return [step for step in self.graph.steps if step.name in taken]

    def refuse_without_samples(self, name: str, steps: list[Step]) -> None:
        if name in without_data(steps, set(self.graph.inputs)):
            raise Refused(f"--loss module: the loss reads {name}, which depends on parameters alone; leave it out of the "
                          "loss: pp-run adds a penalty on weights by --weight-decay")
        raise Refused(f"--loss module: the loss reads {name}, which a layer with parameters computes from all samples of a "
                      "batch; take the mean over the samples last")

    def outputs(self, steps: list[Step], loss_steps: list[Step]) -> list[Value]:
        """What the layers must hand out: the module's outputs, or what its loss reads."""
        if self.loss == "module":
            read = [value for step in loss_steps for value in step.inputs]
            own = {step.name for step in steps} - {step.name for step in loss_steps}
            for value in read:
                if value.producer in own and not self.graph.types[value].rows:
                    self.refuse_without_samples(value.producer, steps)
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
            return self.table_loss(steps, writer) or writer.loss(steps, self.graph.outputs[0])
        return {"op": self.loss, "inputs": [references[0], self.target_name()]}

    def table_loss(self, steps: list[Step], writer: ModelWriter) -> dict[str, Any] | None:
        """cross_entropy of the table where the loss is one, of logits and a target as they are: it counts right answers."""
        made = {step.name: step for step in steps}
        last = made[self.graph.outputs[0].producer]
        if last.target != aten.cross_entropy_loss.default or (
                last.arguments["weight"] is not None or last.arguments["reduction"] != 1):
            return None
        logits, labels = last.arguments["self"], last.arguments["target"]
        flat = made.get(labels.producer)
        if flat is not None and flat.target in (aten.view.default, aten.reshape.default, aten.flatten.using_ints):
            labels = flat.arguments["self"]
        kind, wanted = self.graph.types[logits], self.graph.inputs.get(getattr(labels, "producer", ""))
        places = kind.shape[1:] if kind.rows == 1 else (kind.rows,)
        fits = len(kind.shape) in (1, 3) if kind.rows == 1 else len(kind.shape) == 1
        if logits.producer in made or kind.batch_dim or not fits or wanted != TensorType("int64", places):
            return None
        plain = {"ignore_index": -100, "label_smoothing": 0.0}
        given = {name: last.arguments[name] for name, value in plain.items() if last.arguments[name] != value}
        return {"op": "cross_entropy", "inputs": [writer.references[logits], labels.producer],
                **({"attributes": given} if given else {})}

    def target_name(self) -> str:
        taken = {example.name for example in self.examples} | {step.path for step in self.graph.steps}
        return next(n for n in ("label", "labels", "target_label") if n not in taken)

    def target(self, kind: TensorType, first: bool | None) -> dict[str, Any]:
        shape = list(kind.shape)
        if self.loss == "mse":
            return {"name": self.target_name(), "dtype": "float32", "shape": shape}
        if len(shape) not in (1, 2, 3):
            raise Refused(f"--loss cross_entropy: the output {shape} of a sample is neither [classes] nor [positions, "
                          "classes] nor [classes, height, width]; compute the loss in the module (--loss module)")
        if first is (len(shape) == 2) and len(shape) > 1:
            made, taken = "[..., classes]", "[classes, height, width]"
            if first:
                made, taken = "[classes, positions]", "[positions, classes]"
            raise Refused(f"--loss cross_entropy: the output {shape} of a sample is {made} by the call that makes it, and the "
                          f"loss takes {taken}; return it so (permute), or compute the loss in the module (--loss module)")
        return {"name": self.target_name(), "dtype": "int64", "shape": shape[1:] if len(shape) == 3 else shape[:-1]}


CHANNELS = ("conv", "batch_norm", "group_norm", "max_pool", "avg_pool", "adaptive_", "upsample", "instance_norm")


def classes_first(value: Value, steps: list[Step]) -> bool | None:
    """Whether the call that makes the output, behind what works on each element alone, has its channels behind the batch
    or in the last dimension; None where that is not known."""
    makers = {step.name: step for step in steps}
    while (step := makers.get(value.producer)) is not None and step.inputs:
        name = target_name(step.target).removeprefix("aten::") if step.op == "aten" else step.op
        if name.startswith(CHANNELS):
            return True
        if name.startswith(("linear", "layer_norm")):
            return False
        pointwise = step.op in ELEMENTWISE or step.op == "aten" and torch.Tag.pointwise in step.target.tags
        if not pointwise:
            return None
        value = step.inputs[0]
    return None


def tensor_entry(example: Example) -> dict[str, Any]:
    return {"name": example.name, "dtype": DTYPES[example.dtype], "shape": list(example.shape)}


def further_state(module: torch.nn.Module, weights: Tensors) -> tuple[dict[str, str], Tensors]:
    """Names of the state_dict that the model does not have, and what they hold: another name of a tied tensor, batch
    norm's counter of steps, or what nothing trains, with its values."""
    state = {name: t for name, t in module.state_dict(keep_vars=True).items() if isinstance(t, torch.Tensor)}
    owners = {id(state[name]): name for name in weights if name in state}
    further, kept = {}, {}
    for name, tensor in state.items():
        if name in weights:
            continue
        statistics_name = name.removesuffix("num_batches_tracked") + "running_mean"
        if id(tensor) in owners:
            further[name] = f"same as {owners[id(tensor)]}"
        elif id(state.get(statistics_name)) in owners:
            further[name] = "steps"
        else:
            further[name], kept[name] = "kept", tensor.detach()
    return further, kept


def default_name(factory: str) -> str:
    """`torchvision.models:resnet18` -> resnet18"""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", factory.partition(":")[2].partition("(")[0]) or "model"
