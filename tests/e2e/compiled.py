"""A compiled library in this process: `compile_model` makes it, `Library` calls its functions with NumPy arrays."""
import ctypes
import json
import os
import subprocess
import numpy as np

DTYPES = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}
OK, INPUT, USAGE, ENV, NOMEM, CANCELLED = 0, 1, 2, 3, 4, 6


def compile_model(tfmc, folder, name, source, *options, code=0):
    """lib<name>.so in folder; gives its path, or what the compiler said when it should end with another code."""
    path, out = os.path.join(folder, f"{name}.tfm"), os.path.join(folder, f"lib{name}.so")
    with open(path, "w") as f:
        f.write(source)
    proc = subprocess.run([tfmc, "compile", path, "-o", out, *options], capture_output=True, text=True, timeout=300)
    if proc.returncode != code:
        raise RuntimeError(f"compile: exit {proc.returncode}: {proc.stderr}")
    return out if not code else proc.stderr


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("message", ctypes.c_char * 512), ("reason", ctypes.c_int), ("place", ctypes.c_char_p)]


class Options(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("threads", ctypes.c_int32), ("spin_us", ctypes.c_int32),
                ("rest", ctypes.c_void_p * 6)]


def sizes_of(kind):
    """'f32[batch, 3]' -> f32, ['batch', '3']"""
    dtype, _, dims = kind.partition("[")
    return dtype, [d.strip() for d in dims.rstrip("]").split(",") if d.strip()]


class Library:
    """A model that is open. The weights: `weights`, or the file that stands beside the library if it needs one."""

    def __init__(self, tfmc, path, weights=None, threads=1):
        info = subprocess.run([tfmc, "info", path, "--json"], capture_output=True, text=True, check=True)
        self.about, self.library = json.loads(info.stdout), ctypes.CDLL(path)
        self.prefix, self.error, self.threads = self.about["prefix"], Error(), threads
        self.model, self.contexts = ctypes.c_void_p(), []
        beside = os.path.join(os.path.dirname(path), f"{self.prefix}.tfmw")
        external = self.about["weights_bytes"] and not self.about["weights_embedded"]
        weights = weights or (beside if external else None)
        self.must(self.call("open", weights.encode() if weights else None, ctypes.byref(self.model), ctypes.byref(self.error)))
        self.context = self.new_context(threads)

    def call(self, name, *args):
        return getattr(self.library, f"{self.prefix}_{name}")(*args)

    def must(self, status):
        if status:
            raise RuntimeError(f"status {status}: {self.error.message.decode()}")

    def new_context(self, threads):
        options, context = Options(ctypes.sizeof(Options), threads, 0), ctypes.c_void_p()
        self.must(self.call("context_new", self.model, ctypes.byref(options), ctypes.byref(context), ctypes.byref(self.error)))
        self.contexts.append(context)
        return context

    def close(self):
        for context in self.contexts:
            self.call("context_free", context)
        self.call("close", self.model)

    def sizes(self, inputs):
        found = {}
        for one in self.about["inputs"]:
            for size, n in zip(sizes_of(one["type"])[1], np.shape(inputs[one["name"]])):
                if not size.isdigit():
                    found[size] = n
        return found

    def shape_of(self, output, sizes):
        return [int(eval(d, {}, dict(sizes))) for d in sizes_of(output["type"])[1]]  # sums and products of sizes

    def arguments(self, pointers, sizes, capacities):
        """The args struct as the library describes it: its size, then 8 bytes for each member. What is not given is 0."""
        inputs, outputs = ([tensor["name"] for tensor in self.about[kind]] for kind in ("inputs", "outputs"))
        groups = {"symbols": (self.about["sizes"], sizes), "inputs": (inputs, pointers), "outputs": (outputs, pointers),
                  "capacities": (outputs, capacities)}
        left = {group: iter([given.get(name, 0) for name in names]) for group, (names, given) in groups.items()}
        words = [next(left[group]) if group in left else 0 for group, _ in self.about["args"]]
        return (ctypes.c_int64 * (1 + len(words)))(8 + 8 * len(words), *words)

    def forward(self, context, arguments):
        return self.call("forward", context, arguments, ctypes.byref(self.error))

    def try_run(self, inputs, context=None):
        """(status, outputs): arrays are given as they lie."""
        arrays = {i["name"]: np.ascontiguousarray(inputs[i["name"]], DTYPES[sizes_of(i["type"])[0]]) for i in self.about["inputs"]}
        sizes = self.sizes(arrays)
        outputs = {o["name"]: np.full(self.shape_of(o, sizes), 77, DTYPES[sizes_of(o["type"])[0]]) for o in self.about["outputs"]}
        pointers = {name: array.ctypes.data for name, array in {**arrays, **outputs}.items()}
        status = self.forward(context or self.context, self.arguments(pointers, sizes, {k: v.size for k, v in outputs.items()}))
        return status, outputs

    def run(self, inputs, context=None):
        status, outputs = self.try_run(inputs, context)
        self.must(status)
        return outputs
