"""Operations that give what they take: dropped; and those that only move values."""

from collections.abc import Callable

import torch

from .graph import DTYPES, Step, TensorType, Value
from .static import Static

aten = torch.ops.aten
MOVING = ("where", "masked_fill", "clamp", "cat", "stack", "index", "index_select", "gather", "pad", "roll", "flip",
          "contiguous", "repeat_interleave", "minimum", "maximum")  # values, without making new ones
CASTS = (aten.to.dtype, aten.to.dtype_layout, aten.to.device, aten._to_copy.default, aten.to.other)


def input_of(step: Step, type_of: Callable[[Value], TensorType]) -> Value | None:
    """The value that the step hands on unchanged; None when it does something."""
    if step.target == aten.cat.default:
        empty = lambda part: isinstance(part, Static) and part.at[3].shape == (0,)
        parts = [part for part in step.arguments["tensors"] if not empty(part)]
        return parts[0] if len(parts) == 1 and isinstance(parts[0], Value) else None
    arguments, source = step.arguments, step.arguments.get("self", step.arguments.get("input"))
    if not isinstance(source, Value):
        return None
    kind, same = type_of(source), type_of(source) == step.outputs[0]
    if step.target == aten.slice.Tensor:
        return source if same and arguments.get("step", 1) == 1 else None
    if step.target in CASTS:
        return source if DTYPES.get(arguments.get("dtype")) == kind.dtype or arguments.get("dtype") is None else None
    if step.target == aten.type_as.default:
        other = arguments["other"]
        return source if isinstance(other, Value) and type_of(other).dtype == kind.dtype else None
    if step.target in (aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default):
        return source if arguments["p"] == 0 or not arguments["train"] else None
    if step.target in (aten.pad.default, aten.constant_pad_nd.default):
        return source if not any(arguments["pad"]) else None
    if step.target in (aten.alias.default, aten.lift_fresh_copy.default, aten.clone.default):
        return source
    if step.target in (aten.view.default, aten.reshape.default, aten.expand.default, aten.contiguous.default):
        return source if same and step.target != aten.contiguous.default else None
    return None
