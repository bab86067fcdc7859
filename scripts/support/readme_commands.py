"""readme_commands.py [--compare] README FOLDER: runs every line `$ command` of the code blocks of README, in their
order, in FOLDER, as they are written, with the PATH of the caller. Prints each with its seconds; exit 1 at the first
that fails, with what it said. With --compare the lines that stand below a command must be lines of what it prints, in
their order; `...` stands for any."""

import pathlib
import subprocess
import sys
import time
import typing


class Command(typing.NamedTuple):
    text: str
    shown: list[str]


def commands(text: str) -> list[Command]:
    found: list[Command] = []
    inside = False
    open_command = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
            open_command = False
        elif inside and line.startswith("$ "):
            found.append(Command(line[2:], []))
            open_command = True
        elif open_command and line.strip() not in ("", "..."):
            found[-1].shown.append(line.rstrip())
    return found


def missing(shown: list[str], printed: str) -> str | None:
    """The first line of `shown` that is not in its place."""
    rest = iter([line.rstrip() for line in printed.splitlines()])
    return next((line for line in shown if line not in rest), None)


def main() -> int:
    compare = "--compare" in sys.argv
    readme, folder = (pathlib.Path(word) for word in sys.argv[1:] if word != "--compare")
    for command in commands(readme.read_text()):
        begin = time.monotonic()
        done = subprocess.run(["bash", "-c", command.text], cwd=folder, capture_output=True, text=True, check=False)
        print(f"{time.monotonic() - begin:6.1f} s  {command.text}", flush=True)
        if done.returncode != 0:
            print(f"exit {done.returncode}: {done.stderr or done.stdout}", file=sys.stderr)
            return 1
        if compare and (line := missing(command.shown, done.stdout)):
            print(f"{readme} shows the line\n{line}\nwhich is not there, or not in its place, in\n{done.stdout}", file=sys.stderr)
            return 1
    return 0


sys.exit(main())
