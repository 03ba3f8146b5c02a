"""Tokens of a step that a server lets go one by one until its next step, on the clock.

What ``speculation.smoothed`` says of instants, done: the k tokens of a step go out at its end and each k-th
of the time since the stream's step before; what is left when the next step ends goes out then.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from mockserver.job import Finished, StepDone

_FEWEST_KEPT = 64


class Receiver(Protocol):
    """Whom tokens are for."""

    def tokens(self, place: int, count: int) -> None:
        """An answer got so many tokens."""

    def finished(self, place: int, job: Finished) -> None:
        """An answer has all its tokens."""


class Smoothing:
    """Spreads what one engine brings. ``call_at(instant_ns, callback)`` is the clock's."""

    def __init__(self, call_at: Callable[[int, Callable[[], None]], None]) -> None:
        self._call_at = call_at
        self._due: list[list[Callable[[], None]]] = []
        self._last_ns: dict[int, int] = {}  # job → end of the last step that brought it a token
        self._most_kept = _FEWEST_KEPT

    def __len__(self) -> int:
        """Jobs of which something is remembered."""
        return len(self._last_ns)

    def on_step(self, step: StepDone, entry_of: Callable[[int], tuple[Receiver, int] | None]) -> None:
        """Hand out what the step before left, and of this one what is due at its end."""
        for group in self._due:
            _run(group)
        self._due.clear()
        groups: dict[int, list[Callable[[], None]]] = {}
        latest_ns: dict[int, int] = {}
        counts = step.emitted_tokens or (1,) * len(step.emitted)
        for job_id, count in zip(step.emitted, counts, strict=True):
            lasted_ns = step.ended_ns - self._last_ns.get(job_id, step.ended_ns)
            self._last_ns[job_id] = step.ended_ns
            if (entry := entry_of(job_id)) is None:
                continue
            receiver, place = entry
            receiver.tokens(place, 1)
            for number in range(1, count):
                latest_ns[job_id] = at_ns = step.ended_ns + number * lasted_ns // count
                groups.setdefault(at_ns, []).append(_token(receiver, place))
        for finished in step.finished:
            self._last_ns.pop(finished.job.id, None)
            if (entry := entry_of(finished.job.id)) is None:
                continue
            at_ns = latest_ns.get(finished.job.id, step.ended_ns)
            if at_ns == step.ended_ns and not groups.get(at_ns):
                entry[0].finished(entry[1], finished)
            else:
                groups[at_ns].append(_end(*entry, finished))
        if len(self._last_ns) > self._most_kept:
            self._forget_dropped(entry_of)
        for at_ns in sorted(groups):
            self._due.append(groups[at_ns])
            self._call_at(at_ns, partial(_run, groups[at_ns]))

    def _forget_dropped(self, entry_of: Callable[[int], tuple[Receiver, int] | None]) -> None:
        """Forget jobs that nobody waits for any more, now and then; who was preempted still waits."""
        self._last_ns = {job: ns for job, ns in self._last_ns.items() if entry_of(job) is not None}
        self._most_kept = 2 * len(self._last_ns) + _FEWEST_KEPT


def _run(group: list[Callable[[], None]]) -> None:
    """Hand a group out, once."""
    calls = list(group)
    group.clear()
    for call in calls:
        call()


def _token(receiver: Receiver, place: int) -> Callable[[], None]:
    return lambda: receiver.tokens(place, 1)


def _end(receiver: Receiver, place: int, finished: Finished) -> Callable[[], None]:
    return lambda: receiver.finished(place, finished)
