"""Corpora: the parts of files, jobs that are interrupted in every way, and that their bytes are always the same.

TFM_CORPUS_KILLS: how many random moments each test of a kill has.
"""
import contextlib
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
from support import Case
from test_generate import Checkpoint
from test_text import tokenizers, write_tokenizer

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


@unittest.skipUnless(tokenizers, "not run: the package tokenizers is missing")
class CorpusCase(Case):
    """A tiny sentence encoder as a file, its tokenizer's folder, and the bytes that one process makes of 600 lines."""

    @classmethod
    def setUpClass(cls):
        cls.checkpoint = Checkpoint("sentence_mean")
        write_tokenizer(cls.checkpoint.folder, cls.checkpoint.case["files"]["config.json"]["vocab_size"])
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

    def start(self, output, *more, **named):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        return subprocess.Popen(self.command(output, *more), env=environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **named)

    def finish(self, process):
        out, error = process.communicate(timeout=300)
        return process.returncode, out, error


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
        self.refused(tfmc.UsageError, "columns", tfmc.corpus.embed, path, self.out(), model=self.model, keep=["id"],
                     tokenizer=self.checkpoint.folder, progress=False)
        self.refused(tfmc.EnvError, "tokenizer=", tfmc.corpus.embed, path, self.out(), model=self.model, progress=False)

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


class Kills(CorpusCase):
    """Whoever is killed: every row is there once, in the bytes that one process makes."""

    def test_workers(self):
        """One job after the other, until so many workers were killed, at work and while they begin."""
        stop, killed, choose = threading.Event(), [], random.Random(5)

        def kill():
            while not stop.wait(choose.random() * 0.6) and len(killed) < KILLS:
                for pid in children(os.getpid())[:1]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)
        self.addCleanup(setattr, _engines, "FALSE_STARTS", _engines.FALSE_STARTS)
        _engines.FALSE_STARTS = 10 ** 6
        thread, deaths = threading.Thread(target=kill), 0
        thread.start()
        try:
            while len(killed) < KILLS:
                output = self.out()
                deaths += tfmc.corpus.embed(self.input, output, workers=2, retries=10 ** 6, **self.given).deaths
                self.assertEqual(outputs(output), self.expected)
        finally:
            stop.set()
            thread.join()
        self.assertGreater(deaths, 0)

    def test_a_worker_dies_before_it_is_given_a_part(self):
        """Its pipe is closed already when the part is written: the part is a dead worker's, as if it had begun."""
        give, killed = _engines._Child.give, []

        def late(child, part):
            if not killed:
                killed.append(child.process.pid)
                child.process.kill()
                child.process.wait()
            give(child, part)
        self.addCleanup(setattr, _engines._Child, "give", give)
        _engines._Child.give = late
        output = self.out()
        self.assertEqual(tfmc.corpus.embed(self.input, output, workers=2, retries=2, **self.given).deaths, 1)
        self.assertEqual(outputs(output), self.expected)

    def test_drivers(self):
        output, choose = self.out(), random.Random(6)
        for _ in range(KILLS):
            process = self.start(output, "--workers=2", "--no-progress")
            done = len(list(output.glob("part-*")))
            while process.poll() is None and len(list(output.glob("part-*"))) == done < len(self.expected):
                time.sleep(0.01)
            time.sleep(choose.random() * 0.1)
            workers = children(process.pid)
            process.kill()
            process.communicate()
            while any(pathlib.Path(f"/proc/{pid}").exists() for pid in workers):  # they end with it
                time.sleep(0.01)
            if len(list(output.glob("part-*"))) == len(self.expected):
                for path in sorted(output.glob("part-*"))[::2]:
                    path.unlink()
        tfmc.corpus.embed(self.input, output, workers=2, **self.given)
        self.assertEqual(outputs(output), self.expected)

    def test_in_the_middle_of_a_write(self):
        """At the first fsync, the first rename, and after so many bytes of a file."""
        output = self.out()
        program = """if True:
            import os, signal, sys
            import tfmc.corpus
            from tfmc.corpus import _parts, _worker
            def die(*args, **named): os.kill(os.getpid(), signal.SIGKILL)
            def lines(file, *args): file.write(b"{\\"id\\": 0, "); file.flush(); die()
            where = sys.argv.pop(1)
            if where == "write": _parts._write_lines = lines
            else: _worker._parts.write.__globals__["os"] = type("os", (), {**vars(os), where: staticmethod(die)})
            from tfmc.corpus.__main__ import main
            main(sys.argv[1:])
        """
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        for where in ("write", "fsync", "rename"):
            command = self.command(output, "--engine=here", "--no-progress")
            done = subprocess.run([sys.executable, "-c", program, where, *command[3:]], env=environment, timeout=100)
            self.assertEqual(done.returncode, -signal.SIGKILL, where)
            left = [path for path in output.iterdir() if path.name != "_job"]
            self.assertEqual([path.suffix for path in left], [".tmp"], where)
        tfmc.corpus.embed(self.input, output, engine="here", **self.given)
        self.assertEqual(outputs(output), self.expected)

    def test_the_disk_is_full(self):
        """As far as a process can tell: no file may have more than 4,000 bytes."""
        output = self.out()
        (output / "_job").mkdir(parents=True)
        for engine in ("here", "processes"):
            limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n"
            program = limit + "from tfmc.corpus.__main__ import main; import sys; sys.exit(main(sys.argv[1:]))"
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
            done = subprocess.run([sys.executable, "-c", program, *self.command(output, f"--engine={engine}")[3:]],
                                  env=environment, timeout=100, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("File too large", done.stderr)
            self.assertEqual(outputs(output), {})
        tfmc.corpus.embed(self.input, output, engine="here", **self.given)
        self.assertEqual(outputs(output), self.expected)

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
