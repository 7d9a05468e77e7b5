#!/usr/bin/env python3
"""usage: check_documents_tables.py TFMC ROOT [--write]

The documents say what the tables of the compiler say. Between `<!-- tfmc document TABLE -->` and `<!-- end -->` a page
holds what that command prints, or what the sources of the server and of the standard library say (serve-options,
standard-functions); each table has its page, and the manual page names every row of those that it is made from. Between `<!-- patches -->` and `<!-- end -->` stands what tests/meta/patches say a change of each
kind takes (check_cost.py --page). Paths, test names and links in the documents lead somewhere. --write prints the tables anew.
"""
import ast
import fnmatch
import pathlib
import re
import subprocess
import sys

import check_cost

PAGES = ["docs/**/*.md", "*.md", "bench/*.md", "grammar/*.md", "examples/*/*.md", "tests/goldens/README.md"]
MARKED = re.compile(r"(<!-- tfmc document ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.S)
PATCHES = re.compile(r"(<!-- patches -->\n)(.*?)(<!-- end -->)", re.S)
FENCED = re.compile(r"^ *```.*?^ *```$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
PATH = re.compile(r"[\w.*+-]+(?:/[\w.*+-]+)*/?")
SUFFIXES = {".c", ".h", ".def", ".py", ".md", ".tfm", ".sh", ".y", ".l", ".case", ".cmake"}
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b")  # FILE.tfm, tests/golden/PASS
# Pages that name files which their reader makes: there only names with a folder are looked for.
OF_THE_READER = ("docs/library.md", "docs/generation.md", "README.md", "examples/")
NOT_DOCUMENTS = {"man", "bash", "zsh", "fish"}
IN_THE_MANUAL = ["commands", "options", "stages", "diagnostics", "exit-codes", "environment"]
SKIPPED_FOLDERS = {"build", ".git"}


def tables_of(tfmc):
    """The names that `tfmc document` knows, from the message that lists them."""
    said = subprocess.run([tfmc, "document", "?"], capture_output=True, text=True).stderr
    names = re.search(r"there are ([^\[\n]+)", said)[1].strip().split(", ")
    return [name for name in names if name not in NOT_DOCUMENTS]


def printed(tfmc, table):
    return subprocess.run([tfmc, "document", table], capture_output=True, text=True, check=True).stdout


def serve_options(root):
    """The options of tfmc-serve, from the calls that declare them."""
    rows = ["| option | what (default) |", "|---|---|"]
    for call in ast.walk(ast.parse((root / "python/serve/tfmc_serve/command.py").read_text())):
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "add" or call.args[0].value == "--version":
            continue
        said = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg != "type"}
        if call.args[0].value.startswith("--"):
            values = said.get("metavar", ", ".join(said.get("choices", ())))
            rows.append(f"| `{call.args[0].value} {values}".strip() + f"` | {said['help'] % {'default': said.get('default')}} |")
    return "\n".join(rows) + "\n"


def standard_functions(root):
    """The functions that the language is given in itself, with the comment above each."""
    rows = ["| function | |", "|---|---|"]
    for name in ("std", "functions", "losses"):
        text = (root / f"compiler/elaborate/std/{name}.tfm").read_text()
        for comment, function in re.findall(r"((?:^# .*\n)*)^fn ([a-z]\w*\([^\n]*?\))(?= =| \{)", text, re.M):
            rows.append(f"| `{function}` | {' '.join(line[2:] for line in comment.splitlines())} |")
    return "\n".join(rows) + "\n"


def check_tables(tfmc, root, pages, write):
    texts = {table: printed(tfmc, table) for table in tables_of(tfmc)}
    texts |= {"serve-options": serve_options(root), "standard-functions": standard_functions(root)}
    shown = set()
    for page in pages:
        old = page.read_text()
        name = page.relative_to(root)
        for _, table, text, _ in MARKED.findall(old):
            if table not in texts:
                yield f"{name}: tfmc document has no table '{table}'"
            elif text != texts[table] and not write:
                yield f"{name}: the table '{table}' is not what tfmc document prints; --write prints it anew"
            if name.name in ("reference.md", "explore.md", "import.md", "serving.md", "language.md"):
                shown.add(table)
        if len(MARKED.findall(old)) != old.count("<!-- tfmc document "):
            yield f"{name}: a table without its <!-- end -->"
        new = MARKED.sub(lambda m: m[1] + texts.get(m[2], m[3]) + m[4], old)
        if write and new != old:
            page.write_text(new)
    for table in texts.keys() - shown:
        yield f"docs/reference.md: it does not show the table '{table}'"
    yield from check_manual(tfmc, texts)


def letters(text):
    """What is compared of a cell: no spaces, no marks, no case, for the manual capitalises sentences."""
    return re.sub(r"[\s`]|\\(?=\|)", "", text).lower()


def check_manual(tfmc, texts):
    """Every row of a table stands in the manual page: its name, and what it means, without the marks of roff."""
    manual = re.sub(r"\\f[BIR]|\\[:&]", "", printed(tfmc, "man")).replace("\\-", "-").replace("\\e", "\\")
    manual = letters(manual.replace("\n.B ", "\n"))
    for table in IN_THE_MANUAL:
        for row in texts[table].splitlines()[2:]:
            name, *rest = re.split(r"(?<!\\)\|", row.strip("|"))
            meaning = rest[1] if table == "diagnostics" else rest[0].split("; may be repeated")[0]
            for cell in (name, meaning):
                if letters(cell) not in manual:
                    yield f"tfmc document man: it lacks '{cell.strip()}' of the table '{table}'"


def check_patches(root, pages, write):
    text, shown = check_cost.page(root), 0
    for page in pages:
        old = page.read_text()
        shown += len(PATCHES.findall(old))
        new = PATCHES.sub(lambda m: m[1] + text + m[3], old)
        if new != old and write:
            page.write_text(new)
        elif new != old:
            yield f"{page.relative_to(root)}: what a change takes is not what the patches say; --write prints it anew"
    if not shown:
        yield "no page shows what a change takes: <!-- patches -->"


def project_files(root):
    """All files and folders, as paths below the root, and those that patches make."""
    found, left = {name for patch in check_cost.patches(root) for name in patch.created}, [root]
    while left:
        for entry in left.pop().iterdir():
            if entry.name in SKIPPED_FOLDERS:
                continue
            found.add(entry.relative_to(root).as_posix())
            if entry.is_dir() and not entry.is_symlink():
                left.append(entry)
    return found


def is_path(token, folders):
    """Whether a piece of code in a text is meant as a file or folder of the project."""
    if not PATH.fullmatch(token) or token.startswith(("build", "-", ".")):
        return False
    if "/" in token:
        return token.split("/")[0] in folders or pathlib.PurePath(token).suffix in SUFFIXES
    return pathlib.PurePath(token).suffix in SUFFIXES or bool(re.fullmatch(r"test_\w+", token))


def exists(token, files):
    """Whether some path ends with the token, its segments whole; the suffix of a file may be left out."""
    token = PLACEHOLDER.sub("*", token.rstrip("/"))
    patterns = [token, "*/" + token, token + ".*", "*/" + token + ".*"]
    return any(fnmatch.fnmatchcase(file, pattern) and file.count("/") >= token.count("/")
               for pattern in patterns for file in files)


def check_paths(root, pages):
    files = project_files(root)
    folders = {part for file in files for part in file.split("/")[:-1]}
    for page in pages:
        text = FENCED.sub("", page.read_text())
        name = page.relative_to(root).as_posix()
        for token in sorted({word for code in CODE.findall(text) for word in [code, *code.split()]}):
            if name.startswith(OF_THE_READER) and "/" not in token:
                continue
            if is_path(token, folders) and not exists(token, files):
                yield f"{name}: there is no {token}"
        for target, _ in LINK.findall(text):
            if "://" not in target and not (page.parent / target).exists():
                yield f"{name}: the link to {target} leads nowhere"


def main():
    tfmc, root = sys.argv[1], pathlib.Path(sys.argv[2])
    pages = sorted({page for pattern in PAGES for page in root.glob(pattern)})
    write = "--write" in sys.argv[3:]
    found = [*check_tables(tfmc, root, pages, write), *check_patches(root, pages, write), *check_paths(root, pages)]
    print("\n".join(found) or f"{len(pages)} documents agree with the tables and with the files")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
