#!/usr/bin/env python3
"""The protocol of the pool under the memory model of C11: pool_explorer.c runs runtime/pool/pool.c with every order of
its operations and every value that a load may see; then the same with one line written wrongly, which must be found.

usage: test_pool.py ROOT [CC]

Each line below is in runtime/pool/pool.c exactly once; if one is changed there, write it anew here. The counter of
runs has 2 bits here, so that it comes round. The last line is 'N passed, N failed'.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

# Two threads without a limit; three with all of them in a run; a worker that misses runs and is needed again.
SCENARIOS = ["222", "22b", "3", "3223:2", "33b:2"]

FEW_BITS = ("(atomic_load_explicit(&pool->signal, memory_order_relaxed) >> ACTIVE_BITS) + 1;",
            "((atomic_load_explicit(&pool->signal, memory_order_relaxed) >> ACTIVE_BITS) + 1) & 3;")

# What is wrong: (what it is, the line, what stands in its place).
VARIANTS = [
    ("a worker waits for a later count than it has seen, half of the counts being earlier",
     "for (unsigned i = 1; (signal = atomic_load_explicit(&pool->signal, memory_order_acquire)) == seen; i++) {",
     "for (unsigned i = 1; signal = atomic_load_explicit(&pool->signal, memory_order_acquire),\n"
     "       (((signal >> ACTIVE_BITS) - (seen >> ACTIVE_BITS)) & 3) - 1 >= 2 - 1; i++) {"),
    ("a thread waits for its own phase, not for another than the last",
     "atomic_load_explicit(&pool->phase, memory_order_acquire) == before; i++",
     "atomic_load_explicit(&pool->phase, memory_order_acquire) != phase; i++"),
    ("the count of runs stays as it is",
     "memory_order_relaxed) >> ACTIVE_BITS) + 1) & 3;", "memory_order_relaxed) >> ACTIVE_BITS) + 0) & 3;"),
    ("a sleeper counts itself relaxed", "atomic_fetch_add(&pool->sleeping, 1);",
     "atomic_fetch_add_explicit(&pool->sleeping, 1, memory_order_relaxed);"),
    ("a sleeper's last look only acquires", "while (atomic_load(&pool->signal) == seen)",
     "while (atomic_load_explicit(&pool->signal, memory_order_acquire) == seen)"),
    ("the signal is only released", "atomic_store(&pool->signal, count << ACTIVE_BITS | (uint32_t)active);",
     "atomic_store_explicit(&pool->signal, count << ACTIVE_BITS | (uint32_t)active, memory_order_release);"),
    ("the look for sleepers only acquires", "if (atomic_load(&pool->sleeping))",
     "if (atomic_load_explicit(&pool->sleeping, memory_order_acquire))"),
    ("sleepers are looked for before the signal",
     "  atomic_store(&pool->signal, count << ACTIVE_BITS | (uint32_t)active);\n"
     "  if (atomic_load(&pool->sleeping))",
     "  uint64_t sleeping = atomic_load(&pool->sleeping);\n"
     "  atomic_store(&pool->signal, count << ACTIVE_BITS | (uint32_t)active);\n"
     "  if (sleeping)"),
    ("a look at the signal does not acquire",
     "(signal = atomic_load_explicit(&pool->signal, memory_order_acquire)) == seen",
     "(signal = atomic_load_explicit(&pool->signal, memory_order_relaxed)) == seen"),
    ("a thread arrives relaxed", "atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel)",
     "atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_relaxed)"),
    ("a thread arrives without release", "atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel)",
     "atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acquire)"),
    ("a thread arrives without acquire", "atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel)",
     "atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_release)"),
    ("the phase moves before arrivals are reset",
     "    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);\n    atomic_store(&pool->phase, phase);\n",
     "    atomic_store(&pool->phase, phase);\n    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);\n"),
    ("the phase is only released", "atomic_store(&pool->phase, phase);",
     "atomic_store_explicit(&pool->phase, phase, memory_order_release);"),
    ("the look for sleepers inside only acquires", "if (atomic_load(&pool->sleeping_inside))",
     "if (atomic_load_explicit(&pool->sleeping_inside, memory_order_acquire))"),
    ("a sleeper inside counts itself relaxed", "atomic_fetch_add(&pool->sleeping_inside, 1);",
     "atomic_fetch_add_explicit(&pool->sleeping_inside, 1, memory_order_relaxed);"),
    ("a sleeper's last look inside only acquires", "while (atomic_load(&pool->phase) == before)",
     "while (atomic_load_explicit(&pool->phase, memory_order_acquire) == before)"),
    ("a look at the phase does not acquire", "atomic_load_explicit(&pool->phase, memory_order_acquire) == before",
     "atomic_load_explicit(&pool->phase, memory_order_relaxed) == before"),
    ("the end is said after the signal", "    atomic_store(&pool->stop, true);\n    wake_all(pool, 0);\n",
     "    wake_all(pool, 0);\n    atomic_store(&pool->stop, true);\n"),
]


def changed(source, old, new):
    if source.count(old) != 1:
        sys.exit(f"this is not in runtime/pool/pool.c exactly once any more:\n{old}")
    return source.replace(old, new)


def explore(root, cc, folder, number, source, scenarios):
    """The exit code of the explorer, and what it printed."""
    folder = pathlib.Path(folder) / str(number)
    folder.mkdir()
    (folder / "pool_source.c").write_text(source)
    here, program = root / "tests/model/pool_explorer.c", folder / "explorer"
    subprocess.run([cc, "-std=c17", "-O2", "-w", f"-I{folder}", f"-I{root}/runtime/include", f"-I{root}/runtime",
                    "-DPOOL_C=\"pool_source.c\"", "-o", program, here], check=True)
    done = subprocess.run([program, *scenarios], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    root, cc = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else os.environ.get("CC", "cc")
    source = (root / "runtime/pool/pool.c").read_text()
    few = changed(source, *FEW_BITS)
    runs = [("as it is", source, SCENARIOS, 0), ("with a count of 2 bits", few, ["3223:2"], 0)]
    runs.append(("a count of 2 bits comes round while a worker looks away", few, ["32223:2"], 1))
    runs += [(name, changed(few, old, new), SCENARIOS, 1) for name, old, new in VARIANTS]
    failed = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda i: explore(root, cc, folder, i, *runs[i][1:3]), range(len(runs)))
        for (name, _, _, expected), (code, text) in zip(runs, results):
            good = code == expected
            failed += not good
            lines = text.splitlines()
            shown = next((line for line in lines if not line.endswith("no fault")), "no fault") if good else text
            print(f"{'ok' if good else 'FAILED'}: {name}: {shown}")
    print(f"{len(runs) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
