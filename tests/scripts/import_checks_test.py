"""python3 tests/scripts/import_checks_test.py: what scripts/import-torch must see although the outputs of the examples
agree, whose mistake an exception is, and odd modules. Needs torch (scripts/support/with_torch.py).
"""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "scripts")]
sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from import_torch import command, data, export, factory, importer, rehearsal, runtime, verify  # noqa: E402
from import_torch.refused import Refused  # noqa: E402
from import_torch_test import Refusing, Sequence, imported, module_of  # noqa: E402


class WrongDocuments(unittest.TestCase):
    """The check of an import, of documents that were made wrong."""

    def seen(self, message, module, change, example="float32:6"):
        given = [factory.parse_example(example)]
        factory.name_inputs(module, given)
        made = importer.import_module(module, given, "test", "mse", "op")
        change(made.document["layers"])
        wrapper = export.wrap(module, given, export.Choice())
        with self.assertRaises(Refused) as caught:
            verify.Verification(wrapper, given, made.document, made.weights).run()
        self.assertIn(message, str(caught.exception))

    def test_the_probability_and_the_place_of_a_dropout(self):
        def net():
            return nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.25), nn.Softmax(-1), nn.Linear(4, 2))

        def swapped(layers):
            layers[1]["op"], layers[2]["op"] = "softmax", "dropout"
            layers[2]["attributes"] = layers[1].pop("attributes")
        self.seen("outputs in training differ", net(), lambda layers: layers[1]["attributes"].update(p=0.5))
        self.seen("outputs in training differ", net(), swapped)

    def test_the_number_of_elements_that_a_dropout_draws(self):
        # The norm divides the factor 1 / (1 - p) away again.
        net = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Dropout(0.25), nn.LayerNorm(4, eps=0.0), nn.Linear(4, 2))
        self.seen("draws masks of [] elements", net,
                  lambda layers: layers[1].update(op="scale", attributes={"factor": 1.0, "offset": 0.0}))
        # 3 samples of 3 channels, of 2 x 2 pixels.
        self.seen("draws masks of [36] elements in a batch of 3 samples, the module of [9]",
                  nn.Sequential(nn.Conv2d(2, 3, 3), nn.Dropout2d(0.25)), lambda layers: layers[1].update(op="dropout"),
                  "float32:2x4x4")

    def test_a_backward_that_counts_over_the_batch(self):
        def counting(layers):
            for node in (node for layer in layers for node in layer.get("nodes", [layer])):
                if "embedding_bag" in node.get("call", {}).get("target", ""):
                    node["call"]["arguments"]["scale_grad_by_freq"] = True
        net = module_of(lambda self, x: self.lin(self.bag(x)), bag=nn.EmbeddingBag(900, 4), lin=nn.Linear(4, 2))
        self.seen("the gradient of bag.weight mixes the samples", net, counting, "int64:3:0..899")  # hardly a token twice

    def test_buffers_after_a_step(self):
        self.seen("the buffer 1.running_mean is another after a step",
                  nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
                  lambda layers: layers[1]["attributes"].update(momentum=0.2))


