#!/usr/bin/env python3
"""What compiling costs: BERT-base in under 1 s of CPU time and 200 MB (without weights), the same kernels for 2 and 48
layers; passes over a layer that is applied many times.

usage: test_compile_cost.py TFMC          The last line is 'N passed, N failed'.

CPU time and memory are those of the child process alone, so other work on the machine does not count.
"""
import os
import re
import subprocess
import sys
import tempfile

MODEL = os.path.join(os.path.dirname(__file__), "../../bench/models/encoder.tfm")


def cost(command):
    """(CPU seconds, most memory in MB) of a command, which must succeed. The figures of all children together would have
    the memory of the largest of them."""
    child = subprocess.Popen(command)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def assembly(tfmc, *options):
    """(text, CPU seconds, most memory in MB) of compiling the encoder of BERT to assembly."""
    with tempfile.NamedTemporaryFile() as out:
        seconds, megabytes = cost([tfmc, "dump", MODEL, "--model", "Encoder", "--stage=asm", "-o", out.name, *options])
        return open(out.name).read(), seconds, megabytes


REPEATED = """model Repeated(n = 500) {
  one  = EncoderLayer(64, 4, 128)
  many = n * one
  forward(x: f32[batch, time, 64]) { return y = many(x) }
}
"""


def repeated_seconds(tfmc, n):
    """CPU seconds of fusing one layer that is applied n times."""
    with tempfile.NamedTemporaryFile("w", suffix=".tfm") as model:
        model.write(REPEATED)
        model.flush()
        seconds, _ = cost([tfmc, "dump", model.name, "--stage=fused", "-D", f"n={n}", "-o", model.name + ".out"])
        os.unlink(model.name + ".out")
        return seconds


def kernels(text):
    return sorted(re.findall(r"^(\S+):\s*#\s*@", text, re.M))


def main(tfmc):
    tests = []
    few, many = repeated_seconds(tfmc, 500), repeated_seconds(tfmc, 2000)
    print(f"one layer 500 and 2000 times: {few:.2f} s and {many:.2f} s of CPU time")
    tests.append(many < 10 * few)  # the weights' uses are n for each of n layers; comparing all with all took n^3
    for march in ("x86-64", "x86-64-v3", "x86-64-v4"):
        text, seconds, megabytes = assembly(tfmc, f"-march={march}")
        print(f"BERT-base, {march}: {seconds:.2f} s of CPU time, {megabytes:.0f} MB, {len(kernels(text))} kernels")
        tests += [seconds < 1, megabytes < 200, len(kernels(text)) > 0]
        two, many = (kernels(assembly(tfmc, f"-march={march}", "-D", f"depth={depth}")[0]) for depth in (2, 48))
        tests.append(two == many)
        if two != many:
            print(f"FAIL {march}: {len(two)} kernels for 2 layers, {len(many)} for 48")
    print(f"{sum(tests)} passed, {len(tests) - sum(tests)} failed")
    return not all(tests)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
