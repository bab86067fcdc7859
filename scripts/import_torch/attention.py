"""Attention with rotary positions and grouped heads, as transformers and torchtune write it, is one operation."""

import dataclasses
import math
from typing import Any

import torch

from .graph import Constant, Step, Value, number_of
from .makers import Makers
from .named import LARGEST, Context, ours
from .rotary import attributes_of

aten = torch.ops.aten
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints,
         aten.unflatten.int)
LEAST = -1e30  # of a mask: scores below it count as minus infinity


@dataclasses.dataclass
class Heads:
    """Where the heads of queries, keys or values come from, walking back from the product."""
    value: Any
    heads_first: bool = True  # [b, heads, l, d]; else [b, l, heads, d]
    groups: int = 0  # heads before they were repeated
    rotary: dict[str, Any] | None = None
    norm: Step | None = None
    part: int | None = None  # of queries, keys and values that stand together, head by head


def attention(step: Step, makers: Makers, context: Context) -> Any:
    """`step`: the view that joins the heads."""
    if step.target not in VIEWS:
        return None
    swapped = makers.of(step.arguments["self"], aten.transpose.int, aten.permute.default)
    if swapped is None or not swaps(swapped) or step.outputs[0].rank() != 3:
        return None
    fused = makers.of(swapped.arguments["self"], aten.scaled_dot_product_attention.default)
    given = fused.arguments if fused is not None else by_scores(swapped.arguments["self"], makers)
    if given is None:
        return None
    kinds = [context.types.get(given[n]) for n in ("query", "key", "value")]
    if any(kind is None or kind.rows != 1 or kind.batch_dim or len(kind.shape) != 3 for kind in kinds):
        return None
    mask = mask_of(given, makers, kinds[0].shape[1])
    walks = [walk(given[name], makers, context) for name in ("query", "key", "value")]
    if mask is None or None in walks or kinds[0].shape[1] != kinds[1].shape[1]:
        return None
    queries, keys, values = walks
    heads, length, width = kinds[0].shape
    if step.outputs[0].shape != (length, heads * kinds[2].shape[2]) or keys.groups != values.groups:
        return None
    if queries.groups != heads or values.rotary or values.norm or queries.rotary != keys.rotary:
        return None
    norms = norms_of(queries, keys, context)
    inputs = inputs_of(walks)
    dropout = given.get("dropout_p", 0.0)
    if norms is None or inputs is None or dropout > LARGEST:
        return None
    plain = not (queries.rotary or norms[0] or given.get("soft_cap") or keys.groups != heads or "sliding_window" in mask)
    if plain and dropout:
        return None  # a flash kernel drops where it multiplies; ours holds the scores
    scale = given.get("scale")
    usual = scale is None or math.isclose(scale, 1 / math.sqrt(width), rel_tol=1e-6)
    return ours("grouped_query_attention", inputs, norms[0], num_heads=heads, num_key_value_heads=keys.groups, **mask,
                packing="heads" if len(inputs) == 1 else "parts", soft_cap=given.get("soft_cap", 0.0),
                scale=0.0 if usual else float(scale), dropout=dropout, **norms[1], **(queries.rotary or {}))


