"""Modules of every family that scripts/import-torch is checked with, by name: factories without arguments, random
weights.

FAMILIES gives each its examples and its loss. Those of transformers are small: two layers, 64 wide.
"""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Family:
    """What the command line says about a module."""

    examples: tuple[str, ...]
    loss: str = "cross_entropy"
    untied: bool = False  # its stages are compared without ties, which would keep all layers in one
    rounds: bool = False  # a tensor has several readers in a stage that stands between its producer and its last reader


IMAGE = ("float32:3x64x64",)
TOKENS = ("int64:16:0..99",)
FAMILIES = {
    "resnet50": Family(IMAGE), "vgg16_bn": Family(IMAGE), "densenet121": Family(IMAGE),
    "mobilenet_v3_small": Family(IMAGE), "efficientnet_b0": Family(IMAGE), "convnext_tiny": Family(IMAGE),
    "vit_b_16": Family(IMAGE), "swin_t": Family(IMAGE),
    "bert": Family(TOKENS), "bert_masked": Family((*TOKENS, "attention_mask=int64:16:1..1")),
    "bert_language": Family(TOKENS, untied=True), "gpt2": Family(TOKENS, untied=True), "llama": Family(TOKENS),
    "mistral": Family(TOKENS), "qwen2": Family(TOKENS), "qwen3": Family(TOKENS), "gemma2": Family(TOKENS, untied=True),
    "phi3": Family(TOKENS), "gpt_neox": Family(TOKENS), "opt": Family(TOKENS, untied=True),
    "t5_small": Family((*TOKENS, "decoder_input_ids=int64:12:0..99"), untied=True, rounds=True),
}


def vision(name: str, **arguments: Any) -> Any:
    import torchvision.models
    return getattr(torchvision.models, name)(num_classes=10, **arguments)


def untie(module: Any) -> Any:
    """Every name its own parameter."""
    import torch
    seen = set()
    for name, parameter in list(module.named_parameters(remove_duplicate=False)):
        path, _, local = name.rpartition(".")
        if id(parameter) in seen:
            setattr(module.get_submodule(path), local, torch.nn.Parameter(parameter.detach().clone()))
        seen.add(id(parameter))
    return module


# `still`: without dropout, so that a training can be compared with PyTorch's.


def resnet50(still: bool = False) -> Any:
    return vision("resnet50")


def vgg16_bn(still: bool = False) -> Any:
    return vision("vgg16_bn", **({"dropout": 0.0} if still else {}))


def densenet121(still: bool = False) -> Any:
    return vision("densenet121")


def mobilenet_v3_small(still: bool = False) -> Any:
    return vision("mobilenet_v3_small", **({"dropout": 0.0} if still else {}))


def efficientnet_b0(still: bool = False) -> Any:
    return vision("efficientnet_b0", **({"dropout": 0.0, "stochastic_depth_prob": 0.0} if still else {}))


def convnext_tiny(still: bool = False) -> Any:
    return vision("convnext_tiny", **({"stochastic_depth_prob": 0.0} if still else {}))


def vit_b_16(still: bool = False) -> Any:
    return vision("vit_b_16", image_size=64)


def swin_t(still: bool = False) -> Any:
    made = vision("swin_t")
    for part in made.modules():
        if still and type(part).__name__ == "StochasticDepth":
            part.p = 0.0
    return made


def bert_config(still: bool, **more: Any) -> Any:
    from transformers import BertConfig
    drop = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0} if still else {}
    return BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=100,
                      max_position_embeddings=64, **drop, **more)


def bert(still: bool = False) -> Any:
    from transformers import BertForSequenceClassification
    return BertForSequenceClassification(bert_config(still, num_labels=5))


bert_masked = bert


def bert_language(still: bool = False) -> Any:
    """Its last layer is tied to its first."""
    from transformers import BertForMaskedLM
    return BertForMaskedLM(bert_config(still))


def gpt2(still: bool = False) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel
    drop = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} if still else {}
    return GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_positions=64, bos_token_id=0,
                                      eos_token_id=0, **drop))


def llama(still: bool = False) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2,
                                        intermediate_size=128, vocab_size=100, max_position_embeddings=64))


def decoder(kind: str, **more: Any) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
             "max_position_embeddings": 64, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
    attention = {"attn_implementation": more.pop("attention")} if "attention" in more else {}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes | more), **attention)


def mistral(still: bool = False) -> Any:
    return decoder("mistral", num_key_value_heads=2, intermediate_size=128, sliding_window=6)


def qwen2(still: bool = False) -> Any:
    return decoder("qwen2", num_key_value_heads=2, intermediate_size=128)


def qwen3(still: bool = False) -> Any:
    return decoder("qwen3", num_key_value_heads=2, intermediate_size=128, head_dim=32)


def gemma2(still: bool = False) -> Any:
    return decoder("gemma2", num_key_value_heads=2, intermediate_size=128, head_dim=32, sliding_window=6, attention="eager")


def phi3(still: bool = False) -> Any:
    drop = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0} if still else {}
    return decoder("phi3", num_key_value_heads=2, intermediate_size=128, **drop)


def gpt_neox(still: bool = False) -> Any:
    return decoder("gpt_neox", intermediate_size=128)


def opt(still: bool = False) -> Any:
    return decoder("opt", ffn_dim=128, word_embed_proj_dim=64, **({"dropout": 0.0} if still else {}))


def t5_small(still: bool = False) -> Any:
    """The size of the published one, with a short vocabulary."""
    from transformers import T5Config, T5ForConditionalGeneration
    drop = {"dropout_rate": 0.0} if still else {}
    return T5ForConditionalGeneration(T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8,
                                               vocab_size=100, **drop))
