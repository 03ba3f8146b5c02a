"""Request bytes: head and body of each request, ready before it is due. Pure.

The head never changes between two requests of a tier but for length and request id, so it is made once.
"""

from collections.abc import Sequence

from loadtest.addresses import address
from loadtest.endpoint import Endpoint
from loadtest.headers import sendable
from loadtest.plan import Plan, Target, Tier
from loadtest.wire import WIRES
from loadtest.workload import Message, Request
from tierscope.errors import BadInputError


class RequestBuilder:
    """Makes the bytes of a run's requests. ``key`` may be empty; it goes into heads and nowhere else.

    Raises BadInputError if the key cannot be sent; tiers' headers were looked at when the plan was read.
    """

    def __init__(self, plan: Plan, target: Target, *, key: str, run_id: str) -> None:
        self._plan = plan
        self._target = target
        self._wire = WIRES[target.api]
        self._run_id = run_id
        self._heads = {
            tier.name: self._head(tier, address(target, tier, self._wire.path), key) for tier in plan.tiers
        }

    def model(self, tier: Tier) -> str:
        """The model a tier's requests name."""
        return tier.model or self._target.model

    def build(self, request: Request, messages: Sequence[Message]) -> bytes:
        """The whole request; ``messages`` is all that it says, history included.

        Its id, ``RUN-INDEX``, lets a server's log be joined with the records.
        """
        body = self._wire.body(self._plan, request, model=self.model(request.tier), messages=messages)
        rest = f"Content-Length: {len(body)}\r\nX-Client-Request-Id: {self._run_id}-{request.index}\r\n\r\n"
        return self._heads[request.tier.name] + rest.encode("ascii") + body

    def _head(self, tier: Tier, endpoint: Endpoint, key: str) -> bytes:
        headers = {
            "Host": endpoint.authority,
            "User-Agent": "tierscope",
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",
        }
        headers |= self._wire.headers(key)
        own = {name.lower() for name in tier.headers}  # names of headers know no case, and a tier's win
        headers = {name: value for name, value in headers.items() if name.lower() not in own} | tier.headers
        if not all(sendable(value) for value in headers.values()):
            raise BadInputError("API key: holds a character that cannot be sent in an HTTP header")
        lines = [f"POST {endpoint.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return ("\r\n".join(lines) + "\r\n").encode("latin-1")