def by_scores(value: Any, makers: Makers) -> dict[str, Any] | None:
    """Arguments of the same product that is written as softmax(cap(q k^T * scale) + mask) v."""
    product = makers.of(value, aten.matmul.default)
    shares, values = (product.arguments["self"], product.arguments["other"]) if product is not None else (None, None)
    given: dict[str, Any] = {"value": values, "scale": 1.0}
    if (dropped := makers.named(shares, "dropout")) is not None:
        given["dropout_p"], shares = dropped.attributes["p"], dropped.inputs[0]
    soft = makers.of(shares, aten.softmax.int)
    if soft is None or soft.arguments["dim"] not in (-1, 3):
        return None
    scores = soft.arguments["self"]
    added = makers.factors(scores, aten.add.Tensor)
    if added is not None and makers.constant(added[1]) is not None:
        scores, given["attn_mask"] = added
    if (capped := makers.named(scores, "soft_cap")) is not None:
        given["soft_cap"], scores = capped.attributes["cap"], capped.inputs[0]
    for targets, power in (((aten.mul.Scalar, aten.mul.Tensor), 1), ((aten.div.Scalar, aten.div.Tensor), -1)):
        scaled = makers.of(scores, *targets)
        number = number_of(scaled.arguments["other"]) if scaled is not None else None
        if number:
            given["scale"], scores = number ** power, scaled.arguments["self"]
            break
    scored = makers.of(scores, aten.matmul.default)
    keys = makers.of(scored.arguments["other"], aten.transpose.int) if scored is not None else None
    if keys is None or {keys.arguments["dim0"] % 4, keys.arguments["dim1"] % 4} != {2, 3}:
        return None
    return given | {"query": scored.arguments["self"], "key": keys.arguments["self"]}


def swaps(step: Step) -> bool:
    """Exchanges dimensions 1 and 2 of four."""
    if step.outputs[0].rank() != 4:
        return False
    if step.target == aten.permute.default:
        return [d % 4 for d in step.arguments["dims"]] == [0, 2, 1, 3]
    return {step.arguments["dim0"] % 4, step.arguments["dim1"] % 4} == {1, 2}


def mask_of(given: dict[str, Any], makers: Makers, length: int) -> dict[str, Any] | None:
    """Attributes that say who sees whom."""
    mask = given.get("attn_mask")
    if mask is None:
        return {"causal": bool(given.get("is_causal", False))}
    constant = makers.constant(mask)
    formula = constant.formula if constant is not None else None
    if formula is None or formula["kind"] != "band":
        return None
    inside, outside = (float(v["number"] if isinstance(v, dict) else v) for v in (formula["inside"], formula["outside"]))
    hides = (inside, outside) == (1, 0) if constant.tensor.dtype == torch.bool else inside == 0 and outside < LEAST
    steps = list(formula["steps"])
    if not hides or formula["offset"] or steps[-2:] != [-1, 1] or any(steps[:-2]) or formula.get("high") != 0:
        return None
    if "low" not in formula:
        return {"causal": True}
    return {"causal": True, "sliding_window": 1 - formula["low"]} if formula["low"] <= 0 else None


def walk(value: Any, makers: Makers, context: Context) -> Heads | None:
    found = Heads(value)
    while True:
        kind = context.types.get(found.value) if isinstance(found.value, Value) else None
        if kind is None or kind.rows != 1 or kind.batch_dim:
            return None
        if len(kind.shape) == 3 and not found.groups:
            found.groups = kind.shape[0 if found.heads_first else 1]
        for forward in (through_swap, through_repeat, through_norm, through_rotary, through_parts):
            if forward(found, makers, context):
                break
        else:
            return found if arrived(found, makers, context) else None


def through_swap(found: Heads, makers: Makers, context: Context) -> bool:
    step = makers.of(found.value, aten.transpose.int, aten.permute.default)
    if step is None or not swaps(step):
        return False
    found.value, found.heads_first = step.arguments["self"], not found.heads_first
    return True


def through_repeat(found: Heads, makers: Makers, context: Context) -> bool:
    """[g, l, d] -> [g, 1, l, d] -> [g, r, l, d] -> [g r, l, d], or with l in front: each head r times."""
    joined = makers.of(found.value, *VIEWS)
    spread = makers.of(joined.arguments["self"], aten.expand.default) if joined is not None else None
    parted = makers.of(spread.arguments["self"], aten.unsqueeze.default, *VIEWS) if spread is not None else None
    if parted is None or len(spread.outputs[0].shape) != 4:
        return False
    source = parted.arguments["self"]
    before, wide = context.types[source].shape, spread.outputs[0].shape
    at = 0 if found.heads_first else 1
    one = (*before[:at + 1], 1, *before[at + 1:])
    if len(before) != 3 or parted.outputs[0].shape != one or wide != (*one[:at + 1], wide[at + 1], *one[at + 2:]):
        return False
    found.value, found.groups = source, before[at]
    return True


