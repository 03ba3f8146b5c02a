"""TLS against real servers: Python's ssl and openssl's own."""

import contextlib
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest import tls
from loadtest.plan import Timeouts
from loadtest.pool import KEEP_LOOK_NS
from loadtest.stamps import Stamps
from loadtest.tls import TlsSession
from tests.loadtest.certificates import Certificate, secured
from tests.loadtest.peer import ANSWER, REQUEST, Make, Script, Serve, answer_always, body, receive, silent
from tierscope.errors import BadInputError, RunFailedError

TLS_12, TLS_13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
BOTH = pytest.mark.parametrize("version", [TLS_12, TLS_13], ids=["1.2", "1.3"])


def https(url: str) -> str:
    return url.replace("http://", "https://")


def test_tls_is_spoken_verified_reused_and_stamped(
    serve: Serve, connect: Make, certificate: Certificate, stamping: Stamps
) -> None:
    large = b"x" * 200_000

    def answer_large(connection: socket.socket, _: int) -> None:
        while True:
            receive(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(large))
            connection.sendall(large)

    peer = serve(secured(certificate.serving(), answer_large))
    transport = connect(peer.url.replace("http", "https"), context=certificate.trusting())
    for _ in range(3):
        exchange = transport.call(REQUEST).run()
        assert (exchange.ending, body(exchange)) == ("complete", large)
        assert exchange.stamp_source == stamping.source
    assert transport.connections_opened == 1


def test_what_tls_says_for_itself_is_no_answer(serve: Serve, connect: Make, certificate: Certificate) -> None:
    """TLS 1.3 servers send session tickets after the handshake, when the request is already on its way."""

    def hangs_up(connection: socket.socket, _: int) -> None:
        receive(connection)

    timeouts = Timeouts(first_byte_s=0.3, idle_s=0.1)
    for script, ending, words in (
        (silent, "timeout", "first byte: nothing came within 0.3 s of sending"),
        (hangs_up, "unanswered", "the server closed the connection before a response came"),
    ):
        url = serve(secured(certificate.serving(), script)).url.replace("http", "https")
        exchange = connect(url, timeouts, certificate.trusting()).call(REQUEST).run()
        assert (exchange.ending, exchange.detail) == (ending, words)


