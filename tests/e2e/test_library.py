#!/usr/bin/env python3
"""Compiled libraries in C programs: what a guest leaves alone, no system calls within a run, files that are no libraries;
how large the library of BERT-base is.

usage: test_library.py TFMC SOURCE

Links the programs of tests/e2e/host with a library made of tests/goldens/encoder-stack, and with libtfm_runtime.a that
stands beside TFMC. The last line is 'N passed, N failed'; without strace, the tests that need it are 'not run'.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

CC = os.environ.get("CC", "cc")
passed = failed = not_run = 0


def check(good, what):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print("FAIL", what)
    return good


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def succeeds(*command, **options):
    proc = run(*command, **options)
    return check(proc.returncode == 0, f"{' '.join(command)}: exit {proc.returncode}: {proc.stdout}{proc.stderr}"[:600])


def test_guest(guest):
    for threads in "1", "2", "3":
        proc = run(guest, "stack.tfmw", threads)
        check(proc.returncode == 0 and not proc.stdout and not proc.stderr,
              f"a guest with {threads} threads: exit {proc.returncode}: {proc.stdout}{proc.stderr}")
    check(run(guest, "stack.h", "1").returncode == 1, "other files are no weights")


def calls_between_markers(guest, threads):
    """Names of the system calls between the two writes to descriptor -1, of all threads but the first: it only waits for the
    one that runs the model, and may still be on its way from making it to waiting when the runs begin."""
    trace = "trace.txt"
    if not succeeds("strace", "-f", "-o", trace, guest, "stack.tfmw", threads, env={**os.environ, "TFM_SPIN_US": "10000000"}):
        return ["strace failed"]
    lines = open(trace).read().split("\n")
    marks = [i for i, line in enumerate(lines) if "write(-1" in line]
    if not check(len(marks) == 2, "the markers are in the trace"):
        return ["no markers"]
    between, thread = lines[marks[0] + 1:marks[1]], lines[marks[0]].split()[0]
    if "unfinished" in lines[marks[0]]:  # another thread was traced before the marker returned: its end is not a call
        between.remove(next(line for line in between if re.match(rf"{thread} +<\.\.\. write resumed>", line)))
    calls = [re.match(r"(\d+) +(?:<\.\.\. )?(\w+)", line) for line in between]
    return [call[2] for call in calls if call and call[1] != lines[0].split()[0]]


def test_system_calls(guest):
    global not_run
    if not shutil.which("strace") or run("strace", "-o", os.devnull, "true").returncode:
        not_run += 1
        print("not run: system calls within a run: strace is missing or not allowed")
        return
    calls = calls_between_markers(guest, "1")
    check(not calls, f"a run of one thread makes no system call: {sorted(set(calls))}")
    calls = set(calls_between_markers(guest, "2")) - {"futex", "sched_yield"}
    check(not calls, f"a run of two threads waits at most: {sorted(calls)}")


def damaged_copies(library):
    data = open(library, "rb").read()
    sizes = sorted({0, 1, 16, 63, 64, 65, len(data) - 1, len(data) - 64, *range(128, len(data), len(data) // 40)})
    for i, size in enumerate(sizes):
        for kind, contents in ("cut", data[:size]), ("zero", data[:size] + bytes(len(data) - size)):
            path = os.path.join("damaged", f"lib{kind}{i}.so")
            if contents != data:
                open(path, "wb").write(contents)
                yield path


def test_opening(opener, library):
    os.mkdir("damaged")
    os.mkfifo("damaged/pipe.so")
    paths = [*damaged_copies(library), "damaged/pipe.so", "damaged", "stack.tfmw", opener, "missing.so"]
    proc = run(opener, "1", *paths)
    check(proc.returncode == 0, f"damaged libraries: exit {proc.returncode}: {proc.stderr}")
    lines = proc.stdout.split("\n")
    for path, line in zip(paths, lines):
        check(line.startswith(path + ": ") and line != "opened", f"{path} is refused: {line}")
    system = next(line.split()[2] for line in run("ldd", library).stdout.split("\n") if "libc.so" in line)
    check("no compiled model" in run(opener, "1", system).stdout, "a library of something else is refused")
    for name in library, os.path.abspath(library):
        check(run(opener, "1", name).stdout.startswith("opened\n"), f"{name} is opened, with the weights beside it")
    os.rename("stack.tfmw", "elsewhere.tfmw")
    check("stack.tfmw: No such file" in run(opener, "1", library).stdout, "missing weights are named")
    os.rename("elsewhere.tfmw", "stack.tfmw")
    kib, descriptors = re.findall(r"(-?\d+) KiB (-?\d+)", run(opener, "1000", library).stdout)[0]
    check(int(kib) <= 1024 and int(descriptors) == 0, f"1000 times open and close: {kib} KiB, {descriptors} descriptors more")


def test_exports(library):
    names = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).stdout.strip().split("\n")]
    check(names and all(name.startswith("stack_") for name in names), f"only stack_* is exported: {names}")
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library).stdout)
    check(set(needed) <= {"libc.so.6", "libm.so.6", "libpthread.so.0"}, f"only the C library is needed: {needed}")


def test_size(tfmc, encoder):
    for march in ("x86-64-v3", "x86-64-v4"):
        if succeeds(tfmc, "compile", encoder, "--model=Encoder", f"-march={march}", "-o", "bert.so"):
            size = os.path.getsize("bert.so")
            check(size < 210_000, f"the library of BERT-base, without weights, is under 210 KB for {march}: {size} bytes")


def main():
    tfmc, source = (os.path.abspath(path) for path in sys.argv[1:3])
    golden, hosts = (os.path.join(source, "tests", *path) for path in (("goldens", "encoder-stack"), ("e2e", "host")))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        strict = [CC, "-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wno-overlength-strings"]
        succeeds(tfmc, "compile", os.path.join(golden, "model.tfm"), "--weights", os.path.join(golden, "weights.safetensors"),
                 "-o", "libstack.so")
        guest, opener = os.path.abspath("guest"), os.path.abspath("opener")
        if (succeeds(*strict, os.path.join(hosts, "guest.c"), "-I.", "-L.", "-lstack", "-lpthread", "-Wl,-rpath,$ORIGIN",
                     "-o", guest) and
                succeeds(*strict, os.path.join(hosts, "opener.c"), "-I", os.path.join(source, "runtime", "include"),
                         "-I", os.path.join(os.path.dirname(tfmc), "generated", "include"),
                         os.path.join(os.path.dirname(tfmc), "libtfm_runtime.a"), "-lm", "-lpthread", "-o", opener)):
            test_guest(guest)
            test_system_calls(guest)
            test_opening(opener, "libstack.so")
            test_exports("libstack.so")
        test_size(tfmc, os.path.join(source, "bench", "models", "encoder.tfm"))
        os.chdir("/")
    print(f"{passed} passed, {failed} failed" + (f", {not_run} not run" if not_run else ""))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
