"""A client of `tfmc lsp` that sends what it is told to, messages that no good client would send among them."""
import json
import pathlib
import subprocess
import threading


class Client:
    """Answers are read by a thread, so that a server which writes much never waits for a client that writes much."""

    def __init__(self, tfmc, env=None, initialize=True, options=None, capabilities=None):
        self.process = subprocess.Popen([tfmc, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self.answers, self.notices, self.changed = {}, [], threading.Condition()
        self.errors = []  # answers to what had no id
        self.number, self.at_end = 0, False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.capabilities = None
        if initialize:
            self.capabilities = self.ask("initialize", processId=None, rootUri=None, capabilities=capabilities or {},
                                         initializationOptions=options)["capabilities"]
            self.tell("initialized")

    def _read(self):
        out = self.process.stdout
        while True:
            header = out.readline()
            if not header:
                break
            length = int(header.split(b":")[1])
            assert out.readline() == b"\r\n"
            message = json.loads(out.read(length))
            with self.changed:
                if "method" in message:
                    self.notices.append(message)
                elif message["id"] is None:
                    self.errors.append(message["error"])
                else:
                    self.answers[message["id"]] = message
                self.changed.notify_all()
        with self.changed:
            self.at_end = True
            self.changed.notify_all()

    def wait(self, condition, what):
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.at_end, timeout=60)
            assert condition(), f"{what} never came"

    def raw(self, data):
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def send(self, message):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def tell(self, method, **params):
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method, **params):
        self.number += 1
        self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
        return self.number

    def answer(self, number):
        self.wait(lambda: number in self.answers, f"the answer to request {number}")
        return self.answers[number]

    def ask(self, method, **params):
        """The result."""
        answer = self.answer(self.begin(method, **params))
        assert "result" in answer, answer
        return answer["result"]

    def refused(self, method, **params):
        """The error."""
        answer = self.answer(self.begin(method, **params))
        assert "error" in answer, answer
        return answer["error"]

    # ---- texts ----

    def open(self, path, text=None):
        uri = pathlib.Path(path).as_uri()
        text = pathlib.Path(path).read_text() if text is None else text
        self.tell("textDocument/didOpen", textDocument={"uri": uri, "languageId": "tfm", "version": 1, "text": text})
        return uri

    def change(self, uri, text, version):
        self.tell("textDocument/didChange", textDocument={"uri": uri, "version": version}, contentChanges=[{"text": text}])

    def messages(self, uri, version=None):
        """What was said last of a text, of this version of it."""
        def found():
            return [n["params"] for n in self.notices if n["params"]["uri"] == uri and version in (None, n["params"].get("version"))]
        self.wait(lambda: found(), f"messages about {uri} {version}")
        return found()[-1]["diagnostics"]

    def at(self, method, uri, line, character, **params):
        return self.ask(method, textDocument={"uri": uri}, position={"line": line, "character": character}, **params)

    def end(self):
        """Ends it as an editor does; the exit code."""
        self.ask("shutdown")
        self.tell("exit")
        return self.close()

    def close(self):
        self.process.stdin.close()
        try:
            code = self.process.wait(timeout=60)
        finally:
            self.process.kill()
        self.reader.join(timeout=10)
        self.process.stdout.close()
        self.stderr = self.process.stderr.read().decode()
        self.process.stderr.close()
        return code
