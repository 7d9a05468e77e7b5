#!/usr/bin/env python3
"""usage: check_layers.py ROOT

The folders of compiler/ are layers: an include may only point to the file's own folder or to one further up the list.
llvm-c is included in codegen, kernels, jit and aot alone. The folders of runtime/ are layers too, below the compiler: they
include nothing of it. Their headers are included by name alone, so no two of them may have the same name.
"""
import pathlib
import re
import sys

LAYERS = ("base diag target ast parse format graph elaborate passes incremental plan codegen kernels weights import jit aot api "
          "compile engines train measure cli").split()
RUNTIME_LAYERS = "include core decode generate library train".split()
MAY_USE_LLVM = {"codegen", "kernels", "jit", "aot"}
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
    yield from runtime_faults(root / "runtime")


def runtime_faults(runtime):
    home = {}
    for header in sorted(runtime.glob("*/*.h")):
        if header.name in home:
            yield f"{header}: {home[header.name]} has a header of this name"
        home[header.name] = header.parent.name
    for file in sorted(runtime.glob("**/*.[ch]")):
        layer = file.relative_to(runtime).parts[0]
        if layer not in RUNTIME_LAYERS:
            yield f"{file}: folder {layer} is not in the list of layers of the runtime"
            continue
        for included in INCLUDE.findall(file.read_text()):
            folder = "include" if included.startswith("tfm/") else home.get(included, "include")
            if included.split("/")[0] in LAYERS + ["llvm-c"]:
                yield f"{file}: the runtime may not include {included}"
            if RUNTIME_LAYERS.index(folder) > RUNTIME_LAYERS.index(layer):
                yield f"{file}: {included} lies below {layer}"


def main():
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "the layers hold")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
