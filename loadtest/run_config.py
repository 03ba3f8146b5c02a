"""What one run is made of. Pure."""

from dataclasses import dataclass, field
from pathlib import Path

from loadtest.plan import Plan, Target
from tierscope.prices import Book


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What is run, and where it is recorded. ``key`` is never written or sent anywhere but to the server."""

    plan: Plan
    target: Target
    folder: Path
    run_id: str
    key: str = field(default="", repr=False)
    insecure: bool = False
    authorities: str = ""
    """Certificates (PEM) of those who may vouch for the server; empty: the system's list."""
    ca_file: Path | None = None
    """Where they were read from, on the machine that leads the run."""
    prices: Book | None = None
    """What requests cost; None: the shipped book."""
    files_from: Path = Path()
    """Where the files that the plan names are found, on every machine that sends."""
    scrape: tuple[str, ...] = ()
    """Pages with the server's own metrics: the first that tells something is recorded beside the run."""
