"""Pages in headless Chromium: what a page of a folder posts to /done.

In: a folder with all that the page asks for, its name there, flags of the browser. Out: what it posted, or {"failed": why}. A
browser takes longer to start than a page to answer, so there is one for all pages with the same flags, which opens them one
after another, each in a frame and at an address of its own; they end with this process. PROGRAM is None where there is none.
"""
import atexit
import contextlib
import functools
import http.server
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.parse

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FRAMES = b"""<!doctype html><title>frames</title><body><script type=module>
for (;;) {
  const next = await (await fetch('/next')).text();
  if (!next) break;
  const frame = document.createElement('iframe');
  frame.src = next;
  document.body.replaceChildren(frame);
}
</script>"""


def number_of(path):
    """A page's address begins with its number, which is none of the folder's."""
    return path.split("/")[1]


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".mjs": "text/javascript", ".wasm": "application/wasm", ".html": "text/html", "": "application/octet-stream"}

    def log_message(self, *_):
        pass

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/":
            self.answer(FRAMES)
        elif self.path == "/next":
            with contextlib.suppress(ConnectionError):  # of a browser that ends
                self.answer(self.server.pages.get().encode())
        else:
            super().do_GET()

    def translate_path(self, path):
        number = number_of(path)
        self.directory = self.server.sites.get(number, os.devnull)
        return super().translate_path(path.removeprefix(f"/{number}"))

    def do_POST(self):
        said = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send_response(204)
        self.end_headers()
        self.server.said.put((number_of(urllib.parse.urlsplit(self.headers["Referer"]).path), said))


class Browser:
    def __init__(self, flags):
        server = self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.pages, server.said, server.sites = queue.Queue(), queue.Queue(), {}
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.profile = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={self.profile.name}",
             *flags, f"http://127.0.0.1:{server.server_address[1]}/"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": self.profile.name})

    def said_by(self, site, page, timeout):
        number = str(len(self.server.sites))
        self.server.sites[number] = str(site)
        self.server.pages.put(f"/{number}/{page}")
        until = time.monotonic() + timeout
        while True:
            who, said = self.server.said.get(timeout=max(0, until - time.monotonic()))
            if who == number:  # none that was given up
                return json.loads(said)

    def close(self):
        self.server.pages.put("")
        self.process.terminate()
        self.process.wait(30)
        self.server.shutdown()
        self.server.server_close()
        self.profile.cleanup()


@functools.cache
def browser(flags):
    made = Browser(flags)
    atexit.register(made.close)
    return made


def said_by(site, page, *flags, timeout=240):
    try:
        return browser(flags).said_by(site, page, timeout)
    except queue.Empty:
        return {"failed": "the page did not answer"}