def through_norm(found: Heads, makers: Makers, context: Context) -> bool:
    step = makers.named(found.value, "rms_norm")
    if step is None or found.norm is not None or step.attributes.get("offset"):
        return False
    found.value, found.norm = step.inputs[0], step
    return True


def through_rotary(found: Heads, makers: Makers, context: Context) -> bool:
    turned = None
    if not found.rotary and not found.norm:
        turned = (in_part(found, makers, context) or halves(found.value, found, makers, context)
                  or pairs(found, makers, context))
    if turned is None:
        return False
    found.value, found.rotary = turned
    return True


def through_parts(found: Heads, makers: Makers, context: Context) -> bool:
    """One of three equal parts of every head."""
    step = makers.of(found.value, aten.chunk.default, aten.split.Tensor)
    if step is None or found.part is not None or len(step.outputs) != 3 or len(set(step.outputs)) > 1:
        return False
    if step.arguments.get("dim", 0) % 4 != 3:
        return False
    found.part, found.value = found.value.output, step.arguments["self"]
    return True


def arrived(found: Heads, makers: Makers, context: Context) -> bool:
    """At [b, l, heads d]."""
    step = makers.of(found.value, *VIEWS)
    source = step.arguments["self"] if step is not None else None
    kind = context.types.get(source) if isinstance(source, Value) else None
    if found.heads_first or kind is None or kind.rows != 1 or kind.batch_dim or len(kind.shape) != 2:
        return False
    length, heads, width = step.outputs[0].shape
    found.value = source
    return kind.shape == (length, heads * width) and found.groups == heads


