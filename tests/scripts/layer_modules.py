"""Small modules for import_layers_test.py: every layer class of torch.nn with its main settings, functions, typical blocks,
losses, and modules that cannot be imported with what the message must name.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from import_runs_test import Labelled, One

torch.manual_seed(0)
VECTOR, SEQUENCE, LINE, IMAGE, VOLUME = "float32:6", "float32:5x6", "float32:4x8", "float32:4x8x8", "float32:4x4x4x4"
TOKENS = "int64:5:0..10"


def behind(first):
    """`example: (example, first, layer)` of layers or functions behind one with parameters."""
    def made(layer):
        if isinstance(layer, nn.Module):
            return nn.Sequential(first(), layer)
        return One(lambda m, x: layer(m.first(x)), first=first())
    return made


vector = sequence = behind(lambda: nn.Linear(6, 6))
line = behind(lambda: nn.Conv1d(4, 4, 3, padding=1))
image = behind(lambda: nn.Conv2d(4, 4, 3, padding=1))
volume = behind(lambda: nn.Conv3d(4, 4, 3, padding=1))
tokens = behind(lambda: nn.Embedding(11, 6))


def judged(loss):
    return Labelled(lambda m, x, target: loss(m.net(x), target), net=nn.Linear(6, 4))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(True),
                                  nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        return F.relu(x + self.body(x), inplace=True)


class Excited(nn.Module):
    """Hu et al., Squeeze-and-excitation networks, 2018."""

    def __init__(self, channels):
        super().__init__()
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 2, 1), nn.SiLU(), nn.Conv2d(2, channels, 1),
                                  nn.Sigmoid())

    def forward(self, x):
        return x * self.gate(x)


class SelfAttention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        made = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(made.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A block of GPT or of ViT."""

    def __init__(self, width, causal):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = SelfAttention(width, 2, causal)
        self.perceptron = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.norms[0](x))
        return x + self.perceptron(self.norms[1](x))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        x = self.first(x).relu()
        return self.last(torch.cat([x, self.up(self.down(x).relu())], 1))


def rotated(x):
    angle = torch.outer(torch.arange(5.0), torch.tensor([1.0, 0.1, 0.01]))
    one, other = x.chunk(2, -1)
    return torch.cat([one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()], -1)


def table(example, make, rows):
    return {name: (example, make(layer)) for name, layer in rows.items()}


