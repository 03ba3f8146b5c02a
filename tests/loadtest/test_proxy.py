"""The way through a proxy: which one, what is said to it, and real tunnels, also TLS inside of TLS."""

import base64
import contextlib
import socket
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest import bypass, endpoint, proxy, tls
from loadtest.plan import Timeouts
from loadtest.proxy import Proxy, RefusedError, Reply
from tests.loadtest.certificates import Certificate, secured
from tests.loadtest.peer import REQUEST, Make, Peer, Serve, answer_always, body, receive
from tests.loadtest.tunnels import Tunnels
from tierscope.errors import BadInputError, RunFailedError

HTTPS = endpoint.parse("https://api.test", "/v1/x")
HTTP = endpoint.parse("http://llm.test:8000", "/v1/x")


# Which proxy


@pytest.mark.parametrize(
    ("environ", "https_by", "http_by"),
    [
        ({}, None, None),
        ({"HTTPS_PROXY": "http://a:1"}, "http://a:1", None),
        ({"http_proxy": "http://a:1"}, None, "http://a:1"),
        ({"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:2"}, "http://a:1", None),
        ({"ALL_PROXY": "http://c:3"}, "http://c:3", "http://c:3"),
        ({"all_proxy": "http://c:3", "HTTP_PROXY": "d:4"}, "http://c:3", "http://d:4"),
        ({"HTTPS_PROXY": "", "ALL_PROXY": "http://c:3"}, "http://c:3", "http://c:3"),
        ({"HTTPS_PROXY": "https://s"}, "https://s:443", None),
        ({"ALL_PROXY": "http://[::1]:8"}, "http://[::1]:8", "http://[::1]:8"),
        ({"ALL_PROXY": "c", "NO_PROXY": "llm.test"}, "http://c:80", None),
        ({"ALL_PROXY": "c", "NO_PROXY": "*"}, None, None),
        ({"ALL_PROXY": "c", "no_proxy": "other", "NO_PROXY": "*"}, "http://c:80", "http://c:80"),
        ({"TIERSCOPE_PROXY": "http://t:9", "NO_PROXY": "*"}, "http://t:9", "http://t:9"),
        ({"TIERSCOPE_PROXY": "", "ALL_PROXY": "http://c:3"}, None, None),
    ],
)
def test_the_environment_names_the_proxy(
    environ: Mapping[str, str], https_by: str | None, http_by: str | None
) -> None:
    found = [proxy.for_target(target, environ) for target in (HTTPS, HTTP)]
    assert [each and each.origin for each in found] == [https_by, http_by]


@pytest.mark.parametrize("host", ["localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]", "0.0.0.0"])
def test_this_machine_is_reached_straight_unless_a_proxy_was_asked_for(host: str) -> None:
    target = endpoint.parse(f"http://{host}:8000", "/x")
    assert proxy.for_target(target, {"ALL_PROXY": "http://p:1", "http_proxy": "http://p:1"}) is None
    assert proxy.for_target(target, {"TIERSCOPE_PROXY": "http://p:1"}) == Proxy(False, "p", 1)


@pytest.mark.parametrize(
    ("listed", "host", "port", "excepted"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "api.example.com", 443, True),
        (".example.com", "api.example.com", 443, True),
        (".example.com", "example.com", 443, True),
        ("*.example.com", "api.example.com", 443, True),
        ("EXAMPLE.com.", "Api.Example.com", 443, True),
        ("example.com", "api.example.com.", 443, True),
        ("example.com", "notexample.com", 443, False),
        ("example.com", "example.com.evil", 443, False),
        ("api.example.com", "example.com", 443, False),
        ("example.com:443", "example.com", 443, True),
        ("example.com:444", "example.com", 443, False),
        ("a, b ,example.com", "example.com", 1, True),
        ("a b example.com", "example.com", 1, True),
        ("10.0.0.0/8", "10.1.2.3", 1, True),
        ("10.0.0.0/8", "11.1.2.3", 1, False),
        ("10.0.0.7/8", "10.1.2.3", 1, True),
        ("10.0.0.0/8", "10.example", 1, False),
        ("192.168.1.5", "192.168.1.5", 1, True),
        ("192.168.1.5", "192.168.1.55", 1, False),
        ("192.168.1.5:80", "192.168.1.5", 81, False),
        ("fd00::/8", "fd12::1", 1, True),
        ("fd12::1", "fd12:0::1", 1, True),
        ("[fd12::1]:8000", "fd12::1", 8000, True),
        ("[fd12::1]:8000", "fd12::1", 8001, False),
        ("10.0.0.0/8", "::ffff:10.1.1.1", 1, True),
        ("fe80::/10", "fe80::1%eth0", 1, True),
        ("1.5", "192.168.1.5", 1, False),
        ("*", "anything", 1, True),
        ("", "anything", 1, False),
        (", .", "anything", 1, False),
        ("10.0.0.0/99", "10.0.0.1", 1, False),
        ("[", "x", 1, False),
    ],
)
def test_no_proxy_means_what_others_take_it_for(listed: str, host: str, port: int, excepted: bool) -> None:
    assert bypass.is_excepted(host, port, listed) is excepted


