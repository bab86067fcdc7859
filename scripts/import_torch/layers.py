"""Groups of steps into the layers of the document."""

import dataclasses
import re
from typing import Any

import torch

from .calls import CallWriter, within
from .graph import Parameter, Step, TensorType, Value, aten_step, join, with_values
from .grouping import Group, Grouping
from .refused import Refused

aten = torch.ops.aten
NAME = re.compile(r"[A-Za-z0-9_./-]+")


def common_scope(names: list[str]) -> str:
    """The longest module path that all these parameters lie in."""
    paths = [name.split(".")[:-1] for name in names]
    scope = []
    for parts in zip(*paths):
        if len(set(parts)) > 1:
            break
        scope.append(parts[0])
    return ".".join(scope)


class LayerWriter:
    """One group as a layer: converts what crosses its border, names its nodes, and writes them."""

    def __init__(self, group: Group, name: str, grouping: Grouping, model: "ModelWriter") -> None:
        self.group, self.name, self.grouping, self.model = group, name, grouping, model
        self.types = model.types
        self.inside: dict[Value, Value] = {}  # what an outer value is called in here
        self.kinds: dict[Value, TensorType] = {}  # of values as they are called in here
        self.steps: list[Step] = []
        self.inputs: list[str] = []
        self.in_loss = False

    def write(self) -> dict[str, Any]:
        for step in self.group.steps:
            self.take(step)
        read = self.model.read_outside(self.group)
        outputs = [self.leaving(value) for value in read]
        self.model.references |= {value: f"{self.name}:{k}" if k else self.name for k, value in enumerate(read)}
        return self.layer(outputs)

    def write_loss(self, output: Value) -> dict[str, Any]:
        """Its predictions stand before its targets."""
        self.in_loss = True
        for step in self.group.steps:
            self.take(step)
        self.inputs.sort(key=lambda name: name in self.model.inputs)
        names = self.node_names("")
        return {"op": "graph", "inputs": self.inputs, "nodes": [self.node(step, "", names) for step in self.steps],
                "outputs": [reference(output, names)]}

    # What crosses the border.

    def take(self, step: Step) -> None:
        """Adds the step with its inputs as they are known in here, after copies of what it reads."""
        for value in step.inputs:
            self.enter(value)
        self.steps.append(with_values(step, lambda value: self.inside.get(value, value)))
        for k, kind in enumerate(step.outputs):
            self.inside[Value(step.name, k)] = Value(step.name, k)
            self.kinds[Value(step.name, k)] = kind

    def enter(self, value: Value) -> None:
        if value in self.inside:
            return
        if value.producer in self.model.inputs:
            self.input(value.producer)
            self.inside[value] = value
        elif value.producer in self.grouping.copied:
            self.take(self.grouping.steps[value.producer])
        else:
            reference = self.model.references[value]
            self.input(reference)
            self.inside[value] = self.restored(value, Value(reference))
        self.kinds[self.inside[value]] = self.types[value]

    def input(self, reference: str) -> None:
        if reference not in self.inputs:
            self.inputs.append(reference)

    def leaving(self, value: Value) -> Value:
        """The value as a tensor [b, ...] that may stand between layers."""
        kind, made = self.types[value], self.inside[value]
        if kind.dtype == "bool":
            kind = dataclasses.replace(kind, dtype="uint8")
            made = self.call(value, "byte", aten.to.dtype, kind, self=made, dtype=torch.uint8)
        if kind.rows == 0:
            row = dataclasses.replace(kind, shape=(1, *kind.shape))
            made = self.call(value, "row", aten.unsqueeze.default, row, self=made, dim=0)
            kind = TensorType(kind.dtype, kind.shape)
            return self.call(value, "rows", aten.expand.default, kind, self=made, size=kind.full())
        if kind.batch_dim:
            made = self.call(value, "front", aten.movedim.int, dataclasses.replace(kind, batch_dim=0), self=made,
                             source=kind.batch_dim, destination=0)
        if kind.rows > 1:
            kind = TensorType(kind.dtype, (kind.rows, *kind.shape))
            made = self.call(value, "samples", aten.reshape.default, kind, self=made, shape=kind.full())
        return made

    def restored(self, value: Value, made: Value) -> Value:
        """The other way round, in the layer that reads it."""
        kind = self.types[value]
        bare = dataclasses.replace(kind, dtype="uint8" if kind.dtype == "bool" else kind.dtype)
        if kind.rows == 0:
            made = self.call(value, "one", aten.select.int, bare, self=made, dim=0, index=0)
        if kind.rows > 1:
            made = self.call(value, "flat", aten.flatten.using_ints, dataclasses.replace(bare, batch_dim=0), self=made,
                             start_dim=0, end_dim=1)
        if kind.batch_dim:
            made = self.call(value, "back", aten.movedim.int, bare, self=made, source=0, destination=kind.batch_dim)
        if kind.dtype == "bool":
            made = self.call(value, "bool", aten.to.dtype, kind, self=made, dtype=torch.bool)
        return made

    def call(self, value: Value, suffix: str, target: Any, kind: TensorType, /, **arguments: Any) -> Value:
        name = f"{value.producer}_{value.output}_{suffix}" if value.output else f"{value.producer}_{suffix}"
        while Value(name) in self.kinds:
            name += "_"
        self.steps.append(aten_step(name, self.group.key, target, arguments, [kind]))
        made = Value(name)
        self.inside[made], self.kinds[made] = made, kind
        return made

    # What is written.

    def module(self) -> str:
        """The path of the module whose code the layer is; empty for the root's."""
        paths = {step.path for step in self.steps}
        return paths.pop() if len(paths) == 1 else self.group.key

    def layer(self, outputs: list[Value]) -> dict[str, Any]:
        names = [weight.name for step in self.steps for weight in step.all_weights()]
        scope = common_scope([self.model.owner_name(name) for name in names]) if names else self.module()
        if names and all(self.model.owner_name(name).startswith(self.group.key + ".") for name in names):
            scope = self.group.key
        single = len(self.steps) == 1 and [Value(self.steps[0].name, k) for k in range(len(outputs))] == outputs
        layer: dict[str, Any] = {"name": self.name}
        if single:
            step = self.steps[0]
            scope = common_scope([self.model.owner_name(name) for name in names]) if names else self.module()
            layer |= {"op": step.op, "inputs": [v.producer for v in step.inputs] or self.inputs}
            layer |= self.content(step, scope, step.inputs)
        else:
            node_names = self.node_names(scope)
            nodes = [self.node(step, scope, node_names) for step in self.steps]
            layer |= {"op": "graph", "inputs": self.inputs, "nodes": nodes,
                      "outputs": [reference(value, node_names) for value in outputs]}
            own = parameters_of(self.steps)
            if own and not any(self.model.tensors[name].requires_grad for name in own):
                layer["frozen"] = True
                for node in nodes:
                    node.pop("frozen", None)
        if scope != self.name:
            layer = put_after(layer, "inputs", "scope", scope)
        shared = self.model.shared_with(self, names)
        weights = [(join(scope, name), entry) for name, entry in self.weights_of(layer)]
        if shared and any(id(entry) in self.model.large for _, entry in weights):
            raise Refused(f"layer {self.name} shares the weights of {shared} and reads a constant that is too long for a "
                          "model; register that as a buffer")
        if shared:
            layer["weights_of"] = shared
            layer.pop("scope", None)
        else:
            self.model.weights |= {name: self.model.large.get(id(entry)) for name, entry in weights}
        return layer

    def weights_of(self, layer: dict[str, Any]) -> list[tuple[str, Any]]:
        """Names within the layer of its parameters and buffers, each with its entry in a call."""
        found = []
        for step, node in zip(self.steps, layer.get("nodes", [layer])):
            scope = "" if node is layer else node.get("scope", node["name"])
            entries = [entry for key in ("parameters", "buffers") for entry in node.get("call", {}).get(key, [])]
            found += [(join(scope, name), None) for name in step.weights]
            found += [(join(scope, entry["name"]), entry) for entry in entries]
        return found

    def node_names(self, scope: str) -> dict[str, str]:
        """A step with weights of its own is called after their module, others after their operation."""
        taken = set(self.inputs)
        names = {}
        for step in self.steps:
            wanted = step.name
            own = [self.model.owner_name(weight.name) for weight in step.all_weights()]
            if own and common_scope(own) != scope:
                wanted = within(scope, common_scope(own))
            elif not own and step.path and step.path != self.group.key and step.path.startswith(self.group.key):
                wanted = step.path[len(self.group.key):].lstrip(".")
            if wanted in taken:
                wanted = f"{wanted}.{step.name}" if wanted != step.name else f"{wanted}.1"
            taken.add(wanted)
            names[step.name] = wanted
        return names

    def node(self, step: Step, scope: str, names: dict[str, str]) -> dict[str, Any]:
        node: dict[str, Any] = {"name": names[step.name], "op": step.op,
                                "inputs": [reference(value, names) for value in step.inputs]}
        own = [self.model.owner_name(weight.name) for weight in step.all_weights()]
        node_scope = common_scope(own) if own else ""
        if own and within(scope, node_scope) != node["name"]:
            node["scope"] = within(scope, node_scope) if node_scope != scope else ""
        return node | self.content(step, node_scope, step.inputs)

    def content(self, step: Step, scope: str, inputs: list[Value]) -> dict[str, Any]:
        """`attributes` of a named operation, `call` of aten."""
        if step.op == "aten":
            made = {"call": CallWriter(step, scope, inputs, self).write()}
        else:
            made = {"attributes": step.attributes} if step.attributes else {}
        own = parameters_of([step])
        kept = [name for name in own if not self.model.tensors[name].requires_grad]
        if kept:
            made["frozen"] = kept == own or [within(scope, self.model.owner_name(name)) for name in kept]
        return made


