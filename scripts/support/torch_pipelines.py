"""What scripts/bench torch compares with: our benchmark's networks in PyTorch, trained as a good PyTorch user would.

    torch_pipelines.py FOLDER NETWORK --make ...            writes weights.safetensors and train.safetensors there
    torch_pipelines.py FOLDER NETWORK --schedule NAME ...   trains on them, one thread a process, SGD with momentum

`loop` is a plain loop in one process that adds the gradients of M micro-batches; the others are schedules of
torch.distributed.pipelining on two processes over Gloo, of which this is one (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT).
stdout gets one JSON object: step_s, the median time from the end of a step to that of the next without the first three, and,
of the process that has the loss, losses.

Networks are lists of units, between which they may be cut; a unit is named after its first layer in our built-in model, and
parameters have the names that they have there. No dropout, so that training is the same to rounding.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
import typing
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from import_torch.weights import decode, encode  # noqa: E402


class Unit(typing.NamedTuple):
    prefix: str  # before the names of the module's parameters
    module: nn.Module

    def first_layer(self) -> str:
        return self.prefix + next(iter(self.module.named_children()))[0]


def sequence(prefix: str, **layers: nn.Module) -> Unit:
    return Unit(prefix, nn.Sequential(OrderedDict(layers)))


# --- networks


def mlp() -> list[Unit]:
    widths = [784] + 6 * [1024]
    hidden = [sequence("", **{f"fc{i}": nn.Linear(a, b), f"relu{i}": nn.ReLU(inplace=True)})
              for i, (a, b) in enumerate(zip(widths, widths[1:]), 1)]
    return hidden + [sequence("", fc7=nn.Linear(1024, 10))]


def vgg16() -> list[Unit]:
    units, channels, i = [], 3, 0
    for width in (64, 64, "pool", 128, 128, "pool", *3 * [256], "pool", *3 * [512], "pool", *3 * [512], "pool"):
        if width == "pool":
            units.append(sequence("features.", **{str(i): nn.MaxPool2d(2)}))
            i += 1
        else:
            units.append(sequence("features.", **{str(i): nn.Conv2d(channels, width, 3, padding=1),
                                                  str(i + 1): nn.ReLU(inplace=True)}))
            channels, i = width, i + 2
    return units + [sequence("", avgpool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten()),
                    sequence("classifier.", **{"0": nn.Linear(512, 4096), "1": nn.ReLU(inplace=True)}),
                    sequence("classifier.", **{"3": nn.Linear(4096, 4096), "4": nn.ReLU(inplace=True)}),
                    sequence("classifier.", **{"6": nn.Linear(4096, 10)})]


class Embedding(nn.Module):
    """Tokens and learned positions."""

    def __init__(self, vocabulary: int, length: int, width: int):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(length, width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.token_embedding(tokens) + self.position_embedding.weight


class Attention(nn.Module):
    """Causal self-attention with the parameters of nn.MultiheadAttention."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(3 * width, width)))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, width = x.shape
        projected = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        query, key, value = projected.view(samples, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))


