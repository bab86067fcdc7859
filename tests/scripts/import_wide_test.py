"""python3 tests/scripts/import_wide_test.py: what scripts/import-torch recognises: constants by formula, the operations of
decoders; and imports without weights (--plan-only). Needs torch (scripts/support/with_torch.py).
"""

import json
import math
import pathlib
import resource
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "scripts")]
sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch import nn  # noqa: E402

from decoder_modules import DECODERS, HEAD, Decoder, HalvesAttention, swapped_halves  # noqa: E402
from import_torch import factory, formulas, importer, operations, placeholders, rotary, runtime  # noqa: E402
from import_torch.refused import Refused  # noqa: E402


def imported(module, *examples, loss=None, level="block", plan_only=False):
    given = [factory.parse_example(text) for text in examples]
    factory.name_inputs(module, given)
    return importer.import_module(module, given, "test", loss, level, None, plan_only)


def nodes_of(document):
    return [node for layer in document["layers"] for node in layer.get("nodes", [layer])]


def calls_of(document):
    return [node["call"]["target"] for node in nodes_of(document) if node["op"] == "aten"]


class Formulas(unittest.TestCase):
    def found(self, tensor, waves=()):
        formula = formulas.recognise(tensor, list(waves))
        if formula is not None:
            made = formulas.evaluate(formula, list(tensor.shape), tensor.dtype)
            torch.testing.assert_close(made, tensor, rtol=0, atol=4e-6 if formula["kind"] == "waves" else 0)
        return formula

    def test_positions_and_grids_are_linear(self):
        self.assertEqual(self.found(torch.arange(3, 103)), {"kind": "linear", "offset": 3, "steps": [1]})
        grid = torch.arange(8)[None, :] - 2 * torch.arange(9)[:, None]
        self.assertEqual(self.found(grid), {"kind": "linear", "offset": 0, "steps": [-2, 1]})
        self.assertEqual(self.found(torch.full((4, 5), 7.5)), {"kind": "linear", "offset": 7.5, "steps": [0, 0]})

    def test_masks_are_bands(self):
        causal = torch.ones(9, 9, dtype=torch.bool).tril()
        self.assertEqual(self.found(causal), {"kind": "band", "offset": 0, "steps": [-1, 1], "high": 0, "inside": 1,
                                              "outside": 0})
        window = (causal & ~torch.ones(9, 9, dtype=torch.bool).tril(-3))[None, None]
        self.assertEqual(self.found(window), {"kind": "band", "offset": 0, "steps": [0, 0, -1, 1], "low": -2, "high": 0,
                                              "inside": 1, "outside": 0})
        added = torch.full((7, 7), -math.inf).triu(1)
        self.assertEqual(self.found(added)["outside"], {"number": "-inf"})
        wide = torch.ones(5, 11, dtype=torch.bool).tril(6)
        self.assertEqual(self.found(wide)["high"], 6)

    def test_one_other_value_is_no_formula(self):
        for tensor in (torch.ones(9, 9, dtype=torch.bool).tril(), torch.arange(100), torch.outer(
                torch.arange(9.0), torch.tensor([1.0, 0.1])).cos()):
            tensor = tensor.clone()
            tensor.view(-1)[17] = tensor.view(-1)[17] == 0
            self.assertIsNone(self.found(tensor, [torch.tensor([1.0, 0.1])]))

    def test_tables_of_waves_with_known_frequencies(self):
        frequencies = 1 / 10000 ** (torch.arange(0, 16, 2) / 16)
        angles = torch.outer(torch.arange(4096.0), frequencies)
        for columns, table in (("halves", torch.cat([angles, angles], -1)), ("pairs", angles.repeat_interleave(2, -1)),
                               ("single", angles)):
            formula = self.found(1.25 * table.cos()[None, None], [frequencies])
            self.assertEqual((formula["columns"], formula["function"], formula["position_dim"]), (columns, "cos", 2))
            self.assertEqual((formula["factor"], len(formula["frequencies"])), (1.25, 8))

    def test_a_table_of_both_functions_tells_its_frequencies(self):
        frequencies = 1 / 500000 ** (torch.arange(0, 64, 2) / 64)
        angles = torch.outer(torch.arange(2048.0), frequencies)
        formula = self.found(torch.stack([angles.cos(), angles.sin()], -1))
        self.assertEqual((formula["columns"], formula["function"]), ("pairs", "cos_sin"))
        torch.testing.assert_close(torch.tensor(formula["frequencies"]), frequencies, rtol=4e-7, atol=0)
        self.assertEqual(self.found(torch.cat([angles.sin(), angles.cos()], -1))["columns"], "halves")

    def test_rotary_settings_follow_from_frequencies(self):
        for settings in ({"rotary_base": 10000.0}, {"rotary_base": 1e6}, {"rotary_base": 1e4, "rotary_scaling": "linear",
                                                                          "rotary_factor": 4.0},
                         {"rotary_base": 5e5, "rotary_scaling": "llama3", "rotary_factor": 32.0,
                          "rotary_original_length": 8192},
                         {"rotary_base": 1e6, "rotary_scaling": "yarn", "rotary_factor": 4.0,
                          "rotary_original_length": 32768, "rotary_truncate": True}):
            frequencies = rotary.computed(settings, 128).float().tolist()
            self.assertEqual(rotary.fitted(tuple(frequencies), 128), settings)
        self.assertIsNone(rotary.fitted((1.0, 0.5, 0.3, 0.01), 8))


