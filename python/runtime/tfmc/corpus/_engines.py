"""What runs workers: this process, processes of this machine, actors of Ray.

An engine is made of (settings, output, number of workers). free() says whether a worker can take a part, begin(part)
gives it one, wait() tells what happened next, waits_for() why no worker may be ready yet, close() ends it. What
happened is an Event: a worker's probe when it is ready, a part's counts, a part's failure, a worker's end with the part
that it had. The job decides what follows; an engine only carries.
"""
import collections
import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys

from .._errors import EnvError
from . import _worker
from ._parts import FATAL, Part
from ._worker import Counts, Settings, Worker

FALSE_STARTS = 3  # workers that may die, one after the other, before one is ready
MOST_WORDS = 600  # characters of a worker's complaint: its line stays below the size that a pipe takes whole (4,096)

# kind: a worker is "ready", or was "refused"; a part is "done", has "failed", failed as all would ("fatal"), or is
# "returned" untouched; a worker "died"; "nothing" happened.
Event = collections.namedtuple("Event", "kind part value")


def failure(error):
    """(kind, text) of an exception while a part was done."""
    kind = "fatal" if isinstance(error, OSError) and error.errno in FATAL else "failed"
    return kind, f"{type(error).__name__}: {error}"


class Here:
    """This process, one part after the other."""

    def __init__(self, settings, output, workers):
        _worker.limit_tokenizers(settings.threads)
        self.worker, self.output, self.events = Worker(settings), output, collections.deque()
        self.workers = 1
        self.events.append(Event("ready", None, self.worker.probe()))

    def free(self):
        return not self.events

    def begin(self, part):
        try:
            self.events.append(Event("done", part, self.worker.run(part, self.output)))
        except Exception as error:  # whatever it is, the next part may do
            kind, text = failure(error)
            self.events.append(Event(kind, part, text))

    def wait(self, seconds):
        return self.events.popleft() if self.events else Event("nothing", None, None)

    def waits_for(self):
        return "it begins with the first part"

    def close(self):
        pass


# ---- processes ----

@contextlib.contextmanager
def _without_interrupts():
    """What is started here does not end by Ctrl-C, not even before it can say that it ignores it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Child:
    """A worker of this machine: it reads parts from its standard input and answers by a pipe of its own."""

    program = "from tfmc.corpus._engines import child; child()"

    def __init__(self, settings, output):
        self.part, self.is_ready = None, False
        read, write = os.pipe()
        self.lines = os.fdopen(read, "rb")
        command = [sys.executable, "-c", self.program, str(write), json.dumps([list(settings), str(output)])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        try:
            # Without a buffer: what a dead worker did not take would come up again, an error of close().
            self.process = subprocess.Popen(command, bufsize=0, stdin=subprocess.PIPE, stdout=_errors_go_to(),
                                            pass_fds=[write], env=environment)
        except BaseException:
            self.lines.close()
            raise
        finally:
            os.close(write)

    def give(self, part):
        self.part = part
        try:
            self.process.stdin.write(json.dumps(list(part)).encode() + b"\n")
        except BrokenPipeError:
            pass  # its end is noticed where its answers are read

    def take(self):
        """What it said; its end, if it says no more."""
        line = self.lines.readline()
        if not line.endswith(b"\n"):
            self.process.kill()  # it lives if it closed the pipe alone
            return Event("died", self.part, _how(self.process.wait()))
        kind, value = json.loads(line)
        part, self.part = self.part, None
        self.is_ready = True
        return Event(kind, part, Counts(*value) if kind == "done" else value)

    def close(self):
        self.process.kill()  # nothing is lost by it, and who is stopped, or hangs, ends by nothing else
        self.process.stdin.close()
        self.process.wait()
        self.lines.close()


def _errors_go_to():
    """Where a worker's prints go: to the standard error, if there is one."""
    try:
        os.fstat(2)
        return 2
    except OSError:
        return subprocess.DEVNULL


