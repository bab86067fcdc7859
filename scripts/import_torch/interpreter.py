"""Runs a pp.model in PyTorch, with its weights: what the document means. Random operations do nothing unless asked
for."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from . import decoders, formulas, operations
from .refused import Refused

Tensors = dict[str, torch.Tensor]
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "int64": torch.int64,
          "uint8": torch.uint8, "bool": torch.bool}


def batch_norm(a: dict[str, Any], x: list[torch.Tensor], w: Tensors, training: bool) -> torch.Tensor:
    """Training changes the running statistics in w."""
    return F.batch_norm(x[0], w["running_mean"], w["running_var"], w["weight"], w["bias"], training, a["momentum"],
                        a["eps"])


def lstm(a: dict[str, Any], x: list[torch.Tensor], w: Tensors, dropout: float = 0.0) -> torch.Tensor:
    directions = 2 if a["bidirectional"] else 1
    zeros = x[0].new_zeros(directions * a["num_layers"], x[0].shape[0], a["hidden_size"])
    return torch.lstm(x[0], (zeros, zeros), list(w.values()), a["bias"], a["num_layers"], dropout, dropout > 0,
                      a["bidirectional"], True)[0]


def lstm_weights(a: dict[str, Any]) -> list[str]:
    return [f"{kind}_l{layer}{suffix}" for layer in range(a["num_layers"])
            for suffix in ("", "_reverse")[:2 if a["bidirectional"] else 1]
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[:4 if a["bias"] else 2]]


def attention(a: dict[str, Any], x: list[torch.Tensor], dropout: float) -> torch.Tensor:
    return F.scaled_dot_product_attention(x[0], x[1], x[2], dropout_p=dropout, is_causal=a["causal"])


Operation = Callable[[dict[str, Any], list[torch.Tensor], Tensors], Any]  # of attributes, inputs, weights
NAMED: dict[str, Operation] = {
    "dropout": lambda a, x, w: x[0],
    "dropout2d": lambda a, x, w: x[0],
    "stochastic_depth": lambda a, x, w: x[0],
    "scaled_dot_product_attention": lambda a, x, w: attention(a, x, 0.0),
    "conv2d": lambda a, x, w: F.conv2d(x[0], w["weight"], w.get("bias"), a["stride"],
                                       (a["padding"], a["padding_width"]), a["dilation"], a["groups"]),
    "linear": lambda a, x, w: F.linear(x[0], w["weight"], w.get("bias")),
    "layer_norm": lambda a, x, w: F.layer_norm(x[0], x[0].shape[-1:], w["weight"], w["bias"], a["eps"]),
    "rms_norm": lambda a, x, w: decoders.rms_norm(a, x[0], w["weight"]),
    "grouped_query_attention": lambda a, x, w: decoders.grouped_query_attention(a, x, w, 0.0),
    "gated_activation": lambda a, x, w: decoders.gated_activation(a, x),
    "soft_cap": lambda a, x, w: decoders.soft_cap(a["cap"], x[0]),
    "embedding": lambda a, x, w: F.embedding(x[0], w["weight"], a["padding_idx"] if a["padding_idx"] >= 0 else None),
    "bias": lambda a, x, w: x[0] + w["bias"],
    "relu": lambda a, x, w: F.relu(x[0]),
    "relu6": lambda a, x, w: F.relu6(x[0]),
    "leaky_relu": lambda a, x, w: F.leaky_relu(x[0], a["negative_slope"]),
    "sigmoid": lambda a, x, w: torch.sigmoid(x[0]),
    "silu": lambda a, x, w: F.silu(x[0]),
    "tanh": lambda a, x, w: torch.tanh(x[0]),
    "gelu": lambda a, x, w: F.gelu(x[0], approximate="tanh" if a["tanh"] else "none"),
    "softmax": lambda a, x, w: torch.softmax(x[0], -1),
    "scale": lambda a, x, w: x[0] * a["factor"] + a["offset"],
    "add": lambda a, x, w: x[0] + x[1],
    "multiply": lambda a, x, w: x[0] * x[1],
    "concat": lambda a, x, w: torch.cat(x, a["dim"] + 1),
    "flatten": lambda a, x, w: x[0].flatten(1),
    "mean": lambda a, x, w: x[0].mean(a["dim"] + 1),
    "max_pool2d": lambda a, x, w: F.max_pool2d(x[0], a["kernel_size"], a["stride"], a["padding"], 1, a["ceil_mode"]),
    "avg_pool2d": lambda a, x, w: F.avg_pool2d(x[0], a["kernel_size"], a["stride"], a["padding"], a["ceil_mode"],
                                               a["count_include_pad"]),
    "adaptive_avg_pool2d": lambda a, x, w: F.adaptive_avg_pool2d(x[0], a["output_size"]),
    "lstm": lstm,
    "reshape": lambda a, x, w: x[0].reshape(x[0].shape[0], *a["shape"]),
    "permute": lambda a, x, w: x[0].permute(0, *(d + 1 for d in a["dims"])),
    "slice": lambda a, x, w: torch.ops.aten.slice(x[0], a["dim"] + 1, a["start"], a["end"], a["step"]),
    "chunk": lambda a, x, w: x[0].chunk(a["chunks"], a["dim"] + 1),
    "matmul": lambda a, x, w: x[0] @ x[1],
    "group_norm": lambda a, x, w: F.group_norm(x[0], a["num_groups"], w["weight"], w["bias"], a["eps"]),
    "conv1d": lambda a, x, w: F.conv1d(x[0], w["weight"], w.get("bias"), a["stride"], a["padding"], a["dilation"],
                                       a["groups"]),
    "conv_transpose2d": lambda a, x, w: F.conv_transpose2d(x[0], w["weight"], w.get("bias"), a["stride"], a["padding"],
                                                           a["output_padding"], a["groups"]),
    "hardswish": lambda a, x, w: F.hardswish(x[0]),
    "hardsigmoid": lambda a, x, w: F.hardsigmoid(x[0]),
}
DRAWING: dict[str, Operation] = {
    "dropout": lambda a, x, w: F.dropout(x[0], a["p"]),
    "dropout2d": lambda a, x, w: F.dropout2d(x[0], a["p"]),
    "stochastic_depth": lambda a, x, w: x[0] * F.dropout(x[0].new_ones(x[0].shape[0], *[1] * (x[0].dim() - 1)), a["p"]),
    "lstm": lambda a, x, w: lstm(a, x, w, a["dropout"]),
    "scaled_dot_product_attention": lambda a, x, w: attention(a, x, a["dropout"]),
    "grouped_query_attention": lambda a, x, w: decoders.grouped_query_attention(a, x, w, a["dropout"]),
}
WEIGHTS = {"conv2d": ["weight", "bias"], "linear": ["weight", "bias"], "layer_norm": ["weight", "bias"],
           "rms_norm": ["weight"], "embedding": ["weight"], "bias": ["bias"],
           "group_norm": ["weight", "bias"], "conv1d": ["weight", "bias"], "conv_transpose2d": ["weight", "bias"],
           "batch_norm1d": ["weight", "bias", "running_mean", "running_var"],
           "batch_norm2d": ["weight", "bias", "running_mean", "running_var"]}


def join(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def weights_of_call(call: dict[str, Any]) -> list[str]:
    return [entry["name"] for key in ("parameters", "buffers") for entry in call.get(key, [])]


def local_weights(layer: dict[str, Any]) -> list[str]:
    """Names within the layer of what it takes from the weights file."""
    if layer["op"] == "aten":
        return weights_of_call(layer["call"])
    if layer["op"] == "graph":
        return [join(node.get("scope", node["name"]), name) for node in layer["nodes"] for name in local_weights(node)]
    if layer["op"] == "lstm":
        return lstm_weights(layer["attributes"])
    if layer["op"] == "grouped_query_attention":
        return ["q_norm.weight", "k_norm.weight"] if layer["attributes"].get("norms") else []
    names = WEIGHTS.get(layer["op"], [])
    return [name for name in names if name != "bias" or layer.get("attributes", {}).get("bias", True)]


class Interpreter:
    """`watch(layer, outputs)` sees every layer's outputs; `draw`: dropout drops, from PyTorch's own generator."""

    def __init__(self, document: dict[str, Any], weights: Tensors, training: bool = False,
                 watch: Callable[[dict[str, Any], list[torch.Tensor]], None] | None = None, draw: bool = False) -> None:
        self.document, self.weights, self.training, self.watch, self.draw = document, weights, training, watch, draw
        self.layers = {layer["name"]: layer for layer in document["layers"]}
        self.constants: dict[int, torch.Tensor] = {}
        self.statistics: Tensors = {}  # of batch norms in training: the buffers as they are afterwards
        self.counts: list[float | None] = []  # of the labels of each call that takes some
        self.outputs: list[torch.Tensor] = []  # of run()
        self.shares: Iterator[float] | None = None  # what those of a mean over labels are multiplied by, where wanted
        self.device = next(iter(weights.values())).device if weights else torch.device("cpu")

    def run(self, inputs: Tensors) -> list[torch.Tensor]:
        known = {(name, 0): tensor for name, tensor in inputs.items()}
        for layer in self.document["layers"]:
            self.samples = known[split(layer["inputs"][0])].shape[0]
            outputs = self.layer(layer, [known[split(name)] for name in layer["inputs"]], self.names(layer))
            known |= {(layer["name"], k): tensor for k, tensor in enumerate(outputs)}
            if self.watch:
                self.watch(layer, outputs)
        self.known = known
        self.outputs = [known[split(name)] for name in self.document["outputs"]]
        return self.outputs

    def loss(self) -> torch.Tensor:
        """After run()."""
        return self.loss_of([self.known[split(name)] for name in self.document["loss"]["inputs"]])

    def loss_of(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        loss, (prediction, *others) = self.document["loss"], inputs
        if loss["op"] == "cross_entropy":
            given = loss.get("attributes", {})
            share = self.share(count_labels(others[0], ignore_index=given.get("ignore_index", -100)))
            if share == 0:
                given = given | {"reduction": "sum"}
            if prediction.dim() == 4:
                return F.cross_entropy(prediction, others[0], **given) * share
            return F.cross_entropy(prediction.flatten(0, -2), others[0].flatten(), **given) * share
        if loss["op"] == "mse":
            return F.mse_loss(prediction, others[0])
        return self.layer({"name": "loss", **loss}, [prediction, *others], {})[0]

    def share(self, count: float | None) -> float:
        self.counts.append(count)
        return 1.0 if self.shares is None else next(self.shares)

    def names(self, layer: dict[str, Any]) -> dict[str, str]:
        """Local name -> model-wide name; the owner's where weights are shared."""
        owner = self.layers[layer["weights_of"]] if "weights_of" in layer else layer
        scope = owner.get("scope", owner["name"])
        return {name: join(scope, name) for name in local_weights(layer)}

    def layer(self, layer: dict[str, Any], inputs: list[torch.Tensor], names: dict[str, str]) -> list[torch.Tensor]:
        if layer["op"] == "graph":
            return self.graph(layer, inputs, names)
        weights = {local: self.weights[full] for local, full in names.items()}
        if layer["op"] == "aten":
            return self.aten(layer, inputs, weights)
        if layer["op"] in ("batch_norm1d", "batch_norm2d"):
            if self.training:
                weights |= {local: self.statistics.setdefault(full, weights[local].clone())
                            for local, full in names.items() if local.startswith("running")}
            return [batch_norm(layer["attributes"], inputs, weights, self.training)]
        operation = self.draw and DRAWING.get(layer["op"]) or NAMED[layer["op"]]
        made = operation(operations.with_defaults(layer["op"], layer.get("attributes", {})), inputs, weights)
        return list(made) if isinstance(made, tuple) else [made]

    def graph(self, layer: dict[str, Any], inputs: list[torch.Tensor], names: dict[str, str]) -> list[torch.Tensor]:
        known = dict(zip(map(split, layer["inputs"]), inputs))
        for node in layer["nodes"]:
            scope = node.get("scope", node["name"])
            mine = {name: names[join(scope, name)] for name in local_weights(node)}
            outputs = self.layer(node, [known[split(name)] for name in node["inputs"]], mine)
            known |= {(node["name"], k): tensor for k, tensor in enumerate(outputs)}
        return [known[split(name)] for name in layer["outputs"]]

    def aten(self, layer: dict[str, Any], inputs: list[torch.Tensor], weights: Tensors) -> list[torch.Tensor]:
        call = layer["call"]
        constants = {entry["name"]: self.constant(entry) for entry in call.get("constants", [])}
        operation = find(call["target"])

        def value(argument: Any) -> Any:
            if isinstance(argument, list):
                return [value(element) for element in argument]
            if not isinstance(argument, dict):
                return argument
            (key, content), = argument.items()
            return {"input": lambda: inputs[content], "parameter": lambda: weights[content],
                    "buffer": lambda: weights[content],
                    "constant": lambda: constants[content], "batch": lambda: content[0] * self.samples + content[1],
                    "dtype": lambda: DTYPES[content], "number": lambda: float(content)}[key]()

        arguments = {name: value(argument) for name, argument in call["arguments"].items()}
        if any(argument.name == "device" for argument in operation._schema.arguments):
            arguments["device"] = self.device
        if takes_labels(call):
            share = self.share(count_labels(**arguments))
            made = operation(**arguments | ({"reduction": 2} if share == 0 else {})) * share
        else:
            made = operation(**arguments)
        outputs = list(made) if isinstance(made, (list, tuple)) else [made]
        for record, tensor in zip(call["outputs"], outputs, strict=True):
            check(layer["name"], record, tensor, self.samples)
        return outputs

    def constant(self, entry: dict[str, Any]) -> torch.Tensor:
        """Made once."""
        if id(entry) not in self.constants:
            if "formula" in entry:
                made = formulas.evaluate(entry["formula"], entry["shape"], DTYPES[entry["dtype"]])
                self.constants[id(entry)] = made.to(self.device)
                return self.constants[id(entry)]
            values = [float(v["number"]) if isinstance(v, dict) else v for v in entry["values"]]
            made = torch.tensor(values, dtype=DTYPES[entry["dtype"]], device=self.device)
            self.constants[id(entry)] = made.reshape(entry["shape"])
        return self.constants[id(entry)]


