"""The queues of requests: who may go to the kernel when, and how much is remembered."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from sandbox_kernel.core.model import Channel, Message
from sandbox_kernel.core.state_table import ImpossibleError
from sandbox_kernel.session.requests import queue as module
from sandbox_kernel.session.requests.queue import PendingRequest, RequestQueue, parent_of
from sandbox_kernel.session.requests.request_states import TABLE, RequestEvent, RequestState, following


def message(identity: str, kind: str = "execute_request", channel: Channel = "shell", **header: Any) -> Message:
    return Message(channel=channel, header={"msg_id": identity, "msg_type": kind, **header})


def fill(queue: RequestQueue, *messages: Message) -> list[PendingRequest]:
    pending = [queue.add(one, b"client") for one in messages]
    assert all(pending)
    return [request for request in pending if request is not None]


def send(queue: RequestQueue) -> list[str]:
    """Take what may be sent, as the scheduler does, and return its ids."""
    ready = queue.take_sendable()
    for request in ready:
        queue.advance(request, RequestEvent.SEND)
    return [request.id for request in ready]


def test_one_cell_at_a_time() -> None:
    queue = RequestQueue()
    first, second = fill(queue, message("1"), message("2"))
    assert send(queue) == ["1"]
    assert send(queue) == []
    queue.advance(first, RequestEvent.END)
    assert send(queue) == ["2"]
    queue.advance(second, RequestEvent.END)
    assert not queue.active


def test_subshells_have_queues_of_their_own() -> None:
    queue = RequestQueue()
    fill(
        queue, message("1"), message("2", subshell_id="a"), message("3", subshell_id="b"), message("4", subshell_id="a")
    )
    assert send(queue) == ["1", "2", "3"]
    queue.advance(queue.in_flight[1], RequestEvent.END)
    assert send(queue) == ["4"]


@pytest.mark.parametrize("subshell", [7, None, ["a"], {}])
def test_a_strange_subshell_is_the_main_one(subshell: object) -> None:
    queue = RequestQueue()
    fill(queue, message("1"), message("2", subshell_id=subshell))
    assert send(queue) == ["1"]


def test_other_requests_wait_for_the_cell_before_them_and_hold_up_the_next() -> None:
    queue = RequestQueue()
    fill(queue, message("1"), message("2", "complete_request"), message("3", "inspect_request"), message("4"))
    assert send(queue) == ["1"]
    queue.advance(queue.in_flight[0], RequestEvent.END)
    assert send(queue) == ["2", "3"]
    for request in queue.in_flight:
        assert send(queue) == []
        queue.advance(request, RequestEvent.END)
    assert send(queue) == ["4"]


def test_comms_pass_everything_and_control_waits_for_nothing() -> None:
    """A running cell may wait for a comm message; an interrupt must not wait at all."""
    queue = RequestQueue()
    fill(queue, message("1"), message("2"), message("3", "comm_msg"), message("4", "debug_request", "control"))
    fill(queue, message("5", "debug_request", "control"))
    assert send(queue) == ["1", "3", "4", "5"]


def test_a_comm_is_under_way_only_while_the_kernel_says_so() -> None:
    """Ipykernel may handle one without a word, so nothing may wait for its end."""
    queue = RequestQueue()
    (comm,) = fill(queue, message("1", "comm_msg"))
    assert send(queue) == ["1"]
    assert not queue.active
    queue.advance(comm, RequestEvent.START)
    assert queue.in_flight == [comm]
    fill(queue, message("2"))
    assert send(queue) == []
    queue.advance(comm, RequestEvent.END)
    assert send(queue) == ["2"]


def test_an_id_is_used_again_once_its_request_has_ended() -> None:
    queue = RequestQueue()
    (first,) = fill(queue, message("1"))
    assert queue.add(message("1"), b"other client") is None
    send(queue)
    queue.advance(first, RequestEvent.END)
    again = queue.add(message("1"), b"client")
    assert again is not None
    assert again is not first
    assert queue.find("1") is again
    assert queue.add(message("1"), b"client") is None


def test_an_id_that_comes_again_begins_another_batch() -> None:
    queue = RequestQueue()
    cell = replace(message(f"{PARENT}7"), content=FROM_NBCLIENT)
    found = []
    for _ in range(2):
        request = queue.add(cell, b"")
        assert request is not None
        send(queue)
        queue.advance(request, RequestEvent.END)
        found.append(request.batch)
    assert found[0] != found[1]


PARENT = f"s_{os.getppid()}_"
FROM_NBCLIENT = {"code": "1", "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}


def batches(*requests: tuple[str, dict[str, Any]], kind: str = "execute_request", cell: str | None = None) -> list[Any]:
    """Return the batch of each request, by the id of its first cell."""
    queue, metadata = RequestQueue(), {} if cell is None else {"cellId": cell}
    found = []
    for identity, content in requests:
        one = replace(message(identity, kind), content={**FROM_NBCLIENT, **content}, metadata=metadata)
        request = queue.add(one, b"")
        assert request is not None
        found.append(request.batch and request.batch.partition(" ")[0])
    return found


def test_cells_that_a_program_sends_one_after_another_are_a_batch() -> None:
    cells: list[tuple[str, dict[str, Any]]] = [(f"{PARENT}{number}", {}) for number in (7, 8, 9, 11, 12)]
    first, *others = cells
    assert batches(first, *others) == [f"{PARENT}7"] * 3 + [f"{PARENT}11"] * 2, "something else was asked as number 10"
    assert batches(first, (f"t_{os.getppid()}_8", {})) == [f"{PARENT}7", f"t_{os.getppid()}_8"]
    invisible = (f"{PARENT}8", {"store_history": False})
    assert batches(first, invisible, others[1]) == [f"{PARENT}7", None, f"{PARENT}9"]


def test_the_program_is_known_where_a_fork_server_is_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_PARENT_PID", "4194305")
    assert batches(("s_4194305_7", {}), ("s_4194305_8", {})) == ["s_4194305_7"] * 2
    monkeypatch.delenv("JPY_PARENT_PID")
    assert batches(("s_4194305_7", {})) == [None]


@pytest.mark.parametrize(
    "content",
    [{"allow_stdin": True}, {"allow_stdin": 0}, {"silent": True}, {"store_history": False}, {"store_history": 1}],
)
def test_what_a_person_asks_or_no_notebook_shows_is_in_no_batch(content: dict[str, Any]) -> None:
    assert batches((f"{PARENT}7", content), (f"{PARENT}8", content)) == [None, None]


@pytest.mark.parametrize("form", ["5f0c", "s_{here}_", "_", "s_{parent}", "s_{parent}_x"])
def test_a_client_that_did_not_start_this_process_has_no_batches(form: str) -> None:
    """It may show each output by itself, or run a cell again, and each has its library then."""
    identity = form.format(here=os.getpid(), parent=os.getppid())
    assert batches((f"{identity}7", {}), (f"{identity}8", {})) == [None, None]
    assert batches((f"{PARENT}7", {}), cell="a") == [None]
    assert batches((f"{PARENT}7", {}), kind="inspect_request") == [None]


@pytest.mark.parametrize("identity", [None, 1, 1.5, ["1"], {"1": 1}, True, "2"])
def test_only_known_ids_are_found(identity: object) -> None:
    queue = RequestQueue()
    fill(queue, message("1"))
    assert queue.find(identity) is None


def test_a_queue_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 3)
    queue = RequestQueue()
    fill(queue, *(message(str(number)) for number in range(3)))
    assert queue.add(message("3"), b"client") is None
    assert queue.find("3") is None
    assert queue.add(message("4", subshell_id="a"), b"client") is not None
    send(queue)
    assert queue.add(message("3"), b"client") is not None


def test_ten_thousand_requests_are_remembered_and_no_more() -> None:
    queue = RequestQueue()
    for number in range(module.MAX_REMEMBERED + 1):
        (request,) = fill(queue, message(str(number)))
        send(queue)
        queue.advance(request, RequestEvent.END)
    assert queue.find("0") is None
    assert queue.find("1") is not None
    assert queue.find(str(module.MAX_REMEMBERED)) is not None


def test_what_is_not_finished_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    queue = RequestQueue()
    (running,) = fill(queue, message("running"))
    send(queue)
    for number in range(10):
        (request,) = fill(queue, message(str(number), "debug_request", "control"))
        send(queue)
        queue.advance(request, RequestEvent.END)
    assert queue.find("running") is running
    assert queue.find("8") is not None
    assert queue.find("7") is None


def test_comms_are_forgotten_although_nobody_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    queue = RequestQueue()
    for number in range(10):
        fill(queue, message(str(number), "comm_msg"))
        send(queue)
    assert [queue.find(str(number)) is not None for number in range(10)] == [False] * 7 + [True] * 3


def test_a_failed_cell_takes_the_cells_behind_it_out_of_its_own_queue() -> None:
    queue = RequestQueue()
    fill(
        queue, message("1"), message("2"), message("3", "complete_request"), message("4"), message("5", subshell_id="a")
    )
    fill(queue, message("6", subshell_id="a"))
    send(queue)
    assert [request.id for request in queue.take_waiting_cells(queue.in_flight[0])] == ["2", "4"]
    queue.advance(queue.in_flight[0], RequestEvent.END)
    assert send(queue) == ["3"]
    assert queue.take_waiting_cells(PendingRequest(message("7"), b"", "shell x")) == []


def test_everything_is_taken_at_once() -> None:
    queue = RequestQueue()
    fill(queue, message("1"), message("2"), message("3", "debug_request", "control"))
    send(queue)
    flying, waiting = queue.take_all()
    assert [request.id for request in flying] == ["1", "3"]
    assert [request.id for request in waiting] == ["2"]
    assert send(queue) == []


def test_the_parent_is_the_header_that_came_from_the_front_end() -> None:
    (request,) = fill(RequestQueue(), message("1", session="front", date="2000-01-01T00:00:00Z"))
    assert parent_of(request) == {
        "msg_id": "1",
        "msg_type": "execute_request",
        "session": "front",
        "date": "2000-01-01T00:00:00Z",
    }
    assert parent_of(None) == {}


def test_no_request_goes_back_and_each_has_one_end() -> None:
    """From each state on which something follows, an end does; and after it nothing but that its front end is told."""
    for state, after in TABLE.items():
        assert all(state < following for following in after.values())
        assert (RequestEvent.END in after) == (state < RequestState.ENDED)
    assert list(TABLE[RequestState.ENDED]) == [RequestEvent.CLOSE]
    assert TABLE[RequestState.CLOSED] == {}


@pytest.mark.parametrize("state", RequestState)
@pytest.mark.parametrize("event", RequestEvent)
def test_what_is_not_in_the_table_is_refused(state: RequestState, event: RequestEvent) -> None:
    if event in TABLE[state]:
        assert following(state, event) is TABLE[state][event]
        return
    with pytest.raises(ImpossibleError, match=f"{event.name} .*{state.name}"):
        following(state, event)


def test_each_change_is_told_with_the_state_before_and_a_closed_request_keeps_no_content() -> None:
    queue = RequestQueue()
    told: list[tuple[str, RequestState, RequestState]] = []
    queue.listeners.append(lambda request, before: told.append((request.id, before, request.state)))
    (cell,) = fill(queue, replace(message("1"), content={"code": "secret"}))
    send(queue)
    for event in (RequestEvent.START, RequestEvent.STOP, RequestEvent.END, RequestEvent.CLOSE):
        assert cell.message.content == {"code": "secret"}
        queue.advance(cell, event)
    assert [(before, after) for _, before, after in told] == [
        (one, RequestState(one + 1)) for one in list(RequestState)[:-1]
    ]
    assert cell.message.content == {}
    assert cell.idle
    assert cell.busy
