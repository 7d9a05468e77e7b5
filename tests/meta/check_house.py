#!/usr/bin/env python3
"""usage: check_house.py ROOT [--table]

Measures the product code (compiler/ and runtime/) and holds the limits of CONTRIBUTING.md: how long .c files are and
how many a folder holds, how long functions are and how many parameters they have, that every .c file has a head (its
first comment, or that of its header: what comes in, what goes out, what is refused), what stands between folders and
files (circles, names, headers), how forms of numbers are compared, and where numbers of tuning stand. Of docs/ it counts
the words that people wrote; what is printed from tables and patches does not count.

What is not yet as it should be has a row in RATCHETS: the number of exceptions that there are today, and where it is to
go. More are an error; when there are fewer, a line says so, and the bound is to be lowered. A bound never rises.

Functions are measured by Universal Ctags. Calls are found by name: file A calls file B where A uses a function that B defines
and that a header which A includes declares. A function reached by a pointer alone is no call. A circle of includes is one
of modules, a .c file and its header being one.
"""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

WORDS = "words of docs/, beside what is printed"

# what -> (exceptions today, or words; at most in the end)
RATCHETS = {
    "functions of more than 6 parameters, runtime": (3, 3),
    "functions of more than 6 parameters, compiler": (1, 1),
    ".c files with the name of another": (0, 0),
    "headers with the name of another": (0, 0),
    ".c files of more than 450 lines": (0, 0),
    "circles of includes, runtime": (0, 0),
    "circles of includes, compiler": (1, 1),
    "forms compared by their order": (0, 0),
    "static functions of one name in a folder of the runtime": (0, 0),
    "static functions of one name in several files of the runtime": (0, 0),
    "headers of functions that one .c file of another name defines": (0, 0),
    WORDS: (51886, 51903),
}
MOST_PARAMETERS, LONG_FILE = 6, 450
LEAST_MEDIAN, MOST_FUNCTION_P90, MOST_COLUMNS, MOST_CIRCLES = 150, 30, 120, 1
MOST_IN_ROOM, MOST_ROOM_LINES = 24, 8000
LEAST_COMMENTS, MOST_COMMENTS = 0.12, 0.18
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'')
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
INCLUDES_TABLE = re.compile(r'#\s*include\s*("[^"]+\.def"|[A-Z_]+$)', re.M)  # a macro: the table of a family
NAME = re.compile(r"\b[A-Za-z_]\w*\b")
PRINTED = re.compile(r"<!-- (?:tfmc document [\w-]+|patches) -->\n.*?<!-- end -->", re.S)
LOOP = re.compile(r"\bfor \([^;]*;[^;]*$")
# A form before or behind <, >, in place of a condition, or beside a number.
ORDER_OF_FORMS = re.compile(r"\b\w*form\s*(?:[<>]=?\s*[^<>=\s]|\?)|(?<![<>])[<>]=?\s*TFM_FORM_|\bTFM_FORM_\w+\s*[<>]|"
                            r"(?:->|\.)\w*form\s*(?:&&|\|\|)|(?:&&|\|\||!)\s*\w+(?:->|\.)\w*form\s*(?:[;)]|&&|\|\|)|"
                            r"\b(?:if|while) ?\(!?(?:\w+(?:->|\.))*(?:\w+_)?form\s*(?:\)|;|&&|\|\|)|"
                            r"\b(?:\w+_)?form\s*[!=]=\s*\d|(?<![\w)\]])!(?:\w+(?:->|\.))*(?:\w+_)?form\b(?!\w|\s*\()")


def product_files(root):
    return sorted(f for top in ("compiler", "runtime") for f in (root / top).glob("**/*") if f.suffix in (".c", ".h"))


def without_texts_and_comments(source):
    return COMMENT.sub(" ", TEXT.sub('""', source))


def without_comments(source):
    """The code, on the lines on which it stood."""
    return COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), TEXT.sub('""', source))


