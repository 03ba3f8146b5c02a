"""The APIs a run can speak, as values: one ``Wire`` each. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadtest import wire_anthropic, wire_openai
from loadtest.delta import Delta
from loadtest.plan import Api, Plan
from loadtest.workload import Message, Request


class Body(Protocol):
    """How a request body is made."""

    def __call__(self, plan: Plan, request: Request, /, *, model: str, messages: Sequence[Message]) -> bytes:
        """Give the bytes of the body."""
        ...


@dataclass(frozen=True, slots=True)
class Wire:
    """What one API needs: where requests go, what they say, and how answers are read."""

    path: str
    key_variables: tuple[str, ...]
    """Environment variables that may hold the key, the first one that is set wins."""
    headers: Callable[[str], dict[str, str]]
    body: Body
    read_event: Callable[[bytes, bytes], Delta]
    read_body: Callable[[bytes], Delta]

    def key(self, environment: Mapping[str, str]) -> str:
        """The key that an environment holds for this API; empty if there is none."""
        return next(
            (value for name in self.key_variables if (value := environment.get(name, "").strip())), ""
        )


WIRES: dict[Api, Wire] = {
    "openai": Wire(
        path=wire_openai.PATH,
        key_variables=("TIERSCOPE_API_KEY", "OPENAI_API_KEY"),
        headers=wire_openai.headers,
        body=wire_openai.body,
        read_event=wire_openai.read_event,
        read_body=wire_openai.read_body,
    ),
    "anthropic": Wire(
        path=wire_anthropic.PATH,
        key_variables=("TIERSCOPE_API_KEY", "ANTHROPIC_API_KEY"),
        headers=wire_anthropic.headers,
        body=wire_anthropic.body,
        read_event=wire_anthropic.read_event,
        read_body=wire_anthropic.read_body,
    ),
}
