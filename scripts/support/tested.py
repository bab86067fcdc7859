"""tested.py stale BUILD              prints the numbers of the CTest entries that --changed runs, with commas
tested.py passed BUILD RESULTS.xml  notes the entries of CTest's JUnit file that passed

An entry is run again when what it passed with has changed: the bytes of its program and of the files that it requires
(REQUIRED_FILES: the tools), or any file of the repository that no compiler reads (data, configs, scripts; pages are left
to the full run). An executable that does not link the changed code keeps its bytes. The notes stand in BUILD/tested.json.
"""

import functools
import hashlib
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
APART = (".cpp", ".h", ".cu", ".txt", ".cmake", ".md")


@functools.cache
def content(path: str) -> str:
    file = pathlib.Path(path)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "none"


@functools.cache
def read_at_run_time() -> str:
    """One digest for all that tests may read; what a compiler reads and transcripts, which their entries name, are apart."""
    files = [path.relative_to(REPOSITORY) for path in REPOSITORY.rglob("*")]
    read = sorted(str(path) for path in files if path.parts[0] != "build" and not path.parts[0].startswith(".")
                  and "__pycache__" not in path.parts and path.suffix not in APART)
    return hashlib.sha256("".join(name + content(str(REPOSITORY / name)) for name in read).encode()).hexdigest()


def digest(test: dict) -> str:
    command = test.get("command", [])
    properties = {entry["name"]: entry["value"] for entry in test["properties"]}
    files = [word for word in command if pathlib.Path(word).is_file()] + properties.get("REQUIRED_FILES", [])
    parts = [read_at_run_time(), *command, *map(content, files)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def digests(build: pathlib.Path) -> list[tuple[str, str]]:
    listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True).stdout
    return [(test["name"], digest(test)) for test in json.loads(listed)["tests"]]


def main() -> None:
    build = pathlib.Path(sys.argv[2])
    notes = build / "tested.json"
    passed = json.loads(notes.read_text()) if notes.exists() else {}
    now = digests(build)
    if sys.argv[1] == "stale":
        print(",".join(str(number) for number, (name, value) in enumerate(now, 1) if passed.get(name) != value))
        return
    for case in xml.etree.ElementTree.parse(sys.argv[3]).getroot().iter("testcase"):
        name = case.get("name")
        if case.get("status") == "fail":
            passed.pop(name, None)
        else:
            passed |= {other: value for other, value in now if other == name}
    notes.write_text(json.dumps(passed))


main()