def has_head(source):
    """Whether the file begins with a comment of at least 40 characters; a line that asks for features of libc may precede it."""
    match = COMMENT.match(re.sub(r"\A(\s*#define _\w+[^\n]*\n)+", "", source).lstrip())
    return bool(match) and len(match[0]) >= 40


def headless(files, sources):
    for file in files:
        if file.suffix != ".c" or has_head(sources[file]):
            continue
        header = file.with_suffix(".h")
        if not (header in sources and has_head(sources[header])):
            yield f"{file}: neither it nor its header says what comes in and what goes out"


def functions(files):
    """(file, name, lines, whether it is static, parameters) of every function."""
    listed = "\n".join(str(f) for f in files)
    command = ["ctags", "--languages=C", "--kinds-C=f", "--fields=+neS", "--fields-C=+{properties}", "--extras-C=",
               "--output-format=json", "-f", "-", "-L", "-"]
    for line in subprocess.run(command, input=listed, capture_output=True, text=True, check=True).stdout.splitlines():
        tag = json.loads(line)
        length = tag.get("end", tag["line"]) - tag["line"] + 1
        yield pathlib.Path(tag["path"]), tag["name"], length, tag.get("file", False), parameters(tag["signature"])


def parameters(signature):
    """How many a list in parentheses has: commas between parentheses within it, of pointers to functions, do not count."""
    inner = signature[1:-1]
    while (flat := re.sub(r"\([^()]*\)", "", inner)) != inner:
        inner = flat
    return 0 if inner.strip() in ("", "void") else inner.count(",") + 1


def visible_names(root, sources):
    """file -> the names that stand in the headers it includes, directly or not."""
    folders = [root / "compiler", root / "runtime" / "include", root / "runtime"]
    names = {file: set(NAME.findall(without_texts_and_comments(source))) for file, source in sources.items()}
    included = {}
    for file, source in sources.items():
        paths = [folder / name for name in INCLUDE.findall(source) for folder in [file.parent, *folders]]
        included[file] = {path for path in paths if path in sources}

    def headers_of(file):
        seen, left = set(), [file]
        while left:
            new = included[left.pop()] - seen
            seen |= new
            left += new
        return seen

    return {file: set().union(*(names[header] for header in headers_of(file))) for file in sources}


def include_circles(root, top, sources):
    """Modules (paths without .c or .h) of a top folder whose files include each other's headers in a circle."""
    folders = [root / "compiler", root / "runtime" / "include", root / "runtime"]
    edges = {}
    for file, source in sources.items():
        if file.relative_to(root).parts[0] != top:
            continue
        for name in INCLUDE.findall(source):
            found = next((f / name for f in [file.parent, *folders] if f / name in sources), None) or by_name(name, sources)
            if found and found.with_suffix("") != file.with_suffix(""):
                edges.setdefault(file.with_suffix(""), set()).add(found.with_suffix(""))
    return circles(edges)


def by_name(name, sources):
    """A header that stands in a private folder and is included by its name alone."""
    return next((f for f in sources if f.name == name), None) if "/" not in name else None


def repeated(files, suffix):
    """The files that have the name of another one."""
    of_name = {}
    for file in files:
        if file.suffix == suffix:
            of_name.setdefault(file.name, []).append(file)
    return [f"{file}: {others[0]} has this name" for others in of_name.values() for file in others[1:]]


def calls(root, found, sources):
    """file -> the files whose global functions it uses."""
    owner, own = {}, {}
    for file, name, _, is_static, _ in found:
        own.setdefault(file, set()).add(name)
        if not is_static:
            owner.setdefault(name, file)
    visible = visible_names(root, sources)
    edges = {}
    for file, source in sources.items():
        if file.suffix == ".c":
            used = set(NAME.findall(without_texts_and_comments(source))) & visible[file]
            edges[file] = {owner[name] for name in used - own.get(file, set()) if name in owner} - {file}
    return edges


