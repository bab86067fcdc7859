"""Why a module cannot be imported: always with a place and a remedy. Whose mistake an exception is."""

import contextlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator

OWN = os.path.dirname(os.path.abspath(__file__))


LIMITS = ' (more: "What the tools cannot express", configs/how-to/README.md)'


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


def is_own(frame: traceback.FrameSummary) -> bool:
    return os.path.dirname(os.path.abspath(frame.filename)) == OWN


def outside_libraries(error: BaseException) -> list[traceback.FrameSummary]:
    """Frames of the importer and of the user's code; none of PyTorch's or Python's own."""
    libraries = (os.path.dirname(os.__file__) + os.sep, "<")
    return [frame for frame in traceback.extract_tb(error.__traceback__)
            if f"{os.sep}torch{os.sep}" not in frame.filename and not frame.filename.startswith(libraries)]


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {first_lines(error)}"


@contextlib.contextmanager
def users_code(explain: Callable[[Exception, str], str]) -> Iterator[None]:
    """Refuses what the user's code raises by `explain(error, place)`, the place being `FILE:LINE: ` or empty. What the
    importer's own code raises within (wrappers and modes that the user's code calls) passes."""
    try:
        yield
    except Refused:
        raise
    except Exception as error:  # the user's code raises anything
        frames = traceback.extract_tb(error.__traceback__)
        if len(frames) > 2 and is_own(frames[-1]):  # deeper than the call itself
            raise
        users = [frame for frame in outside_libraries(error) if not is_own(frame)]
        place = f"{users[-1].filename}:{users[-1].lineno}: " if users else ""
        raise Refused(explain(error, place)) from error


def guarded(script: str, run: Callable[[], None]) -> int:
    """The script's exit code: 2 for what is refused, 1 for a mistake of the script's own, which says so."""
    try:
        run()
    except Refused as refused:
        print(f"{script}: {refused}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        frame = outside_libraries(error)[-1]
        place = f"{frame.filename}:{frame.lineno}"
        if not is_own(frame):
            print(f"{script}: {place}: {described(error)}", file=sys.stderr)
            return 2
        print(f"{script}: internal: {described(error)} ({os.path.relpath(place, OWN)}); this is a mistake of {script}, not "
              "of its input: please report it with what it was called with", file=sys.stderr)
        return 1
    return 0


def at_node(name: str, path: str, operation: str) -> str:
    """`layer1.0: aten::add_ (node add_)`: how messages name an operation of the module."""
    return f"{path or 'the module itself'}: {operation} (node {name})"


def first_lines(error: BaseException, count: int = 6) -> str:
    """What an exception of PyTorch says, without its pages of advice."""
    advice = ("For ", "If you suspect", "Caused by", "consider using")
    lines = [line.rstrip() for line in str(error).splitlines() if line.strip() and not line.startswith(advice)]
    return "\n  ".join(lines[:count])