# Of each: the example, the module.
ACCEPTED = {
    **table(VECTOR, vector, {
        "ELU": nn.ELU(0.5), "Hardshrink": nn.Hardshrink(), "Hardsigmoid": nn.Hardsigmoid(), "Hardtanh": nn.Hardtanh(-0.5, 2.0),
        "Hardtanh as ReLU6": nn.Hardtanh(0, 6), "Hardswish": nn.Hardswish(), "LeakyReLU": nn.LeakyReLU(0.2),
        "LeakyReLU upwards": nn.LeakyReLU(-0.1), "LogSigmoid": nn.LogSigmoid(), "PReLU": nn.PReLU(6), "ReLU": nn.ReLU(),
        "ReLU in place": nn.ReLU(True), "ReLU6": nn.ReLU6(), "SELU": nn.SELU(), "CELU": nn.CELU(2.0), "GELU": nn.GELU(),
        "GELU by tanh": nn.GELU("tanh"), "Sigmoid": nn.Sigmoid(), "SiLU": nn.SiLU(), "Mish": nn.Mish(),
        "Softplus": nn.Softplus(2, 10), "Softshrink": nn.Softshrink(), "Softsign": nn.Softsign(), "Tanh": nn.Tanh(),
        "Tanhshrink": nn.Tanhshrink(), "Threshold": nn.Threshold(0.1, 20), "GLU": nn.GLU(), "Softmin": nn.Softmin(-1),
        "Softmax": nn.Softmax(-1), "LogSoftmax": nn.LogSoftmax(-1), "Identity": nn.Identity(), "Dropout": nn.Dropout(0.3),
        "Linear without bias": nn.Linear(6, 3, bias=False), "LayerNorm": nn.LayerNorm(6),
        "LayerNorm without affine": nn.LayerNorm(6, elementwise_affine=False), "LayerNorm without bias": nn.LayerNorm(6, bias=False),
        "RMSNorm": nn.RMSNorm(6, eps=1e-5), "RMSNorm without eps": nn.RMSNorm(6), "BatchNorm1d": nn.BatchNorm1d(6),
        "GroupNorm of vectors": nn.GroupNorm(2, 6), "Unflatten": nn.Unflatten(1, (2, 3)),
        "weight_norm": parametrizations.weight_norm(nn.Linear(6, 3)), "orthogonal": parametrizations.orthogonal(nn.Linear(6, 6)),
        "LSTMCell": One(lambda m, x: m.cell(x)[0], cell=nn.LSTMCell(6, 4)), "GRUCell": nn.GRUCell(6, 4),
        "RNNCell": nn.RNNCell(6, 4, nonlinearity="relu"),
        "Bilinear": One(lambda m, x: m.both(x, x.tanh()), both=nn.Bilinear(6, 6, 3)),
        "CosineSimilarity": lambda x: nn.CosineSimilarity()(x, x.sin())[:, None],
        "PairwiseDistance": lambda x: nn.PairwiseDistance()(x, x.sin())[:, None],
        "normalize": F.normalize, "clamp": lambda x: x.clamp(-0.5, 0.5), "pow": lambda x: x.pow(3), "exp": torch.exp,
        "log1p": lambda x: x.abs().log1p(), "rsqrt": lambda x: (x * x + 1).rsqrt(), "where": lambda x: torch.where(x > 0, x, x * 2),
        "flip": lambda x: x.flip(1), "roll": lambda x: x.roll(2, 1), "stack": lambda x: torch.stack([x, x * 2], 1),
        "split": lambda x: torch.cat(x.split([2, 4], 1)[::-1], 1), "narrow": lambda x: x[:, 1:5:2], "gather": lambda x: x.gather(
            1, x.argsort(1)), "topk": lambda x: x.topk(3, 1)[0], "sort": lambda x: x.sort(1)[0], "cumsum": lambda x: x.cumsum(1),
        "logsumexp": lambda x: x.logsumexp(1, True), "norm": lambda x: x.norm(dim=1, keepdim=True), "amax": lambda x: x.amax(
            1, True), "std": lambda x: x.std(1, keepdim=True), "erf": torch.erf, "lerp": lambda x: torch.lerp(x, x.cos(), 0.3),
        "outer product": lambda x: x[:, :, None] * x[:, None], "einsum": lambda x: torch.einsum("bi,bj->bij", x, x),
        "a tuple's first": lambda x: (x.tanh(), x)[0], "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
        "reshape to rows": lambda x: (x.reshape(-1, 3) * 2).reshape(-1, 6)}),
    **table(SEQUENCE, sequence, {
        "Softmax of positions": nn.Softmax(1), "LayerNorm of two dimensions": nn.LayerNorm([5, 6]),
        "Flatten": nn.Flatten(), "RNN": One(lambda m, x: m.body(x)[0], body=nn.RNN(6, 4, batch_first=True)),
        "RNN of relu, both ways": One(lambda m, x: m.body(x)[0], body=nn.RNN(
            6, 4, nonlinearity="relu", bidirectional=True, batch_first=True)),
        "LSTM": One(lambda m, x: m.body(x)[0], body=nn.LSTM(6, 4, batch_first=True)),
        "LSTM of two layers, both ways": One(lambda m, x: m.body(x)[0], body=nn.LSTM(6, 4, 2, bidirectional=True, batch_first=True)),
        "LSTM with projection": One(lambda m, x: m.body(x)[0], body=nn.LSTM(6, 4, proj_size=2, batch_first=True)),
        "GRU": One(lambda m, x: m.body(x)[0], body=nn.GRU(6, 4, batch_first=True)),
        "MultiheadAttention": One(lambda m, x: m.body(x, x, x, need_weights=False)[0], body=nn.MultiheadAttention(
            6, 2, batch_first=True)),
        "MultiheadAttention with weights": One(lambda m, x: m.body(x, x, x)[0], body=nn.MultiheadAttention(6, 2, batch_first=True)),
        "TransformerEncoderLayer": nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
        "TransformerEncoderLayer, norms first, gelu": nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", batch_first=True,
                                                                                 norm_first=True),
        "TransformerEncoder": nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 2,
                                                    enable_nested_tensor=False),
        "TransformerDecoderLayer": One(lambda m, x: m.body(x, x.tanh()), body=nn.TransformerDecoderLayer(6, 2, 8, batch_first=True)),
        "Transformer": One(lambda m, x: m.body(x, x.tanh()), body=nn.Transformer(6, 2, 1, 1, 8, batch_first=True)),
        "a GPT block": Block(6, True), "a ViT block": Block(6, False), "rotary positions": rotated,
        "a learned table of positions": One(lambda m, x: x + m.table, table=nn.Parameter(torch.randn(5, 6))),
        "a class token": One(lambda m, x: torch.cat([m.token.expand(x.shape[0], -1, -1), x], 1)[:, 0],
                              token=nn.Parameter(torch.randn(1, 1, 6))),
        "MLP-Mixer": One(lambda m, x: x + m.mix(x.transpose(1, 2)).transpose(1, 2), mix=nn.Linear(5, 5)),
        "attention with a mask": lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(5, 5, dtype=torch.bool).tril()),
        "a band of scores": lambda x: torch.softmax(x @ x.transpose(1, 2) / math.sqrt(6), -1).tril() @ x,
        "batch second": lambda x: x.transpose(0, 1).relu().transpose(0, 1), "mean of positions": lambda x: x.mean(1),
        "depthwise along positions": One(lambda m, x: m.conv(x.transpose(1, 2)).transpose(1, 2),
                                          conv=nn.Conv1d(6, 6, 3, padding=1, groups=6))}),
    **table(TOKENS, tokens, {
        "Embedding": nn.Linear(6, 3), "mean of embeddings": lambda x: x.mean(1)}),
    **{f"EmbeddingBag, {mode}": (TOKENS, nn.Sequential(nn.EmbeddingBag(11, 6, mode=mode), nn.Linear(6, 3)))
       for mode in ("mean", "max")},
    "Embedding with padding": (TOKENS, nn.Sequential(nn.Embedding(11, 6, padding_idx=0), nn.Linear(6, 3))),
    "tied embedding": (TOKENS, One(lambda m, x: F.linear(m.body(m.embed(x)), m.embed.weight), embed=nn.Embedding(11, 6),
                                    body=nn.Linear(6, 6))),
    "a table's rows": (TOKENS, One(lambda m, x: m.table[x] * m.other[x], table=nn.Parameter(torch.randn(11, 4)),
                                    other=torch.randn(11, 4))),
    "one_hot": (TOKENS, One(lambda m, x: m.net(F.one_hot(x, 11).float()), net=nn.Linear(11, 4))),
    **table(LINE, line, {
        "Conv1d": nn.Conv1d(4, 6, 3, 2, dilation=2, groups=2), "Conv1d, same": nn.Conv1d(4, 6, 3, padding="same"),
        "ConvTranspose1d": nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), "BatchNorm1d of channels": nn.BatchNorm1d(4),
        "InstanceNorm1d": nn.InstanceNorm1d(4), "MaxPool1d": nn.MaxPool1d(2), "AvgPool1d": nn.AvgPool1d(3, 2, 1),
        "LPPool1d": nn.LPPool1d(2, 2), "AdaptiveMaxPool1d": nn.AdaptiveMaxPool1d(3), "AdaptiveAvgPool1d": nn.AdaptiveAvgPool1d(3),
        "ReflectionPad1d": nn.ReflectionPad1d(2), "ReplicationPad1d": nn.ReplicationPad1d((1, 2)), "ZeroPad1d": nn.ZeroPad1d(1),
        "ConstantPad1d": nn.ConstantPad1d(1, 0.5), "CircularPad1d": nn.CircularPad1d(2),
        "Upsample, linear": nn.Upsample(scale_factor=2, mode="linear")}),
    **table(IMAGE, image, {
        "Conv2d": nn.Conv2d(4, 6, 3), "Conv2d, strided and dilated": nn.Conv2d(4, 6, 3, 2, 2, 2, bias=False),
        "Conv2d, depthwise": nn.Conv2d(4, 4, 3, padding=1, groups=4), "Conv2d, uneven": nn.Conv2d(4, 6, (3, 1), (1, 2), (1, 0)),
        "Conv2d, reflected": nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        "ConvTranspose2d": nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), "ConvTranspose2d, dilated": nn.ConvTranspose2d(4, 6, 3, dilation=2),
        "BatchNorm2d": nn.BatchNorm2d(4), "InstanceNorm2d": nn.InstanceNorm2d(4),
        "InstanceNorm2d with affine": nn.InstanceNorm2d(4, affine=True), "GroupNorm": nn.GroupNorm(2, 4),
        "GroupNorm without affine": nn.GroupNorm(2, 4, affine=False), "LocalResponseNorm": nn.LocalResponseNorm(3),
        "LayerNorm of images": nn.LayerNorm([4, 8, 8]), "MaxPool2d": nn.MaxPool2d(2), "MaxPool2d, overlapping": nn.MaxPool2d(3, 2, 1),
        "MaxPool2d, dilated": nn.MaxPool2d(2, dilation=2), "MaxPool2d, uneven": nn.MaxPool2d((2, 1)),
        "AvgPool2d": nn.AvgPool2d(2), "AvgPool2d, hanging": nn.AvgPool2d(3, 2, 1, True, False),
        "AvgPool2d, divisor": nn.AvgPool2d(2, divisor_override=3), "LPPool2d": nn.LPPool2d(2, 2),
        "AdaptiveAvgPool2d": nn.AdaptiveAvgPool2d(2), "AdaptiveAvgPool2d, uneven": nn.AdaptiveAvgPool2d((2, 3)),
        "AdaptiveMaxPool2d": nn.AdaptiveMaxPool2d(2), "Softmax2d": nn.Softmax2d(), "Dropout2d": nn.Dropout2d(0.2),
        "ReflectionPad2d": nn.ReflectionPad2d(1), "ReplicationPad2d": nn.ReplicationPad2d(1), "ZeroPad2d": nn.ZeroPad2d((1, 0, 2, 1)),
        "ConstantPad2d": nn.ConstantPad2d(1, 0.5), "CircularPad2d": nn.CircularPad2d(1), "PixelShuffle": nn.PixelShuffle(2),
        "PixelUnshuffle": nn.PixelUnshuffle(2), "ChannelShuffle": nn.ChannelShuffle(2), "Unfold": nn.Unfold(3),
        "Fold": lambda x: F.fold(F.unfold(x, 2, stride=2), (8, 8), 2, stride=2), "Upsample": nn.Upsample(scale_factor=2),
        "Upsample, bilinear": nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        "Upsample, bicubic": nn.Upsample((5, 7), mode="bicubic"), "UpsamplingNearest2d": nn.UpsamplingNearest2d(scale_factor=2),
        "UpsamplingBilinear2d": nn.UpsamplingBilinear2d(scale_factor=2), "PReLU of channels": nn.PReLU(4),
        "MaxUnpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
        "grid_sample": lambda x: F.grid_sample(x, F.affine_grid(torch.eye(2, 3)[None].expand(x.shape[0], -1, -1), [x.shape[0], 4, 5, 5],
                                                                False), align_corners=False),
        "a residual block": Residual(4), "squeeze and excitation": Excited(4), "U-Net": UNet(),
        "channels last": One(lambda m, x: m.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), norm=nn.LayerNorm(4)),
        "patches": One(lambda m, x: m.conv(x).flatten(2).transpose(1, 2), conv=nn.Conv2d(4, 6, 4, 4)),
        "global mean": lambda x: x.mean((2, 3)), "a layer's scale": One(lambda m, x: x * m.gamma[:, None, None],
                                                                          gamma=nn.Parameter(torch.full((4,), 0.1)))}),
    **table(VOLUME, volume, {
        "Conv3d": nn.Conv3d(4, 6, 3), "ConvTranspose3d": nn.ConvTranspose3d(4, 2, 2, 2), "BatchNorm3d": nn.BatchNorm3d(4),
        "InstanceNorm3d": nn.InstanceNorm3d(4), "MaxPool3d": nn.MaxPool3d(2), "AvgPool3d": nn.AvgPool3d(2),
        "AdaptiveAvgPool3d": nn.AdaptiveAvgPool3d(2), "AdaptiveMaxPool3d": nn.AdaptiveMaxPool3d(2),
        "ReflectionPad3d": nn.ReflectionPad3d(1), "ReplicationPad3d": nn.ReplicationPad3d(1), "ZeroPad3d": nn.ZeroPad3d(1),
        "ConstantPad3d": nn.ConstantPad3d(1, 0.5), "CircularPad3d": nn.CircularPad3d(1),
        "Upsample, trilinear": nn.Upsample(scale_factor=2, mode="trilinear")}),
}

