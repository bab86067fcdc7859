"""The module's graph in training mode, by torch.export, with any number of samples."""

import contextlib
import dataclasses
import inspect
import io
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._decomp.decompositions as decompositions

from . import rehearsal
from .factory import SAMPLES, Example
from .refused import LIMITS, Refused, described, users_code

PREFIX = "wrapped"  # the module's name within Wrapper


@dataclasses.dataclass
class Choice:
    """Which of the tensors that the module returns are taken."""
    loss: bool = False  # the module's own loss, and the logits that stand with it
    loss_output: str | None = None  # which one that is, by name or index, as --loss module:NAME says
    output: str | None = None  # by name or index, as --output says
    left_out: list[str] = dataclasses.field(default_factory=list)  # names of the others, after a call


class Wrapper(torch.nn.Module):
    """Calls the module with its inputs and takes the chosen tensors out of what it returns."""

    def __init__(self, module: torch.nn.Module, examples: list[Example], choice: Choice) -> None:
        super().__init__()
        setattr(self, PREFIX, module)
        self.examples, self.choice = examples, choice

    def forward(self, *inputs: torch.Tensor) -> Any:
        first = sum(example.positional for example in self.examples)
        named = {example.name: tensor for example, tensor in zip(self.examples[first:], inputs[first:])}
        return pick_output(getattr(self, PREFIX)(*inputs[:first], **named), self.choice)