def split(reference: str) -> tuple[str, int]:
    name, _, number = reference.partition(":")
    return name, int(number or 0)


def takes_labels(call: dict[str, Any]) -> bool:
    return call["target"].startswith(("aten::cross_entropy_loss", "aten::nll_loss"))


def count_labels(target: torch.Tensor, weight: torch.Tensor | None = None, reduction: int = 1,
                 ignore_index: int = -100, **_: Any) -> float | None:
    """What the mean over the labels divides by; None: it is no such mean."""
    if reduction != 1 or target.is_floating_point():
        return None
    counted = target[target != ignore_index]
    return float(counted.numel() if weight is None else weight[counted].sum())


def find(target: str) -> Any:
    name, _, overload = target.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, name), overload or "default")


def check(name: str, record: dict[str, Any], tensor: torch.Tensor, samples: int) -> None:
    rows, where = record.get("rows", 1), record.get("batch_dim", 0)
    wanted = list(record["shape"]) if not rows else [*record["shape"][:where], rows * samples, *record["shape"][where:]]
    if list(tensor.shape) != wanted or DTYPES[record["dtype"]] != tensor.dtype:
        raise Refused(f"{name}: gives {tensor.dtype} {list(tensor.shape)}, but {record['dtype']} {wanted} was exported")
