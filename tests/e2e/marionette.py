"""Firefox, driven as selenium drives Chromium, by the protocol that it has itself (Marionette): Debian has no geckodriver.

A message is its length, a colon and JSON: [0, number, command, parameters] to the browser, [1, number, error, result] back.
Here are the few commands that tests of pages need, under selenium's names.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element in JSON, by the WebDriver standard
SETTINGS = {"marionette.port": 0, "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False,
            "app.update.disabledForTesting": True, "browser.startup.page": 0, "network.captive-portal-service.enabled": False}


class BrowserError(Exception):
    pass


class Element:
    def __init__(self, browser, name):
        self.browser, self.name = browser, name

    def click(self):
        self.browser.command("WebDriver:ElementClick", id=self.name)

    def send_keys(self, text):
        self.browser.command("WebDriver:ElementSendKeys", id=self.name, text=text)


class Firefox:
    """`folder` gets its profile and temporary files."""

    def __init__(self, folder, program="firefox-esr"):
        profile = pathlib.Path(folder, "profile")
        profile.mkdir()
        profile.joinpath("user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
                                                       for name, value in SETTINGS.items()))
        self.process = subprocess.Popen(
            [program, "--headless", "--marionette", "--remote-allow-system-access", "--no-remote", "--profile", profile],
            env=os.environ | {"TMPDIR": str(folder), "HOME": str(folder)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)
        self.socket, self.number, self.switch_to = None, 0, self
        self.connect(profile / "MarionetteActivePort")
        self.command("WebDriver:NewSession", capabilities={})
        self.errors = 0  # of the console, that were told

    def connect(self, file):
        for _ in range(1200):
            try:
                self.socket = socket.create_connection(("127.0.0.1", int(file.read_text())), timeout=300)
                break
            except (OSError, ValueError):
                if self.process.poll() is not None:
                    raise BrowserError("Firefox has ended")
                time.sleep(0.1)
        else:
            self.quit()
            raise BrowserError("Firefox does not answer")
        self.receive()  # who it is

    def receive(self):
        digits = b""
        while not digits.endswith(b":"):
            digits += self.read(1)
        return json.loads(self.read(int(digits[:-1])))

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise BrowserError("Firefox has closed the connection")
            data += more
        return data

    def command(self, name, **parameters):
        self.number += 1
        text = json.dumps([0, self.number, name, parameters]).encode()
        self.socket.sendall(b"%d:%s" % (len(text), text))
        _, number, error, result = self.receive()
        if error:
            raise BrowserError(f"{name}: {error.get('message')}")
        if number != self.number:
            raise BrowserError(f"{name}: the answer to another command")
        return result.get("value") if isinstance(result, dict) and set(result) == {"value"} else result

    # ---- as selenium has them ----

    def get(self, url):
        self.command("WebDriver:Navigate", url=url)

    def back(self):
        self.command("WebDriver:Back")

    def execute_script(self, script, *args):
        return self.command("WebDriver:ExecuteScript", script=script, args=list(args))

    def find_element(self, using, value):
        return Element(self, self.command("WebDriver:FindElement", using=using, value=value)[ELEMENT])

    @property
    def active_element(self):
        return Element(self, self.command("WebDriver:GetActiveElement")[ELEMENT])

    def set_window_size(self, width, height):
        self.command("WebDriver:SetWindowRect", width=width, height=height)

    def screenshot(self):
        """A PNG in base64."""
        return self.command("WebDriver:TakeScreenshot", full=False)

    def get_log(self, _):
        """What scripts of pages have thrown, and what policies have refused, since it was asked last."""
        self.command("Marionette:SetContext", value="chrome")
        try:
            found = self.execute_script(
                "return Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError && !(one.flags & 1) &&"
                " /^(file|data|about:blank)/.test(one.sourceName)).map((one) => `${one.sourceName}:${one.lineNumber}: ${one.errorMessage}`)")
        finally:
            self.command("Marionette:SetContext", value="content")
        fresh, self.errors = found[self.errors:], len(found)
        return [{"level": "SEVERE", "message": text} for text in fresh]

    def quit(self):
        """Ends it with all its processes."""
        if self.socket:
            self.socket.close()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def firefox(folder):
    """None where there is none."""
    return Firefox(folder) if shutil.which("firefox-esr") else None
