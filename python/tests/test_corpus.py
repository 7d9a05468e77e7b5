"""Corpora: the parts of files, jobs that are interrupted in every way, and that their bytes are always the same.

TFM_CORPUS_KILLS: how many random moments each test of a kill has.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import tfmc
from test_generate import Checkpoint, hear_interrupts
from test_text import TextCase, tokenizers, write_tokenizer

if tokenizers:
    import tfmc.corpus
    from tfmc.corpus import _engines, _job, _parts

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None

KILLS = int(os.environ.get("TFM_CORPUS_KILLS", "3"))
ODD = ['{"id": 7}', '{"id": 8, "text": null}', '{"id": 9, "text": 4}', '[1]', '{"text"', 
       '{"id": 10, "text": "\\ud800"}', '{"id": 11, "text": "' + "a " * 50 + '"}', b'{"id": 12, "text": "\xff"}', '']


def lines(count, seed=1):
    choose = random.Random(seed)
    texts = [" ".join(choose.choices("abc", k=choose.randint(1, 12))) for _ in range(count)]
    return [json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)]


def write_lines(path, given):
    given = [line if isinstance(line, bytes) else line.encode() for line in given]
    pathlib.Path(path).write_bytes(b"".join(b"%s\n" % line for line in given))
    return path


def outputs(folder):
    """The bytes of the parts by their names; nothing else may lie beside them."""
    found = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir() if path.name != "_job"}
    for name in found:
        assert name.startswith("part-"), name
    return found


def hears_interrupts(pid):
    """Whether Ctrl-C would end it."""
    try:
        fields = dict(line.split(":\t") for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        return not (int(fields["SigBlk"], 16) | int(fields["SigIgn"], 16)) >> (signal.SIGINT - 1) & 1
    except OSError:
        return False


def environment():
    """That of a process that finds the package and these tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def records(folder):
    return [json.loads(line) for _, data in sorted(outputs(folder).items()) for line in data.splitlines()]


def children(pid):
    """The workers of a process."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                if b"tfmc.corpus._engines" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        except OSError:
            pass
    return found


def lives(pid):
    """Whether it still does something; one that has ended waits, as a zombie, for whoever adopted it."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class CorpusCase(TextCase):
    """A tiny sentence encoder as a file, its tokenizer's folder, and the bytes that one process makes of 600 lines."""

    kind = "sentence_mean"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.checkpoint.folder / "sentences.tfmm"
        cls.checkpoint.model.save(cls.model)
        cls.input = write_lines(cls.checkpoint.folder / "corpus.jsonl", lines(600))
        cls.given = dict(model=cls.model, tokenizer=cls.checkpoint.folder, keep=["id"], part_bytes=1500, progress=False)
        cls.whole = cls.checkpoint.folder / "whole"
        if not cls.whole.exists():
            tfmc.corpus.embed(cls.input, cls.whole, engine="here", **cls.given)
        cls.expected = outputs(cls.whole)

    def out(self):
        return pathlib.Path(self.folder()) / "out"

    def command(self, output, *more, task="embed", given=None):
        return [sys.executable, "-m", "tfmc.corpus", task, str(given or self.input), str(output),
                f"--model={self.model}", f"--tokenizer={self.checkpoint.folder}", "--keep=id", "--part-bytes=1500",
                *more]

    def start(self, output, *more, command=None, given=None, **named):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command or self.command(output, *more, given=given), env=environment(), text=True,
                                **{**pipes, **named})

    def finish(self, process):
        out, error = process.communicate(timeout=900)
        return process.returncode, out, error

    def instead(self, owner, name, value):
        """Until the end of the test the owner has this value; what it had before."""
        before = getattr(owner, name)
        self.addCleanup(setattr, owner, name, before)
        setattr(owner, name, value)
        return before


