"""Corpora that cannot begin: what is refused before the first part, what is said while no worker is ready, and that a
worker opens its model once."""
import json
import os
import pathlib
import subprocess
import sys
import types
import unittest

import tfmc
from test_corpus import CorpusCase, environment, lines, outputs, pyarrow, write_lines
from test_text import tokenizers

if tokenizers:
    import tfmc.corpus
    import tfmc.ray
    from tfmc.corpus import _engines, _job, _worker

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench" / "corpus.py"
# What the interpreter runs before a worker's program, so that the worker never begins.
SLEEPER = """import sys, time
if any("tfmc.corpus._engines" in word for word in sys.orig_argv): time.sleep(900)
"""


class Models(CorpusCase):
    def test_a_kept_model_is_opened_once(self):
        """By every process that needs it, and by each class of tfmc.ray; it was opened to be looked at, too."""
        os.environ["TFMC_CORPUS_CACHE"] = self.folder()
        self.addCleanup(os.environ.pop, "TFMC_CORPUS_CACHE")
        folder, opened = self.checkpoint.folder, []

        def counted(path, **named):
            model = load(path, **named)
            opened.append(path)
            return model
        load = self.instead(_worker, "load", counted)
        settings = _worker.Settings("embed", str(folder), None, "text", (), "jsonl", 9, True, {}, None, 1)
        for make in (lambda: _worker.Worker(settings), lambda: _worker.Worker(settings),
                     lambda: tfmc.ray.Embedder(folder), lambda: _engines.Processes(settings, self.out(), 1).close()):
            make()
            self.assertEqual((len(opened), opened[0].suffix), (1, ".tfmm"))
            opened.clear()

    def test_a_model_that_is_not_there(self):
        """Most who write a name expect it to be fetched."""
        for engine in ("here", "processes"):
            self.refused(tfmc.EnvError, ["all-MiniLM-L6-v2", "no such folder", "save"], tfmc.corpus.embed, self.input,
                         self.out(), engine=engine, **{**self.given, "model": "all-MiniLM-L6-v2", "tokenizer": None})
        self.refused(tfmc.EnvError, "no such folder", tfmc.ray.Embedder, "all-MiniLM-L6-v2")


    def test_a_job_that_had_no_model_binds_nobody(self):
        """Nothing is done and nobody writes there, so the call that is right may have other settings."""
        output = self.out()
        self.refused(tfmc.EnvError, "no such folder", tfmc.corpus.embed, self.input, output,
                     **{**self.given, "model": "nomodel", "tokenizer": None, "keep": []})
        tfmc.corpus.embed(self.input, output, **self.given)
        self.refused(tfmc.InputError, "another job writes here", tfmc.corpus.embed, self.input, output,
                     **{**self.given, "batch_tokens": 7} if "batch_tokens" in self.given else {**self.given, "keep": []})


class Refusals(CorpusCase):
    """Before anything is written: the call that is right can go to the same folder."""

    def refused_at_once(self, error, words, inputs, output, **more):
        self.refused(error, words, tfmc.corpus.embed, inputs, output, **{**self.given, **more})
        self.assertFalse((pathlib.Path(output) / "_job").exists())

    def test_a_column_that_no_line_has(self):
        for more in ({"column": "body"}, {"keep": ["id", "body"]}):
            self.refused_at_once(tfmc.InputError, [str(self.input), '"body"', "id, text"], self.input, self.out(),
                                 **more)
        other = write_lines(self.checkpoint.folder / "without.jsonl", ['{"title": "a"}', "no object", "[]"])
        late = write_lines(self.checkpoint.folder / "without2.jsonl", ['{"a": 1}'] * 9 + ['{"id": 1, "text": "a"}'])
        output = self.out()
        self.refused_at_once(tfmc.InputError, [str(other), "title"], other, output)
        summary = tfmc.corpus.embed([other, late], output, engine="here", **self.given)  # rows have an error each
        self.assertEqual((summary.rows, summary.errors), (13, 12))

    def test_inputs_in_the_folder_of_the_output(self):
        """The second call would read what the first one wrote."""
        folder = pathlib.Path(self.folder())
        path = write_lines(folder / "a.jsonl", lines(3))
        for inputs in (folder, path, str(folder / "*.jsonl")):
            self.refused(tfmc.InputError, [str(path), "of its own"], tfmc.corpus.embed, inputs, folder, **self.given)
        self.assertEqual(os.listdir(folder), [path.name])
        (folder / "deeper").mkdir()
        path.rename(folder / "deeper" / path.name)
        self.refused(tfmc.InputError, ["no files", "**"], tfmc.corpus.embed, folder, self.out(), **self.given)

    def test_parts_of_nobody(self):
        """They would be taken for parts of this job that are done."""
        output = self.out()
        output.mkdir()
        (output / "part-000000.jsonl").write_text("{}\n")
        self.refused_at_once(tfmc.InputError, [str(output), "job.json"], self.input, output)
        (output / "part-000000.jsonl").unlink()
        tfmc.corpus.embed(self.input, output, engine="here", **self.given)
        self.assertEqual(outputs(output), self.expected)

    def test_numbers(self):
        for more in ({"retries": -1}, {"max_errors": -1}, {"batch_tokens": 0}, {"workers": 0}, {"threads": 0}):
            self.refused_at_once(tfmc.UsageError, next(iter(more)), self.input, self.out(), **more)

    def test_a_node_that_sees_another_folder(self):
        """Its files would lie on its own disk, and be counted as done."""
        output = self.out()
        settings = _worker.Settings("embed", self.model, self.checkpoint.folder, "text", (), "jsonl", 9, True, {}, None,
                                    1)
        output.mkdir()
        self.refused(tfmc.EnvError, [str(output), os.uname().nodename, "share"], _engines._Actor, settings, output)

    @unittest.skipUnless(pyarrow, "not run: the package pyarrow is missing")
    def test_columns_that_hold_no_strings(self):
        path = pathlib.Path(self.folder()) / "a.parquet"
        texts = pyarrow.array(["a b", "c", None])
        good = [texts, texts.dictionary_encode(), texts.cast(pyarrow.large_string())]
        bad = [pyarrow.array([1, 2, 3]), texts.cast(pyarrow.binary()), pyarrow.array([["a"], ["b"], ["c"]])]
        for column in [*bad, *good]:
            table = pyarrow.table({"id": [1, 2, 3], "text": column})
            pyarrow.parquet.write_table(table, path)
            if any(column is one for one in good):
                self.assertEqual(tfmc.corpus.embed(path, self.out(), engine="here", **self.given).errors, 1)
            else:
                self.refused_at_once(tfmc.InputError, [str(path), '"text"', "no strings", "id, text"], path,
                                     self.out())
        twice = pyarrow.Table.from_arrays([texts, texts, pyarrow.array([1, 2, 3])], ["text", "text", "id"])
        pyarrow.parquet.write_table(twice, path)
        self.refused_at_once(tfmc.InputError, [str(path), "several", "text, text, id"], path, self.out())


