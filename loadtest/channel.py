"""Our own messages on the channel that a Locust master and its workers have."""

from collections.abc import Callable
from typing import Any

_NAME = "tierscope"


class Channel:
    """Sends bytes to the other side and hands on what it sends: the sender's id and the bytes.

    Locust calls back in the greenlet that reads all its messages, so ``receive`` must not block.
    """

    def __init__(self, runner: Any, receive: Callable[[str, bytes], None]) -> None:
        self._runner = runner
        self._receive = receive
        runner.register_message(_NAME, self._on_message)

    def send(self, data: bytes, to: str | None = None) -> None:
        """Send to a worker, or, from a worker, to the master. Messages of one sender stay in order."""
        self._runner.send_message(_NAME, data, to)

    def _on_message(self, environment: Any, msg: Any) -> None:  # noqa: ARG002 - Locust passes both by name
        self._receive(msg.node_id, msg.data)
