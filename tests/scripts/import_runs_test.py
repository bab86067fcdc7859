"""python3 tests/scripts/import_runs_test.py: what scripts/import-torch accepts is profiled, planned in two stages and trained for
two steps like the module in PyTorch, which takes the trained weights strictly. Needs torch, and PP_BIN, the tools' folder.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts")]
sys.dont_write_bytecode = True

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from import_torch import factory, importer, weights  # noqa: E402
from import_torch.document import indented  # noqa: E402
from import_torch.export import Choice, wrap  # noqa: E402
from import_families import loss_of  # noqa: E402

BIN = pathlib.Path(os.environ.get("PP_BIN", ROOT / "build/release/bin")).resolve()
SAMPLES, BATCH, STEPS, RATE = 8, 4, 2, 0.1


class Made(nn.Module):
    """`forward(self, *inputs)` over these parts; plain tensors are buffers."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.made = forward
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)


class One(Made):
    def forward(self, x):
        return self.made(self, x)


class Labelled(Made):
    def forward(self, x, labels):
        return self.made(self, x, labels)


class Judged(Made):
    def forward(self, x, labels, others):
        return self.made(self, x, labels, others)


def net(outputs=4):
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs))


def resized(**options):
    return One(lambda m, x: m.last(F.interpolate(m.first(x), scale_factor=2, **options)), first=nn.Conv2d(3, 4, 3, padding=1),
               last=nn.Conv2d(4, 3, 3, padding=1))


def recurrent(kind, forward):
    return One(forward, embed=nn.Embedding(11, 8), start=nn.Linear(8, 6), body=kind(8, 6, batch_first=True),
               head=nn.Linear(6, 3))


def given_state(m, x):
    x = m.embed(x)
    h = torch.tanh(m.start(x.mean(1)))[None]
    return m.head(m.body(x, (h, h * 0.5) if isinstance(m.body, nn.LSTM) else h)[0][:, -1])


def last_state(m, x):
    return m.head(m.body(m.embed(x))[1][0][-1])


def masked(m, x):
    hidden = m.mask(x)
    return m.last(torch.softmax(m.first(m.embed(x)) + hidden, 1)).mean(1)


def per_sequence(m, x, labels):
    losses = F.cross_entropy(m.head(m.embed(x)).transpose(1, 2), labels, reduction="none")
    counted = (labels != -100).float()
    return (losses.sum(1) / counted.sum(1).clamp(min=1)).mean()


def tied(m, x, labels):
    hidden = m.norm(m.body(m.embed(x) + m.places[None, :, None]).transpose(1, 2)).transpose(1, 2)
    return F.cross_entropy(m.head(hidden).flatten(0, 1), labels.flatten(), weight=m.w)


def tied_module():
    module = Labelled(tied, embed=nn.Embedding(11, 8), norm=nn.BatchNorm1d(8), body=nn.Linear(8, 8), unread=nn.Linear(3, 2),
                      head=nn.Linear(8, 11, bias=False), w=torch.linspace(0.5, 1.5, 11), places=torch.arange(6) * 0.1)
    module.head.weight = module.embed.weight
    return module


def segmentation():
    return Labelled(lambda m, x, labels: F.cross_entropy(m.last(m.first(x).relu()), labels, weight=m.w, ignore_index=255),
                    first=nn.Conv2d(3, 4, 3, padding=1), last=nn.Conv2d(4, 3, 1), w=torch.tensor([0.2, 1.0, 3.0]))


def labelled(loss, **parts):
    return lambda: Labelled(lambda m, x, labels: loss(m.net(x), labels), net=net(), **parts)


