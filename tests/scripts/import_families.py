"""python3 tests/scripts/import_families.py [FAMILY...]: imports models of torchvision and transformers, trains them here
and in PyTorch, and prints a table of the differences. Needs torch, torchvision and transformers, and PP_BIN, the folder
of the tools (build/release/bin). Exit 1 when a difference is larger than its limit.

columns, all with random weights, on one CPU core:
  evaluation, training, gradients   what the import has found and limits
  losses      of ten steps of SGD, relative (limit 1e-4)
  trained     outputs of the module with the weights that pp-run has trained, against those of the module trained in
              PyTorch (1e-3)
  2, 3        two and three stages train, dropout included, to the same bytes as one; `rounds`: to 1e-6 in a step,
              where a cut leaves several readers of a tensor in a stage between its producer and its last reader (T5's
              decoder). Weights that are tied across the whole model are untied, which would else keep it in one stage
"""

import dataclasses
import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(pathlib.Path(__file__).resolve().parent)]
sys.dont_write_bytecode = True
logging.getLogger("torch.utils.flop_counter").disabled = True

import torch  # noqa: E402

import import_models  # noqa: E402
from import_torch import factory, importer, verify, weights  # noqa: E402
from import_torch.document import indented  # noqa: E402
from import_torch.export import Choice, wrap  # noqa: E402
from import_torch.verify import difference  # noqa: E402

BIN = pathlib.Path(os.environ.get("PP_BIN", ROOT / "build/release/bin"))
SAMPLES, BATCH, STEPS = 40, 4, 10
RATE = 0.01
LIMITS = verify.LIMITS | {"losses": 1e-4, "trained": 1e-3}


class Failed(Exception):
    pass


