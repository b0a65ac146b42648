"""How a kernel begins: none of its threads uses a socket while another one does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from ipykernel.control import ControlThread

from sandbox_kernel.container.kernel_launcher import register_alone

SECONDS = 20


@pytest.fixture
def threads() -> Iterator[list[ControlThread]]:
    """The two threads of a kernel that have a loop of their own, as ipykernel makes them."""
    made = [ControlThread(daemon=True), ControlThread(daemon=True)]
    for thread in made:
        thread.start()
    yield made
    for thread in made:
        thread.stop()
        thread.join(SECONDS)


def kernel_of(threads: list[ControlThread], start: Callable[[], None]) -> SimpleNamespace:
    return SimpleNamespace(control_thread=threads[0], shell_channel_thread=threads[1], start=start)


def test_no_thread_goes_on_while_the_main_one_registers(threads: list[ControlThread]) -> None:
    went_on = [threading.Event() for _ in threads]

    def start() -> None:
        for thread, event in zip(threads, went_on, strict=True):
            thread.io_loop.add_callback(event.set)
        assert not any(event.wait(0.1) for event in went_on)

    kernel = kernel_of(threads, start)
    register_alone(kernel)
    kernel.start()
    assert all(event.wait(SECONDS) for event in went_on)


def test_control_threads_go_on_meanwhile(threads: list[ControlThread]) -> None:
    went_on = threading.Event()

    def start() -> None:
        threads[1].io_loop.add_callback(went_on.set)
        assert went_on.wait(SECONDS)

    kernel_of(threads, start).start()


def test_they_go_on_if_it_fails(threads: list[ControlThread]) -> None:
    def start() -> None:
        raise OSError("no file is left")

    kernel = kernel_of(threads, start)
    register_alone(kernel)
    with pytest.raises(OSError, match="no file is left"):
        kernel.start()
    went_on = threading.Event()
    threads[0].io_loop.add_callback(went_on.set)
    assert went_on.wait(SECONDS)


def test_a_kernel_without_such_threads_starts() -> None:
    started = threading.Event()
    kernel = SimpleNamespace(shell_channel_thread=None, start=started.set)
    register_alone(kernel)
    kernel.start()
    assert started.is_set()
