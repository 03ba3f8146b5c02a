"""A real mock server for a test: its own thread and event loop, a free port of loopback."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from aiohttp import web

from mockserver.app import Server
from mockserver.config import ServerConfig


@contextmanager
def served(config: ServerConfig) -> Iterator[str]:
    """Serve ``config`` while the context lasts; gives the URL."""
    url: SimpleQueue[str] = SimpleQueue()
    stop: SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = SimpleQueue()

    async def main() -> None:
        runner = web.AppRunner(Server(config).application(), handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        stopping = asyncio.Event()
        stop.put((asyncio.get_running_loop(), stopping))
        url.put(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await stopping.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    loop, stopping = stop.get(timeout=30)
    try:
        yield url.get(timeout=30)
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(30)