VECTOR, TOKENS, IMAGE = "x=float32:5", "x=int64:6:0..10", "x=float32:3x8x8"
LABEL, SEQUENCE = ("labels=int64::0..3",), ("labels=int64:6:0..10",)
CASES = {  # module, its input, targets, loss
    "sum over the number of samples": (labelled(lambda y, labels: F.cross_entropy(y, labels, reduction="sum") / y.shape[0]),
                                       VECTOR, LABEL, "module"),
    "kl_div by the batch": (labelled(lambda y, t: F.kl_div(y.log_softmax(-1), t.softmax(-1), reduction="batchmean")), VECTOR,
                            ("labels=float32:4",), "module"),
    "nearest-exact": (lambda: resized(mode="nearest-exact"), IMAGE, (), "cross_entropy"),
    "antialiased bicubic": (lambda: resized(mode="bicubic", antialias=True), IMAGE, (), "cross_entropy"),
    "ignored label 255 and class weights": (segmentation, IMAGE, ("labels=int64:8x8:0..2",), "module"),
    "a mask of -inf that a layer makes": (
        lambda: One(masked, embed=nn.Embedding(11, 8), first=nn.Linear(8, 8), last=nn.Linear(8, 3), mask=One(
            lambda m, x: torch.where(((x > 5) & (x < x.max(1, True)[0]))[:, :, None], float("-inf"), m.w),
            w=nn.Parameter(torch.ones(())))), TOKENS, (), "cross_entropy"),
    "raw pixels": (lambda: One(lambda m, x: m.head(m.conv(x.float() / 255).mean((2, 3))), conv=nn.Conv2d(3, 4, 3),
                               head=nn.Linear(4, 3)), "x=uint8:3x8x8:0..255", (), "cross_entropy"),
    "two heads": (lambda: Judged(lambda m, x, a, b: F.cross_entropy(m.net(x), a) + F.cross_entropy(m.net(x * 2), b), net=net()),
                  VECTOR, ("labels=int64::0..3", "others=int64::0..3"), "module"),
    "means per sequence": (lambda: Labelled(per_sequence, embed=nn.Embedding(11, 8), head=nn.Linear(8, 11)), TOKENS, SEQUENCE,
                           "module"),
    "an auxiliary loss over the data": (
        lambda: Labelled(lambda m, x, labels: F.cross_entropy(m.head(m.body(x).relu()), labels)
                         + 0.01 * m.body(x).relu().pow(2).mean(), body=nn.Linear(5, 8), head=nn.Linear(8, 4)),
        VECTOR, LABEL, "module"),
    "an LSTM with given states": (lambda: recurrent(nn.LSTM, given_state), TOKENS, (), "cross_entropy"),
    "a GRU with a given state": (lambda: recurrent(nn.GRU, given_state), TOKENS, (), "cross_entropy"),
    "the last state of an LSTM": (lambda: recurrent(nn.LSTM, last_state), TOKENS, (), "cross_entropy"),
    "logits and loss": (labelled(lambda y, labels: (y, F.cross_entropy(y, labels))), VECTOR, LABEL, "module:1"),
    "label smoothing": (labelled(lambda y, labels: F.cross_entropy(y, labels, label_smoothing=0.1)), VECTOR, LABEL, "module"),
    "shifted labels": (
        lambda: Labelled(lambda m, x, labels: F.cross_entropy(m.head(m.embed(x))[:, :-1].reshape(-1, 11),
                                                              labels[:, 1:].reshape(-1), ignore_index=0, label_smoothing=0.2),
                         embed=nn.Embedding(11, 8), head=nn.Linear(8, 11)), TOKENS, SEQUENCE, "module"),
    "names that no layer has": (tied_module, TOKENS, SEQUENCE, "module"),
}
ONE_LABEL = {"ignored label 255 and class weights", "logits and loss", "label smoothing", "shifted labels",
             "names that no layer has", "means per sequence", "sum over the number of samples",
             "an auxiliary loss over the data"}


