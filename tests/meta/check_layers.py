#!/usr/bin/env python3
"""usage: check_layers.py ROOT

The folders of compiler/ are layers: an include may only point to the file's own folder or to one further up the list.
llvm-c is included in codegen, kernels, jit and aot alone. The rooms of runtime/ are layers too, below the compiler: they
include nothing of it, each other by ROOM/FILE, and no file of one is named as one of another. One family of CPUs is known to
runtime/machine, the tile registers' header and the probe alone (intrinsics, cpuid, macros of compilers), and no
instruction set is read out of a text. What the compiler includes
of the runtime lies in runtime/include: no target of a layer may open another folder of it (target_include_directories).
"""
import pathlib
import re
import sys

LAYERS = ("base forms diag target ast parse format graph draw elaborate lsp passes incremental plan codegen kernels weights import jit aot api "
          "compile engines train measure explore cli").split()
RUNTIME_LAYERS = "include base machine pool context steps walk decode generate library train freestanding".split()
MAY_USE_LLVM = {"codegen", "kernels", "jit", "aot"}
INCLUDE_DIRECTORIES = re.compile(r"target_include_directories\(\s*(\S+)([^)]*)\)")
KNOWS_FAMILY = ("runtime/machine/", "runtime/include/tfm/abi/tiles.h", "compiler/measure/probe")
OF_FAMILY = re.compile(r"__(?:x86_64|aarch64|riscv)\w*__|\b[xepi]mmintrin\.h|\bimmintrin\.h|\barm_neon\.h|\b_mm\d*_\w+|"
                       r"\b__builtin_ia32_\w+|\b__get_cpuid\w*|\bgetauxval\b|\bR_(?:X86_64|AARCH64|RISCV)_\w+|\bEM_(?:X86_64|AARCH64|RISCV)\b|"
                       r"\bstrn?cmp\([^;\n]*\b(?:isa|\"x86)[^;\n]*\)|\bLLVMGetHostCPUFeatures\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)


def faults(root):
    for file in sorted(root.glob("compiler/**/*.[ch]")):
        layer = file.relative_to(root / "compiler").parts[0]
        if layer not in LAYERS:
            yield f"{file}: folder {layer} is not in the list of layers"
            continue
        for included in INCLUDE.findall(file.read_text()):
            folder = included.split("/")[0]
            if folder == "llvm-c" and layer not in MAY_USE_LLVM:
                yield f"{file}: {included} may not be included in {layer}"
            if "/" in included and folder in LAYERS and LAYERS.index(folder) > LAYERS.index(layer):
                yield f"{file}: {included} lies below {layer}"
            if included.startswith(".."):
                yield f"{file}: {included} is not given by its folder"
    yield from family_faults(root)
    yield from runtime_faults(root / "runtime")
    yield from opened_faults(root)


def family_faults(root):
    for file in sorted([*root.glob("compiler/**/*.[ch]"), *root.glob("runtime/**/*.[ch]")]):
        if str(file.relative_to(root)).startswith(KNOWS_FAMILY):
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if found := OF_FAMILY.search(line.split("/*")[0]):
                yield f"{file}:{number}: {found[0]} belongs to a family of CPUs, which runtime/machine or a table knows"


def opened_faults(root):
    """The compiler's targets that may include private headers of the runtime, and those of its files that do."""
    for file in [root / "CMakeLists.txt", *sorted(root.glob("cmake/*.cmake"))]:
        for target, folders in INCLUDE_DIRECTORIES.findall(file.read_text()):
            opened = re.findall(r"\$\{runtime_rooms\}|runtime/(?!include)[\w/]*", folders)
            if opened and target.removeprefix("tfm_") in LAYERS + ["${name}"]:
                yield f"{file}: {target} may not see {', '.join(opened)}"
    for file in sorted(root.glob("compiler/**/*.[ch]")):
        for included in INCLUDE.findall(file.read_text()):
            if (root / "runtime" / included).is_file() and not (root / "compiler" / included).is_file():
                yield f"{file}: {included} is private to the runtime"


def runtime_faults(runtime):
    files = sorted(runtime.glob("**/*.[ch]"))
    home = {}
    for file in files:
        layer = file.relative_to(runtime).parts[0]
        if layer == "include":
            continue
        if home.setdefault(file.stem, file.parent) != file.parent:
            yield f"{file}: {home[file.stem]} has a file of this name"
    for file in files:
        layer = file.relative_to(runtime).parts[0]
        if layer not in RUNTIME_LAYERS:
            yield f"{file}: folder {layer} is not in the list of layers of the runtime"
            continue
        text = file.read_text()
        for included in INCLUDE.findall(text):
            folder = "include" if included.startswith("tfm/") else included.split("/")[0]
            if folder in RUNTIME_LAYERS[1:] and (runtime / included).is_file():
                if RUNTIME_LAYERS.index(folder) > RUNTIME_LAYERS.index(layer):
                    yield f"{file}: {included} lies below {layer}"
            elif folder in LAYERS + ["llvm-c"]:
                yield f"{file}: the runtime may not include {included}"
        for included in re.findall(r'^\s*#\s*include\s*"([^"/]+)"', text, re.M):
            yield f"{file}: {included} is not given by its folder"


def main():
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "the layers hold")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
