"""python3 tests/scripts/make_decoder_values.py [CASE...]: writes tests/data/families/CASE.json, what transformers 5 computes
for small decoders in float64, for ours of the same config.json to be compared with. Needs torch, transformers and numpy.

Both sides fill weights, tokens and labels as family_numbers.py says. A file has

config     Hugging Face's config.json, as a person would write it or an older version has
saved      the same as transformers 5 writes it
arguments  behind the name of the document, as pp-profile takes them
model      theirs
tolerance  relative. Theirs computes rms norms in float32 whatever the type, which is 2e-6 of a logit in some of these
           cases; here their modules compute them in float64, as ours, and routers their scores. Gemma's attention keeps
           its softmax in float32
outputs    logits in evaluation, the samples one after the other
loss       mean cross entropy of the labels at their positions, in training; there is no dropout
gradients  of each parameter, multiplied with numbers("gradient." + name) and added up
steps      of mixtures: the losses of further steps of gradient descent, and its rate
prompt     tokens of each sample that greedy decoding begins with
greedy     the tokens that transformers' generate() adds to them
"""

import functools
import json
import pathlib
import sys
from typing import Any, Callable
from unittest import mock

import torch
import transformers
from family_numbers import SAMPLES, data, initial, numbers, short
from torch.nn import functional as F
from transformers.models.deepseek_v2 import modeling_deepseek_v2
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "data" / "families"
TOKENS, SEQUENCE, PROMPT, ADDED = 19, 12, 4, 8
STEPS, RATE = 10, 0.05