def tool(name, *words):
    done = subprocess.run([BIN / name, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{name} {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr[-800:]}"
    return done.stdout + done.stderr


class Case:
    """An imported module in the working folder, and the module itself."""

    def __init__(self, name):
        make, given, targets, self.loss = CASES[name]
        torch.manual_seed(0)
        self.module = make()
        self.examples = [factory.parse_example(text) for text in (given, *targets)]
        for example in self.examples[1:]:
            example.target = True
        factory.name_inputs(self.module, self.examples)
        self.made = importer.import_module(self.module, self.examples, "case", self.loss, "block")
        self.document = self.made.document
        torch.manual_seed(1)
        self.data = {example.name: example.draw(SAMPLES) for example in self.examples}
        for target in self.document["targets"]:
            self.data.setdefault(target["name"], torch.randint(0, 3, (SAMPLES, *target["shape"])))
        pathlib.Path("model.json").write_text(indented(self.document) + "\n")
        pathlib.Path("w.safetensors").write_bytes(weights.encode(self.made.weights | self.made.kept, self.made.further))
        os.makedirs("data", exist_ok=True)
        for part in ("train", "test"):
            pathlib.Path(f"data/{part}.safetensors").write_bytes(weights.encode(self.data))

    def plan(self, micro_batches):
        tool("pp-profile", "model.json", "--device", "cpu:2x1", "--quick", "--budget", "20ms", "--micro-batch-sizes", "1,2,4",
             "-o", "profile.json")
        tool("pp-plan", "profile.json", "--devices", 2, "--bandwidth", "10GB/s", "--mini-batch", BATCH, "--micro-batches",
             micro_batches, "--schedule", "1f1b", "--stages", min(2, len(self.document["layers"])), "-o", "plan.json")

    def run(self, *more, steps=STEPS):
        tool("pp-run", "plan.json", "--data", "data", "--steps", steps, "--no-shuffle", "--lr", RATE, "--momentum", 0, "-o",
             "report.json", *more)
        return json.loads(pathlib.Path("report.json").read_text())

    def train_in_pytorch(self):
        """Losses of the steps; the module is trained afterwards."""
        kind, _, output = self.loss.partition(":")
        there = wrap(self.module, self.examples, Choice(kind == "module", output or None))
        there.train()
        target = self.document["targets"][0]["name"]
        optimizer, losses = torch.optim.SGD(self.module.parameters(), lr=RATE), []
        for step in range(STEPS):
            batch = {name: tensor[step * BATCH:(step + 1) * BATCH] for name, tensor in self.data.items()}
            made = there(*(batch[example.name] for example in self.examples))
            made = made[0] if isinstance(made, list) else made
            loss = made if kind == "module" else loss_of(self.document)(made, batch[target])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


def trained():
    return weights.decode(pathlib.Path("trained.safetensors").read_bytes())


class Runs(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(place.name)

    def check_state(self, module, found, expected):
        module.load_state_dict(found, strict=True)
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")

    def check(self, name):
        case = Case(name)
        has_norm = any(isinstance(part, nn.BatchNorm1d) for part in case.module.modules())
        case.plan(1 if has_norm else 2)  # its statistics are those of a micro-batch
        report = case.run("--initial-weights", "w.safetensors", "--save-weights", "trained.safetensors")
        losses = case.train_in_pytorch()
        for found, expected in zip(report["step_losses"], losses, strict=True):
            self.assertAlmostEqual(found, expected, delta=1e-5 * abs(expected))
        self.check_state(CASES[name][0](), trained(), case.module.state_dict())
        if name in ONE_LABEL or case.loss == "cross_entropy":
            self.assertIsNotNone(report.get("test_accuracy", report["epochs"][-1].get("test_accuracy") if report.get("epochs") else None))

    def test_what_is_carried_along_goes_through_checkpoints_and_is_initial_weights_again(self):
        case = Case("names that no layer has")
        case.plan(1)
        begun = ("--initial-weights", "w.safetensors", "--checkpoint", "ck")
        case.run(*begun, steps=1)
        case.run("--resume", "ck", "--save-weights", "trained.safetensors")
        case.train_in_pytorch()
        self.check_state(tied_module(), trained(), case.module.state_dict())
        case.run("--initial-weights", "trained.safetensors", "--save-weights", "again/", steps=1)
        self.assertEqual(weights.decode(pathlib.Path("again/model.safetensors").read_bytes()).keys(), trained().keys())

    def test_labels_of_minus_100_count_nowhere(self):
        def ignore(situation, **rows):
            case = Case(situation)
            case.plan(2)
            for name, row in rows.items():
                case.data[name][row] = -100
            pathlib.Path("data/train.safetensors").write_bytes(weights.encode(case.data))
            return case

        for situation, rows in (("means per sequence", {"labels": (slice(None), 0)}),
                                ("two heads", {"labels": [0, 1, 6], "others": [3]}),
                                ("an auxiliary loss over the data", {"labels": [2, 3, 5]})):
            case = ignore(situation, **rows)
            self.assertEqual(case.made.notes, [])
            report = case.run("--initial-weights", "w.safetensors")
            for found, expected in zip(report["step_losses"], case.train_in_pytorch(), strict=True):
                self.assertAlmostEqual(found, expected, delta=1e-5 * abs(expected))


for number, situation in enumerate(CASES):
    setattr(Runs, f"test_{number:02}_{''.join(c if c.isalnum() else '_' for c in situation)}",
            lambda self, situation=situation: self.check(situation))

if __name__ == "__main__":
    unittest.main()
