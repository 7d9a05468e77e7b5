#!/usr/bin/env python3
"""A tfmc that was built for another machine, under qemu: what it computes against what this machine's does, to the bit.

usage: cross_tfmc.py TFMC BUILD [--threads=N] [--qemu-option=TEXT ...] [--without-files] [--log=FILE] [--minutes=N] [--part=I/N]
                     CASE... [-v]

BUILD is a folder that `cmake --preset arm64` or riscv64 prepared (scripts/cross-build.sh). CASE is a case folder or a folder
of them (tests/goldens/README.md); those of training are told by their block. Each is run by TFMC for x86-64-v3 and by
BUILD/tfmc, which compiles it in its process: outputs, what is generated, and of training gradients and weights must be
equal, but that a NaN is a NaN. A case that computes outputs is also compiled by TFMC to a .tfmm file for that machine, which
BUILD/tfmc opens, unless --without-files is given; the first one by BUILD/tfmc too. --log, --minutes and --part are those of
sweep.py. What is missing is said and not counted. Needs numpy and safetensors. The last line is 'N passed, N failed'.
"""
import os
import pathlib
import re
import shutil
import sys

import cross
import sweep

sys.path.insert(0, str(cross.HERE.parent / "goldens"))
import check  # noqa: E402
import check_train  # noqa: E402

TRIPLES = {"aarch64": "aarch64-linux-gnu", "riscv64": "riscv64-linux-gnu"}


class Host:
    """A tfmc, and how it is started."""

    def __init__(self, start, triple):
        self.start, self.triple = [str(s) for s in start], triple

    def run(self, words):
        made = cross.call(*self.start, *words, timeout=1800)
        if made.returncode:
            raise cross.Failed(f"{self.triple}: exit {made.returncode}: {made.stderr[-300:]}")


def host_of(build, options):
    """What BUILD is for; or why it cannot be run."""
    cache = pathlib.Path(build, "CMakeCache.txt")
    given = dict(re.findall(r"^(TFM_\w+):\w+=(.*)$", cache.read_text() if cache.exists() else "", re.M))
    machine = given.get("TFM_MACHINE", "")
    emulator = next((p for p in (f"qemu-{machine}", f"qemu-{machine}-static") if shutil.which(p)), None)
    if not emulator or not pathlib.Path(build, "tfmc").exists():
        return None, f"no qemu-{machine} (Debian: qemu-user)" if machine else f"{build} holds no tfmc for another machine"
    cpu = options or cross.CPUS.get(machine, [])
    return Host([emulator, *cpu, "-L", given["TFM_SYSROOT"], pathlib.Path(build, "tfmc")], TRIPLES[machine]), ""


def different(want, got):
    """What differs between two files of tensors, or None."""
    want, got = cross.load_file(want), cross.load_file(got)
    if set(want) != set(got) or not want:
        return f"{sorted(got)}, wanted {sorted(want)}"
    for name, numbers in want.items():
        if got[name].shape != numbers.shape or got[name].dtype != numbers.dtype:
            return f"{name}: {got[name].dtype}{got[name].shape}, wanted {numbers.dtype}{numbers.shape}"
        n_differ = cross.differ(numbers.tobytes(), got[name].tobytes())
        if n_differ:
            return f"{name}: {n_differ} of {numbers.size} differ"
    return None


def words_of(folder, spec, out, options):
    if "train" in spec:
        return check_train.command("", folder, spec, out, ["-q"])[1:] + options
    return check.command("", folder, spec, out, options)[1:]


def try_case(folder, spec, hosts, threads, tmp):
    """What is wrong with a case when it is compiled in the process, or None."""
    outs = [os.path.join(tmp, name) for name in ("home", "there")]
    for host, out, options in zip(hosts, outs, ([f"-march={cross.FUSED}"], [f"--threads={threads}"])):
        try:
            host.run(words_of(folder, spec, out, options))
        except cross.Failed as failed:
            return str(failed)
    return different(*outs)


def try_file(folder, spec, hosts, is_made_twice, tmp):
    """The same of a .tfmm file, made here; with is_made_twice also made there."""
    home, there = hosts
    case = cross.Case(folder, spec, tmp)
    inputs = ["--inputs", os.path.join(folder, "inputs.safetensors")] if case.inputs else []
    want, got, model = (os.path.join(tmp, name) for name in ("want", "got", "m.tfmm"))
    make = ["compile", f"{folder}/model.tfm", *case.options, "-q", f"--target={there.triple}", "-o", model]
    try:
        home.run(["run", f"{folder}/model.tfm", *case.options, *inputs, f"-march={cross.FUSED}", "-o", want])
        for maker in hosts if is_made_twice else [home]:
            maker.run(make)
            there.run(["run", model, *inputs, "-o", got])
            why = different(want, got)
            if why:
                return f"made on {maker.triple}: {why}"
    except cross.Failed as failed:
        return str(failed)
    return None


def goes_into_a_file(folder, spec):
    """With weights; items with sizes of their own are for `tfmc run` alone."""
    inputs = os.path.join(folder, "inputs.safetensors")
    is_ragged = os.path.exists(inputs) and any(name.endswith(".lengths") for name in cross.load_file(inputs))
    has_weights = os.path.exists(os.path.join(folder, "weights.safetensors"))
    return has_weights and not is_ragged and not {"train", "generate"} & spec.keys()


def main(argv):
    def options(name):
        return [a.split("=", 1)[1] for a in argv if a.startswith(f"--{name}=")]
    tfmc, build, *roots = [a for a in argv[1:] if not a.startswith("-")]
    threads, (there, lacks) = (options("threads") or [2])[0], host_of(build, options("qemu-option"))
    if lacks:
        print(f"not run: tfmc on another machine: {lacks}")
        return 77
    tally = sweep.Tally(argv, tfmc, os.path.join(build, "tfmc"))
    hosts, is_first = (Host([os.path.abspath(tfmc)], cross.HOME), there), True
    for folder, spec in tally.cases(roots, lambda spec: "expect_error" not in spec and spec.get("stage") != "check"):
        tally.add(f"{folder} on {there.triple}", try_case, folder, spec, hosts, threads)
        if goes_into_a_file(folder, spec) and "--without-files" not in argv:
            tally.add(f"{folder} as a .tfmm file on {there.triple}", try_file, folder, spec, hosts, is_first)
            is_first = False
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
