"""What really happened to a request: the fields of ``usage.mockserver``. Pure.

A request of several answers is one job each; the request's times then run from the first of them to the last.
"""

from collections.abc import Sequence

from mockserver.job import Finished, Started


def of_started(started: Sequence[Started], *, wait_ns: int = 0) -> dict[str, float]:
    """What is known when the first tokens are there; ``wait_ns`` is how long a limit had held it back."""
    first_work_ns = min(one.admitted_ns for one in started)
    return {
        "held_s": wait_ns / 1e9,
        "queue_s": _s(min(one.submitted_ns for one in started), first_work_ns),
        "prefill_s": _s(first_work_ns, min(one.first_token_ns for one in started)),
        "cached_tokens": sum(one.cached_tokens for one in started),
    }


def of_finished(finished: Sequence[Finished], *, wait_ns: int = 0) -> dict[str, float]:
    """What is known at the end. Times are the engine's: how late tokens were handed out is not in them.

    held_s + queue_s + prefill_s + decode_s is the time from arrival to last token. ``steps`` is of all
    answers together and ``mean_batch`` the mean over them of the sequences that decoded, this one included.
    """
    first_work_ns = min(one.admitted_ns for one in finished)
    first_token_ns = min(one.first_token_ns for one in finished)
    steps = sum(one.steps for one in finished)
    return {
        "held_s": wait_ns / 1e9,
        "queue_s": _s(min(one.submitted_ns for one in finished), first_work_ns),
        "prefill_s": _s(first_work_ns, first_token_ns),
        "decode_s": _s(first_token_ns, max(one.ended_ns for one in finished)),
        "steps": steps,
        "mean_batch": sum(one.mean_batch * one.steps for one in finished) / max(1, steps),
        "cached_tokens": sum(one.cached_tokens for one in finished),
        "preemptions": sum(one.preemptions for one in finished),
    }


def _s(begin_ns: int, end_ns: int) -> float:
    return (end_ns - begin_ns) / 1e9
