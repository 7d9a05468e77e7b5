"""A service on its sockets: the port opens before the models load, signals end it, systemd is told.

The first SIGTERM or SIGINT: /ready says 503, new requests get 503, what runs may end within --grace, the rest ends with an
error; the exit status is 0. The second ends the process at once. SIGHUP reads the keys again; if the terminal that the
server was started in is gone, it ends the server like the others, unless it was ignored then (nohup).
"""
from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections.abc import Iterator

import uvicorn
import uvloop

from .app import make_app, make_metrics_app
from .asgi import App
from .limits import LimitedProtocol, WatchingProtocol, raise_descriptors
from .service import Options, Service

KEEP_ALIVE = 65  # seconds that an idle connection stays: longer than proxies keep theirs
LAST_SECONDS = 2  # for answers on their way when the rest has ended
log = logging.getLogger("tfmc_serve")


class Server(uvicorn.Server):
    """Signals are the caller's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(app: App, protocol: type[LimitedProtocol] = LimitedProtocol) -> Server:
    return Server(uvicorn.Config(
        app, http=protocol, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
        timeout_keep_alive=KEEP_ALIVE, timeout_graceful_shutdown=LAST_SECONDS))


def listen(options: Options, port: int) -> socket.socket:
    """--fd is for the first port: a socket that systemd has opened."""
    if options.fd is not None and port == options.port:
        return socket.socket(fileno=options.fd)
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    made = socket.create_server((options.host, port), family=family, backlog=2048)
    made.setblocking(False)
    return made


def tell_systemd(state: str) -> None:
    """sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(OSError):
            sender.setblocking(state != "WATCHDOG=1")
            sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


async def watchdog() -> None:
    """As long as the event loop turns. WatchdogSec= of the unit sets the time."""
    while True:
        tell_systemd("WATCHDOG=1")
        await asyncio.sleep(int(os.environ["WATCHDOG_USEC"]) / 2e6)


def has_terminal() -> bool:
    """Whether a terminal controls this process. It is nobody's when its window is closed or its connection lost."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


TERMINAL_LOOKS = 5.0  # seconds between looks for the terminal


class Serving:
    """One run of a server."""

    def __init__(self, options: Options) -> None:
        self.options, self.service = options, Service(options)
        self.status = 0
        self._ends_with_terminal = has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
        self._asked_to_end: asyncio.Event | None = None
        self._beside: list[asyncio.Future[None]] = []  # what ends with the server

    async def run(self) -> int:
        loop, self._asked_to_end = asyncio.get_running_loop(), asyncio.Event()
        LimitedProtocol.connections_most = raise_descriptors()
        sockets = [listen(self.options, self.options.port)]
        servers = [make_server(make_app(self.service))]
        if self.options.metrics_port is not None:
            sockets.append(listen(self.options, self.options.metrics_port))
            servers.append(make_server(make_metrics_app(self.service), WatchingProtocol))
        self.service.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end_asked, number)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        if self._ends_with_terminal:
            self._beside.append(asyncio.ensure_future(self._outlive_terminal()))
        log.info("listening on %s", ", ".join(str(s.getsockname()) for s in sockets))
        self._warn_about_openness(sockets[0])
        serving = [asyncio.ensure_future(server.serve([s])) for server, s in zip(servers, sockets)]
        await self._load_and_wait()
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*serving)
        for beside in self._beside:
            beside.cancel()
        return self.status

    async def _load_and_wait(self) -> None:
        """Until a signal, or until a model cannot be loaded."""
        assert self._asked_to_end is not None
        loading = asyncio.ensure_future(self.service.load())
        ending = asyncio.ensure_future(self._asked_to_end.wait())
        await asyncio.wait({loading, ending}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            try:
                loading.result()
            except Exception as error:  # told like an error of the command; all of tfmc's own name the file
                log.error("%s", error)
                self.status = 1
                return
            freeze()
            tell_systemd("READY=1")
            if os.environ.get("WATCHDOG_USEC", "").isdigit():  # not before: that many would leave no room for the first word
                self._beside.append(asyncio.ensure_future(watchdog()))
            log.info("ready: %s", ", ".join(f"{s.name} ({s.kind})" for s in self.service.models.values()))
            await ending
        tell_systemd("STOPPING=1")
        log.info("ending: %d requests are open", self.service.inside)
        await self.service.end(self.options.grace)

    async def _outlive_terminal(self) -> None:
        """A terminal that goes without a hangup has left the server to itself (`&`, then `exit`): one that comes later is
        somebody's, who wants the keys read."""
        while has_terminal():
            await asyncio.sleep(TERMINAL_LOOKS)
        await asyncio.sleep(TERMINAL_LOOKS)
        self._ends_with_terminal = False

    def _hung_up(self) -> None:
        assert self._asked_to_end is not None
        if self._ends_with_terminal and not has_terminal():
            log.info("the terminal is gone")
            self._asked_to_end.set()  # the shell sends it too: the second is none that ends at once
        elif self.service.keys is None:
            log.warning("SIGHUP: there are no keys to read again (--api-key-file)")
        else:
            self.service.keys.reread()

    def _end_asked(self, number: int) -> None:
        assert self._asked_to_end is not None
        if self._asked_to_end.is_set():
            log.warning("ended at once")
            logging.shutdown()
            os._exit(128 + number)
        self._asked_to_end.set()

    def _warn_about_openness(self, listening: socket.socket) -> None:
        address = listening.getsockname()
        if listening.family in (socket.AF_INET, socket.AF_INET6) and self.service.keys is None and \
                address[0] not in ("127.0.0.1", "::1"):
            log.warning("everybody who reaches %s may use it: there are no keys (--api-key-file)", address[0])


def freeze() -> None:
    """What stays for good is not looked at by every collection."""
    gc.collect()
    gc.freeze()


def serve(options: Options) -> int:
    """Until a signal; the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        serving = Serving(options)
        status = runner.run(serving.run())
        if not serving.service.close():  # a run, a text or a compilation that does not end must not keep the process
            logging.shutdown()
            os._exit(status)
    return status