def circles(edges):
    """The strongly connected components of more than one file (Tarjan, Depth-first search and linear graph algorithms, 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(file):
        index[file] = low[file] = len(index)
        stack.append(file)
        for other in sorted(edges.get(file, ())):
            if other not in index:
                visit(other)
                low[file] = min(low[file], low[other])
            elif other in stack:
                low[file] = min(low[file], index[other])
        if low[file] == index[file]:
            component = []
            while not component or component[-1] != file:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for file in sorted(edges):
        if file not in index:
            visit(file)
    return found


def comment_share(sources):
    """Lines that hold a comment and no code, as a share of all lines that are not blank."""
    own = every = 0
    for source in sources.values():
        code = COMMENT.sub(lambda match: re.sub(r"[^\n]", "\0", match[0]), TEXT.sub('""', source))
        lines = [line for line in code.splitlines() if line.strip()]
        every += len(lines)
        own += sum("\0" in line and not line.replace("\0", "").strip() for line in lines)
    return own / every


def rooms(sources):
    """(.c files, lines of all files, folder) of every folder that holds code."""
    folders = {file.parent for file in sources}
    for folder in sorted(folders):
        own = [file for file in sources if file.parent == folder]
        yield sum(file.suffix == ".c" for file in own), sum(len(sources[file].splitlines()) for file in own), folder


# Parts of tfm_decoder -> the file that assigns their members. Others read them.
DECODER_PARTS = {"rows": "rows.c", "sources": "sources.c", "caches": "row_caches.c", "calls": "calls.c",
                 "staging": "staging.c", "lockstep": "lockstep.c"}
PART_WRITTEN = re.compile(r"decoder->(" + "|".join(DECODER_PARTS) + r")\.[\w.\[\]]+ *(?:(?:[-+*/|&]|<<|>>)?=(?!=)|\+\+|--)|"
                          r"(?<!const )\b(?:Rows|Sources|Caches|Calls|Staging|Lockstep) \*\w+ = &decoder->(\w+);")


def foreign_assignments(root, sources):
    """Lines of the decoder that assign a member of a part in a file that does not own the part."""
    for file, text in sources.items():
        if file.parent != root / "runtime" / "decode":
            continue
        code = without_comments(text)
        for match in PART_WRITTEN.finditer(code):
            part = match[1] or match[2]
            if DECODER_PARTS[part] != file.name:
                yield f"{file}:{code.count(chr(10), 0, match.start()) + 1}: `{part}` belongs to {DECODER_PARTS[part]}"


# Folders whose loops have their numbers on the page of tuning -> what is no tuning there: numbers that follow from a
# layout, from a type or from how a loop is written, and bounds of what callers may ask for.
LOOP_ROOMS = ("pool", "steps", "walk", "decode")
NO_TUNING = {
    "pool.c": "CACHE_LINE ACTIVE_BITS WORKER_STACK MOST_SPIN_US", "share.c": "UNIT_BITS",
    "share.h": "SHARE_MAX_UNITS SHARE_MAX_SERIAL", "one_row.c": "ROWS",
    "gradient_sums.c": "SEEN", "lines.h": "BESIDE", "step_scan.c": "MOST_WAITING",
    "step_table.c": "MOST_TOGETHER", "attention_int8.c": "FOUR ROWS_TOGETHER", "attention_grad_strip.h": "MOST_LISTS",
    "step_row.c": "COLUMN_CUT LONG_CUT", "cache_pages.c": "FOUR", "paged_attention.c": "MORE_FOLLOW",
    "logit_row.c": "WIDTH LANES BLOCK", "gemm_cut.h": "UNIT_ROWS", "best_tokens.c": "MOST_VOCAB OWN_BITS", "best_tokens.h": "MOST_BEST",
    "decoder.c": "N_BLOCKS", "decoder_state.h": "LEAST_KEPT MOST_TOGETHER",
}
ENUM = re.compile(r"(?<!typedef )\benum \{([^{}]*)\}")
NUMBER = re.compile(r"\b([A-Z][A-Z0-9_]*) = [^,]*?\d")


# The same for kernels, whose page is kernel_tuning.def: numbers of registers, of members, of bits.
KERNEL_NO_TUNING = {
    "direct.c": "MAX_ROWS FEW_ROWS MAX_COLUMNS QUARTER", "tile.h": "MAX_VECTORS", "pack_panel.c": "MAX_VECTORS",
    "matrix_tile.c": "MOST_SUMS TILE_A TILE_B N_TILES_B TILE_BYTES TURN B_ROWS", "reducer.h": "REDUCER_MAX_STATE",
    "line_passes.h": "LINE_NUMBERS LINE_RESULT", "quantize_rows.c": "MOST_POINTS", "quantize_parts.c": "ROUNDING_BITS",
    "quantize_rows.h": "INFINITE_BITS LEAST_BITS", "row_ops.c": "NORM_SHIFT GRAD_MEAN GRAD_SUM",
    "state.c": "MOST_SUMS", "state_grad.c": "N_SUMS", "tile_mmla.c": "COLUMNS VECTOR TURN STEPS MOST_PAIRS SQUARES",
}


def loose_numbers(root, sources):
    """Numbers in the code of loops that are neither on the page of tuning nor known not to be tuning."""
    for file, text in sources.items():
        top, room = file.relative_to(root).parts[:2]
        if top == "runtime" and room in LOOP_ROOMS:
            known, page = NO_TUNING, "runtime/include/tfm/abi/tuning_x86.def"
        elif (top, room) == ("compiler", "kernels"):
            known, page = KERNEL_NO_TUNING, "compiler/kernels/kernel_tuning.def"
        else:
            continue
        for name in (match[1] for body in ENUM.findall(without_comments(text)) for match in NUMBER.finditer(body)):
            if name not in known.get(file.name, "").split():
                yield (f"{file}: {name}: a number that was chosen for speed has a row in {page}; any other a place in "
                       f"NO_TUNING of {pathlib.Path(__file__).name}")


ATOMIC = re.compile(r"\b_Atomic\b[ (]+(?!u?int(?:32|64)_t\b)\w+|\batomic_\w*(?:bool|char|short|flag)\b")


def narrow_atomics(root, sources):
    """Atomic members of the runtime that are not 32 or 64 bits wide: RISC-V calls libatomic for narrower ones."""
    for file, text in sources.items():
        if file.relative_to(root).parts[0] == "runtime":
            for match in ATOMIC.finditer(without_texts_and_comments(text)):
                yield f"{file}: {match[0]}: atomics are int32_t, uint32_t, int64_t or uint64_t"


STATIC = re.compile(r"^(?:__attribute__\(\(\w+\)\) )?static (?:inline )?[\w \*]*?\b(\w+)\(", re.M)


def static_names(root, sources):
    """Names of static functions that stand in several .c files of the runtime -> those files."""
    files = {}
    for file, text in sources.items():
        if file.suffix == ".c" and file.relative_to(root).parts[0] == "runtime":
            for name in set(STATIC.findall(text)):
                files.setdefault(name, []).append(file)
    return {name: places for name, places in files.items() if len(places) > 1}


DECLARED = re.compile(r"^(?!static|typedef|#|return)[\w ]+[ *]+(\w+)\(", re.M)
MACRO = re.compile(r"^#define \w+\(.*?[^\\]$", re.M | re.S)


def headers_of_others(root, files, sources, found):
    """Headers whose functions one .c file defines, and it has another name. What needs no .c file of its own: types, tables,
    inline functions, and macros with the function that they call; a header between several files of a room is the room's, and
    one in a folder `include`, of runtime or compiler/api, a contract; nor may types that another header needs have one, where
    that header is what the functions need: both would include each other."""
    owner = {name: file for file, name, _, is_static, _ in found if file.suffix == ".c" and not is_static
             and "freestanding" not in file.parts}  # it defines what a C library does, whatever headers call it
    units = {file.stem for file in files if file.suffix == ".c"}
    for file in files:
        if file.suffix != ".h" or file.stem in units or "include" in file.relative_to(root).parts:
            continue
        code = without_comments(sources[file])
        called_by_macros = set(NAME.findall(" ".join(match[0] for match in MACRO.finditer(code))))
        declared = [name for name in DECLARED.findall(code) if name not in called_by_macros]
        there = {owner[name] for name in declared if name in owner}
        if len(there) == 1 and not includes_by_way(root, sources, *there, file):
            yield f"{file}: its functions are those of {there.pop()}"


def includes_by_way(root, sources, unit, header):
    """Whether a .c file includes a header that includes this one: the header could not have the file's name."""
    name = header.relative_to(root / header.relative_to(root).parts[0]).as_posix()
    others = [root / top / other for other in INCLUDE.findall(sources[unit]) for top in ("compiler", "runtime")]
    return any(name in INCLUDE.findall(sources[other]) for other in others if other in sources and other != header)