def loss_of(document: dict[str, Any]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """The loss that --loss has added."""
    if document["loss"]["op"] == "mse":
        return torch.nn.functional.mse_loss

    def cross_entropy(made: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        maps = made.dim() == 4
        return torch.nn.functional.cross_entropy(made if maps else made.flatten(0, -2), labels if maps else labels.flatten())
    return cross_entropy


def tool(name: str, *arguments: Any) -> None:
    done = subprocess.run([BIN / name, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{name} {' '.join(map(str, arguments))}: exit {done.returncode}: {done.stderr.strip()[-600:]}")


def made_up_profile(document: dict[str, Any]) -> dict[str, Any]:
    """A millisecond for each layer: cuts matter here, times do not."""
    ms = {"median": 1e-3, "low": 1e-3, "high": 1e-3, "samples": 0}
    points = [{"micro_batch_size": size, "forward_s": ms, "backward_s": ms, "output_bytes": 4, "saved_bytes": 0,
               "saved_input_bytes": 0, "workspace_bytes": 0} for size in (1, 2, 4)]
    layers = [{"name": layer["name"], "parameter_count": 0, "parameter_bytes": 0, "buffer_bytes": 0,
               "forward_flops_per_sample": 0.0, "points": points} for layer in document["layers"]]
    return {"format": "pp.profile", "version": 1, "context": {}, "model": document,
            "device": {"kind": "cpu", "name": "none", "cores_per_device": 1, "devices_busy": 1, "memory_bytes": 0},
            "dtype": "float32", "mode": "imported", "micro_batch_sizes": [1, 2, 4], "layers": layers,
            "loss": dict(layers[0], name=document["loss"]["op"]), "whole_model": [], "optimizers": [], "estimated": []}


@dataclasses.dataclass
class Here:
    """One imported model in a folder of its own."""

    folder: pathlib.Path
    imported: importer.Imported
    data: dict[str, torch.Tensor]

    def write(self) -> None:
        (self.folder / "weights.safetensors").write_bytes(weights.encode(
            self.imported.weights | self.imported.kept, self.imported.further))
        (self.folder / "train.safetensors").write_bytes(weights.encode(self.data))
        self.save("model.json", self.imported.document)
        self.save("profile.json", made_up_profile(self.imported.document))

    def save(self, name: str, document: dict[str, Any]) -> None:
        (self.folder / name).write_text(indented(document) + "\n")

    def plan(self, stages: int, micro_batch: int) -> pathlib.Path:
        place = self.folder / f"plan-{stages}-{micro_batch}.json"
        if not place.exists():
            tool("pp-plan", self.folder / "profile.json", "--devices", stages, "--bandwidth", "10GB/s", "--mini-batch",
                 BATCH, "--micro-batch-size", micro_batch, "--schedule", "1f1b", "--stages", stages, "--replicas",
                 "-".join(["1"] * stages), "--recompute", "never", "-o", place)
        return place

    def train(self, plan: pathlib.Path, steps: int, rate: float) -> tuple[bytes, list[float]]:
        kept, report = self.folder / "trained.safetensors", self.folder / "report.json"
        tool("pp-run", plan, "--data", self.folder / "train.safetensors", "--steps", steps, "--no-shuffle",
             "--lr", rate, "--momentum", 0, "--initial-weights", self.folder / "weights.safetensors",
             "--save-weights", kept, "-o", report, "--no-evaluate")
        return kept.read_bytes(), json.loads(report.read_text())["step_losses"]


class There:
    """The module in PyTorch."""

    def __init__(self, module: torch.nn.Module, examples: list[factory.Example], document: dict[str, Any],
                 data: dict[str, torch.Tensor]):
        self.module, self.names, self.data = wrap(module, examples, Choice()), [example.name for example in examples], data
        self.loss_of = loss_of(document)
        self.target = document["targets"][0]["name"]

    def batch(self, step: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        rows = slice(step * BATCH, (step + 1) * BATCH)
        return [self.data[name][rows] for name in self.names], self.data[self.target][rows]

    def outputs(self) -> torch.Tensor:
        self.module.eval()
        with torch.no_grad():
            made = torch.cat([self.module(*self.batch(step)[0]) for step in range(SAMPLES // BATCH)])
        self.module.train()
        return made

    def train(self) -> list[float]:
        optimizer, losses = torch.optim.SGD(self.module.parameters(), lr=RATE), []
        for step in range(STEPS):
            inputs, target = self.batch(step)
            loss = self.loss_of(self.module(*inputs), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def load(self, content: bytes) -> None:
        self.module.wrapped.load_state_dict(weights.decode(content))


def make(name: str, still: bool, untied: bool) -> tuple[torch.nn.Module, list[factory.Example]]:
    torch.manual_seed(0)
    module = getattr(import_models, name)(still)
    if untied:
        import_models.untie(module)
    examples = [factory.parse_example(text) for text in import_models.FAMILIES[name].examples]
    factory.name_inputs(module, examples)
    return module, examples


def data_of(document: dict[str, Any], examples: list[factory.Example]) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    data = {example.name: example.draw(SAMPLES) for example in examples}
    target = document["targets"][0]
    return data | {target["name"]: torch.randint(0, 5, (SAMPLES, *target["shape"]))}


def here(name: str, still: bool, folder: pathlib.Path) -> tuple[Here, torch.nn.Module, list[factory.Example]]:
    module, examples = make(name, still, untied=not still and import_models.FAMILIES[name].untied)
    imported = importer.import_module(module, examples, name, import_models.FAMILIES[name].loss, "module")
    folder.mkdir()
    made = Here(folder, imported, data_of(imported.document, examples))
    made.write()
    return made, module, examples


def compare(name: str, folder: pathlib.Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    made, module, examples = here(name, True, folder / "still")
    there = There(module, examples, made.imported.document, made.data)
    row: dict[str, Any] = {"layers": len(made.imported.document["layers"]), **made.imported.differences}
    content, losses = made.train(made.plan(1, BATCH), STEPS, RATE)
    row["losses"] = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(losses, there.train(), strict=True))
    wanted = there.outputs()
    there.load(content)
    row["trained"] = difference(there.outputs(), wanted)
    row |= stages(name, folder)
    return row


def stages(name: str, folder: pathlib.Path) -> dict[str, Any]:
    drawn, _, _ = here(name, False, folder / "drawn")
    one, losses = drawn.train(drawn.plan(1, 2), 3, RATE)
    row, family = {}, import_models.FAMILIES[name]
    for count in (2, 3):
        several, others = drawn.train(drawn.plan(count, 2), 3, RATE)
        same = several == one and others == losses
        row[str(count)] = "equal" if same else "rounds" if family.rounds and round_alike(drawn, count) else "DIFFER"
    return row


def round_alike(made: Here, stages: int) -> bool:
    """After one step; later ones multiply what is rounded."""
    one, several = (weights.decode(made.train(made.plan(count, 2), 1, RATE)[0]) for count in (1, stages))
    return all(difference(tensor, one[name]) < 1e-6 for name, tensor in several.items())


def text_of(row: dict[str, Any]) -> tuple[str, bool]:
    parts, fine = [f"{row['layers']:6d}"], True
    for key, limit in LIMITS.items():
        bad = not row[key] <= limit
        fine = fine and not bad
        parts.append(f"{row[key]:8.1e}{'!' if bad else ' '}")
    fine = fine and "DIFFER" not in (row["2"], row["3"])
    return "  ".join([*parts, f"{row['2']:6}", f"{row['3']:6}"]), fine


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in import_models.FAMILIES]
    if unknown or "-h" in names or "--help" in names:
        print(__doc__ + "\nfamilies: " + ", ".join(import_models.FAMILIES))
        return 0 if "--help" in names or "-h" in names else 2
    print(f"{'family':20}  layers  evaluation training   gradients  losses     trained    2       3       seconds")
    failed = False
    for name in names or import_models.FAMILIES:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                text, fine = text_of(compare(name, pathlib.Path(folder)))
            except Exception as error:  # a family that fails must not hide the others
                text, fine = f"{type(error).__name__}: {error}", False
                if not isinstance(error, Failed):
                    traceback.print_exc()
        failed = failed or not fine
        print(f"{name:20}  {text}  {time.monotonic() - begin:6.0f}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
