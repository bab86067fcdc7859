"""Times and bytes of the layers, taken in PyTorch itself: a pp.profile without pp-profile.

The imported document runs layer by layer, each a piece of autograd of its own, as pp-run cuts it; forward and backward
of each layer are timed from the end of the layer before it: on a CPU less what Python takes to call either, whatever
the layer; on a GPU by its events, behind a host that has a head start.
Bytes are counted in a pass of their own.
"""

import ctypes
import dataclasses
import datetime
import platform
import statistics
import time
from typing import Any

import torch

from .factory import Example
from .importer import Imported
from .interpreter import Interpreter, local_weights, split
from .refused import Refused

WARM_UP, FEWEST, MOST = 3, 10, 100  # passes
CALLS = 200  # of a layer that does nothing
TRIAL_CYCLES, LONGEST_START = 10_000_000, 0.5  # of a GPU that waits; seconds
Leaves = dict[tuple[str, int], torch.Tensor]


@dataclasses.dataclass
class Settings:
    device: str = "cpu"
    threads: int = 1
    sizes: tuple[int, ...] = (1, 2, 4, 8)
    budget_s: float = 10.0  # per size


class Marks:
    """Moments of the device; seconds between them once a pass is over."""

    def __init__(self, cuda: bool) -> None:
        self.cuda, self.marks = cuda, []

    def mark(self) -> None:
        if self.cuda:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def laps(self) -> list[float]:
        pairs = list(zip(self.marks, self.marks[1:]))
        if not self.cuda:
            return [end - begin for begin, end in pairs]
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) / 1e3 for begin, end in pairs]


class HeadStart:
    """Lets a GPU wait while the host hands over a pass, so that laps are the device's and not Python's."""

    def __init__(self, cuda: bool) -> None:
        self.cuda, self.host_s = cuda, LONGEST_START
        if cuda:
            self.cycles_per_s = TRIAL_CYCLES / min(self.trial() for _ in range(WARM_UP))

    @staticmethod
    def trial() -> float:
        marks = Marks(cuda=True)
        marks.mark()
        torch.cuda._sleep(TRIAL_CYCLES)
        marks.mark()
        return marks.laps()[0]

    def __enter__(self) -> None:
        if self.cuda:
            torch.cuda._sleep(round(1.2 * self.host_s * self.cycles_per_s))
        self.begin = time.perf_counter()

    def __exit__(self, *_: Any) -> None:
        self.host_s = min(self.host_s, time.perf_counter() - self.begin)


class Pass:
    """One micro-batch forward and backward, cut at every layer."""

    def __init__(self, profiler: "Profiler", size: int) -> None:
        self.model, self.document = profiler.model, profiler.model.document
        self.leaves: Leaves = {(name, 0): tensor for name, tensor in profiler.batch(size).items()}
        self.made: list[list[torch.Tensor]] = []
        self.names = profiler.names
        self.model.samples = size

    def forward(self, k: int) -> None:
        layer = self.document["layers"][k]
        outputs = self.model.layer(layer, [self.leaves[split(name)] for name in layer["inputs"]], self.names[k])
        self.made.append(outputs)
        for number, output in enumerate(outputs):
            self.leaves[layer["name"], number] = output.detach().requires_grad_(output.requires_grad)

    def loss(self) -> torch.Tensor:
        inputs = self.document["loss"]["inputs"] if "loss" in self.document else self.document["outputs"]
        found = [self.leaves[split(name)] for name in inputs]
        return self.model.loss_of(found) if "loss" in self.document else sum(tensor.sum() for tensor in found)

    def backward(self, k: int) -> None:
        layer, outputs = self.document["layers"][k], self.made.pop()
        pairs = [(output, self.leaves.pop((layer["name"], number)).grad) for number, output in enumerate(outputs)]
        pairs = [(output, grad) for output, grad in pairs if output.requires_grad and grad is not None]
        if pairs:
            torch.autograd.backward([output for output, _ in pairs], [grad for _, grad in pairs])


