"""Requests of Anthropic's Messages API: JSON to an Ask, or a refusal that names the field. Pure.

What the API refuses is refused here, by the ``anthropic`` SDK's documentation (2.14, 2026) and the API's own
errors; a field that means nothing here is accepted.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from mockserver import json_body
from mockserver.anthropic_fields import (
    OTHER_FIELDS,
    Document,
    Message,
    MessagesRequest,
    PromptRequest,
    SearchResult,
    Text,
    Tool,
)
from mockserver.anthropic_prompt import cacheable_tokens, pieces_of
from mockserver.ask import Ask, RefusedError
from mockserver.json_frame import Frame, frame_of
from mockserver.wire_config import Wire

VERSIONS = ("2023-06-01", "2026-10-21")
FAST_BETA = "fast-mode-2026-02-01"
LEAST_BUDGET_TOKENS = 1024

Request = TypeVar("Request", bound=PromptRequest)


def _version_of(headers: Mapping[str, str]) -> str:
    """The version of the API that is asked for; 400 if it is none. Names of ``headers`` are in lower case."""
    version = headers.get("anthropic-version")
    if version is None:
        raise RefusedError(400, "anthropic-version: header is required")
    if version not in VERSIONS:
        raise RefusedError(
            400, f"anthropic-version: {version!r} is not spoken here; expected one of: {', '.join(VERSIONS)}"
        )
    return version


def ask_of(body: bytes, headers: Mapping[str, str], wire: Wire) -> Ask:
    """Read ``POST /v1/messages``. Raises RefusedError (400) that names the field that is wrong."""
    version = _version_of(headers)
    request = _decoded(body, _MESSAGES)
    _check_prompt(request, headers, version, wire)
    _check_limits(request)
    if wire.refuse_unknown:
        _refuse_unknown(body)
    pieces = pieces_of(request)
    cacheable, for_an_hour = cacheable_tokens(pieces)
    thinking, tool = request.thinking, _tool(request)
    return Ask(
        model=request.model,
        prompts=("\n".join(piece for piece, _ in pieces),),
        max_tokens=request.max_tokens,
        stream=bool(request.stream),
        service_tier=request.service_tier,
        speed=request.speed,
        stop=tuple(request.stop_sequences or ()),
        ignore_eos=request.ignore_eos,
        tool=None if tool is None else tool.name,
        frame=_frame(request, tool),
        reasoning=None if thinking is None else thinking.type != "disabled",
        reasoning_limit_tokens=None if thinking is None else thinking.budget_tokens,
        reasoning_shown=thinking is None or thinking.display != "omitted",
        cacheable_tokens=cacheable,
        cacheable_1h_tokens=for_an_hour,
    )


def prompt_request(body: bytes, headers: Mapping[str, str], wire: Wire) -> PromptRequest:
    """Read ``POST /v1/messages/count_tokens``. Raises RefusedError (400) that names what is wrong."""
    version = _version_of(headers)
    request = _decoded(body, _PROMPT)
    _check_prompt(request, headers, version, wire)
    return request


def _check_prompt(request: PromptRequest, headers: Mapping[str, str], version: str, wire: Wire) -> None:
    """Refuse what types cannot: no messages, empty ones, a choice of no tool, speed without its beta."""
    if request.speed is not None and wire.fast_needs_beta:
        betas = {beta.strip() for beta in headers.get("anthropic-beta", "").split(",")}
        if FAST_BETA not in betas:
            raise RefusedError(
                400, f"speed: not permitted without the header anthropic-beta: {FAST_BETA}", param="speed"
            )
    if not request.messages:
        raise RefusedError(400, "messages: at least one message is required", param="messages")
    for place, message in enumerate(request.messages):
        _check_content(message, f"messages.{place}", last=place == len(request.messages) - 1)
    _check_tools(request)
    if version != VERSIONS[0]:
        _check_removed(request)


def _check_content(message: Message, where: str, *, last: bool) -> None:
    if not message.content and not (last and message.role == "assistant"):
        raise RefusedError(
            400, f"{where}.content: is empty; expected text or blocks", param=f"{where}.content"
        )
    if isinstance(message.content, str):
        return
    for place, block in enumerate(message.content):
        if isinstance(block, Text) and not block.text:
            param = f"{where}.content.{place}.text"
            raise RefusedError(400, f"{param}: text content blocks must be non-empty", param=param)


def _check_removed(request: PromptRequest) -> None:
    """What version 2026-10-21 refuses and the one before accepts (the vendor's page on versions, 2026)."""
    for name in ("temperature", "top_k", "top_p"):
        if bytes(getattr(request, name)):
            raise RefusedError(400, f"{name}: Extra inputs are not permitted", param=name)
    for place, message in enumerate(request.messages):
        for number, block in enumerate(message.content if isinstance(message.content, list) else ()):
            param = f"messages.{place}.content.{number}"
            if message.role == "assistant" and isinstance(block, Document):
                raise RefusedError(
                    400, f"{param}: a document may not stand in an assistant message", param=param
                )
            texts = block.content if isinstance(block, SearchResult) else [block]
            if message.role == "user" and any(isinstance(text, Text) and text.citations for text in texts):
                raise RefusedError(
                    400, f"{param}: text in a user message may not have citations", param=param
                )


def _check_tools(request: PromptRequest) -> None:
    tools, choice = request.tools or [], request.tool_choice
    for place, tool in enumerate(tools):
        param, schema = f"tools.{place}.input_schema", bytes(tool.input_schema)
        if tool.is_clients and not schema:
            raise RefusedError(400, f"{param}: Field required", param=param)
        if schema and not schema.startswith(b"{"):
            raise RefusedError(400, f"{param}: expected object", param=param)
    if choice is None or choice.type in ("auto", "none"):
        return
    if not tools:
        raise RefusedError(400, "tool_choice: needs tools, and there are none", param="tool_choice")
    if choice.type == "tool" and choice.name not in [tool.name for tool in tools]:
        raise RefusedError(
            400, f"tool_choice.name: {choice.name!r} is none of the tools", param="tool_choice.name"
        )
    if request.thinking is not None and request.thinking.type == "enabled":
        raise RefusedError(
            400,
            f"thinking: may not be enabled when tool_choice ({choice.type}) forces a tool",
            param="thinking",
        )


def _check_limits(request: MessagesRequest) -> None:
    for place, stop in enumerate(request.stop_sequences or ()):
        if not stop.strip():
            param = f"stop_sequences.{place}"
            raise RefusedError(400, f"{param}: each stop sequence must contain non-whitespace", param=param)
    thinking, param = request.thinking, "thinking.enabled.budget_tokens"
    if thinking is None or thinking.type != "enabled":
        return
    if thinking.budget_tokens is None:
        raise RefusedError(400, f"{param}: Field required", param=param)
    if thinking.budget_tokens < LEAST_BUDGET_TOKENS:
        raise RefusedError(
            400, f"{param}: {thinking.budget_tokens}; expected at least {LEAST_BUDGET_TOKENS}", param=param
        )
    if thinking.budget_tokens >= request.max_tokens:
        raise RefusedError(
            400,
            f"max_tokens: {request.max_tokens}; must be greater than thinking.budget_tokens",
            param="max_tokens",
        )


def _tool(request: MessagesRequest) -> Tool | None:
    """The tool that the answer must call; where any will do, the first that the client runs."""
    choice = request.tool_choice
    if choice is None or choice.type in ("auto", "none"):
        return None
    tools = request.tools or []
    if choice.type == "tool":
        return next(tool for tool in tools if tool.name == choice.name)
    return next((tool for tool in tools if tool.is_clients), tools[0])


def _frame(request: MessagesRequest, tool: Tool | None) -> Frame | None:
    """The JSON that an answer must be: a call's arguments, or a text of a schema."""
    if tool is not None:
        return frame_of(msgspec.json.decode(tool.input_schema)) if bytes(tool.input_schema) else None
    wanted = request.output_config.format if request.output_config else None
    wanted = wanted or request.output_format
    return None if wanted is None else frame_of(wanted.schema)


def _refuse_unknown(body: bytes) -> None:
    own = {name for name in MessagesRequest.__struct_fields__ if name != "ignore_eos"}
    for name in msgspec.json.decode(body, type=dict[str, msgspec.Raw]):
        if name not in own | OTHER_FIELDS:
            raise RefusedError(400, f"{name}: Extra inputs are not permitted", param=name)


def _decoded(body: bytes, decoder: "msgspec.json.Decoder[Request]") -> Request:
    try:
        return json_body.decode(decoder, body)
    except json_body.UnreadableError as error:
        raise _refusal(error) from error


def _refusal(error: json_body.UnreadableError) -> RefusedError:
    """What is wrong with a body, in this API's words and with dots as it writes paths."""
    if error.path is None:
        return RefusedError(400, f"The request body is not valid JSON: {error}")
    path = error.path.replace("[", ".").replace("]", "")
    if error.missing:
        return RefusedError(400, f"{path}: Field required", param=path)
    return RefusedError(400, f"{path or 'body'}: {error}", param=path or None)


_MESSAGES = msgspec.json.Decoder(MessagesRequest)
_PROMPT = msgspec.json.Decoder(PromptRequest)
