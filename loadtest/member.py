"""What a master knows of one worker in one run. Pure."""

from collections import Counter
from dataclasses import dataclass, field

from loadtest.crew_messages import Batch, Done, Ready, Refused
from loadtest.fitness import Fitness
from loadtest.records import WorkerInfo


@dataclass(slots=True)
class Member:
    """One worker; ``name`` is that of its file, ``client`` what Locust calls it."""

    name: str
    client: str
    pid: int
    ready: Ready | None = None
    refused: Refused | None = None
    done: Done | None = None
    lost: str = ""
    """Why it is given up; nothing it says counts any more."""
    sending: bool = False
    """Whether it has a part of the stage under way that is not over."""
    started: int = 0
    recorded: int = 0
    in_flight: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests under way by stage and tier."""
    cpu_s: float = 0.0
    fitness: Fitness = field(default_factory=Fitness)

    def take(self, batch: Batch) -> None:
        """Count what a batch brings, but for its records."""
        self.cpu_s, self.fitness = batch.cpu_s, batch.fitness
        self.started += len(batch.parcel.started)
        self.in_flight.update(batch.parcel.started)

    def ended(self, stage: str, tier: str) -> None:
        """A record of its has come."""
        self.recorded += 1
        self.in_flight[stage, tier] -= 1

    def missing(self) -> str:
        """What it told of and did not bring; empty if all is here."""
        done = self.done
        if done is None or len({done.started, done.recorded, self.started, self.recorded}) == 1:
            return ""
        return f"it started {done.started} requests and {self.recorded} of their records are here"

    def info(self) -> WorkerInfo:
        """What run.json says of it."""
        first = (self.ready.offset_ns, self.ready.offset_error_ns) if self.ready else (0, 0)
        last = self.done.offset if self.done and self.done.offset else first
        return WorkerInfo(
            name=self.name,
            requests=self.recorded,
            cpu_s=self.done.cpu_s if self.done else self.cpu_s,
            cpu_max_ratio=self.fitness.cpu_max_ratio,
            lost=self.lost or self.missing(),
            clock_offset_ns=first[0],
            clock_error_ns=max(first[1], last[1]) + abs(last[0] - first[0]),
        )
