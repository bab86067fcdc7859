"""reported_test.py BIN [MPIRUN]: inputs on which the tools once answered wrongly, one row each: situation, outcome.

BIN holds the tools. Rows that need mpirun, or a Python with torch, are skipped without it. Inputs: tests/data/reported, from
public bug reports and trials; expected values are derived beside each row. Exit 1 when an answer is wrong.
"""

import collections.abc
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/reported"
BIN = pathlib.Path(sys.argv[1]).resolve()
MPIRUN = sys.argv[2] if len(sys.argv) > 2 else ""
NO_TORCH = 77  # the exit code of with_torch.py
TWO_DEVICES = ("--devices", "2", "--bandwidth", "10GB/s")
ROWS: list[tuple[str, collections.abc.Callable[[], str]]] = []


class Skipped(Exception):
    """The machine lacks what the row needs."""


def row(situation: str) -> collections.abc.Callable:
    def add(answer: collections.abc.Callable[[], str]) -> collections.abc.Callable[[], str]:
        ROWS.append((situation, answer))
        return answer
    return add


def run(exit_code: int, *words: object, folder: pathlib.Path | None = None) -> str:
    """What the command said, on both streams; its first word is a tool of BIN, a Python script or a path."""
    command = [str(word) for word in words]
    if command[0].startswith("pp-"):
        command[0] = str(BIN / command[0])
    elif command[0].endswith("import-torch"):
        command[:0] = [sys.executable, str(ROOT / "scripts/support/with_torch.py")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    said = done.stdout + done.stderr
    if done.returncode == NO_TORCH:
        raise Skipped("no Python with torch")
    assert done.returncode == exit_code, f"exit {done.returncode} instead of {exit_code}: {' '.join(command)}\n{said}"
    return said


def plan_of(*words: object, output: str = "plan.json") -> dict:
    """The plan that pp-plan makes in the working folder."""
    run(0, "pp-plan", *words, "-o", output)
    return json.loads(pathlib.Path(output).read_text())


def tensors(path: str | pathlib.Path) -> dict[str, bytes]:
    content = pathlib.Path(path).read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    return {name: content[start + value["data_offsets"][0]:start + value["data_offsets"][1]]
            for name, value in header.items() if name != "__metadata__"}


def largest_difference(first: bytes, second: bytes) -> float:
    pairs = zip(struct.iter_unpack("<f", first), struct.iter_unpack("<f", second), strict=True)
    return max(abs(a - b) for (a,), (b,) in pairs)


def import_module(exit_code: int, name: str, *words: object) -> str:
    module = ROOT / f"tests/scripts/reported_modules.py:{name}"
    return run(exit_code, ROOT / "scripts/import-torch", module, *words, "-o", "model.json", "--weights", "w.safetensors")


def estimate(sizes: str) -> None:
    run(0, "pp-profile", "estimate", "model.json", "--device-spec", ROOT / "configs/devices/cpu-core.json",
        "--micro-batch-sizes", sizes, "-o", "profile.json")


def write_tensors(path: str, **values: tuple[str, list[int], bytes]) -> None:
    header, data = {}, b""
    for name, (dtype, shape, content) in values.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


@row("frozen body of an imported module")
def frozen() -> str:
    import_module(0, "FrozenBody", "--example", "x=float32:5", "--loss", "cross_entropy")
    estimate("1,2,4")
    plan_of("profile.json", *TWO_DEVICES, "--mini-batch", 8, "--stages", 2, "--schedule", "1f1b")
    inputs = b"".join(struct.pack("<f", (i * 7 % 13 - 6) / 4) for i in range(16 * 5))
    labels = b"".join(struct.pack("<q", i % 3) for i in range(16))
    write_tensors("train.safetensors", x=("F32", [16, 5], inputs), label=("I64", [16], labels))
    run(0, "pp-run", "plan.json", "--data", "train.safetensors", "--initial-weights", "w.safetensors", "--epochs", 2,
        "--lr", 0.1, "--save-weights", "out.safetensors")
    before, after = tensors("w.safetensors"), tensors("out.safetensors")
    moved = sorted(name for name in before if before[name] != after[name])
    assert moved == ["head.bias", "head.weight"], f"these moved: {moved}"
    return "trains the head, body.* keep their bytes"


@row("weight decay of a head that the loss does not read")
def decay() -> str:
    plan_of(DATA / "decay.json", *TWO_DEVICES, "--mini-batch", 8, "--micro-batches", 2, "--schedule", "1f1b", "--cuts", 2,
            "--optimizer", "adamw")
    run(0, "pp-run", "plan.json", "--data", DATA / "decay.train.safetensors", "--initial-weights",
        DATA / "decay.weights.safetensors", "--epochs", 2, "--lr", 0.1, "--weight-decay", 0.2, "--save-weights", "out.safetensors")
    before, after = tensors(DATA / "decay.weights.safetensors"), tensors("out.safetensors")
    moved = sorted(name for name in before if before[name] != after[name])
    assert moved == ["a.bias", "a.weight", "head.bias", "head.weight"], f"these moved: {moved}"
    return "aux.* keep their bytes, as with torch.optim"


@row("a job killed before its first checkpoint starts again")
def requeue() -> str:
    plan_of(DATA / "small.json", *TWO_DEVICES, "--mini-batch", 8, "--stages", 2, "--schedule", "1f1b")
    os.mkdir("ck")  # what the first start leaves behind
    job = ("pp-run", "plan.json", "--data", DATA / "small.train.safetensors", "--initial-weights",
           DATA / "small.weights.safetensors", "--lr", 0.1, "--checkpoint", "ck", "--resume", "ck", "--save-weights")
    run(0, *job, "half.safetensors", "--epochs", 2)
    run(0, *job, "resumed.safetensors", "--epochs", 4)
    run(0, *[word for word in job if word not in ("--checkpoint", "--resume", "ck")], "whole.safetensors", "--epochs", 4)
    assert tensors("resumed.safetensors") == tensors("whole.safetensors"), "the resumed run has other weights"
    return "begins anew, then goes on from the checkpoint to the same bytes"


@row("40 equal layers on 16 stages")
def equal_layers() -> str:
    run(0, "pp-profile", "import", DATA / "chain40.txt", "--format", "pipedream", "-o", "c40.json")
    machine = ("--devices", 16, "--bandwidth", "1000GB/s", "--linear-batch", "--mini-batch", 16, "--micro-batches", 16,
               "--schedule", "1f1b")
    made = plan_of("c40.json", *machine, "--stages", 16)
    front = plan_of("c40.json", *machine, "--cuts", "3,6,9,12,15,18,21,24,26,28,30,32,34,36,38", output="front.json")
    step, best = made["predicted"]["step_s"], front["predicted"]["step_s"]
    assert step <= best * 1.005, f"{step} s, and the remainder in front takes {best} s"
    return f"{step:.3f} s; the remainder in front takes {best:.3f} s"


@row("tied weights of two stages")
def tied() -> str:
    request = (DATA / "tied.json", *TWO_DEVICES, "--mini-batch", 16, "--stages", 2)
    said = run(2, "pp-plan", *request, "--tied", "stage")
    assert "--tied copies" in said, said
    made = plan_of(*request)
    assert [len(shared["stages"]) for shared in made["tied"]] == [2], made["tied"]
    return "copies unless --tied stage, whose refusal names --tied copies"


@row("ranks with different weights")
def ranks_differ() -> str:
    if not MPIRUN:
        raise Skipped("no mpirun")
    for folder, weights in (("node0", "small.weights.safetensors"), ("node1", "small.other-weights.safetensors")):
        os.mkdir(folder)
        shutil.copy(DATA / weights, f"{folder}/w.safetensors")
        shutil.copy(DATA / "small.train.safetensors", f"{folder}/train.safetensors")
    plan_of(DATA / "small.json", *TWO_DEVICES, "--mini-batch", 8, "--schedule", "data-parallel", "--replicas", 2)
    train = (BIN / "pp-run", "../plan.json", "--data", "train.safetensors", "--initial-weights", "w.safetensors", "--steps", 2)
    allow = ("--allow-run-as-root",) if os.getuid() == 0 else ()
    said = run(2, MPIRUN, *allow, "--oversubscribe", "--wdir", os.path.abspath("node0"), "-n", 1, *train,
               ":", "--wdir", os.path.abspath("node1"), "-n", 1, *train)
    assert "w.safetensors" in said and "rank 1" in said, said
    return "refused before the first step: rank and file named"


@row("a float16 loss scale that begins too high")
def loss_scale() -> str:
    plan_of(DATA / "small.json", *TWO_DEVICES, "--mini-batch", 8, "--stages", 2, "--schedule", "1f1b")
    run(0, "pp-run", "plan.json", "--data", DATA / "half.train.safetensors", "--initial-weights",
        DATA / "half.weights.safetensors", "--lr", 0.01, "--autocast", "float16", "--epochs", 6)
    return "the scale halves until steps count"


def apart_by_micro_batches() -> str:
    """How far the weights of one and of four micro-batches are apart after two epochs of train.safetensors."""
    estimate("1,2,4,8")
    for count in (1, 4):
        plan_of("profile.json", *TWO_DEVICES, "--mini-batch", 8, "--micro-batches", count, "--schedule", "gpipe", "--stages", 2)
        run(0, "pp-run", "plan.json", "--data", "train.safetensors", "--initial-weights", "w.safetensors", "--epochs", 2,
            "--lr", 0.1, "--save-weights", f"m{count}.safetensors")
    one, four = tensors("m1.safetensors"), tensors("m4.safetensors")
    difference = max(largest_difference(one[name], four[name]) for name in one)
    assert difference < 1e-6, f"weights of M = 1 and M = 4 differ by {difference}"
    return f"M = 1 and M = 4 differ by {difference:.0e}"


@row("class weights in the loss")
def class_weights() -> str:
    import_module(0, "WeightedClasses", "--example", "x=float32:5", "--target", "labels=int64::0..2", "--loss", "module")
    inputs = b"".join(struct.pack("<f", (i * 7 % 13 - 6) / 4) for i in range(16 * 5))
    # The classes of a mini-batch's halves weigh differently: 0 and 1 come first.
    labels = b"".join(struct.pack("<q", 2 if s % 8 > 4 else s % 2) for s in range(16))
    write_tensors("train.safetensors", x=("F32", [16, 5], inputs), labels=("I64", [16], labels))
    return apart_by_micro_batches()


@row("a loss that holds a parameter down")
def regularised() -> str:
    said = import_module(2, "Regularised", "--example", "x=float32:5", "--target", "labels=int64::0..2", "--loss", "module")
    assert "Traceback" not in said, said
    return "refused: " + said.strip().splitlines()[-1][:60]


@row("a module in float16")
def half_module() -> str:
    said = import_module(2, "HalfPrecision", "--example", "x=float32:5", "--loss", "cross_entropy")
    assert "Traceback" not in said and "float16" in said, said
    return "refused: " + said.strip().splitlines()[-1][:60]


@row("the last state of an LSTM")
def lstm_state() -> str:
    import_module(0, "LastState", "--example", "tokens=int64:6:0..10", "--loss", "cross_entropy")
    tokens = b"".join(struct.pack("<q", i * 5 % 11) for i in range(16 * 6))
    labels = b"".join(struct.pack("<q", i % 3) for i in range(16))
    write_tensors("train.safetensors", tokens=("I64", [16, 6], tokens), label=("I64", [16], labels))
    return apart_by_micro_batches()


@row("labels that do not count")
def ignored_labels() -> str:
    import_module(0, "PaddedLabels", "--example", "tokens=int64:6:0..10", "--target", "labels=int64:6:0..10", "--loss", "module")
    tokens = b"".join(struct.pack("<q", i * 5 % 11) for i in range(16 * 6))
    # The first samples have one counted label each, the last all six: halves of a mini-batch have unequal counts.
    labels = b"".join(struct.pack("<q", 1 + (s + p) % 10 if p <= s else 0) for s in range(16) for p in range(6))
    write_tensors("train.safetensors", tokens=("I64", [16, 6], tokens), labels=("I64", [16, 6], labels))
    return apart_by_micro_batches()


@row("features in front of the logits")
def features_first() -> str:
    example = ("--example", "x=float32:5", "--loss", "cross_entropy")
    said = import_module(2, "FeaturesFirst", *example)
    assert "--output" in said, said
    import_module(0, "FeaturesFirst", *example, "--output", 1)
    loss = json.loads(pathlib.Path("model.json").read_text())["loss"]
    assert loss["inputs"][0] == "head", loss
    return "asks for --output; --output 1 trains the head"


@row("three samples in two micro-batches under a limit")
def unequal() -> str:
    # Each of two layers saves 5 MB a sample and takes 1 ms forward and 1 ms backward a sample. GPipe holds all three samples:
    # 30 MB, with 5 MB to spare. All of it on one device: 3 * 2 * (1 + 1) = 12 ms.
    made = plan_of(DATA / "unequal.json", "--devices", 1, "--mini-batch", 3, "--micro-batches", 2, "--schedule", "gpipe",
                   "--memory-limit", 35000000)
    step = made["predicted"]["step_s"]
    assert abs(step - 0.012) < 1e-9, f"step {step} s instead of 0.012"
    assert abs(made["certificate"]["lower_bound_s"] - 0.012) < 1e-9, made["certificate"]
    return "fits in 30 MB; bound and step 12 ms"


@row("a micro-batch size beyond 32 bits")
def large_size() -> str:
    said = run(2, "pp-plan", DATA / "sizes.json", "--devices", 2, "--bandwidth", 1e9, "--mini-batch", 4)
    assert "/micro_batch_sizes/1" in said and "4294967296" in said, said
    return "refused by place and value"


@row("two all-reduces over one network card")
def shared_card() -> str:
    # Each stage's pair exchanges 2 * 1/2 * 8 MB at 1 GB/s: 8 ms each way. Stage 1 may begin after its backward, at 3 ms; one
    # card for both has moved 16 MB at 19 ms at the earliest.
    made = plan_of(DATA / "cards.json", "--levels", "2@1e12,2@1e9", "--mini-batch", 2, "--micro-batches", 2, "--schedule",
                   "1f1b", "--stages", 2, "--replicas", "2-2", "--placement", "scatter")
    makespan = made["predicted"]["makespan_s"]
    assert 0.019 <= makespan < 0.021, f"{makespan} s"
    return f"the step ends after {makespan * 1e3:.1f} ms"


def main() -> None:
    count = collections.Counter()
    for situation, answer in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                outcome = answer()
                count["right"] += 1
            except Skipped as reason:
                outcome = f"SKIPPED: {reason}"
                count["skipped"] += 1
            except (AssertionError, OSError, subprocess.TimeoutExpired) as wrong:
                outcome = f"WRONG: {wrong}"
                count["wrong"] += 1
            os.chdir(ROOT)
        print(f"{situation:<50}  {outcome}", flush=True)
    print(f"{count['right']} right, {count['wrong']} wrong, {count['skipped']} skipped")
    sys.exit(1 if count["wrong"] else 0)


if __name__ == "__main__":
    main()
