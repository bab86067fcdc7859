"""python3 tests/scripts/import_torch_test.py: scripts/import-torch on small modules. Needs torch
(scripts/support/with_torch.py).
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from import_torch import data, factory, importer, weights  # noqa: E402
from import_torch.document import indented  # noqa: E402
from import_torch.refused import Refused  # noqa: E402


def imported(module, *examples, loss=None, level="module", target=(), output=None):
    torch.manual_seed(0)
    given = [factory.parse_example(text) for text in examples]
    for text in target:
        given.append(factory.parse_example(text))
        given[-1].target = True
    factory.name_inputs(module, given)
    return importer.import_module(module, given, "test", loss, level, output)


def module_of(forward, **parts):
    """A module with these parts, whose forward is `forward(self, x)`."""
    class Made(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                    self.register_buffer(name, part)
                else:
                    setattr(self, name, part)

        def forward(self, x):
            return forward(self, x)
    return Made()


class Refusing(unittest.TestCase):
    def refused(self, message, module, *examples, **options):
        with self.assertRaises(Refused) as caught:
            imported(module, *examples, **options)
        self.assertIn(message, str(caught.exception))


class Layers(unittest.TestCase):
    def layers(self, *arguments, **options):
        return {layer["name"]: layer for layer in imported(*arguments, **options).document["layers"]}

    def test_layers_bear_the_names_of_modules_and_weights_those_of_the_state_dict(self):
        made = imported(nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()), "float32:3x8x8")
        self.assertEqual([(layer["name"], layer["op"]) for layer in made.document["layers"]],
                         [("0", "conv2d"), ("1", "batch_norm2d"), ("2", "relu")])
        self.assertEqual(list(made.weights), ["0.weight", "1.weight", "1.bias", "1.running_mean", "1.running_var"])

    def test_a_block_between_its_children_is_split_where_it_would_wait_for_itself(self):
        def forward(self, x):
            return self.b(self.a(x) * 2) * 3
        block = module_of(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4))
        names = list(self.layers(nn.Sequential(block), "float32:4"))
        self.assertEqual(names, ["0.a", "0", "0.b", "0/2"])

    def test_parameters_that_require_no_gradient_are_frozen(self):
        block = module_of(lambda self, x: self.b(self.a(x).relu()), a=nn.Linear(4, 4), b=nn.Linear(4, 4))
        module = nn.Sequential(block, nn.LayerNorm(4), nn.Linear(4, 2))
        for name in ("0.a.weight", "0.a.bias", "0.b.bias", "1.weight", "1.bias"):
            module.get_parameter(name).requires_grad = False
        made = imported(module, "float32:4", level="op")
        frozen = [layer.get("frozen") for layer in made.document["layers"] if layer["op"] != "relu"]
        self.assertEqual(frozen, [True, ["bias"], True, None])
        self.assertEqual(made.trained, {"0.b.weight", "2.weight", "2.bias"})
        self.assertEqual(made.parameters, set(made.weights))
        whole = imported(nn.Sequential(block.requires_grad_(False), nn.Linear(4, 2)), "float32:4", level="block")
        layer = whole.document["layers"][0]
        self.assertEqual((layer["op"], layer["frozen"]), ("graph", True))
        self.assertFalse(any("frozen" in node for node in layer["nodes"]))

    def test_blocks_are_elements_of_lists(self):
        inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        block = module_of(lambda self, x: x + self.body(x), body=inner)
        module = nn.Sequential(block, module_of(lambda self, x: self.lin(x).relu(), lin=nn.Linear(4, 2)))
        layers = self.layers(module, "float32:4", level="block")
        self.assertEqual(list(layers), ["0", "1"])
        self.assertEqual([node["name"] for node in layers["0"]["nodes"]], ["body.0", "body.1", "add"])

    def test_parameters_of_a_block_keep_their_names(self):
        made = imported(nn.Sequential(module_of(lambda self, x: self.lin(x) * self.gain, lin=nn.Linear(4, 4),
                                                gain=nn.Parameter(torch.ones(4)))), "float32:4", level="block")
        self.assertEqual(list(made.weights), ["0.lin.weight", "0.lin.bias", "0.gain"])

    def test_a_mask_is_a_constant_that_is_spread_over_the_samples(self):
        def forward(self, x):
            mask = torch.full((4, 4), float("-inf")).triu(1).expand(x.shape[0], 4, 4)
            return self.lin(torch.softmax(x + mask, -1))
        layers = self.layers(module_of(forward, lin=nn.Linear(4, 4)), "float32:4x4")
        node = layers["root"]["nodes"][0]
        self.assertEqual(node["call"]["target"], "aten::expand")
        self.assertEqual(node["call"]["constants"][0]["values"][:2], [0.0, {"number": "-inf"}])
        self.assertEqual(node["call"]["arguments"]["size"], [{"batch": [1, 0]}, 4, 4])

    def test_a_tensor_without_batch_is_spread_over_the_samples_where_it_leaves_its_layer(self):
        first = module_of(lambda self, x: (x + self.table, self.table * 2), table=nn.Parameter(torch.ones(3, 4)))
        last = module_of(lambda self, both: both[0] * both[1] + self.shift, shift=nn.Parameter(torch.zeros(4)))
        layers = self.layers(nn.Sequential(first, nn.Identity(), last), "float32:3x4", level="module")
        self.assertEqual([node.get("call", {}).get("target") for node in layers["0"]["nodes"]],
                         ["aten::add.Tensor", "aten::mul.Scalar", "aten::unsqueeze", "aten::expand"])
        self.assertEqual(layers["2"]["nodes"][0]["call"]["target"], "aten::select.int")

    def test_what_depends_on_no_input_goes_with_its_first_reader(self):
        def forward(self, x):
            return x + self.kinds(torch.zeros(x.shape[0], 3, dtype=torch.int64))
        layers = self.layers(module_of(forward, kinds=nn.Embedding(2, 4)), "float32:3x4")
        found = [(name, layer["inputs"], [node["name"] for node in layer["nodes"]]) for name, layer in layers.items()]
        self.assertEqual(found,
                         [("root", ["x"], ["kinds", "embedding", "add"])])

    def test_windows_of_a_sample_are_rows(self):
        def forward(self, x):
            windows = self.lin(x.reshape(-1, 4))
            return windows.reshape(-1, 3, 5)
        node = self.layers(module_of(forward, lin=nn.Linear(4, 5)), "float32:3x4", level="op")
        self.assertTrue(any(record.get("rows") == 3 for layer in node.values() for n in layer.get("nodes", [layer])
                            for record in n.get("call", {}).get("outputs", [])))

    def test_a_tied_layer_uses_the_weights_of_the_first(self):
        module = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10, bias=False))
        module[2].weight = module[0].weight
        made = imported(module, "int64:6:0..9")
        self.assertEqual(made.document["layers"][2]["weights_of"], "0")
        self.assertEqual(list(made.weights), ["0.weight", "1.weight", "1.bias"])

    def test_the_bias_of_a_tied_layer_is_its_own_layer(self):
        module = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10))
        module[1].weight = module[0].weight
        made = imported(module, "int64:6:0..9")
        self.assertEqual(list(made.weights), ["0.weight", "1.bias"])

    def attention(self, **options):
        def forward(self, x):
            rate = options.get("dropout", 0.0) if self.training else 0.0
            given = {key: value for key, value in options.items() if key != "dropout"}
            return F.scaled_dot_product_attention(self.q(x), x, x, dropout_p=rate, **given)
        layers = self.layers(module_of(forward, q=nn.Linear(4, 4)), "float32:6x4")
        return next(layer for name, layer in layers.items() if name != "q")

    def test_attention_without_a_mask_is_ours(self):
        for given, attributes in (({}, {"causal": False, "dropout": 0.0}),
                                  ({"scale": 0.5}, {"causal": False, "dropout": 0.0}),
                                  ({"dropout": 0.25, "is_causal": True}, {"causal": True, "dropout": 0.25})):
            layer = self.attention(**given)
            self.assertEqual((layer["op"], layer["attributes"]), ("scaled_dot_product_attention", attributes))

    def test_attention_with_a_mask_or_another_scale_stays_torchs(self):
        for given in ({"scale": 0.25}, {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril()}):
            self.assertEqual(self.attention(**given)["call"]["target"], "aten::scaled_dot_product_attention")

    def test_attention_with_dropout_and_a_mask_is_written_out(self):
        nodes = self.attention(dropout=0.25, attn_mask=torch.ones(6, 6).tril().log())["nodes"]
        self.assertIn({"p": 0.25}, [node.get("attributes") for node in nodes if node["op"] == "dropout"])

    def test_dropout_beside_the_batch_has_it_moved_to_the_front(self):
        module = module_of(lambda self, x: self.drop(self.lin(x).transpose(0, 1)).sum(0), lin=nn.Linear(4, 4),
                           drop=nn.Dropout(0.2))
        nodes = self.layers(module, "float32:6x4", level="module")["drop"]["nodes"]
        self.assertEqual([node.get("call", {}).get("target", node["op"]) for node in nodes][1:-1],
                         ["aten::movedim.int", "dropout", "aten::movedim.int"])

    def test_recurrent_layers_without_dropout_draw_nothing(self):
        layers = self.layers(module_of(lambda self, x: self.rnn(x)[0], rnn=nn.GRU(4, 5, batch_first=True)),
                             "float32:6x4")
        self.assertEqual(layers["rnn"]["nodes"][-1]["call"]["target"], "aten::gru.input")

    def test_whole_samples_are_dropped_by_stochastic_depth(self):
        def forward(self, x):
            noise = torch.empty(x.shape[0], 1).bernoulli_(0.75).div_(0.75) if self.training else 1.0
            return self.lin(x) * noise
        layers = self.layers(module_of(forward, lin=nn.Linear(4, 4)), "float32:4")
        self.assertEqual(layers["mul"]["attributes"], {"p": 0.25})

    def test_batch_norm_of_vectors_sequences_and_volumes(self):
        for norm, example in ((nn.BatchNorm1d(4), "float32:4"), (nn.BatchNorm1d(4), "float32:4x6")):
            self.assertEqual(self.layers(nn.Sequential(norm, nn.ReLU()), example)["0"]["op"], "batch_norm1d")
        layers = self.layers(nn.Sequential(nn.BatchNorm3d(4), nn.ReLU()), "float32:4x2x3x5")
        self.assertEqual([node["op"] for node in layers["0"]["nodes"]], ["reshape", "batch_norm2d", "reshape"])

    def test_what_moves_elements_of_a_sample_is_named(self):
        def forward(self, x):
            a, b = self.lin(x).reshape(-1, 3, 2, 4).transpose(1, 2).chunk(2, -1)
            return self.conv(self.norm((a @ b.transpose(-2, -1))[:, :, 1:])).unsqueeze(1)
        module = module_of(forward, lin=nn.Linear(5, 8), norm=nn.GroupNorm(2, 2),
                           conv=nn.ConvTranspose2d(2, 3, 2, stride=2))
        layers = self.layers(module, "float32:3x5", level="op")
        self.assertEqual([layer["op"] for layer in layers.values()],
                         ["linear", "reshape", "permute", "chunk", "permute", "matmul", "slice", "group_norm",
                          "conv_transpose2d", "reshape"])
        self.assertEqual(next(layer for layer in layers.values() if layer["op"] == "slice")["attributes"],
                         {"dim": 1, "start": 1, "end": 3, "step": 1})

    def test_an_lstm_is_ours(self):
        module = nn.Sequential(nn.LSTM(4, 5, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1))
        layers = self.layers(module, "float32:6x4")
        self.assertEqual(layers["0"]["attributes"]["hidden_size"], 5)

    def test_the_loss_of_a_module_is_that_of_the_table_where_it_is_one(self):
        class Loss(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 5)

            def forward(self, x, labels):
                return F.cross_entropy(self.lin(x), labels, label_smoothing=0.1)
        document = imported(Loss(), "float32:4", target=("int64::0..4",), loss="module").document
        self.assertEqual(document["loss"], {"op": "cross_entropy", "inputs": ["lin", "labels"],
                                            "attributes": {"label_smoothing": 0.1}})
        self.assertEqual(document["targets"], [{"name": "labels", "dtype": "int64", "shape": []}])

    def test_of_several_outputs_one_is_chosen_by_name_index_or_a_telling_name(self):
        def returns(make):
            return module_of(lambda self, x: make(self.body(x), self.head(torch.tanh(self.body(x)))),
                             body=nn.Linear(4, 6), head=nn.Linear(6, 3))
        pair = returns(lambda features, logits: (features, logits))
        named = returns(lambda features, scores: {"features": features, "scores": scores})
        telling = returns(lambda features, logits: {"features": features, "logits": logits, "cache": (features, None)})
        for module, output, layer, left_out in ((pair, "1", "head", ["0"]), (pair, "0", "body", ["1"]),
                                                (named, "scores", "head", ["features"]), (named, "1", "head", ["features"]),
                                                (telling, None, "head", ["features", "cache"])):
            made = imported(module, "float32:4", loss="cross_entropy", output=output)
            self.assertEqual((made.document["outputs"], made.document["loss"]["inputs"][0]), ([layer], layer))
            self.assertEqual(made.left_out, left_out)

    def test_labels_that_do_not_count_and_class_weights_are_the_weight_of_a_sample(self):
        options = {"target": ("int64:3:1..4",), "loss": "module"}  # the example shows no label 0
        for given in ({"ignore_index": 0}, {"ignore_index": 0, "label_smoothing": 0.2}, {}):
            found = imported(Sequence(lambda m, y, labels, given=given: F.cross_entropy(y, labels, **given) * 2),
                             "float32:3x4", **options)
            call = next(node["call"] for node in found.document["loss"]["nodes"] if "cross_entropy" in str(node))
            self.assertEqual(call["arguments"].get("ignore_index", -100), given.get("ignore_index", -100))
        weighted = imported(Sequence(lambda m, y, labels: F.cross_entropy(y, labels, weight=m.w)), "float32:3x4",
                            **options)
        self.assertEqual(weighted.document["loss"]["nodes"][-1]["call"]["constants"][0]["values"], [1, 2, 3, 4, 5])


class Sequence(nn.Module):
    """Five classes at three positions; `loss(module, logits, labels)` with all positions in one dimension."""
    def __init__(self, loss):
        super().__init__()
        self.lin, self.loss = nn.Linear(4, 5), loss
        self.register_buffer("w", torch.arange(1.0, 6.0))

    def forward(self, x, labels):
        return self.loss(self, self.lin(x).flatten(0, 1), labels.flatten())


class Reversal(torch.autograd.Function):
    """A backward that is not the forward's: domain-adversarial training."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Itself(Refusing):
    """What torch.export does not keep is seen by comparing with the module itself."""

    def test_a_backward_of_its_own_is_refused_with_the_parameter(self):
        module = module_of(lambda self, x: self.b(Reversal.apply(self.a(x))), a=nn.Linear(4, 4), b=nn.Linear(4, 2))
        # The gradient has the other sign: twice its largest value away.
        self.refused("the gradient of a.weight differs from the module's by 2.0e+00 of its largest", module, "float32:4")

    def test_hooks_of_tensors_parameters_and_modules_are_refused(self):
        lin = nn.Linear(4, 2)
        lin.weight.register_hook(lambda grad: grad * 0.5)
        self.refused("the gradient of 0.weight differs from the module's by 1.0e+00", nn.Sequential(lin), "float32:4")

        def forward(self, x):
            hidden = self.a(x)
            if hidden.requires_grad and not torch.compiler.is_compiling():
                hidden.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
            return self.b(hidden)
        self.refused("the gradient of a.weight", module_of(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2)), "float32:4")
        block = nn.Linear(4, 4)
        block.register_full_backward_hook(lambda module, grads, above: (grads[0] * 3,))
        self.refused("the gradient of 0.weight", nn.Sequential(nn.Linear(4, 4), block), "float32:4")

    def test_a_dropped_layer_of_pythons_random_is_refused(self):
        def forward(self, x):
            return self.b(x if self.training and random.random() < 1e-9 else self.a(x))
        self.refused("draws numbers of Python's random", module_of(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2)), "float32:4")

    def test_state_beside_the_state_dict_that_training_changes_is_refused(self):
        class Centered(nn.Module):
            def __init__(self, late):
                super().__init__()
                self.lin, self.late = nn.Linear(8, 8), late
                self.register_buffer("mean", torch.zeros(8), persistent=False)

            def forward(self, x):
                made = None if self.late else self.lin(x - self.mean)
                if self.training:
                    self.mean.lerp_(x.detach().mean(0), 0.01)
                return self.lin(x - self.mean) if made is None else made
        for late in (False, True):
            self.refused("changes mean in forward()", Centered(late), "float32:8")

    def test_samples_are_dropped_by_floor(self):
        def forward(self, x):
            y = self.a(x)
            if self.training:
                y = y.div(0.7) * (0.7 + torch.rand(x.shape[0], 1)).floor_()
            return self.b(x + y)
        made = imported(module_of(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2)), "float32:4", level="op")
        dropped = [layer["attributes"] for layer in made.document["layers"] if layer["op"] == "stochastic_depth"]
        self.assertEqual(dropped, [{"p": 0.3}])

    def test_parameters_that_share_memory_are_refused(self):
        module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
        module[1].weight.data = module[0].weight.data
        self.refused("0.weight and 1.weight share memory", module, "float32:4")

    def test_one_module_with_buffers_under_two_names(self):
        norm = nn.BatchNorm1d(4)
        made = imported(module_of(lambda self, x: self.lin(self.second(x)), first=norm, second=norm, lin=nn.Linear(4, 2)),
                        "float32:4")
        self.assertEqual(len([name for name in made.weights if name.endswith("running_mean")]), 1)

    def test_parameters_are_concatenated(self):
        def forward(self, x):
            return self.lin(x + torch.cat([self.one, self.two]))
        made = imported(module_of(forward, lin=nn.Linear(4, 4), one=nn.Parameter(torch.ones(1, 4)),
                                  two=nn.Parameter(torch.ones(2, 4))), "float32:3x4")
        self.assertEqual(sorted(made.trained), ["lin.bias", "lin.weight", "one", "two"])

    def test_parts_in_float32_are_marked(self):
        def forward(self, x):
            wide = self.a(x).float()
            norm = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.b(torch.softmax(norm.to(x.dtype), -1, dtype=torch.float32).type_as(x)).neg()
        nodes = imported(module_of(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2)), "float32:4", level="op").document["layers"]
        calls = {layer["call"]["target"]: layer["call"].get("precision") for layer in nodes if layer["op"] == "aten"}
        single = {"aten::pow.Tensor_Scalar", "aten::mean.dim", "aten::add.Scalar", "aten::rsqrt", "aten::softmax.int"}
        self.assertEqual({target for target, precision in calls.items() if precision == "float32"} - {"aten::mul.Tensor"}, single)
        self.assertIsNone(calls["aten::neg"])  # behind the cast back

    def test_parts_in_float32_are_found_where_more_is_cast_in_bfloat16(self):
        def forward(self, x):
            norm = self.a(x).float().pow(2)
            if self.a.weight.dtype == torch.bfloat16:
                norm = norm.to(torch.bfloat16)
            return self.b(norm).neg()
        made = imported(module_of(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 2)), "float32:4", level="op")
        calls = {layer["call"]["target"]: layer["call"].get("precision") for layer in made.document["layers"] if "call" in layer}
        self.assertEqual(calls, {"aten::pow.Tensor_Scalar": "float32", "aten::neg": None})
        pixels = imported(module_of(lambda self, x: self.a(x.float() / 255), a=nn.Conv2d(1, 2, 3)), "uint8:1x4x4:0..255")
        self.assertIn("in a bfloat16 run its casts to float32 do nothing", pixels.notes[0])

    def test_products_of_a_transposed_convolution_are_counted_from_its_input(self):
        # 3 x 5 inputs, each multiplied with 4 channels of 3 taps: 2 * 15 * 12 operations; kernel 3, stride 2: 11 outputs.
        made = imported(nn.Sequential(nn.ConvTranspose1d(3, 4, 3, stride=2)), "float32:3x5")
        self.assertEqual(made.document["layers"][0]["call"]["flops"], 360.0)


