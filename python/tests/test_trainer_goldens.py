"""Trainers beside `tfmc train` and `tfmc evaluate` on the golden cases of training: the same bits, through step, parts and evaluate.
With TFM_LONG all of them, else one in twelve."""
import json
import pathlib
import subprocess
import unittest

import numpy as np

import tfmc
from tfmc._find import compiler
from support import LONG, Case
from test_trainer import tensors

CASES = pathlib.Path(__file__).resolve().parents[2] / "tests/goldens/train"


def batches_of(path):
    """The batches of a file: NAME, or NAME@0, NAME@1 ..."""
    data, found = pathlib.Path(path).read_bytes(), {}
    n = int.from_bytes(data[:8], "little")
    kinds = {"F32": np.float32, "I32": np.int32, "BOOL": np.bool_}
    for name, info in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            name, _, number = name.partition("@")
            array = np.frombuffer(data[8 + n + begin:8 + n + end], kinds[info["dtype"]]).reshape(info["shape"])
            found.setdefault(int(number or 0), {})[name] = array
    return [found[i] for i in sorted(found)]


@unittest.skipUnless(CASES.is_dir(), "not run: the golden cases are not here")
class Goldens(Case):
    def of_command(self, case, spec, weights, batches):
        out = pathlib.Path(self.folder()) / "out.safetensors"
        mode, steps = spec["mode"], 0 if spec["mode"] == "initial" else spec["steps"]
        options = ["evaluate"] if mode == "evaluate" else [
            "train", f"--steps={steps}", f"--accumulate={spec['accumulate']}", f"--seed={spec['seed']}"]
        subprocess.run([compiler(), options[0], case / "model.tfm", "-q", *options[1:], *([f"--weights={weights}"] if weights else []),
                        *([f"--batches={batches}"] if batches and mode != "initial" else []), "-o", out], check=True, capture_output=True)
        return tensors(out)

    def check(self, case):
        said = json.loads((case / "case.json").read_text())
        spec = said["train"]
        files = {name: case / f"{name}.safetensors" for name in ("weights", "inputs")}
        weights, inputs = (path if path.is_file() else None for path in files.values())
        if said["defines"]:
            self.fail(f"{case.name} has values of the configuration, which this test does not give to the command")
        wanted = self.of_command(case, spec, weights, inputs)
        trainer = tfmc.Trainer(case / "model.tfm", weights=weights, seed=spec["seed"], on_message=lambda message: None)
        batches = batches_of(inputs) if inputs else []
        if spec["mode"] == "evaluate":
            found = trainer.evaluate(parts=batches)
            self.assertEqual({n: np.float32(v) for n, v in found.items()}, {n: wanted[n] for n in found})
            return
        each = spec["accumulate"]
        for step in range(0 if spec["mode"] == "initial" else spec["steps"]):
            trainer.epoch = step * each // len(batches)
            trainer.step(parts=[batches[(step * each + i) % len(batches)] for i in range(each)])
        for path, array in trainer.weights().items():
            np.testing.assert_array_equal(array.view(np.uint32), wanted[f"after.{path}"].view(np.uint32), path)

    def test_every_case_has_the_bits_of_the_command(self):
        cases = [path for path in sorted(CASES.glob("train-*")) if "train" in json.loads((path / "case.json").read_text())]
        self.assertGreater(len(cases), 80)
        for case in cases if LONG else cases[::12]:
            with self.subTest(case.name):
                self.check(case)


if __name__ == "__main__":
    unittest.main()
