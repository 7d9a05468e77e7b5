"""How far a job is: one line that is written anew on a terminal, else a line of JSON every ten seconds."""
import json
import sys
import time

EVERY = {True: 0.2, False: 10.0}  # seconds; on a terminal, elsewhere


class Progress:
    """What is shown goes to `to`: True is the standard error, False nothing, else a function that gets a dict."""

    def __init__(self, parts, done, to):
        self.parts, self.done, self.to = parts, done, to
        self.here = self.rows = self.tokens = self.workers = 0
        self.start = self.shown = time.monotonic()
        self.is_begun, self.waits_for = False, None
        if to is True and sys.stderr is None:
            self.to = False
        self.is_terminal = self.to is True and sys.stderr.isatty()

    def begin(self, workers):
        self.workers = workers

    def ready(self):
        """A worker can begin: what is counted in a second is counted from the first one on."""
        if not self.here:
            self.start = time.monotonic()
        self.is_begun, self.waits_for = True, None

    def wait(self, reason):
        """No worker can begin yet, and why: said once, at once."""
        if self.waits_for is None:
            self.waits_for = f"no worker is ready after {time.monotonic() - self.start:.0f} s: {reason}"
            self.show(is_now=True)

    def add(self, counts):
        self.done += 1
        self.here += 1
        self.rows += counts.rows
        self.tokens += counts.tokens

    def skip(self):
        self.done += 1

    def facts(self):
        seconds = max(time.monotonic() - self.start, 1e-9)
        left = (self.parts - self.done) * seconds / self.here if self.here else None
        waits = {} if self.waits_for is None else {"waiting": self.waits_for}
        return {**waits, "parts": self.parts, "done": self.done, "rows": self.rows,
                "rows_per_second": round(self.rows / seconds, 1),
                "tokens_per_second": round(self.tokens / seconds), "workers": self.workers,
                "seconds_left": None if left is None else round(left)}

    def show(self, is_last=False, is_now=False):
        now = time.monotonic()
        if self.to is False or (not is_last and not is_now and now - self.shown < EVERY[self.is_terminal]):
            return
        self.shown, facts = now, self.facts()
        if self.to is not True:
            self.to(facts)
            return
        try:
            self._print(facts, is_last, is_now)
        except OSError:  # who listened is gone, or the disk of the log is full; the parts are not lost for that
            self.to = False

    def _print(self, facts, is_last, is_now):
        if not self.is_terminal:
            print(json.dumps(facts), file=sys.stderr, flush=True)
        elif is_now:
            print(f"\r{facts['waiting']}\033[K", file=sys.stderr, flush=True)
        else:
            left = "?" if facts["seconds_left"] is None else f"{facts['seconds_left']} s"
            print(f"\r{facts['done']}/{facts['parts']} parts, {facts['rows']} rows, "
                  f"{facts['rows_per_second']:.0f} rows/s, {facts['tokens_per_second']} tokens/s, "
                  f"{facts['workers']} workers, {left} left \033[K",
                  end="\n" if is_last else "", file=sys.stderr, flush=True)

    def end(self):
        self.show(is_last=True)