class Silent(Refusing):
    """Modules that an import could get wrong without a word."""

    def test_one_batch_norm_in_two_calls_is_refused(self):
        norm = nn.BatchNorm1d(3)
        self.refused("updates norm.running_mean a second time in a step",
                     module_of(lambda self, x: self.norm(x[:, :3]) - self.norm(x[:, 3:]), norm=norm), "float32:6")
        self.refused("running_mean a second time in a step",
                     module_of(lambda self, x: self.b(x[:, :3]) - self.a(x[:, 3:]), a=norm, b=norm), "float32:6",
                     level="block")

    def test_a_backward_that_counts_over_the_batch_is_refused(self):
        for kind, width in ((nn.Embedding, 12), (nn.EmbeddingBag, 4)):
            module = module_of(lambda self, x: self.lin(self.e(x).flatten(1)), lin=nn.Linear(width, 2),
                               e=kind(900, 4, scale_grad_by_freq=True))
            self.refused("its gradient counts over the batch, which a pipeline has in parts; set scale_grad_by_freq=False",
                         module, "int64:3:0..899")
        counting = Sequence(lambda m, y, labels: F.cross_entropy(y, labels, ignore_index=0))
        imported(counting, "float32:3x4", target=("int64:3:0..4",), loss="module")  # its samples weigh by their labels

    def test_narrow_integers_wrap_around_where_the_examples_do_not(self):
        def forward(self, x):
            sums = x.to(torch.int16).sum(1, keepdim=True, dtype=torch.int16)
            return self.lin(((x.int() * 65537 * 65537 + x.to(torch.int8) * 3 - sums) % 97).float())
        module = module_of(forward, lin=nn.Linear(4, 2)).eval()
        made = imported(module, "int64:4:0..1", level="block")
        x = torch.randint(-2**40, 2**40, (50, 4))
        found, = runtime.Runtime(made.document, made.weights, False).run({"x": x}).outputs
        self.assertTrue(torch.equal(found, module(x)))

    def test_a_number_that_every_step_changes_is_refused_where_outputs_depend_on_it(self):
        class Annealed(nn.Linear):
            step, used = 0, True

            def forward(self, x):
                self.step += 1
                return super().forward(x) * (1 + self.step / 1e6 * self.used)
        self.refused("forward() changes Annealed.step, a number that its outputs depend on", Annealed(4, 2), "float32:4")
        counter = Annealed(4, 2)
        counter.used = False
        imported(counter, "float32:4")

    def test_numbers_that_an_operation_does_not_take_stay_pytorchs_or_are_refused(self):
        made = imported(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=2.0)), "float32:4").document["layers"]
        self.assertEqual([layer["op"] for layer in made], ["linear", "aten"])
        self.refused("eps=2.0, momentum=0.1; both lie between 0 and 1", nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, eps=2.0)),
                     "float32:4")

    def test_float16_within_the_module_is_refused(self):
        self.refused("tensors of torch.float16 are not known", module_of(lambda self, x: self.lin(x.half().float()),
                                                                         lin=nn.Linear(4, 2)), "float32:4")

    def test_inputs_of_variable_arguments_go_by_name_or_are_refused(self):
        class Wrapped(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(4, 2)

            def inner(self, x, scale=None, shift=None):
                y = self.lin(x) if scale is None else self.lin(x) * scale[:, None]
                return y if shift is None else y + shift[:, None]

            def forward(self, *args, **kwargs):
                return self.inner(*args, **kwargs)

        class Positions(Wrapped):
            def forward(self, *args):
                return self.inner(*args)
        layers = imported(Wrapped(), "float32:4", "shift=float32:", level="op").document["layers"]
        self.assertEqual([layer["op"] for layer in layers], ["linear", "reshape", "add"])
        self.refused("without a name come before those with one", Wrapped(), "shift=float32:", "float32:4")
        self.refused("--example shift=...: forward() of Positions takes no input of this name, but *args", Positions(),
                     "float32:4", "shift=float32:")
        self.refused("two inputs have one name", Wrapped(), "x=float32:4", "x=float32:4")

    def test_the_call_that_makes_the_logits_says_where_the_classes_stand(self):
        self.refused("of a sample is [classes, positions]", nn.Sequential(nn.Conv1d(3, 6, 1), nn.ReLU()), "float32:3x6",
                     loss="cross_entropy")
        self.refused("of a sample is [..., classes]", nn.Linear(3, 5), "float32:5x4x3", loss="cross_entropy")
        turned = module_of(lambda self, x: self.c(x).transpose(1, 2), c=nn.Conv1d(3, 6, 1))
        for module, example in ((turned, "float32:3x6"), (nn.Linear(3, 6), "float32:6x3"),
                                (nn.Conv2d(3, 5, 1), "float32:3x5x5")):
            imported(module, example, loss="cross_entropy")


class Wrappers(unittest.TestCase):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.three = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.three(self.two(self.one(x)))

    class WithLoss(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net, self.loss = net, nn.CrossEntropyLoss()

        def forward(self, x, label):
            return self.loss(self.net(x), label)

    def test_blocks_lie_within_the_one_module_that_a_wrapper_wraps(self):
        twice = module_of(lambda self, x: self.net(x), net=self.Net())
        for module in (self.WithLoss(self.Net()), self.WithLoss(twice)):
            made = imported(module, "float32:4", target=("label=int64::0..2",), loss="module", level="block")
            names = [layer["name"].split(".")[-1] for layer in made.document["layers"]]
            self.assertEqual(names, ["one", "two", "three"])

    def test_an_import_of_one_layer_says_so(self):
        for module, says in ((nn.Linear(4, 3), True), (self.Net(), False)):
            summary = command.summary(imported(module, "float32:4", level="block"))
            self.assertEqual("one layer cannot be cut" in summary, says)


class Mistakes(Refusing):
    """An exception of the importer's own is not shown as the user's, and the other way round."""

    def import_file(self, code, *arguments):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            place = pathlib.Path(folder)
            (place / "mine.py").write_text("import torch\nfrom torch import nn\n" + code)
            exit_code = command.main([f"{place}/mine.py:make", "-o", f"{place}/m.json", "--weights", f"{place}/w",
                                      *(arguments or ("--example", "float32:4"))])
        return exit_code, said.getvalue().replace(folder, "")

    def test_every_argument_may_be_left_at_its_schemas_default(self):
        layer = imported(nn.Sequential(nn.Linear(8, 8), nn.Dropout()), "float32:8").document["layers"][1]
        self.assertEqual((layer["op"], layer["attributes"]), ("dropout", {"p": 0.5}))

        depth = module_of(lambda self, x: x * torch.empty(x.shape[0], 1).bernoulli_().div_(0.5) if self.training else x)
        vectors = (depth, F.gelu, F.leaky_relu, F.hardtanh, F.softplus, F.elu, F.normalize, lambda x: x[:, :1].squeeze(),
                   lambda x: F.layer_norm(x, (8,)), lambda x: F.rms_norm(x, (8,)), lambda x: F.group_norm(x, 2),
                   lambda x: x.std(1), lambda x: x.cumsum(1), lambda x: torch.stack([x, x], 1))
        images = (nn.Dropout2d(), F.instance_norm, lambda x: F.max_pool2d(x, 2), lambda x: F.avg_pool2d(x, 2),
                  lambda x: F.interpolate(x, 12), lambda x: F.pad(x, (1, 1)), lambda x: F.unfold(x, 2),
                  lambda x: F.scaled_dot_product_attention(x, x, x), lambda x: F.conv2d(x, torch.ones(3, 2, 2, 2)))
        for calls, example, first in ((vectors, "float32:8", nn.Linear(8, 8)),
                                      (images, "float32:2x6x6", nn.Conv2d(2, 2, 1))):
            for call in calls:
                last = call if isinstance(call, nn.Module) else module_of(lambda self, x, call=call: call(x))
                imported(nn.Sequential(first, last), example)

    def test_weights_stand_beside_the_model_where_no_file_is_named(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            pathlib.Path(folder, "mine.py").write_text("from torch import nn\ndef make(): return nn.Linear(4, 4)\n")
            self.assertEqual(command.main([f"{folder}/mine.py:make", "-o", f"{folder}/m.json", "--example", "float32:4"]), 0)
            self.assertEqual(json.loads(pathlib.Path(folder, "m.json").read_text())["weights"], "m.safetensors")
            self.assertTrue(pathlib.Path(folder, "m.safetensors").exists())

    def test_a_mistake_of_the_importer_names_itself_wherever_it_lies(self):
        good = "def make(): return nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))\n"
        for place, name in ((importer, "Simplified"), (rehearsal.AllKept, "__torch_dispatch__"),
                            (export, "pick_output"), (verify.Verification, "samples_apart")):
            def wrong(*_, **__):
                return {}["nothing"]
            wrong.__code__ = wrong.__code__.replace(co_filename=rehearsal.__file__)
            with mock.patch.object(place, name, wrong):
                exit_code, said = self.import_file(good)
            self.assertEqual(exit_code, 1, f"{name}: {said}")
            self.assertRegex(said, r"^import-torch: internal: KeyError: 'nothing' \(.*please report it", name)

    def test_a_mistake_of_the_user_is_told_with_its_place_and_kind(self):
        broken = ("class M(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 4)\n"
                  "    def forward(self, x):\n        return super().forward({}['x'])\n")
        for code, message in (("def make(): return [][1]\n", "/mine.py:3: /mine.py:make failed: IndexError: list"),
                              ("def make(size): return nn.Linear(size, 1)\n", "make failed: TypeError: make() missing 1"),
                              ("import nothing_such\n", "/mine.py:3: /mine.py cannot be imported: ModuleNotFoundError"),
                              (broken + "def make(): return M()\n", "/mine.py:7: forward() fails on the examples"),
                              ("class M(nn.Linear):\n    def train(self, mode=True): raise OSError('no disk')\n"
                               "def make(): return M(4, 4)\n", "/mine.py:4: OSError: no disk")):
            exit_code, said = self.import_file(code)
            self.assertEqual(exit_code, 2, said)
            self.assertIn(message, said)

    def test_what_the_modules_own_backward_lacks_is_said(self):
        for call, message in ((lambda x: torch.heaviside(x, torch.tensor(0.5)) * x, "the module's backward fails: RuntimeError: "
                               "derivative for aten::heaviside"),
                              (lambda x: torch.nan_to_num(x / (x > 0)), "the module's own gradient of lin.weight is infinite or")):
            module = module_of(lambda self, x, call=call: call(self.lin(x)), lin=nn.Linear(4, 4))
            self.refused(message, module, "float32:4")

    def test_what_no_model_has_is_refused_in_one_message(self):
        for code, message in (("def make(): return nn.Sequential(nn.LazyLinear(4))\n", "0.weight of a lazy module has no"),
                              ("def make():\n    with torch.device('meta'):\n        return nn.Linear(4, 4)\n",
                               'weight has no values; make the module without torch.device("meta"), or plan alone'),
                              ("def make(): return torch.jit.script(nn.Linear(4, 4))\n", "gave a scripted module")):
            exit_code, said = self.import_file(code)
            self.assertEqual(exit_code, 2, said)
            self.assertIn(message, said)
        exit_code, said = self.import_file("def make(): return nn.Embedding(9, 4, sparse=True)\n", "--example",
                                           "int64:4:0..8")
        self.assertEqual(exit_code, 2, said)
        self.assertIn("its gradient is sparse, those of a model are dense; set sparse=False", said)
        exit_code, said = self.import_file("class M(nn.Linear):\n    def forward(self, x):\n"
                                           "        return super().forward(x) if x.sum() > 0 else x\n"
                                           "def make(): return M(4, 4)\n")
        self.assertEqual(exit_code, 2, said)
        self.assertNotIn("torch.ops.aten", said)  # torch.export's print of the graph
        self.assertIn("decides on the values", said)

    def test_batches_that_are_no_columns_of_numbers_are_refused(self):
        two = torch.zeros(2, 3)
        for batches, message in (([(two, ["a", "b"])], "y: a batch has a list of str there"),
                                 ([((two, two), two)], "x: a batch has a tuple of Tensor there"),
                                 ([(two, torch.zeros(3))], "unlike numbers of samples: x 2, y 3"),
                                 ([(two[0], 1)], "y: a batch has torch.int64 [] there")):
            with tempfile.TemporaryDirectory() as folder, self.assertRaises(Refused) as caught:
                data.write(batches, f"{folder}/t.safetensors", ["x", "y"])
            self.assertIn(message, str(caught.exception))
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            place = pathlib.Path(folder)
            (place / "mine.py").write_text("def loader():\n    yield [[1.0]]\n    raise OSError('3.png is cut off')\n")
            exit_code = data.main([f"{place}/mine.py:loader", "--names", "x", "-o", f"{place}/t.safetensors"])
        self.assertEqual(exit_code, 2)
        self.assertIn("mine.py:3: ", said.getvalue())
        self.assertIn("loader failed: OSError: 3.png is cut off", said.getvalue())


class Odd(unittest.TestCase):
    """Odd modules: what pp-run computes of them, gradients and buffers too, is what PyTorch does."""


def odd(examples, target=(), loss="mse"):
    """Adds an import of what the function makes to the tests above."""
    def add(make):
        def test(self):
            self.assertLess(max(imported(make(), *examples, target=target, loss=loss).differences.values()), 1e-5)
        setattr(Odd, f"test_{make.__name__}", test)
        return make
    return add


@odd(["float32:3x6"], target=("label=int64:6:0..5",), loss="module")
def classes_by_positions():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv1d(3, 4, 1), nn.ReLU(), nn.Conv1d(4, 6, 1))

        def forward(self, x, label):
            return F.cross_entropy(self.net(x), label)
    return Loss()


@odd(["float32:5x6"], target=("label=int64:5:0..3",), loss="module")
def labels_that_do_not_count():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 4))

        def forward(self, x, label):
            return F.cross_entropy(self.net(x).flatten(0, 1), label.flatten(), ignore_index=0)
    return Loss()


