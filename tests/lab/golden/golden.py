#!/usr/bin/env python3
"""golden.py --binaries DIR [--write]: are the results of plans the bytes that they were?

Makes, trains and runs every plan of golden.txt with the tools in DIR and compares the SHA-256 of the weights or outputs with the
one that stands there; --write replaces those. Bytes depend on the processor. Where the first plan of a model, on one device, has
other bytes than golden.txt, only this is compared: plans of equal bytes there have equal bytes here. The row with --autocast is younger than the others: losses are float32 since.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

TABLE = pathlib.Path(__file__).with_suffix(".txt")
MODELS = {"mlp": "mlp:inputs=8,width=16,classes=4,layers=6,dropout=0.1",
          "gpt": "transformer:layers=2,width=16,heads=2,vocabulary=12,sequence=8,dropout=0.1,tied=1",
          "net": "resnet18:classes=4,image=32,width=4"}
PLANNED = {"--mini-batch": "16", "--micro-batches": "4", "--optimizer": "adam"}  # where a row says nothing else
TRAINED = "--data synthetic --synthetic-samples 64 --steps 4 --no-evaluate -q"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*words: str) -> None:
    done = subprocess.run(" ".join(words).split(), env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise SystemExit(f"golden: {' '.join(words)} ended with {done.returncode}: {done.stderr}")


def make_profile(binaries: pathlib.Path, model: str, profile: pathlib.Path) -> None:
    described = profile.with_suffix(".model")
    run(f"{binaries}/pp-profile models {model} -o {described}")
    document = json.loads(described.read_text())
    for layer in document["layers"]:
        layer.get("attributes", {}).pop("std", None)  # weights are drawn as they were without it
    described.write_text(json.dumps(document))
    run(f"{binaries}/pp-profile estimate {described} --device-spec cpu-core --micro-batch-sizes 1,2,4,8,16 -q -o {profile}")


def result(binaries: pathlib.Path, folder: pathlib.Path, model: str, planned: str, ranks: str, trained: str) -> str:
    plan, output = folder / "plan.json", folder / "output.safetensors"
    output.unlink(missing_ok=True)
    usual = " ".join(f"{option} {value}" for option, value in PLANNED.items() if option not in planned)
    run(f"{binaries}/pp-plan {folder}/{model}.json -o {plan} --bandwidth 1GB/s --swap-bandwidth 10GB/s -q {usual} {planned}")
    words = trained.replace("infer", f"infer {plan} --data synthetic --synthetic-samples 16 --draw-weights -q -o {output}")
    if words == trained:
        words = f"{plan} {TRAINED} --save-weights {output} {trained}"
    launched = f"mpirun --oversubscribe -n {ranks} " if ranks != "1" else ""
    run(f"{launched}{binaries}/pp-run {words}")
    return hashlib.sha256(output.read_bytes()).hexdigest()[:20]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, required=True)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = [[cell.strip() for cell in line.split("|")] for line in TABLE.read_text().splitlines()]
    found: dict[str, str] = {}  # the bytes here of those there
    wrong, lines, other, tried = [], [], set(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for golden, model, *case in rows:
            profile, first = folder / f"{model}.json", not (folder / f"{model}.json").exists()
            if first:
                make_profile(arguments.binaries, MODELS[model], profile)
            if case[1] != "1" and not shutil.which("mpirun"):
                continue
            sha = result(arguments.binaries, folder, model, *case)
            tried += 1
            lines.append(" | ".join([sha, model, *case]).rstrip())
            if first and sha != golden and not arguments.write:
                other.add(model)
                print(f"golden: {model} has other bytes on this processor; plans are compared with each other alone")
            expected = found.setdefault(f"{model} {golden}", sha) if model in other else golden
            if sha != expected:
                wrong.append(f"{' | '.join([model, *case])}: {sha} in place of {expected}")
    if arguments.write:
        TABLE.write_text("\n".join(lines) + "\n")
    else:
        print("\n".join(wrong + [f"{tried} plans, {len(wrong)} with other bytes"]))
        sys.exit(1 if wrong else 0)


main()
