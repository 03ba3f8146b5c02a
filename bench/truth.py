"""What the reference server noted: when each request arrived and when each of its tokens was sent."""

from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One streamed answer. Instants are ns of CLOCK_MONOTONIC; token k was due at ``due_ns + k · gap_ns``."""

    id: str
    """The request id the client sent, empty if it sent none."""
    connection: int
    arrived_ns: int
    due_ns: int
    gap_ns: int
    sent_ns: list[int]

    @property
    def ttft_ns(self) -> int:
        """True time to first token: from the request's arrival to the first token's sending."""
        return self.sent_ns[0] - self.arrived_ns

    def late_ns(self) -> NDArray[np.int64]:
        """How late the server itself was with each token."""
        sent = np.asarray(self.sent_ns, dtype=np.int64)
        return sent - self.due_ns - self.gap_ns * np.arange(sent.size)


def read(path: Path) -> list[Answer]:
    """Read the server's file: answers in the order of their requests' arrival."""
    decoder = msgspec.json.Decoder(Answer)
    answers = [decoder.decode(line) for line in path.read_bytes().splitlines()]
    return sorted(answers, key=lambda answer: answer.arrived_ns)


def late_p99_s(answers: list[Answer]) -> float:
    """The 99th percentile of the server's own lateness over all tokens, in seconds; 0 without any."""
    late = [answer.late_ns() for answer in answers if answer.sent_ns]
    return float(np.quantile(np.concatenate(late), 0.99)) / 1e9 if late else 0.0


def connections(answers: list[Answer]) -> int:
    """How many connections brought requests."""
    return len({answer.connection for answer in answers})
