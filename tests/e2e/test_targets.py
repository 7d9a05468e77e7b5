#!/usr/bin/env python3
"""tfmc compile --target: what a library for other machines is, and what is refused. Nothing of another machine runs here;
cross.py does that under qemu.

usage: test_targets.py TFMC

Without a runtime for a machine in TFMC, that it says so is what is tested of its libraries. The last line is
'N passed, N failed'.
"""
import ctypes
import os
import pathlib
import re
import struct
import subprocess
import sys

import tally
import test_cli
from test_library_cli import Case, RUN

HOME, AARCH64, RISCV64 = "x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu"
MARCH = {AARCH64: "armv8-a", RISCV64: "rv64gcv"}
EM_X86_64, EM_AARCH64, EM_RISCV, EM_S390 = 62, 183, 243, 22
MODELS, MOST_OF_X86_64 = pathlib.Path(__file__).resolve().parents[2] / "models", 1.1
DOUBLE_FLOATS = 4  # of e_flags: floats are passed in registers of their own
PT_LOAD, PT_GNU_RELRO, PT_DYNAMIC = 1, 0x6474E552, 2
DT_NEEDED, DT_INIT, DT_TEXTREL, DT_INIT_ARRAY, DT_FLAGS_1, DF_1_NOW = 1, 12, 22, 25, 0x6FFFFFFB, 1
DT_STRTAB, DT_STRSZ, DT_RELACOUNT = 5, 10, 0x6FFFFFF9
# glibc; its loader holds the guard of the stack where that is a variable.
C_LIBRARY, C_LOADER = {b"libc.so.6"}, {AARCH64: {b"ld-linux-aarch64.so.1"}, RISCV64: {b"ld-linux-riscv64-lp64d.so.1"}}


