"""Looking back from a step to the steps that made what it reads."""

from typing import Any

import torch

from .graph import Constant, Step, TensorType, Value

aten = torch.ops.aten


class Makers:
    """Who makes a value, and what an operation reads, whichever side it stands on."""

    def __init__(self, steps: list[Step], types: dict[Value, TensorType]) -> None:
        self.steps, self.types = {step.name: step for step in steps}, types

    def seen(self, value: Any) -> Step | None:
        """The step that makes it, looking through copies into another order of memory."""
        step = self.steps.get(value.producer) if isinstance(value, Value) else None
        while step is not None and step.target == aten.contiguous.default:
            step = self.steps.get(step.inputs[0].producer)
        return step

    def of(self, value: Any, *targets: Any) -> Step | None:
        """The step that makes it, where that calls one of the targets."""
        step = self.seen(value)
        return step if step is not None and step.op == "aten" and (not targets or step.target in targets) else None

    def named(self, value: Any, op: str) -> Step | None:
        step = self.seen(value)
        return step if step is not None and step.op == op else None

    def constant(self, value: Any) -> Constant | None:
        """Also one that is spread over the samples, or has further dimensions of size 1."""
        while (step := self.of(value, aten.expand.default, aten.unsqueeze.default)) is not None:
            value = step.arguments["self"]
        return value if isinstance(value, Constant) else None

    def factors(self, value: Any, *targets: Any) -> tuple[Any, Any] | None:
        step = self.of(value, *(targets or (aten.mul.Tensor,)))
        return (step.arguments["self"], step.arguments["other"]) if step is not None else None


def both_ways(step: Step) -> list[tuple[Any, Any]]:
    one, other = step.arguments["self"], step.arguments["other"]
    return [(one, other), (other, one)]