def _how(code):
    """How a process ended."""
    if code >= 0:
        return f"exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    hint = ", as the system does where memory is short" if -code == signal.SIGKILL else ""
    return f"signal {names.get(-code, -code)}{hint}"  # signals of real time have no names


class Processes:
    """Workers of this machine. One that dies is replaced; all end when this process does, even if it is killed."""

    def __init__(self, settings, output, workers):
        self.settings, self.output, self.workers = settings, output, workers
        # Before many wait for it to be compiled, and because what is wrong with it is said best here.
        _worker.open_model(settings.model, settings.tokenizer, settings.threads)[0].close()
        self.selector, self.children, self.false_starts = selectors.DefaultSelector(), [], 0
        try:
            for _ in range(workers):
                self._add()
        except BaseException:  # the fifth cannot be started, or Ctrl-C: nobody else knows of the first four
            self.close()
            raise

    def _add(self):
        try:
            with _without_interrupts():  # until close() knows of it
                child = _Child(self.settings, self.output)
                self.children.append(child)
                self.selector.register(child.lines, selectors.EVENT_READ, child)
        except OSError as error:
            raise EnvError(f"a worker cannot be started: {error}") from None

    def free(self):
        return any(child.is_ready and child.part is None for child in self.children)

    def begin(self, part):
        next(child for child in self.children if child.is_ready and child.part is None).give(part)

    def wait(self, seconds):
        ready = self.selector.select(seconds)
        if not ready:
            return Event("nothing", None, None)
        child = ready[0][0].data
        event = child.take()
        if event.kind == "ready":
            self.false_starts = 0
        if event.kind == "died":
            self._remove(child)
            self.false_starts += not child.is_ready
            if self.false_starts > FALSE_STARTS:
                return Event("refused", None, f"{self.false_starts} died before they were ready ({event.value})")
            self._add()
        return event

    def waits_for(self):
        pids = ", ".join(str(child.process.pid) for child in self.children[:9])
        return f"they import packages and open {self.settings.model} (processes {pids})"

    def _remove(self, child):
        self.selector.unregister(child.lines)
        self.children.remove(child)
        child.close()

    def close(self):
        for child in self.children:
            child.process.kill()  # all of them before the first one is waited for
        for child in list(self.children):
            self._remove(child)
        self.selector.close()


