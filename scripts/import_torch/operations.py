"""The table of operations, as the programs have it: `pp-profile models --ops --json > scripts/import_torch/operations.json`
makes the file anew; a test compares the two."""

import functools
import json
import pathlib
from typing import Any


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    rows = json.loads((pathlib.Path(__file__).parent / "operations.json").read_text())
    return {row["name"]: row for row in rows}


def completed(op: str, given: dict[str, Any]) -> dict[str, Any]:
    """All attributes in the table's order, with defaults but for the silent ones, which stand only where they differ."""
    known = {attribute["name"] for attribute in table()[op]["attributes"]}
    assert given.keys() <= known, f"{op} has no {', '.join(given.keys() - known)}"
    found = with_defaults(op, given)
    return {attribute["name"]: found[attribute["name"]] for attribute in table()[op]["attributes"]
            if not (attribute.get("silent") and found[attribute["name"]] == attribute["default"])}


def in_range(op: str, attributes: dict[str, Any]) -> bool:
    """Whether the programs take these numbers."""
    rows = {attribute["name"]: attribute for attribute in table()[op]["attributes"]}
    return all(rows[name].get("least", value) <= value <= rows[name].get("most", value)
               for name, value in attributes.items() if isinstance(value, (int, float)))


def with_defaults(op: str, given: dict[str, Any]) -> dict[str, Any]:
    """All attributes, as whoever runs the operation reads them."""
    found: dict[str, Any] = {}
    for attribute in table().get(op, {"attributes": []})["attributes"]:
        name = attribute["name"]
        if name in given:
            found[name] = given[name]
        elif "default_from" in attribute:
            found[name] = found[attribute["default_from"]]
        elif not attribute["required"]:
            found[name] = attribute["default"]
    return found