def test_a_certificate_nobody_vouches_for_is_refused_in_words_and_taken_when_told_so(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    url = serve(secured(certificate.serving(), answer_always)).url.replace("http", "https")
    exchange = connect(url, context=tls.context()).call(REQUEST).run()
    assert (exchange.ending, exchange.detail) == ("unconnected", "TLS: self-signed certificate")
    with pytest.raises(RunFailedError, match="TLS: self-signed certificate"):
        connect(url, context=tls.context()).probe()
    assert connect(url, context=tls.context(verify=False)).call(REQUEST).run().ending == "complete"


def test_a_plain_server_is_not_taken_for_a_tls_one(serve: Serve, connect: Make) -> None:
    def greets(connection: socket.socket, _: int) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    url = serve(greets).url.replace("http", "https")
    exchange = connect(url, context=tls.context()).call(REQUEST).run()
    assert exchange.ending == "unconnected"
    assert exchange.detail.startswith("TLS: ")


def test_a_tls_body_that_ends_without_a_close_notify_is_a_cut(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    def drops(connection: socket.socket, _: int) -> None:
        receive(connection)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nhalf")

    def says_goodbye(connection: socket.socket, _: int) -> None:
        drops(connection, 0)
        assert isinstance(connection, ssl.SSLSocket)
        connection.unwrap()

    for script, ending in ((drops, "cut"), (says_goodbye, "complete")):
        url = serve(secured(certificate.serving(), script)).url.replace("http", "https")
        exchange = connect(url, context=certificate.trusting()).call(REQUEST).run()
        assert (exchange.ending, body(exchange)) == (ending, b"half")


# Who the server is


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_certificate_is_checked_for_the_host_of_the_url_be_it_name_or_address(
    serve: Serve, connect: Make, certificate: Certificate, other_certificate: Certificate, host: str
) -> None:
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    for shown, ending in ((certificate, "complete"), (other_certificate, "unconnected")):
        try:
            peer = serve(secured(shown.serving(), answer_always), family)
        except OSError:
            pytest.skip("this machine has no IPv6 loopback")
        exchange = connect(f"https://{host}:{peer.port}", context=shown.trusting()).call(REQUEST).run()
        assert exchange.ending == ending, exchange.detail
    assert re.match(r"TLS: (Hostname|IP address) mismatch, certificate is not valid for", exchange.detail)


def test_the_server_is_told_the_name_it_is_asked_by_but_no_address(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    told: list[str | None] = []
    context = certificate.serving()
    context.sni_callback = lambda _, name, __: told.append(name)
    port = serve(secured(context, answer_always)).port
    for host in ("localhost", "127.0.0.1"):
        exchange = connect(f"https://{host}:{port}", context=certificate.trusting()).call(REQUEST).run()
        assert exchange.ending == "complete", exchange.detail
    assert told == ["localhost", None]


def test_http_1_1_is_what_the_server_is_asked_to_speak(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    chosen: list[str | None] = []
    context = certificate.serving()
    context.set_alpn_protocols(["h2", "http/1.1"])

    def note(connection: socket.socket, number: int) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        chosen.append(connection.selected_alpn_protocol())
        answer_always(connection, number)

    url = https(serve(secured(context, note)).url)
    assert connect(url, context=certificate.trusting()).call(REQUEST).run().ending == "complete"
    assert chosen == ["http/1.1"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"none\.pem cannot be read: No such file or directory"),
        (b"", r"none\.pem holds no certificates in PEM form"),
        (b"not a certificate\n", r"none\.pem holds no certificates in PEM form"),
        (b"\x30\x82\x01\x00\xff", r"none\.pem holds no certificates in PEM form"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            r"none\.pem holds no certificates in PEM form",
        ),
    ],
)
def test_a_file_without_authorities_is_one_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    file = tmp_path / "none.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInputError, match=rf"^--ca-file: .*{words}$"):
        tls.read_authorities(file)


def test_a_folder_is_no_file_of_authorities(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"^--ca-file: .* cannot be read: Is a directory"):
        tls.read_authorities(tmp_path)


def test_a_file_of_authorities_may_hold_several_with_any_words_between_them(
    serve: Serve, connect: Make, certificate: Certificate, other_certificate: Certificate, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.pem"
    both = [other_certificate.cert.read_bytes(), certificate.cert.read_bytes()]
    bundle.write_bytes("# Behörde A\r\n".encode("latin-1") + b"\nand\n".join(both) + b"\xff\n")
    context = tls.context(authorities=tls.read_authorities(bundle))
    url = https(serve(secured(certificate.serving(), answer_always)).url)
    assert connect(url, context=context).call(REQUEST).run().ending == "complete"


# Resumed sessions


def note_reuse(into: list[bool | None]) -> Script:
    """One answer for each connection; the server's view of whether its session was resumed."""

    def script(connection: socket.socket, _: int) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        receive(connection)
        into.append(connection.session_reused)
        connection.sendall(ANSWER.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))
        with contextlib.suppress(OSError):
            connection.unwrap()

    return script


@BOTH
def test_a_second_connection_resumes_the_session_of_the_first(
    serve: Serve, connect: Make, certificate: Certificate, version: ssl.TLSVersion
) -> None:
    seen: list[bool | None] = []
    peer = serve(secured(certificate.serving(version), note_reuse(seen)))
    transport = connect(https(peer.url), context=certificate.trusting())
    for _ in range(4):
        exchange = transport.call(REQUEST).run()
        assert (exchange.ending, body(exchange)) == ("complete", b"ok")
    assert seen == [False, True, True, True]


@BOTH
def test_a_server_that_forgot_the_session_is_greeted_anew(
    serve: Serve, connect: Make, certificate: Certificate, version: ssl.TLSVersion
) -> None:
    seen: list[bool | None] = []

    def forgetful(connection: socket.socket, number: int) -> None:
        secured(certificate.serving(version), note_reuse(seen))(connection, number)  # keys of its own

    transport = connect(https(serve(forgetful).url), context=certificate.trusting())
    assert [transport.call(REQUEST).run().ending for _ in range(3)] == ["complete"] * 3
    assert seen == [False, False, False]


@pytest.mark.parametrize("how", ["hangs up", "sends an alert"])
def test_a_resumption_that_goes_wrong_is_done_over_without_it(
    serve: Serve, connect: Make, certificate: Certificate, how: str
) -> None:
    seen: list[bool | None] = []
    good = secured(certificate.serving(), note_reuse(seen))

    def second_goes_wrong(connection: socket.socket, number: int) -> None:
        if number != 2:
            good(connection, number)
            return
        connection.recv(65536)
        if how == "sends an alert":
            connection.sendall(bytes([21, 3, 3, 0, 2, 2, 40]))  # fatal, handshake_failure
            connection.recv(1)

    peer = serve(second_goes_wrong)
    transport = connect(https(peer.url), context=certificate.trusting())
    assert [transport.call(REQUEST).run().ending for _ in range(3)] == ["complete"] * 3
    assert seen == [False, False, True]
    assert peer.connections == 4
    assert transport.connections_opened == 3


def test_a_handshake_that_always_fails_is_not_tried_without_end(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    good = secured(certificate.serving(), note_reuse([]))

    def only_the_first(connection: socket.socket, number: int) -> None:
        if number == 1:
            good(connection, number)
        else:
            connection.recv(65536)

    peer = serve(only_the_first)
    transport = connect(https(peer.url), context=certificate.trusting())
    assert [transport.call(REQUEST).run().ending for _ in range(2)] == ["complete", "unconnected"]
    assert peer.connections == 3


@contextlib.contextmanager
def s_server(certificate: Certificate, *options: str) -> Iterator[tuple[int, list[str]]]:
    """Run openssl's test server with its status page; give its port and what it says."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-www", *options]
    command += ["-cert", str(certificate.cert), "-key", str(certificate.key)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said: list[str] = []
    ready = threading.Event()

    def listen() -> None:
        for line in process.stdout or ():
            said.append(line)
            if "ACCEPT" in line:
                ready.set()

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        assert ready.wait(20), said
        yield port, said
    finally:
        process.kill()
        process.wait()
        thread.join()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_openssls_own_server_sees_its_sessions_resumed(
    connect: Make, certificate: Certificate, version: str
) -> None:
    ask = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with s_server(certificate, version) as (port, said):
        transport = connect(f"https://localhost:{port}", context=certificate.trusting())
        pages = [body(transport.call(ask).run()).decode() for _ in range(3)]
    assert [("Reused, TLS" in page, "New, TLS" in page) for page in pages] == [
        (False, True),
        (True, False),
        (True, False),
    ], (pages, said)


# What comes late


def test_what_tls_says_for_itself_on_an_idle_connection_does_not_spoil_it(
    serve: Serve, connect: Make, certificate: Certificate
) -> None:
    renewed = threading.Event()

    def renews(connection: socket.socket, _: int) -> None:
        """After each answer ask for the client's certificate: bytes that are for TLS alone."""
        assert isinstance(connection, ssl.SSLSocket)
        while True:
            receive(connection)
            connection.sendall(ANSWER)
            connection.verify_client_post_handshake()
            with contextlib.suppress(ssl.SSLWantReadError, BlockingIOError):
                connection.setblocking(False)
                connection.do_handshake()
            connection.setblocking(True)
            renewed.set()

    server = certificate.serving()
    server.verify_mode = ssl.CERT_OPTIONAL
    server.load_verify_locations(certificate.cert)
    context = certificate.trusting()
    context.post_handshake_auth = True
    transport = connect(https(serve(secured(server, renews)).url), context=context)
    for _ in range(4):
        assert transport.call(REQUEST).run().ending == "complete"
        assert renewed.wait(5)
        renewed.clear()
        time.sleep(2 * KEEP_LOOK_NS / 1e9)
    assert transport.connections_opened == 1


@pytest.mark.parametrize("says_goodbye", [False, True])
@pytest.mark.parametrize("delay_s", [0.0, 0.005, 2 * KEEP_LOOK_NS / 1e9])
def test_a_server_that_closes_unannounced_after_each_response_loses_no_request_over_tls_either(
    serve: Serve, connect: Make, certificate: Certificate, says_goodbye: bool, delay_s: float
) -> None:
    gone = threading.Semaphore(0)

    def answer_once(connection: socket.socket, _: int) -> None:
        assert isinstance(connection, ssl.SSLSocket)
        receive(connection)
        connection.sendall(ANSWER)
        time.sleep(delay_s)
        if says_goodbye:
            connection.settimeout(0.0)  # send it, wait for none
            with contextlib.suppress(OSError):
                connection.unwrap()
        connection.shutdown(socket.SHUT_WR)
        gone.release()

    transport = connect(
        https(serve(secured(certificate.serving(), answer_once)).url), context=certificate.trusting()
    )
    for _ in range(5):
        assert transport.call(REQUEST).run().ending == "complete"
        if delay_s > KEEP_LOOK_NS / 1e9:
            assert gone.acquire(timeout=10)
    assert transport.connections_opened == 5


# Bytes in any pieces


class Far:
    """The server's end of a session without a socket, by Python's ssl itself, perhaps inside of another."""

    def __init__(self, context: ssl.SSLContext, around: "Far | None" = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._around = around

    def turn(self, received: bytes) -> bytes:
        """Take bytes, go on with the handshake, give what is to be sent."""
        self._take(received)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._session.do_handshake()
        return self._give()

    def seal(self, data: bytes) -> bytes:
        """Make ciphertext."""
        self._session.write(data)
        return self._give()

    def open(self, received: bytes) -> bytes:
        """Read ciphertext."""
        self._take(received)
        parts = []
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := self._session.read(65536):
                parts.append(part)
        return b"".join(parts)

    def goodbye(self) -> bytes:
        """Close the session; the client need not answer."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._session.unwrap()
        return self._give()

    def _take(self, received: bytes) -> None:
        self._incoming.write(received if self._around is None else self._around.open(received))

    def _give(self) -> bytes:
        data = self._outgoing.read()
        return data if self._around is None or not data else self._around.seal(data)


def meet(context: ssl.SSLContext, far: Far, outer: TlsSession | None) -> TlsSession:
    """Shake hands."""
    near = TlsSession(context, "localhost", outer=outer)
    done = near.handshake()
    while not done:
        done = near.handshake(far.turn(near.to_send()))
    near.decrypt(far.turn(near.to_send()))  # the last flight, and tickets
    return near


@pytest.mark.parametrize("nested", [False, True], ids=["tls", "tls in tls"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_ciphertext_cut_anywhere_gives_the_same_plaintext(
    certificate: Certificate, nested: bool, data: st.DataObject
) -> None:
    context, server = certificate.trusting(), certificate.serving()
    far = Far(server)
    near = meet(context, far, None)
    if nested:
        far = Far(server, around=far)
        near = meet(context, far, near)
    plain = data.draw(st.lists(st.binary(min_size=1, max_size=100) | st.just(b"x" * 40_000), max_size=4))
    cipher = b"".join(far.seal(each) for each in plain)
    ends = data.draw(st.booleans())
    cipher += far.goodbye() if ends else b""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(cipher)), max_size=8)))
    pieces = [cipher[a:b] for a, b in zip([0, *cuts], [*cuts, len(cipher)], strict=True)]
    read = [near.decrypt(piece) for piece in pieces if piece]
    assert b"".join(part for part, _ in read) == b"".join(plain)
    assert [closed for _, closed in read] == [False] * (len(read) - 1) + [ends] * min(len(read), 1)
    assert far.open(near.encrypt(b"back")) == b"back"
