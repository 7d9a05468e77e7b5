#!/usr/bin/env python3
"""Several processes train one model together, through torch.distributed and a library that trains.

    tfmc compile --training tagger.tfm -o libtagger.so        # the model of docs/training.md
    python train_gloo.py ./libtagger.so 2                     # two processes; 1, 2 and 4 print the same hash

Each process has its share of every batch; with `exchange` and 4 shards the weights are the same bits for 1, 2 and 4 processes.
"""
import ctypes as c
import hashlib
import os
import random
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SHARDS, ITEMS, TIME, STEPS = 4, 8, 6, 20
EXCHANGE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int32, c.c_void_p, c.c_void_p, c.c_int64)
SUM = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_int64, c.c_int32)


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("message", c.c_char * 512), ("reason", c.c_int), ("place", c.c_char_p)]


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("seed", c.c_uint64), ("threads", c.c_int32), ("spin_us", c.c_int32), ("pool", c.c_void_p),
                ("allocator", c.c_void_p * 3), ("settings", c.c_void_p), ("rank", c.c_int32), ("ranks", c.c_int32), ("shards", c.c_int32),
                ("sum", SUM), ("exchange", EXCHANGE), ("user", c.c_void_p), ("fills", c.c_int32)]


class Result(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("step", c.c_int64), ("loss", c.c_double), ("norm", c.c_double), ("rate", c.c_double),
                ("results", c.c_double * 16)]


class Args(c.Structure):  # tagger_objective_args
    _fields_ = [("struct_size", c.c_size_t), ("batch", c.c_int64), ("time", c.c_int64), ("ids", c.c_void_p), ("labels", c.c_void_p)]


def view(address, n):
    return torch.frombuffer((c.c_uint8 * n).from_address(address), dtype=torch.uint8)


@EXCHANGE
def exchange(user, peer, out, into, n):
    """What goes wrong here must not leave C: a status says it."""
    try:
        sent = dist.isend(view(out, n), peer)
        dist.recv(view(into, n), peer)
        sent.wait()
        return 0
    except Exception:
        return 3


def train(rank, ranks, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ.get("MASTER_PORT", "29517"))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    lib, error, trainer, result = c.CDLL(path), Error(), c.c_void_p(), Result(c.sizeof(Result))
    lib.tagger_trainer_path.restype = c.c_char_p
    options = Options(c.sizeof(Options), 1, 1, rank=rank, ranks=ranks, shards=SHARDS, exchange=exchange)

    def must(status):
        if status:
            raise RuntimeError(error.message.decode())

    must(lib.tagger_trainer_new(None, c.byref(options), c.byref(trainer), c.byref(error)))
    rng, mine = random.Random(3), ITEMS // ranks
    for _ in range(STEPS):
        ids = torch.tensor([[rng.randrange(1, 100) for _ in range(TIME)] for _ in range(ITEMS)], dtype=torch.int32)
        labels = ids % 7
        parts, each = (Args * (SHARDS // ranks))(), ITEMS // SHARDS
        for i, part in enumerate(parts):
            first = rank * mine + i * each
            parts[i] = Args(c.sizeof(Args), each, TIME, ids[first].data_ptr(), labels[first].data_ptr())
        must(lib.tagger_trainer_step(trainer, parts, c.c_int64(len(parts)), c.c_int64(rank * mine), c.byref(result), c.byref(error)))
    digest, k = hashlib.sha256(), 0
    while (name := lib.tagger_trainer_path(trainer, c.c_int64(k))) is not None:
        data, dims, n, k = c.c_void_p(), (c.c_int64 * 8)(), c.c_int32(), k + 1
        must(lib.tagger_trainer_tensor(trainer, name, 0, c.byref(data), dims, c.byref(n), c.byref(error)))
        digest.update(c.string_at(data.value, 4 * torch.Size(dims[:n.value]).numel()))
    if rank == 0:
        print(f"step {result.step}: loss {result.loss!r}, weights {digest.hexdigest()[:16]}", flush=True)
    lib.tagger_trainer_free(trainer)
    dist.destroy_process_group()


if __name__ == "__main__":
    library, ranks = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    mp.spawn(train, (ranks, library), nprocs=ranks)
