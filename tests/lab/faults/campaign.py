"""Every k-th call of a job fails once, is cut short, comes late, or is where its process is killed; README.md says what must hold.

Prints each finding with the options that repeat it, and at the end the runs by outcome. Exit 0 only without findings.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import jobs as disturbed  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
LONGEST = 60  # seconds of a run; it takes one or two
# By kind of call: how it fails. `+`: and all that follow, as on a full disk.
HOW = {"read": ["EIO", "EINTR", "short", "kill"],
       "write": ["ENOSPC", "ENOSPC+", "EINTR", "short", "late", "kill"],
       "fsync": ["EIO", "late", "kill"],
       "rename": ["EIO", "late", "kill"],
       "link": ["ENOSPC", "kill"],
       "mkdir": ["ENOSPC", "kill"],
       "truncate": ["EIO", "kill"],
       "open": ["EIO", "kill"],
       "create": ["EACCES", "kill"],
       "map": ["ENOMEM", "kill"],
       "memory": ["ENOMEM", "ENOMEM+"],
       "send": ["late", "pause", "stop", "kill"],
       "receive": ["late", "kill"]}
LIBRARIES = {"memory": ("memory",), "messages": ("send", "receive")}  # all other calls are the disk's
UNNOTICED = ("EINTR", "short", "late", "pause")
# There may be another way to the same result: a file with a name where one without cannot be made, memory given back and asked for again.
MENDED = ("create", "memory")
STATE = "/ck/launch/"  # where ranks tell the launcher how far they are, which it can do without
LEFT_OVER = re.compile(r"\.tmp$|\.part$|^\.unfinished-")


@dataclasses.dataclass(frozen=True)
class Case:
    job: str
    call: str
    how: str
    k: int

    def options(self) -> str:
        return f"--job {self.job} --call {self.call} --how {self.how} --k {self.k}"


@dataclasses.dataclass
class Ended:
    code: int  # of the process; negative: the signal
    said: str
    late: bool


class Place:
    """One job's folders: what it begins with, where it runs, what is told about it."""

    def __init__(self, campaign: "Campaign", job: disturbed.Job):
        self.campaign, self.job = campaign, job
        self.template, self.folder = campaign.root / f"{job.name}-begin", campaign.root / f"{job.name}-run"
        disturbed.copy(campaign.base, self.template)
        for command in job.prepare:
            disturbed.must(campaign.binaries, command, self.template)
        self.before = self.outputs(self.template)
        disturbed.copy(self.template, self.folder)
        disturbed.must(campaign.binaries, job.command, self.folder)
        self.whole = self.outputs(self.folder)
        self.names = {file.name for file in self.folder.rglob("*")} | {self.folder.name}

    def outputs(self, folder: pathlib.Path) -> dict[str, object]:
        return {name: disturbed.content(folder / name) for name in self.job.outputs}

    def run(self, faults: dict[str, str], command: list[str] | None = None) -> Ended:
        environment = dict(faults)
        if faults:
            library = environment.pop("library", "") or library_of(faults["PP_FAULT_CALL"])
            environment["LD_PRELOAD"] = str(self.campaign.libraries / f"libfaulty_{library}.so")
            environment["PP_FAULT_FILE"] = str(self.folder) if library == "disk" else ""
        with tempfile.TemporaryFile("w+") as said:
            process = disturbed.run(self.campaign.binaries, command or self.job.command, self.folder,
                                    {**environment, "PP_FAULT_RUN": str(self.folder)}, stdout=subprocess.DEVNULL, stderr=said,
                                    start_new_session=True)
            late = False
            try:
                process.wait(LONGEST)
            except subprocess.TimeoutExpired:
                late = True
            late = self.end_others(process.pid if late else None) or late
            process.wait()
            said.seek(0)
            return Ended(process.returncode, said.read(), late)

    def end_others(self, main: int | None) -> bool:
        """Processes of the job that have outlived it get ten seconds; whether some needed to be killed."""
        last = time.monotonic() + (0 if main else 10)
        while found := self.processes():
            if time.monotonic() > last:
                for pid in found:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                return True
            time.sleep(0.2)
        return False

    def processes(self) -> list[int]:
        mark, found = f"PP_FAULT_RUN={self.folder}".encode(), []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                ours = mark in (entry / "environ").read_bytes().split(b"\0")
                if ours and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def left_over(self) -> list[str]:
        return [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if LEFT_OVER.search(path.name)]


def library_of(call: str) -> str:
    return next((library for library, calls in LIBRARIES.items() if call in calls), "disk")


