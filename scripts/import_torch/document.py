"""The document's text, laid out as the tools write theirs: what fits in 120 columns stands on one line."""

import json
import os
import pathlib
import tempfile
from typing import Any

WIDTH = 120


def line(value: Any) -> str:
    """`{ "a": 1, "b": [1, 2] }`"""
    if isinstance(value, dict) and value:
        return "{ " + ", ".join(f"{json.dumps(k)}: {line(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list) and value:
        return "[" + ", ".join(map(line, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def indented(value: Any, indent: int = 0, column: int = 0) -> str:
    text = line(value)
    if not isinstance(value, (dict, list)) or not value or indent > 0 and column + len(text) <= WIDTH:
        return text
    pad, members = " " * (indent + 2), []
    for key, member in value.items() if isinstance(value, dict) else ((None, m) for m in value):
        head = pad + (f"{json.dumps(key)}: " if key is not None else "")
        members.append(head + indented(member, indent + 2, len(head)))
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(members) + "\n" + " " * indent + closing


def write_whole(path: str, content: bytes) -> None:
    """The file appears whole or not at all."""
    target = pathlib.Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def model_document(name: str, inputs: list[dict[str, Any]], targets: list[dict[str, Any]], layers: list[dict[str, Any]],
                   outputs: list[str], loss: dict[str, Any] | None) -> dict[str, Any]:
    document = {"format": "pp.model", "version": version_of(layers, loss), "name": name, "inputs": inputs, "targets": targets,
                "layers": layers, "outputs": outputs}
    return document | ({"loss": loss} if loss else {})


def marked(document: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """`verified`: False of a module without weights, which nobody compared with it; `weights`: the name of their file."""
    head = {"format": document["format"], "version": 2, "name": document["name"], key: value}
    return head | {key: value for key, value in document.items() if key not in head}


def version_of(layers: list[dict[str, Any]], loss: dict[str, Any] | None) -> int:
    """2 where something stands in it that version 1 did not begin with (libprofile/core/README.md)."""
    nodes = [node for layer in [*layers, loss or {}] for node in (layer, *layer.get("nodes", []))]
    calls = [node["call"] for node in nodes if "call" in node]
    return 2 if (any("frozen" in node for node in nodes) or any("precision" in call for call in calls)
                 or any("formula" in constant for call in calls for constant in call.get("constants", []))) else 1
