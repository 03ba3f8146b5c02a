"""Whether two processes read the same monotonic clock: they do if one start of one machine made it. Pure."""

from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """A name of this machine's present uptime; empty where the system gives none (any but Linux)."""
    try:
        return _LINUX.read_text("ascii").strip()
    except OSError:
        return ""