def segments(data):
    """(type, flags, offset, address, bytes in the file, bytes in memory, alignment) of each."""
    (at,), (n,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    for i in range(n):
        kind, flags, offset, address, _, file_bytes, memory, alignment = struct.unpack_from("<IIQQQQQQ", data, at + 56 * i)
        yield kind, flags, offset, address, file_bytes, memory, alignment


def dynamic(data):
    _, _, offset, _, size, _, _ = next(s for s in segments(data) if s[0] == PT_DYNAMIC)
    return [struct.unpack_from("<qQ", data, offset + i) for i in range(0, size, 16)]


class Refused(Case):
    def test_targets_that_are_not_there(self):
        for triple in "armv7-linux-gnueabihf", "mips-linux-gnu", "aarch64", "wasm64":
            self.compile(f"--target={triple}", code=2, says=f"unknown target '{triple}'; there are x86_64-linux-gnu, wasm32, {AARCH64}, "
                         f"{RISCV64}; other 32-bit and big-endian machines are not supported")

    def test_two_kinds_of_machines_in_one_library(self):
        self.compile("-march=armv8-a,x86-64-v3", code=2,
                     says="a library holds code for one kind of machine: armv8-a is aarch64, x86-64-v3 is x86_64")
        self.compile(f"--target={AARCH64}", "-march=x86-64-v3", code=2, says=f"x86-64-v3 is code for x86_64-linux-gnu, not for {AARCH64}")
        self.compile("-march=rv64gcv,armv8-a", code=2,
                     says="a library holds code for one kind of machine: rv64gcv is riscv64, armv8-a is aarch64")
        self.compile("--target=x86_64-linux-gnu", "-march=armv8-a", code=2, says=f"armv8-a is code for {AARCH64}, not for x86_64-linux-gnu")

    def test_machines_that_the_runtime_is_not_for(self):
        headers = pathlib.Path(__file__).resolve().parents[2] / "runtime/include"
        self.path("machine.c").write_text('#include "tfm/abi/cpu.h"\n')
        for says, options in (("big-endian machines are not supported", ["-U__BYTE_ORDER__", "-D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__"]),
                              ("32-bit machines are not supported", ["-m32"]), ("", [])):
            said = subprocess.run(["cc", "-std=c17", "-ffreestanding", "-fsyntax-only", *options, f"-I{headers}", "machine.c"],
                                  cwd=self.folder.name, capture_output=True, text=True)
            self.assertEqual(says in said.stderr and bool(said.returncode), bool(says), said.stderr)

    def test_what_is_for_this_machine_alone(self):
        self.compile("-c", f"--target={AARCH64}", out="m.o", code=2, says=f"an object for {AARCH64} is linked by a C compiler for it")
        self.tfmc("run", "model.tfm", "-march=armv8-a", "--random-weights=1", *RUN, code=3,
                  says="armv8-a is code for aarch64; this machine is x86_64")
        self.tfmc("run", "model.tfm", "-march=rv64gcv", "--random-weights=1", *RUN, code=3,
                  says="rv64gcv is code for riscv64; this machine is x86_64")

    def test_what_is_shown_of_their_code(self):
        for march, product in (("armv8-a", "fmla"), ("rv64gc", "fmadd.s"), ("rv64gcv", "vfmacc.vf"), ("rv64gcv-zvl256b", "vfmacc.vf")):
            self.assertIn(product, self.tfmc("dump", "model.tfm", "--stage=asm", f"-march={march}").out)
        self.assertNotIn("vset", self.tfmc("dump", "model.tfm", "--stage=asm", "-march=rv64gc").out)


class Libraries(Case):
    def setUp(self):
        super().setUp()
        said = self.tfmc("info").out
        self.held = [t for t in (AARCH64, RISCV64) if f"no runtime for {t}" not in said]
        for triple in {AARCH64, RISCV64} - set(self.held):
            self.compile(f"--target={triple}", code=3, says=f"this tfmc holds no runtime for {triple}: {triple}-gcc was missing")
        if not self.held:
            self.skipTest("this tfmc holds no runtime for another machine")
        self.assertRegex(said, f"libraries for: x86_64-linux-gnu(, wasm32)?, {', '.join(self.held)}\n")

    def test_the_other_files_are_the_same(self):
        self.compile_with_weights()
        home = self.bytes("m.h"), self.bytes("m.tfmw")
        for triple in self.held:
            self.compile_with_weights(f"--target={triple}")
            self.assertEqual(home, (self.bytes("m.h"), self.bytes("m.tfmw")))
            first = self.bytes("libm.so")
            self.compile_with_weights(f"-march={MARCH[triple]}")
            self.assertEqual(first, self.bytes("libm.so"), "a row of the family is its default, and equal input gives equal bytes")

    def test_what_is_in_it(self):
        for triple, machine, page in ((HOME, EM_X86_64, 4096), (AARCH64, EM_AARCH64, 65536), (RISCV64, EM_RISCV, 4096)):
            if triple not in [HOME, *self.held]:
                continue
            self.compile("--cc=none", f"--target={triple}")
            data = self.bytes("libm.so")
            self.assertEqual(struct.unpack_from("<H", data, 18), (machine,))
            self.assertEqual(struct.unpack_from("<I", data, 48)[0] & DOUBLE_FLOATS, DOUBLE_FLOATS if triple == RISCV64 else 0)
            loaded = [s for s in segments(data) if s[0] == PT_LOAD]
            self.assertEqual([s[6] for s in loaded], [page, page])
            for _, flags, offset, address, *_ in loaded:
                self.assertEqual((address - offset) % page, 0)
                self.assertNotEqual(flags & 3, 3, "no page is writable and executable")
            (code, data_segment), (relro,) = loaded, [s for s in segments(data) if s[0] == PT_GNU_RELRO]
            self.assertEqual((relro[3] + relro[5]) % page, 0, "what is read-only ends with a page, however large pages are")
            self.assertGreaterEqual(data_segment[3] // page, -(-code[5] // page), "code and data share no page")
            tags = dict(dynamic(data))
            self.assertEqual(tags[DT_FLAGS_1] & DF_1_NOW, DF_1_NOW)
            for tag in DT_INIT, DT_INIT_ARRAY, DT_TEXTREL:
                self.assertNotIn(tag, tags)
            names = data[tags[DT_STRTAB]:tags[DT_STRTAB] + tags[DT_STRSZ]]  # what is not written lies where it is in the file
            needed = {names[value:names.index(b"\0", value)] for tag, value in dynamic(data) if tag == DT_NEEDED}
            self.assertLessEqual(needed, C_LIBRARY | C_LOADER.get(triple, set()), triple)

    def test_it_is_hardly_larger_than_one_for_x86_64(self):
        """A BERT-base without its weights; what lies in pages, without their padding. Tables are packed, so it is the code."""
        bytes_of = {}
        for triple in [HOME, *self.held]:
            self.tfmc("compile", MODELS / "bert.tfm", "--cc=none", f"--target={triple}", "-q", "-o", "libbert.so")
            bytes_of[triple] = sum(s[4] for s in segments(self.bytes("libbert.so")) if s[0] == PT_LOAD)
        for triple in self.held:
            self.assertLess(bytes_of[triple] / bytes_of[HOME], MOST_OF_X86_64, triple)

    def test_functions_need_no_relocations(self):
        """Kernels and drivers are told by distances: what the loader has to change are pointers of a few structs."""
        for triple in [HOME, *self.held]:
            self.tfmc("compile", MODELS / "bert.tfm", "--cc=none", f"--target={triple}", "-q", "-o", "libbert.so")
            self.assertLess(dict(dynamic(self.bytes("libbert.so")))[DT_RELACOUNT], 30, triple)

    def test_it_is_told_here_and_not_run(self):
        for triple in self.held:
            self.compile_with_weights(f"--target={triple}", "--embed-weights")
            self.assertIn(f"cannot run here: it is code for {triple}", self.tfmc("info", "libm.so").out)
            self.tfmc("run", "libm.so", *RUN, code=3, says=f"{MARCH[triple]} is code for {triple.split('-')[0]}; this machine is x86_64")
            self.tfmc("check", "libm.so")

    def test_files_for_libtfm_of_another_machine(self):
        for triple in self.held:
            self.compile_with_weights(f"--target={triple}", out="m.tfmm")
            self.assertIn(f"cannot run here: it is code for {triple}", self.tfmc("info", "m.tfmm").out)
            self.tfmc("run", "m.tfmm", *RUN, code=3, says=f"{MARCH[triple]} is code for {triple.split('-')[0]}; this machine is x86_64")
            self.assertEqual(self.mapped("m.tfmm"), f"m.tfmm holds code for {triple.split('-')[0]}, and this machine is x86_64; "
                             f"compile it again with --target={HOME}")

    def mapped(self, name):
        """What libtfm says of a file."""
        library = ctypes.CDLL(os.path.join(os.path.dirname(test_cli.TFMC), "libtfm.so"))
        error, model = ctypes.create_string_buffer(1024), ctypes.c_void_p()
        self.assertNotEqual(library.tfm_model_map(os.fsencode(self.path(name)), ctypes.byref(model), error), 0)
        return error.raw[4:].split(b"\0")[0].decode().removeprefix(f"{self.folder.name}/")

    def test_a_library_of_a_machine_that_is_unknown(self):
        self.compile_with_weights(f"--target={self.held[0]}", "--embed-weights")
        data = bytearray(self.bytes("libm.so"))
        struct.pack_into("<H", data, 18, EM_S390)
        self.path("libm.so").write_bytes(data)
        self.tfmc("run", "libm.so", *RUN, code=3, says="this machine is x86_64")


class Several(Case):
    """--target is a list: a library for each machine, and one header and one file of weights."""

    def setUp(self):
        super().setUp()
        said = re.search("libraries for: (.*)", self.tfmc("info").out).group(1)
        self.all = said.split(", ")
        if len(self.all) < 2:
            self.skipTest("this tfmc holds the runtime of one machine alone")

    def written(self):
        root = pathlib.Path(self.folder.name) / "out"
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def several(self, *args, **kwargs):
        return self.compile_with_weights(f"--target={','.join(self.all)}", *args, out="out", **kwargs)

    def test_each_file_is_that_of_its_machine_alone(self):
        self.several()
        modules = ("wasm32/model.wasm", "wasm32/model-relaxed.wasm", "wasm32/model.mjs", "wasm32/model.d.ts",
                   "wasm32/model.d.mts")
        libraries = {f"{triple}/libmodel.so" for triple in self.all if triple != "wasm32"}
        self.assertEqual(self.written(), {"model.h", "model.tfmw", *libraries, *(modules if "wasm32" in self.all else ())})
        for triple in self.all:
            alone = "alone/model" if triple == "wasm32" else "alone/libmodel.so"
            self.path("alone").mkdir(exist_ok=True)
            self.compile_with_weights(f"--target={triple}", *([] if triple == "wasm32" else ["--cc=none"]), out=alone)
            for name in sorted(self.written()):
                if name.startswith(triple) and not name.endswith(".mjs"):
                    self.assertEqual(self.bytes(f"out/{name}"), self.bytes(f"alone/{name.split('/')[1]}"), name)
            self.assertEqual(self.bytes("out/model.tfmw"), self.bytes("alone/model.tfmw"))
        self.assertEqual(self.bytes("out/model.h"), self.bytes("alone/model.h"))
        if "wasm32" in self.all:
            loader, alone = self.bytes("out/wasm32/model.mjs"), self.bytes("alone/model.mjs")
            self.assertEqual(loader, alone.replace(b'"model.tfmw"', b'"../model.tfmw"'))
            self.assertNotEqual(loader, alone)

    def test_the_one_of_this_machine_runs(self):
        self.several()
        here = [f"out/{HOME}/libmodel.so", "--weights", "out/model.tfmw"]
        self.tfmc("run", *here, *RUN, "--output", "library.safetensors")
        self.tfmc("run", "model.tfm", "-march=x86-64-v3", "--weights", "w.safetensors", *RUN, "--output", "text.safetensors")
        self.assertEqual(self.bytes("library.safetensors"), self.bytes("text.safetensors"))

    def test_the_folder_may_be_there_and_weights_may_be_inside(self):
        self.path("out").mkdir()
        self.several("--embed-weights")
        self.assertNotIn("model.tfmw", self.written())
        self.tfmc("run", f"out/{HOME}/libmodel.so", *RUN)

    def test_instruction_sets_of_each(self):
        if AARCH64 not in self.all:
            self.skipTest(f"no runtime for {AARCH64}")
        said = self.compile_with_weights(f"--target={AARCH64},{HOME}", "-march=x86-64,armv8-a,x86-64-v3", out="out").out
        self.assertEqual(said.splitlines(), [f"out/{AARCH64}/libmodel.so: for armv8-a", f"out/{HOME}/libmodel.so: for x86-64-v3, x86-64",
                                             "out/model.h: the header of all; weights out/model.tfmw"])

    def test_what_is_refused(self):
        two = f"--target={HOME},{self.all[1]}"
        other = next(march for triple, march in MARCH.items() if triple != self.all[1])
        for says, *args in ((f"{self.all[1]} is named twice", f"{two},{self.all[1]}"),
                            ("unknown target 'armv7'", f"--target={HOME},armv7"), ("unknown target ''", "--target=,"),
                            (f"no instruction set for {self.all[1]}", two, "-march=x86-64-v3"),
                            ("unknown instruction set 'nothing'", two, "-march=nothing"),
                            ("which --target does not name", two, f"-march=x86-64-v3,{other}"),
                            ("code alone is made for one machine", two, "--emit=llvm"), ("code alone is made for one machine", two, "-c"),
                            ("a C compiler links for one machine", two, "--cc=none"),
                            ("there are no modules that train", two, "--training"),
                            ("--embed-weights: needs --weights", two, "--embed-weights")):
            self.compile(*args, out="out", code=2, says=says)
            self.assertFalse(self.path("out").exists())
        for name in "libm.so", "m.tfmm", "m.wasm":
            self.compile(two, out=name, code=2, says="several machines: -o names a folder")
            self.assertFalse(self.path(name).exists())

    def test_after_an_error_no_folder_is_left(self):
        self.path("model.tfm").write_text(self.path("model.tfm").read_text() + "\n}")
        self.several(code=1)
        self.assertFalse(self.path("out").exists())

    def test_a_file_in_the_way_and_a_folder_that_is_missing(self):
        self.path("out").write_text("mine")
        self.several(code=3, says="cannot make the folder: there is a file of this name")
        self.assertEqual(self.path("out").read_text(), "mine")
        self.compile(f"--target={','.join(self.all)}", out="no/where", code=3, says="cannot make the folder: No such file or directory")


if __name__ == "__main__":
    test_cli.TFMC = os.path.abspath(sys.argv.pop(1))
    sys.exit(tally.run())
