"""Calls of a program through fork_server.c: a fifth of the time of starting it anew, for a tiny model.

Without a C compiler, or for a program that does not take the server, each call starts it anew.
"""
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile


class Done:
    """As subprocess.CompletedProcess: a signal is its number below 0."""

    def __init__(self, returncode, stdout, stderr):
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr


class Server:
    def __init__(self, program, seconds):
        self.program, self.seconds, self.process = str(program), seconds, None
        self.folder = tempfile.TemporaryDirectory()
        place = pathlib.Path(self.folder.name)
        self.out, self.err = place / "out", place / "err"
        compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "clang-19"))), None)
        source = pathlib.Path(__file__).with_name("fork_server.c")
        made = compiler and subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", place / "server.so", source, "-ldl"],
                                           capture_output=True).returncode == 0
        if made:
            self.environment = os.environ | dict(LD_PRELOAD=str(place / "server.so"), LD_BIND_NOW="1", TFM_FORK_SERVER="1")
            self.start()
            if self.call("--version") is None:
                self.stop()

    def start(self):
        self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        env=self.environment)

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            self.process.wait()
        self.process = None

    def call(self, *args):
        """None where the server does not answer."""
        request = b"".join(os.fsencode(str(a)) + b"\0" for a in (self.out, self.err, self.seconds, self.program, *args))
        try:
            self.process.stdin.write(struct.pack("=I", len(request)) + request)
            self.process.stdin.flush()
            answer = self.process.stdout.read(4)
        except OSError:
            return None
        if len(answer) < 4:
            return None
        status = os.waitstatus_to_exitcode(struct.unpack("=i", answer)[0])
        return Done(status, self.out.read_text(errors="replace"), self.err.read_text(errors="replace"))

    def run(self, *args):
        done = self.call(*args) if self.process else None
        if done is None:
            done = subprocess.run([self.program, *map(str, args)], capture_output=True, text=True, timeout=self.seconds)
        return done

    def close(self):
        self.stop()
        self.folder.cleanup()
