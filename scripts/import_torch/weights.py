"""Safetensors: eight bytes with the header's length, the header in JSON, the tensors' bytes."""

import ctypes
import json
import math
import struct
from typing import Any

import torch

from .refused import Refused

KINDS = {torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.int64: "I64", torch.uint8: "U8",
         torch.bool: "BOOL"}


def raw(tensor: torch.Tensor) -> bytes:
    """Without numpy, which torch does not bring along."""
    flat = tensor.detach().cpu().contiguous()
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()) if flat.numel() else b""


def stored(tensor: torch.Tensor) -> torch.Tensor:
    """In a type that the format and our models have."""
    if tensor.dtype in KINDS:
        return tensor
    return tensor.float() if tensor.dtype.is_floating_point else tensor.long()


def encode(tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    parts, end = [], 0
    for name, tensor in tensors.items():
        kept = stored(tensor)
        parts.append(raw(kept))
        header[name] = {"dtype": KINDS[kept.dtype], "shape": list(kept.shape),
                        "data_offsets": [end, end + len(parts[-1])]}
        end += len(parts[-1])
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(parts)


def decode(content: bytes, source: str = "weights") -> dict[str, torch.Tensor]:
    kinds = {name: dtype for dtype, name in KINDS.items()}
    try:
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8:8 + length])
    except (struct.error, ValueError):
        raise Refused(f"{source}: not a safetensors file") from None
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        dtype, count = kinds[entry["dtype"]], math.prod(entry["shape"])
        flat = torch.frombuffer(bytearray(content[begin:end]), dtype=dtype) if count else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors
