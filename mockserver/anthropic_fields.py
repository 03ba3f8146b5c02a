"""Fields of a request to Anthropic's Messages API that have a meaning here, as msgspec reads them. Pure.

Names are those of the ``anthropic`` SDK's types (2.14, 2026). What is not named here is accepted, whatever it
holds.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Stop = Annotated[str, Meta(max_length=1000)]


class CacheControl(msgspec.Struct, frozen=True, gc=False):
    """A mark: the prompt up to here may be read from the cache, and is to be kept there."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class Text(msgspec.Struct, frozen=True, tag="text"):
    """A block of text."""

    text: str
    citations: list[Any] | None = None
    cache_control: CacheControl | None = None


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture, which counts nothing."""

    source: dict[str, Any]
    cache_control: CacheControl | None = None


class DocumentSource(msgspec.Struct, frozen=True):
    """Where a document's content is; only what is plain text counts."""

    type: str
    data: str = ""
    content: str | list[Text | Image] = ""


class Document(msgspec.Struct, frozen=True, tag="document"):
    """A document."""

    source: DocumentSource
    title: str | None = None
    context: str | None = None
    cache_control: CacheControl | None = None


class SearchResult(msgspec.Struct, frozen=True, tag="search_result"):
    """What a search of the client's found."""

    content: list[Text]
    source: str
    title: str
    cache_control: CacheControl | None = None


class Thinking(msgspec.Struct, frozen=True, tag="thinking"):
    """Reasoning of an earlier answer, handed back."""

    thinking: str
    signature: str


class RedactedThinking(msgspec.Struct, frozen=True, tag="redacted_thinking"):
    """Reasoning of an earlier answer that nobody may read."""

    data: str


class ToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    """A call of a tool in an earlier answer, handed back."""

    id: str
    name: str
    input: msgspec.Raw
    cache_control: CacheControl | None = None


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    """What a tool of the client's answered."""

    tool_use_id: str
    content: str | list[Text | Image | Document | SearchResult] | None = None
    cache_control: CacheControl | None = None


Block = Text | Image | Document | SearchResult | Thinking | RedactedThinking | ToolUse | ToolResult


class Message(msgspec.Struct, frozen=True):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Tool(msgspec.Struct, frozen=True):
    """A tool: the client's own, or by its ``type`` one that the vendor runs (which is never called here)."""

    name: Annotated[str, Meta(min_length=1, max_length=128)]
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw()
    cache_control: CacheControl | None = None

    @property
    def is_clients(self) -> bool:
        """Whether the client runs it."""
        return self.type in (None, "custom")


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether a tool must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None


class ThinkingConfig(msgspec.Struct, frozen=True):
    """Whether to reason, how much, and whether to show it."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(msgspec.Struct, frozen=True):
    """What a text must be: JSON of a schema."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, frozen=True):
    """How the answer is to be; effort means nothing here."""

    format: OutputFormat | None = None


class PromptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a prompt: all of ``POST /v1/messages/count_tokens`` that has a meaning here."""

    model: Annotated[str, Meta(min_length=1)]
    messages: list[Message]
    system: str | list[Text] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    speed: str | None = None
    cache_control: CacheControl | None = None
    temperature: msgspec.Raw = msgspec.Raw()
    top_k: msgspec.Raw = msgspec.Raw()
    top_p: msgspec.Raw = msgspec.Raw()


class MessagesRequest(PromptRequest, frozen=True, kw_only=True):
    """What of ``POST /v1/messages`` has a meaning here."""

    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)]
    stream: bool | None = None
    stop_sequences: Annotated[list[Stop], Meta(max_length=64)] | None = None
    service_tier: str | None = None
    metadata: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    ignore_eos: bool = False


# Top-level fields that the API has besides those above, its betas included.
OTHER_FIELDS = frozenset(
    [
        *("billing_policy", "compaction", "container", "context_management", "diagnostics"),
        *("fallback_credit_token", "fallbacks", "inference_geo", "mcp_servers"),
        *("thread", "user_profile_id", "workspace_id"),
    ]
)
