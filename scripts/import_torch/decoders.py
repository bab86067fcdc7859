"""What the operations of decoders compute, in PyTorch: attention with rotary positions and grouped heads, gated
activations, soft caps, RMS norms."""

from typing import Any

import torch
import torch.nn.functional as F

from . import rotary

Attributes = dict[str, Any]
ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu}


def rms_norm(a: Attributes, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], weight + a["offset"] if a["offset"] else weight, a["eps"])


def gated_activation(a: Attributes, x: list[torch.Tensor]) -> torch.Tensor:
    gate, value = x if len(x) == 2 else x[0].chunk(2, -1)
    return ACTIVATIONS[a["activation"]](gate) * value


def soft_cap(cap: float, x: torch.Tensor) -> torch.Tensor:
    return cap * torch.tanh(x / cap)


def grouped_query_attention(a: Attributes, x: list[torch.Tensor], w: dict[str, torch.Tensor], dropout: float
                            ) -> torch.Tensor:
    """Inputs [b, l, heads d], or one of all three."""
    queries, keys, values = heads_of(a, x)
    if a["norms"]:
        queries, keys = (F.rms_norm(part, part.shape[-1:], w[name], a["norm_eps"])
                         for part, name in ((queries, "q_norm.weight"), (keys, "k_norm.weight")))
    if a["rotary_dim"]:
        queries, keys = turned(a, queries), turned(a, keys)
    queries, keys, values = (part.transpose(1, 2) for part in (queries, keys, values))
    repeats = a["num_heads"] // a["num_key_value_heads"]
    keys, values = (part.repeat_interleave(repeats, 1) for part in (keys, values))
    length, scale = queries.shape[2], a["scale"] or queries.shape[3] ** -0.5
    distance = torch.arange(length, device=queries.device) - torch.arange(length, device=queries.device)[:, None]
    sees = distance <= 0 if a["causal"] else torch.ones_like(distance, dtype=torch.bool)
    if a["sliding_window"]:
        sees = sees & (distance > -a["sliding_window"])
    if a["soft_cap"]:
        scores = soft_cap(a["soft_cap"], queries @ keys.transpose(2, 3) * scale)
        shares = F.dropout(scores.masked_fill(~sees, float("-inf")).softmax(-1), dropout)
        mixed = shares @ values
    else:
        mixed = F.scaled_dot_product_attention(queries, keys, values, sees, dropout, scale=scale)
    return mixed.transpose(1, 2).flatten(2)


def heads_of(a: Attributes, x: list[torch.Tensor]) -> list[torch.Tensor]:
    """[b, l, heads, d] each."""
    heads, groups = a["num_heads"], a["num_key_value_heads"]
    if len(x) == 3:
        return [part.unflatten(2, (count, -1)) for part, count in zip(x, (heads, groups, groups))]
    if a["packing"] == "heads":
        return list(x[0].unflatten(2, (heads, -1)).chunk(3, -1))
    return list(x[0].unflatten(2, (heads + 2 * groups, -1)).split((heads, groups, groups), 2))


def turned(a: Attributes, x: torch.Tensor) -> torch.Tensor:
    """x [b, l, heads, d], the first elements of every head by pairs."""
    width = a["rotary_dim"]
    frequencies = rotary.computed(a, width).float()
    angles = torch.outer(torch.arange(x.shape[1], dtype=torch.float32), frequencies)[:, None].to(x.device)
    cosines, sines = (part.to(x.dtype) * a["rotary_magnitude"] for part in (angles.cos(), angles.sin()))
    part, rest = x[..., :width], x[..., width:]
    first, second = (part[..., 0::2], part[..., 1::2]) if a["rotary_interleaved"] else part.chunk(2, -1)
    made = [first * cosines - second * sines, second * cosines + first * sines]
    joined = torch.stack(made, -1).flatten(-2) if a["rotary_interleaved"] else torch.cat(made, -1)
    return torch.cat([joined, rest], -1)
