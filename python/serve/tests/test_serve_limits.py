"""Heads, slow clients, clients that read nothing, numbers of connections, and keys over all routes."""
import base64
import contextlib
import math
import pathlib
import resource
import socket
import tempfile
import unittest

from servers import WAIT, Case, Client, Inside, Process, head, place, raw, read_answer

from tfmc_serve import app
from tfmc_serve.limits import CONNECTIONS, SPARE, WATCHERS, Keys, LimitedProtocol, read_keys

BODY = b'{"inputs": "a"}'


class Quick(LimitedProtocol):
    head_seconds = body_seconds = unread_seconds = 1.5


class Few(LimitedProtocol):
    connections_most = 5


class Heads(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed"))

    def test_large_heads(self):
        fields = b"".join(b"x-%d: a\r\n" % i for i in range(65))
        large = b"x: " + b"a" * 17_000 + b"\r\n"
        for more in (fields, large, b"x: " + b"a" * 9000 + b"\r\ny: " + b"a" * 9000 + b"\r\n"):
            self.assertIn(b" 431 ", raw(self.server.port, head("/embed", len(BODY), more) + BODY)[:20])
        self.assertIn(b" 431 ", raw(self.server.port, b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n")[:20])
        self.assertIn(b" 431 ", raw(self.server.port, b"GET / HTTP/1.1\r\nx: " + b"a" * 400_000)[:20])
        some = b"".join(b"x-%d: a\r\n" % i for i in range(60))
        self.assertIn(b" 200 ", raw(self.server.port, head("/embed", len(BODY), some) + BODY)[:20])

    def test_many_requests_in_one_packet_are_no_large_head(self):
        asked = (head("/embed", len(BODY)) + BODY) * 400
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
            connection.sendall(asked)
            found = b""
            while found.count(b"HTTP/1.1 200 ") < 400:
                part = connection.recv(65536)
                self.assertTrue(part, found[-300:])
                found += part


class Slow(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", protocol=Quick))

    def ends(self, data, *words):
        """What a connection gets whose client sends a byte now and then."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
            for byte in data:
                try:
                    connection.sendall(bytes([byte]))
                except OSError:
                    break
                connection.settimeout(0.05)
                try:
                    found = connection.recv(65536)
                    break
                except TimeoutError:
                    continue
                except OSError:
                    found = b""
                    break
            else:
                connection.settimeout(WAIT)
                found = connection.recv(65536)
        for word in words:
            self.assertIn(word, found)

    def test_a_head_that_takes_too_long(self):
        self.ends(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100, b" 408 ")

    def test_a_body_that_takes_too_long(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
            connection.sendall(head("/embed", 100) + b"{")
            self.assertIn(b" 408 ", connection.recv(65536)[:20])
        self.server.until(lambda service: service.inside == service.waiting == 0)

    def test_a_body_after_an_answer_that_takes_too_long(self):
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
            connection.sendall(head("/nothing", 10 ** 6) + b"{")
            self.assertIn(b" 404 ", read_answer(connection)[:20])
            self.assertEqual(connection.recv(65536), b"")

    def test_a_client_that_sends_nothing(self):
        for data in (b"", b"\r\n"):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
                connection.sendall(data)
                while connection.recv(65536):
                    pass

    def test_a_client_that_reads_nothing(self):
        texts = b'{"inputs": [' + b", ".join([b'"a b c"'] * 256) + b"]}"
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(WAIT)
            connection.connect(("127.0.0.1", self.server.port))
            many = 200
            try:
                for _ in range(many):
                    connection.sendall(head("/embed", len(texts)) + texts)
            except (TimeoutError, ConnectionError):
                pass
            self.server.until(lambda service: len(self.server.server.server_state.connections) == 0)
        self.assertIn(b" 200 ", raw(self.server.port, head("/embed", len(BODY)) + BODY)[:20])


class Connections(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", protocol=Few))

    def test_too_many_connections(self):
        opened = []
        try:
            for _ in range(6):
                opened.append(socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT))
            found = read_answer(opened[-1])
            self.assertIn(b" 503 ", found[:20])
        finally:
            for connection in opened:
                connection.close()
        self.server.until(lambda service: len(self.server.server.server_state.connections) == 0)
        self.assertEqual(self.client.post("/embed", {"inputs": "a"}).status, 200)


class Descriptors(Case):
    """Processes that may have few files open."""

    def start(self, soft, hard):
        program = f"import resource, sys\nresource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n" \
            "from tfmc_serve import command\nsys.exit(command.main(sys.argv[1:]))"
        return self.started(Process(place("embed"), program=("-c", program)))

    def connect(self, server, count, most):
        """So many connections, of which those beyond `most` are told so; a page is answered beside those that stay."""
        with contextlib.ExitStack() as held:
            opened = [held.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=WAIT))
                      for _ in range(count)]
            for connection in opened[most:]:
                self.assertIn(b" 503 ", connection.recv(20))
            opened[0].sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            self.assertIn(b" 200 ", read_answer(opened[0])[:20])
            for connection in opened[1:most]:
                connection.setblocking(False)
                self.assertRaises(BlockingIOError, connection.recv, 20)

    def test_too_many_connections_are_told_so_before_descriptors_run_out(self):
        self.connect(self.start(200, 200), 300, 200 - SPARE)

    def test_a_process_takes_the_descriptors_that_it_may_have(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard < 2000:
            self.skipTest("this process may have fewer files open")
        self.connect(self.start(64, hard), 150, 150)


class Watchers(Case):
    """A second port for those who watch, while the first has as many connections as it may have."""

    def setUp(self):
        soft, hard = (math.inf if n == resource.RLIM_INFINITY else n for n in resource.getrlimit(resource.RLIMIT_NOFILE))
        needed = CONNECTIONS + WATCHERS + 2 + SPARE
        if hard < needed:
            self.skipTest("this process may have fewer files open")
        if soft < needed:
            self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    def test_connections_of_clients_and_of_watchers_are_apart(self):
        server = self.started(Process(place("embed"), "--metrics-port=0"))
        with contextlib.ExitStack() as held:
            def connect(port, count):
                opened = [held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT)) for _ in range(count)]
                return read_answer(opened[-1])
            self.assertIn(b" 503 ", connect(server.ports[0], CONNECTIONS + 1)[:20])
            self.assertEqual(Client(server.ports[1]).get("/ready").status, 200)
            self.assertIn(b" 503 ", connect(server.ports[1], WATCHERS + 1)[:20])


KEYS = {"one": "k" * 32, "two": "K" * 32}


def write_keys(folder, keys=KEYS, mode=0o600):
    path = pathlib.Path(folder) / "keys"
    path.write_text("# name key\n\n" + "".join(f"{name} {key}\n" for name, key in keys.items()))
    path.chmod(mode)
    return path


class KeyCase(Case):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.file = write_keys(folder.name)


class AllRoutes(KeyCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = cls.started(Inside("embed", api_key_file=cls.file))

    def routes(self):
        for path, methods in app.Routes(self.server.service).endpoints.items():
            for method in [*methods, "HEAD"] if "GET" in methods else methods:
                yield method, path.replace("/models/{id}", "/models/embed").replace("{id}", "page.js")

    def test_every_route_but_two_needs_a_key(self):
        tried = 0
        wrong = ("", "Bearer", "Bearer " + "x" * 32, "Bearer " + "k" * 31, "Bearer " + "k" * 33, "bearer", KEYS["one"],
                 "Basic", "Basic !", "Basic " + base64.b64encode(b"x:y").decode(), "Digest " + KEYS["one"])
        for method, path in self.routes():
            for key in wrong:
                answer = self.client.request(method, path, b"{}" if method == "POST" else None,
                                             {"authorization": key, "content-type": "application/json"})
                if path in ("/health", "/ready"):
                    self.assertEqual(answer.status, 200, (method, path))
                else:
                    self.assertEqual(answer.status, 401, (method, path, key))
                    self.assertIn("www-authenticate", answer.headers)
                    tried += 1
        self.assertGreater(tried, 150)

    def test_paths_that_are_written_otherwise(self):
        """A key is asked for by what is served, not by how a path is written."""
        for path in ("/health/../embed", "//embed", "/health/", "/%65mbed", "/health%2f..%2fembed", "/HEALTH", "/ready/x",
                     "/healthy", "/nothing", "/health;/embed", "/ready%00"):
            answer = raw(self.server.port, head(path, len(BODY)) + BODY)
            self.assertRegex(answer[:12], rb" 401$", path)
        for path in ("/health?/embed", "/health#/embed"):
            self.assertIn(b" 405 ", raw(self.server.port, head(path, len(BODY)) + BODY)[:20])

    def test_right_keys(self):
        basic = base64.b64encode(b"anybody:" + KEYS["two"].encode()).decode()
        for header in (f"Bearer {KEYS['one']}", f"bearer {KEYS['two']}", f"Basic {basic}"):
            for path in ("/info", "/", "/metrics", "/openapi.json"):
                self.assertEqual(self.client.get(path, headers={"authorization": header}).status, 200)
        self.assertEqual(self.server.client(key=KEYS["one"]).post("/embed", {"inputs": "a"}).status, 200)

    def test_fields_behind_a_body_are_none_of_its_head(self):
        """A key, or a name of the request, that comes after the body is passed over, though it came with the head."""
        chunked = b"POST /embed HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n" \
                  b"transfer-encoding: chunked\r\n%s\r\nf\r\n" + BODY + b"\r\n0\r\n%s\r\n"
        key = b"authorization: Bearer " + KEYS["one"].encode() + b"\r\n"
        self.assertIn(b" 401 ", raw(self.server.port, chunked % (b"", key))[:20])
        answer = raw(self.server.port, chunked % (key, b"x-request-id: late\r\n"))
        self.assertIn(b" 200 ", answer[:20])
        self.assertNotIn(b"late", answer)
        self.assertIn(b" 431 ", raw(self.server.port, chunked % (key, b"a: b\r\n" * 100))[:20])

    def test_a_browser_is_asked_for_a_key(self):
        self.assertIn("Basic", self.client.get("/").headers["www-authenticate"])
        self.assertEqual(self.client.get("/info").headers["www-authenticate"], "Bearer")


class Files(unittest.TestCase):
    def folder(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        return made.name

    def test_files_that_are_wrong(self):
        for keys, word in (({}, "no keys"), ({"a": "k" * 31}, ":3: a key has 32"), ({"a b": "k" * 32}, ":3: a line")):
            with self.assertRaisesRegex(ValueError, word):
                read_keys(write_keys(self.folder(), keys))

    def test_a_file_that_others_may_read_is_warned_about(self):
        with self.assertLogs("tfmc_serve", "WARNING") as logged:
            Keys(write_keys(self.folder(), mode=0o644))
        self.assertIn("chmod 600", logged.output[0])

    def test_keys_are_read_again(self):
        keys = Keys(write_keys(folder := self.folder()))
        self.assertEqual(keys.name_of("k" * 32), "one")
        write_keys(folder, {"three": "3" * 32})
        with self.assertLogs("tfmc_serve", "INFO"):
            keys.reread()
        self.assertEqual((keys.name_of("k" * 32), keys.name_of("3" * 32)), (None, "three"))
        write_keys(folder, {"three": "short"})
        with self.assertLogs("tfmc_serve", "ERROR"):
            keys.reread()
        self.assertEqual(keys.name_of("3" * 32), "three")
        self.assertNotIn("3" * 32, repr(vars(keys)))


class Logs(KeyCase):
    def test_logs_have_neither_keys_nor_texts(self):
        with tempfile.TemporaryDirectory() as folder:
            file = write_keys(folder)
            server = Process(place("embed"), f"--api-key-file={file}", "--log=json", "--metrics-port=0")
            try:
                client = server.client(key=KEYS["one"])
                client.post("/embed", {"inputs": "secretword"}, {"x-request-id": "mine"})
                client.post("/embed", {"inputs": "secretword " * 30})
                client.post("/embed", {"secretword": 1})
                client.get("/secretword")
                server.client(key="x" * 40).get("/info")
                self.assertIn('"key": "one"', server.wait_for('"id": "mine"'))
                server.wait_for('"code": 401')
                numbers = Client(server.ports[1], KEYS["one"])
                self.assertEqual([numbers.get(path).status for path in ("/metrics", "/ready", "/info", "/")],
                                 [200, 200, 404, 404])
                self.assertEqual(Client(server.ports[1]).get("/metrics").status, 401)
                write_keys(folder, {"new": "n" * 32})
                server.signal(1)
                server.wait_for("keys: 1")
                self.assertEqual(client.get("/info").status, 401)
                server.signal()
                self.assertEqual(server.ended(), 0)
                text = "".join(server.lines)
                for word in ("secretword", *KEYS.values(), "x" * 40):
                    self.assertNotIn(word, text)
            finally:
                server.close()


if __name__ == "__main__":
    unittest.main()
