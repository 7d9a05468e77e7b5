#!/usr/bin/env python3
"""Tokens a second of Model.generate with as many rows at once: the floor of completions.py.

usage: offline_rows.py FOLDER|FILE.tfmm [--quantize RULES] [--rows 1,4,16,32] [--prompt N] [--tokens N] [--vocab N] [--rounds N]
                       [--threads N]

Prompts are random ids; no row ends before its last token. Out: for each number of rows the best
and the median of the rounds, prompts included. The first round warms.
"""
import argparse
import random
import statistics
import time

import numpy as np

import tfmc


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--quantize")
    parser.add_argument("--rows", default="1,4,16,32")
    for name, default in (("prompt", 128), ("tokens", 64), ("vocab", 49152), ("rounds", 2), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    pool = tfmc.Pool(arguments.threads)
    model = tfmc.load(arguments.folder, pool=pool) if arguments.folder.endswith(".tfmm") else \
        tfmc.from_pretrained(arguments.folder, quantize=arguments.quantize, pool=pool)
    choose = random.Random(1)
    for rows in map(int, arguments.rows.split(",")):
        prompts = np.array([[choose.randrange(3, arguments.vocab) for _ in range(arguments.prompt)] for _ in range(rows)], np.int32)
        rates = []
        for _ in range(arguments.rounds + 1):
            began = time.perf_counter()
            model.generate(prompts, max_new_tokens=arguments.tokens, eos_token_id=[], num_beams=1, do_sample=False)
            rates.append(rows * arguments.tokens / (time.perf_counter() - began))
        print(f"{rows} rows: {max(rates[1:]):.1f} tokens a second, median {statistics.median(rates[1:]):.1f}", flush=True)


if __name__ == "__main__":
    main()
