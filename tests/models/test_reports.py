#!/usr/bin/env python3
"""usage: test_reports.py TFMC CASES

What `--report` says of a step of models whose layers keep states, and of those whose attention is over latents (MLA): every
family decodes with caches and states, all of them named, and nothing of that is refused. Latents are attended to as they are:
a token adds a latent as a value and, with its rotated part, as a key, and costs what products with those take for every
earlier position, whatever widths heads have in the checkpoint. The last line is 'N passed, N failed'.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import checkpoint

TFMC, CASES = sys.argv[1], pathlib.Path(sys.argv[2])
# A recurrent layer keeps a state and the window of its convolution, a layer of short convolutions a window alone; one of
# attention caches keys and values. By hand from the cases' layers: states, windows, caches.
KEPT = {"qwen3_5": (1, 1, 2), "qwen3_5_pictures": (1, 1, 2), "qwen3_5_moe": (1, 1, 2), "qwen3_5_moe_stacked": (1, 1, 2),
        "qwen3_next": (1, 1, 2), "qwen3_next_first": (2, 2, 2), "mamba2": (2, 2, 0), "mamba2_limits": (2, 2, 0),
        "lfm2": (0, 2, 2), "lfm2_wide": (0, 2, 2), "lfm2_first": (0, 2, 2), "lfm2_moe": (0, 2, 2), "lfm2_moe_plain": (0, 2, 2),
        "falcon_h1": (2, 2, 4), "falcon_h1_behind": (2, 2, 4), "falcon_h1_normed": (2, 2, 4), "bamba": (2, 2, 2),
        "bamba_biases": (1, 1, 4), "granite_hybrid": (2, 2, 2), "granite_hybrid_dense": (1, 1, 4), "nemotron_h": (1, 1, 2),
        "nemotron_h_first": (2, 2, 2), "kimi_linear": (2, 2, 2), "kimi_linear_first": (1, 1, 4), "olmo_hybrid": (2, 2, 2),
        "olmo_hybrid_unturned": (4, 4, 2)}
LATENT = {"deepseek_v2": 3, "deepseek_v2_lite": 3, "deepseek_v3": 3, "deepseek_v3_yarn": 3, "glm4_moe_lite": 3,
          "glm4_moe_lite_groups": 3, "kimi_linear": 1, "kimi_linear_first": 2}  # layers with latents
# What else the report may say that it left: factors that stay, expressions that are computed apart. `experts` is what
# chooses among groups of experts, which looks like one.
MAY_BE_LEFT = {"weight-fold", "epilogue", "prologue", "qkv", "pointwise"}
TOTAL = re.compile(r"a step computes new positions only; cached: (\d+) values of earlier positions, (\d+) bytes a token; "
                   r"from the encoder: 0(?:; kept: (\d+) states, (\d+) bytes a row)?$")


def report(name):
    """The report of a step, and the config of its checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        checkpoint.write(json.loads((CASES / f"{name}.json").read_text()), folder)
        for words in (["import", folder, "-o", folder / "model.tfm", "--strict"],
                      ["dump", folder / "model.tfm", "--weights", folder, "--stage=step-fused", "--report"]):
            done = subprocess.run([TFMC, *map(str, words)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
        config = json.loads((folder / "config.json").read_text())
    return done.stdout.split("\ngraph ")[0].splitlines(), config


def lines_of(report, fusion):
    """(text, times) of what was done, and the fusions of what was not."""
    border = report.index("not fused") if "not fused" in report else len(report)
    end = report.index("cost") if "cost" in report else len(report)
    done = []
    for head, text in zip(report[:border], report[1:border]):
        if head.split()[:1] == [fusion]:
            times = re.search(r"\((\d+) times\)$", head)
            done.append((text.strip(), int(times[1]) if times else 1))
    left = {line.split()[0] for line in report[border + 1:end] if re.match(r"  \S", line)}
    return done, left


def count(done, word):
    return sum(times for text, times in done if text.startswith(word + ": "))


def check(name):
    said, config = report(name)
    done, left = lines_of(said, "incremental")
    assert left <= MAY_BE_LEFT | ({"experts"} if name in LATENT else set()), f"left: {left}"
    totals = [found for text, _ in done if (found := TOTAL.match(text))]
    assert len(totals) == 1, f"{len(totals)} totals of {done}"
    n_caches, cached, n_states, kept = (int(x or 0) for x in totals[0].groups())
    if name in KEPT:
        states, windows, caches = KEPT[name]
        assert (count(done, "state"), count(done, "window"), count(done, "cached")) == KEPT[name], f"{done}, wanted {KEPT[name]}"
        assert (n_states, n_caches) == (states + windows, caches), totals[0][0]
        of_row = [(int(text.split()[-4]), times) for text, times in done if text.endswith(" bytes a row") and not TOTAL.match(text)]
        assert kept == sum(size * times for size, times in of_row) > 0, f"{kept} of {of_row}"
    if name in LATENT:
        check_latents(said, config, LATENT[name], (n_caches, cached))


def check_latents(said, config, layers, cached):
    latent, turned, heads = (config[key] for key in ("kv_lora_rank", "qk_rope_head_dim", "num_attention_heads"))
    assert cached == (2 * layers, 4 * (2 * latent + turned) * layers), f"{cached} with {layers} of {latent} and {turned}"
    cost = next(line for line in said if line.split()[:3] == ["FLOP", "of", "a"])
    behind = [term for term in cost.split("run")[1].split(" + ") if "time.past" in term]
    factors = sum(int(term.split("*")[0]) for term in behind)
    assert factors == 2 * heads * (2 * latent + turned) * layers, cost
    # Products with keys and values alone: none expands what is cached, whose cost would not depend on new positions.
    assert all(re.search(r"\*time\.(fresh|kept)$", term.strip()) for term in behind), cost


def main():
    failed, names = 0, sorted({*KEPT, *LATENT})
    for name in names:
        try:
            check(name)
            print(f"ok    {name}")
        except AssertionError as fault:
            failed += 1
            print(f"FAIL  {name}: {str(fault)[:1500]}")
    print(f"{len(names) - failed} passed, {failed} failed")
    return failed != 0


sys.exit(main())