def _serve(answers, settings, output):
    """A child's life. It ends with its standard input, that is, with its parent. `answers`: a descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    os.set_inheritable(answers, False)  # what it starts itself, a compiler, must not keep the pipe open
    _worker.limit_tokenizers(settings.threads)

    def say(kind, value):
        if isinstance(value, str):
            value = value[:MOST_WORDS]
        os.write(answers, json.dumps([kind, value], ensure_ascii=False).encode(errors="replace") + b"\n")
    try:
        worker = Worker(settings)
        say("ready", worker.probe())
    except Exception as error:
        say("refused", f"{type(error).__name__}: {error}")
        return
    for line in sys.stdin.buffer:
        try:
            answer = "done", list(worker.run(Part(*json.loads(line)), output))
        except Exception as error:  # whatever it is, the next part may do
            answer = failure(error)
        say(*answer)


def child():
    """The program of a child."""
    given, output = json.loads(sys.argv[2])
    settings = Settings(*given)
    with contextlib.suppress(BrokenPipeError):  # the parent is gone
        _serve(int(sys.argv[1]), settings._replace(keep=tuple(settings.keep)), output)


# ---- Ray ----

IN_FLIGHT = 2  # parts that an actor has: it begins the next one while its counts travel


class _Actor:
    """What runs in an actor."""

    def __init__(self, settings, output):
        if not os.path.exists(os.path.join(output, "_job")):  # else its files would lie here, where nobody looks
            raise EnvError(f"{output}: node {os.uname().nodename} of Ray does not see the folder of the output as the "
                           "caller does; it must lie on a file system that all nodes share, under one name")
        _worker.limit_tokenizers(settings.threads)
        self.worker, self.output = Worker(settings), output

    def probe(self):
        return self.worker.probe()

    def run(self, part):
        try:
            return "done", self.worker.run(part, self.output)
        except Exception as error:
            return failure(error)


class Ray:
    """Actors of a cluster, or of this machine if there is none. Counts alone travel; files go from the actors."""

    def __init__(self, settings, output, workers):
        try:
            import ray
        except ImportError:
            raise EnvError("the engine ray needs the package ray: pip install ray") from None
        self.ray, self.output, self.workers = ray, os.path.abspath(output), workers
        if not ray.is_initialized():
            try:
                ray.init(include_dashboard=False, log_to_driver=False)
            except (OSError, RuntimeError) as error:
                raise EnvError(f"Ray cannot be reached: {error}{_token_is_missing(error)}") from None
        self.settings = settings
        self.kind = ray.remote(num_cpus=settings.threads)(_Actor)
        self.actors, self.asked = {}, {}  # actor -> its parts, None until it is ready; answer -> (actor, part)
        self.lost, self.false_starts = collections.deque(), 0
        for _ in range(workers):
            self._add()

    def _add(self):
        actor = self.kind.remote(self.settings, self.output)
        self.actors[actor] = None
        self.asked[actor.probe.remote()] = actor, None

    def free(self):
        return any(parts is not None and len(parts) < IN_FLIGHT for parts in self.actors.values())

    def begin(self, part):
        ready = [actor for actor, parts in self.actors.items() if parts is not None]
        actor = min(ready, key=lambda actor: len(self.actors[actor]))
        self.actors[actor].append(part)
        self.asked[actor.run.remote(part)] = actor, part

    def wait(self, seconds):
        if self.lost:
            return self.lost.popleft()
        ready, _ = self.ray.wait(list(self.asked), num_returns=1, timeout=seconds) if self.asked else ([], [])
        if not ready:
            return Event("nothing", None, None)
        actor, part = self.asked.pop(ready[0])
        try:
            value = self.ray.get(ready[0])
        except self.ray.exceptions.RayTaskError as error:  # its probe raised; run gives its errors back
            return Event("refused", part, str(getattr(error, "cause", error)))
        except self.ray.exceptions.RayError as error:  # it, its node or its memory is gone
            return self._died(actor, part, error)
        if part is None:
            self.actors[actor], self.false_starts = [], 0
            return Event("ready", None, value)
        self.actors[actor].remove(part)
        return Event(value[0], part, value[1])

    def waits_for(self):
        most = max((node["Resources"].get("CPU", 0) for node in self.ray.nodes() if node["Alive"]), default=0)
        free = self.ray.available_resources().get("CPU", 0)
        return (f"an actor needs {self.settings.threads} CPU(s) of one node; the largest node of the cluster has "
                f"{most:g}, and {free:g} of all CPUs are free")

    def _died(self, actor, part, error):
        """The part that it was doing has failed; those that it had not begun are given back without blame."""
        parts = self.actors.pop(actor, None)
        with contextlib.suppress(Exception):
            self.ray.kill(actor)  # one that cannot be reached may live, and would keep its CPU
        self.false_starts += parts is None
        if self.false_starts > FALSE_STARTS or (parts is None and getattr(error, "actor_init_failed", False)):
            return Event("refused", part, str(error))
        parts = parts or []
        self.asked = {answer: (a, p) for answer, (a, p) in self.asked.items() if a != actor}
        self.lost.extend(Event("returned", other, None) for other in parts[1:])
        self._add()
        return Event("died", parts[0] if parts else part, "the actor died")

    def close(self):
        for actor in self.actors:
            with contextlib.suppress(Exception):  # the cluster may be gone, and that is what is being told
                self.ray.kill(actor)


def _token_is_missing(error):
    """What Ray does not say where its head wants a token, as it does if its machine had one when it began."""
    while error is not None:
        if "AuthenticationError" in f"{type(error).__name__} {error}":
            return ("; it wants a token: all its machines and this one need RAY_AUTH_MODE=token and the same "
                    "~/.ray/auth_token, or all of them RAY_AUTH_MODE=disabled")
        error = error.__cause__
    return ""


ENGINES = {"here": Here, "processes": Processes, "ray": Ray}