class Constants(unittest.TestCase):
    def test_a_causal_mask_is_one_line_at_any_length(self):
        module = Decoder([HalvesAttention(), HalvesAttention(share=0.5, window=700)])
        document = imported(module.eval(), "int64:2048:0..18", loss="cross_entropy", plan_only=True).document
        self.assertLess(len(json.dumps(document)), 20000)
        self.assertEqual(document["version"], 2)

    def test_a_mask_that_attention_does_not_take_stays_a_formula(self):
        class Masked(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin = nn.Linear(96, 4)

            def forward(self, x):
                return self.lin(torch.softmax(x + torch.full((96, 96), float("-inf")).triu(1), -1))
        made = imported(Masked(), "float32:96x96").document
        constants = [constant for node in nodes_of(made) for constant in node.get("call", {}).get("constants", [])]
        self.assertEqual([constant["formula"]["kind"] for constant in constants], ["band"])
        self.assertEqual(made["version"], 2)

    def test_what_no_formula_gives_goes_to_the_weights_when_it_is_long(self):
        class Table(nn.Module):
            def __init__(self, length):
                super().__init__()
                self.register_buffer("table", torch.rand(length, 8), persistent=False)
                self.lin = nn.Linear(8, 4)

            def forward(self, x):
                return self.lin(x * self.table)
        short, long = imported(Table(20), "float32:20x8"), imported(Table(4000), "float32:4000x8")
        self.assertEqual([len(node["call"]["constants"][0]["values"]) for node in nodes_of(short.document)
                          if "call" in node], [160])
        (node,) = (node for node in nodes_of(long.document) if "call" in node)
        (buffer,) = node["call"]["buffers"]
        (name,) = long.weights.keys() - {"lin.weight", "lin.bias"}
        self.assertTrue(name.endswith(buffer["name"]))
        self.assertEqual(list(long.weights[name].shape), [4000, 8])
        self.assertLess(len(json.dumps(long.document)), 5000)


class Decoders(unittest.TestCase):
    """Against the modules themselves: import_module compares outputs and gradients."""

    def attributes(self, name):
        torch.manual_seed(0)
        made = imported(DECODERS[name](), "int64:12:0..18", loss="cross_entropy")
        self.assertEqual(calls_of(made.document), [], name)
        self.assertLess(max(made.differences.values()), 2e-6)
        return [node["attributes"] for node in nodes_of(made.document) if node["op"] == "grouped_query_attention"]

    def test_as_transformers_writes_llama(self):
        usual = {"num_heads": 4, "num_key_value_heads": 2, "causal": True, "rotary_dim": HEAD}
        self.assertEqual(self.attributes("llama"), [usual, usual | {"rotary_base": 500000.0}])

    def test_with_norms_and_a_window(self):
        (made,) = self.attributes("qwen3")
        self.assertEqual((made["norms"], made["sliding_window"]), (True, 3))

    def test_by_scores_with_a_cap(self):
        one, other = self.attributes("gemma2")
        self.assertEqual((one["soft_cap"], one["sliding_window"], other["soft_cap"]), (2.0, 3, 2.0))

    def test_a_part_of_every_head_is_turned(self):
        self.assertEqual(self.attributes("phi")[0]["rotary_dim"], HEAD // 2)

    def test_as_torchtune_writes_it(self):
        (made,) = self.attributes("torchtune")
        self.assertEqual((made["rotary_interleaved"], made["rotary_dim"]), (True, HEAD))

    def test_queries_keys_and_values_of_a_head_together(self):
        self.assertEqual(self.attributes("gpt_neox")[0]["packing"], "heads")

    def test_positions_that_every_sample_has_a_copy_of(self):
        class Spread(HalvesAttention):
            def rotated(self, x):
                positions = torch.arange(x.shape[2])[None].expand(x.shape[0], -1).float()
                angles = positions[:, :, None] * self.inv_freq.float()
                angles = torch.cat((angles, angles), -1)[:, None]
                return x * angles.cos().to(x.dtype) + swapped_halves(x) * angles.sin().to(x.dtype)
        made = imported(Decoder([Spread()]), "int64:12:0..18")
        self.assertEqual(calls_of(made.document), [])

    def test_another_mask_or_frequency_stays_as_it_is(self):
        class Other(HalvesAttention):
            def rotated(self, x):
                return super().rotated(x) if x.shape[1] == 2 else x
        odd = HalvesAttention()
        odd.inv_freq = torch.tensor([1.0, 0.7, 0.05, 0.04])
        for attention in (Other(), odd):
            made = imported(Decoder([attention]), "int64:12:0..18")
            self.assertIn("aten::scaled_dot_product_attention", calls_of(made.document))


class WithoutWeights(unittest.TestCase):
    def test_the_document_is_that_of_an_import_with_weights(self):
        for name in ("llama", "gemma2", "gpt_neox"):
            torch.manual_seed(0)
            whole = imported(DECODERS[name](), "int64:12:0..18", loss="cross_entropy").document
            with placeholders.WithoutMemory():
                module = placeholders.placed(DECODERS[name]())
            bare = imported(module, "int64:12:0..18", loss="cross_entropy", plan_only=True).document
            self.assertEqual((bare.pop("verified"), bare.pop("version")), (False, 2))
            whole.pop("version")
            self.assertEqual(bare, whole)

    def test_a_large_module_takes_no_memory(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "large.py").write_text("from torch import nn\n\n\ndef make():\n    return nn.Sequential(*(nn.Linear("
                                            "50000, 50000) for _ in range(8)))\n")
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
            done = subprocess.run([sys.executable, ROOT / "scripts" / "import-torch", f"{place}/large.py:make", "--example",
                                   "float32:50000", "--loss", "mse", "--plan-only", "-o", place / "model.json"],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("20000400000 values in 16 weights\nnot checked against the module", done.stderr)
            # 80 GB of weights; torch alone takes about 0.4 GB.
            self.assertLess(max(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, before), 2_000_000)
            self.assertIs(json.loads((place / "model.json").read_text())["verified"], False)

    def test_tied_parameters_stay_tied_and_frozen_ones_frozen(self):
        def make():
            module = Decoder([HalvesAttention()])
            module.lm_head.weight = module.embed_tokens.weight
            module.layers[0].mlp.down_proj.weight.requires_grad = False
            return module
        with placeholders.WithoutMemory():
            module = placeholders.placed(make())
        self.assertIs(module.lm_head.weight, module.embed_tokens.weight)
        document = imported(module, "int64:6:0..18", plan_only=True).document
        self.assertEqual(document["layers"][-1]["weights_of"], document["layers"][0]["name"])
        self.assertTrue(any(node.get("frozen") for node in nodes_of(document)))

    def test_random_values_that_are_no_weights_are_refused(self):
        class Noise(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("noise", torch.randn(70000), persistent=False)
        with placeholders.WithoutMemory(), self.assertRaises(Refused) as caught:
            placeholders.placed(Noise())
        self.assertIn("make the module without", str(caught.exception))

    def test_nothing_else_goes_with_it(self):
        done = subprocess.run([sys.executable, ROOT / "scripts" / "import-torch", "a:b", "--plan-only", "-o", "m.json",
                               "--weights", "w"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--plan-only with --weights", done.stderr)


class Table(unittest.TestCase):
    def test_attributes_are_completed_in_the_tables_order(self):
        self.assertEqual(operations.completed("linear", {"out_features": 3}), {"out_features": 3, "bias": True})
        made = operations.completed("grouped_query_attention", {"rotary_dim": 8, "num_heads": 4, "scale": 0.0})
        self.assertEqual(made, {"num_heads": 4, "num_key_value_heads": 4, "causal": True, "rotary_dim": 8})
        with self.assertRaises(AssertionError):
            operations.completed("relu", {"slope": 1})


class PixelLoss(unittest.TestCase):
    def test_maps_of_classes_have_a_label_per_pixel(self):
        made = imported(nn.Conv2d(3, 5, 3, padding=1), "float32:3x4x6", loss="cross_entropy")
        self.assertEqual(made.document["targets"], [{"name": "label", "dtype": "int64", "shape": [4, 6]}])
        torch.manual_seed(0)
        inputs = {"input": torch.randn(2, 3, 4, 6), "label": torch.randint(0, 5, (2, 4, 6))}
        inputs["label"][0, 1] = -100
        found = runtime.Runtime(made.document, made.weights, True).run(inputs)
        wanted = nn.functional.cross_entropy(found.outputs[0], inputs["label"])
        self.assertAlmostEqual(found.loss.item(), wanted.item(), delta=1e-6)


if __name__ == "__main__":
    unittest.main()
