"""Constants that a formula gives: masks by distance, positions, tables of sines. The document has the formula, not the
values (libprofile/core/README.md, "Constants by formula")."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch

Formula = dict[str, Any]
AT_ONCE = 2**22  # elements that are compared at a time
ERROR = 2e-6  # of a wave, relative to its factor: both round to float32


def recognise(tensor: torch.Tensor, waves: list[torch.Tensor] = ()) -> Formula | None:
    """`waves`: lists of frequencies that cosines and sines in the tensor's past were made with."""
    if not tensor.numel():
        return None
    return linear(tensor) or band(tensor) or wave_table(tensor, waves)


def evaluate(formula: Formula, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    kind = formula["kind"]
    if kind == "waves":
        return waves_of(formula, shape).to(dtype)
    distance = torch.full(shape, float(formula["offset"]), dtype=torch.float64)
    for dim, step in enumerate(formula["steps"]):
        if step:
            distance += float(step) * along(torch.arange(shape[dim], dtype=torch.float64), dim, len(shape))
    if kind == "linear":
        return distance.to(dtype)
    inside = (distance >= formula.get("low", -math.inf)) & (distance <= formula.get("high", math.inf))
    return torch.where(inside, value_of(formula["inside"]), value_of(formula["outside"])).to(dtype)


def value_of(number: Any) -> torch.Tensor:
    return torch.tensor(float(number["number"] if isinstance(number, dict) else number), dtype=torch.float64)


def along(values: torch.Tensor, dim: int, rank: int) -> torch.Tensor:
    return values.reshape([-1 if d == dim else 1 for d in range(rank)])


def plain(value: float) -> Any:
    """As JSON has it."""
    if math.isfinite(value):
        return int(value) if value == int(value) and abs(value) < 2**53 else value
    return {"number": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def linear(tensor: torch.Tensor) -> Formula | None:
    first = tensor[(0,) * tensor.dim()].item()
    if not math.isfinite(first):
        return constant(tensor, first)
    steps = []
    for dim, size in enumerate(tensor.shape):
        index = tuple(1 if d == dim else 0 for d in range(tensor.dim()))
        steps.append(float(tensor[index].item() - first) if size > 1 else 0.0)
    if not all(map(math.isfinite, steps)) or tensor.dtype == torch.bool and any(steps):
        return None
    found = {"kind": "linear", "offset": plain(float(first)), "steps": [plain(step) for step in steps]}
    return found if same(tensor, found) else None


def constant(tensor: torch.Tensor, value: float) -> Formula | None:
    """One infinity everywhere: a band that holds all."""
    found = {"kind": "band", "offset": 0, "steps": [0] * tensor.dim(), "inside": plain(value), "outside": plain(value)}
    return found if same(tensor, found) else None


def band(tensor: torch.Tensor) -> Formula | None:
    """Two values by the distance of two indices, one of them on an interval."""
    for rows, columns in itertools.combinations([d for d, size in enumerate(tensor.shape) if size > 1], 2):
        corner = tensor[tuple(slice(None) if d in (rows, columns) else 0 for d in range(tensor.dim()))]
        values = torch.cat([corner[1:, 0].flip(0), corner[0]]).double()  # of distance 1 - rows to columns - 1
        zero = corner.shape[0] - 1
        for inside in (values[zero].item(), *(v for v in (values[0].item(), values[-1].item()) if v != values[zero])):
            places = (values == inside).nonzero().flatten().tolist()
            others = [v for v in values.unique().tolist() if v != inside]
            if len(others) != 1 or places != list(range(places[0], places[-1] + 1)):
                continue
            found: Formula = {"kind": "band", "offset": 0,
                              "steps": [{rows: -1, columns: 1}.get(d, 0) for d in range(tensor.dim())]}
            if places[0] > 0:
                found["low"] = places[0] - zero
            if places[-1] < len(values) - 1:
                found["high"] = places[-1] - zero
            found |= {"inside": plain(inside), "outside": plain(others[0])}
            if same(tensor, found):
                return found
    return None


def same(tensor: torch.Tensor, formula: Formula) -> bool:
    """Bit by bit, a stretch of the longest dimension at a time."""
    dim = max(range(tensor.dim()), key=lambda d: tensor.shape[d])
    at_once = max(1, AT_ONCE * tensor.shape[dim] // tensor.numel())
    for begin in range(0, tensor.shape[dim], at_once):
        part = tensor.narrow(dim, begin, min(at_once, tensor.shape[dim] - begin))
        shifted = dict(formula, offset=formula["offset"] + begin * formula["steps"][dim])
        if not torch.equal(evaluate(shifted, list(part.shape), part.dtype), part):
            return False
    return True


# Waves.

def waves_of(formula: Formula, shape: list[int]) -> torch.Tensor:
    dim = formula["position_dim"]
    positions = torch.arange(shape[dim], dtype=torch.float32)
    angles = torch.outer(positions, torch.tensor(formula["frequencies"], dtype=torch.float32)).double()
    first, second = {"cos": (torch.cos, torch.cos), "sin": (torch.sin, torch.sin), "cos_sin": (torch.cos, torch.sin),
                     "sin_cos": (torch.sin, torch.cos)}[formula["function"]]
    parts = {"single": lambda: first(angles),
             "halves": lambda: torch.cat([first(angles), second(angles)], -1),
             "pairs": lambda: torch.stack([first(angles), second(angles)], -1).flatten(-2)}[formula["columns"]]()
    table = parts.reshape([shape[dim], *shape[dim + 1:]]) * formula["factor"]
    return table.expand(shape)


def frequencies_of(angles: torch.Tensor) -> torch.Tensor | None:
    """What positions 0, 1, 2, ... were multiplied with to get these angles."""
    wide = [d for d, size in enumerate(angles.shape) if size > 1]
    if len(wide) != 2 or not angles.is_floating_point():
        return None
    return angles.permute(*wide, *(d for d in range(angles.dim()) if d not in wide)).reshape(
        angles.shape[wide[0]], -1)[1].float()


def frequencies_in(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Of a buffer that has cosines and sines side by side, as torchtune's cache."""
    found = wave_table(tensor, []) if tensor.dim() > 1 and tensor.numel() else None
    return [torch.tensor(found["frequencies"])] if found is not None else []


def wave_table(tensor: torch.Tensor, waves: list[torch.Tensor]) -> Formula | None:
    if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
        return None
    for dim in (d for d, size in enumerate(tensor.shape[:-1]) if size > 1):
        table = tensor[(0,) * dim].reshape(tensor.shape[dim], -1).float()
        for columns, function, frequencies in candidates(table, waves):
            found = {"kind": "waves", "position_dim": dim, "function": function, "columns": columns,
                     "frequencies": frequencies.tolist(), "factor": 1.0}
            pattern = waves_of(found | {"position_dim": 0}, list(table.shape))
            largest = pattern.abs().argmax()
            factor = found["factor"] = float(table.flatten()[largest]) / float(pattern.flatten()[largest])
            if abs(factor - 1) < ERROR / 4:
                found["factor"] = 1.0
            made = waves_of(found, list(tensor.shape))
            if factor and float((made - tensor).abs().max()) <= ERROR * abs(factor):
                return found
    return None


def candidates(table: torch.Tensor, waves: list[torch.Tensor]) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Layouts of [positions, columns] with frequencies that fit."""
    width = table.shape[1]
    for known in waves:
        for each in unrepeated(known):
            if 2 * len(each) == width:
                yield from ((columns, function, each) for columns in ("halves", "pairs")
                            for function in ("cos", "sin", "cos_sin", "sin_cos"))
            if len(each) == width:
                yield from (("single", function, each) for function in ("cos", "sin"))
    if width % 2 == 0 and not waves:
        for columns, (one, other) in {"pairs": (table[:, 0::2], table[:, 1::2]),
                                      "halves": (table[:, :width // 2], table[:, width // 2:])}.items():
            yield columns, "cos_sin", from_waves(one, other)
            yield columns, "sin_cos", from_waves(other, one)


def unrepeated(frequencies: torch.Tensor) -> list[torch.Tensor]:
    """The list, and half of it where it says everything twice."""
    half = len(frequencies) // 2
    if len(frequencies) % 2 == 0 and torch.equal(frequencies[:half], frequencies[half:]):
        return [frequencies[:half], frequencies]
    if len(frequencies) % 2 == 0 and torch.equal(frequencies[0::2], frequencies[1::2]):
        return [frequencies[0::2].contiguous(), frequencies]
    return [frequencies]


def from_waves(cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """The frequencies of a table that has both: from the phase at position 1, then at ever later ones, and of the
    neighbouring numbers in float32 those that fit best."""
    phases = torch.atan2(sines.double(), cosines.double())
    found, position = phases[1], 2
    while position < len(phases):
        turns = torch.round((position * found - phases[position]) / (2 * math.pi))
        found = (phases[position] + 2 * math.pi * turns) / position
        position *= 2
    near = found.float()
    positions = torch.arange(len(phases), dtype=torch.float32)
    tried = [near]
    for towards in (math.inf, -math.inf):
        tried.append(torch.nextafter(near, torch.full_like(near, towards)))
        tried.append(torch.nextafter(tried[-1], torch.full_like(near, towards)))
    errors = torch.stack([(torch.outer(positions, each).double().cos() - cosines).abs().amax(0) for each in tried])
    return torch.stack(tried).gather(0, errors.argmin(0, keepdim=True))[0]
