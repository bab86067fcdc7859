"""A PyTorch module and its data, as they may look: handwritten digits, 8x8 pixels. scripts/import_torch/README.md uses
it."""

import pathlib
from collections.abc import Iterator

import torch

DIGITS = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits"


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


class Digits(torch.nn.Module):
    def __init__(self, width: int = 32, blocks: int = 4) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(1, width, 3, padding=1)
        self.blocks = torch.nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.head = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(),
                                        torch.nn.Linear(4 * width, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(image)))


def make(width: int = 32) -> torch.nn.Module:
    torch.manual_seed(0)
    return Digits(width)


class Samples(torch.utils.data.Dataset):
    """Of IDX files: two bytes of zero, the type, the number of dimensions, each dimension in four bytes; then the
    values."""

    def __init__(self, part: str) -> None:
        def read(name: str) -> torch.Tensor:
            content = bytearray((DIGITS / f"{part}-{name}.idx").read_bytes())
            return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * content[3])
        self.label = read("labels").long()
        self.image = read("images").reshape(len(self.label), 1, 8, 8) / 255

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.image[k], self.label[k]


def train() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(Samples("train"), batch_size=64)


def test() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(Samples("test"), batch_size=64)


def batches() -> Iterator[list[torch.Tensor]]:
    """For the exported launcher: mini-batches of one epoch after the other, without end."""
    while True:
        yield from (batch for batch in train() if len(batch[0]) == 64)


def accuracy(weights: dict[str, torch.Tensor]) -> float:
    """Of the module with these weights, on the test set."""
    module, samples = make().eval(), Samples("test")
    module.load_state_dict(weights)
    return (module(samples.image).argmax(1) == samples.label).float().mean().item()