@odd(["float32:6", "shift=float32:"])
def wrapped_arguments():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 4), nn.Linear(4, 2)

        def forward(self, x, scale=None, shift=None):
            y = self.a(x) if scale is None else self.a(x) * scale[:, None]
            return self.b(y if shift is None else y + shift[:, None])

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Inner()

        def forward(self, *args, **kwargs):
            return self.model(*args, **kwargs)
    return Outer()


@odd(["float32:3x6x6"], loss="cross_entropy")
def frozen_norm_in_a_frozen_body():
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.3, eps=1e-3), nn.ReLU(), nn.Flatten(),
                         nn.Linear(64, 3))
    made[0].requires_grad_(False)
    made[1].requires_grad_(False)
    return made


@odd(["float32:6"])
def norms_that_leave_rounding_alone():
    """The gradient of a bias in front of a norm, and the mean of what a norm has centred, are 0."""
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 2))


@odd(["float32:2x4x6x6"], loss="cross_entropy")
def volumes():
    return nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(),
                         nn.Linear(72, 3))


@odd(["int64:4:0..300"], loss="cross_entropy")
def narrow_arithmetic():
    return module_of(lambda self, x: self.lin(self.e((x.to(torch.int8) * 3).long() + 128).mean(1)),
                     e=nn.Embedding(256, 6), lin=nn.Linear(6, 3))


