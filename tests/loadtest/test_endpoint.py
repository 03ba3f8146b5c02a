"""URLs taken apart, and what a host is called by others."""

import pytest

from loadtest import endpoint
from tierscope.errors import BadInputError


@pytest.mark.parametrize(
    ("url", "host", "authority", "tls_name"),
    [
        ("http://H.test:8000/v1", "h.test", "h.test:8000", "h.test"),
        ("https://h.test:443", "h.test", "h.test", "h.test"),
        ("https://h.test.:8443", "h.test.", "h.test.:8443", "h.test"),
        ("http://[::1]:80", "::1", "[::1]", "::1"),
        ("http://[fe80::1%25eth0]:8000", "fe80::1%eth0", "[fe80::1]:8000", "fe80::1"),
        ("http://[fe80::1%eth0]:8000", "fe80::1%eth0", "[fe80::1]:8000", "fe80::1"),
        ("https://bücher.test", "xn--bcher-kva.test", "xn--bcher-kva.test", "xn--bcher-kva.test"),
    ],
)
def test_a_host_is_named_to_the_system_to_the_server_and_to_tls_each_in_its_way(
    url: str, host: str, authority: str, tls_name: str
) -> None:
    found = endpoint.parse(url, "/v1/x")
    assert (found.host, found.authority, found.tls_name) == (host, authority, tls_name)


@pytest.mark.parametrize(
    "url", ["http://a..b", f"http://{'x' * 64}.test", "http://a_b!c", "http://[::1", "http://\u2100.test"]
)
def test_what_is_no_host_is_one_line(url: str) -> None:
    with pytest.raises(BadInputError, match=r"^url: .* is not allowed: ") as caught:
        endpoint.parse(url, "/v1/x")
    assert str(caught.value).isprintable()
