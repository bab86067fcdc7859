"""What draws random numbers: the known patterns become steps that draw from the run's keyed generator; all else is
refused."""

import dataclasses
import math
from typing import Any

import torch

from .graph import Constant, Step, TensorType, Value, aten_step
from .named import LARGEST, plain_attention
from .refused import Refused

aten = torch.ops.aten


def replace_draws(steps: list[Step], types: dict[Value, TensorType]) -> list[Step]:
    """The steps with `dropout`, `dropout2d` and `stochastic_depth` for their patterns; attention with dropout and a
    mask, which no named operation is, written out."""
    return Draws(steps, types).run()


def refuse_draws(steps: list[Step]) -> None:
    """After dead steps, the noise of replaced patterns among them, are gone."""
    for step in steps:
        if step.op == "aten" and draws(step):
            raise Refused(f"{step.place()} draws random numbers; known are dropout, dropout2d, dropout within "
                          "attention, and stochastic depth of whole samples")


class Draws:
    def __init__(self, steps: list[Step], types: dict[Value, TensorType]) -> None:
        self.steps, self.types = steps, types
        self.makers = {step.name: step for step in steps}
        self.made: list[Step] = []
        self.used: dict[str, Step] = {}  # noise -> where it drops

    def run(self) -> list[Step]:
        return [made for step in self.steps for made in self.replaced(step)]

    def replaced(self, step: Step) -> list[Step]:
        if step.op != "aten":
            return [step]
        if step.target == aten.dropout.default:
            return self.anywhere(step, step.arguments["input"], step.arguments["p"])
        if step.target == aten.feature_dropout.default and self.types[step.arguments["input"]].rank() == 4:
            return [self.dropping(step, "dropout2d", step.arguments["input"], step.arguments["p"])]
        if step.target == aten.scaled_dot_product_attention.default and draws(step):
            plain = plain_attention(step.arguments, self.types)
            return [step] if plain else attention(step, self.types, self.makers)
        if step.target == aten.mul.Tensor:
            return [self.depth(step) or step]
        return [step]

    def anywhere(self, step: Step, source: Any, p: float) -> list[Step]:
        """Dropout of elements; with the batch brought to the front and back where it stands elsewhere."""
        kind = self.types.get(source) if isinstance(source, Value) else None
        if kind is None or not kind.batch_dim:
            return [self.dropping(step, "dropout", source, p)]
        front, chain = dataclasses.replace(kind, batch_dim=0), Chain(step, self.types)
        moved = chain.call("front", aten.movedim.int, front, self=source, source=kind.batch_dim, destination=0)
        chain.add(self.dropping(Step(f"{step.name}_drop", step.path, "dropout", [front]), "dropout", moved, p))
        back = {"self": Value(f"{step.name}_drop"), "source": 0, "destination": kind.batch_dim}
        chain.made.append(aten_step(step.name, step.path, aten.movedim.int, back, step.outputs))
        return chain.made

    def dropping(self, step: Step, op: str, source: Any, p: float) -> Step:
        if p > LARGEST:
            raise Refused(f"{step.place()}: probability {p}; the largest is {LARGEST}")
        if not isinstance(source, Value) or not self.types[source].rows or self.types[source].batch_dim:
            raise Refused(f"{step.place()}: drops elements of a tensor whose first dimension is not the batch")
        return Step(step.name, step.path, op, step.outputs, inputs=[source], attributes={"p": p})

    def depth(self, step: Step) -> Step | None:
        """x * noise with one value for each sample, that is 0 with probability p and else 1 / (1 - p)."""
        for source, noise in ((step.arguments["self"], step.arguments["other"]),
                              (step.arguments["other"], step.arguments["self"])):
            keep = self.survival(noise) if isinstance(noise, Value) else None
            kind = self.types[noise] if keep is not None else None
            if kind and isinstance(source, Value) and kind.rows == 1 and math.prod(kind.shape) == 1:
                first = self.used.setdefault(self.drawn(noise), step)
                if first is not step:
                    raise Refused(f"{step.place()} multiplies with the random mask of {first.place()}; a model draws a "
                                  "mask for each place. Multiply what both drop at once, such as torch.cat([x, y], 1) * "
                                  "mask")
                return self.dropping(step, "stochastic_depth", self.undivided(source, noise, keep), round(1 - keep, 12))
        return None

    def survival(self, noise: Value) -> float | None:
        """1 - p where the value is bernoulli(1 - p) / (1 - p), or bernoulli as floor(rand + 1 - p)."""
        step = self.makers.get(noise.producer)
        if step is None or step.op != "aten":
            return None
        if step.target in (aten.div.Tensor, aten.div.Scalar):
            drawn = self.makers.get(getattr(step.arguments["self"], "producer", ""))
            if drawn is not None and bernoulli(drawn) == number(step.arguments["other"]):
                return bernoulli(drawn)
            return None
        if step.target == aten.floor.default and isinstance(step.arguments["self"], Value):
            added = self.makers.get(step.arguments["self"].producer)
            return shifted_noise(added, self.makers) if added is not None else None
        return None

    def drawn(self, noise: Value) -> str:
        """The operation that drew the noise, on the first of the values that it was made of."""
        step = self.makers[noise.producer]
        while bernoulli(step) is None and step.target != aten.rand.default:
            step = self.makers[step.arguments["self"].producer]
        return step.name

    def undivided(self, source: Value, noise: Value, keep: float) -> Value:
        """Of x / keep * floor(rand + keep): x."""
        step = self.makers.get(source.producer)
        if self.makers[noise.producer].target == aten.floor.default and step is not None and step.op == "aten":
            if step.target in (aten.div.Tensor, aten.div.Scalar) and number(step.arguments["other"]) == keep:
                return step.arguments["self"]
            raise Refused(f"{self.makers[noise.producer].place()}: noise that is not divided by its survival "
                          f"probability {keep}")
        return source