class Profiler:
    def __init__(self, imported: Imported, examples: list[Example], settings: Settings) -> None:
        self.imported, self.examples, self.settings = imported, examples, settings
        self.place = device_of(settings.device)
        self.cuda = self.place.type == "cuda"
        torch.set_num_threads(settings.threads)
        keep_freed_memory()
        weights = {name: self.weight(name, tensor) for name, tensor in imported.weights.items()}
        self.model = Interpreter(imported.document, weights, training=True, draw=True)
        self.layers = imported.document["layers"]
        self.names = [self.model.names(layer) for layer in self.layers]
        self.count = len(self.layers)

    def weight(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        copy = tensor.detach().clone().to(self.place)
        return copy.requires_grad_() if name in self.imported.trained else copy

    def batch(self, size: int) -> dict[str, torch.Tensor]:
        made = {example.name: example.draw(size).to(self.place) for example in self.examples}
        for target in self.imported.document["targets"]:
            if target["name"] not in made:
                made[target["name"]] = self.target(target, size)
        return made

    def target(self, entry: dict[str, Any], size: int) -> torch.Tensor:
        if entry["dtype"] == "int64":
            return torch.zeros(size, *entry["shape"], dtype=torch.int64, device=self.place)
        return torch.randn(size, *entry["shape"], device=self.place)

    # Times.

    def timed_pass(self, size: int, start: HeadStart) -> list[float]:
        """Seconds: forward of each layer, of the loss, backward of the loss, of each layer from the last on."""
        run, marks = Pass(self, size), Marks(self.cuda)
        with start:
            marks.mark()
            for k in range(self.count):
                run.forward(k)
                marks.mark()
            loss = run.loss()
            marks.mark()
            loss.backward()
            marks.mark()
            for k in reversed(range(self.count)):
                run.backward(k)
                marks.mark()
        return marks.laps()

    def times(self, size: int) -> list[dict[str, Any]]:
        start = HeadStart(self.cuda)
        for _ in range(WARM_UP):
            self.timed_pass(size, start)
        calls = self.calls()
        laps, end = [], time.monotonic() + self.settings.budget_s
        while len(laps) < FEWEST or len(laps) < MOST and time.monotonic() < end:
            laps.append(self.timed_pass(size, start))
        return [time_stat([max(0.0, sample - call) for sample in samples]) for samples, call in zip(zip(*laps), calls)]

    def calls(self) -> list[float]:
        """Of each lap, seconds that are Python's and the engine's: those of one number handed through."""
        if self.cuda:
            return [0.0] * (2 * self.count + 2)  # the device works behind the host
        laps = []
        for _ in range(CALLS):
            x, marks = torch.ones(1, 1, requires_grad=True), Marks(self.cuda)
            marks.mark()
            [y] = self.model.layer({"name": "y", "op": "flatten", "inputs": ["x"]}, [x], {})
            leaf = y.detach().requires_grad_(y.requires_grad)
            marks.mark()
            leaf.grad = torch.ones_like(leaf)
            torch.autograd.backward([y], [leaf.grad])
            marks.mark()
            laps.append(marks.laps())
        forward, backward = (statistics.median(samples) for samples in zip(*laps[WARM_UP:]))
        return [forward] * (self.count + 1) + [backward] * (self.count + 1)

    # Bytes.

    def saved(self, size: int) -> list[tuple[int, int]]:
        """For each layer and the loss: bytes kept for backward, each storage at the first that keeps it; the part that
        is older than the layer."""
        own = {tensor.untyped_storage().data_ptr() for tensor in self.model.weights.values()}
        seen: set[int] = set(own)
        held: list[torch.Tensor] = []  # so that no storage's address is used again
        found, run = [], Pass(self, size)
        for k in range(self.count + 1):
            before = {tensor.untyped_storage().data_ptr() for tensor in run.leaves.values()}
            total = older = 0

            def keep(tensor: torch.Tensor) -> torch.Tensor:
                nonlocal total, older
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in seen:
                    seen.add(storage.data_ptr())
                    held.append(tensor.detach())
                    total += storage.nbytes()
                    older += storage.nbytes() if storage.data_ptr() in before else 0
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                run.forward(k) if k < self.count else run.loss()
            found.append((total, older))
        return found

    def workspaces(self, size: int, saved: list[tuple[int, int]]) -> list[int]:
        """Of backward: gradients of outputs, inputs and weights. What kernels take beside them is not seen on a CPU."""
        run, found = Pass(self, size), []
        for k, layer in enumerate(self.layers):
            run.forward(k)
            moved = {split(name) for name in layer["inputs"]} | {(layer["name"], n) for n in range(len(run.made[-1]))}
            gradients = sum(nbytes(run.leaves[key]) for key in moved if run.leaves[key].is_floating_point())
            found.append(gradients + self.layer_bytes(k)[0])
        return found

    def layer_bytes(self, k: int) -> tuple[int, int, int]:
        """Bytes and number of its own parameters, bytes of its buffers."""
        layer = self.layers[k]
        full = [] if "weights_of" in layer else [self.names[k][name] for name in dict.fromkeys(local_weights(layer))]
        parameters = [self.model.weights[name] for name in full if name in self.imported.parameters]
        buffers = [self.model.weights[name] for name in full if name not in self.imported.parameters]
        return sum(map(nbytes, parameters)), sum(t.numel() for t in parameters), sum(map(nbytes, buffers))

    def flops(self) -> list[float]:
        from torch.utils.flop_counter import FlopCounterMode
        run, found = Pass(self, 2), []
        for k in range(self.count):
            with FlopCounterMode(display=False) as counter:
                run.forward(k)
            found.append(counter.get_total_flops() / 2)
        return found

    # The document.

    def profile(self) -> dict[str, Any]:
        flops = self.flops()
        entries = [self.entry(layer["name"], k, flops[k]) for k, layer in enumerate(self.layers)]
        loss = {"name": self.imported.document.get("loss", {}).get("op", "loss"), "parameter_count": 0,
                "parameter_bytes": 0, "buffer_bytes": 0, "forward_flops_per_sample": 0.0, "points": []}
        whole = []
        for size in self.settings.sizes:
            times, saved = self.times(size), self.saved(size)
            spaces, outputs = self.workspaces(size, saved), self.outputs(size)
            for k, entry in enumerate(entries):
                entry["points"].append(point(size, times[k], times[2 * self.count + 1 - k], outputs[k], saved[k],
                                             spaces[k]))
            loss["points"].append(point(size, times[self.count], times[self.count + 1], 4, saved[self.count], 4))
            whole.append(self.whole(size, sum(kept for kept, _ in saved)))
        profile = {"format": "pp.profile", "version": 1, "context": self.context(), "model": self.imported.document,
                   "device": self.device(), "dtype": "float32", "mode": "in_place",
                   "micro_batch_sizes": list(self.settings.sizes), "layers": entries}
        if "loss" in self.imported.document:
            profile["loss"] = loss
        return profile | {"whole_model": whole, "optimizers": [], "estimated": ["workspace_bytes", "peak_bytes"]}

    def entry(self, name: str, k: int, flops: float) -> dict[str, Any]:
        size, count, buffers = self.layer_bytes(k)
        entry = {"name": name, "parameter_count": count, "parameter_bytes": size, "buffer_bytes": buffers,
                 "forward_flops_per_sample": flops, "points": []}
        own = {self.names[k][local] for local in local_weights(self.layers[k])} & self.imported.parameters
        trained = own & self.imported.trained
        if size and trained != own:
            entry["trained_parameter_bytes"] = sum(nbytes(self.model.weights[weight]) for weight in trained)
        return entry

    def outputs(self, size: int) -> list[int]:
        run = Pass(self, size)
        for k in range(self.count):
            run.forward(k)
        return [sum(map(nbytes, made)) for made in run.made]

    def whole(self, size: int, saved: int) -> dict[str, Any]:
        """The model in one piece, as a check of the sum."""
        laps, start = [], HeadStart(self.cuda)
        for _ in range(WARM_UP + FEWEST):
            marks, batch = Marks(self.cuda), self.batch(size)
            with start:
                marks.mark()
                outputs = self.model.run(batch)
                loss = self.model.loss() if "loss" in self.imported.document else sum(map(torch.sum, outputs))
                marks.mark()
                loss.backward()
                marks.mark()
            laps.append(marks.laps())
        forward, backward = (time_stat(list(samples)) for samples in zip(*laps[WARM_UP:]))
        weights = sum(map(nbytes, self.model.weights.values()))
        return {"micro_batch_size": size, "forward_s": forward, "backward_s": backward,
                "peak_bytes": 2 * weights + saved}

    def device(self) -> dict[str, Any]:
        if self.cuda:
            properties = torch.cuda.get_device_properties(self.place)
            return {"kind": "cuda", "name": properties.name, "cores_per_device": 0, "devices_busy": 1,
                    "memory_bytes": properties.total_memory}
        return {"kind": "cpu", "name": processor(), "cores_per_device": self.settings.threads, "devices_busy": 1,
                "memory_bytes": 0}

    def context(self) -> dict[str, str]:
        return {"tool": "import-torch", "torch": torch.__version__, "host": platform.node(),
                "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


def device_of(text: str) -> torch.device:
    kind, _, number = text.partition(":")
    if kind not in ("cpu", "cuda") or number and not (kind == "cuda" and number.isdigit()):
        raise Refused(f"--device {text}: write cpu, cuda or cuda:1")
    if kind == "cpu":
        return torch.device("cpu")
    index, count = int(number or 0), torch.cuda.device_count()
    if index >= count:
        raise Refused(f"--device {text}: PyTorch sees {count or 'no'} CUDA devices; use --device cpu")
    torch.cuda.set_device(index)  # events are those of the current device
    return torch.device("cuda", index)


def keep_freed_memory() -> None:
    """glibc gives large blocks back at once, and each new one costs its page faults; pp-run keeps them for the next
    step."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
        libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD
    except (OSError, AttributeError):
        pass  # another system


def nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def time_stat(samples: list[float]) -> dict[str, Any]:
    """Median, 16th and 84th percentile."""
    samples = sorted(samples)
    at = lambda share: samples[round(share * (len(samples) - 1))]
    return {"median": statistics.median(samples), "low": at(0.16), "high": at(0.84), "samples": len(samples)}


def point(size: int, forward: dict[str, Any], backward: dict[str, Any], output: int, saved: tuple[int, int],
          workspace: int) -> dict[str, Any]:
    return {"micro_batch_size": size, "forward_s": forward, "backward_s": backward, "output_bytes": output,
            "saved_bytes": saved[0], "saved_input_bytes": saved[1], "workspace_bytes": workspace}


def processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def summary(profile: dict[str, Any]) -> str:
    lines = []
    for index, size in enumerate(profile["micro_batch_sizes"]):
        layers = [*profile["layers"], *([profile["loss"]] if "loss" in profile else [])]
        parts = [sum(layer["points"][index][key]["median"] for layer in layers) for key in ("forward_s", "backward_s")]
        whole = [profile["whole_model"][index][key]["median"] for key in ("forward_s", "backward_s")]
        lines.append(f"micro-batch of {size}: layers F {parts[0] * 1e3:.3f} ms, B {parts[1] * 1e3:.3f} ms; in one "
                     f"piece F {whole[0] * 1e3:.3f} ms, B {whole[1] * 1e3:.3f} ms")
    return "\n".join(lines)
