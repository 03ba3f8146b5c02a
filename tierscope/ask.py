"""Asking a server which model it has, by the load test's own way: same proxy, same TLS, no redirects."""

import os
import signal
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import msgspec

from loadtest import endpoint
from loadtest.delta import folded
from loadtest.endpoint import Endpoint
from loadtest.exchange import Exchange
from loadtest.headers import sendable
from loadtest.plan import Api, Timeouts
from loadtest.reading import body_bytes
from loadtest.timeline import blotted
from loadtest.unreadable import UNREADABLE
from loadtest.wire import WIRES, Wire
from tierscope.errors import BadInputError, RunFailedError

ASK_TIMEOUT_S = 10.0
_MOST_SHOWN = 200
_MOST_BYTES = 1_000_000


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose certificates are good: anybody's, those of a file's authorities, or of the system's."""

    insecure: bool = False
    ca_file: Path | None = None


def ask_model(url: str, *, api: Api = "openai", trust: Trust | None = None) -> str:
    """Ask ``/v1/models`` which model the server has.

    Raises BadInputError, in one line that lists them, if it has none or several, and RunFailedError if it
    does not tell.
    """
    wire = WIRES[api]
    where = endpoint.parse(url, wire.path)
    base_path = where.path.removesuffix(wire.path)
    base = where.origin + base_path
    exchange = _get(where, f"{base_path}/v1/models", wire, trust or Trust())
    _check_answer(exchange, base, wire)
    try:
        names = [model.id for model in msgspec.json.decode(body_bytes(exchange), type=_Models).data]
    except UNREADABLE as error:
        raise RunFailedError(
            f"{base}/v1/models did not answer with a list of models; name --model"
        ) from error
    if len(names) != 1:
        raise BadInputError(f"--model: is needed, {base} has {len(names)}: {folded(', '.join(names[:20]))}")
    if not names[0].isprintable():
        raise RunFailedError(f"{base}/v1/models: {names[0]!r} is no name of a model; name --model")
    return names[0]


def _get(where: Endpoint, path: str, wire: Wire, trust: Trust) -> Exchange:
    """Get a document, with the key that the environment has. Ctrl-C ends it at once."""
    # Only here, since it takes a while: whoever names a model does not need it.
    from loadtest import proxy, tls
    from loadtest.clock import RunClock
    from loadtest.stamps import Stamps
    from loadtest.transport import Transport

    key = wire.key(os.environ)
    if not sendable(key):
        raise BadInputError("API key: holds a character that cannot be sent in an HTTP header")
    lines = [f"GET {path} HTTP/1.1", f"Host: {where.authority}", "User-Agent: tierscope"]
    lines += ["Accept: application/json", "Accept-Encoding: identity", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in wire.headers(key).items()]
    by_way_of = proxy.for_target(where, os.environ)
    authorities = tls.read_authorities(trust.ca_file) if trust.ca_file is not None else ""
    context = None
    if where.tls or (by_way_of is not None and by_way_of.tls):
        context = tls.context(verify=not trust.insecure, authorities=authorities)
    transport = Transport(
        where,
        Timeouts(connect_s=ASK_TIMEOUT_S, total_s=ASK_TIMEOUT_S),
        RunClock(),
        Stamps("user"),
        tls=context,
        proxy=by_way_of,
        max_response_bytes=_MOST_BYTES,
    )
    call = transport.call(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    before = signal.signal(signal.SIGINT, lambda *_: call.cancel())
    try:
        exchange = call.run()
    finally:
        signal.signal(signal.SIGINT, before)
        transport.close()
    if exchange.ending == "cancelled":
        raise KeyboardInterrupt
    return exchange


def _check_answer(exchange: Exchange, base: str, wire: Wire) -> None:
    """Raise RunFailedError in one line unless a whole document came."""
    page = f"{base}/v1/models"
    said = folded(blotted(exchange.detail, wire.key(os.environ)))[:_MOST_SHOWN]
    if exchange.ending == "unconnected":
        raise RunFailedError(f"cannot connect to {base}: {said}")
    if exchange.ending == "timeout":
        raise RunFailedError(f"{page} gave no answer within {ASK_TIMEOUT_S:g} s")
    if exchange.ending in ("malformed", "unanswered"):
        raise RunFailedError(f"{base} does not speak HTTP: {said}")
    if exchange.status != HTTPStatus.OK:
        hint = (
            f"put its key into {wire.key_variables[0]}" if exchange.status in (401, 403) else "name --model"
        )
        raise RunFailedError(f"{page} answered {_in_words(exchange.status)}; {hint}")
    if exchange.ending != "complete":
        raise RunFailedError(f"{page} did not answer with a list of models ({said}); name --model")


def _in_words(status: int | None) -> str:
    try:
        return f"{status} {HTTPStatus(status or 0).phrase}"
    except ValueError:
        return str(status)