class Refusals(Refusing):
    def test_what_mixes_samples_is_refused_with_its_layer(self):
        self.refused("layer 0 mixes the samples of a batch",
                     nn.Sequential(module_of(lambda self, x: self.lin(x - x.mean(0)), lin=nn.Linear(4, 4))),
                     "float32:4", level="block")

    def test_several_outputs_without_a_choice_are_listed(self):
        module = module_of(lambda self, x: (self.lin(x), self.lin(x).relu()), lin=nn.Linear(4, 3))
        self.refused("the module returns 2 tensors: 0 [batch, 3], 1 [batch, 3]; say with --output NAME|INDEX", module,
                     "float32:4", loss="mse")
        self.refused("--output 2: the module returns no such tensor; choose one of 0 [batch, 3], 1 [batch, 3]", module,
                     "float32:4", output="2")

    def test_a_mixture_of_experts_of_transformers_is_refused_with_its_block(self):
        block = module_of(lambda self, x: self.experts[0](x), experts=nn.ModuleList([nn.Linear(4, 4)]))
        module = nn.Sequential(nn.Linear(4, 4), block)
        module.config = types.SimpleNamespace(model_type="mixtral")
        self.refused(f"1: {type(block).__name__} sends positions to experts by their values", module, "float32:4")

    def test_weights_in_float16_are_refused(self):
        self.refused("0.weight is float16, which pp-run has no weights of; import the module as .float()",
                     nn.Sequential(nn.Linear(4, 3)).half(), "float32:4")

    def test_a_penalty_on_weights_in_the_loss_is_refused(self):
        class Loss(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 5)

            def forward(self, x, labels):
                return F.cross_entropy(self.lin(x), labels) + 0.1 * self.penalty(x)
        for penalty, reason in ((lambda m, x: m.lin.weight.square().sum(), "depends on parameters alone; leave it out of the loss"),
                                (lambda m, x: (m.lin.bias * m.lin(x).mean(0)).sum(), "computes from all samples of a batch")):
            Loss.penalty = penalty
            self.refused(reason, Loss(), "float32:4", target=("int64::0..4",), loss="module")

    def test_what_a_pipeline_cannot_have_is_refused(self):
        def overwritten(self, x):
            y = self.lin(x)
            y[:, 0] = 1.0
            return y * 2

        def twice(self, x):
            mask = torch.empty(x.shape[0], 1).bernoulli_(0.5).div_(0.5) if self.training else 1.0
            return self.lin(x) * mask + x * mask
        for message, forward in (
                ("mixes the samples of a batch", lambda self, x: (self.lin(x) @ x.T) @ x),
                ("must not depend on each other", lambda self, x: torch.eye(x.shape[0]) @ self.lin(x)),
                ("changes mean in forward()", lambda self, x: self.lin(x) - self.mean.mul_(0.9)),
                ("changes the input x", lambda self, x: self.lin(x.mul_(2))),
                ("works in place", overwritten),
                ("draws random numbers", lambda self, x: self.lin(x) + torch.randn_like(x)),
                ("multiplies with the random mask of", twice),
                ("decides on the values", lambda self, x: self.lin(x) if x.sum() > 0 else x),
                ("number of samples", lambda self, x: self.lin(x).reshape(3, 2, 2)),
                ("number of samples", lambda self, x: self.lin(x).reshape((x.shape[0] + 127) // 128 * x.shape[0], -1)),
                ("does something else in evaluation", lambda self, x: self.lin(x) * (1.0 if self.training else 0.5))):
            with self.subTest(message):
                self.refused(message, module_of(forward, lin=nn.Linear(4, 4), mean=torch.zeros(4)), "float32:4")

    def test_batch_norm_without_statistics_is_refused(self):
        self.refused("use affine=True", nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.Conv2d(3, 2, 3)),
                     "float32:3x8x8")

    def test_a_loss_that_is_a_sum_is_refused(self):
        class Loss(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 5)

            def forward(self, x, labels):
                return F.cross_entropy(self.lin(x), labels, reduction="sum")
        self.refused("not the mean over its samples", Loss(), "float32:4", target=("int64::0..4",), loss="module")

    def test_a_mean_over_some_labels_is_refused_where_its_samples_do_not_say_what_they_weigh(self):
        def masked(ignored):
            def loss(module, y, labels):
                mask = (labels != ignored).float()
                losses = F.cross_entropy(y, labels, reduction="none", ignore_index=ignored)
                return (losses * mask).sum() / mask.sum()
            return loss
        for ignored in (0, -100):  # the example shows none
            self.refused(f"with labels {ignored} is no sum of means over its other labels", Sequence(masked(ignored)),
                         "float32:3x4", target=("int64:3:1..4",), loss="module")

    def test_volumes_have_no_cross_entropy(self):
        self.refused("neither [classes] nor", nn.Conv3d(3, 2, 1), "float32:3x4x4x4", loss="cross_entropy")

    def test_a_module_that_fails_on_its_example_names_the_line_and_the_words(self):
        class Tokens(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(10, 4)

            def forward(self, x):
                return self.embed(x).mean(1)
        line = Tokens.forward.__code__.co_firstlineno + 1
        self.refused(f"import_torch_test.py:{line}: forward() fails on the examples (float32 [3, 32]): RuntimeError: "
                     "Expected tensor for argument #1 'indices'", Tokens(), "float32:32")

    def test_wrong_examples_are_refused(self):
        for text in ("float32", "int8:3", "int64:3:5..1", "float32:0"):
            with self.assertRaises(Refused):
                factory.parse_example(text)


class Files(unittest.TestCase):
    def run_tool(self, *arguments, code):
        done = subprocess.run([sys.executable, ROOT / "scripts/import-torch", *arguments], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "" if "--help" not in arguments else done.stdout)
        return done

    def test_the_command_writes_both_files(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "mine.py").write_text(
                "from torch import nn\n"
                "def make(width=4):\n"
                "    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))\n")
            done = self.run_tool(f"{place}/mine.py:make(width=6)", "--example", "float32:4", "--loss", "cross_entropy",
                                 "-o", f"{place}/model.json", "--weights", f"{place}/weights.safetensors", code=0)
            self.assertIn("make: 3 layers of 3 operations", done.stderr)
            document = json.loads((place / "model.json").read_text())
            self.assertEqual(document["loss"], {"op": "cross_entropy", "inputs": ["2", "label"]})
            self.assertEqual((document["weights"], document["version"]), ("weights.safetensors", 2))
            held = weights.decode((place / "weights.safetensors").read_bytes())
            self.assertEqual({name: list(t.shape) for name, t in held.items()},
                             {"0.weight": [6, 4], "0.bias": [6], "2.weight": [3, 6], "2.bias": [3]})

    def test_a_refusal_writes_nothing_and_exits_with_2(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.run_tool("torch.nn:Nothing", "--example", "float32:4", "-o", f"{folder}/m.json", "--weights",
                                 f"{folder}/w", code=2)
            self.assertEqual(done.stderr, "import-torch: torch.nn has no Nothing\n")
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_a_python_without_torch_is_told_where_to_get_it(self):
        for script in ("import-torch", "export-data"):
            done = subprocess.run([sys.executable, "-S", "-E", ROOT / f"scripts/{script}", "mine.py:make", "-o", "m.json"],
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, rf"^{script}: .* has no torch; install it \(pip install torch==2.11.0\).*\n$")

    def test_help_has_examples(self):
        self.assertEqual(self.run_tool("--help", code=0).stdout.count("  scripts/import-torch "), 3)

    def test_weights_come_back_as_they_were(self):
        tensors = {"a": torch.randn(2, 3), "b": torch.tensor(7), "c": torch.randn(4).bfloat16(), "d": torch.zeros(0, 2)}
        back = weights.decode(weights.encode(tensors))
        for name, tensor in tensors.items():
            self.assertEqual(back[name].dtype, tensor.dtype)
            self.assertTrue(torch.equal(back[name], tensor))

    def test_short_values_stand_on_one_line(self):
        self.assertEqual(indented({"a": [1, 2], "b": {}}), '{\n  "a": [1, 2],\n  "b": {}\n}')


class Data(unittest.TestCase):
    def test_batches_become_one_file(self):
        batches = [(torch.arange(6.0).reshape(3, 2), torch.tensor([1, 2, 3])), (torch.ones(1, 2), torch.tensor([4]))]
        with tempfile.TemporaryDirectory() as folder:
            data.write(batches, f"{folder}/new/train.safetensors", ["x", "label"])
            held = weights.decode(pathlib.Path(f"{folder}/new/train.safetensors").read_bytes())
            self.assertEqual(held["x"].tolist(), [[0, 1], [2, 3], [4, 5], [1, 1]])
            self.assertEqual(held["label"].tolist(), [1, 2, 3, 4])
            self.assertEqual([path.name for path in pathlib.Path(f"{folder}/new").iterdir()], ["train.safetensors"])

    def test_entries_of_dictionaries_are_chosen(self):
        with tempfile.TemporaryDirectory() as folder:
            shapes = data.write([{"a": torch.zeros(5, 2), "b": torch.zeros(5)}] * 2, f"{folder}/t.safetensors", ["b"],
                                samples=7)
            self.assertEqual(shapes, {"b": [7]})

    def test_samples_of_several_sizes_are_refused(self):
        with tempfile.TemporaryDirectory() as folder, self.assertRaises(Refused) as caught:
            data.write([(torch.zeros(1, 2),), (torch.zeros(1, 3),)], f"{folder}/t.safetensors", ["x"])
        self.assertIn("bring all samples to one size", str(caught.exception))


if __name__ == "__main__":
    import logging
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    unittest.main()
