"""Addresses of the Internet as numbers, so that a network is a range.

An address is three whole numbers, since one has 128 bits and a code 64:

    word     of IPv4               of IPv6
    high     the address           2^32 + its first 43 bits
    middle   0                     the next 43
    low      0                     the last 42

So a network of IPv4 is a range of the first word, and one of IPv6 is a range of one word with those before it
given; and whatever is an address at all has all three, so that "not in this network" is right for both kinds.
An IPv4 address that is written as IPv6, `::ffff:10.1.2.3`, is that IPv4 address.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from rangecast.errors import SchemaError

WORDS = ("ip_high", "ip_middle", "ip_low")
_BITS = (43, 43, 42)
_AFTER_IPV4 = 2**32
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


@lru_cache(65_536)
def words_of(text: str) -> tuple[int, int, int] | None:
    """The three words of an address; None for a text that is none.

    >>> words_of("10.0.0.1") == words_of("::ffff:10.0.0.1") == (10 * 2**24 + 1, 0, 0), words_of("10.0.0")
    (True, None)
    """
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None:
            return None
        if found.ipv4_mapped is None:
            return _cut(int(found))
        found = found.ipv4_mapped
    return int(found), 0, 0


def network_words(text: str) -> list[tuple[int, int]]:
    """The range of each word for the addresses of a network; of words that are not named, any.

    >>> network_words("10.0.0.0/8"), len(network_words("2001:db8::/64"))
    ([(167772160, 184549375)], 2)
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise SchemaError(_advice(text, error)) from None
    if isinstance(network, ipaddress.IPv6Network):
        if not network.subnet_of(_MAPPED):
            first, last = _cut(int(network.network_address)), _cut(int(network.broadcast_address))
            named = 1 + (network.prefixlen > _BITS[0]) + (network.prefixlen > _BITS[0] + _BITS[1])
            return list(zip(first, last, strict=True))[:named]
        inner = network.network_address.ipv4_mapped
        network = ipaddress.IPv4Network((int(inner or 0), network.prefixlen - 96))
    return [(int(network.network_address), int(network.broadcast_address))]


def _cut(number: int) -> tuple[int, int, int]:
    low, rest = number & ((1 << _BITS[2]) - 1), number >> _BITS[2]
    return _AFTER_IPV4 + (rest >> _BITS[1]), rest & ((1 << _BITS[1]) - 1), low


def _advice(text: str, error: ValueError) -> str:
    try:
        meant = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return f"a network is written as '10.0.0.0/8' or '2001:db8::/32', got {text!r}: {error}"
    return f"{text!r} is an address within {str(meant)!r}: write that for the network"