LABEL, VALUES, SHARES, SIGNS = "int64::0..3", "float32:4", "float32:4:0..1", "int64:4:0..1"
# Of each: the target, the module, whose output is its loss.
LOSSES = {name: (target, judged(loss)) for name, (target, loss) in {
    "CrossEntropyLoss": (LABEL, nn.CrossEntropyLoss()),
    "CrossEntropyLoss, weighted and smoothed": (LABEL, nn.CrossEntropyLoss(torch.linspace(0.5, 2, 4), label_smoothing=0.1)),
    "MSELoss": (VALUES, nn.MSELoss()), "L1Loss": (VALUES, nn.L1Loss()),
    "SmoothL1Loss": (VALUES, nn.SmoothL1Loss(beta=0.5)), "HuberLoss": (VALUES, nn.HuberLoss(delta=0.5)),
    "NLLLoss": (LABEL, lambda y, t: F.nll_loss(y.log_softmax(-1), t)), "PoissonNLLLoss": (SHARES, nn.PoissonNLLLoss()),
    "KLDivLoss": (VALUES, lambda y, t: F.kl_div(y.log_softmax(-1), t.softmax(-1), reduction="batchmean")),
    "BCELoss": (SHARES, lambda y, t: F.binary_cross_entropy(y.sigmoid(), t)), "BCEWithLogitsLoss": (SHARES, nn.BCEWithLogitsLoss()),
    "SoftMarginLoss": (VALUES, lambda y, t: F.soft_margin_loss(y, t.sign())),
    "MultiLabelSoftMarginLoss": (SHARES, nn.MultiLabelSoftMarginLoss()), "MultiMarginLoss": (LABEL, nn.MultiMarginLoss()),
    "HingeEmbeddingLoss": (VALUES, lambda y, t: F.hinge_embedding_loss(y, t.sign())),
    "CosineEmbeddingLoss": (VALUES, lambda y, t: F.cosine_embedding_loss(y, t, torch.ones(y.shape[0]))),
    "TripletMarginLoss": (VALUES, lambda y, t: F.triplet_margin_loss(y, t, t.roll(1, 1))),
    "MarginRankingLoss": (VALUES, lambda y, t: F.margin_ranking_loss(y, t, torch.ones_like(y)))}.items()}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 3


