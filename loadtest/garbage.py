"""When Python looks for garbage while a run lasts: a little at each heartbeat, and never by itself.

By itself it looks once so many more objects were made than freed. Where as many are freed as are made, as in
a run, that is seldom, and then it looks at all that came since: at 2,000 streams for 20 to 100 ms (Python
3.11, measured), in which tokens arrive unread. Calls leave no cycles (a test holds that), so most is freed
without it.
"""

import gc

_MIDDLE_EVERY_BEATS = 10


def hold() -> None:
    """Look for garbage at beats only, from here on."""
    gc.disable()


def beat(number: int) -> None:
    """Look at what is new, and now and then at what was new lately; never at all there is."""
    gc.collect(1 if number % _MIDDLE_EVERY_BEATS == 0 else 0)


def release() -> None:
    """Let Python look when it likes."""
    gc.enable()