@pytest.mark.parametrize(
    ("host", "listed"),
    [
        ("example.com", "example.com"),
        ("api.example.com", "example.com"),
        ("api.example.com", ".example.com"),
        ("elsewhere.org", "example.com"),
        ("10.1.2.3", "10.0.0.0/8"),
        ("11.1.2.3", "10.0.0.0/8"),
        ("10.1.2.3", "10.1.2.3"),
        ("example.com", "a,example.com:443"),
        ("example.com", "a,example.com:444"),
    ],
)
def test_no_proxy_agrees_with_requests(host: str, listed: str) -> None:
    requests_utils = pytest.importorskip("requests.utils")
    theirs = requests_utils.should_bypass_proxies(f"https://{host}:443/", no_proxy=listed)
    assert bypass.is_excepted(host, 443, listed) is bool(theirs)


@given(st.text(), st.sampled_from(["h.test", "10.0.0.1", "::1"]))
def test_no_list_of_exceptions_is_an_error(listed: str, host: str) -> None:
    assert bypass.is_excepted(host, 1, listed) in (True, False)


def test_credentials_are_decoded_sent_and_shown_nowhere() -> None:
    found = proxy.parse("http://us%65r:p%40ss%3Aw%C3%B6rd@p:3128/", name="HTTPS_PROXY")
    token = base64.b64encode("user:p@ss:wörd".encode()).decode()
    assert found.request(HTTPS) == (
        b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\nUser-Agent: tierscope\r\n"
        b"Proxy-Authorization: Basic " + token.encode() + b"\r\n\r\n"
    )
    shown = f"{found!r} {found} {found.origin}"
    assert "http://p:3128" in shown
    assert token not in shown
    assert "rd" not in shown


