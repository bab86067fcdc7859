#!/usr/bin/env python3
"""two_hosts.py [--gbit R] [--delay-ms D] [--clock-offset S] [--no-limit] COMMAND...

Runs a command on the first of two hosts, host-a and host-b, that are namespaces of this machine: each has a network, a name, a
share of the cores, where other programs wait for it, and a clock of its own. Between them lies a link of R Gbit/s (1) in each direction and D ms (1) one way.
mpirun reaches the other host by itself; PP_HOSTS names a hosts file with one slot for each. `$PP_TAKE away ADDRESS` takes a host away:
its link is down, its programs are killed, nothing can be started there; `$PP_TAKE back ADDRESS` brings it back.

tc's tbf on both ends limits the rate. Behind it a relay hands the packets of one end to the other: it adds the delay, because not
every kernel has netem, and the time that the first packet needs on the wire, which tbf lets pass at once. It works at a rate 10 %
higher, so that the limit stays tbf's.
All of it, what the command starts included, runs in a namespace of processes that ends with this one, whatever happens to it.

Exit code: the command's; 77, and `SKIPPED: why`, where the machine does not allow it (root, /dev/net/tun, unshare, tc).
"""

import argparse
import collections
import fcntl
import os
import pathlib
import secrets
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

MTU = 60000
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class Skip(Exception):
    """Why the machine has no two hosts."""


def run(*command: str) -> None:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        raise Skip(f"{' '.join(command)}: {result.stdout.strip()}")


def make_tun(name: str) -> int:
    try:
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22s", name.encode(), IFF_TUN | IFF_NO_PI, b""))
    except OSError as error:
        raise Skip(f"/dev/net/tun: {error.strerror}") from error
    return end


class Host:
    """Namespaces that live as long as a process that waits for the end of its standard input."""

    def __init__(self, index: int, clock_offset: int, cores: list[int]):
        self.cores = ",".join(map(str, cores))
        self.holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--time", "--monotonic", str(clock_offset), "--fork", "sh", "-c",
             f"hostname host-{'ab'[index]} && ip link set lo up && echo ready && exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if not self.holder.stdout.readline():
            raise Skip(self.holder.stderr.read().strip() or "unshare failed")
        self.pid = pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()[0]

    def enter(self) -> list[str]:
        return ["nsenter", "-t", self.pid, "--net", "--uts", "--time", "taskset", "-c", self.cores, "chrt", "--rr", "1"]

    def connect(self, tun: str, address: str, rate: float | None) -> None:
        run("ip", "link", "set", tun, "netns", self.pid)
        run(*self.enter(), "ip", "link", "set", tun, "mtu", str(MTU), "up")
        run(*self.enter(), "ip", "address", "add", f"{address}/24", "dev", tun)
        if rate is not None:
            run(*self.enter(), "tc", "qdisc", "add", "dev", tun, "root", "tbf", "rate", f"{round(rate)}bit", "burst",
                str(MTU + 100), "limit", str(64 * MTU))

    def end(self) -> None:
        self.holder.stdin.close()
        self.holder.wait()


def relay(ends: list[int], rate: float | None, delay: float) -> None:
    """Until standard input ends."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))  # a wire waits for nobody
    except OSError:
        pass
    waiting = [collections.deque(), collections.deque()]
    free = [0.0, 0.0]  # when the wire has passed what it has
    while True:
        now = time.monotonic()
        for source, queue in enumerate(waiting):
            while queue and queue[0][0] <= now:
                try:
                    os.write(ends[1 - source], queue.popleft()[1])
                except OSError:  # the other end is full or gone: a lost packet
                    pass
        due = [queue[0][0] for queue in waiting if queue]
        timeout = max(0.0, min(due) - time.monotonic()) if due else None
        readable, _, _ = select.select([*ends, 0], [], [], timeout)
        if 0 in readable and not os.read(0, 1):
            return
        for end in readable:
            if end == 0:
                continue
            packet = os.read(end, MTU + 100)
            source = ends.index(end)
            free[source] = max(time.monotonic(), free[source]) + (8 * len(packet) / rate if rate else 0)
            waiting[source].append((free[source] + delay, packet))


def go_inside() -> None:
    """Becomes the same program, as the first process of a namespace."""
    if os.geteuid() != 0:
        raise Skip("namespaces need root")
    for program in ("unshare", "nsenter", "ip", "tc", "taskset", "chrt"):
        if not shutil.which(program):
            raise Skip(f"{program} is not installed")
    alone = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]
    run(*alone, "true")
    sys.stdout.flush()
    os.execvp(alone[0], [*alone, sys.executable, __file__, "--inside", *sys.argv[1:]])


def share_cores() -> list[list[int]]:
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    return [cores[:half] or cores, cores[half:]]


def write_agent(folder: pathlib.Path, hosts: list[Host]) -> pathlib.Path:
    """What mpirun calls in place of ssh: HOST COMMAND."""
    agent = folder / "agent"
    cases = "\n".join(f"  {address}) set -- {' '.join(host.enter())} sh -c \"$*\" ;;" for address, host in zip(ADDRESSES, hosts))
    agent.write_text(f"#!/bin/sh\nhost=$1\nshift\n[ ! -e {folder}/away-$host ] || exec sleep 600\ncase $host in\n{cases}\nesac\n"
                     'exec "$@"\n')
    agent.chmod(0o755)
    return agent


def write_take(folder: pathlib.Path, hosts: list[Host]) -> pathlib.Path:
    """Takes a host away and brings it back. Its programs are those that share its network, but for the one that keeps it."""
    take = folder / "take"
    holders = {address: [host.pid, str(host.holder.pid)] for address, host in zip(ADDRESSES, hosts)}
    take.write_text(f"""#!{sys.executable}