def norms_of(queries: Heads, keys: Heads, context: Context) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Weights and attributes."""
    if queries.norm is None and keys.norm is None:
        return {}, {}
    if queries.norm is None or keys.norm is None or queries.norm.attributes != keys.norm.attributes:
        return None
    weights = context.weights(**{"q_norm.weight": queries.norm.weights["weight"],
                                 "k_norm.weight": keys.norm.weights["weight"]})
    return (weights, {"norms": True, "norm_eps": queries.norm.attributes["eps"]}) if weights else None


def inputs_of(walks: list[Heads]) -> list[Value] | None:
    parts = [found.part for found in walks]
    if parts == [None] * 3:
        return [found.value for found in walks]
    alone = len({found.value for found in walks}) == 1 and parts == [0, 1, 2]
    return [walks[0].value] if alone else None


# Rotary positions.

Turned = tuple[Value, dict[str, Any]]  # what was turned, and how


def in_part(found: Heads, makers: Makers, context: Context) -> Turned | None:
    """The first elements of every head; the others pass."""
    step = makers.of(found.value, aten.cat.default)
    parts = step.arguments["tensors"] if step is not None else []
    if len(parts) != 2 or step.arguments.get("dim", 0) not in (-1, 3):
        return None
    if context.types[parts[1]].shape[-1] == 0:
        return halves(parts[0], found, makers, context)
    turned, rest = halves(parts[0], found, makers, context), slice_of(parts[1], makers)
    first = slice_of(turned[0], makers) if turned is not None else None
    if first is None or rest is None or first[0] != rest[0]:
        return None
    width = context.types[first[0]].shape[-1]
    whole = (first[1], min(first[2], width), min(rest[2], width)) == (0, rest[1], width)
    return (first[0], turned[1]) if whole else None


def halves(value: Any, found: Heads, makers: Makers, context: Context) -> Turned | None:
    """x cos + (-second half of x, first half) sin"""
    terms = makers.factors(value, aten.add.Tensor)
    for one, other in (terms, terms[::-1]) if terms else ():
        plain, crossed = with_table(one, makers), with_table(other, makers)
        if plain is None or crossed is None:
            continue
        (x, cosines), (moved, sines) = plain, crossed
        half = context.types[x].shape[-1] // 2
        swapped = makers.of(moved, aten.cat.default)
        parts = swapped.arguments["tensors"] if swapped is not None else []
        negative = makers.of(parts[0], aten.neg.default) if len(parts) == 2 else None
        if negative is None or not is_half(negative.arguments["self"], x, 1, half, makers):
            continue
        if is_half(parts[1], x, 0, half, makers):
            how = attributes_of(cosines, sines, "halves", found.heads_first, context.types[x].shape)
            return (x, how) if how is not None else None
    return None


def pairs(found: Heads, makers: Makers, context: Context) -> Turned | None:
    """Neighbours: (a cos - b sin, b cos + a sin) for x = a, b, a, b, ..."""
    view = makers.of(found.value, *VIEWS)
    stack = makers.of(view.arguments["self"], aten.stack.default) if view is not None else None
    if stack is None or len(stack.arguments["tensors"]) != 2 or stack.arguments.get("dim", 0) not in (-1, 4):
        return None
    first, second = stack.arguments["tensors"]
    minus, plus = makers.factors(first, aten.sub.Tensor), makers.factors(second, aten.add.Tensor)
    if minus is None or plus is None:
        return None
    terms = [with_table(term, makers) for term in (*minus, *plus)]
    if None in terms:
        return None
    (a, cosines), (b, sines), (b2, cosines2), (a2, sines2) = terms
    x = element_of(a, 0, makers)
    if x is None or [element_of(b, 1, makers), element_of(b2, 1, makers), element_of(a2, 0, makers)] != [x] * 3:
        return None
    if cosines.formula != cosines2.formula or sines.formula != sines2.formula:
        return None
    split = makers.of(x, *VIEWS)
    source = split.arguments["self"] if split is not None else None
    kind = context.types.get(source) if isinstance(source, Value) else None
    if kind is None or context.types[x].shape != (*kind.shape[:-1], kind.shape[-1] // 2, 2):
        return None
    how = attributes_of(cosines, sines, "single", found.heads_first, kind.shape)
    return (source, how | {"rotary_interleaved": True}) if how is not None else None


def with_table(value: Any, makers: Makers) -> tuple[Value, Constant] | None:
    """x and the constant of their product."""
    factors = makers.factors(value)
    for x, table in (factors, factors[::-1]) if factors else ():
        constant = makers.constant(table)
        if isinstance(x, Value) and constant is not None:
            return x, constant
    return None


def slice_of(value: Any, makers: Makers) -> tuple[Value, int, int] | None:
    """Of the last dimension: source, begin, end."""
    step = makers.of(value, aten.slice.Tensor)
    if step is None or step.arguments.get("dim", 0) not in (-1, step.outputs[0].rank() - 1):
        return None
    begin, end = step.arguments.get("start") or 0, step.arguments.get("end")
    if begin < 0 or step.arguments.get("step", 1) != 1:
        return None
    return step.arguments["self"], begin, begin + step.outputs[0].shape[-1] if end is None else end


def is_half(value: Any, x: Value, which: int, half: int, makers: Makers) -> bool:
    part = slice_of(value, makers)
    if part is not None:
        own = slice_of(x, makers)
        alike = part[0] == x or own is not None and own == slice_of(part[0], makers)
        return alike and part[1] == which * half and min(part[2], 2 * half) == (which + 1) * half
    step = makers.of(value, aten.chunk.default, aten.split.Tensor)
    return step is not None and step.arguments["self"] == x and len(step.outputs) == 2 and value.output == which


def element_of(value: Any, which: int, makers: Makers) -> Value | None:
    """x of x[..., which], where the last dimension has two elements."""
    step = makers.of(value, aten.select.int)
    if step is None or step.arguments["index"] != which or step.arguments["dim"] not in (-1, step.outputs[0].rank()):
        return None
    return step.arguments["self"]


