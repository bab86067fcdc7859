"""What was written against the module: outputs in evaluation and training, draws, buffers, gradients, and samples one
by one."""

import collections
import re
from collections.abc import Iterator
from typing import Any

import torch

from . import rehearsal
from .export import PREFIX, Wrapper
from .factory import SAMPLES, Example
from .refused import Refused
from .runtime import Failed, Runtime, Tensors, Values

COMPARISON = re.compile(r"aten::(eq|ne|lt|le|gt|ge)\.Scalar$")
DEFAULT = -100  # of ignore_index
# Largest relative differences. In training batch norms of few values multiply what is rounded.
LIMITS, APART = {"evaluation": 1e-5, "training": 1e-4, "gradients": 1e-3}, 1e-4
SMALL = 0.1  # of the largest gradient: smaller ones may be rounding alone, as of a bias in front of a batch norm
COUNTED = 0.05  # of a gradient: more than rounding, less than a sample that counts twice
TWICE = [0, 1, 2, 0]  # of the samples: a batch in which one is found again
LOST = ("an export keeps the operations of forward() alone: not the backward of a torch.autograd.Function, no hooks of "
        "tensors or modules, no random branches. Write these with tensor operations (a gradient times -a is that of "
        "(1 + a) * x.detach() - a * x). Without such code, please report the module")


def difference(found: torch.Tensor, wanted: torch.Tensor, least: float = 1e-30) -> float:
    """The largest one, relative to the largest value, or to `least` where that is more."""
    if found.shape != wanted.shape:
        return float("inf")
    found, wanted = without_equal_infinities(found, wanted)
    largest = wanted.abs().max().item() if wanted.numel() else 0.0
    return ((found - wanted).abs().max() / max(largest, least)).item() if wanted.numel() else 0.0


