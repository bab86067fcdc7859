"""CUDA that does not compile is none: FindLibTorch offers LibTorch::cuda only where a program with CUDA and NCCL links."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
LIBTORCH = pathlib.Path(sys.argv.pop(1))
PROJECT = f"""
cmake_minimum_required(VERSION 3.25)
project(finds LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH {REPOSITORY}/scripts/cmake)
find_package(LibTorch REQUIRED)
if(TARGET LibTorch::cuda)
  message(STATUS "offers CUDA")
endif()
"""


def linked(source: pathlib.Path, folder: pathlib.Path, but: str) -> None:
    """A folder with links to all that `source` has, but an entry that the caller makes."""
    folder.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.name != but:
            (folder / entry.name).symlink_to(entry)


class FindLibTorch(unittest.TestCase):
    def test_headers_that_do_not_compile(self) -> None:
        nvidia = LIBTORCH.parent / "nvidia"
        with tempfile.TemporaryDirectory() as scratch:
            root = pathlib.Path(scratch)
            linked(LIBTORCH, root / "torch", but="")
            linked(nvidia, root / "nvidia", but="nccl")
            linked(nvidia / "nccl", root / "nvidia/nccl", but="include")
            linked(nvidia / "nccl/include", root / "nvidia/nccl/include", but="nccl.h")
            header = root / "nvidia/nccl/include/nccl.h"
            header.write_text('#include "crt/not_in_this_wheel.h"\n')
            (root / "project").mkdir()
            (root / "project/CMakeLists.txt").write_text(PROJECT)
            configure = ["cmake", "-G", "Ninja", "-S", root / "project", "-B", root / "build", f"-DLIBTORCH_ROOT={root}/torch"]
            said = subprocess.run(configure, capture_output=True, text=True, check=True).stdout
            self.assertNotIn("offers CUDA", said)
            self.assertRegex(said, r"No CUDA from .*: a program with CUDA and NCCL does not compile: .*not_in_this_wheel")

            # The set-up is mended: the next configuration of the same folder looks again.
            header.unlink()
            header.symlink_to(nvidia / "nccl/include/nccl.h")
            again = subprocess.run(["cmake", root / "build"], capture_output=True, text=True, check=True).stdout
            self.assertNotIn("not_in_this_wheel", again)


if __name__ == "__main__":
    if not (LIBTORCH / "lib/libtorch_cuda.so").exists() or not (LIBTORCH.parent / "nvidia/nccl/include").exists():
        print("SKIPPED: this LibTorch has no CUDA")
        sys.exit(77)
    unittest.main()
