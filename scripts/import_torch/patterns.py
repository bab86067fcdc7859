"""Rows of operations that are one of our own: RMS norms, gated activations, soft caps. Attention: attention.py."""

from typing import Any

import torch

from .attention import attention
from .graph import Parameter, Step, Value, number_of
from .makers import Makers, both_ways
from .named import Context, named_step, ours

aten = torch.ops.aten
ACTIVATIONS = {aten.silu.default: "silu", aten.relu.default: "relu"}


def fused(steps: list[Step], context: Context) -> list[Step]:
    """The steps with patterns replaced by one step of the last one's name; what nobody reads any more is still there."""
    makers, made = Makers(steps, context.types), []
    for step in steps:
        for pattern in (norm, gated, soft_cap, attention):
            found = pattern(step, makers, context) if step.op == "aten" else None
            if found is not None:
                step = named_step(step, found)
                makers.steps[step.name] = step
                break
        made.append(step)
    return made


def norm(step: Step, makers: Makers, context: Context) -> Any:
    """weight * (x / root of (mean of squares + eps)), and Gemma's (1 + weight) * ..."""
    if step.target != aten.mul.Tensor:
        return None
    for weight, scaled in both_ways(step):
        parameter, offset = weight, 0.0
        if (added := makers.of(weight, aten.add.Scalar, aten.add.Tensor)) is not None:
            parameter, offset = added.arguments["self"], number_of(added.arguments["other"])
        source = inverse_of(scaled, makers)
        if not isinstance(parameter, Parameter) or source is None or offset is None or not context.floating(source[0]):
            continue
        weights = context.weights(weight=parameter)
        if weights and context.shapes[parameter.name] == context.types[source[0]].shape[-1:]:
            return ours("rms_norm", source[0], weights, eps=source[1], offset=offset)
    return None


def inverse_of(scaled: Any, makers: Makers) -> tuple[Value, float] | None:
    """x and eps of x * rsqrt(mean(x * x) + eps)."""
    factors = makers.factors(scaled)
    for x, root in (factors, factors[::-1]) if factors else ():
        rsqrt = makers.of(root, aten.rsqrt.default)
        added = makers.of(rsqrt.arguments["self"], aten.add.Scalar, aten.add.Tensor) if rsqrt else None
        mean = makers.of(added.arguments["self"], aten.mean.dim) if added else None
        last = ([-1], [makers.types[x].rank() - 1]) if x in makers.types else ()
        if mean is None or not mean.arguments.get("keepdim") or mean.arguments["dim"] not in last:
            continue
        square, eps = mean.arguments["self"], number_of(added.arguments["other"])
        power = makers.of(square, aten.pow.Tensor_Scalar)
        squared = power.arguments["self"] if power is not None and power.arguments["exponent"] == 2 else None
        product = makers.factors(square)
        if eps is not None and (squared == x or product == (x, x)):
            return x, eps
    return None


def gated(step: Step, makers: Makers, context: Context) -> Any:
    """activation(gate) * x; both halves of one tensor are one input."""
    if step.target != aten.mul.Tensor:
        return None
    for activated, x in both_ways(step):
        maker = makers.of(activated, *ACTIVATIONS, aten.gelu.default)
        gate = maker.arguments["self"] if maker is not None else None
        if not context.floating(gate) or not isinstance(x, Value) or context.types.get(x) != context.types[gate]:
            continue
        name = ACTIVATIONS.get(maker.target)
        if name is None:
            name = "gelu_tanh" if maker.arguments.get("approximate", "none") == "tanh" else "gelu"
        halves = makers.of(gate, aten.chunk.default, aten.split.Tensor)
        whole = halves is not None and len(halves.outputs) == 2 and (gate.output, x) == (0, Value(gate.producer, 1))
        if whole and halves.arguments.get("dim", 0) % context.types[gate].rank() == context.types[gate].rank() - 1:
            return ours("gated_activation", halves.arguments["self"], activation=name)
        return ours("gated_activation", [gate, x], activation=name)
    return None


def soft_cap(step: Step, makers: Makers, context: Context) -> Any:
    """cap * tanh(x / cap)"""
    if step.target not in (aten.mul.Scalar, aten.mul.Tensor):
        return None
    cap, tanh = number_of(step.arguments["other"]), makers.of(step.arguments["self"], aten.tanh.default)
    divided = makers.of(tanh.arguments["self"], aten.div.Scalar, aten.div.Tensor) if tanh is not None else None
    if divided is None or not cap or cap < 1e-6 or number_of(divided.arguments["other"]) != cap:
        return None
    source = divided.arguments["self"]
    return ours("soft_cap", source, cap=cap) if context.floating(source) else None