def is_named(place: Place, said: str, path: str) -> bool:
    """Whether a message has the name of a file that a call failed on: its own, or for a hidden one and one without a name that of
    another in its folder, or of the folder."""
    file = pathlib.Path(path.removesuffix(" (deleted)"))
    name = re.sub(r"\.\d+-\d+\.tmp$", "", file.name)
    unnamed = name.startswith("#") or name == ".lock"
    if unnamed or file.is_dir() or file == place.folder:
        folder = file.parent if unnamed else file
        if folder != place.folder and str(folder.relative_to(place.folder)) in said:
            return True
        return any(other in said for other in place.names if (folder / other).parent == folder and "." in other)
    return name in said


class Campaign:
    def __init__(self, arguments: argparse.Namespace, root: pathlib.Path):
        self.root, self.binaries = root, arguments.binaries.resolve()
        self.libraries = arguments.libraries or self.binaries.parent / "tests" / "faults"
        self.base = root / "base"
        disturbed.make_base(self.binaries, self.base)
        self.places: dict[str, Place] = {}
        self.table: dict[tuple[str, str], collections.Counter] = collections.defaultdict(collections.Counter)
        self.findings = 0

    def calls(self, job: disturbed.Job) -> dict[str, int]:
        """How many of each kind the undisturbed job makes."""
        place = self.places.setdefault(job.name, Place(self, job))
        said = self.root / "said"
        counts: collections.Counter = collections.Counter()
        for library in job.libraries:
            said.unlink(missing_ok=True)
            disturbed.copy(place.template, place.folder)
            place.run({"library": library, "PP_FAULT_CALL": "all", "PP_FAULT_HOW": "none", "PP_FAULT_SAID": str(said),
                       "PP_FAULT_BYTES": str(job.block)})
            if said.exists():
                counts.update(line.split(" ", 1)[0] for line in said.read_text(errors="replace").splitlines())
        return counts

    def judge(self, case: Case) -> tuple[str, list[str]]:
        """The outcome in a word, and what is wrong with it."""
        place, job = self.places[case.job], self.places[case.job].job
        said, counter = self.root / "said", self.root / "counter"
        said.unlink(missing_ok=True)
        counter.write_bytes(bytes(8))
        disturbed.copy(place.template, place.folder)
        how = case.how.rstrip("+")
        ended = place.run({"PP_FAULT_CALL": case.call, "PP_FAULT_AFTER": str(case.k), "PP_FAULT_COUNTER": str(counter),
                           "PP_FAULT_SAID": str(said), "PP_FAULT_HOW": how, "PP_FAULT_BYTES": str(job.block),
                           **({} if case.how.endswith("+") else {"PP_FAULT_TIMES": "1"})})
        lines = [line.split(" ", 1)[1] for line in said.read_text().splitlines()] if said.exists() else []
        self.last = ended, lines
        if not lines:
            return "not reached", []
        wrong = []
        if ended.late:
            wrong.append("it, or a process of it, did not end")
        killed = ended.code == -signal.SIGKILL
        outcome = self.outcome(place, case, ended, lines, killed, wrong)
        now = place.outputs(place.folder)
        for name in job.outputs:
            if ended.code == 0 and now[name] != place.whole[name]:
                if case.call == "memory":  # MKL then multiplies in another order, which rounds otherwise
                    outcome = "whole to rounding"
                    continue
                if name == "m.jsonl" and "the training goes on without it" in ended.said:
                    continue
                wrong.append(f"{name} is not that of an undisturbed run")
            elif now[name] not in (place.whole[name], place.before[name]) and name not in ("m.jsonl", "shards"):
                if job.unattended and case.how == "kill":  # of who watches: the training ends, with the weights of that step
                    continue
                wrong.append(f"{name} is neither the old nor the new one")
        if not killed and how not in ("kill", "stop"):  # which MPI ends all ranks for
            wrong += [f"{name} is left behind" for name in place.left_over()]
        if ended.code == 0 and "messages" in job.libraries:
            return outcome, wrong  # all is done
        restarted = place.run({}, job.restart)
        self.last = ended, lines, restarted
        if restarted.code != 0:
            wrong.append(f"started again it ends with {restarted.code}: {restarted.said.strip()}")
        elif place.outputs(place.folder) != place.whole and outcome != "whole to rounding":
            wrong.append("started again it does not come to the results of an undisturbed run")
        return outcome, wrong

    def outcome(self, place: Place, case: Case, ended: Ended, paths: list[str], killed: bool, wrong: list[str]) -> str:
        if killed:
            if case.how != "kill":
                wrong.append("it was killed")
            return "killed"
        if ended.code < 0:
            wrong.append(f"it ended by signal {-ended.code}")
            return "crashed"
        if ended.code == 0:
            quiet = case.how in UNNOTICED or case.how == "kill" or case.call in MENDED or STATE in paths[0]
            if not quiet and not is_named(place, ended.said, paths[0]):
                wrong.append("an error that nobody was told of")
            return "went on" if case.how == "kill" else "whole, with a warning" if "warning: " in ended.said else "whole"
        if case.how in UNNOTICED:
            wrong.append(f"it ended with {ended.code}")
        if library_of(case.call) == "messages":
            if case.how == "stop" and not re.search("was stopped|stalled", ended.said):
                wrong.append("nobody says which rank is silent")
            return "ended with an error"
        if ended.code not in (1, 2):
            wrong.append(f"exit code {ended.code}")
        if case.how == "kill" and not place.job.unattended:
            wrong.append(f"exit code {ended.code}")
        if not place.job.unattended and "error: " not in ended.said:
            wrong.append("no error is said")
        if case.call == "memory" and "memory" not in ended.said:
            wrong.append("the message does not say that memory ran out")
        if case.call == "memory" and re.search("error: (out of memory|the host has no memory)", ended.said):
            wrong.append("the message does not say what memory was for")
        first = next((path for path in paths if STATE not in path), paths[0])
        if case.how != "kill" and case.call != "memory" and not is_named(place, ended.said, first):
            wrong.append("the message does not name the file")
        return "error, code " + str(ended.code)

    def take(self, case: Case) -> None:
        outcome, wrong = self.judge(case)
        self.table[case.job, case.call][outcome] += 1
        if not wrong:
            return
        self.findings += 1
        self.table[case.job, case.call]["findings"] += 1
        ended, paths = self.last[0], self.last[1]
        print(f"finding: {case.options()}: {'; '.join(wrong)}\n  on: {', '.join(sorted(set(paths))[:2])}\n  said: "
              + ended.said.strip().replace("\n", "\n        "), flush=True)

    def cases(self, arguments: argparse.Namespace) -> list[Case]:
        every = []
        for job in disturbed.jobs():
            if arguments.job and job.name not in arguments.job or job.ranks and not shutil.which("mpirun"):
                continue
            for call, count in sorted(self.calls(job).items()):
                if arguments.call and call not in arguments.call:
                    continue
                self.table[job.name, call]["calls"] = count
                for how in HOW[call]:
                    if arguments.how and how not in arguments.how:
                        continue
                    ks = range(count) if arguments.k is None else [arguments.k]
                    every += [Case(job.name, call, how, k) for k in ks]
        return every


