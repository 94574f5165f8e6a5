"""The demand of a trace at its peak, beside its fleet."""

from __future__ import annotations

from scheduler.lab.demand import PeakDemand, peak_demand
from scheduler.lab.trace import NodeSpec, Trace, TraceRequest


def test_the_peak_counts_what_lives_at_one_instant_and_what_never_ends() -> None:
    requests = (
        TraceRequest(0, 1000, 4, 100),
        TraceRequest(500, None, 1, 2048),
        TraceRequest(1000, 10, 3, 100),
        TraceRequest(2000, 5, 2, 4096),
    )
    trace = Trace((NodeSpec("a", 4, 4096), NodeSpec("b", 4, 4096)), requests)
    assert peak_demand(trace) == PeakDemand(5, 6144, 8, 8192)
    assert not peak_demand(trace).is_beyond
    assert peak_demand(trace).sentences() == ("At its peak the trace asks for 5 of 8 CPUs (62%) and 6 of 8 GiB (75%).")


def test_a_fleet_that_could_not_hold_it_is_named_as_the_cause() -> None:
    trace = Trace((NodeSpec("a", 4, 0),), (TraceRequest(0, None, 5, 1024),))
    demand = peak_demand(trace)
    assert demand.is_beyond
    assert "5 of 4 CPUs (125%) and 1 GiB (the fleet's are not known)" in demand.sentences()
    assert "more than the fleet has" in demand.sentences()
