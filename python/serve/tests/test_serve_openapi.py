"""/openapi.json against the server: requests that schemathesis makes from the document, good and bad ones, on all routes.
Left out, with a word, where the package schemathesis is missing. With TFM_LONG more of them."""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

from servers import WAIT, Case, Process, place

EXAMPLES = 100 if "TFM_LONG" in os.environ else 8
# what every answer must be: no 5xx, a status, a type and a form that the document names, and no way around the key
CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
          "response_headers_conformance", "ignored_auth")
KEY = "0123456789abcdef" * 2


@unittest.skipIf(importlib.util.find_spec("schemathesis") is None, "not run: the package schemathesis is missing")
class Document(Case):
    @classmethod
    def setUpClass(cls):
        with tempfile.NamedTemporaryFile("w", suffix=".keys", delete=False) as file:
            file.write(f"tester {KEY}\n")
        os.chmod(file.name, 0o600)
        cls.addClassCleanup(os.unlink, file.name)
        cls.server = cls.started(Process(place("embed"), place("rerank"), place("classify"), place("bytes"), place("chat"),
                                         "--api-key-file", file.name))

    def test_schemathesis(self):
        url = f"http://127.0.0.1:{self.server.port}/openapi.json"
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "schemathesis.cli", "run", url, "--header", f"Authorization: Bearer {KEY}",
                 "--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing", "--max-examples", str(EXAMPLES),
                 "--seed", "1", "--no-color", "--request-timeout", "60", "--exclude-path", "/page/{id}"],
                capture_output=True, text=True, cwd=folder, timeout=WAIT * 4)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])
        print(re.sub(r"\s+", " ", done.stdout[-300:]))
        self.assertEqual(self.server.client(key=KEY).get("/health").status, 200)


if __name__ == "__main__":
    unittest.main()