import os, pathlib, signal, subprocess, sys
what, address = sys.argv[1:]
holders, away = {holders!r}[address], pathlib.Path("{folder}/away-" + address)
inside = ["nsenter", "-t", holders[0], "--net"]
link = subprocess.run([*inside, "ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.splitlines()[-1].split(":")[1].strip()
if what == "away":
    away.touch()
    subprocess.run([*inside, "ip", "link", "set", link, "down"], check=True)
    net = os.readlink(f"/proc/{{holders[0]}}/ns/net")
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if process.name not in holders and os.readlink(process / "ns/net") == net:
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            pass
else:
    subprocess.run([*inside, "ip", "link", "set", link, "up"], check=True)
    away.unlink()
""")
    take.chmod(0o755)
    return take


def environment(folder: pathlib.Path, hosts: list[Host]) -> dict[str, str]:
    (folder / "hosts.txt").write_text("".join(f"{address} slots=1\n" for address in ADDRESSES))
    return {**os.environ, "PP_HOSTS": str(folder / "hosts.txt"), "PP_TAKE": str(write_take(folder, hosts)),
            "OMPI_MCA_plm_rsh_agent": str(write_agent(folder, hosts)),
            "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24",
            "OMPI_MCA_hwloc_base_binding_policy": "none",  # else both ranks get the machine's first core
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def on_two_hosts(arguments: argparse.Namespace, folder: pathlib.Path) -> int:
    rate = None if arguments.no_limit else 1e9 * arguments.gbit
    hosts: list[Host] = []
    wire = None
    try:
        for index, cores in enumerate(share_cores()):
            hosts.append(Host(index, index * arguments.clock_offset, cores))
        name = secrets.token_hex(3)
        names = [f"pp{name}{letter}" for letter in "ab"]
        ends = [make_tun(name) for name in names]
        for host, name, address in zip(hosts, names, ADDRESSES):
            host.connect(name, address, rate)
        wire = subprocess.Popen([sys.executable, __file__, "--relay", *map(str, ends), "--gbit", str(1.1 * arguments.gbit), "--delay-ms",
                                 str(arguments.delay_ms), *(["--no-limit"] if rate is None else [])],
                                pass_fds=ends, stdin=subprocess.PIPE)
        for end in ends:
            os.close(end)
        return subprocess.run([*hosts[0].enter(), *arguments.command], env=environment(folder, hosts)).returncode
    finally:
        if wire:
            wire.stdin.close()
            wire.wait()
        for host in hosts:
            host.end()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gbit", type=float, default=1.0)
    parser.add_argument("--delay-ms", type=float, default=1.0)
    parser.add_argument("--clock-offset", type=int, default=0, help="seconds that the clock of host-b is ahead")
    parser.add_argument("--no-limit", action="store_true", help="any rate")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--relay", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main() -> int:
    arguments = parse()
    if arguments.relay:
        relay(arguments.relay, None if arguments.no_limit else 1e9 * arguments.gbit, arguments.delay_ms / 1e3)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if not arguments.inside:
            go_inside()
        with tempfile.TemporaryDirectory() as folder:
            return on_two_hosts(arguments, pathlib.Path(folder))
    except Skip as why:
        print(f"SKIPPED: {why}", file=sys.stderr)
        return 77


sys.exit(main())
