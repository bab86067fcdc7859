"""Steps into groups, each to be one layer: by module path, so that no cycle of groups arises."""

import dataclasses
import heapq
from collections.abc import Iterable

import torch

from .graph import Step, TensorType, Value

CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


@dataclasses.dataclass
class Group:
    """`key`: what its steps have in common; a second group of one key has number 2."""

    key: str
    number: int
    steps: list[Step] = dataclasses.field(default_factory=list)
    needs: set[int] = dataclasses.field(default_factory=set)  # groups that come before, by index, over others too


def block_of(module: torch.nn.Module, path: str) -> str:
    """The first module on the way down that is an element of a list, or has no list within it; it lies within what a
    wrapper around one module with weights wraps."""
    parts, here, inside_list, wraps = path.split(".") if path else [], module, is_container(module), True
    for depth, part in enumerate(parts):
        wraps = wraps and not inside_list and is_lone(part, here)
        here = getattr(here, part, None)
        if here is None:
            return path
        container = is_container(here)
        if not wraps and not container and (inside_list or not has_container(here)):
            return ".".join(parts[:depth + 1])
        inside_list = container
    return path


def is_lone(name: str, module: torch.nn.Module) -> bool:
    """Whether the child alone has the module's weights, in modules of its own."""
    weighty = [child for child, part in module.named_children() if next(part.parameters(), None) is not None]
    return weighty == [name] and next(module.parameters(recurse=False), None) is None and any(
        True for _ in getattr(module, name).children())


def is_container(module: torch.nn.Module) -> bool:
    return type(module) is torch.nn.Sequential or isinstance(module, CONTAINERS)


def has_container(module: torch.nn.Module) -> bool:
    return any(is_container(child) for child in module.modules() if child is not module)


def key_of(step: Step, level: str, module: torch.nn.Module) -> str:
    if step.group is not None:
        return step.group
    if level == "op":
        return f"{step.path}.{step.name}" if step.path else step.name
    return block_of(module, step.path) if level == "block" else step.path


class Grouping:
    """`groups` in an order in which they can run; `copied` steps belong to every group that reads them."""

    def __init__(self, steps: list[Step], types: dict[Value, TensorType], inputs: Iterable[str], keys: dict[str, str],
                 alone: set[str]) -> None:
        self.keys, self.alone, self.types = keys, alone, types
        self.steps = {step.name: step for step in steps}
        self.copied = copied_steps(steps, types, set(inputs))
        self.late = without_data(steps, set(inputs)) - self.copied
        self.made: list[Group] = []
        self.open: dict[str, int] = {}  # the last group of a key
        self.home: dict[str, int] = {}  # step -> group
        for step in steps:
            if step.name not in self.copied and step.name not in self.late:
                self.place(step)
        self.groups = self.in_order()

    def place(self, step: Step) -> None:
        """Into the open group of its key, unless another group stands between that and the step."""
        key = self.keys[step.name]
        homes = {self.home[value.producer] for value in step.inputs if value.producer in self.home}
        index = None if step.name in self.alone else self.open.get(key)
        if index is None or any(home != index and index in self.made[home].needs for home in homes):
            index = len(self.made)
            self.made.append(Group(key, sum(group.key == key for group in self.made) + 1))
            if step.name not in self.alone:
                self.open[key] = index
        self.put(step, index)
        self.wait(index, set().union(*({home} | self.made[home].needs for home in homes if home != index)))

    def wait(self, index: int, needs: set[int]) -> None:
        """The group comes after `needs`, and so does who comes after it."""
        for k, group in enumerate(self.made):
            if k == index or index in group.needs:
                group.needs |= needs

    def uses(self, index: int, late: Step) -> bool:
        used = {weight for step in self.made[index].steps for weight in step.all_weights()}
        return any(weight in used for weight in late.all_weights())

    def put(self, step: Step, index: int) -> None:
        """What hangs on parameters alone goes with its first reader, or where the parameter is in use already: a layer
        needs an input that says how many samples there are."""
        for value in step.inputs:
            if value.producer in self.late and value.producer not in self.home:
                late = self.steps[value.producer]
                own = self.open.get(self.keys[late.name])
                stays = own is not None and own != index and index not in self.made[own].needs and self.uses(own, late)
                self.put(late, own if stays else index)
                if stays:
                    self.wait(index, {own} | self.made[own].needs)
        self.home[step.name] = index
        self.made[index].steps.append(step)

    def in_order(self) -> list[Group]:
        """Those that wait for none first; of several the one that was begun first."""
        ready = [k for k, group in enumerate(self.made) if not group.needs]
        done: set[int] = set()
        order = []
        while ready:
            k = heapq.heappop(ready)
            order.append(self.made[k])
            done.add(k)
            for later, group in enumerate(self.made):
                if later not in done and later not in ready and group.needs <= done:
                    heapq.heappush(ready, later)
        assert len(order) == len(self.made), "groups wait for each other"
        return order


def without_data(steps: list[Step], inputs: set[str]) -> set[str]:
    """Steps that depend on no input of the model."""
    with_data = set(inputs)
    for step in steps:
        if any(value.producer in with_data for value in step.inputs):
            with_data.add(step.name)
    return {step.name for step in steps if step.name not in with_data}


def copied_steps(steps: list[Step], types: dict[Value, TensorType], inputs: set[str]) -> set[str]:
    """Steps that handle constants, or integers and booleans of the data, alone: who reads one has a copy of its own."""
    found: set[str] = set()
    for step in steps:
        if step.op != "aten" or step.all_weights() or any(kind.floating() for kind in step.outputs) and step.inputs:
            continue
        if all(v.producer in found or v.producer in inputs and not types[v].floating() for v in step.inputs):
            found.add(step.name)
    return found
