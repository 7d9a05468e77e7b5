"""The log: what is closed, full or not read keeps no answer waiting, and no line is lost while there is room."""
import contextlib
import fcntl
import io
import logging
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
import unittest

from servers import SOURCES, WAIT, Case, Client, place

from tfmc_serve.logs import LogWriter, TextLines


def record(text):
    return logging.LogRecord("tfmc_serve", logging.INFO, __file__, 1, "%s", (text,), None)


class Pipe:
    """A pipe of one page, whose reader reads when it is asked to."""

    def __init__(self):
        self.reading, self.writing = os.pipe()
        fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4096)
        self.rest = b""

    def readline(self, wait=WAIT):
        """The next line; a failure where none comes in time, or where nobody writes any more."""
        while b"\n" not in self.rest:
            comes = select.select([self.reading], [], [], wait)[0]
            more = os.read(self.reading, 4096) if comes else b""
            if not more:
                raise AssertionError(f"{'the log has ended' if comes else 'no line comes'} behind {self.rest!r}")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def close(self):
        os.close(self.reading)


class Reading(unittest.TestCase):
    def test_lines_that_do_not_come(self):
        pipe = Pipe()
        self.addCleanup(pipe.close)
        os.write(pipe.writing, b"a\nb")
        self.assertEqual(pipe.readline(), "a")
        with self.assertRaisesRegex(AssertionError, "no line comes behind b'b'"):
            pipe.readline(0.05)
        os.close(pipe.writing)
        with self.assertRaisesRegex(AssertionError, "the log has ended behind b'b'"):
            pipe.readline()


class Writer(unittest.TestCase):
    def start(self, most):
        pipe = Pipe()
        self.addCleanup(pipe.close)
        writer = LogWriter(io.TextIOWrapper(io.FileIO(pipe.writing, "w"), "utf-8", write_through=True), most)
        self.addCleanup(writer.close)
        writer.setFormatter(TextLines())
        return pipe, writer

    def test_lines_that_have_no_room_are_counted(self):
        pipe, writer = self.start(50)
        for number in range(500):
            writer.handle(record(f"{number:0100d}"))
        last = threading.Thread(target=writer.flush, daemon=True)  # what was lost after the last line that had room
        last.start()
        found, lost = [], 0
        while len(found) + lost < 500:
            line = pipe.readline()
            told = re.search(r"(\d+) lines of this log are lost", line)
            lost += int(told[1]) if told else 0
            found += [] if told else [int(re.search(r"\d{100}", line)[0])]
        last.join()
        self.assertEqual(found, sorted(found))
        self.assertEqual(len(found) + lost, 500)
        self.assertGreaterEqual(min(len(found), lost), 50)
        writer.handle(record("more"))
        self.assertIn("more", pipe.readline())

    def test_a_record_that_is_wrong(self):
        pipe, writer = self.start(50)
        writer.handle(logging.LogRecord("tfmc_serve", logging.INFO, __file__, 1, "%d of it", ("x",), None))
        self.assertIn("'%d of it'", pipe.readline())


class Logs(Case):
    def start(self, to, **named):
        """A server whose standard file is what the code `to` makes of it; (process, port)."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        program = f"import os, sys\n{to}\nos.execv(sys.executable, [sys.executable, '-m', 'tfmc_serve', *sys.argv[1:]])"
        path = os.pathsep.join([*SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen([sys.executable, "-c", program, place("embed"), f"--port={port}"],
                                   env={**os.environ, "PYTHONPATH": path}, **{"stderr": subprocess.DEVNULL, **named})
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        while not self.is_ready(port):
            self.assertIsNone(process.poll(), to)
        return process, port

    @staticmethod
    def is_ready(port):
        with contextlib.suppress(OSError):
            return Client(port).get("/ready").status == 200
        time.sleep(0.02)
        return False

    def test_a_log_that_is_closed_or_full(self):
        """Numbers of the standard files are no connection's, and what cannot be written keeps nobody waiting."""
        full = "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)"
        for number, to in ((2, "os.close(2)"), (0, "os.close(0)"), (2, full)):
            process, port = self.start(to)
            self.assertEqual(Client(port).post("/embed", {"inputs": "a"}).status, 200)
            self.assertNotIn("socket", os.readlink(f"/proc/{process.pid}/fd/{number}"))
            process.terminate()
            self.assertEqual(process.wait(WAIT), 0, to)

    def test_a_log_that_nobody_reads(self):
        """Answers come, every line is there for who reads later, and the end does not wait for a reader."""
        pipe = Pipe()
        self.addCleanup(pipe.close)
        process, port = self.start("", stderr=pipe.writing)
        os.close(pipe.writing)
        client, names = Client(port), [f"{number:0128d}" for number in range(60)]

        def ask():
            for name in names:
                self.assertEqual(client.post("/embed", {"inputs": "a"}, {"x-request-id": name}).status, 200)
        ask()
        found = []
        while names[-1] not in found:
            found += re.findall(r" id=(\d{128})", pipe.readline())
        self.assertEqual(found, names)
        ask()
        process.terminate()
        self.assertEqual(process.wait(WAIT), 0)


if __name__ == "__main__":
    unittest.main()
