"""python3 tests/scripts/trainer_parsers.py: twelve plans each are exported for every trainer and read by the trainer's own parser
(megatron-core; Hydra for Megatron Bridge, verl and NeMo RL; DeepSpeed; TorchTitan; NeMo AutoModel), which must find the plan's
stages. What this Python lacks is skipped by name. Needs torch (scripts/support/with_torch.py), and PP_BIN, the folder of the tools.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PP_BIN", ROOT / "build/release/bin"))
MODEL = f"{ROOT}/configs/cluster-plan/llama-8b.json:sequence=4096"
MACHINE = ["--levels", "8@450GB/s,2@8x50GB/s", "--memory", "200GiB"]
# Options of pp-profile estimate, then of pp-plan. Trainers other than Megatron have no groups, narrow products or layouts.
ONE, TWO, FOUR = "--stages 1 --replicas 16", "--stages 2 --replicas 8-8", "--stages 4 --replicas 4-4-4-4"
PLAIN = [("", ONE), ("", TWO), ("", FOUR), ("", "--stages 8 --replicas 2-2-2-2-2-2-2-2"), ("", f"{TWO} --micro-batches 64"),
         ("", f"{FOUR} --recompute always"), ("--checkpoint", TWO), ("", f"{ONE} --recompute always"),
         ("", "--stages 16 --replicas 1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1")]
MEGATRON = [*PLAIN[:7], ("", "--layout Et*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4L --schedule interleaved --chunks 2"),
            ("--tensor 2", "--shard optimizer --schedule interleaved --stages 4"),
            ("--tensor 2 --context-parallel 2", "--shard optimizer"), ("--dtype float8", "--layout Et*7|t*9|t*9|t*7L"),
            ("--checkpoint=attention", "--memory-limit 30GiB --shard optimizer")]
DEEPSPEED = [*PLAIN, *[("", f"{cut} --optimizer {name}") for cut, name in ((TWO, "adam"), (FOUR, "sgd"), (ONE, "adamw"))]]
TITAN = [*[row for row in PLAIN[1:6]], *[("", f"--schedule {name}{more}") for name, more in (
    ("interleaved", f" {FOUR}"), ("looped-bfs", f" {FOUR}"), ("zb-h1", f" {FOUR}"), ("zb-v", f" {TWO}"), ("dualpipe-v", f" {FOUR}"),
    ("zb-v", f" {FOUR} --micro-batches 64"), ("interleaved", f" {TWO} --recompute always"))]]


def run(folder: pathlib.Path, *command: Any) -> str:
    done = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def blocks_of(plan: dict) -> list[int]:
    """Of each stage, as the layers' names count them."""
    numbers = [[re.search(r"layers\.(\d+)\.", name) for name in stage["layers"]] for stage in plan["stages"]]
    return [len({found[1] for found in stage if found}) for stage in numbers]


def arguments_of(text: str) -> dict[str, str]:
    return {words[0].removeprefix("--").replace("-", "_"): " ".join(words[1:]) for words in map(str.split, text.splitlines())}


def megatron_stages(layout: str, workers: int) -> list[int]:
    """By Megatron-Core; its list goes by worker, then by chunk."""
    from megatron.core.transformer.enums import LayerType
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    found = PipelineParallelLayerLayout.from_str(layout, workers).layout
    return [stage.count(LayerType.decoder) for chunk in zip(*found) for stage in chunk]


def megatron(folder: pathlib.Path, plan: dict) -> None:
    import torch
    from megatron.core.transformer.transformer_config import TransformerConfig
    given = arguments_of((folder / "arguments.txt").read_text()) | arguments_of((folder / "model.txt").read_text())
    workers = int(given["pipeline_model_parallel_size"])
    assert megatron_stages(given["pipeline_model_parallel_layout"], workers) == blocks_of(plan)
    known = {"num_layers": int, "hidden_size": int, "num_attention_heads": int, "ffn_hidden_size": int, "num_query_groups": int,
             "tensor_model_parallel_size": int, "context_parallel_size": int, "recompute_granularity": str, "recompute_method": str,
             "recompute_num_layers": int, "fp8_recipe": str}
    settings = {name: read(given[name]) for name, read in known.items() if name in given}
    settings |= {"recompute_modules": given["recompute_modules"].split()} if "recompute_modules" in given else {}
    settings |= {"fp8": given["fp8_format"]} if "fp8_format" in given else {}
    config = TransformerConfig(**settings, sequence_parallel="sequence_parallel" in given, pipeline_model_parallel_size=workers,
                               pipeline_model_parallel_layout=given["pipeline_model_parallel_layout"] if workers > 1 else None,
                               pipeline_dtype=torch.bfloat16, bf16="bf16" in given)
    assert (config.virtual_pipeline_model_parallel_size or 1) * workers == len(plan["stages"])


