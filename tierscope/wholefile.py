"""Files that a reader sees whole, the old one or the new one, whenever he looks. Pure."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write(path: Path, data: bytes) -> None:
    """Put a file in place of an old one in one step; OSError leaves the old one as it was."""
    with replaced(path) as fresh:
        fresh.write_bytes(data)


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Give the name of a fresh file, which takes the place of ``path`` at the end, unless an exception comes.

    A link stays one: its target is replaced. A device or a pipe is written into, since to rename a file over
    ``/dev/null`` would take it from the whole machine.
    """
    special = path.exists() and not path.is_file()
    target = path if special else Path(os.path.realpath(path))
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    if special:
        fresh = Path(tempfile.gettempdir(), fresh.name)
    try:
        yield fresh
        if special:
            target.write_bytes(fresh.read_bytes())
        else:
            fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