def words_of_pages(root):
    """page -> the words that people wrote in it."""
    return {page: len(PRINTED.sub("", page.read_text()).split()) for page in sorted((root / "docs").glob("**/*.md"))}


def exceptions(root, files, sources, found):
    """name of a ratchet -> a line for each exception."""
    many = {top: [f"{file}: {name} has {n} parameters; {MOST_PARAMETERS} are allowed" for file, name, _, _, n in found
                  if n > MOST_PARAMETERS and file.relative_to(root).parts[0] == top] for top in ("runtime", "compiler")}
    rings = {top: ["includes go in a circle: " + " ".join(str(unit.relative_to(root)) for unit in ring)
                   for ring in include_circles(root, top, sources)] for top in ("runtime", "compiler")}
    forms = [f"{file}:{code.count(chr(10), 0, match.start()) + 1}: `{match[0].strip()}`: ask what the form is (tfm_form_is_...)"
             for file in files for code in [without_comments(sources[file])] for match in ORDER_OF_FORMS.finditer(code)
             if not LOOP.search(code[code.rfind("\n", 0, match.start()):match.start()])]
    long = [f"{file}: {n} lines; above {LONG_FILE} look for a second topic"
            for file in files if file.suffix == ".c" and (n := len(sources[file].splitlines())) > LONG_FILE]
    alike = [f"{name} is a static function of {' and '.join(str(file) for file in there)}"
             for name, places in static_names(root, sources).items() for folder in sorted({file.parent for file in places})
             if len(there := [file for file in places if file.parent == folder]) > 1]
    return {
        "functions of more than 6 parameters, runtime": many["runtime"],
        "functions of more than 6 parameters, compiler": many["compiler"],
        ".c files with the name of another": repeated(files, ".c"),
        "headers with the name of another": repeated(files, ".h"),
        ".c files of more than 450 lines": long,
        "circles of includes, runtime": rings["runtime"],
        "circles of includes, compiler": rings["compiler"],
        "forms compared by their order": forms,
        "static functions of one name in a folder of the runtime": alike,
        "static functions of one name in several files of the runtime":
            [f"{name} is a static function of {' and '.join(map(str, places))}" for name, places in static_names(root, sources).items()],
        "headers of functions that one .c file of another name defines": [*headers_of_others(root, files, sources, found)],
    }