SMALL = {"vocab_size": TOKENS, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2,
         "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64}


def case(model_type: str, **keys: Any) -> dict[str, Any]:
    return {"model_type": model_type} | SMALL | keys


OPT = {"vocab_size": TOKENS, "hidden_size": 24, "ffn_dim": 20, "num_hidden_layers": 2, "num_attention_heads": 3,
       "max_position_embeddings": 15, "dropout": 0.0}
NEOX = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
GPT2 = {"vocab_size": TOKENS, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 15, "n_inner": 20,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LATENT = {"num_attention_heads": 3, "num_key_value_heads": 3, "kv_lora_rank": 10, "qk_rope_head_dim": 4,
          "qk_nope_head_dim": 6, "v_head_dim": 5, "moe_intermediate_size": 8, "n_routed_experts": 8}

CASES: dict[str, dict[str, Any]] = {
    "llama": case("llama", rms_norm_eps=1e-5, rope_theta=500.0, attention_bias=True, mlp_bias=True, pad_token_id=2),
    "llama_llama3": case("llama", head_dim=10, rope_scaling=LLAMA3, rope_theta=100.0, num_key_value_heads=3),
    "llama_yarn": case("llama", head_dim=16, rope_scaling=YARN, num_key_value_heads=6, tie_word_embeddings=True),
    "llama_linear": case("llama", rope_scaling={"type": "linear", "factor": 2.5}, hidden_act="gelu_new"),
    "mistral": case("mistral", sliding_window=3, head_dim=6, num_hidden_layers=3),
    "qwen2": case("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=1, tie_word_embeddings=True),
    "qwen3": case("qwen3", head_dim=8, rope_theta=1000000, attention_bias=True),
    "qwen3_yarn": case("qwen3", head_dim=12, rope_scaling=YARN | {"attention_factor": 1.25, "truncate": False}),
    "gemma2": case("gemma2", head_dim=6, sliding_window=3, query_pre_attn_scalar=7, num_hidden_layers=3,
                   attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "phi3": case("phi3", sliding_window=5, pad_token_id=1, num_key_value_heads=3),
    "phi3_partial": case("phi3", pad_token_id=None, partial_rotary_factor=0.5, num_attention_heads=3,
                         num_key_value_heads=1),
    "gpt_neox": {"model_type": "gpt_neox"} | NEOX | {"rotary_pct": 0.5, "num_attention_heads": 3},
    "gpt_neox_sequential": {"model_type": "gpt_neox"} | NEOX | {
        "rotary_pct": 0.5, "hidden_size": 30, "num_attention_heads": 5, "rotary_emb_base": 100, "hidden_act": "relu",
        "use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True},
    "opt": {"model_type": "opt"} | OPT,
    "opt_post_norm": {"model_type": "opt"} | OPT | {"do_layer_norm_before": False, "word_embed_proj_dim": 10,
                                                    "enable_bias": False, "tie_word_embeddings": False},
    "gpt2_config": {"model_type": "gpt2"} | GPT2,
    "gpt2_untied": {"model_type": "gpt2"} | GPT2 | {"n_inner": None, "n_ctx": 15, "activation_function": "gelu",
                                                    "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
    "smollm": case("llama", tie_word_embeddings=True, rope_theta=100000.0, num_attention_heads=3, num_key_value_heads=1),
    "smollm3": case("smollm3", num_hidden_layers=4, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=4,
                    pad_token_id=3),
    "mixtral": case("mixtral", num_local_experts=4, num_experts_per_tok=2, sliding_window=5, router_aux_loss_coef=0.02,
                    output_router_logits=False),
    "qwen2_moe": case("qwen2_moe", num_experts=6, num_experts_per_tok=3, moe_intermediate_size=8, num_hidden_layers=3,
                      shared_expert_intermediate_size=14, decoder_sparse_step=2, mlp_only_layers=[]),
    "qwen3_moe": case("qwen3_moe", num_experts=7, num_experts_per_tok=2, moe_intermediate_size=8, head_dim=8,
                      norm_topk_prob=True, mlp_only_layers=[0]),
    "glm4_moe": case("glm4_moe", n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=8, head_dim=8,
                     use_qk_norm=True, attention_bias=True, routed_scaling_factor=1.5, partial_rotary_factor=0.5),
    "deepseek_v2": case("deepseek_v2", **LATENT, q_lora_rank=None, num_experts_per_tok=2, n_group=4, topk_group=2,
                        topk_method="group_limited_greedy", routed_scaling_factor=3.0, first_k_dense_replace=1),
    "deepseek_v3": case("deepseek_v3", **LATENT, q_lora_rank=9, num_experts_per_tok=3, n_group=4, topk_group=2,
                        first_k_dense_replace=1, n_shared_experts=2,
                        rope_scaling=YARN | {"mscale": 1.0, "mscale_all_dim": 0.7}),
    "gpt_oss": case("gpt_oss", num_local_experts=5, num_experts_per_tok=2, head_dim=8, sliding_window=3, num_hidden_layers=3),
    "gpt_oss_clamped": case("gpt_oss", num_local_experts=6, num_experts_per_tok=3, head_dim=6, sliding_window=4,
                            layer_types=["full_attention", "sliding_attention"], swiglu_limit=0.2, swiglu_alpha=1.5,
                            rope_scaling=YARN, rope_theta=1000.0, attention_bias=False),
}


GPT2_NAMES = {"attn.c_attn": "attn.qkv_proj", "attn.c_proj": "attn.out_proj", "mlp.c_fc": "mlp.up_proj",
              "mlp.c_proj": "mlp.down_proj"}


def our_name(name: str, model_type: str) -> str:
    """The published tensors of GPT-NeoX have the name that transformers gave the head before version 5. GPT-2's matrices
    are transposed, and ours have names of their own. Mixtral's experts have the published names."""
    if model_type == "gpt2":
        for theirs, ours in GPT2_NAMES.items():
            name = name.replace(theirs, ours)
    if model_type == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    return name.replace("lm_head", "embed_out") if model_type == "gpt_neox" else name


def as_ours(tensor: torch.Tensor, theirs: str, model_type: str) -> dict[str, torch.Tensor]:
    """Views of the tensor or its gradient, by our names: in memory transformers holds the experts of a layer together."""
    name = our_name(theirs, model_type)
    if ".experts." in name and not name.endswith(".weight") and model_type != "gpt_oss":
        gate, up, down = ("w1", "w3", "w2") if model_type == "mixtral" else ("gate_proj", "up_proj", "down_proj")
        names = [gate, up] if name.endswith("gate_up_proj") else [down]
        return {f"{name.rpartition('.')[0]}.{number}.{part}.weight": view
                for number, expert in enumerate(tensor) for part, view in zip(names, expert.chunk(len(names)), strict=True)}
    turned = model_type == "gpt2" and tensor.dim() == 2 and any(ours in name for ours in GPT2_NAMES.values())
    return {name: tensor.T if turned else tensor}


class Wide:
    """torch, whose float32 is float64."""

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def in_float64(forward: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """Without its casts to float32."""
    module = sys.modules[forward.__module__]
    with mock.patch.object(module, "torch", Wide()), mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        return forward(*inputs)


def norm_in_float64(norm: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The forward of LlamaRMSNorm and its copies, or of Gemma2RMSNorm, without their casts."""
    if isinstance(norm, Gemma2RMSNorm):
        return norm._norm(x) * (1 + norm.weight)
    return norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon))


def values(name: str) -> dict[str, Any]:
    given = CASES[name]
    config = transformers.AutoConfig.for_model(**json.loads(json.dumps(given)))
    kind = given["model_type"]
    # With the key-value cache windows are seen by a kernel with a mask; Gemma's caps and sinks are only computed by eager.
    attention = "eager" if kind in ("gemma2", "gpt_oss") else "sdpa"
    module = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention,
                                                           experts_implementation="eager").double()
    for part in module.modules():
        if type(part).__name__.endswith("RMSNorm"):
            part.forward = functools.partial(norm_in_float64, part)
        if type(part).__name__.lower().endswith("topkrouter"):
            part.forward = functools.partial(in_float64, part.forward)
    if kind == "deepseek_v2":  # torch.polar rounds some sines and cosines another way than the others' torch.sin
        torch.polar = lambda size, angle: torch.complex(size * angle.cos(), size * angle.sin())
        rotate = modeling_deepseek_v2.apply_rotary_emb
        modeling_deepseek_v2.apply_rotary_emb = functools.partial(in_float64, rotate)
    saved = {name: b for name, b in module.named_buffers() if name in module.state_dict()}
    with torch.no_grad():
        for theirs, tensor in (dict(module.named_parameters()) | saved).items():
            for ours, view in as_ours(tensor, theirs, kind).items():
                view.copy_(initial(ours, list(view.shape)))
    tokens, labels = data("tokens", [SEQUENCE], TOKENS), data("label", [SEQUENCE], TOKENS)
    with torch.no_grad():
        outputs = module.eval()(tokens).logits
    losses = []

    def step() -> None:
        module.zero_grad()
        losses.append(F.cross_entropy(module.train()(tokens).logits.flatten(0, -2), labels.flatten()))
        losses[-1].backward()

    step()
    gradients = {ours: view for theirs, p in module.named_parameters() for ours, view in as_ours(p.grad, theirs, kind).items()}
    probes = {ours: short((g * numbers("gradient." + ours, list(g.shape))).sum()) for ours, g in gradients.items()}
    greedy = module.eval().generate(tokens[:, :PROMPT], attention_mask=torch.ones(SAMPLES, PROMPT, dtype=torch.long),
                                    max_new_tokens=ADDED, min_new_tokens=ADDED, do_sample=False, eos_token_id=None,
                                    bos_token_id=None, pad_token_id=0)
    if any(".experts." in name for name in gradients):
        for _ in range(STEPS):
            with torch.no_grad():
                for p in module.parameters():
                    p.sub_(p.grad, alpha=RATE)
            step()
    document: dict[str, Any] = {}
    if len(losses) > 1:
        document = {"steps": {"rate": RATE, "losses": [short(loss.detach()) for loss in losses[1:]]}}
    return {"config": given, "saved": json.loads(config.to_json_string()), "arguments": f"sequence={SEQUENCE}",
            "model": f"transformers.{type(module).__name__}", "tolerance": 1e-6 if kind == "gemma2" else 1e-9,
            "outputs": [short(v) for v in outputs.flatten()], "loss": short(losses[0].detach()), "gradients": probes,
            "prompt": tokens[:, :PROMPT].tolist(), "greedy": greedy[:, PROMPT:].tolist()} | document


def main() -> int:
    unknown = set(sys.argv[1:]) - set(CASES)
    if unknown:
        print(f"{__doc__}\ncases: {' '.join(CASES)}; not: {' '.join(sorted(unknown))}")
        return 2
    for name in sys.argv[1:] or CASES:
        content = json.dumps(values(name)) + "\n"
        (FOLDER / f"{name}.json").write_text(content)
        print(f"{name}: {len(content)} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