def pick_output(made: Any, choice: Choice) -> Any:
    """One tensor, or the loss and the logits."""
    if dataclasses.is_dataclass(made) and not isinstance(made, dict):
        made = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    members = dict(made) if isinstance(made, dict) else dict(enumerate(made if isinstance(made, (list, tuple)) else [made]))
    members = {str(name): value for name, value in members.items() if value is not None}
    tensors = {name: value for name, value in members.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise Refused(f"the module returns {type(made).__name__} without a tensor; return one from a module of your "
                      "own")
    picked = picked_names(tensors, choice)
    choice.left_out = [name for name in members if name not in picked]
    return [tensors[name] for name in picked] if len(picked) > 1 else tensors[picked[0]]


def picked_names(tensors: dict[str, torch.Tensor], choice: Choice) -> list[str]:
    """The chosen one, that of a telling name, or the only one."""
    listed = ", ".join(f"{name} {sizes(tensor)}" for name, tensor in tensors.items())

    def found(option: str, wanted: str) -> str:
        if wanted not in tensors and wanted.isdigit() and int(wanted) < len(tensors):
            return list(tensors)[int(wanted)]
        if wanted not in tensors:
            raise Refused(f"{option}{wanted}: the module returns no such tensor; choose one of {listed}")
        return wanted

    output = [] if choice.output is None else [found("--output ", choice.output)]
    logits = output or [name for name in ("logits",) if name in tensors]
    if choice.loss_output is not None:
        loss = found("--loss module:", choice.loss_output)
        return [loss, *(name for name in logits if name != loss)]
    if output:
        return output
    if choice.loss:
        return ["loss", *logits] if "loss" in tensors else [next(iter(tensors))]
    if len(tensors) > 1 and "logits" not in tensors:
        raise Refused(f"the module returns {len(tensors)} tensors: {listed}; say with --output NAME|INDEX which one is "
                      "the output")
    return ["logits"] if "logits" in tensors else list(tensors)


def sizes(tensor: torch.Tensor) -> str:
    return f"[{', '.join(['batch', *map(str, tensor.shape[1:])])}]" if tensor.dim() else "(a number)"


@dataclasses.dataclass
class Exported:
    """What trace.py reads. Names of parameters and buffers are the module's own."""

    program: Any
    wrapper: Wrapper
    inputs: dict[str, Example]  # by the placeholder's name
    parameters: dict[str, str]  # placeholder -> name
    buffers: dict[str, str]  # of the state_dict
    constants: dict[str, torch.Tensor]  # buffers beside the state_dict, lifted constants


def prepare(module: torch.nn.Module) -> torch.nn.Module:
    """In training mode, without caches of keys and values. Refuses transformers' mixtures of experts."""
    for name, part in module.named_modules():
        config = getattr(part, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False
        if hasattr(part, "experts") and hasattr(getattr(module, "config", None), "model_type"):
            raise Refused(f"{name}: {type(part).__name__} sends positions to experts by their values, which torch.export does "
                          "not follow; give the module's config.json (save_pretrained) to pp-profile in place of a model.json, "
                          "and its model.safetensors to pp-run --initial-weights")
    return module.train()


def wrap(module: torch.nn.Module, examples: list[Example], choice: Choice) -> Wrapper:
    return Wrapper(prepare(module), examples, choice)


def export(wrapper: Wrapper, examples: list[Example], runs: bool = False) -> Exported:
    """`runs`: a module that cannot be followed is run, for a mistake of its own is told better there."""
    def refusal(error: Exception, place: str) -> str:
        if runs:
            with rehearsal.kept_buffers(wrapper), rehearsal.AllKept():
                rehearsal.forward(wrapper, list(inputs))
        return f"{place}torch.export cannot follow {type(getattr(wrapper, PREFIX)).__name__}: {explain(error)}"

    inputs = tuple(example.draw(SAMPLES) for example in examples)
    batch = torch.export.Dim("batch", min=2)
    shapes = (tuple({0: batch} for _ in inputs),)
    with last_states(), users_code(refusal), contextlib.redirect_stderr(io.StringIO()):  # which gets the graph of a failure
        program = torch.export.export(wrapper, inputs, dynamic_shapes=shapes)
    return describe(program, wrapper, examples)


@contextlib.contextmanager
def last_states() -> Iterator[None]:
    """Torch 2.11 tells the last states of a layer of an LSTM as [1, batch, width]; they are [batch, width]."""
    def of(plain: Any) -> Any:
        def layer(*given: Any, **more: Any) -> Any:
            output, states = plain(*given, **more)
            return output, tuple(state.reshape(state.shape[-2:]) for state in states)
        return layer
    with contextlib.ExitStack() as patches:
        for name in ("one_layer_lstm", "mkldnn_one_layer_lstm"):
            patches.enter_context(mock.patch.object(decompositions, name, of(getattr(decompositions, name))))
        yield


def explain(error: Exception) -> str:
    text = str(error)
    advice = ""
    if isinstance(error, TypeError) and "argument" in text:
        advice = "the examples become the arguments of forward in their order: give an --example for each of them"
    elif "batch" in text and ("Constraint" in type(error).__name__ or "specialized" in text
                            or "not all values of" in text):
        advice = "some code fixes the number of samples: use x.shape[0] where it has a number, and no loop over samples"
    elif "data-dependent" in text or "Unbacked" in text or "GuardOnDataDependent" in type(error).__name__:
        advice = ("some code decides on the values of a tensor (if, .item(), boolean indices): write it with torch.where"
                  + LIMITS)
    return f"{described(error)}\n  {advice}".rstrip()


def describe(program: Any, wrapper: Wrapper, examples: list[Example]) -> Exported:
    exported = Exported(program, wrapper, {}, {}, {}, {})
    kinds = torch.export.graph_signature.InputKind
    user = iter(examples)
    for spec in program.graph_signature.input_specs:
        name, target = spec.arg.name, (spec.target or "").removeprefix(PREFIX + ".")
        if spec.kind == kinds.USER_INPUT:
            exported.inputs[name] = next(user)
        elif spec.kind == kinds.PARAMETER:
            exported.parameters[name] = target
        elif spec.kind == kinds.BUFFER and spec.persistent:
            exported.buffers[name] = target
        elif spec.kind in (kinds.BUFFER, kinds.CONSTANT_TENSOR):
            exported.constants[name] = tensor_of(program, wrapper, spec.target)
        else:
            raise Refused(f"{name}: torch.export made it a {spec.kind.name}, which has no place in a model")
    return exported


def tensor_of(program: Any, wrapper: Wrapper, target: str) -> torch.Tensor:
    if target in program.constants:
        return program.constants[target]
    return dict(wrapper.named_buffers())[target]
