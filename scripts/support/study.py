"""What scripts/compare and scripts/sweep share: their config files, profile and links, and results that outlive a run."""

import difflib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import typing

from benchmark import BIN, ENVIRONMENT, fail
from documents import CLUSTER, Failed, read_document

REQUIRED = object()


class Key(typing.NamedTuple):
    """A key of a config file: what its value must be, in words and as a test, and what it is where the file has none."""
    words: str
    fits: typing.Callable[[typing.Any], bool]
    default: typing.Any = REQUIRED


def is_count(value: typing.Any) -> bool:
    return type(value) is int and value > 0


def is_text(value: typing.Any) -> bool:
    """Something that a command line can hold, and a line of a table."""
    return isinstance(value, str) and bool(value) and value.isprintable()


def is_words(value: typing.Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def is_part(value: typing.Any) -> bool:
    """A part of a file's name."""
    return is_text(value) and "/" not in value and len(value.encode()) < 100


def parts(default: typing.Any = REQUIRED) -> Key:
    return Key("a list of texts without /, at most 99 bytes each", lambda value: isinstance(value, list) and all(map(is_part, value)), default)


def is_counts(value: typing.Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_count, value))


def text(default: typing.Any = REQUIRED) -> Key:
    return Key("a text of one line that is not empty", is_text, default)


def count(default: typing.Any = REQUIRED) -> Key:
    return Key("a whole number above 0", is_count, default)


def counts(default: typing.Any = REQUIRED) -> Key:
    return Key("a list of whole numbers above 0", is_counts, default)


def words(default: typing.Any = REQUIRED) -> Key:
    return Key("a list of texts of one line that are not empty", is_words, default)


COMMON = {"model": text(), "data": words(), "devices": Key("a text without /, at most 99 bytes", is_part, "cpu:2x1"), "mini_batch": count(), "micro_batch_sizes": counts(),
          "optimizer": text("sgd"), "profile": words([]), "plan": words([]), "run": words([])}


def check_name(name: str, names: typing.Collection[str], what: str) -> None:
    """Raises ValueError with the nearest of the names."""
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        raise ValueError(f"{name}: no such {what}; {f'did you mean {near[0]}?' if near else 'use one of ' + ', '.join(names)}")


def complete(document: typing.Any, keys: dict[str, Key]) -> dict:
    """The document with its defaults; raises ValueError that names the key, its value and what it must be."""
    if not isinstance(document, dict):
        raise ValueError("must be an object in braces")
    for name in document:
        check_name(name, keys, "key")
    for name, key in keys.items():
        if name not in document and key.default is REQUIRED:
            raise ValueError(f"{name}: is missing; give {key.words}")
        if name in document and not key.fits(document[name]):
            raise ValueError(f"{name}: must be {key.words}, is {json.dumps(document[name])}")
    return {name: document.get(name, key.default) for name, key in keys.items()}


def read_config(path: pathlib.Path, keys: dict[str, Key]) -> dict:
    """Ends the script where the file is not as the keys say."""
    try:
        return complete(json.loads(path.read_text(encoding="utf-8-sig")), keys)
    except (OSError, ValueError, RecursionError) as error:
        fail(f"error: {path}: {getattr(error, 'strerror', None) or error}", 2)


def digest(value: typing.Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def model_content(model: str) -> str:
    """A file's hash, or the name of a built-in family: pp-profile says what is wrong with either."""
    try:
        return hashlib.sha256(pathlib.Path(model).read_bytes()).hexdigest()
    except OSError:
        return model


def reason(said: str) -> str:
    """What a tool's stderr says after `error: `, as one line; its last line where it says no such word."""
    start = said.rfind("error: ")
    kept = said[start + len("error: "):] if start >= 0 else (said.strip().splitlines() or ["it said nothing"])[-1]
    return " ".join(kept.split())


def attempt(name: str, *arguments: object) -> str:
    """A tool's stdout; raises Failed with its reason."""
    command = [str(BIN / name), *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    except FileNotFoundError:
        fail(f"error: {command[0]} is not there; build it (cmake --workflow --preset release), or name its folder in PP_BIN", 2)
    except OSError as error:
        raise Failed(f"{name}: {error.strerror}") from None
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode != 0:
        raise Failed(f"{name}: {reason(done.stderr)} (exit {done.returncode})")
    return done.stdout


def run_script(main: typing.Callable[[], int]) -> typing.NoReturn:
    """With its exit code; what stops it is said in a line."""
    try:
        code = main()
    except KeyboardInterrupt:
        say("interrupted; the same command goes on with what is left")
        code = 130
    except Failed as error:
        fail(f"error: {error}", 1)
    except OSError as error:
        fail(f"error: {error.filename or 'standard output'}: {error.strerror}", 2)
    sys.exit(code)


def show(text: str) -> None:
    """The result, on stdout. `| head` has read what it wanted."""
    try:
        print(text, end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(message: str) -> None:
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr, flush=True)


def write_whole(path: pathlib.Path, content: str) -> None:
    """The file appears whole or not at all."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(content)
    beside.replace(path)


class Kept:
    """Results in files of a folder, each with a key of all that it depends on: a result of other settings counts as none."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, key: str) -> dict | None:
        path = self.folder / f"{name}.json"
        try:
            kept = json.loads(path.read_text())
        except (OSError, ValueError):
            return None
        return kept.get("result") if isinstance(kept, dict) and kept.get("key") == key else None

    def put(self, name: str, key: str, result: dict) -> None:
        write_whole(self.folder / f"{name}.json", json.dumps({"key": key, "result": result}, indent=1) + "\n")


class Machine(typing.NamedTuple):
    """What pp-plan needs of model and devices."""
    profiles: dict[str, pathlib.Path]  # by devices: cpu:2x1
    cluster: pathlib.Path
    devices: int
    key: str  # of what was measured


def measure_machine(settings: dict, folder: pathlib.Path, other_devices: list[str]) -> Machine:
    """Profiles of the model on the devices and the others, and the links; those of the same settings are kept."""
    kept = Kept(folder)
    sizes = ",".join(map(str, settings["micro_batch_sizes"]))
    profiles = {devices: folder / f"profile-{devices.replace(':', '-')}.json" for devices in [settings["devices"], *other_devices]}
    cluster = folder / "cluster.json"
    key = digest([model_content(settings["model"]), sizes, settings["profile"], list(profiles)])
    if kept.get("measured", key) is None or not all(path.is_file() for path in (*profiles.values(), cluster)):
        for devices, path in profiles.items():
            say(f"profiling {settings['model']} on {devices}")
            attempt("pp-profile", "run", settings["model"], "--device", devices, "--micro-batch-sizes", sizes, "-q", "-o", path,
                    *settings["profile"])
        say(f"measuring the links of {settings['devices']}")
        attempt("pp-profile", "links", "--devices", settings["devices"], "-q", "-o", cluster)
        kept.put("measured", key, {"profiles": [path.name for path in profiles.values()]})
    count = len(read_document(cluster, CLUSTER)["devices"])
    measured = [read_document(path, {}) for path in (*profiles.values(), cluster)]
    return Machine(profiles, cluster, count, digest(measured))