@odd(["int64:6:0..9"], loss="cross_entropy")
def tied_head():
    made = nn.Sequential(nn.Embedding(10, 8, padding_idx=0), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 10, bias=False))
    made[3].weight = made[0].weight
    return made


@odd(["float32:6"])
def weight_norm_and_one_layer_thrice():
    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(self.shared(x))
        return self.last(x)
    return module_of(forward, shared=nn.Linear(6, 6), last=parametrizations.weight_norm(nn.Linear(6, 2)))


@odd(["float32:7x6"])
def sums_in_other_types():
    def forward(self, x):
        mixed = torch.einsum("blc,ck->bkl", self.first(x), self.w)
        return self.last(mixed.double().cumsum(1).float())
    return module_of(forward, first=nn.Linear(6, 5), w=nn.Parameter(torch.full((5, 4), 0.3)), last=nn.Linear(7, 2))


@odd(["float32:5x4"])
def recurrent():
    return module_of(lambda self, x: self.lin(self.rnn(x)[0][:, -1]), lin=nn.Linear(12, 3),
                     rnn=nn.GRU(4, 6, 2, batch_first=True, bidirectional=True))


@odd(["source=int64:5:0..9", "target=int64:4:0..9"], loss="cross_entropy")
def sequences():
    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(10, 8), nn.Linear(8, 10)
            self.transformer = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(4)
            made = self.transformer(self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True)
            return self.head(made)
    return Translator()


@odd(["float32:6"])
def without_gradients():
    def forward(self, x):
        with torch.no_grad():
            teacher = self.a(x)
        y = self.b(x)
        return self.last(y + (y.round() - y).detach() - 0.5 * teacher)
    return module_of(forward, a=nn.Linear(6, 4), b=nn.Linear(6, 4), last=nn.Linear(4, 2))


if __name__ == "__main__":
    import logging
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    unittest.main()
