"""The APIs a run can speak, as values: one ``Wire`` each. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from loadtest import wire_anthropic, wire_completions, wire_openai, wire_responses
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
    """Reads an event's name and data."""
    skim: Callable[[list[bytes]], list[Delta] | None]
    """Reads the data of many events at less cost: what was generated is left out, only its kind is told.
    None, or what ``read_event`` raises: the events are to be read one by one."""
    read_body: Callable[[bytes], Delta]
    """Reads an answer that was not streamed."""

    def key(self, environment: Mapping[str, str]) -> str:
        """The key that an environment holds for this API; empty if there is none."""
        return next(
            (value for name in self.key_variables if (value := environment.get(name, "").strip())), ""
        )


_OPENAI_KEYS = ("TIERSCOPE_API_KEY", "OPENAI_API_KEY")
_ANTHROPIC_KEYS = ("TIERSCOPE_API_KEY", "ANTHROPIC_API_KEY")

WIRES: dict[Api, Wire] = {
    "openai": Wire(
        path=wire_openai.PATH,
        key_variables=_OPENAI_KEYS,
        headers=wire_openai.headers,
        body=wire_openai.body,
        read_event=wire_openai.read_event,
        skim=wire_openai.skim,
        read_body=wire_openai.read_body,
    ),
    "completions": Wire(
        path=wire_completions.PATH,
        key_variables=_OPENAI_KEYS,
        headers=wire_openai.headers,
        body=wire_completions.body,
        read_event=wire_openai.read_event,
        skim=wire_openai.skim,
        read_body=wire_openai.read_body,
    ),
    "responses": Wire(
        path=wire_responses.PATH,
        key_variables=_OPENAI_KEYS,
        headers=wire_openai.headers,
        body=wire_responses.body,
        read_event=wire_responses.read_event,
        skim=wire_responses.skim,
        read_body=wire_responses.read_body,
    ),
    "anthropic": Wire(
        path=wire_anthropic.PATH,
        key_variables=_ANTHROPIC_KEYS,
        headers=wire_anthropic.headers,
        body=wire_anthropic.body,
        read_event=wire_anthropic.read_event,
        skim=wire_anthropic.skim,
        read_body=wire_anthropic.read_body,
    ),
}
