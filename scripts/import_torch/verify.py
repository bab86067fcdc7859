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
from .interpreter import Interpreter, Tensors, takes_labels
from .refused import Refused

COMPARISON = re.compile(r"aten::(eq|ne|lt|le|gt|ge)\.Scalar$")
DEFAULT = -100  # of ignore_index
OUTPUTS, GRADIENTS, APART = 1e-5, 1e-4, 1e-4  # largest relative differences
COUNTED = 0.05  # of a gradient: more than rounding, less than a sample that counts twice
TWICE = [0, 1, 0]  # of the samples: a batch in which one is found again
LOST = ("an export keeps the operations of forward() alone: not the backward of a torch.autograd.Function, no hooks of "
        "tensors or modules, no random branches. Write these with tensor operations (a gradient times -a is that of "
        "(1 + a) * x.detach() - a * x). Without such code, please report the module")


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest one, relative to the largest value."""
    if found.shape != wanted.shape:
        return float("inf")
    found, wanted = without_equal_infinities(found, wanted)
    largest = wanted.abs().max().item() if wanted.numel() else 0.0
    return ((found - wanted).abs().max() / max(largest, 1e-30)).item() if wanted.numel() else 0.0


def without_equal_infinities(found: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """0 where both are NaN or the same infinity, as masks are."""
    same = (found == wanted) & ~wanted.isfinite() | found.isnan() & wanted.isnan()
    return found.masked_fill(same, 0), wanted.masked_fill(same, 0)


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Numbers nearly, all else exactly."""
    return difference(found, wanted) <= APART if wanted.is_floating_point() else torch.equal(found, wanted)


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


def with_shares(samples: list[Interpreter]) -> list[Interpreter]:
    """Every mean over labels of a sample is to count as its labels do among those of all samples, as in pp-run."""
    sums = [None if None in column else sum(column) for column in zip(*(sample.counts for sample in samples))]
    for sample in samples:
        sample.shares = iter([len(samples) * own / all_ if all_ else 1.0 for own, all_ in zip(sample.counts, sums)])
    return samples


