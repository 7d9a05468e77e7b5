"""Clients that go, time that runs out, too much work, and the end of the server in each of its phases."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

from servers import HERE, WAIT, Case, Inside, Process, f32, head, held, library, place, read_answer

from tfmc_serve import batcher, texts

BODY = b'{"inputs": "a b"}'


class Time(Case):
    """A server whose model can be held."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", threads=1, max_waiting=4, timeout=WAIT))

    def later(self, content=None, path="/embed"):
        """A request in a thread of its own; its answer is .answer after join()."""
        def work():
            client = self.server.client()
            thread.answer = client.post(path, content or {"inputs": "a b"})
            client.close()
        thread = threading.Thread(target=work)
        thread.answer = None
        thread.start()
        return thread

    def answered(self, thread):
        thread.join(WAIT)
        self.assertEqual(thread.answer.status, 200, thread.answer)
        self.assertEqual(f32(thread.answer.json).tobytes(), library("embed").encode(["a b"]).tobytes())

    def number(self, name):
        for line in self.client.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rpartition(" ")[2])
        return 0.0

    def vanish(self, body=BODY, wait=lambda service: True):
        with socket.create_connection(("127.0.0.1", self.server.port)) as connection:
            connection.sendall(head("/embed", len(body)) + body)
            self.server.until(wait)

    def test_a_client_that_goes_while_its_rows_wait(self):
        gone = self.number('tfmc_gone_total{why="client"}')
        with held(self.server) as model:
            first = self.later()
            model.entered.acquire()
            self.vanish(b'{"inputs": ["a b c", "b"]}', lambda service: service.batcher.rows_waiting == 2)
            self.server.until(lambda service: service.batcher.rows_waiting == 0)
            model.go.set()
            self.answered(first)
            self.assertEqual(len(model.runs), 1)
        self.assertEqual(self.number('tfmc_gone_total{why="client"}'), gone + 1)

    def test_a_client_that_goes_while_its_rows_are_computed(self):
        with held(self.server) as model:
            self.vanish(wait=lambda service: service.batcher.rows_running == 1)
            self.server.until(lambda service: service.waiting == 0)
            second = self.later()
            self.server.until(lambda service: service.batcher.rows_waiting == 1)
            model.go.set()
            self.answered(second)

    def test_a_client_that_goes_leaves_an_equal_row_of_another(self):
        with held(self.server) as model:
            first = self.later({"inputs": "c"})
            model.entered.acquire()
            second = None

            def both(service):
                nonlocal second
                if service.batcher.rows_waiting == 1 and second is None:
                    second = self.later()
                return service.waiting == 3
            self.vanish(wait=both)
            self.server.until(lambda service: service.waiting == 2)
            model.go.set()
            self.answered(second)
            first.join()

    def test_time_runs_out_in_the_queue_and_in_a_run(self):
        options = self.server.service.options
        with held(self.server) as model, mock.patch.object(type(options), "__getattribute__", short_timeout):
            running = self.later()
            model.entered.acquire()
            waiting = self.later({"input": "b"}, "/v1/embeddings")
            for thread in (running, waiting):
                thread.join(WAIT)
            self.refused(running.answer, 504, "--timeout")
            self.refused(waiting.answer, 504, "--timeout", openai=True)
            self.server.until(lambda service: service.batcher.rows_waiting == 0)
        self.answered(self.later())

    def test_too_many_requests_are_refused_and_the_others_answered(self):
        with held(self.server) as model:
            first = self.later()
            model.entered.acquire()
            others = [self.later() for _ in range(3)]
            self.server.until(lambda service: service.waiting == 4)
            for path, openai in (("/embed", False), ("/v1/embeddings", True)):
                answer = self.client.post(path, {"input" if openai else "inputs": "a"})
                self.refused(answer, 429, "--max-waiting", openai=openai)
                self.assertGreaterEqual(int(answer.headers["retry-after"]), 1)
            self.assertEqual(self.client.get("/health").status, 200)
            model.go.set()
            for thread in (first, *others):
                self.answered(thread)
        self.answered(self.later())

    def test_more_work_than_fits_into_the_time_is_refused(self):
        made = self.server.service.batcher
        with held(self.server) as model:
            first = self.later()
            model.entered.acquire()
            second = self.later()
            self.server.until(lambda service: service.batcher.rows_waiting == 1)
            with mock.patch.object(made, "seconds_per_token", WAIT / 6):
                answer = self.client.post("/embed", {"inputs": "a b c"})
            self.refused(answer, 429, "--timeout")
            self.assertEqual(int(answer.headers["retry-after"]), 4 * WAIT // 6)
            model.go.set()
            self.answered(first)
            self.answered(second)

    def test_health_says_when_nothing_is_computed(self):
        with held(self.server) as model, mock.patch.object(batcher, "STUCK", 0):
            first = self.later()
            model.entered.acquire()
            self.assertEqual(self.client.get("/health").status, 200)
            second = self.later({"inputs": "c"})
            self.server.until(lambda service: service.batcher.rows_waiting == 1)
            self.refused(self.client.get("/health"), 503, "worker 0")
            model.go.set()
            self.answered(first)
            second.join()
        self.assertEqual(self.client.get("/health").status, 200)

    def test_a_fault_of_a_model_is_answered_without_its_words(self):
        served = next(iter(self.server.service.models.values()))
        with mock.patch.object(served, "inputs", side_effect=ValueError("/tmp/secret.py")):
            with self.assertLogs("tfmc_serve", "ERROR") as logged:
                answer = self.client.post("/embed", {"inputs": "a"}, {"x-request-id": "mine"})
        self.assertIn("mine", self.refused(answer, 500, "log"))
        self.assertIn("secret", "".join(logged.output))
        with mock.patch.object(served, "prompt", side_effect=KeyError("/tmp/secret.py")):
            with self.assertLogs("tfmc_serve", "ERROR") as logged:
                self.refused(self.client.post("/v1/embeddings", {"input": "a"}), 500, openai=True)
        self.answered(self.later())

    def test_what_a_tokenizer_raises(self):
        served = next(iter(self.server.service.models.values()))
        with mock.patch.object(served, "tokenizer", mock.Mock(encode_batch_fast=mock.Mock(side_effect=Exception("no")))):
            answer = self.client.post("/embed", {"inputs": "a"})
        self.assertEqual(answer.json["error_type"], "Tokenizer")
        self.refused(answer, 422, "no")


def short_timeout(options, name):
    return 2.0 if name == "timeout" else object.__getattribute__(options, name)


class Ending(Case):
    """Processes that get signals."""

    def start(self, *arguments, slow=True, **named):
        if slow:
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            self.file = pathlib.Path(folder.name) / "slow"
            named["program"] = (str(HERE / "slow_server.py"), str(self.file))
        server = Process(*arguments, **named)
        self.addCleanup(server.close)
        return server

    @contextlib.contextmanager
    def asked(self, server, count=1):
        """Requests that are being computed."""
        self.file.touch()
        opened = [socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) for _ in range(count)]
        for connection in opened:
            connection.sendall(head("/embed", len(BODY)) + BODY)
        server.wait_for("computing")
        try:
            yield opened
        finally:
            for connection in opened:
                connection.close()

    def test_an_idle_server_ends(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.start(place("embed"), slow=False)
            client = server.client()
            self.assertEqual(client.get("/ready").status, 200)
            server.signal(number)
            self.assertEqual(server.ended(), 0)
            self.assertNotIn("Traceback", "".join(server.lines))

    def test_a_hangup_without_keys_changes_nothing(self):
        server = self.start(place("embed"), slow=False)
        server.signal(signal.SIGHUP)
        server.wait_for("there are no keys")
        self.assertEqual(server.client().get("/ready").status, 200)
        server.signal()
        self.assertEqual(server.ended(), 0)

    def in_terminal(self, *arguments, before=""):
        """A server in a terminal of its own, and the terminal's other end."""
        master, terminal = os.openpty()
        program = f"import os, signal, sys\nos.setsid()\nos.close(os.open({os.ttyname(terminal)!r}, os.O_RDWR))\n{before}\n" \
            "from tfmc_serve import command\nsys.exit(command.main(sys.argv[1:]))"
        server = self.start(place("embed"), *arguments, slow=False, program=("-c", program))
        os.close(terminal)
        return server, master

    def test_a_server_ends_with_its_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text("one " + "k" * 32)
            keys.chmod(0o600)
            for arguments, words in (((), "there are no keys"), ((f"--api-key-file={keys}",), "keys: 1")):
                server, terminal = self.in_terminal(*arguments)
                server.signal(signal.SIGHUP)  # as somebody sends it who is no terminal
                server.wait_for(words)
                self.assertEqual(server.client().get("/ready").status, 200)
                os.close(terminal)
                server.wait_for("ending: 0 requests")
                self.assertEqual(server.ended(), 0)

    def test_nohup_keeps_a_server_beyond_its_terminal(self):
        server, terminal = self.in_terminal(before="signal.signal(signal.SIGHUP, signal.SIG_IGN)")
        os.close(terminal)
        server.wait_for("there are no keys")
        self.assertEqual(server.client().get("/ready").status, 200)
        server.signal()
        self.assertEqual(server.ended(), 0)

    def test_a_server_that_its_terminal_left_reads_keys(self):
        """In the background of a terminal that goes without a hangup for it, as a shell's does after `exit`."""
        leave = """
import fcntl, termios
from tfmc_serve import serving
serving.TERMINAL_LOOKS = 0.1
tty = os.open("/dev/tty", os.O_RDWR)
front = os.fork()
if not front:
    os.setpgid(0, 0)
    signal.pause()
os.setpgid(front, front)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
os.tcsetpgrp(tty, front)
signal.signal(signal.SIGUSR1, lambda *_: fcntl.ioctl(tty, termios.TIOCNOTTY))"""
        server, terminal = self.in_terminal(before=leave)
        server.signal(signal.SIGUSR1)
        time.sleep(1)
        server.signal(signal.SIGHUP)
        server.wait_for("there are no keys to read again")
        self.assertEqual(server.client().get("/ready").status, 200)
        os.close(terminal)
        server.signal()
        self.assertEqual(server.ended(), 0)

    def test_what_runs_is_answered_and_new_requests_are_refused(self):
        server = self.start(place("embed"))
        with self.asked(server) as (connection,):
            server.signal()
            server.wait_for("ending: 1 requests")
            client = server.client()
            self.refused(client.get("/ready"), 503, "ending")
            self.refused(client.post("/embed", {"inputs": "a"}), 503, "ending")
            self.refused(client.get("/v1/models"), 503, "ending", openai=True)
            self.assertEqual(client.get("/health").status, 200)
            self.file.unlink()
            self.assertIn(b" 200 ", read_answer(connection)[:20])
            self.assertEqual(server.ended(), 0)

    def test_what_does_not_end_in_time_ends_with_an_error(self):
        server = self.start(place("embed"), "--grace=0.2")
        with self.asked(server, 2) as opened:
            server.signal()
            for connection in opened:
                self.assertIn(b" 503 ", read_answer(connection)[:20])
            self.assertEqual(server.ended(), 0)

    def test_half_a_body_does_not_keep_the_server(self):
        server = self.start(place("embed"), "--grace=0.2", slow=False)
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head("/embed", 100) + b"{")
            server.client().get("/health")
            server.signal()
            self.assertEqual(server.ended(), 0)

    def test_a_second_signal_ends_at_once(self):
        server = self.start(place("embed"))
        with self.asked(server):
            server.signal()
            server.wait_for("ending")
            server.signal()
            self.assertEqual(server.ended(), 128 + signal.SIGTERM)

    def test_a_signal_while_models_load(self):
        server = self.start(place("embed"), wait_ready=False, environment={"SLOW_LOAD": "1"})
        self.refused(server.client().get("/ready"), 503, "loading")
        self.refused(server.client().post("/embed", {"inputs": "a"}), 503, "loading")
        self.assertEqual(server.client().get("/health").status, 200)
        server.signal()
        self.assertEqual(server.ended(), 0)

    def test_a_signal_while_a_text_is_tokenized(self):
        server = self.start(place("embed"), "--max-body=50000000", "--grace=0.1", slow=False)
        body = b'{"inputs": "' + b"a b " * 5_000_000 + b'"}'
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT) as connection:
            connection.sendall(head("/embed", len(body)) + body)
            server.signal()
            self.assertEqual(server.ended(), 0)

    def test_a_model_that_cannot_be_loaded_ends_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            server = self.start(folder, slow=False, wait_ready=False)
            server.wait_for("config.json")
            self.assertEqual(server.ended(), 1)

    def test_a_worker_that_ends_takes_the_process_with_it(self):
        program = ("-c", "import sys\nfrom tfmc_serve import batcher, command\n"
                   "def ends(*args):\n    raise SystemExit(3)\nbatcher.Batcher._numbers = ends\n"
                   "sys.exit(command.main(sys.argv[1:]))\n")
        server = self.start(place("embed"), slow=False, program=program, wait_ready=False)
        self.assertEqual(server.ended(), 70)

    def test_systemd_is_told(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"{folder}/notify")
            manager.settimeout(WAIT)
            server = self.start(place("embed"), slow=False, environment={
                "NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_USEC": "100000"})
            words = set()
            while not {b"READY=1", b"WATCHDOG=1"} <= words:
                words.add(manager.recv(100))
            server.signal()
            while b"STOPPING=1" not in words:
                words.add(manager.recv(100))
            self.assertEqual(server.ended(), 0)

    def test_a_socket_that_is_open_already(self):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            import os
            os.set_inheritable(listening.fileno(), True)
            with mock.patch("subprocess.Popen", keeps(listening.fileno())):
                server = self.start(place("embed"), f"--fd={listening.fileno()}", slow=False)
            self.assertEqual(server.port, listening.getsockname()[1])
            self.assertEqual(server.client().get("/ready").status, 200)
            server.signal()
            self.assertEqual(server.ended(), 0)


def keeps(number):
    import subprocess
    begin = subprocess.Popen
    return lambda *args, **named: begin(*args, pass_fds=[number], **named)


class Kinds(unittest.TestCase):
    def test_places(self):
        found = texts.read_place("n:rerank:some/folder=x.tfmm")
        self.assertEqual((found.name, found.kind, str(found.folder), str(found.file)),
                         ("n", "rerank", "some/folder", "x.tfmm"))
        self.assertEqual(texts.read_place("org/name:some/folder").name, "org/name")
        self.assertEqual(texts.read_place("some/folder").name, "folder")
        for wrong in ("", ":x", "a:b:c:d", "a:nothing:c", "a:embed:", "=x"):
            with self.assertRaises(ValueError):
                texts.read_place(wrong)


if __name__ == "__main__":
    unittest.main()
