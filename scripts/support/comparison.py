"""The rows of scripts/compare, their figures, and the ranking by measurement beside that by prediction. No files, no processes."""

import itertools
import statistics
import typing

EQUAL = 0.05  # speeds within this of each other count as equal
SYNCHRONOUS = ("flush", "server")  # weight policies whose training is that of a single device


class Row(typing.NamedTuple):
    """A system: what pp-plan and pp-run are asked for."""
    name: str
    title: str
    plan: list[str]
    run: list[str] = []
    all_devices: bool = False   # the best plan that leaves no device unused
    all_profiles: bool = False  # devices of other sizes compete, too
    lacks: str = ""             # a key of the config without which there is no such row


def standard_rows(settings: dict, devices: int) -> list[Row]:
    pipeline = ["--stages", str(devices), "--replicas", "-".join(["1"] * devices)]
    stages, copies = ["--stages", str(devices)], ["--replicas", str(devices)]
    cuts, limit, swaps = settings["manual_cuts"], settings["memory_limit"], settings["swap_bandwidth"]
    by_hand = ["--cuts", ",".join(map(str, cuts or []))]
    cap = ["--memory-limit", str(limit)]
    return [
        Row("single", "single device", ["--schedule", "1f1b", "--stages", "1", "--replicas", "1"]),
        Row("naive", "naive model parallelism", ["--schedule", "naive", "--strategy", "balance-by-time", *stages]),
        Row("all-reduce", "data parallel, all-reduce", ["--schedule", "data-parallel", *copies]),
        Row("parameter-server", "data parallel, parameter server", ["--schedule", "parameter-server", *copies]),
        Row("gpipe-time", "GPipe, balanced by time", ["--schedule", "gpipe", "--strategy", "balance-by-time", *stages]),
        Row("gpipe-size", "GPipe, balanced by size", ["--schedule", "gpipe", "--strategy", "balance-by-size", *stages]),
        Row("gpipe-manual", "GPipe, cut by hand", ["--schedule", "gpipe", "--strategy", "manual", *by_hand],
            lacks="" if cuts else "manual_cuts"),
        Row("1f1b", "1F1B", ["--schedule", "1f1b", *pipeline]),
        Row("pipedream", "PipeDream, stashed weights", ["--schedule", "pipedream", *pipeline]),
        Row("2bw", "PipeDream-2BW", ["--schedule", "2bw", *pipeline]),
        Row("zb-h1", "zero bubble, ZB-H1", ["--schedule", "zb-h1", *stages]),
        Row("dapple", "DAPPLE, its schedule", ["--schedule", "dapple-pa", *stages]),
        Row("dapple-plan", "DAPPLE, its planner", ["--strategy", "dapple"]),
        Row("harmony", "Harmony under the cap", ["--schedule", "harmony-pp", "--swap-bandwidth", str(swaps), *cap],
            lacks="memory_limit" if not limit else "" if swaps else "swap_bandwidth"),
        Row("ours-capped", "our plan under the cap", ["--recompute", "auto", *cap], lacks="" if limit else "memory_limit"),
        Row("ours", "our plan, all devices", [], all_devices=True),
        Row("free", "our plan, free", ["--recompute", "auto"], all_profiles=True),
    ]


def merged(options: list[str], more: list[str]) -> list[str]:
    """Both, without the earlier of two equal options: the tools take each once. An option begins with --, its values follow."""
    groups: dict[str, list[str]] = {}
    for word in [*options, *more]:
        if word.startswith("--") or not groups:
            name = word.split("=")[0]
            groups.pop(name, None)
            groups[name] = []
        groups[name].append(word)
    return [word for group in groups.values() for word in group]


def with_overrides(rows: list[Row], overrides: dict[str, dict]) -> list[Row]:
    return [row._replace(plan=merged(row.plan, overrides.get(row.name, {}).get("plan", [])),
                         run=merged(row.run, overrides.get(row.name, {}).get("run", []))) for row in rows]


# --- figures of a run


class Target(typing.NamedTuple):
    """What a training is to reach: an accuracy from below, or a loss from above."""
    quantity: str  # test_accuracy or test_loss
    value: float

    def reached(self, epoch: dict) -> bool:
        measured = epoch.get(self.quantity)
        return measured is not None and (measured >= self.value if self.quantity == "test_accuracy" else measured <= self.value)


