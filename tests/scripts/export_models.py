"""Two small modules and their data, for trainings here and by torch.distributed.pipelining."""

import torch

SAMPLES, BATCH = 160, 16


class Cnn(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.norm1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.pool = torch.nn.MaxPool2d(2)
        self.conv3 = torch.nn.Conv2d(8, 16, 3)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm1(self.conv1(image)))
        x = self.pool(x + torch.relu(self.conv2(x)))
        return self.head(torch.relu(self.conv3(x)).mean((2, 3)))


class Transformer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(4))
        self.head = torch.nn.Linear(16, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def made(kind: type) -> torch.nn.Module:
    torch.manual_seed(1)
    return kind()


def cnn() -> torch.nn.Module:
    return made(Cnn)


def transformer() -> torch.nn.Module:
    return made(Transformer)


def frozen() -> torch.nn.Module:
    """Trains the second half of the transformer."""
    module = made(Transformer)
    for part in (module.embed, *module.layers[:2]):
        part.requires_grad_(False)
    return module


def cnn_data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    label = torch.randint(10, (SAMPLES,), generator=generator)
    return torch.randn(SAMPLES, 1, 8, 8, generator=generator) + label.reshape(-1, 1, 1, 1) / 5, label


def transformer_data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(32, (SAMPLES, 12), generator=generator)
    return tokens, (tokens * 3 + 1) % 32


frozen_data = transformer_data


def batches(data: tuple[torch.Tensor, torch.Tensor]) -> list[tuple[torch.Tensor, ...]]:
    return list(zip(*(tensor.split(BATCH) for tensor in data)))
