"""check_jobs.py BIN: are the job files in configs/jobs what they seem? Scripts parse, YAML parses, the files of this repository
that they name are there, and the commands and options of the tools in BIN, too; slurm.sh starts what it should.
Prints one line per finding; exit 1 if any, 77 where nothing can be said about YAML for want of PyYAML."""

import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOBS = sorted((ROOT / "configs/jobs").iterdir())
TOOL = re.compile(r"\bpp-(?:profile|plan|run)\b")


def helps(bin_folder: str) -> dict[tuple[str, str], str]:
    """What each command of each tool says of itself; the default command stands under an empty name."""
    found = {}
    for tool in ("pp-profile", "pp-plan", "pp-run"):
        def ask(*words: str) -> str:
            return subprocess.run([f"{bin_folder}/{tool}", *words, "--help"], capture_output=True, text=True, check=True).stdout
        found[tool, ""] = ask()
        for name in re.findall(r"^  ([a-z]+) {2,}", found[tool, ""].split("Subcommands:")[-1].split("\n\n")[0], re.M):
            found[tool, name] = ask(name)
    return found


def lines_of(path: pathlib.Path) -> list[str]:
    """Comments without their mark, continued lines as one."""
    text = re.sub(r"\\\n\s*", " ", path.read_text())
    return [line.lstrip("# ") for line in text.splitlines()]


def option_findings(line: str, known: dict[tuple[str, str], str]) -> list[str]:
    found = []
    for call in TOOL.finditer(line):
        words = re.split(r"[\s;]+", line[call.end():].strip())
        command = words[0] if (call[0], words[0]) in known else ""
        for word in words:
            if word == "--" and command == "launch":
                command = "train"
            elif TOOL.fullmatch(word):
                break
            option = word.strip("\"'`()[]").split("=")[0]
            if re.fullmatch(r"--?[a-z][a-z-]*", option) and not re.search(rf"(?<![\w-]){option}(?![\w-])", known[call[0], command]):
                found.append(f"{call[0]} {command} has no option {option}")
    return found


def path_findings(line: str) -> list[str]:
    named = re.findall(r"(?:^|[\s`(=]|/opt/pp/)((?:configs|scripts)/[\w./-]*\w)", line)
    return [f"{path} is not there" for path in named if not (ROOT / path).exists()]