def training_seconds(epochs: list[dict]) -> list[float]:
    """Seconds of training from the begin to the end of each epoch, without the evaluations between: a report's elapsed_s is taken
    before its own epoch's evaluation."""
    evaluated = [0.0, *itertools.accumulate(epoch.get("evaluation_s") or 0.0 for epoch in epochs)]
    return [epoch["elapsed_s"] - before for epoch, before in zip(epochs, evaluated)]


def moved_bytes(report: dict) -> float:
    """Bytes of a step between devices: messages as measured, and for the gradients G of a stage with r replicas 2 (r-1) G, what
    a ring all-reduce sends in all, or 2 r G by a server: G to it and as many weights back. Of swapped weights also what goes
    between host and device, as measured."""
    messages = sum(worker["sent_bytes_per_step"] for worker in report["workers"])
    swaps = sum(worker[way]["bytes"] for worker in report["workers"] for way in ("swaps_in", "swaps_out") if way in worker)
    plan = report["plan"]
    served = plan["schedule"]["weight_policy"] == "server"
    sums = 0
    for stage, cost in zip(plan["stages"], plan["predicted"]["stages"]):
        replicas = len(stage["workers"])
        sums += 2 * (replicas if served else replicas - 1) * cost["gradients_bytes"]
    return messages + sums + swaps / report["steps"]


def by_device(report: dict, value: typing.Callable[[dict], float]) -> list[float]:
    """Of each device that has workers, in their order, the sum over them."""
    device = {worker["id"]: worker["device"] for worker in report["plan"]["workers"]}
    sums: dict[int, float] = {}
    for worker in report["workers"]:
        sums[device[worker["id"]]] = sums.get(device[worker["id"]], 0.0) + value(worker)
    return [sums[key] for key in sorted(sums)]


def figures(report: dict, target: Target | None) -> dict:
    """What the tables and pictures show of a run; None where a run has no such figure."""
    epochs, seconds = report["epochs"], training_seconds(report["epochs"])
    lengths = [end - begin for begin, end in zip([0.0, *seconds], seconds)]
    at = next((i for i, epoch in enumerate(epochs) if target and target.reached(epoch)), None)
    busy = by_device(report, lambda worker: 1 - worker["bubble_fraction"])
    last = epochs[-1] if epochs else {}
    return {
        "synchronous": report["plan"]["schedule"]["weight_policy"] in SYNCHRONOUS,
        "devices": len(busy),
        "measured_samples_per_s": report["samples_per_s"],
        "predicted_samples_per_s": report["plan"]["predicted"]["samples_per_s"] or None,
        "seconds_per_epoch": statistics.median(lengths) if lengths else None,
        "peak_bytes": by_device(report, lambda worker: worker["peak_bytes"]),
        "utilisation_average": sum(busy) / len(busy),
        "utilisation_maximum": max(busy),
        "moved_bytes_per_step": moved_bytes(report),
        "test_accuracy": last.get("test_accuracy"),
        "test_loss": last.get("test_loss"),
        "epochs_to_target": None if at is None else at + 1,
        "seconds_to_target": None if at is None else seconds[at],
        "curve": [{"epoch": i + 1, "seconds": seconds[i], **{key: epoch.get(key) for key in ("train_loss", "test_loss", "test_accuracy")}}
                  for i, epoch in enumerate(epochs)],
        "step_losses": report["step_losses"],
    }


# --- ranking


class Pairs(typing.NamedTuple):
    """Of all pairs of rows: in how many both rankings name the same one as faster, in how many a ranking calls them equal, and
    the names (faster by measurement, faster by prediction) of those where each names another one."""
    agreeing: int
    equal: int
    disagreeing: list[tuple[str, str]]


def order(first: float, second: float) -> int:
    """1 where the first is larger by more than EQUAL of the second, -1 the other way round, else 0."""
    return (first > second * (1 + EQUAL)) - (second > first * (1 + EQUAL))


def compare_pairs(measured: dict[str, float], predicted: dict[str, float]) -> Pairs:
    agreeing, equal, disagreeing = 0, 0, []
    for first, second in itertools.combinations(measured, 2):
        by_run, by_plan = order(measured[first], measured[second]), order(predicted[first], predicted[second])
        if by_run == 0 or by_plan == 0:
            equal += 1
        elif by_run == by_plan:
            agreeing += 1
        else:
            disagreeing.append((first, second) if by_run > 0 else (second, first))
    return Pairs(agreeing, equal, disagreeing)


def places(speeds: dict[str, float]) -> dict[str, int]:
    """The fastest has place 1; equal speeds in their order."""
    return {name: number for number, name in enumerate(sorted(speeds, key=lambda name: -speeds[name]), 1)}
