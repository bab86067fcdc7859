"""scripts/export-data: what a DataLoader yields as one safetensors file, named as the model's inputs and targets."""

import argparse
import json
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import torch

from .factory import import_place, parse_call
from .refused import Refused, described, guarded, users_code
from .weights import KINDS, raw, stored

USAGE = """\
examples:
  scripts/export-data my_data.py:train --names x,label -o data/train.safetensors
  scripts/export-data my_data.py:test --names x,label -o data/test.safetensors
  scripts/export-data "my_data.py:loader(split='train')" --samples 10000 -o data/train.safetensors

where my_data.py has, for instance
  def train(): return torch.utils.data.DataLoader(MyDataset(), batch_size=256)
Batches that are dictionaries name their tensors themselves.
Then: pp-run plan.json --data data"""


class Column:
    """One tensor of all samples, on disk while it grows."""

    def __init__(self, file: BinaryIO, first: torch.Tensor) -> None:
        self.file, self.dtype, self.shape, self.samples = file, first.dtype, first.shape[1:], 0

    def add(self, name: str, batch: torch.Tensor) -> None:
        if batch.dtype != self.dtype or batch.shape[1:] != self.shape:
            raise Refused(f"{name}: a batch of {batch.dtype} {list(batch.shape)} behind samples of {self.dtype} "
                          f"{list(self.shape)}; bring all samples to one size (padding, cropping)")
        self.file.write(raw(batch))
        self.samples += batch.shape[0]

    def size(self) -> int:
        return self.samples * self.shape.numel() * self.dtype.itemsize


def named(batch: Any, names: list[str]) -> dict[str, torch.Tensor]:
    if isinstance(batch, dict):
        batch = {str(name): value for name, value in batch.items()}
        missing = [name for name in names if name not in batch]
        if missing:
            raise Refused(f"the batches have no {', '.join(missing)}, but {', '.join(batch)}")
        chosen = {name: batch[name] for name in names or batch}
    else:
        parts = list(batch) if isinstance(batch, (tuple, list)) else [batch]
        if len(parts) != len(names):
            raise Refused(f"a batch has {len(parts)} tensors, --names has {len(names)}; name each, as the model's "
                          "inputs and targets")
        chosen = dict(zip(names, parts))
    tensors = {name: tensor_of(name, value) for name, value in chosen.items()}
    counts = {name: tensor.shape[0] for name, tensor in tensors.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise Refused(f"a batch has unlike numbers of samples: {listed}")
    return tensors


def tensor_of(name: str, value: Any) -> torch.Tensor:
    """[samples, ...]"""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        if isinstance(value, (list, tuple)) and value:
            kind += f" of {type(value[0]).__name__}"
        raise Refused(f"{name}: a batch has a {kind} there, and a file holds numbers; yield lists or dictionaries of tensors, "
                      "without text, from one loader") from None
    if not tensor.dim() or tensor.is_complex():
        raise Refused(f"{name}: a batch has {tensor.dtype} {list(tensor.shape)} there; yield real numbers [samples, ...], as "
                      "a DataLoader does")
    return stored(tensor)


def write(batches: Iterable[Any], path: str, names: list[str] | None = None,
          samples: int | None = None) -> dict[str, list[int]]:
    """Writes safetensors batch by batch, so that the data may be larger than memory; gives the shapes."""
    folder = os.path.dirname(path) or "."
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        columns: dict[str, Column] = {}
        for batch in batches:
            tensors = named(batch, names or [])
            if columns and tensors.keys() != columns.keys():
                raise Refused(f"a batch of {', '.join(tensors)} behind batches of {', '.join(columns)}; choose by --names "
                              "what all have")
            held = next(iter(columns.values())).samples if columns else 0
            for name, tensor in tensors.items():
                if name not in columns:
                    columns[name] = Column(open(os.path.join(place, str(len(columns))), "wb+"), tensor)
                columns[name].add(name, tensor[:samples - held] if samples is not None else tensor)
            if samples is not None and next(iter(columns.values())).samples >= samples:
                break
        if not columns:
            raise Refused("the loader yields no batch")
        made = os.path.join(place, "whole")
        with open(made, "wb") as file:
            join(columns, file)
        os.replace(made, path)
    return {name: [column.samples, *column.shape] for name, column in columns.items()}


def join(columns: dict[str, Column], file: BinaryIO) -> None:
    header, end = {}, 0
    for name, column in columns.items():
        header[name] = {"dtype": KINDS[column.dtype], "shape": [column.samples, *column.shape],
                        "data_offsets": [end, end + column.size()]}
        end += column.size()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for column in columns.values():
        column.file.seek(0)
        shutil.copyfileobj(column.file, file)
        column.file.close()


def main(arguments: list[str]) -> int:
    made = argparse.ArgumentParser(prog="scripts/export-data", formatter_class=argparse.RawDescriptionHelpFormatter,
                                   epilog=USAGE, description="Writes what a DataLoader yields as pp-run's data.")
    made.add_argument("loader", metavar="FILE.py:FUNCTION",
                      help="or PACKAGE.MODULE:FUNCTION; what it returns yields batches")
    made.add_argument("--names", help="of the tensors of a batch, with commas between; of dictionaries: which entries")
    made.add_argument("--samples", type=int, help="write no more than these")
    made.add_argument("-o", "--output", required=True, metavar="FILE",
                      help="train.safetensors or test.safetensors in a folder")
    options = made.parse_args(arguments)
    return guarded("export-data", lambda: run(options))


def run(options: argparse.Namespace) -> None:
    place, _, call = options.loader.partition(":")
    name, given = parse_call(call, options.loader)
    function = getattr(import_place(place), name, None)
    if not callable(function):
        raise Refused(f"{place} has no function {name}")
    with users_code(lambda error, at: f"{at}{options.loader} failed: {described(error)}"):
        batches = iter(function(**given))
    shapes = write(users(batches, options.loader), options.output, options.names.split(",") if options.names else [],
                   options.samples)
    print(f"{options.output}: " + ", ".join(f"{name} {shape}" for name, shape in shapes.items()), file=sys.stderr)


def users(batches: Iterator[Any], loader: str) -> Iterator[Any]:
    """The batches, and what the loader's own code raises as such."""
    end = object()
    while True:
        with users_code(lambda error, at: f"{at}{loader} failed: {described(error)}"):
            batch = next(batches, end)
        if batch is end:
            return
        yield batch