def sample(cases: list[Case], count: int) -> list[Case]:
    """Spread evenly over all of them."""
    if count >= len(cases):
        return cases
    return [cases[(2 * i + 1) * len(cases) // (2 * count)] for i in range(count)]


def print_table(table: dict[tuple[str, str], collections.Counter]) -> None:
    columns = ["calls", "runs", "whole", "whole, with a warning", "whole to rounding", "error, code 1", "error, code 2", "ended with an error",
               "killed", "went on", "crashed", "not reached", "findings"]
    print("| job | call | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 2))
    for (job, call), row in table.items():
        runs = sum(count for name, count in row.items() if name not in ("calls", "findings"))
        print(f"| {job} | {call} | " + " | ".join(str(runs if name == "runs" else row[name]) for name in columns) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binaries", type=pathlib.Path, default=os.environ.get("PP_BIN", ROOT / "build/release/bin"),
                        help="folder of the tools")
    parser.add_argument("--libraries", type=pathlib.Path, help="folder of the preloaded libraries; default: beside it")
    parser.add_argument("--sample", type=int, metavar="N", help="so many runs, spread over all")
    parser.add_argument("--job", action="append", help="these alone, as the next three")
    parser.add_argument("--call", action="append")
    parser.add_argument("--how", action="append")
    parser.add_argument("--k", type=int)
    arguments = parser.parse_args()
    arguments.binaries = pathlib.Path(arguments.binaries)
    with tempfile.TemporaryDirectory(prefix="pp-faults-") as root:
        campaign = Campaign(arguments, pathlib.Path(root).resolve())
        cases = campaign.cases(arguments)
        chosen = cases if arguments.sample is None else sample(cases, arguments.sample)
        print(f"{len(chosen)} of {len(cases)} runs", flush=True)
        begin = time.monotonic()
        for case in chosen:
            campaign.take(case)
        print_table(campaign.table)
        print(f"{len(chosen)} runs in {time.monotonic() - begin:.0f} s, {campaign.findings} findings")
    return 1 if campaign.findings else 0


if __name__ == "__main__":
    sys.exit(main())
