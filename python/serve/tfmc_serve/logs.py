"""The log: its forms, and a writer that keeps nobody waiting.

In: records of logging. Out: lines on a file, standard error, in order. A line that has room is written at once, so that a
process that is killed loses none; where there is no room it is for a thread. Whoever reads slowly, or not at all, holds no
answer: so many lines wait, what is beyond is counted, and the count is a line as soon as there is room. An error waits a
moment for the lines before it. What cannot be written, to a full disk, is lost. At the end what waits is written within a
second.
"""
from __future__ import annotations

import json
import logging
import os
import queue
import select
import stat
import sys
import threading
import time
from typing import TextIO

MOST_LINES = 10_000  # that wait
LAST_SECONDS = 1.0   # for what waits, at the end
ERROR_SECONDS = 0.1  # for what waits, at an error


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        more = " ".join(f"{name}={value}" for name, value in getattr(record, "tfmc", {}).items())
        text = f"{when} {record.levelname.lower()} {record.getMessage()}{' ' if more else ''}{more}"
        return text + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {"time": round(record.created, 6), "level": record.levelname.lower(), "message": record.getMessage(),
                **getattr(record, "tfmc", {})}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class LogWriter(logging.Handler):
    """Calls come with the handler's lock (logging.Handler.handle)."""

    def __init__(self, file: TextIO, most: int = MOST_LINES) -> None:
        super().__init__()
        self._file, self._most, self._lost = file, most, 0
        self._waiting, self._counting = 0, threading.Lock()  # lines that the thread has not written
        self._is_stuck = False                               # an error has waited for it in vain
        self._lines: queue.SimpleQueue[str | threading.Event | None] = queue.SimpleQueue()
        threading.Thread(target=self._write, name="log", daemon=True).start()  # what blocks it must not keep the process

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # a record is wrong, not the log
            line = f"a line of the log cannot be written: {record.msg!r}"
        if self._lines.qsize() >= self._most:
            self._lost += 1
            return
        self._tell_lost()
        self._say(line)
        if record.levelno >= logging.ERROR and self._waiting and not self._is_stuck:
            self._is_stuck = not self._wait(ERROR_SECONDS)

    def tell(self, line: str) -> None:
        """A line as it is, and what waits before it."""
        self.acquire()
        self._say(line)
        self.release()
        self.flush()

    def _say(self, line: str) -> None:
        if not self._waiting and self._has_room(len(line.encode(errors="replace")) + 1):
            self._put_down(line)
            return
        with self._counting:
            self._waiting += 1
        self._lines.put(line)

    def _has_room(self, length: int) -> bool:
        """Whether so many bytes can be written without waiting: a pipe that can be written to takes PIPE_BUF."""
        if length > select.PIPE_BUF:
            return False
        try:
            number = self._file.fileno()
            mode = os.fstat(number).st_mode
            writable = select.poll()
            writable.register(number, select.POLLOUT)
            return any(kind(mode) for kind in (stat.S_ISFIFO, stat.S_ISREG, stat.S_ISSOCK)) and bool(writable.poll(0))
        except (OSError, ValueError):  # no file of the system's, or one that was closed
            return False

    def _tell_lost(self) -> None:
        if self._lost:
            lost = logging.LogRecord("tfmc_serve", logging.WARNING, __file__, 0, "%d lines of this log are lost: they were "
                                     "not read in time", (self._lost,), None)
            self._lost = 0
            self._say(self.format(lost))

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            if line is None:
                return
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._put_down(line)
            with self._counting:
                self._waiting -= 1
                self._is_stuck = self._is_stuck and self._waiting > 0

    def _put_down(self, line: str) -> None:
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except (OSError, ValueError):  # a disk that is full, a terminal that is gone, a file that was closed
            pass

    def _wait(self, seconds: float) -> bool:
        """Whether what waits was written in time."""
        written = threading.Event()
        self._lines.put(written)
        return written.wait(seconds)

    def flush(self) -> None:
        """Returns when what waits is written, or after a while."""
        self.acquire()
        self._tell_lost()
        self.release()
        self._wait(LAST_SECONDS)

    def close(self) -> None:
        self._lines.put(None)
        super().close()


def set_log(form: str) -> None:
    for before in logging.root.handlers:
        before.close()
    handler = LogWriter(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("tfmc_serve").setLevel(logging.INFO)


def tell(text: str) -> None:
    """What no record is, behind the lines of the log; a standard error that nobody reads holds it for a second."""
    writers = [handler for handler in logging.root.handlers if isinstance(handler, LogWriter)]
    for writer in writers:
        writer.tell(text)
    if not writers:  # the log has not begun
        print(text, file=sys.stderr)
