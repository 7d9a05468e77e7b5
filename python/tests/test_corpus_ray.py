"""Corpora by actors of Ray, and its datasets through tfmc.ray: the bytes are those of one process."""
import json
import os
import random
import threading
import types
import unittest

import numpy as np

import tfmc
from test_corpus import KILLS, CorpusCase, lines, outputs, pyarrow, records, tokenizers, write_lines

if tokenizers:
    from tfmc.corpus import _engines

try:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "240")
    import ray
    import ray.data
except ImportError:
    ray = None


@unittest.skipUnless(ray and pyarrow, "not run: the package ray or pyarrow is missing")
class OnRay(CorpusCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
        cls.addClassCleanup(ray.shutdown)

    def test_bytes_are_those_of_one_process(self):
        output = self.out()
        summary = tfmc.corpus.embed(self.input, output, engine="ray", workers=2, **self.given)
        self.assertEqual((summary.rows, summary.workers), (600, 2))
        self.assertEqual(outputs(output), self.expected)
        for path in sorted(output.glob("part-*"))[::2]:
            path.unlink()
        tfmc.corpus.embed(self.input, output, engine="ray", workers=1, batch_tokens=5, **self.given)
        self.assertEqual(outputs(output), self.expected)

    def test_actors_that_are_killed(self):
        path = write_lines(self.checkpoint.folder / "ray.jsonl", lines(1500))
        good, choose, deaths, left = self.out(), random.Random(8), 0, [0]
        tfmc.corpus.embed(path, good, engine="here", **self.given)

        class Engine(_engines.Ray):
            """An engine whose actors are killed at random moments, in the middle of parts."""
            def wait(self, seconds):
                working = [actor for actor, parts in self.actors.items() if parts]
                if working and left[0] and choose.random() < 0.3:
                    left[0] -= 1
                    threading.Timer(choose.random() * 0.02, ray.kill, [working[0]]).start()
                return super().wait(seconds)
        self.addCleanup(_engines.ENGINES.update, ray=_engines.Ray)
        _engines.ENGINES["ray"] = Engine
        while deaths < KILLS:  # an actor may be killed when its part is done already
            output, left[0] = self.out(), min(10, KILLS - deaths)
            deaths += tfmc.corpus.embed(path, output, engine="ray", workers=2, retries=10 ** 6, **self.given).deaths
            self.assertEqual(outputs(output), outputs(good))

    def test_what_ray_ends_is_done_by_another(self):
        """An actor that Ray's guard of memory ends, and a node that is gone: no errors of actors, to Ray."""
        left = [ray.exceptions.OutOfMemoryError("little memory"), ray.exceptions.NodeDiedError("no node")]

        class Engine(_engines.Ray):
            def begin(self, part):
                super().begin(part)
                self.ray = types.SimpleNamespace(**{**vars(ray), "get": self.get})

            def get(self, answer):
                value = ray.get(answer)
                if left and self.asked_part is not None:
                    raise left.pop()
                return value

            def wait(self, seconds):
                self.asked_part = next(iter(self.asked.values()))[1] if self.asked else None
                return super().wait(seconds)
        self.addCleanup(_engines.ENGINES.update, ray=_engines.Ray)
        _engines.ENGINES["ray"] = Engine
        output = self.out()
        summary = tfmc.corpus.embed(self.input, output, engine="ray", workers=1, **self.given)
        self.assertEqual((left, summary.deaths, outputs(output)), ([], 2, self.expected))

    def test_what_cannot_begin_is_refused(self):
        self.refused(tfmc.EnvError, ["no worker can begin", "tokenizer.json"], tfmc.corpus.embed, self.input,
                     self.out(), engine="ray", workers=1, **{**self.given, "tokenizer": self.folder()})

    def test_datasets(self):
        import tfmc.ray
        rows = [json.loads(line) for line in self.input.read_text().splitlines()]
        dataset = ray.data.from_items(rows).map_batches(
            tfmc.ray.Embedder, fn_constructor_args=(str(self.model),),
            fn_constructor_kwargs={"tokenizer": str(self.checkpoint.folder)}, batch_size=50, num_cpus=1,
            compute=ray.data.ActorPoolStrategy(size=1))
        made = sorted(dataset.take_all(), key=lambda row: row["id"])
        self.assertEqual([row["id"] for row in made], [row["id"] for row in rows])
        wanted = np.array([record["embedding"] for record in records(self.whole)], np.float32)
        self.assertEqual(np.array([row["embedding"] for row in made], np.float32).tobytes(), wanted.tobytes())
