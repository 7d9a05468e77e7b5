#!/usr/bin/env python3
"""usage: check_layers.py ROOT

The folders of compiler/ are layers: an include may only point to the file's own folder or to one further up the list.
llvm-c is included in codegen, kernels, jit and aot alone; the runtime includes nothing of the compiler.
"""
import pathlib
import re
import sys

LAYERS = ("base diag target ast parse graph elaborate passes incremental plan codegen kernels weights jit aot compile "
          "engines measure api cli").split()
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
    for file in sorted(root.glob("runtime/**/*.[ch]")):
        for included in INCLUDE.findall(file.read_text()):
            if included.split("/")[0] in LAYERS + ["llvm-c"]:
                yield f"{file}: the runtime may not include {included}"


def main():
    found = list(faults(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "the layers hold")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