class Parts(CorpusCase):
    def test_every_line_is_in_one_part(self):
        path = pathlib.Path(self.folder()) / "a.txt"
        for data in (b"a\nbb\n\nccc\r\nd", b"a\n" * 9, b"\n\n", b"", b"long line without an end"):
            path.write_bytes(data)
            whole = data.removesuffix(b"\n").split(b"\n") if data else []
            whole = [line.removesuffix(b"\r").decode() for line in whole]
            for size in range(1, len(data) + 2):
                found = [text for part in tfmc.corpus.parts(path, part_bytes=size)
                         for text in _parts.read(part, "text", ()).texts]
                self.assertEqual(found, whole, (data, size))

    def test_files_are_found(self):
        folder = pathlib.Path(self.folder())
        for name in ("b.txt", "a.jsonl", ".c.txt", "_d.txt", "e.csv"):
            (folder / name).write_text("{}\n")
        names = [pathlib.Path(part.path).name for part in tfmc.corpus.parts(folder)]
        self.assertEqual(names, ["a.jsonl", "b.txt"])
        self.assertEqual(len(tfmc.corpus.parts([folder / "b.txt", folder / "a.jsonl"])), 2)
        self.assertEqual(len(tfmc.corpus.parts(str(folder / "b*.txt"))), 1)
        self.refused(tfmc.InputError, "e.csv", tfmc.corpus.parts, folder / "e.csv")
        self.refused(tfmc.EnvError, "none.txt", tfmc.corpus.parts, folder / "none.txt")
        self.refused(tfmc.InputError, "no files", tfmc.corpus.parts, str(folder / "*.parquet"))


class Writers(CorpusCase):
    """Files that several write, or that nobody writes any more."""

    def test_two_of_one_process(self):
        path = pathlib.Path(self.folder()) / "a"
        with _parts.whole(path) as one:
            one.write(b"who")
            with _parts.whole(path) as two:
                two.write(b"whole")
            self.assertEqual(path.read_bytes(), b"whole")
            one.write(b"le")
        self.assertEqual((path.read_bytes(), os.listdir(path.parent)), (b"whole", ["a"]))

    def test_the_first_is_right(self):
        path = pathlib.Path(self.folder()) / "a"
        _parts.put(path, b"first")
        _parts.put(path, b"second")
        self.assertEqual((path.read_bytes(), os.listdir(path.parent)), (b"first", ["a"]))

        def no_links(*names):
            raise PermissionError(1, "Operation not permitted")
        self.instead(os, "link", no_links)
        for data in (b"first", b"second"):
            _parts.put(path.with_name("b"), data)
        self.assertEqual((path.with_name("b").read_bytes(), sorted(os.listdir(path.parent))), (b"first", ["a", "b"]))

    def test_what_the_dead_left_is_removed(self):
        """Wherever they ran, in all folders; not what somebody writes, though its name may be that of a dead one."""
        output = self.out()
        tfmc.corpus.embed(self.input, output, part="0/9", **self.given)
        (output / "_job" / "errors").mkdir(exist_ok=True)
        left = [folder / ".part-000001.jsonl.elsewhere.1.tmp" for folder in
                (output, output / "_job", output / "_job" / "errors")]
        for path in left:
            path.write_bytes(b"{")
        with _parts.whole(output / "part-000002.jsonl") as file:
            file.write(self.expected["part-000002.jsonl"])
            written = next(path for path in output.glob(".part-000002*"))
            dead = written.with_name(f".part-000002.jsonl.{os.uname().nodename}.{2 ** 22}.tmp")  # a pid that nobody has
            written.rename(dead)
            tfmc.corpus.embed(self.input, output, part="1/9", **self.given)
            self.assertEqual([path for path in left if path.exists()], [])
            self.assertTrue(dead.exists())
            dead.rename(written)
        tfmc.corpus.embed(self.input, output, **self.given)
        self.assertEqual(outputs(output), self.expected)

    def test_a_file_that_is_taken_for_dead_is_begun_again(self):
        path, lock = pathlib.Path(self.folder()) / "a", fcntl.flock

        def late(file, how):
            if how == fcntl.LOCK_EX and not late.cleaned:
                late.cleaned = True
                _parts.clean(path.parent)
            lock(file, how)
        late.cleaned = False
        self.instead(fcntl, "flock", late)
        with _parts.whole(path) as file:
            file.write(b"whole")
        self.assertEqual((late.cleaned, path.read_bytes(), os.listdir(path.parent)), (True, b"whole", ["a"]))

    def test_errors_of_a_part_that_died_before_its_rows_count_once(self):
        path = write_lines(self.checkpoint.folder / "odd3.jsonl", ODD[:3] + lines(100))
        output = self.out()
        tfmc.corpus.embed(path, output, engine="here", **self.given)
        (output / "part-000000.jsonl").unlink()
        summary = tfmc.corpus.embed(path, output, engine="here", max_errors=3, **self.given)
        self.assertEqual((summary.done, summary.errors), (1, 3))


