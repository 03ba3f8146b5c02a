"""The process that serves: a port, an event loop, signals, and the log of steps."""

import asyncio
import gc
import importlib
import importlib.util
import itertools
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from mockserver import step_bound
from mockserver.app import Server
from mockserver.config import ServerConfig
from mockserver.dispatch import StepSink
from mockserver.http_server import HttpServer
from tierscope.errors import BadInputError

_LATENESS_S = 1.0
_BACKLOG = 4096
_YOUNG, _ALL = 0, 2  # generations
_ALL_EVERY_S = 60


def serve(
    config: ServerConfig,
    *,
    host: str,
    port: int,
    step_log: Path | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` gets the URL once the port is open (0: any free one).

    Every step goes into the Parquet file ``step_log``, if one is named. Raises BadInputError, in one line, if
    the address cannot be bound or the file not be written.
    """
    _allow_many_connections()
    with (
        listen(host, port) as listener,
        _logging(config, step_log) as log,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        runner.run(_until_told(config, listener, log, ready))


@asynccontextmanager
async def open_server(
    config: ServerConfig, listener: socket.socket, *, step_log: StepSink | None = None
) -> AsyncIterator[Server]:
    """A server that serves on a listening socket while the context lasts."""
    loop = asyncio.get_running_loop()
    server = Server(config, step_log=step_log)
    server.start(loop)
    http = HttpServer(
        server, server.cork, max_body_bytes=config.max_body_bytes, body_timeout_s=config.body_timeout_s
    )
    judging = asyncio.create_task(_judge(server, step_log))
    accepting = await loop.create_server(http.accept, sock=listener, backlog=_BACKLOG)
    try:
        yield server
    finally:
        accepting.close()
        await http.close()
        judging.cancel()
        server.stop()


async def _until_told(
    config: ServerConfig, listener: socket.socket, log: StepSink | None, ready: Callable[[str], None] | None
) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    async with open_server(config, listener, step_log=log):
        sweeping = asyncio.create_task(_sweep())
        if ready is not None:
            ready(url_of(listener))
        await stopping.wait()
        sweeping.cancel()


async def _sweep() -> None:
    """Look for garbage now and then, instead of whenever so many objects were made.

    Python looks at all that lives when enough is new, which holds back tokens for 5 to 20 ms every second or
    two at 1,000 streams of short answers. What is young is looked at each second, the rest once a minute.
    """
    gc.collect()
    gc.freeze()  # what is there by now stays
    gc.disable()
    for second in itertools.count(1):
        await asyncio.sleep(1.0)
        gc.collect(_ALL if second % _ALL_EVERY_S == 0 else _YOUNG)


async def _judge(server: Server, step_log: StepSink | None) -> None:
    """Look once a second whether this host keeps up, and its disk."""
    told = ""
    while True:
        await asyncio.sleep(_LATENESS_S)
        server.check_lateness()
        if step_log is not None and step_log.failure != told:
            told = step_log.failure
            server.say(told)


@contextmanager
def _logging(config: ServerConfig, path: Path | None) -> Iterator[StepSink | None]:
    if path is None:
        yield None
        return
    from mockserver.step_log import StepLog  # pyarrow takes a while to load

    with StepLog(path, step_bound.of_config(config)) as log:
        yield log


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; raises BadInputError, in one line, for an address that cannot be."""
    if not 0 <= port <= 65535:
        raise BadInputError(f"--port: {port} is not allowed; expected 0 to 65535")
    if not host.strip():  # to a socket that means every interface
        raise BadInputError(f"--host: {host!r} is not allowed; expected an address, 0.0.0.0 for all of them")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # the address is named already
        raise BadInputError(f"--host, --port: {host}:{port} cannot be listened on: {reason}") from error


def url_of(listener: socket.socket) -> str:
    """The URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Use uvloop where it is installed; it is not a dependency."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory


def _allow_many_connections() -> None:
    """Raise the soft limit of open files to the hard one: a connection is a file."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
