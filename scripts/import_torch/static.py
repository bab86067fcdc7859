"""What depends on neither data nor parameters: it is computed once for two samples and once for three, and what is
alike for all samples becomes a constant (positions, masks, relative indices)."""

from typing import Any

import torch

from .formulas import frequencies_of
from .graph import DTYPES, Batch, Buffer, Constant, Parameter, Step, TensorType, Value, aten_step, replaced, tensors
from .refused import Refused
from .weights import raw

aten = torch.ops.aten
LARGE = 2**20  # elements


class Static:
    """Tensors by the number of samples: {2: ..., 3: ...}; `source` says how to compute it when it is not alike, `waves`
    with which frequencies cosines and sines in its past were made."""

    def __init__(self, at: dict[int, torch.Tensor], source: tuple[Any, dict[str, Any]] | None = None,
                 output: int = 0, waves: list[torch.Tensor] | None = None) -> None:
        self.at, self.source, self.output, self.waves = at, source, output, waves or []

    def snapshot(self) -> "Static":
        """As it is now; operations in place may change it later."""
        copies = {samples: tensor.clone() for samples, tensor in self.at.items()}
        return Static(copies, self.source, self.output, self.waves)

    def key(self) -> Any:
        """Equal for what lies in the same place in the same way, so that it need not be compared by values."""
        return tuple((t.data_ptr(), t.dtype, tuple(t.shape), t.stride()) for t in self.at.values())

    def batch_dim(self) -> int | None:
        two, three = self.at[2].shape, self.at[3].shape
        grown = [d for d, (a, b) in enumerate(zip(two, three)) if a != b]
        if len(grown) > 1:
            raise Refused(f"a constant is {list(two)} for two samples and {list(three)} for three; a pipeline's "
                          "micro-batches must not depend on each other")
        return grown[0] if grown else None

    def alike(self) -> torch.Tensor | None:
        """The one tensor, with size 1 in the place of the batch; None when samples differ."""
        where = self.batch_dim()
        if where is None:
            return self.at[3] if self.at[2] is self.at[3] or torch.equal(self.at[2], self.at[3]) else None
        first = self.at[3].narrow(where, 0, 1)
        repeated = all(tensor.stride(where) == 0 and tensor.data_ptr() == first.data_ptr() for tensor in self.at.values())
        same = repeated or all(torch.equal(tensor, first.expand(tensor.shape)) for tensor in self.at.values())
        return first.contiguous() if same else None


def is_static(arguments: dict[str, Any]) -> bool:
    return not tensors(arguments, (Value, Parameter, Buffer))


def evaluate(target: Any, arguments: dict[str, Any], shared: bool = False) -> Any:
    """The operation's result for both numbers of samples; a list when it has several. `shared`: nothing is changed in
    place, so that what is alike may lie in one place."""
    alike = shared and not any(isinstance(leaf, Batch) or isinstance(leaf, Static) and leaf.at[2] is not leaf.at[3]
                               for leaf in tensors(arguments, (Batch, Static)))
    made = {3: target(**replaced(arguments, lambda leaf: leaf_at(leaf, 3)))}
    made[2] = made[3] if alike else target(**replaced(arguments, lambda leaf: leaf_at(leaf, 2)))
    source = (target, arguments)
    waves = waves_behind(target, arguments)
    if isinstance(made[2], (list, tuple)):
        return [Static({2: two, 3: three}, source, k, waves) for k, (two, three) in enumerate(zip(made[2], made[3]))]
    found = Static({2: made[2], 3: made[3]}, source, 0, waves)
    return compact(found) if shared and made[3].numel() >= LARGE else found


def compact(static: Static) -> Static:
    """One sample for all where they are alike, without what it was made from."""
    one, where = static.alike(), static.batch_dim()
    if one is None:
        return static
    if where is None:
        return Static({2: one, 3: one}, None, 0, static.waves)
    return Static({samples: one.expand(tensor.shape) for samples, tensor in static.at.items()}, None, 0, static.waves)


def waves_behind(target: Any, arguments: dict[str, Any]) -> list[torch.Tensor]:
    if target in (aten.cos.default, aten.sin.default):
        angles = arguments["self"].alike() if isinstance(arguments["self"], Static) else None
        own = frequencies_of(angles) if angles is not None else None
        return [] if own is None else [own]
    found: dict[int, torch.Tensor] = {}
    for static in tensors(arguments, Static):
        found |= {id(each): each for each in static.waves}
    return list(found.values())


def leaf_at(leaf: Any, samples: int) -> Any:
    if isinstance(leaf, Static):
        return leaf.at[samples]
    return leaf.at(samples) if isinstance(leaf, Batch) else leaf


def frozen(arguments: dict[str, Any]) -> dict[str, Any]:
    return replaced(arguments, lambda leaf: leaf.snapshot() if isinstance(leaf, Static) else leaf)


class Materials:
    """Statics that other steps read, as constants, spread over the samples where they have a batch dimension."""

    def __init__(self, types: dict[Value, TensorType]) -> None:
        self.types = types
        self.made: list[Step] = []
        self.known: dict[Any, Value] = {}
        self.places: dict[Any, tuple[Static, Any]] = {}  # what lies in a place, and what became of it

    def steps(self, steps: list[Step]) -> list[Step]:
        for step in steps:
            arguments = self.values(step.arguments, step)
            self.made.append(aten_step(step.name, step.path, step.target, arguments, step.outputs))
        return self.made

    def values(self, arguments: dict[str, Any], reader: Step) -> dict[str, Any]:
        return replaced(arguments, lambda leaf: self.value(leaf, reader) if isinstance(leaf, Static) else leaf)

    def value(self, static: Static, reader: Step) -> Any:
        place = static.key()
        if place not in self.places:  # the tensor stays alive, so the place stays its own
            self.places[place] = (static, self.constant(static, reader))
        return self.places[place][1]

    def constant(self, static: Static, reader: Step) -> Any:
        tensor, where = static.alike(), static.batch_dim()
        if tensor is None:
            return self.computed(static, reader)
        if where is None:
            return Constant(tensor, static.waves)
        key = (where, tensor.dtype, tensor.shape, raw(tensor))
        if key not in self.known:
            kind = self.type_of(static, where)
            spread = {"self": Constant(tensor, static.waves), "size": kind.full()}
            self.known[key] = self.add(reader, aten.expand.default, spread, kind)
        return self.known[key]

    def computed(self, static: Static, reader: Step) -> Value:
        """Differs from sample to sample, such as arange(b): computed by the run."""
        if static.source is None:
            raise Refused(f"{reader.place()}: reads a constant that depends on the number of samples")
        target, arguments = static.source
        return self.add(reader, target, self.values(arguments, reader), self.type_of(static, static.batch_dim()))

    def type_of(self, static: Static, where: int | None) -> TensorType:
        dtype, shape = DTYPES[static.at[3].dtype], list(static.at[3].shape)
        if where is None:
            return TensorType(dtype, tuple(shape), 0)
        rows = static.at[3].shape[where] - static.at[2].shape[where]
        return TensorType(dtype, tuple(size for d, size in enumerate(shape) if d != where), rows, where)

    def add(self, reader: Step, target: Any, arguments: dict[str, Any], kind: TensorType) -> Value:
        step = aten_step(f"{reader.name}_c{len(self.made)}", reader.path, target, arguments, [kind])
        self.made.append(step)
        self.types[Value(step.name)] = kind
        return Value(step.name)