def measures(root, files, sources):
    """What is measured for the table and has no limit: (what, how much, where it is to go)."""
    lines = {top: sum(len(sources[f].splitlines()) for f in files if f.relative_to(root).parts[0] == top)
             for top in ("compiler", "runtime")}
    yield "lines of compiler / runtime", f"{lines['compiler']} / {lines['runtime']}", "fewer"
    yield "words of docs/, all", sum(len(f.read_text().split()) for f in (root / "docs").glob("**/*.md")), "fewer"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not shutil.which("ctags"):
        sys.exit("check_house.py needs Universal Ctags")
    sys.setrecursionlimit(10000)
    files = product_files(arguments.root)
    sources = {file: file.read_text() for file in files}
    short = [f for f in files if f.suffix == ".c" and len(sources[f].splitlines()) < 60]
    lengths = sorted(len(sources[f].splitlines()) for f in files if f.suffix == ".c")
    found = list(functions(files))
    sizes = sorted(lines for file, _, lines, _, _ in found if file.suffix == ".c")
    p90 = sizes[int(0.9 * (len(sizes) - 1))]
    rings = circles(calls(arguments.root, [row for row in found if row[0].suffix == ".c"], sources))
    comments = comment_share(sources)
    heads = list(headless(files, sources))
    most_files, most_lines = max(n for n, _, _ in rooms(sources)), max(n for _, n, _ in rooms(sources))
    rows = [
        (".c files / lines of the largest folder", f"{most_files} / {most_lines}",
         f"at most {MOST_IN_ROOM} and {MOST_ROOM_LINES}", most_files <= MOST_IN_ROOM and most_lines <= MOST_ROOM_LINES),
        ("median .c file, lines", int(statistics.median(lengths)), f"at least {LEAST_MEDIAN}",
         statistics.median(lengths) >= LEAST_MEDIAN),
        (".c files of fewer than 60 lines", len(short), "tables, commands and forms alone",
         all(INCLUDES_TABLE.search(sources[f]) or f.name.startswith(("command_", "form_")) for f in short)),
        ("longest .c file", lengths[-1], "at most 600", lengths[-1] <= 600),
        ("functions, p50 / p90 / longest", f"{int(statistics.median(sizes))} / {p90} / {sizes[-1]}",
         f"p90 at most {MOST_FUNCTION_P90}, none over 80", p90 <= MOST_FUNCTION_P90 and sizes[-1] <= 80),
        ("lines that are comments", f"{comments:.1%}", "12 to 18 %", LEAST_COMMENTS <= comments <= MOST_COMMENTS),
        (".c files without a head", len(heads), "none", not heads),
        ("groups of files that call each other in a circle", len(rings), f"at most {MOST_CIRCLES}", len(rings) <= MOST_CIRCLES),
    ]
    long_lines = [f"{file}:{i}: {len(line)} columns; {MOST_COLUMNS} are allowed" for file in files
                  for i, line in enumerate(sources[file].splitlines(), 1) if len(line) > MOST_COLUMNS]
    rows.append((f"lines over {MOST_COLUMNS} columns", len(long_lines), "none", not long_lines))
    unusual = exceptions(arguments.root, files, sources, found)
    counts = {name: len(lines) for name, lines in unusual.items()}
    pages = words_of_pages(arguments.root)
    counts[WORDS] = sum(pages.values())
    unusual[WORDS] = [f"{page}: {n} words" for page, n in sorted(pages.items(), key=lambda row: -row[1])[:10]]
    for name, (bound, goal) in RATCHETS.items():
        n = counts[name]
        rows.append((name, n, f"at most {bound}" + (f", on the way to {goal}" if goal < bound else ""), n <= bound))
    if arguments.table:
        print("| | here | limit |\n|---|---|---|")
        for name, value, limit, _ in rows:
            print(f"| {name} | {value} | {limit} |")
        for name, value, goal in measures(arguments.root, files, sources):
            print(f"| {name} | {value} | on the way to {goal} |")
        for ring in rings:
            print("circle:", " ".join(str(file.relative_to(arguments.root)) for file in ring))
        return 0
    faults = [f"{name}: {value}; the limit is {limit}" for name, value, limit, holds in rows if not holds] + heads + long_lines
    faults += foreign_assignments(arguments.root, sources)
    faults += loose_numbers(arguments.root, sources)
    faults += narrow_atomics(arguments.root, sources)
    if len(rings) > MOST_CIRCLES:
        faults += ["circle: " + " ".join(str(file.relative_to(arguments.root)) for file in ring) for ring in rings]
    for name, (bound, _) in RATCHETS.items():
        if counts[name] > bound:
            faults += unusual[name]
        elif counts[name] < bound:
            print(f"fewer {name}: {counts[name]}; RATCHETS in {pathlib.Path(__file__).name} says {bound}")
    print("\n".join(faults) or f"the house holds: {len(lengths)} .c files")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
