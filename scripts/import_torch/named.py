"""Steps that are one of our named operations. Attributes are complete, in the order of the operation's table."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

from . import operations
from .graph import FLOATING, Constant, Step, TensorType, Value, number_of
from .refused import Refused

aten = torch.ops.aten
LARGEST = 0.99  # probability of our dropout


@dataclasses.dataclass
class Named:
    """A named operation: attributes as in the operation's table, `weight` -> Parameter."""

    op: str
    attributes: dict[str, Any]
    inputs: list[Value]
    weights: dict[str, Any]


def ours(op: str, inputs: Value | list[Value], weights: dict[str, Any] | None = None, **attributes: Any) -> Named | None:
    """None where the operation does not take such numbers."""
    completed = operations.completed(op, attributes)
    if not operations.in_range(op, completed):
        return None
    return Named(op, completed, inputs if isinstance(inputs, list) else [inputs], weights or {})


class Context:
    def __init__(self, steps: list[Step], types: dict[Value, TensorType], shapes: dict[str, tuple[int, ...]]) -> None:
        self.types, self.shapes = types, shapes
        self.makers = {step.name: step for step in steps}
        self.read = {value for step in steps for value in step.inputs}

    def zero(self, value: Any) -> bool:
        """A constant 0 for all samples."""
        step = self.makers.get(getattr(value, "producer", ""))
        source = step.arguments.get("self") if step is not None and step.target == aten.expand.default else None
        return isinstance(source, Constant) and not bool(source.tensor.any())

    def batched(self, value: Any, rank: int | None = None) -> bool:
        """A tensor [rows * b, ...] with `rank` further dimensions."""
        kind = self.types.get(value) if isinstance(value, Value) else None
        return kind is not None and kind.rows >= 1 and kind.batch_dim == 0 and rank in (None, len(kind.shape))

    def floating(self, value: Any, rank: int | None = None) -> bool:
        return self.batched(value, rank) and self.types[value].dtype in FLOATING

    def weights(self, **given: Any) -> dict[str, Any] | None:
        """`weight` -> Parameter, when they are called so in one module; None otherwise."""
        found = {name: tensor for name, tensor in given.items() if tensor is not None}
        scopes = set()
        for name, tensor in found.items():
            full = getattr(tensor, "name", "")
            if full != name and not full.endswith("." + name):
                return None
            scopes.add(full[:-len(name)])
        return found if len(scopes) == 1 or not given else None


def name_step(step: Step, context: Context) -> Step:
    """The step as a named operation, or as it is. These compute in the type of the run."""
    make = MAKERS.get(step.target, by_card) if step.op == "aten" and not step.precise else None
    named = make(step.arguments, step, context) if make else None
    return step if named is None else named_step(step, named)


def named_step(step: Step, named: Named) -> Step:
    outputs = step.outputs[:1] if named.op == "lstm" else step.outputs
    return Step(step.name, step.path, named.op, outputs, inputs=named.inputs, attributes=named.attributes,
                weights=named.weights, group=step.group)


