"""How the load generator fared over a run, in the form run.json has."""

from loadtest import fitness
from loadtest.clock import RunClock
from loadtest.crew import Crew
from loadtest.ledger import Ledger
from loadtest.records import ClientHealth, StampSource
from loadtest.sending import Sending
from loadtest.stamps import Stamps
from loadtest.watching import Watching


def client_health(
    ledger: Ledger,
    watching: Watching,
    clock: RunClock,
    stamps: Stamps,
    sending: Sending,
    crew: Crew | None,
) -> ClientHealth:
    """Sum up a run that has ended.

    With workers, CPU seconds and connections are sums over all processes; what tells whether a process was
    overloaded is that of the worst worker.
    """
    cpu_s, connections = watching.cpu_s, sending.routes.connections_opened
    fit, stepped_ns = fitness.of(watching.tick()), clock.stepped_ns
    source: StampSource = stamps.source
    notes = [stamps.note]
    if crew is not None:
        words, fit = crew.last_words, crew.fitness
        cpu_s += sum(info.cpu_s for info in crew.infos)
        connections += sum(word.connections_opened for word in words)
        stepped_ns = max((word.stepped_ns for word in words), default=0)
        source = "user" if any(word.stamp_source == "user" for word in crew.first_words) else "kernel"
        notes = [word.stamp_note for word in crew.first_words]
    if stepped_ns:
        notes.append(f"the wall clock was stepped by {stepped_ns / 1e9:g} s in all while the run lasted")
    return ClientHealth(
        cpu_s=cpu_s,
        wall_s=watching.wall_s,
        worst_lag_s=ledger.tally.worst_lag_s,
        connections_opened=connections,
        stamp_source=source,
        stamp_note="; ".join(dict.fromkeys(note for note in notes if note)),
        cpu_max_ratio=fit.cpu_max_ratio,
        lag_p99_s=ledger.punctuality.lag_p99_s,
        hub_late_p99_s=fit.hub_late_p99_s,
        hub_late_max_s=fit.hub_late_max_s,
        clock_stepped_s=stepped_ns / 1e9,
        coalesced_ratio=ledger.punctuality.coalesced_ratio,
    )