class Jobs(CorpusCase):
    def test_vectors_are_the_embedders(self):
        made = records(self.whole)
        texts = [json.loads(line)["text"] for line in self.input.read_text().splitlines()]
        self.assertEqual([record["id"] for record in made], list(range(600)))
        self.assertGreater(len(self.expected), 10)
        vectors = np.array([record["embedding"] for record in made], np.float32)
        self.assertEqual(vectors.tobytes(), tfmc.text.Embedder(self.checkpoint.model).encode(texts).tobytes())

    def test_bytes_do_not_depend_on_workers_and_runs(self):
        for more in (dict(workers=1), dict(workers=2), dict(workers=2, threads=2, batch_tokens=7)):
            output = self.out()
            summary = tfmc.corpus.embed(self.input, output, **self.given, **more)
            self.assertEqual(outputs(output), self.expected)
            self.assertEqual((summary.rows, summary.done, summary.errors), (600, len(self.expected), 0))

    def test_shares_make_the_whole(self):
        output = self.out()
        for share in (2, 0, 1):
            summary = tfmc.corpus.embed(self.input, output, part=f"{share}/3", **self.given)
            self.assertEqual(summary.parts, len(range(share, len(self.expected), 3)))
        self.assertEqual(outputs(output), self.expected)
        self.assertTrue((output / "_job" / "summary-1-of-3.json").exists())
        for wrong in ("3/3", "1", "-1/3", "a/b"):
            self.refused(tfmc.UsageError, "I/N", tfmc.corpus.embed, self.input, output, part=wrong, **self.given)

    def test_what_is_done_is_not_done_again(self):
        output = self.out()
        tfmc.corpus.embed(self.input, output, engine="here", **self.given)
        gone = sorted(outputs(output))[::3]
        for name in gone:
            (output / name).unlink()
        kept = {path.name: path.stat().st_mtime_ns for path in output.glob("part-*")}
        summary = tfmc.corpus.embed(self.input, output, workers=2, **self.given)
        self.assertEqual((summary.done, summary.skipped), (len(gone), len(kept)))
        self.assertEqual({name: (output / name).stat().st_mtime_ns for name in kept}, kept)
        self.assertEqual(outputs(output), self.expected)

    def test_another_job_in_the_folder_is_refused(self):
        output = self.out()
        tfmc.corpus.embed(self.input, output, part="0/9", **self.given)
        other = write_lines(self.checkpoint.folder / "other.jsonl", lines(3))
        run = tfmc.corpus.embed
        self.refused(tfmc.InputError, ["job.json", "inputs"], run, other, output, **self.given)
        self.refused(tfmc.InputError, ["options"], run, self.input, output, prompt="a ", **self.given)
        self.refused(tfmc.InputError, ["keep"], run, self.input, output, **{**self.given, "keep": []})
        self.refused(tfmc.InputError, ["task"], tfmc.corpus.translate, self.input, output, truncate=True, **self.given)
        settings = self.checkpoint.folder / "sentence_bert_config.json"  # a model with other results
        before = settings.read_text() if settings.exists() else None
        settings.write_text('{"max_seq_length": 9}')
        try:
            self.refused(tfmc.EnvError, "other bits", run, self.input, output, engine="here", **self.given)
            self.refused(tfmc.EnvError, "other bits", run, self.input, output, workers=2, **self.given)
        finally:
            settings.unlink() if before is None else settings.write_text(before)
        tfmc.corpus.embed(self.input, output, engine="here", **self.given)
        self.assertEqual(outputs(output), self.expected)

    def test_rows_that_cannot_be_done(self):
        path = write_lines(self.checkpoint.folder / "odd.jsonl", lines(5) + ODD + lines(2))
        output = self.out()
        summary = tfmc.corpus.embed(path, output, engine="here", truncate=False, **self.given)
        made = records(output)
        self.assertEqual((summary.rows, summary.errors, len(made)), (16, 9, 16))
        self.assertEqual([row for row, record in enumerate(made) if record["embedding"] is None], list(range(5, 14)))
        errors = [json.loads(line) for line in (output / "_job" / "errors.jsonl").read_text().splitlines()]
        self.assertEqual([(e["part"], e["row"], e["path"]) for e in errors],
                         [(0, row, str(path)) for row in range(5, 14)])
        words = ['"text"', "null", "int", "object", "JSON", "surrogate", "52 tokens", "UTF-8", "JSON"]
        for error, word in zip(errors, words):
            self.assertIn(word, error["reason"])
        cut = self.out()
        self.assertEqual(tfmc.corpus.embed(path, cut, engine="here", **self.given).errors, 8)

    def test_max_errors_ends_the_job(self):
        path = write_lines(self.checkpoint.folder / "odd2.jsonl", lines(100) + ODD[:3] + lines(300))
        output = self.out()
        self.refused(tfmc.InputError, ["3 rows", "errors.jsonl"], tfmc.corpus.embed, path, output, engine="here",
                     max_errors=2, **self.given)
        self.assertTrue(0 < len(outputs(output)) < len(tfmc.corpus.parts(path, part_bytes=1500)))
        self.assertEqual(tfmc.corpus.embed(path, output, engine="here", max_errors=3, **self.given).errors, 3)

    def test_a_part_that_cannot_be_read_is_named_and_the_others_are_done(self):
        first, second = (write_lines(self.checkpoint.folder / f"{name}.jsonl", lines(60, seed)) for seed, name in
                         enumerate(("first", "second")))
        good, output = self.out(), self.out()
        tfmc.corpus.embed([first, second], good, engine="here", **self.given)
        tfmc.corpus.embed([first, second], output, part="0/99", **self.given)
        hidden = second.rename(second.with_suffix(".away"))
        self.refused(tfmc.EnvError, ["failed 2 times", "second.jsonl", "No such file"], tfmc.corpus.embed,
                     [first, second], output, workers=2, retries=1, **self.given)
        self.assertEqual(outputs(output), {n: b for n, b in outputs(good).items() if n in outputs(output)})
        self.assertEqual(len(outputs(output)), len(tfmc.corpus.parts(first, part_bytes=1500)))
        failed = json.loads((output / "_job" / "summary.json").read_text())["failed_parts"]
        self.assertEqual({f["path"] for f in failed}, {str(second)})
        hidden.rename(second)
        with second.open("a") as file:
            file.write("{}\n")
        self.refused(tfmc.EnvError, ["another size"], tfmc.corpus.embed, [first, second], output, engine="here",
                     **self.given)
        write_lines(second, lines(60, 1))
        tfmc.corpus.embed([first, second], output, workers=2, **self.given)
        self.assertEqual(outputs(output), outputs(good))

    def test_text_and_a_folder_that_is_compiled_once(self):
        path = self.checkpoint.folder / "plain.txt"
        path.write_text("a b\nc\n\nb b")
        os.environ["TFMC_CORPUS_CACHE"] = self.folder()
        self.addCleanup(os.environ.pop, "TFMC_CORPUS_CACHE")
        output = self.out()
        tfmc.corpus.embed(path, output, model=self.checkpoint.folder, workers=2, progress=False)
        vectors = np.array([record["embedding"] for record in records(output)], np.float32)
        wanted = tfmc.text.Embedder(self.checkpoint.model).encode(["a b", "c", "", "b b"])
        self.assertEqual(vectors.tobytes(), wanted.tobytes())
        kept = os.environ["TFMC_CORPUS_CACHE"]
        self.assertEqual(sorted(name.rpartition(".")[2] for name in os.listdir(kept)), ["lock", "tfmm"])
        file, again = next(pathlib.Path(kept).glob("*.tfmm")), self.out()
        file.write_bytes(file.read_bytes()[:5000])  # what this build cannot open is compiled again
        tfmc.corpus.embed(path, again, model=self.checkpoint.folder, workers=2, progress=False)
        self.assertEqual(outputs(again), outputs(output))
        self.refused(tfmc.UsageError, "columns", tfmc.corpus.embed, path, self.out(), model=self.model, keep=["id"],
                     tokenizer=self.checkpoint.folder, progress=False)
        self.refused(tfmc.UsageError, "tokenizer=", tfmc.corpus.embed, path, self.out(), model=self.model,
                     progress=False)

    def test_translations(self):
        checkpoint = Checkpoint("marian")
        folder = checkpoint.copy(self.out())
        write_tokenizer(folder, checkpoint.case["files"]["config.json"]["vocab_size"])
        model = folder / "m.tfmm"
        checkpoint.model.save(model)
        path = write_lines(folder / "corpus.jsonl", lines(40))
        given = dict(model=model, tokenizer=folder, part_bytes=700, progress=False, max_new_tokens=5,
                     num_beams=3)
        one, two = self.out(), self.out()
        tfmc.corpus.translate(path, one, engine="here", **given)
        tfmc.corpus.translate(path, two, workers=2, batch_tokens=9, **given)
        self.assertEqual(outputs(one), outputs(two))
        texts = [json.loads(line)["text"] for line in path.read_text().splitlines()]
        wanted = tfmc.text.Translator(checkpoint.model, folder=folder).translate(texts, max_new_tokens=5, num_beams=3)
        self.assertEqual([record["translation"] for record in records(one)], wanted)
        self.assertTrue(any(wanted))

    def test_the_command(self):
        output = self.out()
        code, out, error = self.finish(self.start(output, "--workers=2"))
        self.assertEqual((code, outputs(output)), (0, self.expected), error)
        summary = json.loads(out)
        self.assertEqual((summary["rows"], summary["workers"]), (600, 2))
        self.assertEqual(json.loads(error.splitlines()[-1])["done"], len(self.expected))
        code, out, error = self.finish(self.start(output, "--prompt=x"))
        self.assertEqual((code, out), (1, ""))
        self.assertIn("another job", error)
        self.assertEqual(self.finish(self.start(output, "--engine=spark"))[0], 2)