def overrides(folder: pathlib.Path, plan: dict) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    read = OverridesParser.create().parse_overrides((folder / "overrides.txt").read_text().split())
    values = {one.key_or_group.split(".")[-1]: one.value() for one in read}
    workers = values["pipeline_model_parallel_size"]
    assert workers == 1 or megatron_stages(values["pipeline_model_parallel_layout"], workers) == blocks_of(plan)


def deepspeed(folder: pathlib.Path, plan: dict) -> None:
    import tomli
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig
    comm.get_rank = lambda: 0  # without it there is one replica, whatever the next class says
    replicas = len(plan["stages"][0]["workers"])

    class Ranks:
        def get_data_parallel_world_size(self) -> int:
            return replicas

    config = DeepSpeedConfig(str(folder / "ds_config.json"), Ranks())
    assert config.train_batch_size == plan["training"]["mini_batch"]
    assert config.gradient_accumulation_steps * replicas == plan["training"]["micro_batches"]
    split = tomli.loads((folder / "partition.toml").read_text())
    assert split["pipeline_stages"] == len(plan["stages"]) and len(split.get("partition_split", [])) == len(plan["stages"]) - 1


def check_order(folder: pathlib.Path, plan: dict) -> None:
    from torch.distributed.pipelining.schedules import _Action
    rows = [[_Action.from_str(cell) for cell in row.split(",") if cell] for row in (folder / "schedule.csv").read_text().split()]
    assert sorted({action.stage_index for row in rows for action in row}) == list(range(len(plan["stages"])))


def check_parts(parts: list[list[str]] | None, folder: pathlib.Path, plan: dict) -> None:
    """Modules by stage; none without a pipeline."""
    if parts is None:
        assert len(plan["stages"]) == 1, [stage["workers"] for stage in plan["stages"]]
        return
    assert [sum(re.fullmatch(r"(model\.)?layers\.\d+", name) is not None for name in part) for part in parts] == blocks_of(plan)
    check_order(folder, plan)


def torchtitan(folder: pathlib.Path, plan: dict) -> None:
    from torchtitan.config import ConfigManager
    sys.path.insert(0, str(folder))
    sys.modules.pop("plan_config", None)
    config = ConfigManager().parse_args(["--module", "plan_config", "--config", "plan"])
    sys.path.pop(0)
    assert config.training.global_batch_size == plan["training"]["mini_batch"]
    check_parts(config.parallelism.module_fqns_per_model_part, folder, plan)


def automodel(folder: pathlib.Path, plan: dict) -> None:
    import yaml
    from nemo_automodel.recipes._dist_utils import parse_distributed_section
    section = yaml.safe_load((folder / "config.yaml").read_text())["distributed"]
    pipeline = parse_distributed_section(section)["pipeline_config"]
    check_parts(pipeline and pipeline.module_fqns_per_model_part, folder, plan)


# Format, --for, --trainer, plans, options of all, reader.
TRAINERS: list[tuple[str, str, str, list[tuple[str, str]], str, Callable[[pathlib.Path, dict], None]]] = [
    ("megatron", "megatron", "nemo", MEGATRON, "", megatron),
    *[(name, name, "nemo", [row for row in MEGATRON if "float8" not in row[0]] + [("", f"{TWO} --shard optimizer")], "", overrides)
      for name in ("megatron-bridge", "verl", "nemo-rl")],
    ("deepspeed", "deepspeed", "megatron", DEEPSPEED, "", deepspeed),
    ("torchtitan", "torchtitan", "torchtitan", TITAN, "", torchtitan),
    ("nemo-automodel", "torchtitan", "torchtitan", TITAN, "--precision plain", automodel)]


def main() -> None:
    skipped = []
    with tempfile.TemporaryDirectory() as made:
        for name, limits, steps, rows, options, read in TRAINERS:
            try:
                for number, (estimate, plan) in enumerate(rows):
                    folder = pathlib.Path(made, name, str(number))
                    folder.mkdir(parents=True)
                    types = [] if "--dtype" in estimate else ["--dtype", "bfloat16"]
                    run(folder, BIN / "pp-profile", "estimate", MODEL, "--device-spec", "h100", "--trainer", steps, *types,
                        "--micro-batch-sizes", "1,2", *estimate.split(), "-q", "-o", "profile.json")
                    run(folder, BIN / "pp-plan", "profile.json", *MACHINE, "--mini-batch", 64, "--for", limits,
                        *f"{plan} {options}".split(), "-q", "-o", "plan.json")
                    run(folder, BIN / "pp-plan", "export", "plan.json", "--format", name, "-o", "launch")
                    read(folder / "launch", json.loads((folder / "plan.json").read_text()))
                print(f"{name}: {len(rows)} plans")
            except ImportError as error:
                skipped.append(name)
                print(f"{name}: skipped, {error}")
    if len(skipped) == len(TRAINERS):
        sys.exit(77)


if __name__ == "__main__":
    main()
