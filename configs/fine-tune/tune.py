"""A language model as somebody would fine-tune it in PyTorch: a Llama that reads config.json and model.safetensors as Hugging
Face lays them out, low-rank additions of its own, and data of which only the answers count. README.md uses it.

  tune.py make FOLDER                 a small config.json with random weights
  tune.py merge FOLDER TRAINED TO     low-rank additions added to the weights, as Hugging Face lays them out
  tune.py compare FOLDER TRAINED TO   logits of the additions and of the merged weights
"""

import json
import pathlib
import random
import sys

import torch
from torch import nn
from torch.nn import functional as F

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from import_torch.weights import decode, encode  # noqa: E402  (safetensors without a package)

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 256, "hidden_size": 64,
          "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
          "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "torch_dtype": "float32"}
LENGTH = 32  # tokens of a sample, which are bytes
RANK = 4


class Norm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        return self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class LowRank(nn.Linear):
    """A linear layer that stays as it is, with an addition that trains (Hu et al., LoRA, 2021)."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__(inner, outer, bias=False)
        self.lora_down, self.lora_up = nn.Linear(inner, RANK, bias=False), nn.Linear(RANK, outer, bias=False)
        nn.init.zeros_(self.lora_up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.lora_up(self.lora_down(x))


class Attention(nn.Module):
    def __init__(self, config: dict, low_rank: bool) -> None:
        super().__init__()
        width, heads, groups = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
        self.head, self.repeats = width // heads, heads // groups
        tuned = LowRank if low_rank else lambda inner, outer: nn.Linear(inner, outer, bias=False)
        self.q_proj, self.v_proj = tuned(width, width), tuned(width, groups * self.head)
        self.k_proj, self.o_proj = nn.Linear(width, groups * self.head, bias=False), nn.Linear(width, width, bias=False)
        exponents = torch.arange(0, self.head, 2).float() / self.head
        self.register_buffer("inv_freq", 1.0 / config["rope_theta"] ** exponents, persistent=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.outer(torch.arange(x.shape[2]).float(), self.inv_freq.float())
        angles = torch.cat((angles, angles), -1)
        half = x.shape[-1] // 2
        swapped = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * angles.cos().to(x.dtype) + swapped * angles.sin().to(x.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).unflatten(2, (-1, self.head)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True, enable_gqa=self.repeats > 1)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Gate(nn.Module):
    def __init__(self, config: dict) -> None:
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, config: dict, low_rank: bool) -> None:
        super().__init__()
        norm = lambda: Norm(config["hidden_size"], config["rms_norm_eps"])
        self.input_layernorm, self.self_attn = norm(), Attention(config, low_rank)
        self.post_attention_layernorm, self.mlp = norm(), Gate(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, config: dict, low_rank: bool) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList([Block(config, low_rank) for _ in range(config["num_hidden_layers"])])
        self.norm = Norm(config["hidden_size"], config["rms_norm_eps"])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Llama(nn.Module):
    """Its parameters have transformers' names."""

    def __init__(self, config: dict, low_rank: bool = False) -> None:
        super().__init__()
        self.model = Body(config, low_rank)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.model(tokens))


# What scripts/import-torch and scripts/export-data are given.

def read(file: str | pathlib.Path) -> dict[str, torch.Tensor]:
    return decode(pathlib.Path(file).read_bytes())


def load(folder: str, low_rank: bool) -> Llama:
    place = pathlib.Path(folder)
    torch.manual_seed(0)
    module = Llama(json.loads((place / "config.json").read_text()), low_rank)
    missing, unknown = module.load_state_dict(read(place / "model.safetensors"), strict=False)
    assert not unknown and all("lora" in name for name in missing), (missing, unknown)
    return module


def whole(folder: str) -> Llama:
    """All weights train."""
    return load(folder, low_rank=False)


def lora(folder: str) -> Llama:
    """Only the low-rank additions to queries and values train."""
    module = load(folder, low_rank=True)
    for name, parameter in module.named_parameters():
        parameter.requires_grad = "lora" in name
    return module


class Answers(torch.utils.data.Dataset):
    """`reverse cat: tac`. The label of a position is the token behind it where that is of the answer, else -100: it does
    not count."""

    def __init__(self, seed: int, samples: int) -> None:
        dice = random.Random(seed)
        self.words = ["".join(dice.choices("abcdefgh", k=dice.randint(3, 8))) for _ in range(samples)]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        question, answer = f"reverse {self.words[k]}: ".encode(), (self.words[k][::-1] + "\n").encode()
        tokens = torch.zeros(LENGTH, dtype=torch.int64)
        labels = torch.full((LENGTH,), -100)
        tokens[:len(question) + len(answer)] = torch.tensor(list(question + answer))
        labels[len(question) - 1:len(question) + len(answer) - 1] = torch.tensor(list(answer))
        return {"tokens": tokens, "label": labels}


def train() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(Answers(1, 2048), batch_size=64)


def test() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(Answers(2, 256), batch_size=64)


# Commands.

def make(folder: str) -> None:
    place = pathlib.Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    (place / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    (place / "model.safetensors").write_bytes(encode(Llama(CONFIG).state_dict()))


def merge(folder: str, trained: str, to: str) -> None:
    weights, place = read(trained), pathlib.Path(to)
    for name in [name for name in weights if name.endswith(".lora_up.weight")]:
        base = name.removesuffix(".lora_up.weight")
        weights[base + ".weight"] += weights.pop(name) @ weights.pop(base + ".lora_down.weight")
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.json").write_text((pathlib.Path(folder) / "config.json").read_text())
    (place / "model.safetensors").write_bytes(encode(weights))


def compare(folder: str, trained: str, to: str) -> None:
    additions, merged = lora(folder), whole(to)
    additions.load_state_dict(read(trained))
    tokens = next(iter(test()))["tokens"]
    with torch.no_grad():
        one, other = additions(tokens), merged(tokens)
    print(f"largest difference of logits up to {one.abs().max():.1f}: {(one - other).abs().max():.0e}")
    if not torch.allclose(one, other, atol=1e-4):
        sys.exit(1)


if __name__ == "__main__":
    commands = {"make": make, "merge": merge, "compare": compare}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
