"""python3 tests/scripts/mixtures_test.py: mixtures of experts as transformers saves them (config.json, model.safetensors) are
planned in two stages and trained for two steps by pp-run, and what it saves is transformers' again: the logits are those
of the module trained by PyTorch. Needs torch, transformers with safetensors, and PP_BIN, the tools' folder.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import torch

try:
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError:
    print("SKIPPED: transformers or safetensors is missing")
    sys.exit(77)

BIN = pathlib.Path(os.environ.get("PP_BIN", pathlib.Path(__file__).parents[2] / "build/release/bin")).resolve()
TOKENS, SEQUENCE, BATCH, STEPS, RATE = 19, 10, 4, 2, 0.5
SMALL = {"vocab_size": TOKENS, "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "num_experts_per_tok": 2, "initializer_range": 0.3}
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4},
    "qwen3_moe": {"num_experts": 5, "moe_intermediate_size": 8, "head_dim": 8, "norm_topk_prob": True},
    "gpt_oss": {"num_local_experts": 5, "head_dim": 8, "sliding_window": 3, "swiglu_limit": 1.0},
}


def tool(name: str, *words: Any) -> None:
    done = subprocess.run([BIN / name, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{name} {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr[-800:]}"


class RoundTrips(unittest.TestCase):
    def setUp(self) -> None:
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(place.name)

    def train_by_tools(self, data: dict[str, torch.Tensor]) -> list[float]:
        os.makedirs("data")
        save_file(data, "data/train.safetensors")
        tool("pp-profile", f"saved/config.json:sequence={SEQUENCE}", "--device", "cpu:2x1", "--quick", "--budget", "20ms",
             "--micro-batch-sizes", "1,2", "-o", "profile.json")
        tool("pp-plan", "profile.json", "--devices", 2, "--bandwidth", "10GB/s", "--mini-batch", BATCH, "--micro-batches", 2,
             "--schedule", "1f1b", "--stages", 2, "-o", "plan.json")
        tool("pp-run", "plan.json", "--data", "data", "--steps", STEPS, "--no-shuffle", "--lr", RATE, "--momentum", 0,
             "--initial-weights", "saved/model.safetensors", "--save-weights", "trained.safetensors", "-o", "report.json")
        losses: list[float] = json.loads(pathlib.Path("report.json").read_text())["step_losses"]
        return losses

    def check(self, kind: str) -> None:
        torch.manual_seed(3)
        config = transformers.AutoConfig.for_model(kind, **SMALL, **FAMILIES[kind])
        module = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        module.save_pretrained("saved")
        rows = torch.randint(0, TOKENS, (STEPS * BATCH, SEQUENCE + 1))
        tokens, labels = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
        with torch.no_grad():
            before = module.eval()(tokens).logits
        module.train()
        found = self.train_by_tools({"tokens": tokens, "label": labels})
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        for step in range(STEPS):
            own = slice(step * BATCH, (step + 1) * BATCH)
            loss = torch.nn.functional.cross_entropy(module(tokens[own]).logits.flatten(0, 1), labels[own].flatten())
            self.assertAlmostEqual(found[step], loss.item(), delta=2e-5 * loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        given, made = load_file("saved/model.safetensors"), load_file("trained.safetensors")
        self.assertEqual({name: tensor.shape for name, tensor in made.items()},
                         {name: tensor.shape for name, tensor in given.items()})
        os.replace("trained.safetensors", "saved/model.safetensors")
        again = transformers.AutoModelForCausalLM.from_pretrained("saved", attn_implementation="eager")
        with torch.no_grad():
            expected = module.eval()(tokens).logits
            self.assertGreater((expected - before).abs().max(), 0.1 * expected.abs().max())
            torch.testing.assert_close(again.eval()(tokens).logits, expected, rtol=0, atol=2e-4 * expected.abs().max().item())


for family in FAMILIES:
    setattr(RoundTrips, f"test_{family}", lambda self, family=family: self.check(family))

if __name__ == "__main__":
    unittest.main()
