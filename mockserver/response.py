"""What a response in flight is to whoever brings it tokens, and how it can end. Pure."""

from collections.abc import Callable
from typing import Literal, Protocol

from mockserver.job import Finished, Started

How = Literal["done", "broken", "gone"]
"""All of it was sent; a fault ended it; the client hung up."""
OnOver = Callable[[How], None]
Headers = Callable[[], dict[str, str]]
"""Fields of a head, made when it is sent."""


class Response(Protocol):
    """One response in flight. Its answers are called by their places, from 0 on."""

    @property
    def is_over(self) -> bool:
        """Whether nothing will be written any more."""

    def begin(self, headers: Headers) -> None:
        """Its jobs have been handed in."""

    def started(self, place: int, job: Started) -> None:
        """An answer is about to get its first token."""

    def tokens(self, place: int, count: int) -> None:
        """An answer got so many tokens."""

    def finished(self, place: int, job: Finished) -> None:
        """An answer has all its tokens."""

    def gone(self) -> None:
        """The client has hung up."""
