"""The way of a status out of the load process: a pipe that is never waited for."""

import os

from loadtest.status import Status, encode_line
from tierscope.errors import BadInputError


class StatusPipe:
    """Writes a line a status to an open file descriptor; a reader who is slow misses some.

    Raises BadInputError in one line if the descriptor is not open.
    """

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        try:
            os.set_blocking(fd, False)
        except OSError as error:
            raise BadInputError(f"--status-fd: {fd} cannot be written: {error.strerror}") from error

    def write(self, status: Status) -> None:
        """Write one line, or none if the pipe is full or nobody reads it any more."""
        if self._fd is None:
            return
        try:
            os.write(self._fd, encode_line(status))
        except BlockingIOError:
            pass
        except OSError:
            self._fd = None
