"""with_torch.py PROGRAM [ARGUMENT...]: runs a Python program that imports torch.

Torch is that of this Python, else what scripts/setup has unpacked (PP_LIBTORCH, the cache). Where there is none the exit
code is 77, which CTest counts as skipped; a torch that is there and does not load is a failure of the program.
"""

import importlib.util
import os
import pathlib
import sys

from torch_python import VERSION, cache

WHEEL_PYTHON = (3, 11)


def unpacked() -> pathlib.Path | None:
    """The folder to import torch from, where it was unpacked with its Python part."""
    named = os.environ.get("PP_LIBTORCH")
    folder = pathlib.Path(named).parent if named else cache() / f"torch-{VERSION}"
    return folder if (folder / "torch/__init__.py").exists() else None


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if importlib.util.find_spec("torch") is None:
        folder = unpacked()
        if folder is None or sys.version_info[:2] != WHEEL_PYTHON:
            found = ".".join(map(str, sys.version_info[:2]))
            print(f"SKIPPED: no torch for this Python {found}; scripts/setup --python brings that of {WHEEL_PYTHON[0]}.{WHEEL_PYTHON[1]}")
            sys.exit(77)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
