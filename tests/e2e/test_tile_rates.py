#!/usr/bin/env python3
"""How near the loops of tiles come to the most products that a core of another machine does in a cycle, by llvm-mca: no such
machine has to be there. It knows no memory, so what it says is what the instructions alone allow.

usage: test_tile_rates.py TFMC

Needs llvm-mca-19 (Debian: llvm-19), else it says so and nothing is counted. The last line is 'N passed, N failed'.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import tally
import test_cli

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens"
F32, INT8 = [str(GOLDENS / "encoder-stack/model.tfm")], [str(GOLDENS / "q8-encoder/model.tfm"), "--quantize=int8"]
AARCH64, RISCV64 = ("aarch64", "//", ""), ("riscv64", "#", "# LLVM-MCA-RISCV-LMUL M4\n# LLVM-MCA-RISCV-SEW E32\n")
TURNS = 200
# Machine, instruction set, model, product, products of a turn of the widest tile, and of each core the registers that it
# multiplies in a cycle at most. A product of RISC-V's is four registers. The least share that is wanted comes last.
ROWS = [
    (AARCH64, "armv8-a", F32, "fmla", 96, 1, {"neoverse-n1": 2, "neoverse-n2": 2, "neoverse-v1": 4, "neoverse-v2": 4}, 0.97),
    (AARCH64, "armv8.2-a-dotprod", INT8, "sdot", 64, 1, {"neoverse-n1": 2, "neoverse-n2": 2, "neoverse-v2": 4}, 0.88),
    # values of attention: 64 products, and 8 that add the values, which do not count
    (AARCH64, "armv8.2-a-dotprod", INT8, "sdot", 72, 64 / 72, {"neoverse-n1": 2, "neoverse-n2": 2, "neoverse-v2": 4}, 0.88),
    (AARCH64, "armv8.6-a-i8mm", INT8, "usdot", 64, 1, {"neoverse-n2": 2, "neoverse-v2": 4}, 0.99),
    (AARCH64, "armv8.6-a-i8mm", INT8, "usmmla", 32, 1, {"neoverse-n2": 2, "neoverse-v2": 4}, 0.79),
    (RISCV64, "rv64gcv", F32, r"vfma\w+\.v[vf]", 24, 4, {"sifive-p670": 2}, 0.97),
]


def loop(tfmc, comment, march, model, product, n):
    """The instructions of the shortest loop of so many products: others of as many do more beside."""
    made = subprocess.run([tfmc, "dump", *model, "--stage=asm", f"-march={march}"], capture_output=True, text=True, check=True)
    blocks = [block for block in re.split(r"\n(?=\.LBB)", made.stdout) if len(re.findall(rf"\t{product}\t", block)) == n]
    shortest = min(blocks, key=lambda block: block.count("\n"))
    lines = [line.split(comment)[0].rstrip() for line in shortest.splitlines()]
    return [line for line in lines if line.strip() and not line.strip().startswith(".")]


# Instruction sets of modules: the product of their tile of 4 x 8, which has 8 of them in a step and splats 4 numbers.
MODULES = {"wasm32-simd128": r"f32x4\.mul", "wasm32-relaxed-simd": r"f32x4\.relaxed_madd"}
PRODUCTS, SPLATS, ENGINE_REGISTERS = 8, 4, 16


def vectors_kept(loop):
    """The locals that hold vectors: what is set behind an instruction on vectors."""
    return set(re.findall(r"\t(?:v128|f32x4|i32x4)\.[^\n]*\n\tlocal\.(?:tee|set)\t(\d+)", loop))


class Rates(test_cli.Case):
    def test_modules_keep_few_vectors(self):
        """Engines on x86-64 and elsewhere have 16 registers or more: a turn of a tile that keeps more uses the stack."""
        for march, product in MODULES.items():
            made = subprocess.run([test_cli.TFMC, "dump", *F32, "--stage=asm", f"-march={march}"], capture_output=True, text=True,
                                  check=True)
            loops = [text.split("end_loop")[0] for text in re.split(r"\n\tloop\b", made.stdout)[1:]]
            tiles = [text for text in loops if len(re.findall(rf"\t{product}\n", text)) >= PRODUCTS
                     and text.count("v128.load32_splat") >= SPLATS]
            self.assertTrue(tiles, march)
            for text in tiles:
                self.assertLessEqual(len(vectors_kept(text)), ENGINE_REGISTERS, text)

    def test_tiles(self):
        if not shutil.which("llvm-mca-19"):
            self.skipTest("no llvm-mca-19 (Debian: llvm-19)")
        for (machine, comment, begin), march, model, product, n, registers, cores, wanted in ROWS:
            body = loop(test_cli.TFMC, comment, march, model, product, n)
            self.assertFalse([line for line in body if re.search(r"\[sp|\(sp\)", line)], f"{march}: the stack is used")
            for core, most in cores.items():
                with self.subTest(march=march, core=core):
                    said = subprocess.run(["llvm-mca-19", f"-mtriple={machine}", f"-mcpu={core}", f"-iterations={TURNS}", "-"],
                                          input=begin + "\n".join(body) + "\n", capture_output=True, text=True, check=True).stdout
                    cycles = int(re.search(r"^Total Cycles: +(\d+)$", said, re.MULTILINE)[1]) / TURNS
                    self.assertGreaterEqual(n * registers / cycles / most, wanted)


if __name__ == "__main__":
    test_cli.TFMC = os.path.abspath(sys.argv.pop(1))
    sys.exit(tally.run())
