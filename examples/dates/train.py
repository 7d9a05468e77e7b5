#!/usr/bin/env python3
"""usage: train.py [STEPS]

Trains the model of dates.tfm on dates of the years that are not held out, writes its weights to dates.safetensors and
says how many of 2,000 dates of the other years it translates exactly. Needs torch and safetensors; minutes on one core.
"""
import pathlib
import sys
import time
import torch
from torch.nn.functional import cross_entropy
from safetensors.torch import save_file
import dates_data as data
from model import Dates, source_ids, target_ids

BATCH, CHUNK, RATE, SEED = 128, 16, 2e-3, 1
TESTS = 2000


def batches(writer):
    """Batches without end, each of texts of about the same length: less padding."""
    while True:
        pairs = sorted((writer.pair() for _ in range(BATCH * CHUNK)), key=lambda pair: len(pair[0]))
        parts = [pairs[i:i + BATCH] for i in range(0, len(pairs), BATCH)]
        writer.random.shuffle(parts)
        for part in parts:
            texts, dates = zip(*part)
            yield source_ids(texts), target_ids(dates)


def exact(model, pairs):
    """How many pairs are translated exactly."""
    model.eval()
    texts, dates = zip(*pairs)
    found = [data.text_of(row[1:].tolist()) for row in model.translate(source_ids(texts))]
    model.train()
    return sum(a == b for a, b in zip(found, dates))


def main(steps=4000):
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = Dates()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    known = data.Writer(SEED + 1, held=False)
    start = time.monotonic()
    for step, (src, tgt) in zip(range(1, steps + 1), batches(data.Writer(SEED, held=False))):
        logits = model(src, tgt[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 0:
            good = exact(model, [known.pair() for _ in range(500)])
            print(f"step {step}  loss {loss.item():.5f}  {good / 5:.1f} % of dates of known years  "
                  f"{time.monotonic() - start:.0f} s", flush=True)
    save_file(model.state_dict(), pathlib.Path(__file__).with_name("dates.safetensors"))
    tests = data.Writer(data.TEST_SEED, held=True)
    print(f"{exact(model, [tests.pair() for _ in range(TESTS)])} of {TESTS} dates of years held out")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