def slurm_findings(bin_folder: str) -> list[str]:
    """slurm.sh with a scontrol that knows two nodes and an srun that prints what it was asked."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"scontrol": "echo n1; echo n2", "srun": 'echo "$@"'}.items():
            path = pathlib.Path(folder) / name
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        for words in ("models mlp -o model.json",
                      "run model.json --quick --budget 50ms --micro-batch-sizes 4 -q -o profile.json"):
            subprocess.run([f"{bin_folder}/pp-profile", *words.split()], cwd=folder, check=True, capture_output=True)
        subprocess.run([f"{bin_folder}/pp-plan", *"profile.json --devices 4 --bandwidth 1e9 --mini-batch 16 --stages 4 "
                        "--replicas 1-1-1-1 --micro-batches 4 -o plan.json".split()], cwd=folder, check=True, capture_output=True)
        done = subprocess.run(["bash", ROOT / "configs/jobs/slurm.sh", "plan.json", "--data", "synthetic", "--steps", "4"], cwd=folder,
                              env={"PATH": f"{folder}:{bin_folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]",
                                   "SLURM_NTASKS_PER_NODE": "2"}, capture_output=True, text=True)
    expected = ("--ntasks=4 --nodes=2 --distribution=arbitrary --nodelist=n1,n1,n2,n2 --cpus-per-task=1 --cpu-bind=none",
                "train plan.json --launch-state checkpoints-plan/launch --data synthetic --steps 4 --checkpoint checkpoints-plan "
                "--resume checkpoints-plan --every 10min")
    return [f"slurm.sh: srun was not asked for {shlex.quote(part)}: {done.stdout}{done.stderr}" for part in expected
            if part not in done.stdout]


# In place of srun and mpirun: one rank. The first starts, as many as `kills` says, are killed as soon as they have a new checkpoint.
# SIGUSR1 is passed on, as launchers do.
LAUNCHER = """#!/bin/bash
while [ "${1##*/}" != pp-run ]; do shift; done
unset SLURM_JOB_ID
kills=$(cat kills)
[ "$2" = train ] && [ "$kills" -gt 0 ] || exec "$@"
for word; do [ "$last" != --checkpoint ] || folder=$word; last=$word; done
before=$(ls "$folder" 2>/dev/null | grep step- | tail -n 1)
"$@" &
trap "kill -USR1 $!" USR1
until [ "$(ls "$folder" 2>/dev/null | grep step- | tail -n 1)" != "$before" ] || ! kill -0 $! 2>/dev/null; do sleep 0.02; done
kill -KILL $!
wait
echo $((kills - 1)) >kills  # last: whoever ends the job at 0 finds no rank of it left
exit 137
"""


def restart_findings(bin_folder: str) -> list[str]:
    """Both jobs with ranks that are killed twice; killed as a whole by then, and started again, as sbatch --requeue and Kubernetes
    do, with another two: the weights of a training that nobody killed."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for launcher in ("srun", "mpirun", "mpiexec.hydra"):
            (folder / launcher).write_text(LAUNCHER)
            (folder / launcher).chmod(0o755)
        (folder / "scontrol").write_text("#!/bin/sh\necho n1\n")
        (folder / "scontrol").chmod(0o755)
        (folder / "hostfile").write_text("localhost slots=1\n")
        for words in ("pp-profile models mlp -o model.json",
                      "pp-profile run model.json --quick --budget 50ms --micro-batch-sizes 4 -q -o profile.json",
                      "pp-plan profile.json --devices 1 --bandwidth 1e9 --mini-batch 16 --stages 1 --micro-batches 4 -o plan.json"):
            subprocess.run([f"{bin_folder}/{words.split()[0]}", *words.split()[1:]], cwd=folder, check=True, capture_output=True)
        training = "--data synthetic --epochs 20 --save-weights"
        env = {"PATH": f"{folder}:{bin_folder}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "n1", "SLURM_NTASKS_PER_NODE": "1"}
        subprocess.run(["pp-run", "plan.json", *training.split(), "whole"], cwd=folder, env=env, check=True, capture_output=True)
        script = (ROOT / "configs/jobs/kubernetes.yaml").read_text().split("- |\n")[1].split("volumeMounts")[0]
        script = script.replace("/etc/mpi/hostfile", "hostfile").replace("--data /opt/pp/configs/data/digits", "--data synthetic")
        (folder / "job").write_text((ROOT / "configs/jobs/slurm.sh").read_text().replace("--every 10min", "--every 20ms"))
        jobs = {"slurm.sh": ["bash", "job", "plan.json", *training.split(), "slurm.sh"],
                "kubernetes.yaml": ["bash", "-c", script.replace("-o report.json", "--save-weights kubernetes.yaml")]}
        for job, command in jobs.items():
            slurm = {"SLURM_JOB_ID": "7"} if job == "slurm.sh" else {}
            said = ""
            for ended in (True, False):
                (folder / "kills").write_text("2\n")
                with subprocess.Popen(command, cwd=folder, env={**env, **slurm}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                      text=True) as process:
                    while ended and process.poll() is None and (folder / "kills").read_text() != "0\n":
                        time.sleep(0.02)
                    if ended:
                        process.kill()
                    said = process.communicate()[1]
            if "has no MPI" in said:
                continue
            same = process.returncode == 0 and (folder / job).read_bytes() == (folder / "whole").read_bytes()
            lost = said.count("the training was lost by signal 9 (Killed)")
            found += [] if same and lost == 2 else [f"{job}: killed and started again, it does not end as it should: {said}"]
    return found


def main() -> int:
    bin_folder = str(pathlib.Path(sys.argv[1]).resolve())
    known = helps(bin_folder)
    findings, skipped = [], False
    for path in JOBS:
        own = []
        if path.suffix == ".sh":
            done = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
            own += [done.stderr.strip()] if done.returncode else []
        if path.suffix == ".yaml":
            try:
                import yaml
                list(yaml.safe_load_all(path.read_text()))
            except ImportError:
                skipped = True
            except yaml.YAMLError as error:
                own.append(str(error))
        for line in lines_of(path):
            own += option_findings(line, known) + path_findings(line)
        findings += [f"{path.relative_to(ROOT)}: {finding}" for finding in own]
    findings += slurm_findings(bin_folder) + restart_findings(bin_folder)
    print("\n".join(findings), end="\n" if findings else "")
    if not findings and skipped:
        print("SKIPPED: python3 has no yaml; install python3-yaml")
    return 1 if findings else 77 if skipped else 0


sys.exit(main())
