"""python3 tests/scripts/make_import_fixtures.py [--check]: writes tests/data/import, small imported models, each compared with
its module as it is imported. With --check it writes nothing and exits 1 when the documents there differ.

NAME.json                 the model
NAME.weights.safetensors  its weights
tuned-KIND.*              a module of which a part trains; tuned-KIND.golden.safetensors holds inputs and targets, and in
                          `after.PARAMETER` all parameters after ten steps of torch.optim.SGD on them (TUNING);
                          tuned-grouped of AdamW with groups of parameters
"""

import json
import logging
import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "scripts")]
sys.dont_write_bytecode = True
logging.getLogger("torch.utils.flop_counter").disabled = True

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from decoder_modules import DECODERS  # noqa: E402
from import_torch import factory, importer, weights  # noqa: E402
from import_torch.document import indented  # noqa: E402

FOLDER = ROOT / "tests" / "data" / "import"


class Attention(nn.Module):
    """torch.nn's own attention ([positions, batch, width] within), a causal mask, a last layer tied to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.positions = nn.Parameter(torch.randn(1, 5, 8) * 0.1)
        self.block = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True, activation="gelu")
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = torch.full((5, 5), float("-inf")).triu(1)
        return self.head(self.block(self.tokens(tokens) + self.positions, src_mask=mask))


class Windows(nn.Module):
    """Windows of an image as rows, relative positions from a buffer, several outputs of an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 2) * 0.5)
        self.register_buffer("index", torch.tensor([[4, 5, 7, 8], [3, 4, 6, 7], [1, 2, 4, 5], [0, 1, 3, 4]]))
        self.norm = nn.LayerNorm(4)
        self.qkv = nn.Linear(4, 12)
        self.out = nn.Linear(4, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.roll(self.norm(image.permute(0, 2, 3, 1)), (-1, -1), (1, 2))  # [b, 4, 4, 4]
        x = x.reshape(-1, 2, 2, 2, 2, 4).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 4)  # [4 b, 4, 4]
        q, k, v = self.qkv(x).reshape(-1, 4, 3, 2, 2).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index].permute(2, 0, 1)
        shares = F.dropout(torch.softmax(q @ k.transpose(-2, -1) + bias, -1), 0.1, self.training)
        x = (shares @ v).transpose(1, 2).reshape(-1, 16, 4)
        return self.out(x.mean(1))


class Residual(nn.Module):
    """Batch norm within a block, squeeze and excitation, stochastic depth, operations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.gate = nn.Conv2d(4, 4, 1)
        self.down = nn.Conv2d(2, 4, 1)
        self.scale = nn.Parameter(torch.rand(4, 1, 1))
        self.fc = nn.Linear(4, 3)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = F.hardswish(self.bn(self.conv(image)), inplace=True)
        x = x * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(x, 1))) * self.scale
        if self.training:
            x = x * torch.empty(x.shape[0], 1, 1, 1).bernoulli_(0.75).div_(0.75)
        x += self.down(image)
        return self.fc(x.relu_().mean((2, 3)))


class Constants(nn.Module):
    """Formulas of every kind, and a table that only the weights file has."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.rand(70, 70, 6), persistent=False)
        self.register_buffer("rates", torch.tensor([1.0, 0.3, 0.01]), persistent=False)
        self.lin = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(70.0), self.rates)
        x = x + torch.cat([angles.cos(), angles.sin()], -1) + torch.arange(70.0)[:, None] / 64
        shares = torch.softmax(x @ x.transpose(1, 2) + torch.full((70, 70), float("-inf")).triu(2), -1)
        return self.lin(torch.einsum("bij,ijk->bik", shares, self.table)).mean(1)


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.conv(image)


