"""A model as pp-profile runs it: by the code that trains."""

import dataclasses
import json
import pathlib
import subprocess
import tempfile
import weakref
from typing import Any

import torch

from . import weights as files
from .document import line
from .operations import find_tool
from .refused import Refused

Tensors = dict[str, torch.Tensor]


@dataclasses.dataclass
class Values:
    """What a mini-batch gives. Draws keep everything; `masks`: the numbers of elements that were drawn for."""

    outputs: list[torch.Tensor]
    loss: torch.Tensor | None
    layers: Tensors  # `NAME:K` -> what the layer hands on, where they were asked for
    gradients: Tensors
    buffers: Tensors  # afterwards
    masks: list[int]


class Failed(Exception):
    """Such values the model does not take."""


class Runtime:
    """A program that holds the model and its weights."""

    def __init__(self, document: dict[str, Any], weights: Tensors, loss: bool) -> None:
        self.document, self.count = document, 0
        folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(folder.name)
        (self.folder / "model.json").write_text(line(document))
        (self.folder / "weights").write_bytes(files.encode(weights))
        command = [find_tool(), "values", "model.json", "--weights", "weights", *["--loss"] * loss]
        with (self.folder / "said").open("w") as said:
            self.program = subprocess.Popen(command, cwd=folder.name, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=said)
        weakref.finalize(self, ended, self.program, folder)

    def run(self, data: Tensors, training: bool = False, layers: bool = False, gradients: bool = False,
            micro_batch_size: int = 0) -> Values:
        """`data`: inputs and targets by name, and without a loss `output:gradient`, which gradients begin with. Micro-batch
        size 0: all samples at once."""
        (self.folder / "data").write_bytes(files.encode(data))
        request = {"data": "data", "to": "values", "training": training, "layers": layers, "gradients": gradients,
                   "micro_batch_size": micro_batch_size}
        try:
            print(json.dumps(request), file=self.program.stdin, flush=True)
            answer = self.program.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.program.wait()
            raise Refused(f"the tools cannot run the model: {(self.folder / 'said').read_text().strip()}")
        if "error" in (said := json.loads(answer)):
            raise Failed(said["error"])
        found: dict[str, Tensors] = {}
        for name, tensor in files.decode((self.folder / "values").read_bytes()).items():
            kind, _, rest = name.partition(":")
            found.setdefault(kind, {})[rest] = tensor
        return Values([found["output"][str(k)] for k in range(len(self.document["outputs"]))], found.get("loss", {}).get(""),
                      found.get("layer", {}), found.get("gradient", {}), found.get("buffer", {}), found["masks"][""].tolist())


def ended(program: subprocess.Popen, folder: tempfile.TemporaryDirectory) -> None:
    program.stdin.close()
    program.stdout.close()
    program.wait()
    folder.cleanup()
