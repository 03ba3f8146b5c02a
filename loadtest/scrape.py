"""Reads a server's ``/metrics`` once a second into ``server.jsonl``, in a process of its own.

    python -m loadtest.scrape --url URL [--url URL …] --folder RUN --zero-ns N

Of several URLs the first that knows one of the families is kept. It goes on until its standard input ends,
then looks a last time; so it never outlives who started it. What goes wrong with the server is a line in the
file, not an end. Standard output gets an empty line once the first look was taken, and any other line is for
people.
"""

import argparse
import http.client
import math
import os
import select
import ssl
import sys
import time
import zlib
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from loadtest import proxy, tls
from loadtest.server_pages import where
from loadtest.server_samples import FAMILIES, SERVER_FILE, Scrape, encode_line, labels_key
from loadtest.wire import WIRES
from tierscope.errors import BadInputError

INTERVAL_S = 1.0
DEADLINE_S = 5.0
MOST_BYTES = 16_000_000
_FULL_EVERY = 60
_MOST_TROUBLE = 200

Samples = dict[str, dict[str, float]]


def parse(page: str) -> Samples:
    """Samples of the known families in a page of Prometheus text; what is not finite is left out.

    Raises ValueError if such a line is damaged.
    """
    kept = "\n".join(line for line in page.split("\n") if line.startswith(FAMILIES)) + "\n"
    found: Samples = {}
    for family in text_string_to_metric_families(kept):
        for sample in family.samples:
            if not sample.name.endswith("_created") and math.isfinite(sample.value):
                found.setdefault(sample.name, {})[labels_key(sample.labels)] = sample.value
    return found


def without_buckets(scrape: Scrape) -> Scrape:
    """Leave out the lines of histograms' buckets."""
    kept = {name: values for name, values in scrape.samples.items() if not name.endswith("_bucket")}
    return msgspec.structs.replace(scrape, samples=kept)


class Page:
    """One page of a server, read over a connection that is kept."""

    def __init__(self, url: str, *, key_headers: dict[str, str], context: ssl.SSLContext | None) -> None:
        self.url = url
        page = where(url)
        self._path = page.path
        self._headers = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "gzip"} | key_headers
        way = proxy.for_target(page, os.environ)
        if way is not None and way.tls:
            raise BadInputError(
                f"--scrape: {way.origin}: a proxy that is itself reached by TLS is not supported"
            )
        host, port = (page.host, page.port) if way is None else (way.host, way.port)
        self._connection = (
            http.client.HTTPSConnection(host, port, timeout=DEADLINE_S, context=context)
            if page.tls
            else http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
        )
        if way is not None:
            credentials = {"Proxy-Authorization": way.authorization} if way.authorization else {}
            self._connection.set_tunnel(page.host, page.port, credentials)

    def scrape(self, zero_ns: int) -> Scrape:
        """Read the page once; a failure is a scrape with ``trouble``."""
        began_ns = time.monotonic_ns()
        samples: Samples = {}
        trouble = ""
        try:
            samples = parse(self._read())
            trouble = "" if samples else "no metric of a known server"
        except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
            self._connection.close()
            trouble = " ".join(f"{type(error).__name__} {error}".split())[:_MOST_TROUBLE]
        ended_ns = time.monotonic_ns()
        return Scrape(
            at_ns=(began_ns + ended_ns) // 2 - zero_ns,
            took_s=(ended_ns - began_ns) / 1e9,
            samples=samples,
            trouble=trouble,
        )

    def close(self) -> None:
        """Give the connection back."""
        self._connection.close()

    def _read(self) -> str:
        """The page's text; a kept connection that the server has closed is opened anew, once."""
        deadline_s = time.monotonic() + DEADLINE_S
        kept = self._connection.sock is not None
        try:
            return self._get(deadline_s)
        except (ConnectionError, http.client.BadStatusLine):
            if not kept:
                raise
            self._connection.close()
            return self._get(deadline_s)

    def _get(self, deadline_s: float) -> str:
        self._connection.request("GET", self._path, headers=self._headers)
        body = bytearray()
        with self._connection.getresponse() as response:  # its end by itself is not seen after read1
            while piece := response.read1(1 << 16):
                body += piece
                if len(body) > MOST_BYTES:
                    raise ValueError(f"page of more than {MOST_BYTES} bytes")
                if time.monotonic() > deadline_s:
                    raise TimeoutError(f"not there within {DEADLINE_S:g} s")
        if response.status != HTTPStatus.OK:
            raise ValueError(f"HTTP {response.status}")
        if response.headers.get("Content-Encoding", "") == "gzip":
            opened = zlib.decompressobj(wbits=31)  # 16 + 15: a gzip header
            body = bytearray(opened.decompress(bytes(body), MOST_BYTES))
            if opened.unconsumed_tail:
                raise ValueError(f"page of more than {MOST_BYTES} bytes")
        return body.decode("utf-8", "replace")


def record(pages: Sequence[Page], file: BinaryIO, zero_ns: int) -> None:
    """Scrape until standard input ends, a line a scrape; raises OSError if the file cannot be written."""
    first, page = _choose(pages, zero_ns)
    file.write(encode_line(first))
    if page is None:
        print(f"server metrics: {pages[0].url}: {first.trouble}; none are recorded", flush=True)
        return
    print(flush=True)
    due_s, number = time.monotonic() + INTERVAL_S, 1
    while not _ended(due_s):
        seen = page.scrape(zero_ns)
        file.write(encode_line(seen if number % _FULL_EVERY == 0 else without_buckets(seen)))
        number += 1
        due_s = max(due_s + INTERVAL_S, time.monotonic())
    file.write(encode_line(page.scrape(zero_ns)))


def _choose(pages: Sequence[Page], zero_ns: int) -> tuple[Scrape, Page | None]:
    """The first page that has something to tell and what it told; else the first one's trouble."""
    seen = []
    for page in pages:
        seen.append(page.scrape(zero_ns))
        if not seen[-1].trouble:
            return seen[-1], page
        page.close()
    return seen[0], None


def _ended(until_s: float) -> bool:
    """Wait for an instant; True as soon as standard input has ended."""
    while (left_s := until_s - time.monotonic()) > 0:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], left_s)
        if readable and not os.read(sys.stdin.fileno(), 4096):
            return True
    return False


def main(argv: Sequence[str] | None = None) -> int:
    """Run as a process; 0, or 2 or 3 with a line if the way there or the file cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.scrape")
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--zero-ns", type=int, required=True)
    parser.add_argument("--key-of", default="", help="send this API's key")
    parser.add_argument("--ca-file", type=Path)
    parser.add_argument("--insecure", action="store_true")
    options = parser.parse_args(argv)
    wire = next((wire for name, wire in WIRES.items() if name == options.key_of), None)
    headers = {} if wire is None else wire.headers(wire.key(os.environ))
    try:
        authorities = tls.read_authorities(options.ca_file) if options.ca_file is not None else ""
        context = tls.context(verify=not options.insecure, authorities=authorities)
        pages = [Page(url, key_headers=headers, context=context) for url in options.url]
        with (options.folder / SERVER_FILE).open("ab", buffering=0) as file:
            record(pages, file, options.zero_ns)
    except BadInputError as error:
        print(f"server metrics: {error}; none are recorded", flush=True)
        return 2
    except OSError as error:
        print(f"server metrics: {SERVER_FILE} cannot be written: {error.strerror}", flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
