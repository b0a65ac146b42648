"""The bookkeeping of requests: who may go to the kernel when, and how much is remembered."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.core.model import Channel, Message
from sandbox_kernel.session import ledger
from sandbox_kernel.session.ledger import Entry, Ledger, parent_of


def request(identity: str, kind: str = "execute_request", channel: Channel = "shell", **header: Any) -> Message:
    return Message(channel=channel, header={"msg_id": identity, "msg_type": kind, **header})


def fill(book: Ledger, *requests: Message) -> list[Entry]:
    entries = [book.add(one, b"client") for one in requests]
    assert all(entries)
    return [entry for entry in entries if entry is not None]


def send(book: Ledger) -> list[str]:
    """Take what may be sent, as the traffic does, and return its ids."""
    ready = book.sendable()
    for entry in ready:
        entry.sent = True
    return [entry.request.id for entry in ready]


def test_one_cell_at_a_time() -> None:
    book = Ledger()
    first, second = fill(book, request("1"), request("2"))
    assert send(book) == ["1"]
    assert send(book) == []
    book.finish(first)
    assert send(book) == ["2"]
    book.finish(second)
    assert not book.active


def test_subshells_have_queues_of_their_own() -> None:
    book = Ledger()
    fill(
        book, request("1"), request("2", subshell_id="a"), request("3", subshell_id="b"), request("4", subshell_id="a")
    )
    assert send(book) == ["1", "2", "3"]
    book.finish(book.in_flight[1])
    assert send(book) == ["4"]


@pytest.mark.parametrize("subshell", [7, None, ["a"], {}])
def test_a_strange_subshell_is_the_main_one(subshell: object) -> None:
    book = Ledger()
    fill(book, request("1"), request("2", subshell_id=subshell))
    assert send(book) == ["1"]


def test_other_requests_wait_for_the_cell_before_them_and_hold_up_the_next() -> None:
    book = Ledger()
    cell, *_ = fill(book, request("1"), request("2", "complete_request"), request("3", "inspect_request"), request("4"))
    assert send(book) == ["1"]
    book.finish(cell)
    assert send(book) == ["2", "3"]
    for entry in book.in_flight:
        assert send(book) == []
        book.finish(entry)
    assert send(book) == ["4"]


def test_comms_pass_everything_and_control_waits_for_nothing() -> None:
    """A running cell may wait for a comm message; an interrupt must not wait at all."""
    book = Ledger()
    fill(book, request("1"), request("2"), request("3", "comm_msg"), request("4", "debug_request", "control"))
    fill(book, request("5", "debug_request", "control"))
    assert send(book) == ["1", "3", "4", "5"]


def test_a_comm_is_under_way_only_while_the_kernel_says_so() -> None:
    """ipykernel may handle one without a word, so nothing may wait for its end."""
    book = Ledger()
    (comm,) = fill(book, request("1", "comm_msg"))
    assert send(book) == ["1"]
    assert not book.active
    book.mark_busy(comm)
    assert book.in_flight == [comm]
    fill(book, request("2"))
    assert send(book) == []
    book.finish(comm)
    assert send(book) == ["2"]


def test_an_id_is_used_once() -> None:
    book = Ledger()
    (first,) = fill(book, request("1"))
    assert book.add(request("1"), b"other client") is None
    send(book)
    book.finish(first)
    assert book.add(request("1"), b"client") is None
    assert book.find("1") is first


@pytest.mark.parametrize("identity", [None, 1, 1.5, ["1"], {"1": 1}, True, "2"])
def test_only_known_ids_are_found(identity: object) -> None:
    book = Ledger()
    fill(book, request("1"))
    assert book.find(identity) is None


def test_a_queue_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_WAITING", 3)
    book = Ledger()
    fill(book, *(request(str(number)) for number in range(3)))
    assert book.add(request("3"), b"client") is None
    assert book.find("3") is None
    assert book.add(request("4", subshell_id="a"), b"client") is not None
    send(book)
    assert book.add(request("3"), b"client") is not None


def test_ten_thousand_requests_are_remembered_and_no_more() -> None:
    book = Ledger()
    for number in range(ledger.MAX_REMEMBERED + 1):
        (entry,) = fill(book, request(str(number)))
        send(book)
        book.finish(entry)
    assert book.find("0") is None
    assert book.find("1") is not None
    assert book.find(str(ledger.MAX_REMEMBERED)) is not None


def test_what_is_not_finished_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_REMEMBERED", 3)
    book = Ledger()
    (running,) = fill(book, request("running"))
    send(book)
    for number in range(10):
        (entry,) = fill(book, request(str(number), "debug_request", "control"))
        send(book)
        book.finish(entry)
    assert book.find("running") is running
    assert book.find("8") is not None
    assert book.find("7") is None


def test_comms_are_forgotten_although_nobody_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "MAX_REMEMBERED", 3)
    book = Ledger()
    for number in range(10):
        fill(book, request(str(number), "comm_msg"))
        send(book)
    assert [book.find(str(number)) is not None for number in range(10)] == [False] * 7 + [True] * 3


def test_a_failed_cell_takes_the_cells_behind_it_out_of_its_own_queue() -> None:
    book = Ledger()
    fill(
        book, request("1"), request("2"), request("3", "complete_request"), request("4"), request("5", subshell_id="a")
    )
    fill(book, request("6", subshell_id="a"))
    send(book)
    assert [entry.request.id for entry in book.take_waiting_cells("shell")] == ["2", "4"]
    book.finish(book.in_flight[0])
    assert send(book) == ["3"]
    assert book.take_waiting_cells("shell x") == []


def test_everything_is_taken_at_once() -> None:
    book = Ledger()
    fill(book, request("1"), request("2"), request("3", "debug_request", "control"))
    send(book)
    flying, waiting = book.take_all()
    assert [entry.request.id for entry in flying] == ["1", "3"]
    assert [entry.request.id for entry in waiting] == ["2"]
    assert send(book) == []


def test_the_parent_is_the_header_that_came_from_the_front_end() -> None:
    (entry,) = fill(Ledger(), request("1", session="front", date="2000-01-01T00:00:00Z"))
    assert parent_of(entry) == {
        "msg_id": "1",
        "msg_type": "execute_request",
        "session": "front",
        "date": "2000-01-01T00:00:00Z",
    }
    assert parent_of(None) == {}