def draws(step: Step) -> bool:
    """Attention and recurrent layers without dropout bear the tag too."""
    rate = {"scaled_dot_product_attention": "dropout_p", "lstm": "dropout", "gru": "dropout", "rnn_tanh": "dropout",
            "rnn_relu": "dropout"}.get(step.target._schema.name.split("::")[1])
    if rate is not None:
        return step.arguments.get(rate, 0.0) > 0
    return torch.Tag.nondeterministic_seeded in step.target.tags


def number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def bernoulli(step: Step) -> float | None:
    if step.op == "aten" and step.target in (aten.bernoulli_.float, aten.bernoulli.p):
        return float(step.arguments.get("p", 0.5))
    return None


def shifted_noise(step: Step, makers: dict[str, Step]) -> float | None:
    """keep of keep + rand(...)."""
    if step.op != "aten" or step.target not in (aten.add.Tensor, aten.add.Scalar):
        return None
    drawn = makers.get(getattr(step.arguments["self"], "producer", ""))
    return number(step.arguments["other"]) if drawn is not None and drawn.target == aten.rand.default else None


# Attention with dropout on its weights, as PyTorch's own kernel without one computes it.


@dataclasses.dataclass
class Chain:
    """Steps one after the other, in the place of one."""

    step: Step
    types: dict[Value, TensorType]
    made: list[Step] = dataclasses.field(default_factory=list)

    def call(self, suffix: str, target: Any, kind: TensorType, /, **arguments: Any) -> Value:
        return self.add(aten_step(f"{self.step.name}_{suffix}", self.step.path, target, arguments, [kind]))

    def add(self, step: Step) -> Value:
        self.made.append(step)
        self.types[Value(step.name)] = step.outputs[0]
        return Value(step.name)


