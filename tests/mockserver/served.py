"""A real mock server for a test: its own thread and event loop, a free port of loopback."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from mockserver import serving
from mockserver.config import ServerConfig


@contextmanager
def served(config: ServerConfig) -> Iterator[str]:
    """Serve ``config`` while the context lasts; gives the URL."""
    started: SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()
    listener = serving.listen("127.0.0.1", 0)
    url = serving.url_of(listener)

    async def main() -> None:
        stopping = asyncio.Event()
        async with serving.open_server(config, listener):
            started.put((asyncio.get_running_loop(), stopping))
            await stopping.wait()

    def run() -> None:
        with listener, asyncio.Runner(loop_factory=serving.loop_factory()) as runner:
            runner.run(main())

    thread = threading.Thread(target=run)
    thread.start()
    loop, stopping = started.get(timeout=30)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(30)
