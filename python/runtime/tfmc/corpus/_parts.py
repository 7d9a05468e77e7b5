"""The parts of a corpus: what they are by metadata alone, the rows of one, and the file that is made of it.

A part is a range of rows of a row group of a parquet file, all of them if they are not too many, or the lines that
begin in a range of bytes of a file of text or JSON lines. So the list of parts costs no reading of rows, and every
process that makes it gets the same one. The output of a part is written under another name, brought to the disk and then
renamed: whoever dies leaves a whole file or none.

Refused: files of other kinds, columns that are not there, files that changed after the job began.
"""
import collections
import contextlib
import errno
import fcntl
import glob
import json
import os
import pathlib

import numpy as np

from .._errors import EnvError, InputError, UsageError

KINDS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".txt": "text"}
PART_BYTES = 1 << 20
ROW_BYTES = 128  # for which a row of parquet counts
HEAD_BYTES, HEAD_FILES = 1 << 20, 100  # of JSON lines, in which a column is looked for
FATAL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}  # another try, or another part, would fail too
UNLINKABLE = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}  # what file systems without links say

Part = collections.namedtuple("Part", "number path kind place begin end size")
# of a part: `place` is its row group, or its number in the file; begin and end are rows of the group, or bytes
File = collections.namedtuple("File", "path kind size groups")  # groups: the rows of each row group
# texts: a list; kept: columns by name; reasons: of rows without a text, by their numbers
Rows = collections.namedtuple("Rows", "texts kept reasons")


def need_pyarrow():
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise EnvError("parquet needs the package pyarrow: pip install pyarrow") from None
    return pyarrow


# ---- what there is ----

def paths(inputs):
    """The files that inputs name: paths, folders (all files in them of known kinds), patterns."""
    given = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    found = []
    for item in map(os.fspath, given):
        if os.path.isdir(item):
            names = [os.path.join(item, name) for name in os.listdir(item) if name[0] not in "._"]
            found += sorted(name for name in names if pathlib.Path(name).suffix in KINDS)
        elif glob.has_magic(item) and not os.path.exists(item):
            found += sorted(glob.glob(item, recursive=True))
        else:
            found.append(item)
    if not found:
        raise InputError(f"there are no files to read in {', '.join(map(str, given)) or 'an empty list'}: their names "
                         f"end with {', '.join(KINDS)}, and folders in folders need a pattern, folder/**/*.parquet")
    return [os.path.abspath(path) for path in found]


def describe(path, columns, text=None):
    """The File of a path, from its size and, of parquet, its footer. text: the column that must hold strings."""
    kind = KINDS.get(pathlib.Path(path).suffix)
    if kind is None:
        raise InputError(f"{path}: the kind is read from the end of the name, which is none of {', '.join(KINDS)}")
    try:
        size = os.stat(path).st_size
        groups = _groups(path, columns, text) if kind == "parquet" else []
    except OSError as error:
        raise EnvError(f"{path}: {error.strerror or error}") from None
    return File(path, kind, size, groups)


def _groups(path, columns, text):
    pyarrow = need_pyarrow()
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise InputError(f"{path}: {error}") from None
    with file:
        names = file.schema_arrow.names
        for column in columns:
            if names.count(column) != 1:
                what = "there are several columns" if column in names else "there is no column"
                raise InputError(f"{path}: {what} \"{column}\"; the columns are {', '.join(names)}")
        kind = None if text is None else file.schema_arrow.field(text).type
        if kind is not None and not _is_text(kind, pyarrow.types):
            raise InputError(f"{path}: the column \"{text}\" holds {kind}, no strings; cast it, or name another one of "
                             f"{', '.join(names)}")
        return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]


