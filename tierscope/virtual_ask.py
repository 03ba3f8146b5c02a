"""What the requests of a plan ask, as the mock's APIs read them: all but their words. Pure.

A body that says one word is made and read for each tier and length of answer; what comes of it, a refusal
included, holds for all such requests. A plan with a ``speed`` in the body of a tier speaks Anthropic's API,
any other OpenAI's chat. Stop sequences, forced tools and schemas need words and are not played, nor is ``n``.
"""

from dataclasses import replace

from loadtest import wire_anthropic as anthropic_client
from loadtest import wire_openai as chat_client
from loadtest.plan import Plan
from loadtest.workload import Message, Request
from mockserver import text, wire_anthropic, wire_chat
from mockserver.ask import Ask, RefusedError
from mockserver.config import ServerConfig

_A_WORD = (Message("user", "word"),)
_KEY = "a key, which the mock does not look at"


class Asks:
    """The asks of one plan to one server, each read once."""

    def __init__(self, plan: Plan, config: ServerConfig) -> None:
        self._plan, self._config = plan, config
        self._has_speeds = any("speed" in tier.body for tier in plan.tiers)
        self._read: dict[tuple[str, int], Ask | RefusedError] = {}

    def of(self, request: Request) -> Ask:
        """What a request asks; its prompt is a word. Raises RefusedError if the API refuses it unseen.

        ``cacheable_tokens`` is None where all of the prompt may be cached, else 0.
        """
        key = request.tier.name, request.max_tokens
        if key not in self._read:
            self._read[key] = self._parsed(request)
        found = self._read[key]
        if isinstance(found, RefusedError):
            raise found.with_traceback(None)  # else it grows with every request
        return found

    def _parsed(self, request: Request) -> Ask | RefusedError:
        tier, config = request.tier, self._config
        client = anthropic_client if self._has_speeds else chat_client
        dialect = wire_anthropic.DIALECT if self._has_speeds else wire_chat.DIALECT
        body = client.body(self._plan, request, model=tier.model or config.model_name, messages=_A_WORD)
        headers = {name.lower(): value for name, value in (client.headers(_KEY) | tier.headers).items()}
        try:
            ask = dialect.parse(body, headers, config.wire)
        except RefusedError as refusal:
            return refusal
        all_cached = ask.cacheable_tokens in (None, text.count_tokens(ask.prompts[0]))
        return replace(
            ask, choices=1, stop=(), tool=None, frame=None, cacheable_tokens=None if all_cached else 0
        )
