"""Heads, slow clients, clients that read nothing, numbers of connections, and keys over all routes."""
import base64
import pathlib
import re
import socket
import tempfile
import threading
import unittest

from servers import WAIT, Case, Client, Inside, Process, head, place, raw, read_answer

from tfmc_serve import app
from tfmc_serve.connections import Connection
from tfmc_serve.limits import Keys, read_keys

BODY = b'{"inputs": "a"}'


class Quick(Connection):
    head_seconds = body_seconds = unread_seconds = keep_seconds = 1.5


class Few(Connection):
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


    def test_many_requests_in_many_packets_are_no_large_head(self):
        """Packets that begin and end within heads."""
        asked = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 900 + b"\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
            sender = threading.Thread(target=connection.sendall, args=(asked * 500,))
            sender.start()
            found = b""
            while found.count(b"HTTP/1.1 200 ") < 500:
                part = connection.recv(65536)
                self.assertTrue(part, found[-300:])
                found += part
            sender.join()

    def statuses(self, *parts):
        """Of all answers on a connection that sends these, up to its end or to as many as are asked for."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=WAIT) as connection:
            connection.sendall(b"".join(parts))
            found = b""
            while part := connection.recv(65536):
                found += part
                if found.count(b"HTTP/1.1 ") == len(parts) and b"connection: close" not in found:
                    break
        return re.findall(rb"HTTP/1.1 (\d+)", found), found

    def test_what_may_stand_once(self):
        """In two of one name another server may see another than this one does."""
        for name, value in (("host", "x"), ("authorization", "Bearer x"), ("content-type", "application/json"),
                            ("x-request-id", "a"), ("content-encoding", "identity"), ("expect", "100-continue")):
            field = f"{name}: {value}\r\n".encode()
            found = raw(self.server.port, head("/embed", len(BODY), field + field) + BODY)
            self.assertIn(b" 400 ", found[:20], name)
            self.assertIn(f"the field {name} stands twice".encode(), found)
        self.assertIn(b" 200 ", raw(self.server.port, head("/embed", len(BODY), b"x: a\r\nx: b\r\n") + BODY)[:20])

    def test_heads_of_other_protocols(self):
        for data, word in ((b"GET /health HTTP/1.1\r\n\r\n", b"no field host"), (b"GET /health\r\n\r\n", b"HTTP/1.1 is spoken"),
                           (b"GET /health HTTP/2.0\r\nhost: x\r\n\r\n", b""),
                           (head("/embed", len(BODY), b"connection: upgrade\r\nupgrade: websocket\r\n") + BODY, b"upgrade")):
            found = raw(self.server.port, data)
            self.assertIn(b" 400 ", found[:20], data)
            self.assertIn(word, found)
        found = raw(self.server.port, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
        self.assertIn(b" 200 ", found[:20])
        self.assertIn(b"connection: close", found)
        self.assertIn(b" 200 ", raw(self.server.port, b"GET /health HTTP/1.0\r\n\r\n")[:20])

    def test_a_refusal_comes_after_the_answers_that_are_owed(self):
        good = head("/embed", len(BODY)) + BODY
        broken = head("/embed", 0).replace(b"content-length: 0", b"transfer-encoding: chunked") + b"zz\r\n"
        for last in (b"\0 is no request\r\n\r\n", broken, head("/embed", 1, b"content-length: 2\r\n") + b"a"):
            self.assertEqual(self.statuses(good, good, last)[0], [b"200", b"200", b"400"], last)

    def test_after_a_body_that_nobody_wanted_the_next_request_is_answered(self):
        good, space = head("/embed", len(BODY)) + BODY, b" " * 3_000_000
        for path, status in (("/embed", b"413"), ("/nothing", b"404")):
            found, text = self.statuses(head(path, len(space)) + space, good)
            self.assertEqual(found, [status, b"200"], text[:300])


class Slow(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", connection=Quick))

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
            self.server.until(lambda service: service.inside > 0)  # accepted, and more than the transport takes is owed
            self.server.until(lambda service: len(self.server.server.connections) == 0)
        self.assertIn(b" 200 ", raw(self.server.port, head("/embed", len(BODY)) + BODY)[:20])


class Connections(Case):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.started(Inside("embed", connection=Few))

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
        self.server.until(lambda service: len(self.server.server.connections) == 0)
        self.assertEqual(self.client.post("/embed", {"inputs": "a"}).status, 200)


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
        for route in app.Routes(self.server.service).routes:
            for method in sorted(route.methods):
                yield method, route.path.replace("/v1/models/{id}", "/v1/models/embed").replace("{id}", "page.js")

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
