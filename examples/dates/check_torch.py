#!/usr/bin/env python3
"""usage: check_torch.py TFMC

Compares the logits that dates.tfm gives in tfmc with those of the same model in PyTorch, for written dates of several
lengths padded to one, and says how far they are apart: at most 1e-5. Needs torch and safetensors.
"""
import pathlib
import subprocess
import sys
import tempfile
import torch
from safetensors.torch import load_file, save_file
import dates_data as data
from model import Dates, source_ids, target_ids

HERE = pathlib.Path(__file__).parent
TOLERANCE = 1e-5


def logits_of_tfmc(tfmc, inputs):
    with tempfile.TemporaryDirectory() as folder:
        given, made = f"{folder}/in.safetensors", f"{folder}/out.safetensors"
        save_file(inputs, given)
        subprocess.run([tfmc, "run", HERE / "dates.tfm", "--weights", HERE / "dates.safetensors", "--inputs", given,
                        "--output", made], check=True)
        return load_file(made)["logits"]


def main(tfmc):
    model = Dates().eval()
    model.load_state_dict(load_file(HERE / "dates.safetensors"))
    writer = data.Writer(data.TEST_SEED, held=True)
    texts, dates = zip(*[writer.pair() for _ in range(64)])
    src, tgt = source_ids(texts), target_ids(dates)[:, :-1]
    with torch.no_grad():
        expected = model(src, tgt)
    found = logits_of_tfmc(tfmc, {"src": src.int(), "tgt": tgt.int()})
    apart = (found - expected).abs().max().item()
    print(f"logits {list(found.shape)}, largest {expected.abs().max():.2f}: at most {apart:.1e} apart")
    return not apart <= TOLERANCE


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
