"""Steps: operations of the module between the exported graph and the document.

A step reads Values (outputs of steps, or model inputs), parameters, buffers and static tensors. Sizes are per sample,
as in the document: TensorType says where the batch stands.
"""

import dataclasses
import functools
from typing import Any

import torch

from . import formulas
from .refused import at_node

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16", torch.float16: "float32",
          torch.int64: "int64", torch.int32: "int64", torch.int16: "int64", torch.int8: "int64", torch.uint8: "uint8",
          torch.bool: "bool"}
FLOATING = ("float32", "float64", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Batch:
    """The integer factor * b + offset, for b samples."""

    factor: int
    offset: int = 0

    def at(self, samples: int) -> int:
        return self.factor * samples + self.offset


@dataclasses.dataclass(frozen=True)
class TensorType:
    """Dimension `batch_dim` has rows * b elements, `shape` are the other ones; rows 0: there is no batch."""

    dtype: str
    shape: tuple[int, ...]
    rows: int = 1
    batch_dim: int = 0

    def plain(self) -> bool:
        """Can stand between layers: [b, ...]."""
        return self.rows == 1 and self.batch_dim == 0 and self.dtype != "bool"

    def floating(self) -> bool:
        return self.dtype in FLOATING

    def rank(self) -> int:
        return len(self.shape) + (1 if self.rows else 0)

    def full(self) -> list[Any]:
        """With the batch in its place."""
        if not self.rows:
            return list(self.shape)
        return [*self.shape[:self.batch_dim], Batch(self.rows), *self.shape[self.batch_dim:]]

    def elements(self) -> int:
        """Per sample; of a tensor without batch, of all of it."""
        count = max(self.rows, 1)
        for size in self.shape:
            count *= size
        return count


@dataclasses.dataclass(frozen=True)
class Value:
    """An output of a step; of a model input by its name."""

    producer: str
    output: int = 0


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A trained tensor, by PyTorch's name."""

    name: str


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A buffer of the state_dict, by PyTorch's name."""

    name: str


@dataclasses.dataclass(eq=False)
class Constant:
    """Known when the module is imported, and written into the document; `waves` as formulas.recognise() takes them."""

    tensor: torch.Tensor
    waves: list[torch.Tensor] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def formula(self) -> formulas.Formula | None:
        return formulas.recognise(self.tensor, self.waves)


@dataclasses.dataclass
class Step:
    """One operation. `op` is "aten", with target and all of its schema's arguments, or a named operation, with inputs
    and attributes."""

    name: str
    path: str
    op: str
    outputs: list[TensorType]
    target: Any = None  # of aten: an OpOverload
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    inputs: list[Value] = dataclasses.field(default_factory=list)
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    weights: dict[str, Any] = dataclasses.field(default_factory=dict)  # of a named op: `weight` -> Parameter, Buffer
    precise: bool = False  # in float32, whatever the type of the run
    group: str | None = None  # the group that it must join, where that is not the one of its path

    def __post_init__(self) -> None:
        if self.op == "aten":
            self.arguments = completed(self.target, self.arguments)
            self.inputs = list(dict.fromkeys(tensors(self.arguments, Value)))

    def all_weights(self) -> list[Any]:
        """Parameters and buffers that it reads, each once."""
        return list(dict.fromkeys([*self.weights.values(), *tensors(self.arguments, (Parameter, Buffer))]))

    def place(self) -> str:
        return at_node(self.name, self.path, target_name(self.target) if self.op == "aten" else self.op)


def join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def number_of(value: Any) -> float | None:
    """Also of a constant of one number."""
    if isinstance(value, Constant) and value.tensor.numel() == 1 and not value.tensor.dim():
        value = value.tensor.item()
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def target_name(target: Any) -> str:
    """`aten::add.Tensor`; the overload `default` has no name."""
    text = getattr(target, "_schema", None)
    if text is None:
        return str(target)
    return target._schema.name + (f".{target._schema.overload_name}" if target._schema.overload_name else "")


def completed(target: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the schema's defaults for those that are not given."""
    return given | {argument.name: argument.default_value for argument in target._schema.arguments
                    if argument.name not in given and argument.has_default_value()}


def named_arguments(target: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """A call's arguments by the schema's names."""
    return dict(zip([argument.name for argument in target._schema.arguments], args)) | dict(kwargs)


def tensors(value: Any, kinds: Any) -> list[Any]:
    """What of `kinds` stands in an argument, or in lists and dictionaries of them, in order."""
    if isinstance(value, kinds):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [found for element in value for found in tensors(element, kinds)]
    return []


def replaced(value: Any, change: Any) -> Any:
    """The argument with change(leaf) in the place of every leaf."""
    if isinstance(value, dict):
        return {key: replaced(element, change) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [replaced(element, change) for element in value]
    return change(value)


def aten_step(name: str, path: str, target: Any, arguments: dict[str, Any], outputs: list[TensorType]) -> Step:
    return Step(name=name, path=path, op="aten", target=target, arguments=arguments, outputs=outputs)


def with_values(step: Step, change: Any) -> Step:
    """The step with change(value) in the place of every Value."""
    turn = lambda leaf: change(leaf) if isinstance(leaf, Value) else leaf
    return dataclasses.replace(step, arguments=replaced(step.arguments, turn), inputs=[change(v) for v in step.inputs])
