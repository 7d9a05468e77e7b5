#!/usr/bin/env python3
"""The golden cases through libtfm, from Python: usage: goldens.py LIBTFM TFMC CASE... [--in-process] [-v]

CASE is a case folder or a folder of them (tests/goldens/README.md). Each is compiled by tfm_compile in this process, with
the command TFMC or, with --in-process, without any; its outputs must agree with the expected ones. Cases that are wrong
before they run must be refused with their words. Needs numpy and safetensors. The last line is 'N passed, N failed'.
"""
import ctypes as c
import json
import os
import pathlib
import re
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "goldens"))
import check  # noqa: E402

DTYPES = [np.float32, np.int32, np.bool_]  # in the order of tfm_dtype


class Error(c.Structure):
    _fields_ = [("status", c.c_int), ("message", c.c_char * 512), ("reason", c.c_int), ("place", c.c_char_p)]


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("path", c.c_char_p), ("text", c.c_char_p), ("text_size", c.c_size_t),
                ("model", c.c_char_p), ("definitions", c.POINTER(c.c_char_p)), ("n_definitions", c.c_size_t),
                ("weights_path", c.c_char_p), ("weights", c.c_void_p), ("n_weights", c.c_size_t),
                ("weights_prefix", c.c_char_p), ("march", c.c_char_p), ("no_fusion", c.c_int32), ("in_process", c.c_int32),
                ("deadline_ms", c.c_int64), ("memory_limit", c.c_uint64), ("compiler", c.c_char_p), ("message", c.c_void_p),
                ("message_user", c.c_void_p), ("quantize", c.c_char_p)]


ARGS = pathlib.Path(__file__).resolve().parents[2] / "runtime/include/tfm/abi/args.def"


class ArgsLayout(c.Structure):
    _fields_ = [("struct_size", c.c_uint32)] + [(n, c.c_void_p) for n in re.findall(r"^ARGS\((\w+)", ARGS.read_text(), re.M)] + \
               [("number", c.c_uint64)]


class Library(c.Structure):
    _fields_ = [("abi", c.c_uint32), ("model", c.c_char_p), ("version", c.c_char_p), ("n_programs", c.c_uint32),
                ("programs", c.c_void_p), ("args", ArgsLayout), ("layout", c.c_uint8 * 16), ("weights", c.c_void_p),
                ("description", c.c_char_p)]


class Value(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("rank", c.c_int32), ("dims", c.POINTER(c.c_int64))]


class Refused(Exception):
    pass


class Tfm:
    def __init__(self, path, compiler, in_process):
        self.lib, self.compiler, self.in_process = c.CDLL(path), compiler, in_process
        self.lib.tfm_compiled_model.restype = self.lib.tfm_model_library.restype = c.c_void_p
        self.lib.tfm_context_output_dims.restype = c.POINTER(c.c_int64)

    def call(self, name, *args):
        error = Error()
        status = getattr(self.lib, name)(*args, c.byref(error))
        assert status == error.status or status == 0, f"{name} gives {status}, its error says {error.status}"
        if status:
            raise Refused(status, error.message.decode(errors="replace"))

    def compile(self, path, weights, definitions, rules):
        texts = (c.c_char_p * len(definitions))(*[d.encode() for d in definitions])
        options = Options(struct_size=c.sizeof(Options), path=path.encode(), definitions=texts, n_definitions=len(definitions),
                          weights_path=weights.encode() if weights else None, compiler=self.compiler.encode(),
                          in_process=self.in_process, quantize=rules.encode() or None)
        compiled = c.c_void_p()
        self.call("tfm_compile", c.byref(options), c.byref(compiled))
        return compiled

    def run(self, compiled, given):
        model = c.c_void_p(self.lib.tfm_compiled_model(compiled))
        library = c.cast(c.c_void_p(self.lib.tfm_model_library(model)), c.POINTER(Library)).contents
        description = json.loads(library.description)
        inputs = [self.array(given[t["name"]]) for t in description["inputs"]]
        context = c.c_void_p()
        self.call("tfm_model_context", model, None, c.byref(context))
        try:
            values = (Value * len(inputs))(*[self.value(a) for a in inputs])
            self.call("tfm_context_bind", context, values)
            outputs = [self.output(context, i, t) for i, t in enumerate(description["outputs"])]
            self.call("tfm_context_run", context, values, (Value * len(outputs))(*[self.value(a) for a in outputs]))
            return {t["name"]: a for t, a in zip(description["outputs"], outputs)}
        finally:
            self.lib.tfm_context_destroy(context)

    @staticmethod
    def array(a):
        wanted = {"i": np.int32, "f": np.float32, "b": np.bool_}[a.dtype.kind]
        return np.array(a, dtype=wanted, order="C")

    @staticmethod
    def value(a):
        return Value(a.ctypes.data, DTYPES.index(a.dtype.type), a.ndim, (c.c_int64 * max(a.ndim, 1))(*a.shape))

    def output(self, context, number, tensor):
        rank = c.c_int32()
        dims = self.lib.tfm_context_output_dims(context, number, c.byref(rank))
        return np.empty(dims[:rank.value], {"f32": np.float32, "i32": np.int32, "bool": np.bool_}[tensor["type"].split("[")[0]])


class Proc:
    """What check.judge wants to know of a command."""

    def __init__(self, returncode, stderr):
        self.returncode, self.stderr = returncode, stderr


def try_case(tfm, folder, spec, tmp):
    weights = check.packaged_weights(spec) if "weights_from" in spec else os.path.join(folder, "weights.safetensors")
    inputs, out = os.path.join(folder, "inputs.safetensors"), os.path.join(tmp, "out.safetensors")
    proc = Proc(0, "")
    try:
        compiled = tfm.compile(os.path.join(folder, "model.tfm"), weights if os.path.exists(weights) else None,
                               [f"{k}={v}" for k, v in spec.get("defines", {}).items()], rules_of(spec))
        try:
            save_file(tfm.run(compiled, load_file(inputs) if os.path.exists(inputs) else {}), out)
        finally:
            tfm.lib.tfm_compiled_free(compiled)
    except Refused as refusal:
        proc = Proc(*refusal.args)
    return check.judge(folder, spec, proc, out)


RULE = "--quantize="


def rules_of(spec):
    return ",".join(option.removeprefix(RULE) for option in spec.get("options", []))


def can_be_said(spec):
    """libtfm does not generate here and stops at no stage; of the command's options it has the rules of numbers."""
    return "generate" not in spec and spec.get("stage") != "run" and all(o.startswith(RULE) for o in spec.get("options", []))


def main(argv):
    libtfm, tfmc, *roots = [a for a in argv if not a.startswith("-")]
    tfm = Tfm(os.path.abspath(libtfm), os.path.abspath(tfmc), int("--in-process" in argv))
    tally = check.Tally("-v" in argv)
    for folder, spec in tally.cases(roots, can_be_said):
        tally.add(folder, try_case, tfm, folder, spec)
    return tally.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
