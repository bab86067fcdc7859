"""python3 tests/scripts/make_family_values.py [FAMILY...]: writes tests/data/families, what the models of torchvision,
transformers and torch.nn compute in float64, for the built-in families to be compared with. Needs the three and numpy.

Both sides fill weights, inputs and labels with numbers that follow from a tensor's name (in our model) and an element's
index (family_numbers.py). A file has

family     our model, as pp-profile takes it
model      theirs
tolerance  relative; of kernels of other machines and other orders of addition in float64
outputs    in evaluation, the samples one after the other
loss       in training, mean cross entropy; without dropout, as the outputs
gradients  of each parameter of ours, multiplied with numbers("gradient." + name) and added up

The models are theirs, in sizes that a test can afford: fewer layers and channels, small images. In front of their
classifier VGG and AlexNet pool to fewer features there, as our families do on purpose; at 224 they do not.
"""

import json
import pathlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torchvision
import transformers
from family_numbers import data, initial, numbers, short
from torch import nn
from torch.nn import functional as F

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "data" / "families"


@dataclass
class Tensors:
    """A tensor of ours: these of theirs below each other, each transposed first where `transposed`."""

    theirs: list[str]
    transposed: bool = False


@dataclass
class Case:
    family: str
    arguments: dict[str, Any]
    model: str
    module: nn.Module
    call: Callable[..., torch.Tensor]  # with the module and the inputs, for logits
    inputs: dict[str, tuple[list[int], int]]  # shape of a sample and how many integers there are; 0: floating
    labels: tuple[list[int], int]
    names: dict[str, Tensors] = field(default_factory=dict)  # ours; none: all are called as theirs
    tolerance: float = 1e-9


def parts(tensors: dict[str, torch.Tensor], ours: Tensors) -> list[torch.Tensor]:
    return [tensors[name].T if ours.transposed else tensors[name] for name in ours.theirs]


def fill(case: Case) -> dict[str, Tensors]:
    """All names of ours, buffers too."""
    state = {name: t for name, t in case.module.state_dict().items() if not name.endswith("num_batches_tracked")}
    names = case.names or {name: Tensors([name]) for name in state}
    tied = {id(t): name for name, t in case.module.named_parameters()}
    parameters = dict(case.module.named_parameters(remove_duplicate=False))
    filled = [tied.get(id(parameters.get(name)), name) for ours in names.values() for name in ours.theirs]
    missing = {tied.get(id(parameters.get(name)), name) for name in state} ^ set(filled)
    assert not missing and len(set(filled)) == len(filled), f"{case.family}: {sorted(missing)}"
    with torch.no_grad():
        for ours, tensors in names.items():
            theirs = parts(state, tensors)
            drawn = initial(ours, list(torch.cat(theirs).shape))
            for part, value in zip(theirs, drawn.split([len(part) for part in theirs])):
                part.copy_(value)
    return names


def values(case: Case) -> dict[str, Any]:
    case.module.double()
    names = fill(case)
    inputs = [data(name, *kind) for name, kind in case.inputs.items()]
    with torch.no_grad():
        outputs = case.call(case.module.eval(), *inputs)
    logits = case.call(case.module.train(), *inputs)
    loss = F.cross_entropy(logits.flatten(0, -2), data("label", *case.labels).flatten())
    loss.backward()
    gradients = {name: p.grad for name, p in case.module.named_parameters(remove_duplicate=False)}
    probes = {}
    for ours, tensors in names.items():
        if tensors.theirs[0] in gradients:
            gradient = torch.cat(parts(gradients, tensors))
            probes[ours] = short((gradient * numbers("gradient." + ours, list(gradient.shape))).sum())
    arguments = ",".join(f"{name}={value}" for name, value in case.arguments.items())
    return {"family": f"{case.family}:{arguments}", "model": case.model, "tolerance": case.tolerance,
            "outputs": [short(v) for v in outputs.flatten()], "loss": short(loss.detach()), "gradients": probes}


def narrow(module: nn.Module, factor: int) -> nn.Module:
    """The module with so many times fewer channels; image channels and classes stay."""
    less = lambda channels: channels // factor if channels % factor == 0 else channels
    for name, part in list(module.named_modules()):
        if isinstance(part, nn.Conv2d):
            made: nn.Module = nn.Conv2d(less(part.in_channels), less(part.out_channels), part.kernel_size, part.stride,
                                        part.padding, groups=part.groups, bias=part.bias is not None)
        elif isinstance(part, nn.BatchNorm2d):
            made = nn.BatchNorm2d(less(part.num_features), part.eps, part.momentum)
        elif isinstance(part, nn.Linear):
            made = nn.Linear(less(part.in_features), part.out_features)
        else:
            continue
        module.set_submodule(name, made)
    return module


def small_classifier(module: nn.Module, features: int, side: int) -> nn.Module:
    """For images below 224: `side` of the pool's output; hidden layers 32 wide."""
    module.avgpool = nn.AdaptiveAvgPool2d(side)
    linear = [i for i, part in enumerate(module.classifier) if isinstance(part, nn.Linear)]
    sizes = [features * side**2, 32, 32, 10]
    for k, i in enumerate(linear):
        module.classifier[i] = nn.Linear(sizes[k], sizes[k + 1])
    return module


