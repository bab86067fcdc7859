"""transcripts.py [--record] FILE...          runs transcripts, the form of a test that says what a command prints;
                                              --record writes what they print into those that do not hold
transcripts.py --page [--compare] PAGE FOLDER   runs the commands of a page's code blocks in FOLDER, as they are written

A transcript is a text file:

    # A comment.
    $ sample-profile 2 2 2 > profile.json        lines before the first case run at the beginning of each
    ## a stage too many is refused               a case: a new folder, one shell for all of its commands
    $ pp-plan profile.json --devices 2 --bandwidth 1e9 \\
    > --mini-batch 64 --stages 9
    ! pp-plan: error: stages = 9 exceeds ...     what it prints, standard error behind an exclamation mark and last;
    ? 2                                          `...` is any text, alone any lines; its exit code, 0 where none is said
    ## trained on ranks [needs mpirun]           skipped where there is no such program

Programs that read and change documents are in tests/support/programs (value, edit, tensors) and tests/apps
(sample-profile, sample-plan). Documents that pp-profile, pp-plan and pp-run write must be valid by their schemas. A
page's lines below a command (with --compare) must be lines of its standard output, in their order. Programs are found
in the caller's PATH. The last line of a transcript's run counts its cases; exit 0 when none failed, 77 when all were
skipped.
"""

import dataclasses
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
ANY = "..."
# What pp-plan says on a slow machine only.
SLOW = re.compile(r"pp-plan: info: .* takes more than ")


@dataclasses.dataclass
class Command:
    text: str
    line: int
    last: int = 0  # its last line, before what it prints
    shown: list[str] = dataclasses.field(default_factory=list)
    code: int = 0


@dataclasses.dataclass
class Case:
    title: str
    needs: str | None = None
    commands: list[Command] = dataclasses.field(default_factory=list)


def parse(text: str) -> tuple[list[Command], list[Case]]:
    """The commands before the first case, and the cases."""
    setup = Case("")
    cases = [setup]
    for number, line in enumerate(text.splitlines(), 1):
        commands = cases[-1].commands
        if line.startswith("## "):
            title, needs = re.fullmatch(r"## (.*?)(?: \[needs (\S+)\])?", line).groups()
            cases.append(Case(title, needs))
        elif line.startswith("$ "):
            commands.append(Command(line[2:], number, number))
        elif line.startswith("> ") and commands and not commands[-1].shown:
            commands[-1].text += "\n" + line[2:]
            commands[-1].last = number
        elif line.startswith("? "):
            commands[-1].code = int(line[2:])
        elif line.startswith("# ") or line in ("", "#"):
            continue
        elif commands:
            commands[-1].shown.append(line)
        else:
            raise SystemExit(f"line {number}: {line!r} stands below no command")
    return setup.commands, cases[1:]


def pattern_of(line: str) -> str:
    if line == ANY:
        return "(?:(?!! ).*\n)*?"
    if line == "! " + ANY:
        return "(?:! .*\n)*?"
    return ".*?".join(map(re.escape, line.split(ANY))) + "\n"


def matches(shown: list[str], printed: list[str]) -> bool:
    """Empty lines of either do not count: a transcript has them between its cases."""
    return re.fullmatch("".join(map(pattern_of, shown)), "".join(line + "\n" for line in printed)) is not None


# The tools as functions of the shell: what they write is validated, wherever a command calls them.
CHECKED = """
checked() {
  touch $notes/since
  command "$@"
  local code=$?
  local written=$(find . -newer $notes/since -name '*.json*' -print -quit)
  [ -z "$written" ] || valid-documents . $notes/since >>$notes/$index.err 2>&1
  return $code
}
for tool in pp-profile pp-plan pp-run; do eval "$tool() { checked $tool \\"\\$@\\"; }"; done
"""


def script(commands: list[Command], notes: pathlib.Path) -> str:
    lines = [f"export LC_ALL=C.UTF-8; notes={notes} PATH={notes}:$PATH", CHECKED, "mkdir $notes/folder; cd $notes/folder"]
    for index, command in enumerate(commands):
        into = "} >>$notes/$index.out 2>>$notes/$index.err </dev/null"
        lines += [f"index={index}", "{", command.text, into, "echo $? >$notes/$index.code"]
    return "\n".join(lines) + "\n"


