"""A headless Chromium that a test drives, by the DevTools protocol over a pipe: no port, no library.

    with Browser() as browser:
        browser.open("page.html")
        browser.evaluate("document.title")
        browser.problems          # script errors, messages of the console, requests that are not of files

`chromium()` is the program's path, or None where none is installed (scripts/setup --check-tools installs it).
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

WAIT_S = 60

# From the navigation to the second frame after the page has loaded: what a person waits for.
MEASURE_READY = """addEventListener("load", () => requestAnimationFrame(() => requestAnimationFrame(() => {
  window.readyAfter = performance.now(); })));"""


def chromium() -> str | None:
    return next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


class Browser:
    def __init__(self, width: int = 1280, height: int = 800, dark: bool = False):
        self.problems: list[str] = []
        self._events: list[dict] = []
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()

        def place_pipes():  # Chromium reads commands from 3 and writes to 4; copies first, as one may stand there
            commands, answers = os.dup(to_child), os.dup(from_child)
            spare = [os.dup(commands) for _ in range(6)]  # beyond 4
            os.dup2(commands, 3)
            os.dup2(answers, 4)
            del spare

        self._process = subprocess.Popen(
            [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-pipe", f"--user-data-dir={self._folder.name}", "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self._next, self._buffer, self._session = 0, b"", None
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=MEASURE_READY)
        self.resize(width, height)
        self.prefer("dark" if dark else "light")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write)  # Chromium ends with its pipe
        os.close(self._read)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def _message(self) -> dict:
        deadline = time.monotonic() + WAIT_S
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium said nothing for {WAIT_S} s")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise EOFError("Chromium has ended")
            self._buffer += part
        text, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(text)

    def _note(self, event: dict):
        method, what = event.get("method"), event.get("params", {})
        self._events.append(event)
        if method == "Runtime.exceptionThrown":
            details = what["exceptionDetails"]
            self.problems.append("script error: " + details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled":
            self.problems.append("console: " + " ".join(str(a.get("value", a)) for a in what["args"]))
        elif method == "Log.entryAdded":
            self.problems.append("log: " + what["entry"]["text"])
        elif method == "Network.requestWillBeSent" and not what["request"]["url"].startswith(("file:", "data:")):
            self.problems.append("request: " + what["request"]["url"])

    def call(self, method: str, **params) -> dict:
        self._next += 1
        message = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") != self._next:
                self._note(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def evaluate(self, script: str):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def open(self, page: str | pathlib.Path, part: str = "") -> float:
        """Seconds from the navigation until the page is painted."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=pathlib.Path(page).resolve().as_uri() + part)
        deadline = time.monotonic() + WAIT_S
        while (ready := self.evaluate("window.readyAfter")) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{page} is not painted after {WAIT_S} s")
            time.sleep(0.02)
        return ready / 1000

    def settle(self):
        """Until what was asked for has been painted."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def resize(self, width: int, height: int):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def mouse(self, kind: str, x: float, y: float, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float):
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.settle()

    def press(self, key: str):
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def screenshot(self, path: str | pathlib.Path):
        self.settle()
        picture = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(picture))
