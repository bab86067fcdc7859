"""The table of operations, which pp-profile is asked for."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any

from .refused import Refused


@functools.cache
def find_tool() -> str:
    """pp-profile of the PATH, beside this Python, or of a build of this checkout."""
    built = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"
    for folders in (None, os.path.dirname(sys.executable), str(built)):
        if (found := shutil.which("pp-profile", path=folders)) is not None:
            return found
    raise Refused("pp-profile is not in the PATH, and knows which operations there are; add its folder, or build it "
                  "(cmake --build --preset release --target pp-profile)")


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    done = subprocess.run([find_tool(), "models", "--ops", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{find_tool()} models --ops --json: {done.stderr.strip()}")
    return {row["name"]: row for row in json.loads(done.stdout)}


def of_function(target: str) -> dict[str, Any] | None:
    """The operation that is this function of LibTorch, `aten.relu.default`."""
    return next((row for row in table().values() if f"aten.{row.get('aten')}.default" == target), None)


def completed(op: str, given: dict[str, Any]) -> dict[str, Any]:
    """All attributes in the table's order, with defaults but for the silent ones, which stand only where they differ."""
    rows, found = table()[op]["attributes"], {}
    assert given.keys() <= {row["name"] for row in rows}, f"{op} has no such attribute: {', '.join(given)}"
    for row in rows:
        default = found[row["default_from"]] if "default_from" in row else row.get("default")
        found[row["name"]] = given.get(row["name"], default)
    return {row["name"]: found[row["name"]] for row in rows
            if not (row.get("silent") and found[row["name"]] == row["default"])}


def in_range(op: str, attributes: dict[str, Any]) -> bool:
    """Whether the programs take these numbers."""
    rows = {attribute["name"]: attribute for attribute in table()[op]["attributes"]}
    return all(rows[name].get("least", value) <= value <= rows[name].get("most", value)
               for name, value in attributes.items() if isinstance(value, (int, float)))
