"""`call` of the operation aten: a step's target, its arguments, and the tensors that the layer brings along."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .graph import DTYPES, Batch, Buffer, Constant, Parameter, Step, TensorType, Value, completed, target_name
from .refused import Refused

if TYPE_CHECKING:
    from .layers import LayerWriter

FEWEST = 64  # values of a constant that are written as a formula; fewer stand in the document as they are
FEW_VALUES = 1024  # of a constant: their text is short
MOST_TEXT = 65536  # bytes of a constant's values as text
MOVING = ("contiguous", "reshape", "cat", "roll", "index", "embedding", "pad")  # elements, without arithmetic
HIDDEN = {"Device", "Layout", "MemoryFormat"}  # types of arguments that a document does not write


def within(scope: str, name: str) -> str:
    """The parameter's name as its layer or node has it."""
    return name[len(scope) + 1:] if scope else name


class CallWriter:
    """`call`: target, arguments, and the tensors that the layer brings along."""

    def __init__(self, step: Step, scope: str, inputs: list[Value], layer: "LayerWriter") -> None:
        self.step, self.scope, self.inputs, self.layer, self.model = step, scope, inputs, layer, layer.model
        self.parameters: dict[str, Any] = {}
        self.buffers: dict[str, Any] = {}
        self.constants: list[tuple[torch.Tensor, dict[str, Any]]] = []

    def write(self) -> dict[str, Any]:
        kinds = {argument.name: str(argument.real_type) for argument in self.step.target._schema.arguments}
        hidden = {name for name, kind in kinds.items() if any(h in kind for h in HIDDEN) or name == "pin_memory"}
        usual = completed(self.step.target, {})
        arguments = {name: self.argument(value) for name, value in sorted(self.step.arguments.items())
                     if name not in hidden and not (name in usual and value == usual[name])}
        call = {"target": target_name(self.step.target), "arguments": arguments}
        for key, entries in (("parameters", list(self.parameters.values())), ("buffers", list(self.buffers.values())),
                             ("constants", [entry for _, entry in self.constants])):
            if entries:
                call[key] = entries
        if empty := [k for k, kind in enumerate(self.step.outputs) if 0 in kind.shape]:
            raise Refused(f"{self.step.place()}: its output {empty[0]} has no elements, which a model cannot express; use "
                          "another operation, such as an embedding and a sum in place of an EmbeddingBag of mode sum")
        call["outputs"] = [output_record(kind) for kind in self.step.outputs]
        call["flops"] = flops(self.step, self.sizes)
        if self.step.precise:
            call["precision"] = "float32"
        return call

    def argument(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.argument(element) for element in value]
        if isinstance(value, Value):
            return {"input": self.inputs.index(value)}
        if isinstance(value, Parameter):
            return {"parameter": self.weight(self.parameters, value)}
        if isinstance(value, Buffer):
            return {"buffer": self.weight(self.buffers, value)}
        if isinstance(value, Constant):
            return self.constant(value)
        if isinstance(value, Batch):
            return {"batch": [value.factor, value.offset]}
        if isinstance(value, torch.dtype):
            return {"dtype": DTYPES[value]}
        if isinstance(value, float) and not math.isfinite(value):
            return special(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise Refused(f"{self.step.place()}: an argument of type {type(value).__name__} has no place in a model")

    def weight(self, listed: dict[str, Any], tensor: Any) -> str:
        name = within(self.scope, self.model.owner_name(tensor.name))
        made = self.model.tensors[tensor.name]
        listed[name] = {"name": name, "dtype": DTYPES[made.dtype], "shape": list(made.shape)}
        return name

    def constant(self, constant: Constant) -> dict[str, str]:
        """By its formula or values; what is too long for a model becomes a buffer, which the weights file has."""
        tensor = constant.tensor
        for known, entry in self.constants:
            if known.dtype == tensor.dtype and known.shape == tensor.shape and torch.equal(known, tensor):
                return {"constant": entry["name"]}
        entry = {"name": f"c{len(self.constants)}", "dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape)}
        if tensor.numel() >= FEWEST and constant.formula is not None:
            entry["formula"] = constant.formula
        elif tensor.numel() <= FEW_VALUES or len(json.dumps(listed(tensor))) <= MOST_TEXT:
            entry["values"] = listed(tensor)
        elif self.layer.in_loss:
            raise Refused(f"{self.step.place()}: a constant of {tensor.numel()} values in the loss, which has no buffers; at "
                          f"most {MOST_TEXT} bytes of text stand in a model. Compute it from the inputs")
        else:
            entry["name"] = f"{self.step.name}_c{len(self.buffers)}"
            self.buffers[entry["name"]] = entry
            self.model.large[id(entry)] = tensor
            return {"buffer": entry["name"]}
        self.constants.append((tensor, entry))
        return {"constant": entry["name"]}

    def sizes(self, value: Any) -> list[int]:
        if isinstance(value, Value):
            return [1 if isinstance(size, Batch) else size for size in self.layer.kinds[value].full()]
        return list(self.model.tensors[value.name].shape if isinstance(value, (Parameter, Buffer))
                    else value.tensor.shape)


def listed(tensor: torch.Tensor) -> list[Any]:
    return [int(v) if not tensor.is_floating_point() else v if math.isfinite(v) else special(v)
            for v in tensor.flatten().tolist()]


def special(value: float) -> dict[str, str]:
    return {"number": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def output_record(kind: TensorType) -> dict[str, Any]:
    record: dict[str, Any] = {"dtype": kind.dtype, "shape": list(kind.shape)}
    if kind.rows != 1:
        record["rows"] = kind.rows
    if kind.batch_dim:
        record["batch_dim"] = kind.batch_dim
    return record


def flops(step: Step, sizes: Callable[[Any], list[int]]) -> float:
    """Per sample: 2 for a multiply-add of products and convolutions, 1 for an element of what is no view."""
    output = step.outputs[0].elements()
    packet = step.target._schema.name.split("::")[1]
    size = lambda name: sizes(step.arguments[name])
    if packet in ("matmul", "bmm", "mm", "linear"):
        return 2.0 * output * size("input" if packet == "linear" else "self")[-1]
    if packet in ("addmm", "baddbmm"):
        return 2.0 * output * size("mat1" if packet == "addmm" else "batch1")[-1]
    if packet.startswith("conv"):
        transposed = "transpose" in packet or step.arguments.get("transposed", False)
        elements = math.prod(size("input")) if transposed else output  # each is multiplied with weight[k]
        return 2.0 * elements * math.prod(size("weight")[1:])
    if packet == "scaled_dot_product_attention":
        return 4.0 * output * size("key")[-2]
    view = any(result.alias_info for result in step.target._schema.returns)
    return 0.0 if view or packet in MOVING else float(output)
