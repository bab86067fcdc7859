"""What scripts/bench gpu compares with: networks in PyTorch, trained by a plain loop on one GPU.

    gpu_networks.py NETWORK --batch SAMPLES --micro-batches M --steps N ...

The loop adds the gradients of M micro-batches and steps SGD with momentum, one fused kernel for all parameters. The samples
are on the device, and nothing waits for it but the end of a round of steps. stdout gets one JSON object: step_s, the median of
the rounds; peak_bytes, the largest sum of blocks that the allocator had given out; losses of the first and the last step.
"""

import argparse
import contextlib
import functools
import json
import pathlib
import statistics
import time
import typing

import torch
from torch import nn

from torch_pipelines import AttentionHalf, Embedding, PerceptronHalf, loss_of
from torch_pipelines import resnet50 as resnet50_units, vgg16 as vgg16_units


# --- networks


def vgg16() -> nn.Module:
    """As published but for its dropout."""
    features = [unit.module for unit in vgg16_units() if unit.prefix == "features."]
    return nn.Sequential(*features, nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(inplace=True),
                         nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Linear(4096, 1000))


def resnet50() -> nn.Module:
    return nn.Sequential(*(unit.module for unit in resnet50_units()))


class Gpt2(nn.Module):
    """Without dropout; the head has a weight of its own, so that every schedule may cut anywhere."""

    def __init__(self, length: int, width: int = 768, heads: int = 12, layers: int = 12, vocabulary: int = 50257):
        super().__init__()
        self.embedding = Embedding(vocabulary, length, width)
        self.blocks = nn.Sequential(*(half for _ in range(layers) for half in (AttentionHalf(width, heads), PerceptronHalf(width))))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


class HuggingFace(nn.Module):
    """As transformers builds it from a config.json, with its fused attention."""

    def __init__(self, values: dict):
        super().__init__()
        from transformers import AutoConfig, AutoModelForCausalLM
        self.model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values), attn_implementation="sdpa")

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, use_cache=False).logits


class Network(typing.NamedTuple):
    make: typing.Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    tokens: bool  # the input is tokens, and every position has a label


NETWORKS = {
    "vgg16": Network(vgg16, (3, 224, 224), 1000, False),
    "resnet50": Network(resnet50, (3, 224, 224), 1000, False),
    "gpt2": Network(lambda: Gpt2(512), (512,), 50257, True),
    "gpt2_large": Network(lambda: Gpt2(1024, width=1280, heads=20, layers=36), (1024,), 50257, True),
}


def hugging_face(name: str) -> Network:
    """Of config.json:sequence=N."""
    path, length = name.rsplit(":sequence=", 1)
    values = json.loads(pathlib.Path(path).read_text())
    return Network(functools.partial(HuggingFace, values), (int(length),), values["vocab_size"], True)


# --- training


def train(arguments: argparse.Namespace) -> dict:
    network, device = NETWORKS.get(arguments.network) or hugging_face(arguments.network), torch.device(arguments.device)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = arguments.deterministic
    # Pools of the others have no deterministic kernel; told to warn only, attention is not deterministic either.
    torch.use_deterministic_algorithms(arguments.deterministic, warn_only=not network.tokens)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(1)
    with torch.device(device):
        model = network.make().to(getattr(torch, arguments.dtype))
        x = torch.randint(network.classes, (arguments.batch, *network.shape)) if network.tokens else \
            torch.randn((arguments.batch, *network.shape), dtype=getattr(torch, arguments.dtype))
        y = torch.randint(network.classes, (arguments.batch, *(network.shape if network.tokens else ())))
    half = torch.autocast(device.type, torch.bfloat16) if arguments.autocast else contextlib.nullcontext()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, fused=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=device)
        for part, label in zip(x.chunk(arguments.micro_batches), y.chunk(arguments.micro_batches)):
            with half:
                loss = loss_of(model(part), label) / arguments.micro_batches
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    losses = [step().item() for _ in range(3)]
    rounds = []
    for _ in range(3):
        begin = time.perf_counter()
        for _ in range(arguments.steps):
            last = step()
        losses.append(last.item())
        rounds.append((time.perf_counter() - begin) / arguments.steps)
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
    return {"step_s": statistics.median(rounds), "rounds_s": rounds, "peak_bytes": peak, "losses": [losses[0], losses[-1]]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help=f"of {', '.join(NETWORKS)}, or config.json:sequence=N of Hugging Face")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dtype", default="float32", help="of weights and activations (%(default)s)")
    parser.add_argument("--autocast", action="store_true", help="products in bfloat16")
    parser.add_argument("--deterministic", action="store_true", help="no kernel whose sums depend on time")
    parser.add_argument("--batch", type=int, required=True, help="samples of a step")
    parser.add_argument("--micro-batches", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="of a round; there are three")
    print(json.dumps(train(parser.parse_args())))


if __name__ == "__main__":
    main()
