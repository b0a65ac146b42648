"""The engine as its contract meets it: it runs no program but its own kernel, so what takes another one is lacking."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import SandboxSpec, Settings
from sandbox_kernel.engines import shipping
from sandbox_kernel.engines.base import Container
from sandbox_kernel.plugins.wasm.engine import WasmEngine, sessions
from sandbox_kernel.plugins.wasm.image import find
from tests.support.engines import DATASET, DISK, ECHO, UNSEEN

_PROGRAM = "it runs no program but its own kernel"
_OWN = f"{_PROGRAM}; test_engine.py has the same with that"
_ADOPTED = "its sandboxes end with their owner"


class Wasm:
    """A session's process; a spec for another program is one that it refuses."""

    name = "wasm"
    source = "from sandbox_kernel.plugins.wasm.engine import WasmEngine as Engine"
    unenforced: Mapping[str, str] = {}
    lacks: Mapping[str, str] = {
        "test_bytes_that_go_in_come_out": _PROGRAM,
        "test_50_mb_come_through_unchanged": _PROGRAM,
        "test_what_it_wrote_last_comes_after_its_end_was_told": _PROGRAM,
        "test_50_mb_go_in": _PROGRAM,
        "test_its_program_comes_before_all_else": _PROGRAM,
        "test_the_loop_runs_on_while_a_send_waits": _PROGRAM,
        "test_a_cancelled_receive_loses_no_byte": _PROGRAM,
        "test_an_exit_code_and_the_last_words": _OWN,
        "test_out_of_memory_is_named": _OWN,
        "test_kill_removes_it_and_may_be_repeated": _OWN,
        "test_kill_after_it_ended_by_itself": _OWN,
        "test_sigkill_of_the_owner_ends_it": _OWN,
        "test_a_container_that_does_not_hear_of_its_owner_s_end_is_ended": _OWN,
        "test_a_command_that_is_not_there_leaves_nothing": _PROGRAM,
        "test_more_cpus_than_the_machine_has_are_no_error": _PROGRAM,
        "test_it_is_attested_or_refused_for_what_it_does_not_enforce": _OWN,
        "test_scratch_is_a_folder_at_the_home_of_hosted_interpreters": _PROGRAM,
        "test_another_process_keeps_it_and_a_third_adopts_it": _ADOPTED,
        "test_what_was_given_away_ends_with_whoever_has_it": _ADOPTED,
        UNSEEN: "it has no programs",
        DISK: "its scratch is in memory",
        DATASET: "it mounts nothing of a caller's",
    }

    def absent(self) -> str | None:
        if find_spec("wasmtime") is None:
            return "the extra wasm is not installed"
        try:
            find("sandbox-kernel:data")
        except EngineError as error:
            return error.message
        return None

    def make(self) -> WasmEngine:
        return WasmEngine()

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        other = {} if code == ECHO else {"command": ("python3", "-I", "-c", code, *arguments)}
        return replace(shipping.new_spec(Settings(engine="wasm")), **(other | fields))

    async def left(self, session_id: str) -> list[str]:
        return [str(pid) for pid, session, _, _ in sessions() if session == session_id]

    async def end_from_outside(self, container: Container) -> None:
        os.kill(int(container.id.removeprefix("wasm-")), signal.SIGKILL)

    async def sweep(self, session_id: str) -> None:
        for pid in await self.left(session_id):
            os.kill(int(pid), signal.SIGKILL)


UNDER_TEST = Wasm()