def test_a_target_is_named_to_the_proxy_with_its_port_and_brackets() -> None:
    target = endpoint.parse("http://[fd00::1]", "/x")
    assert proxy.parse("p", name="X").request(target).startswith(b"CONNECT [fd00::1]:80 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("socks5://user:sekret@p:1", "a proxy of the kind socks5 is not spoken"),
        ("http://user:sekret@p:port", "its host or port cannot be read"),
        ("http://user:sekret@", "its host or port cannot be read"),
        ("http://user:sekret@p:99999", "its host or port cannot be read"),
        ("http://user:sekret@p:0", "it holds more or other than a host and a port"),
        ("http://user:sekret@p/path", "it holds more or other than a host and a port"),
        ("http://user:sekret@p?q", "it holds more or other than a host and a port"),
        ("http://user:sekret@[::1", "its host or port cannot be read"),
        ("http://user:sekret@a..b", "its host or port cannot be read"),
        ("http://user:sekret@a b", "it holds a blank or a control character"),
        ("http://user:sek\nret@p\n", "it holds a blank or a control character"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_one_line_without_its_credentials(url: str, why: str) -> None:
    with pytest.raises(BadInputError) as caught:
        proxy.for_target(HTTPS, {"HTTPS_PROXY": url})
    assert str(caught.value).startswith(f"HTTPS_PROXY: is not allowed: {why}; expected ")
    assert "sek" not in str(caught.value)
    assert str(caught.value).isprintable()


# What it answers


@given(
    st.sampled_from(
        [
            b"HTTP/1.1 200 Connection established\r\n\r\n",
            b"HTTP/1.0 200\r\nVia: x\r\nContent-Length: 5\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 OK\r\nX: y\r\n\r\n",
            b"HTTP/1.1 200 OK\n\n",
        ]
    ),
    st.data(),
)
def test_a_tunnel_is_seen_with_the_last_byte_of_the_answer_however_it_is_cut(
    answer: bytes, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    reply = Reply()
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    done = [reply.receive(piece) for piece in pieces if piece]
    assert done == [False] * (len(done) - 1) + [True]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 407 No sekret\r\n\r\n",
            "answered 407 Proxy Authentication Required; it wants USER:PASSWORD@",
        ),
        (b"HTTP/1.1 502 sekret\r\n\r\n<p>", "answered 502 Bad Gateway"),
        (
            b"HTTP/1.1 403 F\r\n\r\n",
            "answered 403 Forbidden; it may have tunnels to some hosts and ports only",
        ),
        (b"HTTP/1.1 302 F\r\nLocation: /\r\n\r\n", "answered 302 Found"),
        (b"HTTP/1.1 599 \r\n\r\n", "answered 599"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "sent more than an answer"),
        (b"SSH-2.0-x\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, "does not speak HTTP"),
        (b"\x15\x03\x01\x00\x02", "does not speak HTTP"),
    ],
)
def test_a_refusal_is_told_in_our_words(answer: bytes, words: str) -> None:
    with pytest.raises(RefusedError, match=f"^{words}") as caught:
        Reply().receive(answer)
    assert "sekret" not in str(caught.value)


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_of_a_proxy_are_an_error_of_ours(data: bytes, begins_well: bool) -> None:
    with contextlib.suppress(RefusedError):
        Reply().receive((b"HTTP/1.1 200" if begins_well else b"") + data)


# Real tunnels


def via(peer: Peer, *, tls: bool = False, credentials: str = "") -> Proxy:
    return proxy.parse(f"{'https' if tls else 'http'}://{credentials}127.0.0.1:{peer.port}", name="X")


@pytest.mark.parametrize("proxy_tls", [False, True], ids=["http proxy", "https proxy"])
@pytest.mark.parametrize("target_tls", [False, True], ids=["http target", "https target"])
def test_a_target_is_reached_through_a_proxy_and_the_connection_is_kept(
    serve: Serve, connect: Make, certificate: Certificate, proxy_tls: bool, target_tls: bool
) -> None:
    large = b"x" * 300_000

    def answer_large(connection: socket.socket, _: int) -> None:
        while True:
            receive(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large) + large)

    target = serve(secured(certificate.serving(), answer_large) if target_tls else answer_large)
    tunnels = Tunnels(target.port)
    middle = serve(secured(certificate.serving(), tunnels) if proxy_tls else tunnels)
    # The proxy alone knows where this name leads; the certificate is for it all the same.
    url = f"{'https' if target_tls else 'http'}://localhost:4430"
    transport = connect(
        url, context=certificate.trusting(), proxy=via(middle, tls=proxy_tls, credentials="me:sekret@")
    )
    for _ in range(3):
        exchange = transport.call(REQUEST).run()
        assert (exchange.ending, body(exchange)) == ("complete", large), exchange.detail
        assert exchange.stamp_source == transport.pool.stamps.source
    assert transport.connections_opened == middle.connections == target.connections == 1
    token = base64.b64encode(b"me:sekret")
    assert tunnels.heads == [
        b"CONNECT localhost:4430 HTTP/1.1\r\nHost: localhost:4430\r\nUser-Agent: tierscope\r\n"
        b"Proxy-Authorization: Basic " + token + b"\r\n\r\n"
    ]


@pytest.mark.parametrize("proxy_tls", [False, True], ids=["http proxy", "https proxy"])
def test_sessions_are_resumed_inside_of_tunnels(
    serve: Serve, connect: Make, certificate: Certificate, proxy_tls: bool
) -> None:
    seen: list[object] = []

    def once(connection: socket.socket, _: int) -> None:
        receive(connection)
        seen.append(getattr(connection, "session_reused", None))
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")

    target = serve(secured(certificate.serving(), once))
    tunnels = Tunnels(target.port)
    middle = serve(secured(certificate.serving(), tunnels) if proxy_tls else tunnels)
    transport = connect(
        "https://localhost:1", context=certificate.trusting(), proxy=via(middle, tls=proxy_tls)
    )
    assert [transport.call(REQUEST).run().ending for _ in range(3)] == ["complete"] * 3
    assert seen == [False, True, True]


