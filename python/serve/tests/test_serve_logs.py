"""The log: what is closed, full or not read keeps no answer waiting, and no line is lost while there is room."""
import contextlib
import fcntl
import io
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from servers import SOURCES, WAIT, Case, Client, place

from tfmc_serve.logs import LogWriter, TextLines


def record(text, level=logging.INFO):
    return logging.LogRecord("tfmc_serve", level, __file__, 1, "%s", (text,), None)


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

    def test_errors_wait_a_moment_for_what_nobody_reads(self):
        """For the lines before the first; not again until there is a reader."""
        pipe, writer = self.start(500)
        for number in range(100):
            writer.handle(record(f"{number:0100d}"))
        began = time.monotonic()
        for number in range(100, 200):
            writer.handle(record(f"{number:0100d}", logging.ERROR))
        self.assertLess(time.monotonic() - began, 2)
        lines = [pipe.readline() for _ in range(200)]
        self.assertEqual([int(re.search(r"\d{100}", line)[0]) for line in lines], list(range(200)))

    def test_lines_longer_than_a_pipe_takes_at_once(self):
        """They stand where they were said; an error behind them has been written when the call returns."""
        pipe, writer = self.start(500)
        found = []
        reading = threading.Thread(target=lambda: found.extend(pipe.readline() for _ in range(30)))
        reading.start()
        for number in range(10):
            for text in ("a", "b" * 6000):
                writer.handle(record(f"{number} {text}"))
            writer.handle(record(f"{number} c", logging.ERROR))
            self.assertEqual(writer._waiting, 0)
        reading.join(WAIT)
        self.assertEqual([re.search(r"(\d) ([abc])", line).group(1, 2) for line in found],
                         [(str(number), letter) for number in range(10) for letter in "abc"])


class Ends(Case):
    """What a process has said before it is killed, and whether it ends while nobody reads."""

    def run_code(self, code, **named):
        path = os.pathsep.join([*SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, **named)

    def test_lines_before_a_fatal_signal(self):
        for number in (signal.SIGKILL, signal.SIGABRT):
            process = self.run_code("import logging, os, sys\nfrom tfmc_serve import command, logs\n"
                                    "command.open_standard_files(); logs.set_log('text'); log = logging.getLogger('tfmc_serve')\n"
                                    f"log.info('one'); log.error('two'); os.kill(os.getpid(), {int(number)})", stderr=subprocess.PIPE)
            said = process.communicate(timeout=WAIT)[1].decode()
            self.assertEqual(process.returncode, -number)
            self.assertRegex(said, r"info one\n.*error two\n")

    def test_errors_at_the_start_that_nobody_reads(self):
        """The pipe is full before the process begins."""
        for given, status in ((["/nowhere"], 1), (["--port=x", "/nowhere"], 2), (["--frob", "/nowhere"], 2)):
            pipe = Pipe()
            self.addCleanup(pipe.close)
            os.write(pipe.writing, b"x" * 4096)
            process = self.run_code(f"import sys\nfrom tfmc_serve import command\nsys.exit(command.main({given!r}))", stderr=pipe.writing)
            os.close(pipe.writing)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            self.assertEqual(process.wait(WAIT), status, given)


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
