"""A library compiled with `tfmc compile --training`, called by ctypes as a program with its header calls it.

In: the command tfmc, a .tfm file, defines, the sizes of one batch and its tensors of i32, in the order of the objective's
inputs. Out: steps of one part each. A refusal of the library is a RuntimeError with its message.
"""
import ctypes
import os
import pathlib
import re
import subprocess
import time


class TrainerLibrary:
    """`folder` gets libm.so and m.h; `options` are more words of the command, `march` the instruction set; `state` is a
    .tfmt, or None for initial values from seed 1."""

    def __init__(self, tfmc, text, folder, defines=(), options=(), march="native"):
        folder, begin = pathlib.Path(folder), time.monotonic()
        words = [word for name, value in dict(defines).items() for word in ("-D", f"{name}={value}")]
        self.path = folder / "libm.so"
        subprocess.run([tfmc, "compile", "--training", "--quiet", f"-march={march}", text, "-o", self.path, *words, *options],
                       check=True, env={**os.environ, "TFM_CACHE_DIR": ""})
        self.seconds, self.size = time.monotonic() - begin, self.path.stat().st_size
        self.prefix = re.search(r"typedef struct (\w+)_trainer ", (folder / "m.h").read_text())[1]
        self.error, self.trainer = ctypes.create_string_buffer(4096), ctypes.c_void_p()

    def call(self, name, *given):
        if getattr(self.library, f"{self.prefix}_trainer_{name}")(*given, self.error):
            raise RuntimeError(self.error.raw[4:].split(b"\0")[0].decode())

    def begin(self, sizes, tensors, threads, state=None):
        """All members of the args are eight bytes long: struct_size, sizes, addresses."""
        self.library = ctypes.CDLL(str(self.path))
        self.batch = [(ctypes.c_int32 * len(ids))(*ids) for ids in tensors]
        self.args = (ctypes.c_int64 * (1 + len(sizes) + len(tensors)))(0, *sizes, *map(ctypes.addressof, self.batch))
        self.result = (ctypes.c_double * 24)()
        ctypes.cast(self.result, ctypes.POINTER(ctypes.c_int64))[0] = ctypes.sizeof(self.result)
        self.call("new", None if state is None else os.fsencode(state), (ctypes.c_int64 * 3)(24, 1, threads),
                  ctypes.byref(self.trainer))

    def step(self):
        """The loss before the step."""
        self.call("step", self.trainer, self.args, ctypes.c_int64(1), ctypes.c_int64(0), self.result)
        return self.result[2]

    def weight(self, path):
        """Its numbers, in the library's own memory."""
        numbers, dims, rank = ctypes.POINTER(ctypes.c_float)(), (ctypes.c_int64 * 8)(), ctypes.c_int32()
        self.call("tensor", self.trainer, path.encode(), 0, ctypes.byref(numbers), dims, ctypes.byref(rank))
        count = 1
        for n in dims[:rank.value]:
            count *= n
        return numbers[:count]
