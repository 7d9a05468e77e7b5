#!/usr/bin/env python3
"""Makes the four distributions of the Python packages: usage: wheels.py BUILD FOLDER

BUILD was configured with TFM_LLVM_STATIC and has built tfmc and python_package, for this machine or, with a preset of
CMakePresets.json, for another one. Written to FOLDER: tfmc-runtime (the
import package tfmc, for Python 3.11 and all later versions), tfmc-compiler (the command tfmc), tfmc (needs both) and
tfmc-serve (the server; needs tfmc-runtime).
Equal inputs give equal files, byte for byte. scripts/wheels.sh checks and tests them.
"""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATE = (2020, 1, 1, 0, 0, 0)
# Debian packages whose code is linked into the command; their terms go with it.
LINKED = ("llvm-19-dev", "libstdc++-12-dev", "zlib1g-dev", "libzstd-dev", "libjansson-dev", "libpopt-dev")
NUMPY = "numpy>=1.26"
SERVE = ["tokenizers>=0.21", "httptools>=0.9", "uvloop>=0.23", "orjson>=3.13", "jinja2>=3.1.6"]
GRAMMAR = ["llguidance>=1.9"]  # for answers that follow a schema


def version():
    return re.search(r"project\(tfmc VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


class Wheel:
    """A wheel: files are added, then the list of them ends it."""

    def __init__(self, folder, name, tag, summary, requires=(), extras={}, page="python.md"):
        stem = f"{name.replace('-', '_')}-{version()}"
        self.path, self.info, self.data = folder / f"{stem}-{tag}.whl", f"{stem}.dist-info", f"{stem}.data"
        self.zip = zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.records = []
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version()}", f"Summary: {summary}",
                 "Requires-Python: >=3.11", *(f"Requires-Dist: {r}" for r in requires),
                 *(line for extra, needs in extras.items() for line in
                   [f"Provides-Extra: {extra}", *(f'Requires-Dist: {r}; extra == "{extra}"' for r in needs)]),
                 "Description-Content-Type: text/markdown", "", (ROOT / "docs" / page).read_text()]
        self.add(f"{self.info}/METADATA", "\n".join(lines).encode())
        pure = str(tag.endswith("any")).lower()
        self.add(f"{self.info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tfmc\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode())
        for file in ("LICENSE", "NOTICE"):
            self.add(f"{self.info}/licenses/{file}", (ROOT / file).read_bytes())

    def add(self, name, data, executable=False):
        info = zipfile.ZipInfo(name, DATE)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}")

    def end(self):
        record = f"{self.info}/RECORD"
        self.zip.writestr(zipfile.ZipInfo(record, DATE), "\n".join([*self.records, f"{record},,", ""]))
        self.zip.close()
        print(self.path)


def machine_of(build):
    """What BUILD is for, as `uname -m` says it there."""
    given = re.search(r"^TFM_MACHINE:\w+=(\w+)$", (build / "CMakeCache.txt").read_text(), re.M)
    return given[1] if given else os.uname().machine


def platform_of(build):
    return f"linux_{machine_of(build)}"  # auditwheel gives the wheels their final tag


def stripped(build, path):
    """The file without symbols and notes of the build."""
    machine = machine_of(build)
    strip = "strip" if machine == os.uname().machine else f"{machine}-linux-gnu-strip"
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / path.name
        subprocess.run([strip, "--strip-unneeded", "--remove-section=.comment", "-o", copy, path], check=True)
        return copy.read_bytes()


def make_runtime(build, folder):
    wheel = Wheel(folder, "tfmc-runtime", f"cp311-abi3-{platform_of(build)}", "runs models that tfmc has compiled", [NUMPY])
    package = ROOT / "python" / "runtime" / "tfmc"
    for file in sorted(package.rglob("*")):
        if file.suffix in (".py", ".pyi") or file.name == "py.typed":
            wheel.add(f"tfmc/{file.relative_to(package).as_posix()}", file.read_bytes())
    wheel.add("tfmc/_core.abi3.so", stripped(build, build / "python" / "tfmc" / "_core.abi3.so"), True)
    wheel.end()


def make_compiler(build, folder):
    wheel = Wheel(folder, "tfmc-compiler", f"py3-none-{platform_of(build)}", "the compiler tfmc for Transformer models")
    wheel.add(f"{wheel.data}/scripts/tfmc", stripped(build, build / "tfmc"), True)
    for package in LINKED:
        terms = pathlib.Path("/usr/share/doc") / package / "copyright"
        if terms.exists():
            wheel.add(f"{wheel.info}/licenses/{package}", terms.read_bytes())
    wheel.end()


def make_package(folder):
    needs = [f"tfmc-runtime=={version()}", f"tfmc-compiler=={version()}"]
    Wheel(folder, "tfmc", "py3-none-any", "compiler for Transformer models, for Python", needs,
          {"text": ["tokenizers>=0.21", "jinja2>=3.1.6"], "corpus": ["tokenizers>=0.21", "pyarrow>=15"],
           "ray": ["tokenizers>=0.21", "pyarrow>=15", "ray[data]"]}).end()


def make_serve(folder):
    wheel = Wheel(folder, "tfmc-serve", "py3-none-any", "serves models that tfmc has compiled over HTTP",
                  [f"tfmc-runtime=={version()}", *SERVE], {"grammar": GRAMMAR}, page="serving.md")
    package = ROOT / "python" / "serve" / "tfmc_serve"
    for file in sorted(package.rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            wheel.add(f"tfmc_serve/{file.relative_to(package).as_posix()}", file.read_bytes())
    wheel.add(f"{wheel.info}/entry_points.txt", b"[console_scripts]\ntfmc-serve = tfmc_serve.command:main\n")
    wheel.end()


def main(build, folder):
    build, folder = pathlib.Path(build), pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    make_runtime(build, folder)
    make_compiler(build, folder)
    make_package(folder)
    make_serve(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