def without_equal_infinities(found: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """0 where both are NaN or the same infinity, as masks are."""
    same = (found == wanted) & ~wanted.isfinite() | found.isnan() & wanted.isnan()
    return found.masked_fill(same, 0), wanted.masked_fill(same, 0)


def close(found: torch.Tensor, wanted: torch.Tensor, least: float = 1e-30) -> bool:
    """Numbers nearly, all else exactly."""
    return difference(found, wanted, least) <= APART if wanted.is_floating_point() else torch.equal(found, wanted)


def suspects(loss: dict[str, Any]) -> set[int]:
    """Labels that a loss may treat apart."""
    found = {loss.get("attributes", {}).get("ignore_index", DEFAULT)} if loss["op"] == "cross_entropy" else set()
    for node in loss.get("nodes", []):
        call = node.get("call", {"target": "", "arguments": {}})
        other = call["arguments"].get("other")
        if takes_labels(call):
            found.add(call["arguments"].get("ignore_index", DEFAULT))
        elif COMPARISON.match(call["target"]) and isinstance(other, int):
            found |= {other - 1, other, other + 1}
    return found


def takes_labels(call: dict[str, Any]) -> bool:
    return call["target"].startswith(("aten::cross_entropy_loss", "aten::nll_loss"))


def adds_up(whole: Values, apart: Values) -> bool:
    return difference(apart.loss, whole.loss) <= APART


class Verification:
    def __init__(self, wrapper: Wrapper, examples: list[Example], document: dict[str, Any],
                 weights: Tensors) -> None:
        self.wrapper, self.examples = wrapper, examples
        self.document, self.weights = document, weights
        self.inputs = [example.draw(SAMPLES) for example in examples]
        self.runtime = Runtime(document, weights, self.own_loss())

    def run(self) -> dict[str, float]:
        """Largest differences of outputs in evaluation and training and of gradients; throws where one is too large."""
        try:
            return self.compared()
        except Failed as failed:
            raise Refused(f"the tools cannot run the model: {failed}") from failed

    def compared(self) -> dict[str, float]:
        batch = [tensor[TWICE] for tensor in self.inputs]
        wanted = self.evaluated(batch)
        self.shape = wanted[0].shape[1:]
        parts = torch.ones(()) if self.own_loss() else self.parts(SAMPLES)
        gradients = rehearsal.gradients(self.wrapper, self.inputs, parts)
        whole, apart = (self.values(batch, gradients=True, layers=True, micro_batch_size=size) for size in (0, 1))
        self.samples_apart(whole, apart)
        self.loss_is_mean(whole, apart)
        hint = "the module does something else in evaluation than in training"
        found = {"evaluation": self.compare("evaluation", self.outputs(whole), wanted, hint)}
        trained = self.values(self.inputs, gradients=True, training=True)
        found |= {"training": self.training(trained), "gradients": self.gradients(trained.gradients, gradients)}
        self.gradients_apart(whole, apart)
        return found

    def values(self, inputs: list[torch.Tensor], **how: Any) -> Values:
        """Gradients are those of the module's loss, or of a fixed combination of the output."""
        data = {example.name: tensor for example, tensor in zip(self.examples, inputs)}
        if how.get("gradients") and not self.own_loss():
            data["output:gradient"] = self.parts(len(inputs[0]))
        return self.runtime.run(data, **how)

    def parts(self, samples: int) -> torch.Tensor:
        """Of the combination."""
        return torch.randn((samples, *self.shape), generator=torch.Generator().manual_seed(1))

    def own_loss(self) -> bool:
        return self.wrapper.choice.loss

    def outputs(self, values: Values) -> list[torch.Tensor]:
        """In the order of the module's; a loss of its own is the first."""
        return [values.loss, *values.outputs] if self.own_loss() else values.outputs

    @staticmethod
    def samples_apart(whole: Values, apart: Values) -> None:
        """In evaluation a batch gives what its samples give one by one, layer by layer."""
        for name, made in whole.layers.items():
            if made.shape != apart.layers[name].shape or not close(apart.layers[name], made):
                raise Refused(f"layer {name.rpartition(':')[0]} mixes the samples of a batch: a sample alone gives another "
                              "result. Micro-batches of a pipeline must not depend on each other; batch norm is the only "
                              "operation that may")

    def loss_is_mean(self, whole: Values, apart: Values) -> None:
        """Over its samples, or over the labels that it counts, as pp-run adds up the losses of micro-batches."""
        if not self.own_loss():
            return
        if not adds_up(whole, apart):
            raise Refused("--loss module: the loss of a batch is not the mean over its samples; divide by "
                          "the number of samples, and by nothing else that the batch decides")
        for value, inputs in self.planted():
            try:
                fits = adds_up(*(self.values(inputs, micro_batch_size=size) for size in (0, 1)))
            except Failed:  # no such label is taken
                continue
            if not fits:
                raise Refused(f"--loss module: the loss of a batch with labels {value} is no sum of means over its other "
                              f"labels; let cross_entropy(..., ignore_index={value}) take the mean")

    def planted(self) -> Iterator[tuple[int, list[torch.Tensor]]]:
        """A label that the loss may not count, and inputs whose first sample has it in the first half of a target."""
        for value in sorted(suspects(self.document["loss"])):
            for k, example in enumerate(self.examples):
                if example.target and example.dtype == torch.int64:
                    inputs = [tensor.clone() for tensor in self.inputs]
                    inputs[k][0].view(-1)[:(inputs[k][0].numel() + 1) // 2] = value
                    yield value, inputs

    @staticmethod
    def gradients_apart(whole: Values, apart: Values) -> None:
        """Of a batch in which a sample stands twice: the sum over its samples, weighed as pp-run does it. A backward may
        count over the batch where the forward does not."""
        sizes = {name: grad.abs().max().item() for name, grad in whole.gradients.items() if grad.numel()}
        largest = max(sizes.values(), default=0.0)
        for name, size in sizes.items():
            rest = whole.gradients[name] - apart.gradients.get(name, 0)
            if not rest.abs().max().item() <= max(COUNTED * size, 1e-3 * largest, 1e-30):
                raise Refused(f"the gradient of {name} mixes the samples of a batch: it is not the sum over the samples, though "
                              "each has its own output; some backward counts over the batch")

    def evaluated(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        self.wrapper.eval()
        with torch.no_grad():
            made = rehearsal.forward(self.wrapper, inputs)
        self.wrapper.train()
        return made

    def training(self, values: Values) -> float:
        wanted = rehearsal.training_pass(self.wrapper, self.inputs)
        worst = self.compare("training", self.outputs(values), wanted.outputs, LOST)
        self.compare_draws(values.masks, wanted.masks)
        self.compare_buffers(values.buffers, wanted.buffers)
        return worst

    def compare_draws(self, found: list[int], wanted: list[int]) -> None:
        """A norm behind a dropout hides its factor. Outputs that are left out may have draws of their own, and single
        numbers are rolled for branches."""
        drawn, own = (collections.Counter(size for size in masks if size > 1) for masks in (found, wanted))
        if drawn - own or own - drawn and not self.wrapper.choice.left_out:
            raise Refused(f"the imported model draws masks of {sorted(drawn.elements())} elements in a batch of {SAMPLES} samples, "
                          f"the module of {sorted(own.elements())}; please report the module")

    def compare_buffers(self, found: Tensors, wanted: Tensors) -> None:
        """After a step in training. A running mean by the deviation beside it: where it is 0 it is rounding alone."""
        for name, tensor in found.items():
            own = wanted.get(f"{PREFIX}.{name}")
            variance = wanted.get(f"{PREFIX}.{name.removesuffix('mean')}var", torch.zeros(1))
            if own is not None and not close(tensor.to(own.dtype), own, max(1e-30, variance.max().sqrt().item())):
                raise Refused(f"the buffer {name} is another after a step than in the module; {LOST}")

    def compare(self, mode: str, found: list[torch.Tensor], wanted: list[torch.Tensor], hint: str) -> float:
        differences = [difference(f, w) for f, w in zip(found, wanted)]
        worst = max(differences)
        if not all(each <= LIMITS[mode] for each in differences):
            raise Refused(f"the imported model's outputs in {mode} differ from the module's by {worst:.1e} (at most "
                          f"{LIMITS[mode]}); {hint}")
        return worst

    def gradients(self, found: Tensors, wanted: Tensors) -> float:
        """For every parameter of the document that is trained."""
        wanted = {name.removeprefix(PREFIX + "."): grad for name, grad in wanted.items()}
        for name, grad in wanted.items():
            if not grad.isfinite().all():
                raise Refused(f"the module's own gradient of {name} is infinite or NaN on the examples; nothing can be trained")
        scale = max((grad.abs().max().item() for grad in wanted.values() if grad.numel()), default=1.0)
        worst = 0.0
        for name, tensor in self.trained().items():
            grad = found.get(name, torch.zeros_like(tensor))
            if name not in wanted and grad.any():
                raise Refused(f"the module gives {name} no gradient, the imported model does; {LOST}")
            if name not in wanted or not tensor.numel():
                continue
            grad, good = without_equal_infinities(grad, wanted[name])
            error = (grad - good).abs().max().item() / max(good.abs().max().item(), SMALL * scale, 1e-30)
            if not error <= LIMITS["gradients"]:
                raise Refused(f"the gradient of {name} differs from the module's by {error:.1e} of its largest value "
                              f"(at most {LIMITS['gradients']}); {LOST}")
            worst = max(worst, error)
        return worst

    def trained(self) -> Tensors:
        parameters = dict(getattr(self.wrapper, PREFIX).named_parameters(remove_duplicate=False))
        return {name: tensor for name, tensor in self.weights.items()
                if name in parameters and parameters[name].requires_grad}
