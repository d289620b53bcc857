"""`ip IN '10.0.0.0/8'`: networks as ranges, beside the standard library's ipaddress."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rangecast as rc

pytestmark = pytest.mark.without_kernels

V4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
# near each other, so that networks hold some of them; the bits where a word ends are among those that differ
V6 = st.tuples(
    st.sampled_from([0, 1, 0xFFFF << 32, 0x20010DB8 << 96, 2**127]),
    st.integers(0, 127).map(lambda bit: 1 << bit),
    st.integers(0, 3),
).map(lambda parts: ipaddress.IPv6Address((parts[0] ^ parts[1]) + parts[2]))
ADDRESSES = st.one_of(V4, V6)


def network_of(address, length):
    length = min(length, address.max_prefixlen)
    return ipaddress.ip_network(f"{address}/{length}", strict=False)


def plain(address):
    """An IPv4 address that is written as IPv6 is one of IPv4."""
    return getattr(address, "ipv4_mapped", None) or address


def holds(network, address):
    address = plain(address)
    if network.version == 6 and network.subnet_of(ipaddress.IPv6Network("::ffff:0:0/96")):
        inner = network.network_address.ipv4_mapped
        network = ipaddress.ip_network(f"{inner}/{network.prefixlen - 96}")
    return address.version == network.version and address in network


def matching(conditions, texts):
    schema = rc.Schema(rc.Category("ip"), rc.Int("port"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, conditions))
    rows = [{"ip": text, "port": 80} for text in texts]
    return [row.tolist() for row in index.match(rc.Events.from_rows(schema, rows)).sort()]


NETWORKS = st.lists(st.tuples(ADDRESSES, st.integers(0, 128)), min_size=1, max_size=6)


@given(NETWORKS, st.lists(ADDRESSES, max_size=6))
def test_networks_are_those_of_ipaddress(given_networks, others):
    networks = [network_of(address, length) for address, length in given_networks]
    addresses = [address for address, _ in given_networks] + others
    addresses += [network[k] for network in networks for k in (0, -1)]
    conditions = {k: f"ip in '{network}'" for k, network in enumerate(networks)}
    n = len(networks)
    conditions |= {n + k: f"ip not in '{network}' and port = 80" for k, network in enumerate(networks)}
    conditions[2 * n] = f"ip in networks ({', '.join(repr(str(network)) for network in networks)})"
    conditions[2 * n + 1] = f"not (ip in networks ('{networks[0]}'))"
    expected = []
    for address in addresses:
        inside = [holds(network, address) for network in networks]
        row = [k for k in range(n) if inside[k]] + [n + k for k in range(n) if not inside[k]]
        row += [2 * n] if any(inside) else []
        expected.append(row + ([2 * n + 1] if not inside[0] else []))
    assert matching(conditions, list(map(str, addresses))) == expected


def test_what_is_no_address_is_in_no_network_and_not_outside_one():
    conditions = {1: "ip in '10.0.0.0/8'", 2: "ip not in '10.0.0.0/8'", 3: "ip in '::/0'"}
    assert matching(conditions, ["10.1.2.3", "::ffff:10.1.2.3", "11.0.0.1", "::1"]) == [[1], [1], [2], [2, 3]]
    assert not any(matching(conditions, ["10.0.0", "10.01.2.3", "fe80::1%eth0", "", None]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ip in '10.1.2.3/8'", "an address within '10.0.0.0/8': write that for the network"),
        ("ip in 'ten/8'", "a network is written as '10.0.0.0/8'"),
        ("ip in 'ten'", "( and the values of IN"),
        ("ip in '10.0.0.0/33'", "a network is written as"),
        ("port in '10.0.0.0/8'", "IN and a network takes text and a string, and port is int"),
        ("ip in networks ('10.0.0.0/8'", "a comma or )"),
        ("ip in networks (5)", "takes text and a string"),
    ],
)
def test_what_is_no_network_is_refused(text, said):
    schema = rc.Schema(rc.Category("ip"), rc.Int("port"))
    with pytest.raises(rc.SubscriptionError) as raised:
        rc.Subscriptions.parse(schema, {1: text})
    assert said in str(raised.value)


def test_an_explanation_shows_the_address():
    schema = rc.Schema(rc.Category("ip"))
    index = rc.open_index("scan", schema)
    index.insert(rc.Subscriptions.parse(schema, {1: "ip in '10.0.0.0/8'"}))
    events = rc.Events.from_rows(schema, [{"ip": "11.0.0.1"}])
    said = str(index.explain(1, events))
    assert "ip in '10.0.0.0/8'" in said
    assert "11.0.0.1" in said


def test_a_list_of_strings_is_a_list_of_strings():
    """Only what no parenthesis opens, or the word NETWORKS, means networks."""
    assert matching({1: "ip in ('10.0.0.0/8')"}, ["10.0.0.0/8", "10.1.1.1"]) == [[1], []]