# A process that dies after a random number of bytes, of those that it writes, and of calls, which count as 300 bytes.
MOMENTS = """if True:
    import os, pathlib, random, signal, sys
    from tfmc.corpus import _parts, _worker
    from tfmc.corpus.__main__ import main
    output, good, times = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    left, choose = [0], random.Random(7)

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def pays(call):
        def paying(*args, **named):
            left[0] -= 150
            if left[0] < 0: die()
            result = call(*args, **named)
            left[0] -= 150
            if left[0] < 0: die()
            return result
        return paying

    class File:
        def __init__(self, file): self.file = file
        def __getattr__(self, name): return getattr(self.file, name)
        def __enter__(self): return self
        def __exit__(self, *error): self.file.close()
        def write(self, data):
            data = bytes(data)
            if len(data) > left[0]:
                self.file.write(data[:left[0]])
                self.file.flush()
                die()
            left[0] -= len(data)
            return self.file.write(data)

    _parts.open = lambda *args, **named: File(pays(open)(*args, **named)) if args[1] == "xb" else open(*args, **named)
    names = ("fsync", "rename", "unlink", "link")
    _parts.os = type("os", (), {**vars(os), **{name: staticmethod(pays(getattr(os, name))) for name in names}})
    wanted = {path.name: path.read_bytes() for path in good.glob("part-*")}
    all_of_it = sum(map(len, wanted.values())) + 1200 * len(wanted)
    killed = 0
    while killed < times:
        left[0] = choose.randrange(all_of_it)
        child = os.fork()
        if child == 0:
            os.dup2(2, 1)
            os._exit(main(sys.argv[4:]))
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL), status
        killed += status == signal.SIGKILL
        found = [path for path in output.iterdir() if path.name != "_job"] if output.exists() else []
        for path in found:
            assert path.suffix == ".tmp" or path.read_bytes() == wanted[path.name], path
        assert status or len(found) == len(wanted)
        if len(found) > len(wanted) / 2:
            for path in found:
                if path.suffix != ".tmp": path.unlink()
    print(killed, "times")
"""

