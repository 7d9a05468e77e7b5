#!/usr/bin/env python3
"""usage: exported_symbols.py TFMC LIBTFM [--write]

What a compiled library and libtfm export, and which libraries they need, must be what exported_symbols.txt says: a name
more is a promise nobody meant, a name less breaks programs. --write makes the list anew. The last line is
`N passed, N failed`.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

LIST = pathlib.Path(__file__).with_suffix(".txt")
MODELS = {
    "model": "model Listed {\n  forward(x: f32[n]) { return y = x * 2 }\n}\n",
    "writer": """model Listed {
  table = Embedding(8, 8)
  forward(ids: i32[batch, time]) { return scores = table(ids) }
  generate ids from scores { bos = 1 }
}
""",
}
HEAD = """# Names that libraries export, and the libraries they need (besides the loader). <model>: the prefix of the model; model: one
# without a generate block, writer: one with it.
# Checked by exported_symbols.py, which also writes this list.
"""


def output(*args):
    return subprocess.run([str(a) for a in args], check=True, capture_output=True, text=True).stdout


def describe(kind, path):
    """The lines of the list for a library."""
    lines = []
    for line in output("nm", "-D", "--defined-only", path).splitlines():
        name = line.split()[2]
        if line.split()[1] == "A":  # the name of a version
            continue
        lines.append(f"{kind} {re.sub('^listed_', '<model>_', name)}")
    for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", path)):
        if not name.startswith("ld-linux"):
            lines.append(f"{kind} needs {name}")
    soname = re.findall(r"\(SONAME\).*\[(.*)\]", output("readelf", "-d", path))
    return sorted(lines) + [f"{kind} is called {name}" for name in soname]


def main():
    tfmc, libtfm = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        model, library = pathlib.Path(folder, "listed.tfm"), pathlib.Path(folder, "liblisted.so")
        found = []
        for kind, text in MODELS.items():
            model.write_text(text)
            output(tfmc, "compile", model, "-o", library, "-q")
            found += describe(kind, library)
        found += describe("libtfm", libtfm)
    if sys.argv[3:] == ["--write"]:
        LIST.write_text(HEAD + "\n".join(found) + "\n")
    wanted = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    wrong = [f"not in the list: {line}" for line in found if line not in wanted]
    wrong += [f"missing: {line}" for line in wanted if line not in found]
    for line in wrong:
        print("FAIL", line)
    print(f"{len(found) - sum(w.startswith('not') for w in wrong)} passed, {len(wrong)} failed")
    return bool(wrong)


sys.exit(main())
