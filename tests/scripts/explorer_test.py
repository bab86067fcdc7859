#!/usr/bin/env python3
"""explorer_test.py BIN [FOLDER]: the pages of pp-plan show --html and pp-run report --html in a headless Chromium.

Plans of 2, 16, 64 and 2,048 workers are looked at, clicked and typed at: no error, nothing loaded, at most 3 MB, and
names from documents stay text. Prints each page's size and how long it takes to open. FOLDER keeps pages and pictures.
Exit 77, `SKIPPED`, where there is no Chromium.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import browser

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_BYTES = 3_000_000
EVIL = "</script><img src=x onerror=\"window.injected=1\">&<b>'"
LLAMA = ["--schedule", "1f1b", "--optimizer", "adamw", "--precision", "mixed", "--shard", "optimizer", "-q"]


def check(truth: bool, what: str):
    if not truth:
        raise AssertionError(what)


class Folder:
    def __init__(self, programs: str, path: str):
        self.programs, self.path = pathlib.Path(programs).resolve(), pathlib.Path(path).resolve()

    def run(self, tool: str, *arguments: str):
        done = subprocess.run([self.programs / tool, *arguments], cwd=self.path, capture_output=True, text=True)
        check(done.returncode == 0, f"{tool} {' '.join(arguments)}: {done.stderr}")

    def estimate(self, model: str, device: str, name: str, *more: str):
        self.run("pp-profile", "estimate", str(ROOT / model), "--device-spec", str(ROOT / "configs/devices" / device), "-o", name, *more)

    def make_plans(self):
        """p2.json runs here; the others are of clusters."""
        self.estimate("configs/models/digits-lenet.json", "cpu-core.json", "lenet.json", "--micro-batch-sizes", "4,8,16")
        self.run("pp-plan", "lenet.json", "--devices", "2", "--bandwidth", "10GB/s", "--mini-batch", "64", "--schedule", "1f1b",
                 "--stages", "2", "--replicas", "1-1", "-q", "-o", "p2.json", "--write-alternatives", "others")
        self.estimate("configs/cluster-plan/llama-8b.json:sequence=4096", "h100.json", "llama.json", "--dtype", "bfloat16",
                      "--micro-batch-sizes", "1")
        for workers, stages, batch in [(16, 8, 64), (64, 8, 256), (2048, 16, 4096)]:
            self.run("pp-plan", "llama.json", "--cluster", str(ROOT / "configs/clusters/dgx-h100.json"), "--nodes", str(workers // 8), "--mini-batch",
                     str(batch), "--micro-batches", str(batch), "--stages", str(stages), "--replicas",
                     "-".join([str(workers // stages)] * stages), *LLAMA, "-o", f"p{workers}.json")
        for workers in (2, 16, 64, 2048):
            self.run("pp-plan", "show", f"p{workers}.json", "--html", f"p{workers}.html")

    def make_report(self):
        for seed in "12":
            self.run("pp-run", "p2.json", "--data", str(ROOT / "configs/data/digits"), "--epochs", "1", "--seed", seed, "-q", "-o", f"run{seed}.json")
        self.run("pp-run", "report", "run1.json", "--html", "run1.html")
        self.run("pp-run", "report", "run1.json", "run2.json", "--html", "runs.html")

    def make_hostile(self):
        """In every text of a plan that may be anything; names of layers are letters, digits and a few signs."""
        plan = json.loads((self.path / "p2.json").read_text())
        plan["model"]["name"] = EVIL
        for other in plan["alternatives"]:
            other["why_not"] = other["stages"] = EVIL
        for device in plan["devices"]:
            device["node"] = EVIL
        (self.path / "hostile.json").write_text(json.dumps(plan))
        self.run("pp-plan", "show", "hostile.json", "--html", "hostile.html")


def center(page: browser.Browser, selector: str) -> tuple[float, float]:
    box = page.evaluate(f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                        " return [box.x + box.width / 2, box.y + box.height / 2]; })()")
    return box[0], box[1]


def click(page: browser.Browser, selector: str):
    page.evaluate(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
    page.settle()
    page.click(*center(page, selector))


def open_tab(page: browser.Browser, view: str):
    click(page, f"[aria-controls={view}]")
    check(page.evaluate(f"!document.getElementById('{view}').hidden"), f"the tab of {view} opens it")


def clean(page: browser.Browser, what: str):
    check(not page.problems, f"{what}: {page.problems}")


def look_at_sizes(page: browser.Browser, folder: pathlib.Path):
    for workers in (2, 16, 64, 2048):
        file = folder / f"p{workers}.html"
        seconds = page.open(file)
        print(f"{workers} workers: {file.stat().st_size / 1e6:.3f} MB, open and painted after {seconds:.3f} s")
        check(file.stat().st_size <= MOST_BYTES, f"{file.name} has more than {MOST_BYTES} bytes")
        for view in page.evaluate("[...document.querySelectorAll('.view')].map((view) => view.id)"):
            open_tab(page, view)
            check(page.evaluate(f"document.getElementById('{view}').innerText.length") > 100, f"{view} says something")
            page.screenshot(folder / f"p{workers}-{view}.png")
        clean(page, file.name)


def fold_and_zoom(page: browser.Browser, folder: pathlib.Path):
    """Mouse and keys on 16 stages of 128 replicas."""
    page.open(folder / "p2048.html")
    lines = "timelineView.lines.length"
    check(page.evaluate(lines) == 1 + 16, "one row a stage, below a title")
    box = page.evaluate("(() => { const box = byId('canvas').getBoundingClientRect(); return [box.x, box.y]; })()")
    first = page.evaluate("timelineView.lines[1].y + kAxis + 8")
    page.click(box[0] + 40, box[1] + first)
    check(page.evaluate(lines) == 1 + 16 + 128, "a click on its name unfolds a stage")
    page.screenshot(folder / "unfolded.png")
    page.mouse("mouseMoved", x=box[0] + 300, y=box[1] + first)
    page.settle()
    tip = page.evaluate("byId('tip').innerText")
    check("stage 0" in tip and "sends" in tip and "layers" in tip, f"the tip has operation, layers and bytes: {tip}")
    page.mouse("mouseWheel", x=box[0] + 700, y=box[1] + first, deltaX=0, deltaY=-400)
    page.settle()
    length = "timelineView.last - timelineView.first"
    check(page.evaluate(length + " < 0.5 * timelineView.length"), "the wheel zooms in")
    begin = page.evaluate("timelineView.first")
    page.mouse("mousePressed", x=box[0] + 700, y=box[1] + first, button="left", clickCount=1)
    page.mouse("mouseMoved", x=box[0] + 600, y=box[1] + first, button="left", buttons=1)
    page.mouse("mouseReleased", x=box[0] + 600, y=box[1] + first, button="left", clickCount=1)
    page.settle()
    check(page.evaluate("timelineView.first") > begin, "a drag to the left goes on in time")
    page.evaluate("byId('canvas').focus()")
    page.press("0")
    check(page.evaluate(length + " === timelineView.length"), "0 shows all of it")
    page.press("+")
    check(page.evaluate(length + " < timelineView.length"), "+ zooms in")
    begin = page.evaluate("timelineView.first")
    page.press("ArrowRight")
    check(page.evaluate("timelineView.first") > begin, "an arrow goes on in time")
    page.press("ArrowUp")
    page.press("Enter")
    check(page.evaluate(lines) == 1 + 16, "Enter folds the chosen stage")
    page.press(".")
    check("stage 0" in page.evaluate("byId('status').innerText"), "a full stop names the next operation")
    clean(page, "p2048.html")


def choose_alternatives(page: browser.Browser, folder: Folder):
    page.open(folder.path / "p2.html", "#alternatives")
    click(page, "#alternatives svg g:nth-of-type(2) circle")
    check("--write-alternatives" in page.evaluate("byId('alternatives').innerText"), "a plan that was not given is said how to get")
    folder.run("pp-plan", "show", "p2.json", "others/alternative-1.json", "--html", "two.html")
    page.open(folder.path / "two.html", "#alternatives")
    click(page, "#alternatives svg g:nth-of-type(2) circle")
    check(page.evaluate("page.current") == "timeline", "a plan that was given is shown")
    check(page.evaluate("timelineView.shown.length") == 2, "below the chosen one, on one axis")
    page.screenshot(folder.path / "two.png")
    open_tab(page, "stages")
    page.evaluate("byId('plan').focus()")
    page.evaluate("byId('plan').value = '1'; byId('plan').dispatchEvent(new Event('change'))")
    check(page.evaluate("page.plan") == 1, "the other plan's stages can be chosen")
    clean(page, "two.html")


def unfold_cluster(page: browser.Browser, folder: pathlib.Path):
    page.open(folder / "p2048.html", "#cluster")
    boxes = "document.querySelectorAll('#cluster svg .open').length"
    check(page.evaluate(boxes) == 16, "nodes of the same stages are one box")
    click(page, "#cluster svg .open")
    check(page.evaluate(boxes) == 15 + 16, "a click unfolds the nodes")
    page.evaluate("document.querySelector('#cluster svg .open').focus()")
    page.press("Enter")
    check(page.evaluate(boxes) == 15 + 15 + 8, "Enter unfolds the workers of one")
    page.screenshot(folder / "cluster-unfolded.png")
    clean(page, "p2048.html")


def stay_text(page: browser.Browser, folder: pathlib.Path):
    page.open(folder / "hostile.html")
    for view in page.evaluate("[...document.querySelectorAll('.view')].map((view) => view.id)"):
        open_tab(page, view)
        page.evaluate("document.querySelectorAll('svg g, .strip button').forEach((part) => part.dispatchEvent(new PointerEvent('pointermove', {clientX: 99, clientY: 99})))")
    open_tab(page, "stages")
    click(page, "#stages .strip button")
    check(page.evaluate("window.injected") is None, "no name runs")
    check(page.evaluate("document.querySelectorAll('img, b img').length") == 0, "no name is an element")
    check(EVIL in page.evaluate("document.title"), "the title is the name")
    for view in ("alternatives", "cluster"):
        check(EVIL[:20] in page.evaluate(f"byId('{view}').textContent"), f"{view} has the names as they are")
    page.screenshot(folder / "hostile.png")
    clean(page, "hostile.html")


def see_the_dark(page: browser.Browser, folder: pathlib.Path):
    page.open(folder / "p2.html")
    color = "getComputedStyle(byId('timeline')).backgroundColor"
    light = page.evaluate(color)
    page.prefer("dark")
    check(page.evaluate(color) != light, "the page is dark where that is preferred")
    page.screenshot(folder / "dark.png")
    page.prefer("light")


def read_reports(page: browser.Browser, folder: pathlib.Path):
    for name, timelines in [("run1", 2), ("runs", 4)]:
        page.open(folder / f"{name}.html")
        check(page.evaluate("timelineView.shown.length") == timelines, "measured below predicted")
        for view in page.evaluate("[...document.querySelectorAll('.view')].map((view) => view.id)"):
            open_tab(page, view)
            page.screenshot(folder / f"{name}-{view}.png")
        check(page.evaluate("document.querySelectorAll('figure .curve').length") >= 2, f"{name} has curves")
        check(page.evaluate("[...document.querySelectorAll('[data-report]')].every((one) => one.textContent)"), f"{name}: every tab says something")
        clean(page, name)


def main() -> int:
    if browser.chromium() is None:
        print("SKIPPED: no Chromium; scripts/setup --check-tools installs it")
        return 77
    with tempfile.TemporaryDirectory() as temporary:
        folder = Folder(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else temporary)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.make_plans()
        folder.make_hostile()
        folder.make_report()
        with browser.Browser() as page:
            look_at_sizes(page, folder.path)
            fold_and_zoom(page, folder.path)
            choose_alternatives(page, folder)
            unfold_cluster(page, folder.path)
            stay_text(page, folder.path)
            see_the_dark(page, folder.path)
            read_reports(page, folder.path)
    print("all pages hold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
