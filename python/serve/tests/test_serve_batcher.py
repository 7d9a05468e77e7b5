"""The batcher alone, with models that say what they were asked: which rows are in a run, who leaves, what fails."""
import asyncio
import random
import threading
import time
import unittest
from unittest import mock

import numpy as np

from servers import WAIT, Case  # noqa: F401

from tfmc_serve import batcher
from tfmc_serve.batcher import RUN_TOKENS, Batcher, RowFailed
from tfmc_serve.metrics import Metrics
from tfmc_serve.texts import Row


class Sums:
    """A model that gives the sum of a row's ids, and keeps what it was asked; runs wait for `go`."""
    name, width = "sums", 1

    def __init__(self):
        self.runs, self.go, self.entered, self.fails = [], threading.Event(), threading.Semaphore(0), lambda rows: None
        self.go.set()
        self.model = self
        self.together = []

    def inputs(self, rows):
        return {"rows": [row.ids for row in rows]}

    def _call_alone(self, rows):
        self.runs.append([list(row) for row in rows])
        self.entered.release()
        if not self.go.wait(WAIT):
            raise TimeoutError
        self.fails(rows)
        return np.array([[sum(row)] for row in rows], np.float32)

    def __call__(self, rows):
        self.together.append(rows)
        return self._call_alone(rows)


def row(*ids):
    return Row(list(ids), [0] * len(ids))


def rows(count, length, first=0):
    return [row(first + i, *[1] * (length - 1)) for i in range(count)]