class AttentionHalf(nn.Module):
    """Of a block: what attention adds."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(self.norm1(x))


class PerceptronHalf(nn.Module):
    """Of a block: what the perceptron adds."""

    def __init__(self, width: int):
        super().__init__()
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


def language_model(length: int) -> list[Unit]:
    width, heads, vocabulary = 256, 4, 1000
    halves = [Unit(f"block{i}.", half) for i in range(4) for half in (AttentionHalf(width, heads), PerceptronHalf(width))]
    return [Unit("", Embedding(vocabulary, length, width)), *halves,
            sequence("", norm=nn.LayerNorm(width), head=nn.Linear(width, vocabulary, bias=False))]


class Bottleneck(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, 4 * channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels_in != 4 * channels:
            self.downsample = nn.Sequential(nn.Conv2d(channels_in, 4 * channels, 1, stride, bias=False),
                                            nn.BatchNorm2d(4 * channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


def resnet50() -> list[Unit]:
    units = [sequence("", conv1=nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), bn1=nn.BatchNorm2d(64),
                      relu=nn.ReLU(inplace=True), maxpool=nn.MaxPool2d(3, 2, padding=1))]
    channels_in = 64
    for group, (channels, depth) in enumerate(zip((64, 128, 256, 512), (3, 4, 6, 3)), 1):
        for i in range(depth):
            stride = 2 if group > 1 and i == 0 else 1
            units.append(Unit(f"layer{group}.{i}.", Bottleneck(channels_in, channels, stride)))
            channels_in = 4 * channels
    return units + [sequence("", avgpool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten(), fc=nn.Linear(2048, 1000))]


class Network(typing.NamedTuple):
    units: typing.Callable[[], list[Unit]]
    input_name: str
    input_shape: tuple[int, ...]
    classes: int
    tokens: bool = False  # the input is tokens, and every position has a label


def transformer(length: int) -> Network:
    return Network(lambda: language_model(length), "tokens", (length,), 1000, True)


NETWORKS = {
    "mlp": Network(mlp, "features", (784,), 10),
    "vgg16": Network(vgg16, "image", (3, 32, 32), 10),
    "lm": transformer(128),
    "resnet50": Network(resnet50, "image", (3, 64, 64), 1000),
    **{f"lm-{length}": transformer(length) for length in (128, 256, 512, 1024)},
}


# --- weights and data


def parameters(units: list[Unit]) -> dict[str, torch.Tensor]:
    return {unit.prefix + name: tensor for unit in units for name, tensor in unit.module.named_parameters()}


def make(folder: pathlib.Path, network: Network, batch: int, steps: int) -> None:
    """All steps have the same samples, so that the losses fall and tell what the updates did."""
    torch.manual_seed(1)
    shape = (batch, *network.input_shape)
    x = torch.randint(network.classes, shape) if network.tokens else torch.randn(shape)
    y = torch.randint(network.classes, shape if network.tokens else (batch,))
    data = {network.input_name: torch.cat([x] * steps), "label": torch.cat([y] * steps)}
    (folder / "train.safetensors").write_bytes(encode(data))
    (folder / "weights.safetensors").write_bytes(encode(parameters(network.units())))


def load_weights(folder: pathlib.Path, units: list[Unit]) -> None:
    stored = decode((folder / "weights.safetensors").read_bytes())
    with torch.no_grad():
        for name, tensor in parameters(units).items():
            tensor.copy_(stored[name])


def load_batches(folder: pathlib.Path, network: Network, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    data = decode((folder / "train.safetensors").read_bytes())
    return list(zip(data[network.input_name].split(size), data["label"].split(size)))


# --- training


def loss_of(prediction: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(prediction.flatten(0, -2), label.flatten())


def sgd(modules: list[nn.Module], rate: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=rate, momentum=0.9, fused=True)


def loop_step(units: list[Unit], count: int) -> typing.Callable:
    model = nn.Sequential(*(unit.module for unit in units))

    def step(x: torch.Tensor, y: torch.Tensor) -> float:
        total = 0.0
        for part, label in zip(x.chunk(count), y.chunk(count)):
            loss = loss_of(model(part), label) / count
            loss.backward()
            total += loss.item()
        return total

    return step


def stages_of_rank(schedule: str, rank: int) -> list[int]:
    if schedule in ("1f1b", "gpipe"):
        return [rank]
    return [rank, 3 - rank] if schedule == "zb-v" else [rank, rank + 2]


def pipeline_step(units: list[Unit], count: int, schedule: str, cuts: list[str], rank: int) -> tuple[typing.Callable, list]:
    """The step of this process, and the modules of its stages."""
    from torch.distributed import pipelining
    kinds = {"1f1b": pipelining.Schedule1F1B, "gpipe": pipelining.ScheduleGPipe,
             "interleaved": pipelining.ScheduleInterleaved1F1B, "zb": pipelining.ScheduleInterleavedZeroBubble,
             "zb-v": pipelining.ScheduleZBVZeroBubble}
    names = [unit.first_layer() for unit in units]
    bounds = [0, *map(names.index, cuts), len(units)]
    numbers = stages_of_rank(schedule, rank)
    modules = [nn.Sequential(*(unit.module for unit in units[bounds[i]:bounds[i + 1]])) for i in numbers]
    stages = [pipelining.PipelineStage(module, i, len(cuts) + 1, torch.device("cpu")) for module, i in zip(modules, numbers)]
    single = schedule in ("1f1b", "gpipe")
    run = kinds[schedule](stages[0] if single else stages, count, loss_fn=loss_of)
    has_loss = any(stage.is_last for stage in stages)

    def step(x: torch.Tensor, y: torch.Tensor) -> float | None:
        losses: list[torch.Tensor] = []
        inputs = [x] if rank == 0 else []
        run.step(*inputs, target=y if has_loss else None, losses=losses if has_loss else None, return_outputs=False)
        return sum(loss.item() for loss in losses) / count if has_loss else None

    return step, modules


def train(arguments: argparse.Namespace) -> dict:
    rank, network = int(os.environ.get("RANK", "0")), NETWORKS[arguments.network]
    threads = arguments.threads
    torch.set_num_threads(threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[rank * threads:(rank + 1) * threads])
    units = network.units()
    load_weights(arguments.folder, units)
    batches = load_batches(arguments.folder, network, arguments.batch)
    if arguments.schedule == "loop":
        step, modules = loop_step(units, arguments.micro_batches), [unit.module for unit in units]
    else:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.distributed.init_process_group("gloo")
        step, modules = pipeline_step(units, arguments.micro_batches, arguments.schedule, arguments.cuts.split(","), rank)
    optimizer = sgd(modules, arguments.lr)
    losses, ends = [], []
    for x, y in batches[:arguments.steps]:
        optimizer.zero_grad()
        losses.append(step(x, y))
        optimizer.step()
        ends.append(time.perf_counter())
    if arguments.schedule != "loop":
        torch.distributed.destroy_process_group()
    return {"step_s": statistics.median(b - a for a, b in zip(ends[2:], ends[3:])),
            "losses": [] if losses[0] is None else losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("network", choices=list(NETWORKS))
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--schedule", choices=["loop", "1f1b", "gpipe", "interleaved", "zb", "zb-v"], default="loop")
    parser.add_argument("--cuts", default="", help="first layers of the stages but the first: fc3,fc5")
    parser.add_argument("--batch", type=int, required=True, help="samples of a step")
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--threads", type=int, default=1, help="of each rank, on as many cores")
    arguments = parser.parse_args()
    if arguments.make:
        make(arguments.folder, NETWORKS[arguments.network], arguments.batch, arguments.steps)
        print(json.dumps({"units": [unit.first_layer() for unit in NETWORKS[arguments.network].units()]}))
    else:
        print(json.dumps(train(arguments)))


if __name__ == "__main__":
    main()
