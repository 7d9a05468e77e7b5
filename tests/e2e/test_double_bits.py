#!/usr/bin/env python3
"""The own functions of a double (tfm/abi/double_functions.h) on every machine: one table of hashes, and at most 1 ulp.

usage: test_double_bits.py TFMC [--count N] [--test NAME] [-v]

The runtimes beside TFMC (its build folder) are linked to double_run.c: for this machine, with and without FMA (asked away by
GLIBC_TUNABLES, which libm would follow), for AArch64 and RISC-V under qemu, for WebAssembly in wasmtime. N results (20,000) of
each function and kind of argument have the same hash everywhere. Beside libquadmath's functions of 113 bits none is off by
more than 1 ulp, nor a float of float_pow by more than 1. --count 10000000 takes half an hour; --test runs one of the tests
alone, by its name. What is missing (a compiler, qemu, wasmtime, wasm-ld, libquadmath) is said and not counted. The last line
is 'N passed, N failed'.
"""
import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "goldens")]
import check  # noqa: E402
import cross  # noqa: E402

SOURCE = HERE / "double_run.c"
INCLUDES = [f"-I{ROOT / name}" for name in ("tests/support", "runtime/include")]
OPTIONS = ["-std=gnu17", "-O2", "-ffp-contract=off", *INCLUDES]
WITHOUT_FMA = "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX2_Usable,-FMA_Usable"
HOUR = 3600


def run(*command, **environment):
    ran = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=HOUR,
                         env={**os.environ, **environment})
    if ran.returncode:
        raise cross.Failed(f"{command[0]}: exit {ran.returncode}: {ran.stderr[-300:]}")
    return ran.stdout


def archive(triple):
    build = pathlib.Path(cross.TFMC).parent
    return build / "libtfm_library_runtime.a" if triple == cross.HOME else build / f"runtimes/{triple}/libtfm_runtime.a"


@functools.cache
def built(folder, triple):
    """The words that start double_run on a machine."""
    program, machine = folder / f"run-{triple}", cross.Machine(triple, str(folder), [])
    compiler = "cc" if triple == cross.HOME else f"{triple}-gcc"
    if machine.lacks:
        raise Missing(machine.lacks)
    run(compiler, *OPTIONS, SOURCE, archive(triple), "-o", program)
    return [*machine.start, program]


@functools.cache
def native(folder, triple, n, **environment):
    """The table of hashes of a machine."""
    return run(*built(folder, triple), "hash", n, **environment)


def module(folder, n):
    import wasm
    clang, linker = (next((p for p in names if shutil.which(p)), None)
                     for names in (("clang-19", "clang"), ("wasm-ld-19", "wasm-ld")))
    if not (wasm.wasmtime and clang and linker):
        raise Missing("wasmtime, clang or wasm-ld is missing (Debian: clang, lld)")
    headers = archive(wasm.TRIPLE).parent / "include"
    run(clang, "--target=wasm32", "-nostdlibinc", "-mbulk-memory", *OPTIONS, f"-I{headers}", f"-I{ROOT / 'runtime'}", "-c", SOURCE,
        "-o", folder / "run.o")
    objects = [archive(wasm.TRIPLE).with_name(f"{name}.c.o") for name in ("base_double_exp", "base_double_angles", "freestanding_texts")]
    run(linker, "--no-entry", "--export=double_hash", folder / "run.o", *objects, "-o", folder / "run.wasm")
    engine = wasm.wasmtime.Engine()
    store = wasm.wasmtime.Store(engine)
    exports = wasm.wasmtime.Instance(store, wasm.wasmtime.Module.from_file(engine, str(folder / "run.wasm")), []).exports(store)
    names = [line.split()[0] for line in native(folder, cross.HOME, 1).splitlines()]
    return "".join(f"{name} {exports['double_hash'](store, i, n) & (1 << 64) - 1:016x}\n" for i, name in enumerate(names))


class Missing(Exception):
    pass


def is_same(make, folder, n):
    want = native(folder, cross.HOME, n)
    got = make()
    differ = [line.split()[0] for line, right in zip(got.splitlines(), want.splitlines()) if line != right]
    return f"other bits: {differ}" if differ or not want or len(got) != len(want) else None


def ulps(folder, n):
    with open(os.devnull, "w") as null:
        if subprocess.run(["cc", "-x", "c", "-", "-lquadmath", "-o", folder / "q"], input="int main(void) { return 0; }", text=True,
                          stderr=null).returncode:
            raise Missing("no libquadmath (a part of gcc on x86-64)")
    run("cc", "-DQUAD", *OPTIONS, SOURCE, archive(cross.HOME), "-lquadmath", "-lm", "-o", folder / "ulps")
    said = run(folder / "ulps", "ulps", n)
    print(said if "-v" in sys.argv else "", end="")
    wrong = [line for line in said.splitlines() if not float(line.split()[1]) <= 1]
    return f"{wrong}" if wrong or not said else None


def main(argv):
    tally = check.Tally("-v" in argv)
    n = int(argv[argv.index("--count") + 1]) if "--count" in argv else 20000
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tests = {f"hashes on {t}": lambda t=t: is_same(lambda: native(folder, t, n), folder, n)
                 for t in cross.triples(cross.MODULES)}
        tests["hashes without FMA"] = lambda: is_same(lambda: native(folder, cross.HOME, n, GLIBC_TUNABLES=WITHOUT_FMA), folder, n)
        if cross.MODULES in cross.triples():
            tests["hashes of WebAssembly"] = lambda: is_same(lambda: module(folder, n), folder, n)
        tests["at most 1 ulp"] = lambda: ulps(folder, n)
        wanted = argv[argv.index("--test") + 1] if "--test" in argv else ""
        for name, test in ((name, test) for name, test in tests.items() if wanted in name):
            try:
                why = test()
            except Missing as lacks:
                print(f"not run: {name}: {lacks}")
                continue
            except cross.Failed as failed:
                why = str(failed)
            tally.add(name, lambda _, why=why: why)
        if "-v" in argv:
            print(native(folder, cross.HOME, n), end="")
    return tally.end()


if __name__ == "__main__":
    cross.TFMC = os.path.abspath(sys.argv[1])
    sys.exit(main(sys.argv[1:]))