def parameters_of(steps: list[Step]) -> list[str]:
    return [weight.name for step in steps for weight in step.all_weights() if isinstance(weight, Parameter)]


def put_after(members: dict[str, Any], key: str, name: str, value: Any) -> dict[str, Any]:
    made = {}
    for k, v in members.items():
        made[k] = v
        if k == key:
            made[name] = value
    return made


def reference(value: Value, names: dict[str, str]) -> str:
    name = names.get(value.producer, value.producer)
    return f"{name}:{value.output}" if value.output else name


class ModelWriter:
    """All layers, with what they know of each other."""

    def __init__(self, grouping: Grouping, types: dict[Value, TensorType], inputs: dict[str, TensorType],
                 outputs: list[Value], tensors_by_name: dict[str, torch.Tensor], owners: dict[str, str]) -> None:
        self.grouping, self.types, self.inputs, self.outputs = grouping, types, inputs, outputs
        self.tensors, self.owners = tensors_by_name, owners
        self.references: dict[Value, str] = {}
        self.users: dict[str, list[str]] = {}  # parameter -> layers
        self.parameters_of: dict[str, list[str]] = {}  # layer -> parameters
        self.layers: list[dict[str, Any]] = []
        self.large: dict[int, torch.Tensor] = {}  # values of what the document lists as a buffer, by its entry's id
        self.weights: dict[str, torch.Tensor | None] = {}  # all that the layers read, by name; values of such buffers
        names = layer_names(grouping.groups, set(inputs))
        for group, name in zip(grouping.groups, names):
            self.layers.append(LayerWriter(group, name, grouping, self).write())

    def loss(self, steps: list[Step], output: Value) -> dict[str, Any]:
        return LayerWriter(Group("loss", 1, steps), "loss", self.grouping, self).write_loss(output)

    def owner_name(self, name: str) -> str:
        """The parameter's name in the model; PyTorch has several for a tied one."""
        return self.owners.get(name, name)

    def read_outside(self, group: Group) -> list[Value]:
        """Values of the group that other groups read, or the model's outputs, in order of their steps."""
        read = {value for other in self.grouping.groups if other is not group for step in other.steps
                for value in step.inputs} | set(self.outputs)
        return [Value(step.name, k) for step in group.steps for k in range(len(step.outputs))
                if Value(step.name, k) in read]

    def shared_with(self, writer: LayerWriter, names: list[str]) -> str | None:
        """The layer whose parameters this one uses; None when they are its own."""
        names = [name for name in dict.fromkeys(names) if isinstance(self.tensors.get(name), torch.nn.Parameter)]
        others = {self.users[name][0] for name in names if name in self.users}
        for name in names:
            self.users.setdefault(name, []).append(writer.name)
        self.parameters_of[writer.name] = names
        if not others:
            return None
        owner = next(iter(others))
        if len(others) == 1 and self.parameters_of[owner] == names:
            return owner
        raise Refused(f"layer {writer.name} shares {', '.join(n for n in names if self.users[n][0] != writer.name)} "
                      f"with {', '.join(sorted(others))}, but not all of its parameters; whole layers can share. "
                      "Untie them, or use --group module")


def layer_names(groups: list[Group], taken: set[str]) -> list[str]:
    names: list[str] = []
    for group in groups:
        base = group.key or (group.steps[-1].name if len(group.steps) == 1 else "root")
        number = group.number if group.key else 1
        while (name := f"{base}/{number}" if number > 1 else base) in taken:
            number += 1
        if not NAME.fullmatch(name):
            raise Refused(f"module {name!r}: names of layers have letters, digits and _ . - /; rename the module")
        taken.add(name)
        names.append(name)
    return names