class Waiting(CorpusCase):
    def test_why_no_worker_begins_is_said(self):
        """And no more when one has begun."""
        said = []
        self.instead(_job, "PATIENCE", 0.2)
        self.instead(tfmc.corpus._progress, "EVERY", {False: 0})
        self.instead(_engines._Child, "program", "import time; time.sleep(2)\n" + _engines._Child.program)
        output = self.out()
        tfmc.corpus.embed(self.input, output, workers=1, **{**self.given, "progress": said.append})
        waiting = ["waiting" in facts for facts in said]
        self.assertIn("no worker is ready", said[waiting.index(True)]["waiting"])
        self.assertIn(str(self.model), said[waiting.index(True)]["waiting"])
        self.assertEqual((waiting[-1], waiting.count(True) > 0, outputs(output)), (False, True, self.expected))

    def test_a_share_with_several_workers(self):
        output = self.out()
        summary = tfmc.corpus.embed(self.input, output, part="0/2", workers=2, **self.given)
        self.assertEqual(summary.workers, 2)
        self.assertEqual(tfmc.corpus.embed(self.input, output, engine="here", workers=9, **self.given).workers, 1)
        self.assertEqual(outputs(output), self.expected)

    def test_a_token_that_ray_wants(self):
        """Its own message does not name it."""
        def init(**named):
            try:
                raise RuntimeError("Last connection error: ray.exceptions.AuthenticationError: RPC error")
            except RuntimeError as error:
                raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379") from error
        before = sys.modules.get("ray")
        sys.modules["ray"] = types.SimpleNamespace(is_initialized=lambda: False, init=init)
        self.addCleanup(lambda: sys.modules.pop("ray") and before and sys.modules.update(ray=before))
        self.refused(tfmc.EnvError, ["10.0.0.1", "RAY_AUTH_MODE=token"], tfmc.corpus.embed, self.input, self.out(),
                     engine="ray", **self.given)

    def bench(self, folder, **more):
        """What the bench says that cannot begin."""
        given = {**environment(), "TFMC_CORPUS_CACHE": self.folder(), **more}
        done = subprocess.run([sys.executable, str(BENCH), str(folder), "--ways=processes", "--rounds=1",
                               "--sentences=20"], env=given, text=True, capture_output=True, timeout=900)
        self.assertEqual((done.returncode, "Traceback" in done.stderr), (1, False), done.stderr)
        self.assertIn("processes ended with 1", done.stderr)
        return done.stderr

    def test_the_bench_does_not_wait_for_ever(self):
        """For workers that refuse to begin, and for workers of which nothing is heard."""
        copy = self.checkpoint.copy(self.out())
        (copy / "tokenizer.json").unlink()
        self.assertIn("tokenizer.json", self.bench(copy))
        scratch = self.folder()
        pathlib.Path(scratch, "sitecustomize.py").write_text(SLEEPER)
        paths = os.pathsep.join([scratch, environment()["PYTHONPATH"]])
        said = self.bench(self.checkpoint.folder, PYTHONPATH=paths, TFM_BENCH_PATIENCE="1")
        self.assertIn("0 of 2 workers began within 1 s", said)