@dataclasses.dataclass
class Printed:
    command: Command
    lines: list[str]
    code: int

    def holds(self) -> bool:
        return self.code == self.command.code and matches(self.command.shown, self.lines)

    def report(self) -> str:
        lines = difflib.unified_diff(self.command.shown, self.lines, "expected", "printed", lineterm="")
        return (f"line {self.command.line}: $ {self.command.text}\n" + "".join(line + "\n" for line in lines)
                + f"exit code {self.code}, expected {self.command.code}\n")


def text_of(path: pathlib.Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def lines_of(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def run_commands(commands: list[Command]) -> list[Printed]:
    """In a new folder, by one shell; what a command does to the shell, the next one finds."""
    with tempfile.TemporaryDirectory() as scratch:
        notes = pathlib.Path(scratch)
        (notes / "python3").symlink_to(sys.executable)  # the caller's may be a script that looks for it
        subprocess.run(["bash", "-c", script(commands, notes)], check=False)
        done = []
        for index, command in enumerate(commands):
            out, err, code = (text_of(notes / f"{index}.{what}") for what in ("out", "err", "code"))
            said = ["! " + line for line in lines_of(err) if not SLOW.match(line)]
            done.append(Printed(command, lines_of(out) + said, int(code or -1)))
        return done


def recorded(text: str, printed: list[Printed]) -> str:
    """The transcript with what its commands print in place of what it shows."""
    lines = text.splitlines()
    for one in sorted(printed, key=lambda one: -one.command.line):
        end = one.command.last
        while end < len(lines) and lines[end] and not lines[end].startswith(("$ ", "## ", "# ")):
            end += 1
        shown = [line.replace(os.environ.get("PP_REPOSITORY", ANY), ANY) for line in one.lines]
        lines[one.command.last : end] = shown + ([f"? {one.code}"] if one.code else [])
    return "\n".join(lines) + "\n"


def run_transcript(path: pathlib.Path, record: bool) -> tuple[int, int, int]:
    count = {"passed": 0, "failed": 0, "skipped": 0}
    setup, cases = parse(path.read_text())
    found = []
    for case in cases:
        if case.needs and (case.needs == os.environ.get("PP_LACKS") or not shutil.which(case.needs)):
            print(f"SKIPPED: {case.title}: no {case.needs} here")
            count["skipped"] += 1
            continue
        wrong = [one for one in run_commands(setup + case.commands) if not one.holds()]
        if wrong:
            print(f"{path}: {case.title}\n{wrong[0].report()}", flush=True)
        found += [one for one in wrong if one.command in case.commands]
        count["failed" if wrong else "passed"] += 1
    if record:
        path.write_text(recorded(path.read_text(), found))
    return tuple(count.values())


def page_commands(text: str) -> list[Command]:
    found: list[Command] = []
    inside = open_command = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            inside = not inside
            open_command = False
        elif inside and line.startswith("$ "):
            found.append(Command(line[2:], number))
            open_command = True
        elif open_command and line.strip() not in ("", ANY):
            found[-1].shown.append(line.rstrip())
    return found


def run_page(page: pathlib.Path, folder: pathlib.Path, compare: bool) -> int:
    for command in page_commands(page.read_text()):
        begin = time.monotonic()
        done = subprocess.run(["bash", "-c", command.text], cwd=folder, capture_output=True, text=True, check=False)
        print(f"{time.monotonic() - begin:6.1f} s  {command.text}", flush=True)
        if done.returncode != 0:
            print(f"exit {done.returncode}: {done.stderr or done.stdout}", file=sys.stderr)
            return 1
        rest = iter([line.rstrip() for line in done.stdout.splitlines()])
        missing = next((line for line in command.shown if line not in rest), None) if compare else None
        if missing is not None:
            print(f"{page} shows the line\n{missing}\nwhich is not there, or not in its place, in\n{done.stdout}", file=sys.stderr)
            return 1
    return 0


def main() -> int:
    words = sys.argv[1:]
    if words[0] == "--page":
        page, folder = (pathlib.Path(word) for word in words[1:] if word != "--compare")
        return run_page(page, folder, "--compare" in words)
    counts = [run_transcript(pathlib.Path(word), "--record" in words) for word in words if word != "--record"]
    passed, failed, skipped = map(sum, zip(*counts))
    print(f"cases: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0 if passed else SKIPPED


sys.exit(main())