# A job on a disk that is full, and again when it has room.
FULL = """if True:
    import pathlib, subprocess, sys
    from tfmc.corpus.__main__ import main
    room, good, arguments = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    def parts(folder): return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "_job"}
    wanted, out = parts(good), pathlib.Path(room, "out")
    for _ in range(2):
        assert main(arguments) == 1
        done = parts(out)
        assert 0 < len(done) < len(wanted) and done.items() < wanted.items(), done.keys()
        assert not list((out / "_job").rglob(".*")), list((out / "_job").rglob(".*"))
    subprocess.run(["mount", "-o", "remount,size=10m", room], check=True)
    assert main(arguments) == 0 and parts(out) == wanted
    print("whole")
"""


class Kills(CorpusCase):
    """Whoever is killed: every row is there once, in the bytes that one process makes."""

    def test_workers(self):
        """One job after the other, until so many workers were killed, at work and while they begin."""
        stop, killed, choose, most = threading.Event(), [], random.Random(5), [0]

        def kill():
            while not stop.wait(choose.random() * 0.6):
                for pid in children(os.getpid())[:1] if len(killed) < most[0] else ():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
        self.instead(_engines, "FALSE_STARTS", 10 ** 6)
        thread, deaths = threading.Thread(target=kill), 0
        thread.start()
        try:
            while len(killed) < KILLS or not deaths:  # a worker may be killed when it is not needed any more
                output, most[0] = self.out(), len(killed) + 3  # then a job ends, even where workers begin slowly
                deaths += tfmc.corpus.embed(self.input, output, workers=2, retries=10 ** 6, **self.given).deaths
                self.assertEqual(outputs(output), self.expected)
        finally:
            stop.set()
            thread.join()

    def test_a_worker_dies_before_it_is_given_a_part(self):
        """Its pipe is closed already when the part is written: the part is a dead worker's, as if it had begun."""
        left = [signal.SIGKILL, signal.SIGRTMIN + 3, signal.SIGTERM]  # one of them has no name

        def late(child, part):
            if left:
                child.process.send_signal(left.pop())
                child.process.wait()
            give(child, part)
        give = self.instead(_engines._Child, "give", late)
        output = self.out()
        self.assertEqual(tfmc.corpus.embed(self.input, output, workers=2, retries=3, **self.given).deaths, 3)
        self.assertEqual(outputs(output), self.expected)

    def test_a_worker_dies_in_the_middle_of_an_answer(self):
        """Of its first one, of the one that a part is done, and of the one that a part has failed."""
        scratch = self.folder()
        self.instead(_engines._Child, "program", f"""if True:
            import os, signal
            from tfmc.corpus import _engines
            write = os.write
            def half(file, data):
                try:
                    os.close(os.open({scratch!r} + "/" + data[2:6].decode(), os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return write(file, data)
                write(file, data[:9])
                os.kill(os.getpid(), signal.SIGKILL)
            os.write = half
            _engines.child()
        """)
        output = self.out()
        summary = tfmc.corpus.embed(self.input, output, workers=2, **self.given)
        self.assertEqual((summary.deaths, summary.failed, summary.done + summary.skipped), (2, 0, len(self.expected)))
        self.assertEqual(outputs(output), self.expected)
        path = write_lines(self.checkpoint.folder / "gone.jsonl", lines(9))
        output = self.out()
        tfmc.corpus.embed([self.input, path], output, part="0/99", **self.given)
        path.unlink()
        self.refused(tfmc.EnvError, ["failed 3 times", "gone.jsonl"], tfmc.corpus.embed, [self.input, path], output,
                     workers=2, **self.given)
        self.assertEqual(sorted(os.listdir(scratch)), ["done", "fail", "read"])
        self.assertEqual(outputs(output), self.expected)

    def test_starts_that_fail(self):
        """Workers that die before they are ready end the job if no other start worked between them."""
        scratch = self.folder()
        program = f"""if True:
            import os, signal
            from tfmc.corpus import _engines
            count = len(os.listdir({scratch!r}))
            open({scratch!r} + f"/{{count}}-{{os.getpid()}}", "w").close()
            if count in %s: os.kill(os.getpid(), signal.SIGKILL)
            _engines.child()
        """
        self.instead(_engines._Child, "program", program % "range(3)")
        output = self.out()
        self.assertEqual(tfmc.corpus.embed(self.input, output, workers=1, **self.given).deaths, 3)
        self.assertEqual(outputs(output), self.expected)
        _engines._Child.program = program % "range(100)"
        self.refused(tfmc.EnvError, ["4 died", "SIGKILL"], tfmc.corpus.embed, self.input, self.out(), workers=1,
                     **self.given)

    def test_a_worker_that_cannot_be_started(self):
        """Those before it end, and it is said."""
        begun, popen = [], subprocess.Popen

        def second_fails(*args, **named):
            if begun:
                raise BlockingIOError(11, "Resource temporarily unavailable")
            begun.append(popen(*args, **named))
            return begun[0]
        self.instead(subprocess, "Popen", second_fails)
        before = len(os.listdir("/proc/self/fd"))
        self.refused(tfmc.EnvError, ["cannot be started", "temporarily"], tfmc.corpus.embed, self.input, self.out(),
                     workers=2, **self.given)
        self.assertIsNotNone(begun[0].returncode)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_workers_that_stand_still_end_too(self):
        """Ctrl-C while a worker is stopped, as a debugger or a batch system does it."""
        output, stopped = self.out(), []

        def stop(facts):
            if stopped:
                return  # it is told of the end too
            stopped.extend(children(os.getpid()))
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            raise KeyboardInterrupt
        self.instead(tfmc.corpus._progress, "EVERY", {False: 0})
        given = {**self.given, "progress": stop}
        with self.assertRaises(KeyboardInterrupt):
            tfmc.corpus.embed(self.input, output, workers=2, **given)
        self.assertFalse(any(map(lives, stopped)))
        self.assertTrue(stopped)
        tfmc.corpus.embed(self.input, output, workers=2, **self.given)
        self.assertEqual(outputs(output), self.expected)

    def interrupted(self, output, path, until):
        """The job is begun, and the process and its workers get Ctrl-C, as a terminal gives it to all of them."""
        process = self.start(output, "--workers=2", given=path, start_new_session=True, preexec_fn=hear_interrupts)
        while process.poll() is None and not until(process.pid):
            time.sleep(0.001)
        self.assertEqual([pid for pid in children(process.pid) if hears_interrupts(pid)], [])
        os.killpg(process.pid, signal.SIGINT)
        code, _, error = self.finish(process)
        self.assertEqual(code, 130, error)
        self.assertIn("interrupted", error)
        self.assertNotIn("Traceback", error)  # of a worker

    def test_ctrl_c(self):
        """While workers begin, and while they work."""
        path = write_lines(self.checkpoint.folder / "long.jsonl", lines(6000))
        output, good = self.out(), self.out()
        self.interrupted(output, path, children)
        self.assertEqual(outputs(output), {})
        self.interrupted(output, path, lambda pid: any(output.glob("part-*")))
        some = outputs(output)
        tfmc.corpus.embed(path, good, engine="here", **self.given)
        self.assertEqual(some, {name: data for name, data in outputs(good).items() if name in some})
        tfmc.corpus.embed(path, output, workers=2, **self.given)
        self.assertEqual(outputs(output), outputs(good))

    def test_nobody_listens(self):
        """Who reads the progress and the summary is gone, or was never there."""
        def without_errors():
            os.close(2)
        for named in ({}, {"stderr": None, "preexec_fn": without_errors}):
            output = self.out()
            process = self.start(output, "--workers=2", **named)
            process.stdout.close()
            if process.stderr:
                process.stderr.close()
            self.assertEqual(process.wait(), 0)
            self.assertEqual(outputs(output), self.expected)

    def test_drivers(self):
        output, choose, killed = self.out(), random.Random(6), 0
        while killed < KILLS:  # one that has ended before does not count
            process = self.start(output, "--workers=2", "--no-progress")
            done = len(list(output.glob("part-*")))
            while process.poll() is None and len(list(output.glob("part-*"))) == done < len(self.expected):
                time.sleep(0.01)
            time.sleep(choose.random() * 0.1)
            workers = children(process.pid)
            process.kill()
            process.communicate()
            self.assertIn(process.returncode, (0, -signal.SIGKILL))
            killed += process.returncode != 0
            while any(map(lives, workers)):  # they end with it
                time.sleep(0.01)
            if len(list(output.glob("part-*"))) == len(self.expected):
                for path in sorted(output.glob("part-*"))[::2]:
                    path.unlink()
        tfmc.corpus.embed(self.input, output, workers=2, **self.given)
        self.assertEqual(outputs(output), self.expected)

    def test_in_the_middle_of_a_write(self):
        """At random moments between two bytes of a file, and before and after calls of the system."""
        for format in ("jsonl", "parquet")[:2 if pyarrow else 1]:
            output, good = self.out(), self.out()
            tfmc.corpus.embed(self.input, good, engine="here", format=format, **self.given)
            command = self.command(output, "--engine=here", "--no-progress", f"--format={format}")
            _, out, error = self.finish(self.start(
                output, command=[sys.executable, "-c", MOMENTS, str(output), str(good), str(KILLS), *command[3:]]))
            self.assertEqual(out, f"{KILLS} times\n", error)
            tfmc.corpus.embed(self.input, output, engine="here", format=format, **self.given)
            self.assertEqual(outputs(output), outputs(good))
            self.assertEqual([path for path in (output / "_job").rglob(".*")], [])

    def test_files_can_get_no_longer(self):
        """As far as a process can tell, the disk is full: at the first file of the job, and at a part."""
        for engine, most in (("here", 4000), ("processes", 4000), ("here", 10)):
            output = self.out()
            limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))\n"
            program = limit + "from tfmc.corpus.__main__ import main; import sys; sys.exit(main(sys.argv[1:]))"
            command = [sys.executable, "-c", program, *self.command(output, f"--engine={engine}")[3:]]
            code, _, error = self.finish(self.start(output, command=command))
            self.assertEqual(code, 1, error)
            self.assertIn("File too large", error)
            self.assertIn(str(output), error)
            self.assertNotIn("Traceback", error)
            self.assertEqual(outputs(output), {})
            tfmc.corpus.embed(self.input, output, engine="here", **self.given)
            self.assertEqual(outputs(output), self.expected)

    def test_the_disk_is_full(self):
        """A file system in memory with room for half of the parts, and later for all of them."""
        room, half = self.folder(), sum(-len(data) // 4096 * -4096 for data in self.expected.values()) // 2
        mount = f"mount -t tmpfs -o size={half} tmpfs '{room}'"
        inside = ["unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c"]
        try:
            subprocess.run([*inside, mount], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest(f"no file system can be mounted here: {getattr(error, 'stderr', error)}")
        for engine in ("here", "processes"):
            command = [*inside, f"{mount} && exec \"$@\"", "sh", sys.executable, "-c", FULL, room,
                       str(self.whole), *self.command(f"{room}/out", f"--engine={engine}", "--no-progress")[3:]]
            code, out, error = self.finish(self.start(None, command=command))
            self.assertEqual((code, out.splitlines()[-1:]), (0, ["whole"]), error)
            self.assertIn("No space left on device", error)
            self.assertNotIn("Traceback", error)

    def test_two_jobs_in_one_folder(self):
        output = self.out()
        both = [self.start(output, "--workers=1", "--no-progress") for _ in range(2)]
        for process in both:
            code, _, error = self.finish(process)
            self.assertEqual(code, 0, error)
        self.assertEqual(outputs(output), self.expected)


@unittest.skipUnless(pyarrow, "not run: the package pyarrow is missing")
class Parquet(CorpusCase):
    def setUp(self):
        texts = [json.loads(line)["text"] for line in self.input.read_text().splitlines()]
        texts[3] = None
        self.texts, self.path = texts, pathlib.Path(self.folder()) / "corpus.parquet"
        table = pyarrow.table({"body": texts, "id": list(range(600)), "more": [str(i) for i in range(600)]})
        pyarrow.parquet.write_table(table, self.path, row_group_size=64)
        self.given = dict(model=self.model, tokenizer=self.checkpoint.folder, column="body", keep=["id", "more"],
                          progress=False)

    def test_a_large_row_group_is_several_parts(self):
        """What pandas writes has one row group; the bytes of its parts are those of the same rows elsewhere."""
        one = self.path.with_name("one.parquet")
        pyarrow.parquet.write_table(pyarrow.parquet.read_table(self.path), one)
        self.assertEqual(pyarrow.parquet.ParquetFile(one).num_row_groups, 1)
        ranges = [(part.place, part.begin, part.end) for part in tfmc.corpus.parts(one, part_bytes=64 * 128)]
        self.assertEqual(ranges, [(0, k, min(k + 64, 600)) for k in range(0, 600, 64)])
        self.assertEqual(len(tfmc.corpus.parts(one)), 1)
        good, made = self.out(), self.out()
        tfmc.corpus.embed(self.path, good, engine="here", **self.given)
        tfmc.corpus.embed(one, made, workers=2, part_bytes=64 * 128, **self.given)
        self.assertEqual(outputs(made), outputs(good))

    def test_columns_and_vectors(self):
        one, two = self.out(), self.out()
        summary = tfmc.corpus.embed(self.path, one, engine="here", **self.given)
        self.assertEqual((summary.parts, summary.rows, summary.errors), (10, 600, 1))
        tfmc.corpus.embed(self.path, two, workers=2, batch_tokens=11, **self.given)
        self.assertEqual(outputs(one), outputs(two))
        table = pyarrow.parquet.read_table(one)
        self.assertEqual(table["id"].to_pylist(), list(range(600)))
        self.assertEqual(table["more"].to_pylist(), [str(i) for i in range(600)])
        wanted = tfmc.text.Embedder(self.checkpoint.model).encode([text or "" for text in self.texts])
        made = table["embedding"].to_pylist()
        self.assertIsNone(made.pop(3))
        self.assertEqual(np.array(made, np.float32).tobytes(), np.delete(wanted, 3, 0).tobytes())

    def test_refusals(self):
        run = tfmc.corpus.embed
        self.refused(tfmc.InputError, ["corpus.parquet", '"text"', "body, id, more"], run, self.path, self.out(),
                     **{**self.given, "column": "text"})
        self.refused(tfmc.InputError, ["\"none\""], run, self.path, self.out(), **{**self.given, "keep": ["none"]})
        broken = self.path.with_name("broken.parquet")
        broken.write_bytes(b"PAR1" + bytes(100))
        self.refused(tfmc.InputError, "broken.parquet", run, broken, self.out(), **self.given)

    def test_a_page_that_is_damaged_is_named(self):
        data = bytearray(self.path.read_bytes())
        at = pyarrow.parquet.ParquetFile(self.path).metadata.row_group(4).column(0).dictionary_page_offset
        data[at:at + 40] = b"\xff" * 40
        self.path.write_bytes(data)
        output = self.out()
        self.refused(tfmc.EnvError, ["1 of 10 parts failed 3 times", "part 4", "row group 4"], tfmc.corpus.embed,
                     self.path, output, workers=2, **self.given)
        self.assertEqual(len(outputs(output)), 9)
