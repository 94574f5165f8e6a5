"""Who is a node, at which endpoint, and who only drains."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.discovery.endpoints import DiscoveredNodes, discover
from scheduler.discovery.selectors import checked_selector
from scheduler.domain.node import NodeAddress
from scheduler.errors import ConfigurationError
from tests.discovery.stub_api import endpoint, endpoint_slice


def found(*slices: Any, **options: Any) -> DiscoveredNodes:
    return discover(slices, **({"port": 8000, "scheme": "http"} | options))


def test_a_serving_endpoint_is_a_node_whether_ready_or_not() -> None:
    nodes = found(endpoint_slice("s", endpoint("p1", "10.1.2.3")))
    assert nodes.active == (NodeAddress("p1", "http://10.1.2.3:8000"),)
    assert nodes.lingering == ()


@pytest.mark.parametrize("serving", [False, None])
def test_what_does_not_serve_is_no_node_terminating_or_not(serving: bool | None) -> None:
    for terminating in (False, True):
        piece = endpoint_slice("s", endpoint("p1", "10.1.2.3", serving=serving, terminating=terminating))
        assert found(piece).empty


def test_a_terminating_endpoint_that_serves_drains() -> None:
    nodes = found(endpoint_slice("s", endpoint("p1", "10.1.2.3", terminating=True)))
    assert nodes == DiscoveredNodes(lingering=(NodeAddress("p1", "http://10.1.2.3:8000"),))


def test_ipv6_stands_in_brackets_and_the_first_ip_counts() -> None:
    piece = endpoint_slice("s", endpoint("p1", "not-an-ip", "fd00::1", "10.0.0.1"), endpoint("p2", "example.com"))
    assert found(piece, scheme="https").active == (NodeAddress("p1", "https://[fd00::1]:8000"),)


def test_a_slice_without_the_port_and_an_endpoint_without_a_name_are_passed_over() -> None:
    nameless = endpoint("", "10.0.0.2") | {"targetRef": None}
    assert found(endpoint_slice("s", endpoint("p1", "10.0.0.1"), port=9000)).empty
    assert found(endpoint_slice("s", nameless, endpoint("", "10.0.0.3"))).empty
    assert found({"metadata": {"name": "bare"}, "ports": None, "endpoints": None}).empty


def test_ignored_pods_are_gone_and_no_schedule_pods_drain_and_ignore_wins() -> None:
    piece = endpoint_slice("s", *(endpoint(name, f"10.0.0.{n}") for n, name in enumerate(["a", "b", "c"], 1)))
    nodes = found(piece, ignored={"a"}, no_schedule={"a", "b"})
    assert [node.node_id for node in nodes.active] == ["c"]
    assert [node.node_id for node in nodes.lingering] == ["b"]


def test_an_id_in_both_lists_drains_at_the_draining_endpoint() -> None:
    one = endpoint_slice("s1", endpoint("p1", "10.0.0.1"))
    other = endpoint_slice("s2", endpoint("p1", "10.0.0.2", terminating=True))
    assert found(one, other) == DiscoveredNodes(lingering=(NodeAddress("p1", "http://10.0.0.2:8000"),))


def test_a_dual_stack_pod_has_one_address_whatever_the_order_of_slices() -> None:
    six = endpoint_slice("a", endpoint("p1", "fd00::1"), family="IPv6")
    four = endpoint_slice("z", endpoint("p1", "10.0.0.1"))
    assert found(six, four) == found(four, six) == DiscoveredNodes(active=(NodeAddress("p1", "http://10.0.0.1:8000"),))


def test_nodes_come_in_id_order() -> None:
    one = endpoint_slice("s1", endpoint("c", "10.0.0.3"), endpoint("a", "10.0.0.1"))
    assert [node.node_id for node in found(one, endpoint_slice("s2", endpoint("b", "10.0.0.2"))).active] == list("abc")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "app=node",
        "app==node",
        " app != node ",
        "example.com/role=worker",
        "tier in (a, b)",
        "tier notin (a),app=x",
        "canary",
        "!canary",
        "a=,b",
        "cores > 3",
    ],
)
def test_a_label_selector_is_accepted_and_trimmed(text: str) -> None:
    assert checked_selector("k", text) == text.strip()


@pytest.mark.parametrize(
    "text", ["=x", "a b", "a in b", "a in ()x", "app=node,", ",a", "a=ü", "-a", "!", "a=b=c", "a > x"]
)
def test_a_bad_label_selector_is_a_start_up_error_that_names_its_key(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no_schedule_pod_selector"):
        checked_selector("discovery.kubernetes.no_schedule_pod_selector", text)
