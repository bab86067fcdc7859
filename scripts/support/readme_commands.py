"""readme_commands.py README FOLDER: runs every line `$ command` of the code blocks of README, in their order, in
FOLDER, as they are written, with the PATH of the caller. Prints each with its seconds; exit 1 at the first that fails,
with what it said."""

import pathlib
import subprocess
import sys
import time


def commands(text: str) -> list[str]:
    found = []
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside and line.startswith("$ "):
            found.append(line[2:])
    return found


def main() -> int:
    readme, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    for command in commands(readme.read_text()):
        begin = time.monotonic()
        done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
        print(f"{time.monotonic() - begin:6.1f} s  {command}", flush=True)
        if done.returncode != 0:
            print(f"exit {done.returncode}: {done.stderr or done.stdout}", file=sys.stderr)
            return 1
    return 0


sys.exit(main())
