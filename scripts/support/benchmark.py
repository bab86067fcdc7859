"""What benchmarks share: the tools, medians, tables, documents."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PP_BIN", ROOT / "build/release/bin"))
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def fail(message: str, code: int = 1) -> typing.NoReturn:
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(code)


def run(*command: object) -> str:
    """Its stdout; ends the benchmark when the command fails, whose stderr is the benchmark's."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    except FileNotFoundError:
        fail(f"{words[0]} is not there; scripts/bench builds the tools and names their folder in PP_BIN")
    if done.returncode != 0:
        fail(f"{' '.join(words)} ended with {done.returncode}")
    return done.stdout


def tool(name: str, *arguments: object) -> str:
    return run(BIN / name, *arguments)


def make_plan(profile: pathlib.Path, plan: pathlib.Path, *options: object) -> dict:
    tool("pp-plan", profile, "-q", "-o", plan, *options)
    return json.loads(plan.read_text())


def measure_links(cluster: pathlib.Path) -> None:
    """Between two workers of one process, a core each."""
    tool("pp-profile", "links", "--devices", "cpu:2x1", "-q", "-o", cluster)


def describe(plan: dict) -> str:
    stages = "|".join(str(len(stage["layers"])) for stage in plan["stages"])
    replicas = "-".join(str(len(stage["workers"])) for stage in plan["stages"])
    return f"{plan['schedule']['name']} {stages}, replicas {replicas}, M {plan['training']['micro_batches']}"


def layer_seconds(profile: dict, size: int) -> dict[str, float]:
    """Forward and backward of each layer at one micro-batch size; the last layer's with the loss."""
    def point(points: list[dict]) -> float:
        row = next(p for p in points if p["micro_batch_size"] == size)
        return row["forward_s"]["median"] + row["backward_s"]["median"]

    seconds = {layer["name"]: point(layer["points"]) for layer in profile["layers"]}
    seconds[profile["layers"][-1]["name"]] += point(profile["loss"]["points"])
    return seconds


def spread(values: typing.Iterable[float]) -> dict[str, float]:
    kept = list(values)
    return {"median": statistics.median(kept), "least": min(kept), "largest": max(kept)}


def spread_text(values: dict[str, float]) -> str:
    return f"{values['median']:.3f} ({values['least']:.3f} .. {values['largest']:.3f})"


def percentile(values: typing.Iterable[float], share: float) -> float:
    """Linear between neighbours, as numpy's."""
    kept = sorted(values)
    place = share * (len(kept) - 1)
    below = int(place)
    above = min(below + 1, len(kept) - 1)
    return kept[below] + (place - below) * (kept[above] - kept[below])


def markdown(header: list[str], rows: typing.Iterable[list[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def write_documents(arguments: typing.Any, result: dict, table: str) -> None:
    """To the files that --json and --markdown name."""
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(table)