def test_the_certificate_is_that_of_the_target_and_not_of_the_proxy(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    middle = serve(Tunnels(serve(secured(certificate.serving(), answer_always)).port))
    transport = connect("https://elsewhere.test", context=certificate.trusting(), proxy=via(middle))
    exchange = transport.call(REQUEST).run()
    assert exchange.ending == "unconnected"
    assert exchange.detail.startswith("TLS: Hostname mismatch, certificate is not valid for 'elsewhere.test'")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            b"HTTP/1.1 407 x\r\nProxy-Authenticate: Basic\r\n\r\n",
            "answered 407 Proxy Authentication Required; ",
        ),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nsorry", "answered 502 Bad Gateway"),
        (b"hello", "does not speak HTTP"),
    ],
)
def test_a_refusal_of_the_proxy_is_no_connection(
    serve: Serve, connect: Make, answer: bytes, words: str
) -> None:
    middle = serve(Tunnels(serve().port, answer=answer))
    transport = connect("https://x.test", context=tls.context(), proxy=via(middle, credentials="u:sekret@"))
    exchange = transport.call(REQUEST).run()
    said = f"proxy http://127.0.0.1:{middle.port}: {words}"
    assert (exchange.ending, exchange.detail[: len(said)]) == ("unconnected", said)
    with pytest.raises(RunFailedError) as caught:
        transport.probe()
    assert str(caught.value).startswith(f"cannot connect to https://x.test: {said}")
    assert "sekret" not in str(caught.value) + exchange.detail


def test_a_proxy_that_is_not_there_or_hangs_up_is_named(serve: Serve, connect: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    gone = proxy.parse(f"http://127.0.0.1:{port}", name="X")
    exchange = connect("http://x.test", proxy=gone).call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == (
        "unconnected",
        f"proxy http://127.0.0.1:{port}: Connection refused",
    )
    middle = serve(lambda connection, _: receive_head(connection))
    exchange = connect("http://x.test", proxy=via(middle)).call(REQUEST).run()
    assert exchange.detail == f"proxy http://127.0.0.1:{middle.port}: Connection reset by peer"


def receive_head(connection: socket.socket) -> None:
    connection.recv(65536)


def test_a_proxy_that_does_not_answer_has_words_of_its_own(serve: Serve, connect: Make) -> None:
    def mute(connection: socket.socket, _: int) -> None:
        receive_head(connection)
        connection.recv(1)

    transport = connect("http://x.test", Timeouts(connect_s=0.2), proxy=via(serve(mute)))
    exchange = transport.call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == (
        "timeout",
        "connect: no tunnel from the proxy within 0.2 s",
    )


def test_a_proxy_that_speaks_tls_must_prove_itself_too_and_in_time(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    middle = serve(secured(certificate.serving(), Tunnels(serve().port)))
    transport = connect("http://x.test", context=tls.context(), proxy=via(middle, tls=True))
    exchange = transport.call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == (
        "unconnected",
        f"proxy https://127.0.0.1:{middle.port}: TLS: self-signed certificate",
    )
    silent = serve(lambda connection, _: receive_all(connection))
    timeouts, way = Timeouts(connect_s=0.2), via(silent, tls=True)
    exchange = connect("http://x.test", timeouts, tls.context(), way).call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == (
        "timeout",
        "connect: no TLS session with the proxy within 0.2 s",
    )


def receive_all(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def test_the_time_a_proxy_takes_is_before_the_connection_and_not_in_the_answer(
    serve: Serve, connect: Make
) -> None:
    middle = serve(Tunnels(serve().port, wait_s=0.6))
    transport = connect("http://x.test", proxy=via(middle))
    began_ns = transport.clock.now_ns()
    exchange = transport.call(REQUEST).run()
    assert exchange.connected_ns is not None
    assert exchange.sent_ns is not None
    assert exchange.connected_ns - began_ns > 600_000_000
    assert exchange.connected_ns <= exchange.sent_ns
    assert exchange.ended_ns - exchange.sent_ns < 500_000_000
