#!/usr/bin/env python3
"""A corpus on imitated hosts: usage: corpus_hosts.py FOLDER [--hosts N] [--rounds N] [--rows N] [--texts FILE]

FOLDER: a sentence encoder (all-MiniLM-L6-v2). Each host is a network namespace with an address of its own on a bridge,
a node of Ray in it, and a cgroup for its worker, which has an N-th of a CPU (2.5 ms in 20 for eight): all hosts
together have one CPU. Measured in turns: all workers with --rows rows, and one alone with its share of them. Nodes and
driver of Ray run before everything else, workers before what is in no cgroup; where other work runs before both, workers
do not get their share (cpus_of_a_worker says what they got), and the machine must be quiet.

Needs root, ip, nsenter, chrt, a cgroup of kind cpu (version 1 or 2) that can be written, and the package ray. Printed:
for each run a line of JSON with rows a second and the CPU that the workers had, at the end all workers beside N times
one. It measures, and is not a test. Namespaces, bridge, cgroups and processes are removed at the end.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import corpus

PERIOD = 20000  # microseconds
NET = "10.91.7"


# ---- hosts ----

def run(*command):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Group:
    """The cgroup of a host's worker."""

    def __init__(self, name):
        two = pathlib.Path("/sys/fs/cgroup/cgroup.controllers")
        self.is_new = two.exists() and "cpu" in two.read_text().split()
        self.folder = pathlib.Path("/sys/fs/cgroup", "" if self.is_new else "cpu", name)

    def make(self, share):
        if self.is_new:
            (self.folder.parent / "cgroup.subtree_control").write_text("+cpu")
        self.folder.mkdir()
        if self.is_new:
            self.put("cpu.max", f"{int(PERIOD * share)} {PERIOD}")
            self.put("cpu.weight", 10000)
        else:
            self.put("cpu.cfs_period_us", PERIOD)
            self.put("cpu.cfs_quota_us", int(PERIOD * share))
            self.put("cpu.shares", 262144)

    def put(self, file, value):
        (self.folder / file).write_text(str(value))

    def remove(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class Hosts:
    """Namespaces on a bridge, with a node of Ray in each; the first one is the head."""

    def __init__(self, count, scratch):
        self.count, self.scratch, self.nodes = count, scratch, []
        self.bridge = pathlib.Path(scratch).name  # of at most 10 letters: names of devices have 15
        self.nets = [f"{self.bridge}-{host}" for host in range(count)]
        self.groups = [Group(net) for net in self.nets]

    def up(self):
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", f"{NET}.1/24", "dev", self.bridge)
        run("ip", "link", "set", self.bridge, "up")
        for host, net in enumerate(self.nets):
            outside = f"{self.bridge}v{host}"
            run("ip", "netns", "add", net)
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", net)
            run("ip", "link", "set", outside, "master", self.bridge, "up")
            inside = ("ip", "-n", net)
            run(*inside, "addr", "add", f"{NET}.{host + 10}/24", "dev", "eth0")
            run(*inside, "link", "set", "lo", "up")
            run(*inside, "link", "set", "eth0", "up")
            run(*inside, "route", "add", "default", "via", f"{NET}.1")
            self.groups[host].make(1 / self.count)
        for host in range(self.count):
            self.start(host)

    def start(self, host):
        head = ["--head", "--port=6379", "--include-dashboard=false", f"--temp-dir={self.scratch}/ray"]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", "--num-cpus=1",
               f"--node-ip-address={NET}.{host + 10}", "--object-store-memory=80000000",
               *(head if host == 0 else [f"--address={NET}.10:6379"])]
        log = open(f"{self.scratch}/node-{host}.log", "w")
        self.nodes.append(subprocess.Popen(self.inside(host) + ray, stdout=log, stderr=log, start_new_session=True))
        self.wait_for(host)  # several that begin at once wait for each other for minutes

    def wait_for(self, host):
        log, until = pathlib.Path(f"{self.scratch}/node-{host}.log"), time.monotonic() + corpus.PATIENCE
        while "block forever" not in log.read_text():
            if self.nodes[host].poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"node {host} of Ray does not begin: {log.read_text()[-2000:]}")
            time.sleep(0.2)

    def inside(self, host):
        """`ip netns exec` would hide the cgroups."""
        return ["chrt", "-f", "40", "nsenter", f"--net=/run/netns/{self.nets[host]}"]

    def processes(self):
        """Those of these hosts, and no others: (pid, host)."""
        files = [pathlib.Path("/run/netns", net) for net in self.nets]
        nets = {file.stat().st_ino: host for host, file in enumerate(files) if file.exists()}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid, host = int(entry.name), nets.get(os.stat(entry / "ns" / "net").st_ino)
                if host is not None:
                    yield pid, host

    def down(self):
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.wait(20)
        for pid, _ in list(self.processes()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(1)
        for group in self.groups:
            group.remove()
        for net in self.nets:
            subprocess.run(["ip", "netns", "delete", net], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.bridge], check=False, capture_output=True)


