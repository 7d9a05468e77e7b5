"""What a case of tests/models gives and wants, for the tests that run it.

In: a case, a way to call tfmc, the arguments that name its model. Out: nothing. An AssertionError says which output differs
from what transformers computed, and by how much.
"""
import numpy as np
from safetensors.numpy import load_file, save_file

TOLERANCE = 1e-5  # of the largest number, or of 1


def arrays(values):
    found = {k: np.array(v) for k, v in values.items()}
    return {k: np.ascontiguousarray(v, np.float32 if v.dtype.kind == "f" else np.int32) for k, v in found.items()}


def compare_outputs(tfmc, case, inputs, outputs, folder, model):
    save_file(inputs, folder / "in.safetensors")
    tfmc("run", *model, "--inputs", folder / "in.safetensors", "-o", folder / "out.safetensors")
    made, wanted = load_file(folder / "out.safetensors"), arrays(outputs)
    assert sorted(made) == sorted(wanted), f"outputs {sorted(made)}, wanted {sorted(wanted)}"
    for name, b in wanted.items():
        a = made[name]
        assert a.shape == b.shape, f"{name} is {a.shape}, wanted {b.shape}"
        if case["masked"]:
            a, b = (x[inputs[case["masked"]] != 0] for x in (a, b))
        worst = np.abs(a - b).max() / max(1, np.abs(b).max())
        assert worst < TOLERANCE, f"{name} differs by {worst:.2g}"


def each(names, run):
    """Runs each and prints how it went, and then 'N passed, N failed'. Whether one failed, or there was none."""
    failed = 0
    for name in names:
        try:
            said = run(name)
            print(f"ok    {name}{said or ''}")
        except AssertionError as fault:
            failed += 1
            print(f"FAIL  {name}: {str(fault)[:1500]}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return failed != 0 or not names
