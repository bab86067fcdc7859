"""Small decoders, each with the arithmetic of a well-known library's own code: rotary positions, grouped heads, norms and
gates as transformers and torchtune write them."""

import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, GROUPS, INNER = 19, 32, 4, 2, 24
HEAD = WIDTH // HEADS


class RootMeanSquare(nn.Module):
    """transformers': in float32, and Gemma's, whose weights are differences from 1."""

    def __init__(self, width: int, offset: float = 0.0, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5 - offset)
        self.offset, self.eps = offset, eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        if self.offset:
            return (y * (self.offset + self.weight.float())).type_as(x)
        return self.weight * y.to(x.dtype)


def swapped_halves(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]), -1)


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    batch, groups, length, width = x.shape
    return x[:, :, None].expand(batch, groups, times, length, width).reshape(batch, groups * times, length, width)


class HalvesAttention(nn.Module):
    """transformers': halves are turned, keys and values repeated. `share` of a head is turned; a `window`; norms of
    queries and keys; products by scores where there is a cap."""

    def __init__(self, share: float = 1.0, window: int = 0, norms: bool = False, cap: float = 0.0,
                 theta: float = 10000.0) -> None:
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, GROUPS * HEAD) for _ in range(2))
        self.q_norm, self.k_norm = (RootMeanSquare(HEAD) if norms else nn.Identity() for _ in range(2))
        turned = int(share * HEAD)
        self.register_buffer("inv_freq", 1.0 / theta ** (torch.arange(0, turned, 2).float() / turned), persistent=False)
        self.turned, self.window, self.cap = turned, window, cap

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[2])[None, None, :].float()
        angles = (self.inv_freq[None, :, None].float() @ positions).transpose(1, 2)
        angles = torch.cat((angles, angles), -1)[:, None]
        part, rest = x[..., :self.turned], x[..., self.turned:]
        cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        part = part * cosines + swapped_halves(part) * sines
        return part if self.turned == HEAD else torch.cat((part, rest), -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shape = (*x.shape[:-1], -1, HEAD)
        q = self.rotated(self.q_norm(self.q_proj(x).view(shape)).transpose(1, 2))
        k = self.rotated(self.k_norm(self.k_proj(x).view(shape)).transpose(1, 2))
        k, v = repeated(k, HEADS // GROUPS), repeated(self.v_proj(x).view(shape).transpose(1, 2), HEADS // GROUPS)
        distance = torch.arange(x.shape[1])[None, :] - torch.arange(x.shape[1])[:, None]
        sees = distance <= 0
        if self.window:
            sees = sees & (distance > -self.window)
        sees = sees[None, None].expand(x.shape[0], 1, -1, -1)
        if self.cap:
            scores = torch.tanh(q @ k.transpose(2, 3) * HEAD ** -0.5 / self.cap) * self.cap
            hidden = torch.zeros(sees.shape[1:], dtype=x.dtype).masked_fill(~sees[0], torch.finfo(x.dtype).min)
            y = F.softmax(scores + hidden, -1, dtype=torch.float32).to(q.dtype) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=sees, scale=HEAD ** -0.5)
        return self.o_proj(y.transpose(1, 2).contiguous().reshape(*x.shape[:-1], -1).contiguous())


class PairsAttention(nn.Module):
    """torchtune's: neighbours are turned by a table that is made once, heads stand behind positions."""

    def __init__(self, positions: int = 64) -> None:
        super().__init__()
        self.q_proj, self.output_proj = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, GROUPS * HEAD, bias=False) for _ in range(2))
        theta = 1.0 / 10000 ** (torch.arange(0, HEAD, 2).float() / HEAD)
        angles = torch.einsum("i, j -> ij", torch.arange(positions, dtype=theta.dtype), theta).float()
        self.register_buffer("cache", torch.stack([angles.cos(), angles.sin()], -1), persistent=False)

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        table = self.cache[:x.shape[1]].view(-1, x.shape[1], 1, pairs.shape[3], 2)
        turned = torch.stack([pairs[..., 0] * table[..., 0] - pairs[..., 1] * table[..., 1],
                              pairs[..., 1] * table[..., 0] + pairs[..., 0] * table[..., 1]], -1)
        return turned.flatten(3).type_as(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.rotated(self.q_proj(x).view(batch, length, HEADS, HEAD)).transpose(1, 2)
        k = self.rotated(self.k_proj(x).view(batch, length, GROUPS, HEAD)).transpose(1, 2)
        v = self.v_proj(x).view(batch, length, GROUPS, HEAD).transpose(1, 2)
        k, v = (part.unsqueeze(2).expand(batch, GROUPS, HEADS // GROUPS, length, HEAD).flatten(1, 2) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output_proj(y.transpose(1, 2).contiguous().view(batch, length, -1))


class PackedAttention(nn.Module):
    """GPT-NeoX': queries, keys and values of a head stand together, a part of each is turned."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value, self.dense = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("inv_freq", 1.0 / 10000 ** (torch.arange(0, 4, 2).float() / 4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.query_key_value(x).view(*x.shape[:-1], -1, 3 * HEAD).transpose(1, 2).chunk(3, -1)
        angles = torch.outer(torch.arange(x.shape[1]).float(), self.inv_freq.float())
        angles = torch.cat((angles, angles), -1)
        cosines, sines = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        q, k = (torch.cat((part[..., :4] * cosines + swapped_halves(part[..., :4]) * sines, part[..., 4:]), -1)
                for part in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dense(y.transpose(1, 2).reshape(x.shape))


class Gate(nn.Module):
    """SwiGLU of two products, or GeGLU of one that gives both parts."""

    def __init__(self, together: bool = False) -> None:
        super().__init__()
        self.together = together
        if together:
            self.gate_up_proj = nn.Linear(WIDTH, 2 * INNER, bias=False)
        else:
            self.gate_proj, self.up_proj = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.together:
            return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.down_proj(up * F.gelu(gate, approximate="tanh"))


class Block(nn.Module):
    def __init__(self, attention: nn.Module, gate: nn.Module, offset: float) -> None:
        super().__init__()
        self.input_layernorm, self.self_attn = RootMeanSquare(WIDTH, offset), attention
        self.post_attention_layernorm, self.mlp = RootMeanSquare(WIDTH, offset), gate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Embedding, one block of each attention, norm, logits."""

    def __init__(self, attentions: list[nn.Module], together: bool = False, offset: float = 0.0, cap: float = 0.0) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([Block(attention, Gate(together), offset) for attention in attentions])
        self.norm, self.lm_head = RootMeanSquare(WIDTH, offset), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.offset, self.cap = offset, cap

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(input_ids)
        if self.offset:
            x = x * torch.tensor(math.sqrt(WIDTH), dtype=x.dtype)
        for layer in self.layers:
            x = layer(x)
        logits = self.lm_head(self.norm(x))
        return torch.tanh(logits / self.cap) * self.cap if self.cap else logits


DECODERS = {"llama": lambda: Decoder([HalvesAttention(), HalvesAttention(theta=5e5)]),
            "qwen3": lambda: Decoder([HalvesAttention(norms=True, window=3)]),
            "gemma2": lambda: Decoder([HalvesAttention(cap=2.0, window=3), HalvesAttention(cap=2.0)], True, 1.0, 3.0),
            "phi": lambda: Decoder([HalvesAttention(share=0.5)], together=True),
            "torchtune": lambda: Decoder([PairsAttention()]),
            "gpt_neox": lambda: Decoder([PackedAttention()])}