class LowRank(nn.Module):
    """A linear layer with a low-rank addition."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(8, 8)
        self.lora_down = nn.Linear(8, 2, bias=False)
        self.lora_up = nn.Linear(2, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.lora_up(self.lora_down(x))


class Tuned(nn.Module):
    """A block of attention, of which `trains(name)` says what trains."""

    def __init__(self, trains: Any) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.query, self.key, self.value = LowRank(), nn.Linear(8, 8), LowRank()
        self.out = nn.Linear(8, 8)
        self.head = nn.Linear(8, 11)
        for name, parameter in self.named_parameters():
            parameter.requires_grad = trains(name)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        y = self.norm(x)
        q, k, v = (part(y).unflatten(2, (2, 4)).transpose(1, 2) for part in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(torch.tanh(x + self.out(y)))


TUNING = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1}
TUNED = {"body": lambda name: name.startswith("head"), "lora": lambda name: "lora" in name,
         "bitfit": lambda name: name.endswith("bias"), "norms": lambda name: name.startswith("norm"),
         "embedding": lambda name: not name.startswith("tokens"), "grouped": lambda name: True}


def grouped_optimizer(module: nn.Module) -> torch.optim.Optimizer:
    """--no-decay bias,norm --lr-factors tokens=0.1,head.*=2 as torch.optim's groups."""
    def options(name: str) -> dict[str, float]:
        rate = 0.1 if "tokens" in name else 2.0 if name.startswith("head.") else 1.0
        return {"lr": 0.01 * rate, "weight_decay": 0.0 if "bias" in name or "norm" in name else 0.3}
    return torch.optim.AdamW([{"params": [parameter], **options(name)} for name, parameter in module.named_parameters()])


def tuned(kind: str) -> dict[str, bytes]:
    torch.manual_seed(0)
    module, examples = Tuned(TUNED[kind]), [factory.parse_example("int64:5:0..10")]
    factory.name_inputs(module, examples)
    imported = importer.import_module(module, examples, f"tuned-{kind}", "cross_entropy", "module")
    torch.manual_seed(1)
    tokens, label = torch.randint(0, 11, (4, 5)), torch.randint(0, 11, (4, 5))
    optimizer = (grouped_optimizer(module) if kind == "grouped" else
                 torch.optim.SGD([p for p in module.parameters() if p.requires_grad], **TUNING))
    for _ in range(10):
        optimizer.zero_grad()
        F.cross_entropy(module(tokens).flatten(0, 1), label.flatten()).backward()
        optimizer.step()
    after = {f"after.{name}": parameter.detach() for name, parameter in module.named_parameters()}
    data = {examples[0].name: tokens, imported.document["targets"][0]["name"]: label}
    return {f"tuned-{kind}.json": (indented(imported.document) + "\n").encode(),
            f"tuned-{kind}.weights.safetensors": weights.encode(imported.weights),
            f"tuned-{kind}.golden.safetensors": weights.encode(data | after)}


MODELS = {"attention": (Attention, "int64:5:0..10", "module"),
          "attention-blocks": (Attention, "int64:5:0..10", "block"),
          "windows": (Windows, "float32:4x4x4", "module"), "residual": (Residual, "float32:2x6x6", "block"),
          "constants": (Constants, "float32:70x6", "module"), "pixels": (Pixels, "float32:2x5x4", "module"),
          **{f"decoder-{name}": (make, "int64:12:0..18", "block") for name, make in DECODERS.items()}}


def fixture(name: str) -> dict[str, bytes]:
    torch.manual_seed(0)
    make, text, level = MODELS[name]
    module, examples = make(), [factory.parse_example(text)]
    factory.name_inputs(module, examples)
    imported = importer.import_module(module, examples, name, "cross_entropy", level)
    return {f"{name}.json": (indented(imported.document) + "\n").encode(),
            f"{name}.weights.safetensors": weights.encode(imported.weights)}


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        print(__doc__)
        return 2
    FOLDER.mkdir(exist_ok=True)
    differs = False
    for made in [*map(fixture, MODELS), *map(tuned, TUNED)]:
        for file, content in made.items():
            place = FOLDER / file
            if not check:
                place.write_bytes(content)
            elif file.endswith(".json"):
                differs = differs or json.loads(place.read_text()) != json.loads(content)
            print(f"{place.relative_to(ROOT)}: {len(content)} bytes")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
