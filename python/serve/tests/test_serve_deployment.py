"""The unit of systemd and the Dockerfile of docs/serving.md: what they start starts, what they check is checked.

Without docker: the commands, variables and health check of the Dockerfile are run here, with the folders of a test in place
of those in the image.
"""
import configparser
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

from servers import WAIT, Case, Client, Process, place

from tfmc_serve.service import Options

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "serving.md"


@unittest.skipIf(not PAGE.exists(), "not run: the page is not beside the wheel")
class Deployment(Case):
    def block(self, language):
        return re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.S)[1]

    def start(self, words, folder, environment):
        """The command of a page, with a model that there is, in place of tfmc-serve at its place in the image."""
        self.assertEqual(pathlib.PurePath(words[0]).name, "tfmc-serve")
        given = [word.replace("%d", str(folder)) for word in words[1:]]
        models = [i for i, word in enumerate(given) if "=" in word and ":" in word]
        self.assertEqual(len(models), 1, given)
        name, found, paths = given[models[0]].partition(":")
        self.assertTrue(found and paths.endswith(".tfmm"), given)
        given[models[0]] = f"{name}:{place('embed')}"
        server = Process(*given, environment=environment, wait_ready=False)
        self.addCleanup(server.close)
        return server

    def unit(self):
        found = configparser.ConfigParser(interpolation=None)
        found.optionxform = str
        found.read_string(self.block("ini").partition("\n")[2])
        return found

    def test_the_unit_starts_a_server_reads_keys_again_and_ends_it(self):
        service = self.unit()["Service"]
        credential, _, path = service["LoadCredential"].partition(":")
        self.assertTrue(path.startswith("/"))
        self.assertGreater(int(service["TimeoutStopSec"]), Options(places=()).grace)
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            keys = pathlib.Path(folder) / credential
            keys.write_text("one " + "a" * 32 + "\n")
            keys.chmod(0o600)
            manager.bind(f"{folder}/notify")
            manager.settimeout(WAIT)
            self.assertEqual(service["Type"], "notify")
            server = self.start(shlex.split(service["ExecStart"]), folder, {
                "NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_USEC": str(int(service["WatchdogSec"]) * 10 ** 6)})
            while manager.recv(100) != b"READY=1":
                pass
            for key, status in (("a" * 32, 200), ("b" * 32, 401)):
                self.assertEqual(Client(server.port, key=key).get("/info").status, status)
            keys.write_text("two " + "b" * 32 + "\n")
            done = subprocess.run(["/bin/sh", "-c", service["ExecReload"]], env={**os.environ, "MAINPID": str(server.process.pid)})
            self.assertEqual(done.returncode, 0)
            server.wait_for("keys")
            self.assertEqual(Client(server.port, key="b" * 32).get("/info").status, 200)
            server.signal()
            self.assertEqual(server.ended(), 0)

    @unittest.skipIf(not shutil.which("systemd-analyze"), "not run: there is no systemd-analyze")
    def test_the_unit_has_no_unknown_settings(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "tfmc-serve.service"
            unit.write_text(re.sub(r"/opt/\S+", "/bin/true", self.block("ini")))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True)
            said = [line for line in done.stderr.splitlines() if "tfmc-serve" in line]
            self.assertEqual(said, [])

    def test_the_image_starts_a_server_that_is_healthy(self):
        lines = [line.split(" ", 1) for line in self.block("dockerfile").splitlines() if line and not line.startswith("#")]
        found = {name: rest for name, rest in lines}
        copied = [rest.split()[-1] for name, rest in lines if name == "COPY"]
        words = json.loads(found["ENTRYPOINT"]) + json.loads(found["CMD"])
        self.assertTrue(all(any(part.startswith(there) for there in copied) for part in
                            words[1].partition(":")[2].split("=")), (words, copied))
        environment = dict(part.split("=", 1) for part in found["ENV"].split())
        server = self.start(words, "", environment)
        server.wait_for("ready: ")
        self.assertEqual(found["EXPOSE"], str(Options(places=()).port))
        check = json.loads(found["HEALTHCHECK"].partition("CMD ")[2])
        self.assertEqual(check[0], "python")
        check = [sys.executable, *(word.replace(f":{found['EXPOSE']}/", f":{server.port}/") for word in check[1:])]
        self.assertEqual(subprocess.run(check, capture_output=True).returncode, 0)
        self.assertEqual(socket.create_connection((socket.gethostname(), server.port), timeout=WAIT).close(), None)
        server.signal()
        self.assertEqual(server.ended(), 0)
        self.assertNotEqual(subprocess.run(check, capture_output=True).returncode, 0)


if __name__ == "__main__":
    unittest.main()