def image_case(family: str, module: nn.Module, theirs: str = "", image: int = 64, **arguments: Any) -> Case:
    return Case(family, {"classes": 10, "image": image} | arguments, f"torchvision.models.{theirs or family}", module,
                lambda m, x: m(x), {"image": ([3, image, image], 0)}, ([], 10))


RESNETS = {"resnet18": "resnet18", "resnet34": "resnet34", "resnet50": "resnet50", "resnet101": "resnet101",
           "resnet152": "resnet152", "resnext50": "resnext50_32x4d", "resnext101": "resnext101_32x8d",
           "wide_resnet50": "wide_resnet50_2", "wide_resnet101": "wide_resnet101_2"}


def resnet(family: str) -> Case:
    factor, theirs = 4 if family == "resnext50" else 8, RESNETS[family]
    module = getattr(torchvision.models, theirs)(num_classes=10)
    return image_case(family, narrow(module, factor), theirs, width=64 // factor)


def vgg(family: str) -> Case:
    norm = family == "vgg11"
    image, theirs = 64 if norm else 32, family + "_bn" * norm
    module = getattr(torchvision.models, theirs)(num_classes=10, dropout=0, init_weights=False)
    return image_case(family, small_classifier(module, 512, image // 32), theirs, image, width=32, dropout=0,
                      batch_norm=int(norm))


def alexnet(family: str) -> Case:
    module = torchvision.models.alexnet(num_classes=10, dropout=0)
    return image_case(family, small_classifier(module, 256, 3), image=127, width=32, dropout=0)


def light(family: str) -> Case:
    return image_case(family, getattr(torchvision.models, family)(num_classes=10, dropout=0), dropout=0)


def densenet(family: str) -> Case:
    module = torchvision.models.densenet.DenseNet(8, (6, 12, 24, 16), 16, num_classes=10)
    return image_case(family, module, growth=8)


def inception(family: str) -> Case:
    module = torchvision.models.inception_v3(num_classes=10, aux_logits=False, transform_input=False,
                                             init_weights=False, dropout=0)
    return image_case(family, module, image=75, dropout=0)


def weight_and_bias(ours: str, theirs: str) -> dict[str, Tensors]:
    return {f"{ours}.{kind}": Tensors([f"{theirs}.{kind}"]) for kind in ("weight", "bias")}


def gpt2(family: str) -> Case:
    activation, tied = ("gelu_new", 1) if family == "gpt2" else ("gelu", 0)
    arguments = {"layers": 2, "width": 16, "heads": 2, "vocabulary": 11, "sequence": 7, "dropout": 0, "tied": tied}
    config = transformers.GPT2Config(vocab_size=11, n_positions=7, n_embd=16, n_layer=2, n_head=2,
                                     activation_function=activation, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0,
                                     tie_word_embeddings=bool(tied))
    names = weight_and_bias("norm", "transformer.ln_f")
    names |= {"token_embedding.weight": Tensors(["transformer.wte.weight"]),
              "position_embedding.weight": Tensors(["transformer.wpe.weight"])}
    for i in range(2):
        ours, theirs = f"block{i}", f"transformer.h.{i}"
        names |= weight_and_bias(f"{ours}.norm1", f"{theirs}.ln_1") | weight_and_bias(f"{ours}.norm2", f"{theirs}.ln_2")
        for mine, other in (("attention.in_proj_", "attn.c_attn."), ("attention.out_proj.", "attn.c_proj."),
                            ("fc1.", "mlp.c_fc."), ("fc2.", "mlp.c_proj.")):
            names[f"{ours}.{mine}weight"] = Tensors([f"{theirs}.{other}weight"], transposed=True)
            names[f"{ours}.{mine}bias"] = Tensors([f"{theirs}.{other}bias"])
    if not tied:
        names["head.weight"] = Tensors(["lm_head.weight"])
    return Case(family, arguments, "transformers.GPT2LMHeadModel", transformers.GPT2LMHeadModel(config),
                lambda m, tokens: m(tokens).logits, {"tokens": ([7], 11)}, ([7], 11), names)


def bert(family: str) -> Case:
    arguments = {"layers": 2, "width": 16, "heads": 2, "vocabulary": 11, "sequence": 7, "dropout": 0}
    config = transformers.BertConfig(vocab_size=11, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
                                     max_position_embeddings=7)
    place = "bert.embeddings."
    names = {"embeddings.tokens.weight": Tensors([place + "word_embeddings.weight"]),
             "embeddings.segments.weight": Tensors([place + "token_type_embeddings.weight"]),
             "embeddings.positions.weight": Tensors([place + "position_embeddings.weight"]),
             "head.bias.bias": Tensors(["cls.predictions.bias"])}
    pairs = {"embeddings.norm": place + "LayerNorm", "head.transform": "cls.predictions.transform.dense",
             "head.norm": "cls.predictions.transform.LayerNorm"}
    for i in range(2):
        ours, theirs = f"layer.{i}", f"bert.encoder.layer.{i}"
        pairs |= {f"{ours}.self_attn.out_proj": f"{theirs}.attention.output.dense",
                  f"{ours}.norm1": f"{theirs}.attention.output.LayerNorm",
                  f"{ours}.linear1": f"{theirs}.intermediate.dense",
                  f"{ours}.linear2": f"{theirs}.output.dense", f"{ours}.norm2": f"{theirs}.output.LayerNorm"}
        for kind in ("weight", "bias"):
            names[f"{ours}.self_attn.in_proj_{kind}"] = Tensors([f"{theirs}.attention.self.{part}.{kind}"
                                                                 for part in ("query", "key", "value")])
    for ours, theirs in pairs.items():
        names |= weight_and_bias(ours, theirs)
    return Case(family, arguments, "transformers.BertForMaskedLM", transformers.BertForMaskedLM(config),
                lambda m, tokens, segments: m(tokens, token_type_ids=segments).logits,
                {"tokens": ([7], 11), "segments": ([7], 2)}, ([7], 11), names)


def t5(family: str) -> Case:
    """150 positions are more than max_distance, so all buckets of relative positions are seen. Theirs computes norms
    and softmax in float32 whatever the type."""
    arguments = {"layers": 2, "width": 16, "heads": 2, "hidden": 24, "vocabulary": 5, "source": 150, "target": 40,
                 "dropout": 0}
    config = transformers.T5Config(vocab_size=5, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, dropout_rate=0)
    names = {"encoder.embedding.weight": Tensors(["shared.weight"])}
    for stack, branches in {"encoder": ("self", "perceptron"), "decoder": ("self", "cross", "perceptron")}.items():
        names[f"{stack}.relative_bias.weight"] = Tensors(
            [f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"])
        names[f"{stack}.norm.weight"] = Tensors([f"{stack}.final_layer_norm.weight"])
        for i in range(2):
            for k, branch in enumerate(branches):
                ours, theirs = f"{stack}.block{i}.{branch}", f"{stack}.block.{i}.layer.{k}"
                names[f"{ours}.norm.weight"] = Tensors([f"{theirs}.layer_norm.weight"])
                if branch == "perceptron":
                    names |= {f"{ours}.{w}.weight": Tensors([f"{theirs}.DenseReluDense.{w}.weight"])
                              for w in ("wi", "wo")}
                else:
                    theirs += ".SelfAttention." if branch == "self" else ".EncDecAttention."
                    names[f"{ours}.in_proj_weight"] = Tensors([f"{theirs}{part}.weight" for part in "qkv"])
                    names[f"{ours}.out_proj.weight"] = Tensors([f"{theirs}o.weight"])
    return Case(family, arguments, "transformers.T5ForConditionalGeneration",
                transformers.T5ForConditionalGeneration(config),
                lambda m, source, target: m(input_ids=source, decoder_input_ids=target).logits,
                {"source": ([150], 5), "target": ([40], 5)}, ([40], 5), names, tolerance=1e-6)


class Encoder(nn.Module):
    """torch.nn's encoder between the ends that our family has."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 24, dropout=0, batch_first=True), 2)
        self.classifier = nn.Linear(16, 5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(7.0).double()[:, None] / 10000 ** (torch.arange(0, 16, 2).double() / 16)
        positions = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        return self.classifier(self.encoder(self.embedding(tokens) * 4 + positions).mean(1))


def encoder(family: str) -> Case:
    arguments = {"layers": 2, "width": 16, "heads": 2, "hidden": 24, "vocabulary": 11, "sequence": 7, "classes": 5,
                 "dropout": 0}
    module = Encoder()
    names = {name.removeprefix("encoder."): Tensors([name]) for name in module.state_dict()}
    return Case(family, arguments, "torch.nn.TransformerEncoder", module, lambda m, tokens: m(tokens),
                {"tokens": ([7], 11)}, ([], 5), names)


CASES: dict[str, Callable[[str], Case]] = {
    **dict.fromkeys(RESNETS, resnet), **dict.fromkeys(("vgg11", "vgg13", "vgg16", "vgg19"), vgg), "alexnet": alexnet,
    **dict.fromkeys(("squeezenet1_0", "squeezenet1_1", "mobilenet_v2"), light), "densenet121": densenet,
    "inception_v3": inception, "gpt2": gpt2, "transformer": gpt2, "bert_base": bert, "t5_small": t5,
    "transformer_encoder": encoder}


def main() -> int:
    unknown = set(sys.argv[1:]) - set(CASES)
    if unknown:
        print(f"{__doc__}\nfamilies: {' '.join(CASES)}; not: {' '.join(sorted(unknown))}")
        return 2
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        content = json.dumps(values(CASES[name](name))) + "\n"
        (FOLDER / f"{name}.json").write_text(content)
        print(f"{name}: {len(content)} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
