"""Steps that are one of our named operations. Attributes are complete, in the order of the operation's table."""

from collections.abc import Callable
from typing import Any

import torch

from .graph import FLOATING, Constant, Step, TensorType, Value
from .refused import Refused

aten = torch.ops.aten
Named = tuple[str, dict[str, Any], list[Value], dict[str, Any]]


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
        return found if len(scopes) == 1 else None


def name_step(step: Step, context: Context) -> Step:
    """The step as a named operation, or as it is."""
    make = MAKERS.get(step.target) if step.op == "aten" else None
    named = make(step.arguments, step, context) if make else None
    if named is None:
        return step
    op, attributes, inputs, weights = named
    outputs = step.outputs[:1] if op == "lstm" else step.outputs
    return Step(step.name, step.path, op, outputs, inputs=inputs, attributes=attributes, weights=weights, group=step.group)


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
    return "conv2d", {
        "out_channels": shape[0], "kernel_size": shape[2], "stride": stride, "padding": padding[0], "dilation": dilation,
        "groups": given.get("groups", 1), "bias": bias is not None, "kernel_width": shape[3],
        "padding_width": padding[1]}, [given["input"]], weights


def linear(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weight, bias = given["weight"], given.get("bias")
    weights = context.weights(weight=weight, bias=bias)
    if not weights or not context.floating(given["input"]):
        return None
    attributes = {"out_features": context.shapes[weight.name][0], "bias": bias is not None}
    return "linear", attributes, [given["input"]], weights


def batch_norm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    if not given["training"]:
        raise Refused(f"{step.place()}: batch norm with fixed statistics in training; use torchvision.ops.FrozenBatchNorm2d")
    weights = context.weights(weight=given.get("weight"), bias=given.get("bias"), running_mean=given.get("running_mean"),
                              running_var=given.get("running_var"))
    if not weights or len(weights) != 4 or not isinstance(given.get("momentum"), float):
        raise Refused(f"{step.place()}: batch norm needs weight, bias and running statistics with a fixed momentum; "
                      "use affine=True, track_running_stats=True, momentum=0.1")
    if not context.floating(given["input"], 3):
        fits = context.floating(given["input"], 1) or context.floating(given["input"], 2)
        if not fits:
            raise Refused(f"{step.place()}: batch norm of a tensor whose first dimension is not the batch")
        return "batch_norm1d", {"eps": given["eps"], "momentum": given["momentum"]}, [given["input"]], weights
    return "batch_norm2d", {"eps": given["eps"], "momentum": given["momentum"]}, [given["input"]], weights


def layer_norm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weights = context.weights(weight=given.get("weight"), bias=given.get("bias"))
    if not weights or len(weights) != 2 or len(given["normalized_shape"]) != 1 or not context.floating(given["input"]):
        return None
    return "layer_norm", {"eps": given.get("eps", 1e-5)}, [given["input"]], weights


def rms_norm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weights = context.weights(weight=given.get("weight"))
    if not weights or len(given["normalized_shape"]) != 1 or given.get("eps") is None or not context.floating(given["input"]):
        return None
    return "rms_norm", {"eps": given["eps"]}, [given["input"]], weights


def embedding(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weights = context.weights(weight=given["weight"])
    plain = given.get("padding_idx", -1) == -1 and not given.get("scale_grad_by_freq") and not given.get("sparse")
    if not weights or not plain or not context.batched(given["indices"]) or context.types[given["indices"]].dtype != "int64":
        return None
    rows, width = context.shapes[given["weight"].name]
    return "embedding", {"num_embeddings": rows, "embedding_dim": width, "dropout": 0.0}, [given["indices"]], weights


def unary(op: str, **attributes: Any) -> Callable[..., Named | None]:
    def make(given: dict[str, Any], step: Step, context: Context) -> Named | None:
        source = given.get("self", given.get("input"))
        return (op, dict(attributes), [source], {}) if context.floating(source) else None
    return make


def hardtanh(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    bounds = (given.get("min_val", -1), given.get("max_val", 1))
    return unary("relu6")(given, step, context) if bounds == (0, 6) else None


def leaky_relu(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    slope = float(given.get("negative_slope", 0.01))
    return unary("leaky_relu", negative_slope=slope)(given, step, context) if 0 <= slope <= 1 else None


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


def elementwise(op: str) -> Callable[..., Named | None]:
    """Sizes of 1 are repeated."""
    def make(given: dict[str, Any], step: Step, context: Context) -> Named | None:
        both = [given["self"], given["other"]]
        if not all(context.floating(value) for value in both) or given.get("alpha", 1) != 1:
            return None
        one, other = (context.types[value] for value in both)
        alike = (one.rows, one.dtype, len(one.shape)) == (other.rows, other.dtype, len(other.shape))
        return (op, {}, both, {}) if alike else None
    return make


def concat(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    parts, rank = given["tensors"], step.outputs[0].rank()
    dim = given.get("dim", 0) % rank
    if len(parts) < 2 or dim == 0 or not all(context.batched(part) for part in parts):
        return None
    if len({(context.types[part].rows, context.types[part].dtype) for part in parts}) > 1:
        return None
    return "concat", {"dim": dim - 1}, list(parts), {}


def flatten(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    kind = context.types.get(given["self"])
    last = kind is not None and given.get("end_dim", -1) in (-1, kind.rank() - 1)
    if not last or given.get("start_dim", 0) != 1 or not context.batched(given["self"]):
        return None
    return "flatten", {}, [given["self"]], {}


def reshape(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    """Views that leave the batch alone."""
    made = step.outputs[0]
    same = context.floating(given["self"]) and made.batch_dim == 0 and made.rows == context.types[given["self"]].rows
    return ("reshape", {"shape": list(made.shape)}, [given["self"]], {}) if same and made.shape else None


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
    return ("permute", {"dims": [d - 1 for d in order[1:]]}, [given["self"]], {}) if order[0] == 0 else None


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
    return "slice", {"dim": dim - 1, "start": start, "end": end, "step": given.get("step", 1)}, [given["self"]], {}


def chunk(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    """Equal parts, by number or by size."""
    if not context.floating(given["self"]) or len(step.outputs) < 2 or len(set(step.outputs)) > 1:
        return None
    dim = given.get("dim", 0) % context.types[given["self"]].rank()
    return ("chunk", {"chunks": len(step.outputs), "dim": dim - 1}, [given["self"]], {}) if dim else None


def matmul(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    both = [given["self"], given.get("other", given.get("mat2"))]
    if not all(context.floating(value) for value in both):
        return None
    one, other = (context.types[value] for value in both)
    fits = one.rows == other.rows and len(one.shape) == len(other.shape) >= 2 and one.shape[:-2] == other.shape[:-2]
    return ("matmul", {}, both, {}) if fits else None


def group_norm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weights = context.weights(weight=given.get("weight"), bias=given.get("bias"))
    if not weights or len(weights) != 2 or not context.floating(given["input"]):
        return None
    return "group_norm", {"num_groups": given["num_groups"], "eps": given.get("eps", 1e-5)}, [given["input"]], weights


def conv1d(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weight, bias = given["weight"], given.get("bias")
    weights = context.weights(weight=weight, bias=bias)
    window = [square(given.get(name, default)) for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))]
    if not weights or None in window or not context.floating(given["input"], 2):
        return None
    shape = context.shapes[weight.name]
    return "conv1d", {"out_channels": shape[0], "kernel_size": shape[2], "stride": window[0], "padding": window[1],
                      "dilation": window[2], "groups": given.get("groups", 1), "bias": bias is not None}, [given["input"]], weights


def conv_transpose2d(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    weight, bias, groups = given["weight"], given.get("bias"), given.get("groups", 1)
    weights = context.weights(weight=weight, bias=bias)
    stride, padding, more = (square(given.get(name, default)) for name, default in
                             (("stride", 1), ("padding", 0), ("output_padding", 0)))
    shape = context.shapes[weight.name] if weights else (0, 0, 0, 1)
    if None in (stride, padding, more) or shape[2] != shape[3] or square(given.get("dilation", 1)) != 1:
        return None
    if not context.floating(given["input"], 3):
        return None
    return "conv_transpose2d", {"out_channels": shape[1] * groups, "kernel_size": shape[2], "stride": stride, "padding": padding,
                                "output_padding": more, "groups": groups, "bias": bias is not None}, [given["input"]], weights


def mean(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    if not context.floating(given["self"]) or given.get("keepdim") or given.get("dtype") or len(given["dim"] or []) != 1:
        return None
    dim = given["dim"][0] % context.types[given["self"]].rank()
    return ("mean", {"dim": dim - 1}, [given["self"]], {}) if dim else None


def window(given: dict[str, Any]) -> dict[str, Any] | None:
    kernel, padding = square(given["kernel_size"]), square(given.get("padding", 0))
    stride = square(given["stride"]) if given.get("stride") else kernel
    if None in (kernel, padding, stride):
        return None
    return {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": bool(given.get("ceil_mode", False))}


def max_pool2d(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    attributes = window(given)
    if not attributes or square(given.get("dilation", 1)) != 1 or not context.floating(given["self"], 3):
        return None
    return "max_pool2d", attributes, [given["self"]], {}


def avg_pool2d(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    attributes = window(given)
    if not attributes or given.get("divisor_override") is not None or not context.floating(given["self"], 3):
        return None
    return "avg_pool2d", attributes | {"count_include_pad": bool(given.get("count_include_pad", True))}, [given["self"]], {}


def adaptive_avg_pool2d(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    side = square(given["output_size"])
    if side is None or not context.floating(given["self"], 3):
        return None
    return "adaptive_avg_pool2d", {"output_size": side}, [given["self"]], {}


def lstm(given: dict[str, Any], step: Step, context: Context) -> Named | None:
    """From zero states, of which torch.nn.LSTM makes constants; the last states are read by nobody."""
    if not all(map(context.zero, given["hx"])) or any(Value(step.name, k) in context.read for k in (1, 2)):
        return None
    directions = 2 if given["bidirectional"] else 1
    names = [f"{kind}_l{layer}{suffix}" for layer in range(given["num_layers"]) for suffix in ("", "_reverse")[:directions]
             for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[:4 if given["has_biases"] else 2]]
    weights = context.weights(**dict(zip(names, given["params"])))
    if not given["batch_first"] or len(names) != len(given["params"]) or not weights or not context.floating(given["input"], 2):
        return None
    hidden = context.shapes[weights["weight_hh_l0"].name][1]
    return "lstm", {"hidden_size": hidden, "num_layers": given["num_layers"], "bidirectional": bool(given["bidirectional"]),
                    "bias": bool(given["has_biases"]), "dropout": float(given["dropout"]), "weight_dropout": 0.0}, [given["input"]], weights


MAKERS: dict[Any, Callable[..., Named | None]] = {
    aten.view.default: reshape, aten.reshape.default: reshape, aten.unflatten.int: reshape, aten.unsqueeze.default: reshape,
    aten.squeeze.dim: reshape, aten.permute.default: permute, aten.transpose.int: permute, aten.slice.Tensor: slice_,
    aten.chunk.default: chunk, aten.split.Tensor: chunk, aten.matmul.default: matmul, aten.bmm.default: matmul,
    aten.group_norm.default: group_norm, aten.conv1d.default: conv1d, aten.conv_transpose2d.input: conv_transpose2d,
    aten.hardswish.default: unary("hardswish"), aten.hardsigmoid.default: unary("hardsigmoid"),
    aten.conv2d.default: conv2d, aten.linear.default: linear, aten.batch_norm.default: batch_norm,
    aten.layer_norm.default: layer_norm, aten.rms_norm.default: rms_norm, aten.embedding.default: embedding,
    aten.relu.default: unary("relu"), aten.relu6.default: unary("relu6"), aten.hardtanh.default: hardtanh,
    aten.leaky_relu.default: leaky_relu, aten.sigmoid.default: unary("sigmoid"), aten.silu.default: unary("silu"),
    aten.tanh.default: unary("tanh"), aten.gelu.default: gelu, aten.softmax.int: softmax, aten.mul.Scalar: scale,
    aten.add.Tensor: elementwise("add"), aten.mul.Tensor: elementwise("multiply"), aten.cat.default: concat,
    aten.flatten.using_ints: flatten, aten.lstm.input: lstm, aten.mean.dim: mean, aten.max_pool2d.default: max_pool2d,
    aten.avg_pool2d.default: avg_pool2d, aten.adaptive_avg_pool2d.default: adaptive_avg_pool2d,
}
