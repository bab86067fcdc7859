"""The command line of scripts/import-torch."""

import argparse
import gc
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings
from typing import Any

from .refused import Refused, guarded, require_torch

USAGE = """\
examples:
  scripts/import-torch torchvision.models:resnet18 --example float32:3x64x64 --loss cross_entropy \\
      -o model.json --weights weights.safetensors
  scripts/import-torch my_model.py:make --example int64:128:0..999 --group block \\
      -o model.json --weights weights.safetensors
  scripts/import-torch "my_model.py:make(layers=4)" --example tokens=int64:128:0..999 --example mask=int64:128:0..1 \\
      --loss mse --seed 3 -o model.json --weights weights.safetensors

A SPEC is [NAME=]TYPE:SHAPE[:LOW..HIGH] for one sample: TYPE float32, int64 or uint8; SHAPE 3x64x64, or nothing for a
number; HIGH is included. The names are those of forward()'s parameters; with NAME= the input is handed over by name.
Exit codes: 0 written, 2 not importable (the message says what and why; nothing is written), 1 a mistake of
import-torch itself."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                   epilog=USAGE, description="Makes a pp.model and its weights from a PyTorch module.")
    made.add_argument("module", metavar="PACKAGE.MODULE:FACTORY",
                      help="or FILE.py:FACTORY; (name=value, ...) behind it are arguments")
    made.add_argument("--example", metavar="SPEC", action="append", default=[],
                      help="an input of the module; several: in order")
    made.add_argument("--target", metavar="SPEC", action="append", default=[],
                      help="an input that only the loss reads (--loss module)")
    made.add_argument("-o", dest="file", metavar="FILE", help="the model")
    made.add_argument("--output", metavar="NAME|INDEX",
                      help="of several tensors that the module returns the one that is its output (logits, or the only one)")
    made.add_argument("--weights", metavar="FILE", help="parameters and buffers, as safetensors (beside the model, FILE.safetensors)")
    made.add_argument("--loss", metavar="LOSS", type=loss_name,
                      help="cross_entropy or mse: adds a loss and its target; module: the module's own `loss`, or first "
                           "output, is the loss; module:NAME|INDEX: that output is")
    made.add_argument("--group", choices=("module", "block", "op"), default="module",
                      help="what becomes a layer (module)")
    made.add_argument("--plan-only", action="store_true",
                      help="without weights: nothing is run or compared with the module, so pp-run refuses the model")
    made.add_argument("--name", help="of the model (the factory's)")
    made.add_argument("--seed", type=int, default=0, help="for the factory's initial weights and the examples (0)")
    return made


def loss_name(text: str) -> str:
    if text not in ("cross_entropy", "mse", "module") and not text.startswith("module:"):
        raise argparse.ArgumentTypeError(f"{text!r} is none of cross_entropy, mse, module, module:NAME|INDEX")
    return text


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    logging.getLogger("torch.utils.flop_counter").disabled = True  # it misses triton
    warnings.filterwarnings("ignore", module=r"(torch|contextlib|copyreg)")
    return guarded("import-torch", lambda: run(options))


def run(options: argparse.Namespace) -> None:
    require_torch("import-torch")
    from . import factory, importer, operations
    from .document import indented, marked, write_whole
    from .weights import encode
    if options.plan_only and options.weights is not None:
        raise Refused("--plan-only with --weights: without weights nothing is there to write; leave one of the two out")
    if options.file is None:
        raise Refused("-o FILE is missing: where to write the model")
    operations.find_tool()
    if options.weights is None and not options.plan_only:
        options.weights = os.path.splitext(options.file)[0] + ".safetensors"
    for place, flag in ((options.file, "-o"), (options.weights, "--weights")):
        if place is not None and not os.path.isdir(os.path.dirname(place) or "."):
            raise Refused(f"{flag} {place}: there is no such folder")
    if options.plan_only:
        gc.disable()  # a tenth of the time of exports of a hundred layers, whose millions of objects stay anyway
    progress(f"making {options.module}")
    module = factory.load(options.module, options.seed, not options.plan_only)
    examples = [factory.parse_example(text) for text in options.example]
    for text in options.target:
        examples.append(factory.parse_example(text))
        examples[-1].target = True
    factory.name_inputs(module, examples)
    name = options.name or importer.default_name(options.module)
    progress("tracing it" + ("" if options.plan_only else ", and checking what was traced against it"))
    imported = importer.import_module(module, examples, name, options.loss, options.group, options.output,
                                      options.plan_only)
    if options.plan_only:
        check_with_tool(imported.document)
    print(summary(imported), file=sys.stderr)
    if options.weights is not None:
        write_whole(options.weights, encode(imported.weights | imported.kept, imported.further))
        imported.document = marked(imported.document, "weights", os.path.basename(options.weights))
    write_whole(options.file, (indented(imported.document) + "\n").encode())


def check_with_tool(document: dict[str, Any]) -> None:
    """What pp-profile, and pp-run with the same words, would refuse later, of a model that has not run."""
    from .document import line
    from .operations import find_tool
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "model.json").write_text(line(document))
        done = subprocess.run([find_tool(), "models", "model.json", "-o", os.devnull], cwd=folder, capture_output=True, text=True)
    if done.returncode == 2:
        raise Refused(f"the tools cannot run the model: {done.stderr.strip()}")


def progress(step: str) -> None:
    """For who waits at a terminal: a model of some GB takes minutes."""
    if sys.stderr.isatty():
        print(f"import-torch: {step} ...", file=sys.stderr, flush=True)


def summary(imported: Any) -> str:
    """One paragraph for people."""
    document = imported.document
    nodes = [node for layer in document["layers"] for node in layer.get("nodes", [layer])]
    calls = sum(node["op"] == "aten" for node in nodes)
    parameters = sum(tensor.numel() for tensor in imported.weights.values())
    checks = ("checked against the module; largest relative differences: "
              + ", ".join(f"{what} {value:.0e}" for what, value in imported.differences.items()))
    if document.get("verified") is False:
        checks = ("not checked against the module: it has no weights. Plan with it; to train, import again without "
                  "--plan-only and give pp-run that model.json by --model")
    rest = [("not imported, no output depends on them", imported.unused), ("left out of what the module returns",
                                                                           imported.left_out)]
    return (f"{document['name']}: {len(document['layers'])} layers of {len(nodes)} operations, {len(nodes) - calls} "
            f"named and {calls} aten; {parameters} values in {len(imported.weights)} weights\n"
            f"{checks}"
            + "\none layer cannot be cut into stages; --group module or op makes more" * (len(document["layers"]) == 1)
            + "".join(f"\n{what}: {', '.join(names)}" for what, names in rest if names)
            + "".join(f"\nnote: {note}" for note in imported.notes))
