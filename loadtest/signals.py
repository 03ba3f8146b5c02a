"""Stops from outside, taken in the hub between two callbacks, where Python would raise in the midst of one.

The first asks to end in order, the second to end at once. SIGHUP (the terminal is gone) is one of them,
unless it is ignored, as under nohup.
"""

import os
import signal
from collections.abc import Callable

import gevent


def handle(asked: Callable[[str], None], at_once: Callable[[], None], *, headless: bool) -> None:
    """Call ``asked`` with the name of the first stop, and ``at_once`` for any further one.

    With a web UI, SIGTERM is Locust's own way out, which a first stop goes, too. Stops that whoever started
    this process had blocked until now are heard now.
    """
    stops = own = 0

    def stopped(name: str) -> None:
        nonlocal stops, own
        if own and name == "SIGTERM":
            own -= 1
            return
        stops += 1
        if stops > 1:
            at_once()
            return
        asked(name)
        if not headless and name != "SIGTERM":
            own += 1
            os.kill(os.getpid(), signal.SIGTERM)

    heard = [signal.SIGINT, signal.SIGHUP, signal.SIGTERM]
    for number in heard:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            gevent.signal_handler(number, stopped, number.name)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
