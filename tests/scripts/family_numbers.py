"""The numbers that weights and data of compared models get, on both sides: they follow from a tensor's name (in our model)
and an element's index. The same stands in tests/libprofile/model/family_values.h."""

import math
from typing import Any

import numpy
import torch

SAMPLES = 3


def numbers(name: str, shape: list[int]) -> torch.Tensor:
    """In [-1, 1): splitmix64 of the name's FNV-1a hash and the index."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    z = numpy.arange(1, math.prod(shape) + 1, dtype=numpy.uint64)
    z = z * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(seed)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    z ^= z >> numpy.uint64(31)
    return torch.from_numpy((z >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-52 - 1).reshape(shape)


def initial(name: str, shape: list[int]) -> torch.Tensor:
    """Matrices that keep the variance through relu; ones and zeros, a little off, for what norms and biases have."""
    drawn = numbers(name, shape)
    if len(shape) > 1:
        return drawn * math.sqrt(6 / math.prod(shape[1:]))
    return 0.1 * drawn if name.endswith(("bias", "running_mean")) else 1 + 0.1 * drawn


def data(name: str, shape: list[int], integers: int) -> torch.Tensor:
    drawn = numbers(name, [SAMPLES, *shape])
    return ((drawn + 1) / 2 * integers).long() if integers else drawn


def short(value: Any) -> float:
    return float(f"{value.item():.12g}")
