"""Which server may lack something that another one acknowledged."""

from __future__ import annotations

from scheduler.connection.server import ServerIdentity

NO_HISTORY = "0" * 40
FIRST = ServerIdentity("run-1", "history-1")


def test_a_server_that_got_its_first_replica_lacks_nothing_though_its_history_has_a_new_name() -> None:
    now = ServerIdentity.of({"run_id": "run-1", "master_replid": "history-2", "master_replid2": NO_HISTORY})
    assert not now.is_same(FIRST)
    assert not now.may_lack_writes_of(FIRST)


def test_a_server_that_was_a_replica_in_between_may_lack_something() -> None:
    now = ServerIdentity.of({"run_id": "run-1", "master_replid": "history-3", "master_replid2": "history-2"})
    assert now.may_lack_writes_of(FIRST)


def test_another_process_may_lack_something() -> None:
    assert ServerIdentity("run-2", "history-1").may_lack_writes_of(FIRST)


def test_the_embedded_ledger_is_always_the_same() -> None:
    assert ServerIdentity.of({}).is_same(ServerIdentity())
    assert not ServerIdentity.of({}).may_lack_writes_of(ServerIdentity())
