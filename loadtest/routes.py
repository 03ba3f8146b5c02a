"""Where the requests of each tier go: one transport for each address that a run speaks to."""

from collections.abc import Callable

from loadtest.addresses import address
from loadtest.endpoint import Endpoint
from loadtest.plan import Plan, Target, Tier
from loadtest.transport import Transport


class Routes:
    """The transports of a run; tiers with one address share theirs. ``connect`` makes one."""

    def __init__(
        self, plan: Plan, target: Target, path: str, connect: Callable[[Endpoint], Transport]
    ) -> None:
        self._by_address: dict[Endpoint, Transport] = {}
        self._by_tier: dict[str, Transport] = {}
        for tier in plan.tiers:
            where = address(target, tier, path)
            if where not in self._by_address:
                self._by_address[where] = connect(where)
            self._by_tier[tier.name] = self._by_address[where]

    def to(self, tier: Tier) -> Transport:
        """The transport of a tier's requests."""
        return self._by_tier[tier.name]

    @property
    def detours(self) -> list[str]:
        """Which way round requests go, where a proxy is used; for people, no credentials."""
        ways = ((where, transport.proxy) for where, transport in self._by_address.items())
        return list(
            dict.fromkeys(f"{where.origin} through the proxy {way.origin}" for where, way in ways if way)
        )

    @property
    def connections_opened(self) -> int:
        """How many connections were made in all."""
        return sum(transport.connections_opened for transport in self._by_address.values())

    def probe(self) -> None:
        """Connect to each address once. Raises RunFailedError in one line if one cannot be reached."""
        for transport in self._by_address.values():
            transport.probe()

    def cancel(self) -> None:
        """End all calls under way as cancelled."""
        for transport in self._by_address.values():
            transport.cancel()

    def close(self) -> None:
        """Close all pools."""
        for transport in self._by_address.values():
            transport.close()
