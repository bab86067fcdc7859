"""python3 tests/scripts/import_layers_test.py: of each module of layer_modules.py the exit codes of scripts/import-torch and of
pp-run agree: what is accepted trains, what is refused names the reason. Needs torch, and PP_BIN, the tools' folder.
"""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "scripts")]
sys.dont_write_bytecode = True

from import_torch import command, factory, weights  # noqa: E402
from layer_modules import ACCEPTED, LOSSES, REFUSED  # noqa: E402

BIN = pathlib.Path(os.environ.get("PP_BIN", ROOT / "build/release/bin")).resolve()
MODULES = {name: entry[1] for table in (ACCEPTED, LOSSES, REFUSED) for name, entry in table.items()}


def make(name):
    return MODULES[name]


class Layers(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(place.name)

    def imported(self, name, *words):
        """Exit code and message of scripts/import-torch."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = command.main([f"import_layers_test:make(name={name!r})", "-o", "model.json", "--weights", "w.safetensors", *words])
        return code, said.getvalue()

    def tool(self, name, *words):
        done = subprocess.run([BIN / name, *words], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{name}: {done.stderr[-800:]}")

    def trains(self, name, *words, data="synthetic"):
        code, said = self.imported(name, *words)
        self.assertEqual(code, 0, said)
        self.tool("pp-profile", "estimate", "model.json", "--device-spec", ROOT / "configs/devices/cpu-core.json",
                  "--micro-batch-sizes", "2", "-o", "profile.json")
        self.tool("pp-plan", "profile.json", "--devices", "1", "--mini-batch", "2", "-o", "plan.json")
        self.tool("pp-run", "plan.json", "--data", data, "--steps", "1", "--initial-weights", "w.safetensors", "-o", "report.json")
        self.assertEqual(len(json.loads(pathlib.Path("report.json").read_text())["step_losses"]), 1)

    def judges(self, name, example, target):
        given = [factory.parse_example(text) for text in (example, target)]
        os.mkdir("data")
        pathlib.Path("data/train.safetensors").write_bytes(weights.encode({part.name: part.draw(2) for part in given}))
        self.trains(name, "--example", example, "--target", target, "--loss", "module", data="data")

    def refused(self, name, example, word):
        code, said = self.imported(name, "--example", example, "--loss", "mse")
        self.assertEqual(code, 2, said)
        self.assertIn(word.lower(), said.lower())
        self.assertNotIn("Traceback", said)
        self.assertFalse(os.path.exists("model.json"))


def test_of(name):
    if name in REFUSED:
        example, _, word = REFUSED[name]
        return lambda self: self.refused(name, example, word)
    if name in LOSSES:
        return lambda self: self.judges(name, "x=float32:6", f"labels={LOSSES[name][0]}")
    return lambda self: self.trains(name, "--example", ACCEPTED[name][0], "--loss", "mse")


for number, case in enumerate(MODULES):
    setattr(Layers, f"test_{number:03}_{''.join(c if c.isalnum() else '_' for c in case)}", test_of(case))

if __name__ == "__main__":
    unittest.main()
