"""What is disturbed: commands in a folder, and what must be there when they have ended.

Every job begins in a copy of a prepared folder. An output is whole when it is what an undisturbed run leaves, or when it is still
what the folder had before.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import typing

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
DEVICE = pathlib.Path(__file__).resolve().parents[3] / "configs/devices/a100.json"
SAMPLES, WIDTH, CLASSES = 32, 8, 4
# In the data's order, so that the samples of a micro-batch are read at once: fewer runs of the same kind. A rank that is stopped
# is noticed after the timeout, at the start after ten; a busy machine's fsync must take less.
TRAINING = ["--data", "data.safetensors", "--no-shuffle", "--no-evaluate", "--lr", "0.05", "--momentum", "0.9", "--stall-timeout",
            "4s"]


@dataclasses.dataclass
class Job:
    name: str
    command: list[str]  # the first word: a tool of BIN, or a program
    outputs: list[str]  # compared with those of an undisturbed run, but for what is measured
    prepare: list[list[str]] = dataclasses.field(default_factory=list)  # commands that make what it begins with
    restart: list[str] | None = None  # goes on; None: the command itself
    folders: tuple[str, ...] = ()  # of checkpoints
    ranks: bool = False  # needs MPI
    unattended: bool = False  # starts its processes again by itself
    libraries: tuple[str, ...] = ("disk", "memory")  # whose calls are disturbed
    block: int = 8192  # bytes of memory that count, and more


def run(binaries: pathlib.Path, command: list[str], folder: pathlib.Path, environment: dict[str, str] | None = None,
        **options: typing.Any) -> subprocess.Popen:
    program = binaries / command[0]
    words = [str(program) if program.exists() else command[0], *command[1:]]
    words = [str(binaries / "pp-run") if word == "PP_RUN" else word for word in words]
    return subprocess.Popen(words, cwd=folder, env={**ENVIRONMENT, **(environment or {})}, stdin=subprocess.DEVNULL, text=True, **options)


def must(binaries: pathlib.Path, command: list[str], folder: pathlib.Path) -> None:
    process = run(binaries, command, folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, said = process.communicate(timeout=120)
    if process.returncode != 0:
        raise SystemExit(f"faults: {' '.join(command)} ended with {process.returncode}: {said}")


def write_samples(path: pathlib.Path) -> None:
    inputs = [((7 * i + 3 * k) % 11) / 11 for i in range(SAMPLES) for k in range(WIDTH)]
    targets = [i % CLASSES for i in range(SAMPLES)]
    y = struct.pack(f"<{SAMPLES}q", *targets)
    x = struct.pack(f"<{len(inputs)}f", *inputs)
    header = json.dumps({"label": {"dtype": "I64", "shape": [SAMPLES], "data_offsets": [0, len(y)]},
                         "features": {"dtype": "F32", "shape": [SAMPLES, WIDTH], "data_offsets": [len(y), len(y) + len(x)]}})
    header += " " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + y + x)


def make_base(binaries: pathlib.Path, folder: pathlib.Path) -> None:
    """Model, profile, plan, samples, hosts, a device."""
    folder.mkdir()
    for command in (["pp-profile", "models", f"mlp:inputs={WIDTH},width=64,classes={CLASSES}", "-o", "model.json"],
                    ["pp-profile", "run", "model.json", "--quick", "--budget", "50ms", "--micro-batch-sizes", "4", "-q", "-o",
                     "profile.json"],
                    ["pp-plan", "profile.json", *PLANNED, "-o", "plan.json"]):
        must(binaries, command, folder)
    write_samples(folder / "data.safetensors")
    (folder / "hosts.txt").write_text("localhost slots=2\n")


PLANNED = ["--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "8", "--micro-batches", "2", "--schedule", "1f1b", "--replicas",
           "1-1", "-q"]


def training(name: str, more: list[str], **parts: typing.Any) -> Job:
    command = ["pp-run", "plan.json", *TRAINING, "--steps", "4", *more]
    parts.setdefault("outputs", ["w.safetensors", "r.json"])
    return Job(name, [*command, "--save-weights", "w.safetensors", "-o", "r.json"], **parts)


def jobs() -> list[Job]:
    saving = ["--checkpoint", "ck", "--every", "2"]
    resuming = [*saving, "--resume", "ck"]
    old_results = ["pp-run", "plan.json", *TRAINING, "--steps", "1", "--save-weights", "w.safetensors", "-o", "r.json"]
    metrics = ["--metrics", "m.jsonl"]
    first_half = ["pp-run", "plan.json", *TRAINING, "--steps", "2", *saving]
    launch = ["pp-run", "launch", "plan.json", "--hosts", "hosts.txt", "--launcher", "mpirun"]
    behind = ["--", *TRAINING, "--steps", "4", *saving, "--save-weights", "w.safetensors", "-o", "r.json"]
    return [
        training("train", [*saving, *metrics], prepare=[old_results], folders=("ck",),
                 restart=training("", [*resuming, *metrics]).command),
        training("resume", [*resuming, *metrics], prepare=[old_results, [*first_half, *metrics]], folders=("ck",)),
        Job("shards", ["pp-run", "plan.json", *TRAINING, "--steps", "2", "--save-weights", "shards/", "--shard-size", "3kB", "--trace",
                       "t.json", "--metrics", "m.jsonl"],
            outputs=["shards", "t.json", "m.jsonl"], libraries=("disk",)),
        Job("infer", ["pp-run", "infer", "plan.json", "--data", "data.safetensors", "--initial-weights", "w.safetensors", "-o",
                      "logits.safetensors", "-q"], prepare=[old_results], outputs=["logits.safetensors"]),
        Job("plan", ["pp-plan", "profile.json", *PLANNED, "-o", "plan.json"], outputs=["plan.json"], block=1024),
        Job("estimate", ["pp-profile", "estimate", "model.json", "--device-spec", str(DEVICE), "-q", "-o", "estimated.json"],
            outputs=["estimated.json"], block=1024),
        Job("page", ["pp-run", "report", "r.json", "--html", "page.html", "-q"], prepare=[old_results], outputs=["page.html"], block=1024),
        training("keep-going", [*saving, "--keep-going"], folders=("ck",), unattended=True, libraries=("disk",),
                 restart=training("", [*resuming, "--keep-going"]).command),
        Job("launch", [*launch, "--keep-going", *behind], outputs=["w.safetensors", "r.json"], folders=("ck",), ranks=True,
            unattended=True, libraries=("disk",), restart=[*launch, "--keep-going", *behind, "--resume", "ck"]),
        Job("ranks", ["mpirun", "-n", "2", "PP_RUN", *training("", [*resuming]).command[1:]], prepare=[],
            outputs=["w.safetensors", "r.json"], folders=("ck",), ranks=True, libraries=("messages",)),
    ]


def steady(value: object) -> object:
    """A document without where and when it was made."""
    if isinstance(value, dict):
        return {key: steady(inner) for key, inner in value.items()
                if key != "context"}
    return [steady(inner) for inner in value] if isinstance(value, list) else value


def content(path: pathlib.Path) -> object:
    """Equal for equal results: bytes, or for what holds times its form alone."""
    if path.is_dir():
        return {str(file.relative_to(path)): content(file) for file in sorted(path.rglob("*"))
                if file.is_file() and file.suffix != ".tmp"}  # of a process killed before it could rename it
    if not path.exists():
        return None
    data = path.read_bytes()
    if path.name in ("r.json", "t.json"):
        return sorted(set(json.loads(data)) - {"resumed_from", "lost_attempts"}) if data else "empty"
    if path.suffix == ".jsonl":
        return [sorted(json.loads(line)) for line in data.decode().splitlines()]
    if path.suffix == ".json":
        return steady(json.loads(data))
    if path.suffix == ".html":
        return data.decode().endswith("</html>\n")
    return hashlib.sha256(data).hexdigest()


def copy(template: pathlib.Path, folder: pathlib.Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