def _is_text(kind, types):
    """Whether a column has strings, or nothing at all, which the errors of its rows say."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return str(kind) in ("string", "large_string", "string_view", "null")


def check_lines(files, columns):
    """A column that JSON lines have nowhere at the beginning of their files is a wrong name. Refused before all rows
    have an error for it."""
    missing, first = dict.fromkeys(columns), None
    for file in [file for file in files if file.kind == "jsonl"][:HEAD_FILES]:
        for record in _head(file.path):
            first = first or (file.path, list(record))
            missing = {name: None for name in missing if name not in record}
            if not missing:
                return
    if first:
        raise InputError(f"{first[0]}: there is no \"{next(iter(missing))}\" in its first lines, nor in those of other "
                         f"files; the first has {', '.join(first[1])} (one that is rare: put a line that has it first)")


def _head(path):
    """The objects of the lines at a file's beginning."""
    with open(path, "rb") as file:
        for line in file.read(HEAD_BYTES).splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def parts_of(files, part_bytes):
    """The parts in the order of the files; their numbers name their outputs."""
    found = []
    for file in files:
        if file.kind == "parquet":
            ranges = [(group, *rows) for group, count in enumerate(file.groups)
                      for rows in _ranges(count, max(1, part_bytes // ROW_BYTES))]
        else:
            ranges = [(i, *of) for i, of in enumerate(_ranges(file.size, part_bytes))]
        found += [Part(len(found) + i, file.path, file.kind, *of, file.size) for i, of in enumerate(ranges)]
    return found


def _ranges(size, step):
    return [(begin, min(begin + step, size)) for begin in range(0, size, step)]


def parts(inputs, *, columns=(), part_bytes=PART_BYTES):
    """The parts of a corpus. columns: those that parquet files must have."""
    return parts_of([describe(path, columns) for path in paths(inputs)], part_bytes)


def output_name(part, suffix):
    return f"part-{part.number:06d}{suffix}"


# ---- the rows of a part ----

def read(part, column, keep):
    """The Rows of a part."""
    if os.stat(part.path).st_size != part.size:
        raise InputError(f"{part.path}: the file has another size than when the job began")
    return _read_group(part, column, keep) if part.kind == "parquet" else _read_lines(part, column, keep)


def _read_group(part, column, keep):
    pyarrow = need_pyarrow()
    with pyarrow.parquet.ParquetFile(part.path) as file:
        table = file.read_row_group(part.place, columns=[column, *(k for k in keep if k != column)])
    table = table.slice(part.begin, part.end - part.begin)
    return Rows(table[column].to_pylist(), {name: table[name] for name in keep}, {})


def _lines(part):
    """The lines that begin in the part's range of bytes, without their ends."""
    with open(part.path, "rb") as file:
        if part.begin:
            file.seek(part.begin - 1)
            file.readline()  # the rest of a line that begins before; just its end if a line begins here
        at = file.tell()
        while at < part.end and (line := file.readline()):
            at += len(line)
            yield line.rstrip(b"\n").removesuffix(b"\r")


def _read_lines(part, column, keep):
    texts, kept, reasons = [], {name: [] for name in keep}, {}
    for row, line in enumerate(_lines(part)):
        text, record = None, {}
        try:
            if part.kind == "text":
                text = line.decode()
            else:
                record = json.loads(line)
                text = record[column]
        except UnicodeDecodeError as error:
            reasons[row] = f"the line is no UTF-8: {error.reason} at byte {error.start}"
        except ValueError as error:
            reasons[row] = f"the line is no JSON: {error}"
        except (KeyError, TypeError):
            reasons[row] = (f"there is no \"{column}\"" if isinstance(record, dict) else "the line is no JSON object")
        texts.append(text)
        for name in keep:
            kept[name].append(record.get(name) if isinstance(record, dict) else None)
    return Rows(texts, kept, reasons)


# ---- the output of a part ----

def _create(path):
    """(file, its name): a new one that nobody else writes, locked, so that others see that its writer lives."""
    while True:
        name = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
        file = open(name, "xb")
        with contextlib.suppress(OSError):  # a file system without locks, where nobody is taken for dead
            fcntl.flock(file, fcntl.LOCK_EX)
        if name.exists():
            return file, name
        file.close()  # somebody took it for a dead writer's before it was locked


@contextlib.contextmanager
def _beside(path):
    """(file, its name), which is removed at the end if it still has this name."""
    file, name = _create(path)
    try:
        with file:
            yield file, name
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def put(path, data):
    """Writes the file if there is none: the first one who does is right."""
    with _beside(path) as (file, name):
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        try:
            os.link(name, path)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in UNLINKABLE:
                raise
            if not path.exists():
                os.rename(name, path)


@contextlib.contextmanager
def whole(path):
    """A file that appears under this name with all that was written to it, or not at all."""
    path = pathlib.Path(path)
    with _beside(path) as (file, name):
        yield file
        file.flush()
        os.fsync(file.fileno())
        os.rename(name, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def clean(folder):
    """Removes what dead writers left. A file that somebody writes is locked, wherever that one runs."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            if entry.name.startswith(".") and entry.name.endswith(".tmp"):
                with contextlib.suppress(OSError), open(entry.path, "r+b") as file:  # or it lives, or it is gone
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(entry.path)


def write(path, rows, name, values, reasons):
    """The kept columns and one column more, in the order of the rows; null where there is a reason."""
    with whole(path) as file:
        (_write_parquet if path.suffix == ".parquet" else _write_lines)(file, rows, name, values, reasons)


def _write_parquet(file, rows, name, values, reasons):
    pyarrow = need_pyarrow()
    made = np.ones(len(rows.texts), bool)
    made[list(reasons)] = False
    if isinstance(values, np.ndarray):
        flat = pyarrow.array(values.reshape(-1))
        column = pyarrow.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=pyarrow.array(~made))
    else:
        column = pyarrow.array(values, pyarrow.string())
    columns = {key: value if isinstance(value, pyarrow.ChunkedArray) else pyarrow.array(value)
               for key, value in rows.kept.items()}
    # Vectors have few equal numbers: dictionaries and compression of them cost time and save nothing.
    texts = [*rows.kept, *([] if isinstance(values, np.ndarray) else [name])]
    pyarrow.parquet.write_table(pyarrow.table({**columns, name: column}), file, use_dictionary=list(rows.kept),
                                compression={key: "snappy" for key in texts} or "none")


def _write_lines(file, rows, name, values, reasons):
    kept = {key: value if isinstance(value, list) else value.to_pylist() for key, value in rows.kept.items()}
    is_vectors = isinstance(values, np.ndarray)
    numbers = "[" + ", ".join(["%.9g"] * values.shape[1]) + "]" if is_vectors else ""  # 9 digits are all of an f32
    for row in range(len(rows.texts)):
        head = json.dumps({key: value[row] for key, value in kept.items()}, ensure_ascii=False, default=str)
        if row in reasons:
            value = "null"
        else:
            value = numbers % tuple(values[row].tolist()) if is_vectors else json.dumps(values[row], ensure_ascii=False)
        comma = ", " if kept else ""
        file.write(f"{head[:-1]}{comma}{json.dumps(name)}: {value}}}\n".encode("utf-8", "backslashreplace"))
