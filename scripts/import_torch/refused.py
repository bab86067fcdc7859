"""Why a module cannot be imported: always with a place and a remedy."""

import importlib.util
import os
import sys


class Refused(Exception):
    """Says what, where, why, and what to do. Ends the program with exit code 2."""


def require_torch(script: str) -> None:
    """Ends the program with exit code 2 where this Python has no torch."""
    if importlib.util.find_spec("torch") is None:
        cache = os.environ.get("PP_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "pp")
        unpacked = os.path.join(cache, "torch-2.11.0")
        own = f"; scripts/setup has put one where PYTHONPATH={unpacked} finds it" if os.path.isdir(unpacked) else ""
        print(f"{script}: {sys.executable} has no torch; install it (pip install torch==2.11.0), or call this script by a "
              f"Python that has it: python scripts/{script} ...{own}", file=sys.stderr)
        sys.exit(2)


def at_node(name: str, path: str, operation: str) -> str:
    """`layer1.0: aten::add_ (node add_)`: how messages name an operation of the module."""
    return f"{path or 'the module itself'}: {operation} (node {name})"


def first_lines(error: BaseException, count: int = 6) -> str:
    """What an exception of PyTorch says, without its pages of advice."""
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    return "\n  ".join(lines[:count])