def attention(step: Step, types: dict[Value, TensorType], makers: dict[str, Step]) -> list[Step]:
    """softmax(q k^T scale + mask), dropout, v."""
    given, chain = step.arguments, Chain(step, types)
    query, key, value = given["query"], given["key"], given["value"]
    q, k = types[query], types[key]
    scale = given.get("scale") or 1.0 / math.sqrt(q.shape[-1])
    if given.get("enable_gqa"):
        groups = q.shape[-3] // k.shape[-3]
        key, value = (repeated(chain, name, tensor, groups) for name, tensor in (("keys", key), ("values", value)))
        k = types[key]
    turned = dataclasses.replace(k, shape=(*k.shape[:-2], k.shape[-1], k.shape[-2]))
    scored = dataclasses.replace(q, shape=(*q.shape[:-1], k.shape[-2]))
    keys = chain.call("k", aten.transpose.int, turned, self=key, dim0=-2, dim1=-1)
    queries = chain.call("q", aten.mul.Scalar, q, self=query, other=scale)
    scores = chain.call("scores", aten.matmul.default, scored, self=queries, other=keys)
    scores, seen = masked(chain, scores, scored, given, known_mask(given.get("attn_mask"), makers))
    shares = chain.call("shares", aten.softmax.int, scored, self=scores, dim=-1)
    if seen is not None:
        shares = chain.call("seen", aten.mul.Tensor, scored, self=shares, other=seen)
    p = given["dropout_p"]
    if p > LARGEST:
        raise Refused(f"{step.place()}: dropout_p {p}; the largest is {LARGEST}")
    dropped = chain.add(Step(f"{step.name}_dropout", step.path, "dropout", [scored], inputs=[shares],
                             attributes={"p": p}))
    chain.made.append(aten_step(step.name, step.path, aten.matmul.default, {"self": dropped, "other": value},
                                step.outputs))
    return chain.made


def repeated(chain: Chain, name: str, tensor: Value, groups: int) -> Value:
    kind = chain.types[tensor]
    shape = (*kind.shape[:-3], kind.shape[-3] * groups, *kind.shape[-2:])
    return chain.call(name, aten.repeat_interleave.self_int, dataclasses.replace(kind, shape=shape),
                      self=tensor, repeats=groups, dim=-3)


def known_mask(mask: Any, makers: dict[str, Step]) -> torch.Tensor | None:
    """The values of a mask that does not depend on the data; for all samples the same."""
    step = makers.get(mask.producer) if isinstance(mask, Value) else None
    if step is not None and step.op == "aten" and step.target == aten.expand.default:
        mask = step.arguments["self"]
    return mask.tensor if isinstance(mask, Constant) else None


def masked(chain: Chain, scores: Value, kind: TensorType, given: dict[str, Any],
           known: torch.Tensor | None) -> tuple[Value, Any]:
    """The scores with what must not be seen at -inf; and, where a row may see nothing, 0 for such rows, as torch
    does."""
    mask = given.get("attn_mask")
    if given.get("is_causal"):
        known = torch.ones((kind.shape[-2], kind.shape[-1]), dtype=torch.bool).tril()
    elif mask is None:
        return scores, None
    if known is not None:
        if known.dtype != torch.bool:
            return chain.call("masked", aten.add.Tensor, kind, self=scores, other=Constant(known)), None
        if bool(known.any(-1).all()):
            hidden = Constant(~known)
            return chain.call("masked", aten.masked_fill.Scalar, kind, self=scores, mask=hidden, value=-math.inf), None
    mask_type = chain.types[mask]
    if mask_type.dtype != "bool":
        return chain.call("masked", aten.add.Tensor, kind, self=scores, other=mask), None
    hidden = chain.call("hidden", aten.logical_not.default, mask_type, self=mask)
    rows = dataclasses.replace(mask_type, shape=(*mask_type.shape[:-1], 1))
    seen = chain.call("any", aten.any.dim, rows, self=mask, dim=-1, keepdim=True)
    lowest = torch.finfo(torch.float32).min
    return chain.call("masked", aten.masked_fill.Scalar, kind, self=scores, mask=hidden, value=lowest), seen