def by_card(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    """An operation whose card names this function: arguments are inputs, weights and attributes of their names."""
    card = operations.of_function(str(step.target))
    if card is None:
        return None
    known = {attribute["name"]: attribute["type"] for attribute in card["attributes"]}
    inputs, tensors, attributes = [], {}, {}
    for argument in step.target._schema.arguments:
        value = given.get(argument.name, argument.default_value)
        if isinstance(value, Value):
            inputs.append(value)
        elif "Tensor" in str(argument.type):
            tensors[argument.name] = value
        elif argument.name in known and value != []:
            convert = {"integer": square, "number": float}.get(known[argument.name])
            attributes[argument.name] = convert(value) if convert else value
        elif not usual(value, argument.default_value) and argument.name != "cudnn_enabled":  # which changes no value
            return None
    weights, (least, most) = context.weights(**tensors), card["dimensions"]
    fits = all(context.floating(value) and least <= len(context.types[value].shape) <= most for value in inputs)
    if weights is None or len(weights) < len(tensors) or None in attributes.values() or not fits:
        return None
    return ours(card["name"], inputs, weights, **attributes)


def usual(value: Any, default: Any) -> bool:
    """[1, 1] is [1]."""
    return value == default or isinstance(value, list) and isinstance(default, list) and square(value) == square(default)


def pair(value: Any) -> tuple[int, int] | None:
    values = [value, value] if isinstance(value, int) else list(value) * (2 if len(value) == 1 else 1)
    return (values[0], values[1]) if len(values) == 2 and all(isinstance(v, int) for v in values) else None


def square(value: Any) -> int | None:
    both = pair(value)
    return both[0] if both and both[0] == both[1] else None


def conv2d(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weight, bias = given["weight"], given.get("bias")
    weights = context.weights(weight=weight, bias=bias)
    stride, dilation = square(given.get("stride", 1)), square(given.get("dilation", 1))
    padding = pair(given.get("padding", 0))
    if not weights or not context.floating(given["input"], 3) or None in (stride, padding, dilation):
        return None
    shape = context.shapes[weight.name]
    return ours("conv2d", given["input"], weights, out_channels=shape[0], kernel_size=shape[2], stride=stride,
                padding=padding[0], dilation=dilation, groups=given.get("groups", 1), bias=bias is not None,
                kernel_width=shape[3], padding_width=padding[1])


def linear(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weight, bias = given["weight"], given.get("bias")
    weights = context.weights(weight=weight, bias=bias)
    if not weights or not context.floating(given["input"]):
        return None
    return ours("linear", given["input"], weights, out_features=context.shapes[weight.name][0], bias=bias is not None)


def batch_norm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    if not given["training"]:
        raise Refused(f"{step.place()}: batch norm with fixed statistics in training; "
                      "use torchvision.ops.FrozenBatchNorm2d")
    names = ("weight", "bias", "running_mean", "running_var")
    weights = context.weights(**{name: given.get(name) for name in names})
    if not weights or len(weights) != len(names) or not isinstance(given.get("momentum"), float):
        raise Refused(f"{step.place()}: batch norm needs weight, bias and running statistics with a fixed momentum; "
                      "use affine=True, track_running_stats=True, momentum=0.1")
    rank = next((rank for rank in (1, 2, 3) if context.floating(given["input"], rank)), None)
    if rank is None:
        raise Refused(f"{step.place()}: batch norm of a tensor whose first dimension is not the batch")
    op = "batch_norm2d" if rank == 3 else "batch_norm1d"
    named = ours(op, given["input"], weights, eps=given["eps"], momentum=given["momentum"])
    if named is None:
        raise Refused(f"{step.place()}: eps={given['eps']}, momentum={given['momentum']}; both lie between 0 and 1")
    return named


def layer_norm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weights = context.weights(weight=given.get("weight"), bias=given.get("bias"))
    if not weights or len(weights) != 2 or len(given["normalized_shape"]) != 1 or not context.floating(given["input"]):
        return None
    return ours("layer_norm", given["input"], weights, eps=given.get("eps", 1e-5))


def rms_norm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weights = context.weights(weight=given.get("weight"))
    fits = len(given["normalized_shape"]) == 1 and given.get("eps") is not None and context.floating(given["input"])
    return ours("rms_norm", given["input"], weights, eps=given["eps"]) if weights and fits else None


def embedding(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weights, indices = context.weights(weight=given["weight"]), given["indices"]
    plain = not given.get("scale_grad_by_freq") and not given.get("sparse")
    if not weights or not plain or not context.batched(indices) or context.types[indices].dtype != "int64":
        return None
    rows, width = context.shapes[given["weight"].name]
    return ours("embedding", indices, weights, num_embeddings=rows, embedding_dim=width, dropout=0.0,
                padding_idx=given.get("padding_idx", -1))


def unary(op: str, **attributes: Any) -> Callable[..., Named | None]:
    def make(given: dict[str, Any], step: Step, context: Context) -> Named | None:
        source = given.get("self", given.get("input"))
        return ours(op, source, **attributes) if context.floating(source) else None
    return make


def hardtanh(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    bounds = (given.get("min_val", -1), given.get("max_val", 1))
    return unary("relu6")(given, step, context) if bounds == (0, 6) else None


def gelu(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    return unary("gelu", tanh=given.get("approximate", "none") == "tanh")(given, step, context)


def softmax(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    rank = step.outputs[0].rank()
    last = given["dim"] in (-1, rank - 1) and rank > 1 and given.get("dtype") is None
    return unary("softmax")(given, step, context) if last else None


def scale(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    factor = given["other"]
    fits = isinstance(factor, (int, float)) and not isinstance(factor, bool) and abs(factor) <= 1e6
    return unary("scale", factor=float(factor), offset=0.0)(given, step, context) if fits else None


def product(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    """Also with a constant of one number."""
    number = number_of(given["other"])
    if number is not None:
        return scale(given | {"other": number}, step, context)
    return elementwise("multiply")(given, step, context)


def elementwise(op: str) -> Callable[..., Named | None]:
    """Sizes of 1 are repeated."""
    def make(given: dict[str, Any], step: Step, context: Context) -> Named | None:
        both = [given["self"], given["other"]]
        if not all(context.floating(value) for value in both) or given.get("alpha", 1) != 1:
            return None
        one, other = (context.types[value] for value in both)
        alike = (one.rows, one.dtype, len(one.shape)) == (other.rows, other.dtype, len(other.shape))
        return ours(op, both) if alike else None
    return make


def concat(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    parts, rank = given["tensors"], step.outputs[0].rank()
    dim = given.get("dim", 0) % rank
    if len(parts) < 2 or dim == 0 or not all(context.batched(part) for part in parts):
        return None
    if len({(context.types[part].rows, context.types[part].dtype) for part in parts}) > 1:
        return None
    return ours("concat", list(parts), dim=dim - 1)


def flatten(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    kind = context.types.get(given["self"])
    last = kind is not None and given.get("end_dim", -1) in (-1, kind.rank() - 1)
    if not last or given.get("start_dim", 0) != 1 or not context.batched(given["self"]):
        return None
    return ours("flatten", given["self"])


def reshape(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    """Views that leave the batch alone."""
    made = step.outputs[0]
    same = context.floating(given["self"]) and made.batch_dim == 0 and made.rows == context.types[given["self"]].rows
    return ours("reshape", given["self"], shape=list(made.shape)) if same and made.shape else None


def permute(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    if not context.floating(given["self"]):
        return None
    rank = context.types[given["self"]].rank()
    order = list(range(rank))
    if "dims" in given:
        order = [d % rank for d in given["dims"]]
    else:
        one, other = given["dim0"] % rank, given["dim1"] % rank
        order[one], order[other] = other, one
    return ours("permute", given["self"], dims=[d - 1 for d in order[1:]]) if order[0] == 0 else None


def slice_(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    if not context.floating(given["self"]):
        return None
    kind = context.types[given["self"]]
    dim = given.get("dim", 0) % kind.rank()
    start, end = given.get("start") or 0, given.get("end")
    if dim == 0 or not isinstance(start, int) or not isinstance(end, (int, type(None))):
        return None
    size = kind.shape[dim - 1]
    start, end = (max(0, k + size if k < 0 else min(k, size)) for k in (start, size if end is None else end))
    if start >= end:
        return None
    return ours("slice", given["self"], dim=dim - 1, start=start, end=end, step=given.get("step", 1))


def chunk(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    """Equal parts, by number or by size."""
    if not context.floating(given["self"]) or len(step.outputs) < 2 or len(set(step.outputs)) > 1:
        return None
    dim = given.get("dim", 0) % context.types[given["self"]].rank()
    return ours("chunk", given["self"], chunks=len(step.outputs), dim=dim - 1) if dim else None


def matmul(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    both = [given["self"], given.get("other", given.get("mat2"))]
    if not all(context.floating(value) for value in both):
        return None
    one, other = (context.types[value] for value in both)
    fits = one.rows == other.rows and len(one.shape) == len(other.shape) >= 2 and one.shape[:-2] == other.shape[:-2]
    return ours("matmul", both) if fits else None


def plain_attention(given: dict[str, Any], types: dict[Value, TensorType]) -> bool:
    """Without a mask but the causal one, and with the usual scale."""
    parts = [given[name] for name in ("query", "key", "value")]
    kinds = [types[part] for part in parts if isinstance(part, Value)]
    if given.get("attn_mask") is not None or len(kinds) < 3 or len({(k.rows, k.shape[:-2]) for k in kinds}) > 1:
        return False
    alike = all(kind.floating() and kind.rows and not kind.batch_dim and len(kind.shape) > 1 for kind in kinds)
    scale = given.get("scale")
    return alike and (scale is None or math.isclose(scale, 1 / math.sqrt(kinds[0].shape[-1])))


def attention(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    if not plain_attention(given, context.types):
        return None
    dropout = given.get("dropout_p", 0.0)
    if dropout > LARGEST:
        raise Refused(f"{step.place()}: dropout_p {dropout}; the largest is {LARGEST}")
    return ours("scaled_dot_product_attention", [given["query"], given["key"], given["value"]],
                causal=given.get("is_causal", False), dropout=dropout)


def conv1d(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weight, bias = given["weight"], given.get("bias")
    weights = context.weights(weight=weight, bias=bias)
    defaults = {"stride": 1, "padding": 0, "dilation": 1}
    sizes = {name: square(given.get(name, default)) for name, default in defaults.items()}
    if not weights or None in sizes.values() or not context.floating(given["input"], 2):
        return None
    shape = context.shapes[weight.name]
    return ours("conv1d", given["input"], weights, out_channels=shape[0], kernel_size=shape[2], **sizes,
                groups=given.get("groups", 1), bias=bias is not None)


def conv_transpose2d(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weight, bias, groups = given["weight"], given.get("bias"), given.get("groups", 1)
    weights = context.weights(weight=weight, bias=bias)
    defaults = {"stride": 1, "padding": 0, "output_padding": 0}
    sizes = {name: square(given.get(name, default)) for name, default in defaults.items()}
    shape = context.shapes[weight.name] if weights else (0, 0, 0, 1)
    if None in sizes.values() or shape[2] != shape[3] or square(given.get("dilation", 1)) != 1:
        return None
    if not context.floating(given["input"], 3):
        return None
    return ours("conv_transpose2d", given["input"], weights, out_channels=shape[1] * groups, kernel_size=shape[2],
                **sizes, groups=groups, bias=bias is not None)


def mean(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    plain = not given.get("keepdim") and not given.get("dtype") and len(given["dim"] or []) == 1
    if not plain or not context.floating(given["self"]):
        return None
    dim = given["dim"][0] % context.types[given["self"]].rank()
    return ours("mean", given["self"], dim=dim - 1) if dim else None


def lstm_weights(kind: dict[str, Any]) -> list[str]:
    return [f"{part}_l{layer}{suffix}" for layer in range(kind["num_layers"])
            for suffix in ("", "_reverse")[:2 if kind["bidirectional"] else 1]
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[:4 if kind["bias"] else 2]]


def lstm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    """From zero states, of which torch.nn.LSTM makes constants; the last states are read by nobody."""
    if not all(map(context.zero, given["hx"])) or any(Value(step.name, k) in context.read for k in (1, 2)):
        return None
    kind = {"num_layers": given["num_layers"], "bidirectional": bool(given["bidirectional"]),
            "bias": bool(given["has_biases"])}
    names = lstm_weights(kind)
    weights = context.weights(**dict(zip(names, given["params"])))
    if not given["batch_first"] or len(names) != len(given["params"]) or not weights:
        return None
    if not context.floating(given["input"], 2):
        return None
    return ours("lstm", given["input"], weights, hidden_size=context.shapes[weights["weight_hh_l0"].name][1], **kind,
                dropout=float(given["dropout"]), weight_dropout=0.0)


# What a card does not say by itself.
MAKERS: dict[Any, Callable[..., Named | None]] = {
    aten.view.default: reshape, aten.reshape.default: reshape, aten.unflatten.int: reshape,
    aten.unsqueeze.default: reshape, aten.squeeze.dim: reshape, aten.permute.default: permute,
    aten.transpose.int: permute, aten.slice.Tensor: slice_, aten.chunk.default: chunk, aten.split.Tensor: chunk,
    aten.matmul.default: matmul, aten.bmm.default: matmul, aten.scaled_dot_product_attention.default: attention,
    aten.conv1d.default: conv1d, aten.conv_transpose2d.input: conv_transpose2d, aten.conv2d.default: conv2d,
    aten.linear.default: linear, aten.batch_norm.default: batch_norm, aten.layer_norm.default: layer_norm,
    aten.rms_norm.default: rms_norm, aten.embedding.default: embedding, aten.hardtanh.default: hardtanh,
    aten.gelu.default: gelu, aten.softmax.int: softmax, aten.mul.Scalar: scale, aten.add.Tensor: elementwise("add"),
    aten.mul.Tensor: product, aten.cat.default: concat, aten.flatten.using_ints: flatten, aten.lstm.input: lstm,
    aten.mean.dim: mean,
}