def hooked():
    net = nn.Linear(6, 3)
    net.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
    return nn.Sequential(nn.Linear(6, 6), net)


def counting(m, x):
    m.steps.add_(1)
    return m.net(x) * m.steps


# Of each: the example, the module, what the message names.
REFUSED = {
    "RReLU": (VECTOR, vector(nn.RReLU()), "rrelu"),
    "AlphaDropout": (VECTOR, vector(nn.AlphaDropout(0.3)), "alpha_dropout"),
    "Dropout1d": (SEQUENCE, sequence(nn.Dropout1d(0.3)), "feature_dropout"),
    "Dropout3d": (VOLUME, volume(nn.Dropout3d(0.2)), "feature_dropout"),
    "EmbeddingBag, sum": (TOKENS, nn.Sequential(nn.EmbeddingBag(11, 6, mode="sum"), nn.Linear(6, 3)), "embedding_bag"),
    "CrossEntropyLoss of shares": (VECTOR, vector(lambda x: F.cross_entropy(x, x.softmax(-1))), "number of samples"),
    "GaussianNLLLoss": (VECTOR, vector(lambda x: F.gaussian_nll_loss(x, x, torch.ones_like(x))), "gaussian_nll_loss"),
    "noise": (VECTOR, vector(lambda x: x + torch.randn_like(x)), "randn_like"),
    "FractionalMaxPool2d": (IMAGE, image(nn.FractionalMaxPool2d(2, output_size=4)), "rand"),
    "BatchNorm1d without affine": (VECTOR, vector(nn.BatchNorm1d(6, affine=False)), "affine=True"),
    "BatchNorm1d without statistics": (VECTOR, vector(nn.BatchNorm1d(6, track_running_stats=False)), "track_running_stats=True"),
    "BatchNorm1d, cumulative": (VECTOR, vector(nn.BatchNorm1d(6, momentum=None)), "values of a tensor"),
    "InstanceNorm1d with statistics": (LINE, line(nn.InstanceNorm1d(4, track_running_stats=True)), "running"),
    "spectral_norm": (VECTOR, parametrizations.spectral_norm(nn.Linear(6, 3)), "weight"),
    "Embedding with a largest norm": (TOKENS, nn.Sequential(nn.Embedding(11, 6, max_norm=1.0), nn.Linear(6, 3)), "embedding"),
    "a lazy layer": (VECTOR, nn.LazyLinear(3), "lazy"), "half a precision": (VECTOR, nn.Linear(6, 3).half(), "float16"),
    "complex numbers": (VECTOR, One(lambda m, x: m.net(x).abs(), net=nn.Linear(6, 3, dtype=torch.complex64)), "complex"),
    "a mean over samples": (VECTOR, vector(lambda x: x - x.mean(0)), "samples"),
    "a softmax over samples": (VECTOR, vector(nn.Softmax(0)), "layer 1 mixes the samples"),
    "a branch by value": (VECTOR, vector(lambda x: x if x.sum() > 0 else -x), "value"),
    "a shape by value": (VECTOR, vector(lambda x: x[x > 0]), "value"), "numbers of Python": (VECTOR, vector(lambda x: x * x.max().item()),
                                                                                           "item"),
    "positions by value": (VECTOR, vector(lambda x: x.nonzero().float()), "value"),
    "a counter": (VECTOR, One(counting, net=nn.Linear(6, 3), steps=torch.zeros(())), "steps"),
    "inputs that change": (VECTOR, One(lambda m, x: m.net(x.add_(1)), net=nn.Linear(6, 3)), "x"),
    "a hook": (VECTOR, hooked(), "hook"), "a backward of its own": (VECTOR, vector(Doubled.apply), "autograd.Function"),
    "no sample": (VECTOR, One(lambda m, x: m.net.weight.sum() * torch.ones(3), net=nn.Linear(6, 3)), "no batch"),
    "numpy": (VECTOR, vector(lambda x: torch.from_numpy(x.detach().numpy()) * 2), "numpy"),
    "an error of its own": (VECTOR, vector(lambda x: x @ torch.ones(7, 2)), "shape"),
    "an output that is no tensor": (VECTOR, vector(lambda x: {"sum": 3}), "tensor"),
    "a dropout above ours": (VECTOR, vector(nn.Dropout(0.999)), "0.99"),
}
