"""A Python that has the PyTorch of our LibTorch's version, for benchmarks that compare with it."""

import os
import pathlib
import shutil
import subprocess
import sys
import typing

VERSION = "2.11.0"
DEPENDENCIES = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools"]


def cache() -> pathlib.Path:
    """The folder that scripts/support/common.sh calls the cache."""
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("PP_CACHE") or pathlib.Path(home) / "pp")


def torch_version(python: str | pathlib.Path) -> str | None:
    if shutil.which(python) is None:
        return None
    done = subprocess.run([str(python), "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def make_environment(folder: pathlib.Path) -> None:
    """A virtual environment; NVIDIA's libraries, 2.7 GB, are those that scripts/setup has unpacked, where it has all."""
    def command(*words: object) -> None:
        if subprocess.run([str(word) for word in words], stdout=sys.stderr).returncode != 0:
            raise OSError(f"{' '.join(map(str, words))} failed; see its message above")

    pip = [folder / "bin/python", "-m", "pip", "install", "-q", "--no-cache-dir"]
    nvidia = cache() / f"torch-{VERSION}" / "nvidia"
    print(f"installs torch {VERSION} into {folder}", file=sys.stderr)
    command(sys.executable, "-m", "venv", "--clear", folder)
    if not (nvidia / "cudnn").exists():
        command(*pip, f"torch=={VERSION}", "numpy")
        return
    command(*pip, "numpy", *DEPENDENCIES)
    command(*pip, "--no-deps", f"torch=={VERSION}")
    packages = next(folder.glob("lib/python3*/site-packages"))
    (packages / "nvidia").symlink_to(nvidia)


def add_packages(python: str, packages: list[str], fail: typing.Callable[[str], typing.NoReturn]) -> None:
    """Installs those that this Python cannot import."""
    def has(package: str) -> bool:
        return subprocess.run([python, "-c", f"import {package}"], capture_output=True).returncode == 0

    missing = [package for package in packages if not has(package)]
    if not missing:
        return
    print(f"installs {', '.join(missing)} for {python}", file=sys.stderr)
    if subprocess.run([python, "-m", "pip", "install", "-q", "--no-cache-dir", *missing], stdout=sys.stderr).returncode != 0:
        fail(f"{python} could not install {', '.join(missing)}; name a Python that has them with --python")


def find_python(wanted: str | None, fail: typing.Callable[[str], typing.NoReturn]) -> str:
    """`wanted`, this Python, or that of the cache, which is made on first use."""
    if wanted is not None:
        if torch_version(wanted) is None:
            fail(f"--python {wanted}: there is no such Python, or it has no torch; name another, or leave --python out")
        return wanted
    folder = cache() / f"bench-torch-{VERSION}"
    own = folder / "bin/python"
    for python in (sys.executable, own):
        if (torch_version(python) or "").startswith(VERSION):
            return str(python)
    try:
        make_environment(folder)
    except OSError as error:
        fail(f"torch {VERSION} could not be installed ({error}); name a Python that has it with --python")
    if torch_version(own) is None:
        fail(f"{own} cannot import torch; remove {folder} and try again, or name another Python with --python")
    return str(own)
