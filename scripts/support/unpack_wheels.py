"""unpack_wheels.py cpu|cuda FOLDER WHEEL...: unpacks wheels into FOLDER.

The CUDA set is a folder that Python, too, can import torch from. The CPU set is what a C++ build needs of the torch and
NVIDIA wheels: headers, shared libraries, version and licences, but not Torch's own CUDA libraries (0.5 GB), without
which its Python module does not load. Files keep the wheel's time stamps, so that unpacking again makes no build stale.
"""

import fnmatch
import os
import pathlib
import shutil
import sys
import time
import zipfile

KEPT = {
    "cpu": ["torch/include/*", "torch/version.py", "torch/lib/libc10.so", "torch/lib/libtorch_cpu.so",
            "torch/lib/libgomp*", "nvidia/*/lib/*.so*", "*.dist-info/*LICENSE*", "*.dist-info/*License*",
            "*.dist-info/*NOTICE*"],
    "cuda": ["*"],
}


def unpack(wheel: str, folder: pathlib.Path, patterns: list[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.is_dir() or not any(fnmatch.fnmatchcase(entry.filename, pattern) for pattern in patterns):
                continue
            target = (folder / entry.filename).resolve()
            if not target.is_relative_to(folder):
                sys.exit(f"unpack_wheels.py: {wheel}: {entry.filename} points out of the folder; not unpacked")
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            written = time.mktime((*entry.date_time, 0, 0, -1))
            os.utime(target, (written, written))


def main() -> None:
    if len(sys.argv) < 4 or sys.argv[1] not in KEPT:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2]).resolve()
    for wheel in sys.argv[3:]:
        unpack(wheel, folder, KEPT[sys.argv[1]])


main()
