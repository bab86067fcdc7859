"""Frequencies of rotary positions as the attributes that they follow from: a base, and the scaling of Llama 3, YaRN or
by a factor (libprofile/model/ops/rotary.h has the formulas)."""

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch

from .graph import Constant

CLOSE = 3e-6  # relative; frequencies are float32
LENGTHS = [2**k for k in range(9, 21)]  # of positions before scaling


def attributes_of(cosines: Constant, sines: Constant, columns: str, heads_first: bool, shape: tuple[int, ...]
                  ) -> dict[str, Any] | None:
    """Of tables that turn [heads, l, d], or [l, heads, d]; None: they are no such tables, or follow from no known rule."""
    one, other = cosines.formula, sines.formula
    if one is None or other is None or one["kind"] != "waves" or other["kind"] != "waves":
        return None
    if (one["function"], other["function"]) != ("cos", "sin"):
        return None
    if one | {"function": "sin", "factor": 0} != other | {"factor": 0} or one["columns"] != columns:
        return None
    if not math.isclose(one["factor"], other["factor"], rel_tol=CLOSE):
        return None
    table, dim, length = list(cosines.tensor.shape), one["position_dim"], shape[1 if heads_first else 0]
    behind = table[dim + 1:-1]
    if table[dim] != length or behind != ([] if heads_first else [1]) or any(size > 1 for size in table[:dim]):
        return None
    width = 2 * len(one["frequencies"])
    found = fitted(tuple(one["frequencies"]), width)
    if found is None or width > shape[-1]:
        return None
    return found | {"rotary_dim": width, "rotary_magnitude": magnitude(one["factor"], found)}


def magnitude(factor: float, found: dict[str, Any]) -> float:
    """YaRN's usual one follows from its factor."""
    usual = 0.1 * math.log(found["rotary_factor"]) + 1 if found.get("rotary_scaling") == "yarn" else 1.0
    return usual if math.isclose(factor, usual, rel_tol=CLOSE / 3) else factor


@functools.cache
def fitted(given: tuple[float, ...], width: int) -> dict[str, Any] | None:
    frequencies = torch.tensor(given, dtype=torch.float64)
    for found in guesses(frequencies, width):
        if torch.allclose(computed(found, width), frequencies, rtol=CLOSE, atol=0):
            return found
    return None


def nearby(value: float, error: float = CLOSE / 3) -> float:
    """The number that was written, of what float32 left of it."""
    for digits in range(2, 8):
        short = float(f"{value:.{digits}g}")
        if math.isclose(short, value, rel_tol=error):
            return short
    return value


def written(value: float) -> list[float]:
    """Numbers that it may come from, the shortest first."""
    return list(dict.fromkeys(nearby(value, error) for error in (1e-3, 1e-4, 1e-5, 1e-6)))


def guesses(frequencies: torch.Tensor, width: int) -> Iterator[dict[str, Any]]:
    first, last = float(frequencies[0]), float(frequencies[-1])
    if min(frequencies) <= 0:
        return
    if len(frequencies) == 1:
        yield {} if first == 1 else {"rotary_scaling": "linear", "rotary_factor": nearby(1 / first)}
        return
    for base in bases(frequencies / first, width, len(frequencies) - 1):
        yield {"rotary_base": base} | ({} if first == 1 else {"rotary_scaling": "linear", "rotary_factor": nearby(1 / first)})
    for base in bases(frequencies, width, 1):
        for factor in written(base ** (-(width - 2) / width) / last):
            for length in LENGTHS if factor > 1 else ():
                common = {"rotary_base": base, "rotary_factor": factor, "rotary_original_length": length}
                yield common | {"rotary_scaling": "llama3"}
                yield from (common | {"rotary_scaling": "yarn", "rotary_truncate": whole} for whole in (True, False))


def bases(frequencies: torch.Tensor, width: int, place: int) -> list[float]:
    """From the one at `place`."""
    return written(float(frequencies[place]) ** (-width / (2 * place)))


def computed(found: dict[str, Any], width: int) -> torch.Tensor:
    """As the operation computes them."""
    exponents = torch.arange(0, width, 2, dtype=torch.float32) / width
    powers = found.get("rotary_base", 10000.0) ** exponents
    kept, factor = 1 / powers, found.get("rotary_factor", 1.0)
    scaling = found.get("rotary_scaling", "none")
    if scaling == "linear":
        return (kept / factor).double()
    if scaling == "llama3":
        return as_llama3(kept, factor, found["rotary_original_length"]).double()
    return (as_yarn(found, powers, width) if scaling == "yarn" else kept).double()


def as_llama3(kept: torch.Tensor, factor: float, length: int, low: float = 1.0, high: float = 4.0) -> torch.Tensor:
    waves = 2 * math.pi / kept
    longest, shortest = waves > length / low, waves < length / high
    scaled = torch.where(longest, kept / factor, kept)
    share = (length / waves - low) / (high - low)
    return torch.where(longest | shortest, scaled, (1 - share) * scaled / factor + share * scaled)


def as_yarn(found: dict[str, Any], powers: torch.Tensor, width: int, fast: float = 32.0, slow: float = 1.0) -> torch.Tensor:
    pair = lambda turns: (width * math.log(found["rotary_original_length"] / (turns * 2 * math.pi))
                          / (2 * math.log(found["rotary_base"])))
    low, high = pair(fast), pair(slow)
    if found["rotary_truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = ((torch.arange(width // 2, dtype=torch.float32) - low) / (high - low + (0.001 if low == high else 0))).clamp(0, 1)
    return 1 / (found["rotary_factor"] * powers) * ramp + 1 / powers * (1 - ramp)


