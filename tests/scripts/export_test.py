"""python3 tests/scripts/export_test.py [MODEL:SCHEDULE...]: plans of imported modules, exported with `pp-plan export
--format torch-pipelining` and trained by their launcher on two Gloo ranks, against pp-run with the same plan, weights,
data and order; all of them, or those named. Prints the largest relative difference of the losses of ten steps (limit
1e-4). Needs torch (scripts/support/with_torch.py), and PP_BIN, the folder of the tools.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(pathlib.Path(__file__).resolve().parent)]
sys.dont_write_bytecode = True

import export_models  # noqa: E402
from import_torch import weights  # noqa: E402

BIN = pathlib.Path(os.environ.get("PP_BIN", ROOT / "build/release/bin"))
STEPS, RATE, LIMIT = 10, 0.05, 1e-4
EXAMPLES = {"cnn": "float32:1x8x8", "transformer": "int64:12:0..31", "frozen": "int64:12:0..31"}
# Where stages begin: first layers by name, of two stages and of four on two ranks.
QUARTERS = {"cnn": ["conv2", "pool", "head"], "transformer": ["layers.1", "layers.2", "layers.3"]}
CUTS = {("cnn", "1f1b"): ["pool"], ("cnn", "interleaved"): QUARTERS["cnn"], ("cnn", "zb-v"): QUARTERS["cnn"],
        ("transformer", "1f1b"): ["layers.2"], ("transformer", "interleaved"): QUARTERS["transformer"],
        ("transformer", "zb-h1"): ["layers.2"], ("transformer", "data-parallel"): [],
        ("frozen", "1f1b"): ["layers.2"], ("frozen", "data-parallel"): []}


def run(folder: pathlib.Path, *command: Any) -> str:
    one_core = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, env=one_core)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def import_model(folder: pathlib.Path, name: str) -> list[str]:
    """model.json, weights, data and a profile; the names of the layers."""
    run(folder, sys.executable, ROOT / "scripts/import-torch", f"{ROOT}/tests/scripts/export_models.py:{name}",
        "--example", EXAMPLES[name], "--loss", "cross_entropy", "-o", "model.json", "--weights", "weights.safetensors")
    model = json.loads((folder / "model.json").read_text())
    data = getattr(export_models, f"{name}_data")()
    names = [model["inputs"][0]["name"], model["targets"][0]["name"]]
    (folder / "train.safetensors").write_bytes(weights.encode(dict(zip(names, data))))
    run(folder, BIN / "pp-profile", "run", "model.json", "--device", "cpu:2x1", "--quick", "--micro-batch-sizes", 4,
        "-q", "-o", "profile.json")
    return [layer["name"] for layer in model["layers"]]


def plan(folder: pathlib.Path, layers: list[str], schedule: str, begins: list[str]) -> None:
    """plan.json and what is exported of it; stages begin at the first layers within the modules `begins`. Replicas share
    the optimizer's state there, which moves no weight."""
    cuts = [min(k for k, layer in enumerate(layers) if f"{layer}.".startswith(f"{begin}.")) for begin in begins]
    options = {"1f1b": ["--replicas", "1-1"], "data-parallel": ["--replicas", "2"]}.get(schedule, [])
    options += ["--cuts", ",".join(map(str, cuts))] if cuts else []
    request = (BIN / "pp-plan", "profile.json", "--devices", 2, "--bandwidth", "1GB/s", "--mini-batch", export_models.BATCH,
               "--micro-batch-size", 4, "--schedule", schedule, *options, "-q", "-o")
    run(folder, *request, "plan.json")
    run(folder, *request, "shared.json", "--shard", "optimizer")
    exported = "shared.json" if schedule == "data-parallel" else "plan.json"
    run(folder, BIN / "pp-plan", "export", exported, "--format", "torch-pipelining", "-o", "exported")


def losses_here(folder: pathlib.Path) -> list[float]:
    run(folder, BIN / "pp-run", "plan.json", "--data", "train.safetensors", "--initial-weights", "weights.safetensors",
        "--steps", STEPS, "--lr", RATE, "--no-shuffle", "--no-evaluate", "-q", "-o", "report.json")
    return json.loads((folder / "report.json").read_text())["step_losses"]


def losses_there(folder: pathlib.Path, name: str) -> list[float]:
    models = f"{ROOT}/tests/scripts/export_models.py"
    out = run(folder, sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "exported/launch.py",
              f"{models}:{name}", "--data", f"{models}:batches({name}_data())", "--steps", STEPS, "--lr", RATE)
    return [float(loss) for loss in re.findall(r"^step \d+: loss (\S+)$", out, re.M)]


def main() -> None:
    wanted = {tuple(word.split(":")) for word in sys.argv[1:]} or set(CUTS)
    if wanted - set(CUTS):
        sys.exit(f"export_test.py: no case is called {', '.join(map(':'.join, wanted - set(CUTS)))}; these are: "
                 + ", ".join(map(":".join, CUTS)))
    worst = 0.0
    for name in sorted({model for model, _ in wanted}):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            layers = import_model(folder, name)
            for (model, schedule), begins in CUTS.items():
                if model != name or (model, schedule) not in wanted:
                    continue
                plan(folder, layers, schedule, begins)
                here, there = losses_here(folder), losses_there(folder, name)
                difference = max(abs(a - b) / abs(b) for a, b in zip(here, there, strict=True))
                worst = max(worst, difference)
                print(f"{name:<13}{schedule:<13}loss {there[0]:.4f} to {there[-1]:.4f}, largest difference "
                      f"{difference:.1e}", flush=True)
    sys.exit(worst > LIMIT)


main()