class Verification:
    def __init__(self, wrapper: Wrapper, examples: list[Example], document: dict[str, Any],
                 weights: Tensors) -> None:
        self.wrapper, self.examples = wrapper, examples
        self.document, self.weights = document, weights
        self.inputs = [example.draw(SAMPLES) for example in examples]

    def named(self, inputs: list[torch.Tensor]) -> Tensors:
        return {example.name: tensor for example, tensor in zip(self.examples, inputs)}

    def run(self) -> dict[str, float]:
        """Largest differences of outputs in evaluation and training and of gradients; throws where one is too large."""
        self.samples_apart()
        self.loss_is_mean()
        found = {"evaluation": self.evaluation(), "training": self.training()}
        found["gradients"] = self.gradients()
        self.gradients_apart()
        return found

    def samples_apart(self) -> None:
        """In evaluation a batch gives what its samples give one by one, layer by layer."""
        together = self.watched(self.inputs)
        apart = [self.watched([tensor[k:k + 1] for tensor in self.inputs]) for k in range(SAMPLES)]
        for name, outputs in together.items():
            for k, output in enumerate(outputs):
                alone = torch.cat([watched[name][k] for watched in apart])
                if output.shape != alone.shape or not close(alone, output):
                    raise Refused(f"layer {name} mixes the samples of a batch: a sample alone gives another result. "
                                  "Micro-batches of a pipeline must not depend on each other; batch norm is the only "
                                  "operation that may")

    def watched(self, inputs: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
        seen: dict[str, list[torch.Tensor]] = {}
        with torch.no_grad():
            Interpreter(self.document, self.weights, False, lambda layer, made: seen.update({layer["name"]: made})).run(
                self.named(inputs))
        return seen

    def outputs(self, weights: Tensors, inputs: list[torch.Tensor], training: bool) -> list[torch.Tensor]:
        """In the order of the module's; a loss of its own is the first."""
        return self.passed(Interpreter(self.document, weights, training, draw=training), inputs)

    def passed(self, interpreter: Interpreter, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        made = interpreter.run(self.named(inputs))
        return [interpreter.loss(), *made] if self.own_loss() else made

    def own_loss(self) -> bool:
        return self.wrapper.choice.loss

    def loss_is_mean(self) -> None:
        """Over its samples, or over the labels that it counts, as pp-run adds up the losses of micro-batches."""
        if not self.own_loss():
            return
        if not self.adds_up(self.inputs):
            raise Refused("--loss module: the loss of a batch is not the mean over its samples; divide by "
                          "the number of samples, and by nothing else that the batch decides")
        for value, inputs in self.planted():
            if not self.adds_up(inputs):
                raise Refused(f"--loss module: the loss of a batch with labels {value} is no sum of means over its other "
                              f"labels; let cross_entropy(..., ignore_index={value}) take the mean")

    def adds_up(self, inputs: list[torch.Tensor]) -> bool:
        with torch.no_grad():
            together = self.counted(inputs).loss()
            alone = [self.counted([tensor[k:k + 1] for tensor in inputs]) for k in range(SAMPLES)]
            mean = sum(sample.loss() for sample in with_shares(alone)) / SAMPLES
        return difference(torch.as_tensor(mean), together) <= 1e-4

    def counted(self, inputs: list[torch.Tensor], trained: Tensors | None = None) -> Interpreter:
        """Has run, and knows how many labels the loss of its own counts."""
        interpreter = Interpreter(self.document, self.weights | (trained or {}))
        interpreter.run(self.named(inputs))
        interpreter.counts = []
        if self.own_loss():
            interpreter.loss()
        return interpreter

    def planted(self) -> Iterator[tuple[int, list[torch.Tensor]]]:
        """A label that the loss may not count, and inputs whose first sample has it in the first half of a target."""
        for value in sorted(suspects(self.document["loss"])):
            for k, example in enumerate(self.examples):
                if not example.target or example.dtype != torch.int64:
                    continue
                inputs = [tensor.clone() for tensor in self.inputs]
                inputs[k][0].view(-1)[:(inputs[k][0].numel() + 1) // 2] = value
                try:
                    self.counted(inputs)
                except (IndexError, RuntimeError):  # no such label is taken
                    continue
                yield value, inputs

    def gradients_apart(self) -> None:
        """Of a batch in which a sample stands twice: the sum over its samples, weighed as pp-run does it. A backward may
        count over the batch where the forward does not."""
        batch = [tensor[TWICE] for tensor in self.inputs]
        trained = {name: tensor.detach().requires_grad_() for name, tensor in self.trained().items()}

        def evaluated(rows: slice) -> Interpreter:
            return self.counted([tensor[rows] for tensor in batch], trained)

        every, each = slice(None), [slice(k, k + 1) for k in range(len(TWICE))]
        whole = self.gradients_in_evaluation(trained, evaluated(every), every)
        rest = dict(whole)
        for rows, sample in zip(each, with_shares([evaluated(rows) for rows in each])):
            alone = self.gradients_in_evaluation(trained, sample, rows)
            rest = {name: grad - alone[name] for name, grad in rest.items()}
        sizes = {name: grad.abs().max().item() for name, grad in whole.items() if grad.numel()}
        largest = max(sizes.values(), default=0.0)
        for name, size in sizes.items():
            if not rest[name].abs().max().item() <= max(COUNTED * size, 1e-3 * largest, 1e-30):
                raise Refused(f"the gradient of {name} mixes the samples of a batch: it is not the sum over the samples, though "
                              "each has its own output; some backward counts over the batch")

    def gradients_in_evaluation(self, trained: Tensors, evaluated: Interpreter, rows: slice) -> Tensors:
        """Of the rows' part of the module's loss, or of a combination of the output."""
        if self.own_loss():
            first, factor = evaluated.loss(), len(TWICE[rows]) / len(TWICE)
        else:
            first = evaluated.outputs[0]
            factor = self.parts((len(TWICE), *first.shape[1:]))[rows]
        if not first.requires_grad:
            return {name: torch.zeros_like(tensor) for name, tensor in trained.items()}
        grads = torch.autograd.grad((first * factor).sum(), list(trained.values()), allow_unused=True)
        return {name: torch.zeros_like(tensor) if grad is None else grad
                for (name, tensor), grad in zip(trained.items(), grads)}

    def trained(self) -> Tensors:
        parameters = dict(getattr(self.wrapper, PREFIX).named_parameters(remove_duplicate=False))
        return {name: tensor for name, tensor in self.weights.items()
                if name in parameters and parameters[name].requires_grad}

    @staticmethod
    def parts(shape: Any) -> torch.Tensor:
        """Of a fixed combination of outputs."""
        return torch.randn(shape, generator=torch.Generator().manual_seed(1))

    def evaluation(self) -> float:
        self.wrapper.eval()
        with torch.no_grad():
            wanted = rehearsal.forward(self.wrapper, self.inputs)
            found = self.outputs(self.weights, self.inputs, False)
        self.wrapper.train()
        hint = "the module does something else in evaluation than in training"
        return self.compare("evaluation", found, wanted, hint)

    def training(self) -> float:
        wanted = rehearsal.training_pass(self.wrapper, self.inputs)
        interpreter = Interpreter(self.document, self.weights, training=True, draw=True)
        with torch.no_grad(), rehearsal.AllKept() as kept:
            found = self.passed(interpreter, self.inputs)
        worst = self.compare("training", found, wanted.outputs, LOST)
        self.compare_draws(kept.masks, wanted.masks)
        self.compare_buffers(interpreter.statistics, wanted.buffers)
        return worst

    def compare_draws(self, found: list[int], wanted: list[int]) -> None:
        """A norm behind a dropout hides its factor. Outputs that are left out may have draws of their own, and single
        numbers are rolled for branches."""
        drawn, own = (collections.Counter(size for size in masks if size > 1) for masks in (found, wanted))
        if drawn - own or own - drawn and not self.wrapper.choice.left_out:
            raise Refused(f"the imported model draws masks of {sorted(drawn.elements())} elements in a batch of {SAMPLES} samples, "
                          f"the module of {sorted(own.elements())}; please report the module")

    def compare_buffers(self, found: Tensors, wanted: Tensors) -> None:
        """After a step in training."""
        for name, tensor in (self.weights | found).items():
            own = wanted.get(f"{PREFIX}.{name}")
            if own is not None and not close(tensor.to(own.dtype), own):
                raise Refused(f"the buffer {name} is another after a step than in the module; {LOST}")

    def compare(self, mode: str, found: list[torch.Tensor], wanted: list[torch.Tensor], hint: str) -> float:
        differences = [difference(f, w) for f, w in zip(found, wanted)]
        worst = max(differences)
        if not all(each <= OUTPUTS for each in differences):
            raise Refused(f"the imported model's outputs in {mode} differ from the module's by {worst:.1e} (at most "
                          f"{OUTPUTS}); {hint}")
        return worst

    def gradients(self) -> float:
        """Of a fixed combination of the outputs, for every parameter of the document that is trained."""
        trained = {name: tensor.detach().clone().requires_grad_() for name, tensor in self.trained().items()}
        with rehearsal.AllKept():
            found = self.outputs(self.weights | trained, self.inputs, True)[0]
        parts = self.parts(found.shape)
        wanted = {name.removeprefix(PREFIX + "."): grad
                  for name, grad in rehearsal.gradients(self.wrapper, self.inputs, parts).items()}
        for name, grad in wanted.items():
            if not grad.isfinite().all():
                raise Refused(f"the module's own gradient of {name} is infinite or NaN on the examples; nothing can be trained")
        if found.requires_grad:
            (found * parts).sum().backward()
        scale = max((grad.abs().max().item() for grad in wanted.values() if grad.numel()), default=1.0)
        worst = 0.0
        for name, tensor in trained.items():
            if name not in wanted and tensor.grad is not None:
                raise Refused(f"the module gives {name} no gradient, the imported model does; {LOST}")
            if name not in wanted or not tensor.numel():
                continue
            grad = tensor.grad if tensor.grad is not None else torch.zeros_like(tensor)
            grad, good = without_equal_infinities(grad, wanted[name])
            error = (grad - good).abs().max().item() / max(good.abs().max().item(), 1e-3 * scale, 1e-30)
            if not error <= GRADIENTS:
                raise Refused(f"the gradient of {name} differs from the module's by {error:.1e} of its largest value "
                              f"(at most {GRADIENTS}); {LOST}")
            worst = max(worst, error)
        return worst