class Batches(unittest.IsolatedAsyncioTestCase):
    workers = 1

    async def asyncSetUp(self):
        self.deaths, self.jobs = [], []
        self.batcher = Batcher(self.workers, asyncio.get_running_loop(), Metrics(), self.deaths.append)
        self.batcher.start()
        self.model = Sums()

    async def asyncTearDown(self):
        """Nothing is left behind, whatever came and went."""
        self.model.go.set()
        await asyncio.wait_for(asyncio.gather(*(job.future for job in self.jobs), return_exceptions=True), WAIT)
        self.assertTrue(self.batcher.stop(WAIT))
        if not self.deaths:
            self.nothing_is_left()

    def nothing_is_left(self):
        made = self.batcher
        self.assertEqual((made.rows_waiting, made.tokens_waiting, made.rows_running), (0, 0, 0))
        self.assertFalse(made._jobs or made._live or any(q.same or q.lengths for q in made._queues.values()))

    def put(self, wanted):
        self.jobs.append(self.batcher.put(self.model, wanted))
        return self.jobs[-1]

    async def entered(self):
        """Until a run has begun that began after the last call, or after forget_runs."""
        await asyncio.to_thread(self.model.entered.acquire)

    def forget_runs(self):
        while self.model.entered.acquire(blocking=False):
            pass

    async def hold(self):
        """A first run that is held, so that what is put afterwards waits."""
        self.forget_runs()
        self.model.go.clear()
        job = self.put([row(999)])
        await self.entered()
        return job

    async def results(self, job, wanted):
        await asyncio.wait_for(job.future, WAIT)
        self.assertEqual(job.numbers[:, 0].tolist(), [sum(row.ids) for row in wanted])

    async def test_every_row_gets_its_own_numbers(self):
        choose = random.Random(1)
        jobs = []
        for _ in range(50):
            wanted = [row(*(choose.randint(0, 99) for _ in range(choose.randint(1, 40))))
                      for _ in range(choose.randint(1, 30))]
            jobs.append((self.put(wanted), wanted))
        for job, wanted in jobs:
            await asyncio.wait_for(job.future, WAIT)
            self.assertEqual(job.numbers[:, 0].tolist(), [sum(row.ids) for row in wanted])

    async def test_runs_have_little_padding_and_few_tokens(self):
        await self.hold()
        choose = random.Random(2)
        waiting = [self.put([row(i, *[1] * choose.randint(0, 120))]) for i in range(400)]
        self.model.go.set()
        for job in waiting:
            await asyncio.wait_for(job.future, WAIT)
        runs = self.model.runs[1:]
        cells = sum(len(run) * max(map(len, run)) for run in runs)
        tokens = sum(len(row) for run in runs for row in run)
        self.assertLess(cells, 1.1 * tokens)
        for run in runs:
            self.assertLessEqual(len(run) * max(map(len, run)), RUN_TOKENS)
        self.assertLess(len(runs), 2.5 * tokens / RUN_TOKENS)

    async def test_the_oldest_row_is_in_the_next_run(self):
        await self.hold()
        jobs = [self.put(rows(1, length, i)) for i, length in enumerate((100, 3, 101, 3, 50))]
        self.model.go.set()
        for job in jobs:
            await asyncio.wait_for(job.future, WAIT)
        self.assertEqual([[len(row) for row in run] for run in self.model.runs[1:]], [[100, 101], [3, 3], [50]])

    async def test_a_long_row_runs_alone(self):
        wanted = rows(2, RUN_TOKENS + 100)
        await self.results(self.put(wanted), wanted)
        self.assertEqual([len(run) for run in self.model.runs], [1, 1])

    async def test_equal_rows_that_wait_are_computed_once(self):
        await self.hold()
        same = [row(5, 6), row(7, 8), row(5, 6)]
        jobs = [self.put(same) for _ in range(10)]
        self.model.go.set()
        for job in jobs:
            await self.results(job, same)
        self.assertEqual(sorted(map(tuple, self.model.runs[1])), [(5, 6), (7, 8)])
        self.assertEqual(len(self.model.runs), 2)

    async def test_rows_of_a_request_that_is_gone_leave(self):
        await self.hold()
        gone, stays = self.put(rows(20, 4)), self.put(rows(3, 4, 50))
        self.batcher.cancel(gone)
        self.assertEqual(self.batcher.rows_waiting, 3)
        self.model.go.set()
        await self.results(stays, rows(3, 4, 50))
        self.assertEqual([len(run) for run in self.model.runs], [1, 3])
        self.assertTrue(gone.future.cancelled())

    async def test_a_row_that_another_wants_stays_when_its_owner_goes(self):
        for second_goes in (False, True):
            await self.hold()
            self.model.runs.clear()
            first = self.put(rows(4, 4))
            others = [self.put(rows(3, 4)) for _ in range(2)]
            self.batcher.cancel(first)
            if second_goes:
                self.batcher.cancel(others[0])
            self.assertEqual(self.batcher.rows_waiting, 3)
            self.model.go.set()
            for job in others[second_goes:]:
                await self.results(job, rows(3, 4))
            self.assertEqual([len(run) for run in self.model.runs], [3])

    async def test_random_comings_and_goings(self):
        choose = random.Random(7)
        for _ in range(30):
            await self.hold()
            jobs = []
            for _ in range(choose.randint(1, 12)):
                wanted = [row(choose.randint(0, 3), *[1] * choose.randint(0, 3)) for _ in range(choose.randint(1, 8))]
                jobs.append((self.put(wanted), wanted))
                if choose.random() < 0.4:
                    self.batcher.cancel(choose.choice(jobs)[0])
            waiting = {w for q in self.batcher._queues.values() for w in q.same.values()}
            self.assertEqual(self.batcher.rows_waiting, len(waiting))
            self.assertEqual(self.batcher.tokens_waiting, sum(len(w.row.ids) for w in waiting))
            self.model.go.set()
            for job, wanted in jobs:
                if not job.future.cancelled():
                    await self.results(job, wanted)

    async def test_of_one_request_at_most_half_a_run_while_others_wait(self):
        await self.hold()
        large, small = self.put(rows(200, 8)), self.put(rows(3, 8, 500))
        self.model.go.set()
        await self.results_of(large, small)
        first = self.model.runs[1]
        self.assertEqual(len(first), RUN_TOKENS // 2 // 8 + 3)
        self.assertEqual(len(self.model.runs[2]), RUN_TOKENS // 8)

    async def results_of(self, *jobs):
        for job in jobs:
            await asyncio.wait_for(job.future, WAIT)

    async def test_a_run_that_fails_is_repeated_row_by_row(self):
        def fails(rows):
            if [13] in [row[:1] for row in rows]:
                raise ValueError("13")
        self.model.fails = fails
        await self.hold()
        good, bad = self.put(rows(5, 4)), self.put([row(20, 1, 1, 1), row(13, 1, 1, 1), row(21, 1, 1, 1)])
        with self.assertLogs("tfmc_serve", "ERROR"):
            self.model.go.set()
            await self.results(good, rows(5, 4))
            with self.assertRaises(RowFailed):
                await asyncio.wait_for(bad.future, WAIT)
        await self.results(self.put([row(1)]), [row(1)])

    async def test_a_row_whose_numbers_are_not_finite_fails_alone(self):
        class Bad(Sums):
            def _call_alone(self, rows):
                made = super()._call_alone(rows)
                made[[row[0] == 13 for row in rows]] = np.nan
                return made
        self.model = Bad()
        good, bad = self.put(rows(5, 4)), self.put([row(13, 1)])
        await self.results(good, rows(5, 4))
        with self.assertRaisesRegex(RowFailed, "finite"):
            await asyncio.wait_for(bad.future, WAIT)

    async def test_a_worker_that_ends_is_told(self):
        with mock.patch.object(self.batcher, "_numbers", side_effect=SystemExit(3)):
            self.put([row(1)]).future.cancel()
            for _ in range(WAIT * 100):
                if self.deaths:
                    break
                await asyncio.sleep(0.01)
        self.assertIsInstance(self.deaths[0], SystemExit)

    async def test_everything_ends_with_an_error(self):
        running = await self.hold()
        waiting = self.put(rows(5, 4))
        self.batcher.cancel_all(RuntimeError("the end"))
        for job in (running, waiting):
            with self.assertRaisesRegex(RuntimeError, "the end"):
                await asyncio.wait_for(job.future, WAIT)
        self.assertEqual(self.batcher.rows_waiting, 0)

    async def test_stuck_workers(self):
        await self.hold()
        with mock.patch.object(batcher, "STUCK", 0):
            time.sleep(0.01)
            self.assertEqual(self.batcher.stuck(), [])
            self.put([row(1)])
            self.assertEqual(self.batcher.stuck(), [0])

    async def test_the_rate_is_measured(self):
        self.assertEqual(self.batcher.seconds_of_work(), 0)
        await self.results(self.put(wanted := rows(100, 5)), wanted)
        await self.hold()
        self.put(rows(10, 100))
        self.assertAlmostEqual(self.batcher.seconds_of_work(), 1000 * self.batcher.seconds_per_token)
        self.assertGreater(self.batcher.seconds_per_token, 0)


class Workers(Batches):
    """The same with two workers."""
    workers = 2

    async def hold(self):
        self.forget_runs()
        self.model.go.clear()
        jobs = []
        for i in range(2):
            jobs.append(self.put([row(999 + i)]))
            await self.entered()
        return jobs[0]

    async def test_the_only_run_gets_all_threads(self):
        await self.results(self.put([row(1, 2)]), [row(1, 2)])
        self.assertEqual(self.model.together, [[[1, 2]]])
        self.model.together.clear()
        await self.hold()
        self.assertEqual(len(self.model.together), 1)

    test_runs_have_little_padding_and_few_tokens = test_the_oldest_row_is_in_the_next_run = None
    test_equal_rows_that_wait_are_computed_once = test_rows_of_a_request_that_is_gone_leave = None
    test_a_row_that_another_wants_stays_when_its_owner_goes = None
    test_of_one_request_at_most_half_a_run_while_others_wait = test_stuck_workers = None

    async def test_a_row_that_comes_alone_is_computed_at_once(self):
        self.batcher.seconds_per_token, self.batcher._row_seconds[self.model] = 1e-6, 1e-3
        self.assertIsNone(self.batcher.at_once(self.model, row(3, 4)))  # not enough came alone
        self.batcher.alone = batcher.ALONE
        self.assertEqual(self.batcher.at_once(self.model, row(3, 4)).tolist(), [7])
        self.assertEqual(self.model.together, [[[3, 4]]])  # by all threads
        self.batcher.seconds_per_token = 1.0
        self.assertIsNone(self.batcher.at_once(self.model, row(3, 4)))  # it would take long
        self.batcher.seconds_per_token, self.batcher._row_seconds[self.model] = 1e-6, 1.0
        self.assertIsNone(self.batcher.at_once(self.model, row(3, 4)))  # such rows did
        self.batcher._row_seconds[self.model] = 1e-3
        await self.hold()
        self.assertIsNone(self.batcher.at_once(self.model, row(3, 4)))  # others are computed
        self.model.go.set()

    async def test_a_row_that_fails_at_once_says_so(self):
        self.batcher.seconds_per_token, self.batcher._row_seconds[self.model], self.batcher.alone = 1e-6, 1e-3, batcher.ALONE

        def fails(rows):
            raise ValueError("no")
        self.model.fails = fails
        with self.assertLogs("tfmc_serve", "ERROR"):
            self.assertIsInstance(self.batcher.at_once(self.model, row(1)), RowFailed)

    async def test_stuck_workers_are_named(self):
        await self.hold()
        with mock.patch.object(batcher, "STUCK", 0):
            self.put([row(1)])
            time.sleep(0.01)
            self.assertEqual(self.batcher.stuck(), [0, 1])


if __name__ == "__main__":
    unittest.main()