# ---- what is measured, by a driver in the first host ----

def confine(hosts):
    """Moves the workers to the cgroups of their hosts, as usual processes, which alone have shares; their pids."""
    found = [(pid, host) for pid, host in hosts.processes()
             if pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::_Actor")]
    for pid, host in found:
        run("chrt", "-a", "-p", "-o", "0", pid)
        hosts.groups[host].put("cgroup.procs", pid)
    if len({host for _, host in found}) != len(found):
        raise RuntimeError("two workers are on one host")
    return [pid for pid, _ in found]


def measure(given, hosts, workers, rows):
    """Rows a second of so many workers."""
    from tfmc.corpus import Settings, _engines, parts
    with tempfile.TemporaryDirectory(dir=hosts.scratch) as scratch:
        path, output = os.path.join(scratch, "a.jsonl"), pathlib.Path(scratch, "out")
        with open(path, "w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in rows)
        size = max(256, os.path.getsize(path) // (40 * workers))
        (output / "_job").mkdir(parents=True)
        settings = Settings("embed", given.folder, None, "text", (), "jsonl", size, True, {}, None, 1)
        with contextlib.closing(_engines.Ray(settings, output, workers)) as engine:
            corpus.begun(engine, "ray", workers)
            pids = confine(hosts)
            before, start = corpus.cpu_and_peak(pids)[0], time.perf_counter()
            corpus.do(engine, "ray", parts(path, part_bytes=size))
            seconds = time.perf_counter() - start
            cpu = corpus.cpu_and_peak(pids)[0] - before
    result = {"workers": workers, "rows": len(rows), "rows_per_second": round(len(rows) / seconds, 2),
              "cpus_of_a_worker": round(cpu / seconds / workers, 4), "rows_per_cpu_second": round(len(rows) / cpu, 1)}
    print(json.dumps(result), flush=True)
    return result["rows_per_second"]


def drive(given):
    """The driver: its process is in the first host."""
    import ray
    hosts = Hosts(given.hosts, given.drive)
    ray.init(address=f"{NET}.10:6379", log_to_driver=False)
    texts = pathlib.Path(given.texts).read_text().splitlines() if given.texts else corpus.made_up(given.rows)
    all_of_them, one = [], []
    for _ in range(given.rounds):
        all_of_them.append(measure(given, hosts, given.hosts, texts[:given.rows]))
        one.append(measure(given, hosts, 1, texts[:given.rows // given.hosts]))
    beside = [many / single / given.hosts for many, single in zip(all_of_them, one)]
    print(f"{given.hosts} workers beside {given.hosts} times one: {', '.join(f'{b:.3f}' for b in beside)}; "
          f"{statistics.median(beside):.3f} in the middle")


def main(given):
    with tempfile.TemporaryDirectory(prefix="tf", ignore_cleanup_errors=True) as scratch:
        hosts = Hosts(given.hosts, scratch)
        try:
            hosts.up()
            command = [*hosts.inside(0), sys.executable, *sys.argv, f"--drive={scratch}"]
            return subprocess.run(command, check=False).returncode
        finally:
            hosts.down()


if __name__ == "__main__":
    for variable in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):  # the hosts reach each other, and nobody
        os.environ.pop(variable, None)
        os.environ.pop(variable.upper(), None)
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_raylet_start_wait_time_s": "240"}
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("folder", type=os.path.abspath)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=6000, help="of all workers; one alone does its share of them")
    parser.add_argument("--texts", metavar="FILE")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    sys.exit(drive(settings) if settings.drive else main(settings))
