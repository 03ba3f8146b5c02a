"""Which targets are reached without a proxy: this machine, and what NO_PROXY lists. Pure.

NO_PROXY has no standard. Taken here is what curl and Python's requests agree on, and what either adds where
the other does not object (both read 2026).
"""

import ipaddress

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine: localhost (RFC 6761), 127.0.0.0/8, ::1, or unspecified."""
    name, address = _name(host), _address(host)
    if address is not None:
        return address.is_loopback or address.is_unspecified
    return name == "localhost" or name.endswith(".localhost")


def is_excepted(host: str, port: int, no_proxy: str) -> bool:
    """Whether a NO_PROXY list, split by commas or blanks, has ``host``.

    An entry is ``*`` (everything), a domain (also its subdomains, with or without a leading ``.`` or ``*.``),
    an address, or a range of addresses like 10.0.0.0/8; all but the range may end in ``:PORT``. Others match
    nothing.
    """
    return any(_matches(entry, host, port) for entry in no_proxy.replace(",", " ").split())


def _matches(entry: str, host: str, port: int) -> bool:
    address = _address(host)
    if "/" in entry:
        return address is not None and _is_in(address, entry)
    listed, listed_port = _split(entry)
    if listed_port not in ("", str(port)):
        return False
    if listed == "*":
        return True
    listed_address = _address(listed)
    if address is not None or listed_address is not None:
        return address == listed_address
    domain, name = _name(listed.removeprefix("*").removeprefix(".")), _name(host)
    return bool(domain) and (name == domain or name.endswith(f".{domain}"))


def _split(entry: str) -> tuple[str, str]:
    """Take the port off an entry; an IPv6 address has one only behind brackets."""
    if entry.startswith("["):
        listed, _, rest = entry[1:].partition("]")
        return listed, rest.removeprefix(":")
    listed, _, port = entry.partition(":")
    return (entry, "") if ":" in port else (listed, port)


def _is_in(address: _Address, cidr: str) -> bool:
    try:
        network = ipaddress.ip_network(cidr.replace("[", "").replace("]", ""), strict=False)
    except ValueError:
        return False
    return address in network


def _address(host: str) -> _Address | None:
    """The address that ``host`` is, without zone, as IPv4 where it maps one."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _name(host: str) -> str:
    return host.lower().removesuffix(".")
