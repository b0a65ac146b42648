"""What a cell did that matters is in its report of behaviour, and in no other cell's."""

from __future__ import annotations

import asyncio

from sandbox_kernel import AsyncSandbox, Sandbox


def test_each_cell_has_its_own_behaviour(image: str) -> None:
    with Sandbox(image=image, memory="512M") as sandbox:
        fine = sandbox.run_code("sum(range(10))").behaviour
        assert (fine.rows, fine.risk_score, fine.is_safe) == ((), 0, True)
        assert fine.seconds is not None
        assert fine.memory_peak_bytes is not None
        shows = "from IPython.display import Javascript, display\ndisplay(Javascript('1'))\ndisplay(Javascript('2'))"
        execution = sandbox.run_code(shows)
        assert [(row.kind, row.code, row.count, row.first_cell) for row in execution.behaviour.rows] == [
            ("output", "javascript", 2, execution.execution_count)
        ]
        assert not execution.behaviour.is_safe
        late = sandbox.run_code("while True: pass", timeout=0.5).behaviour
        assert [(row.kind, row.code, row.severity) for row in late.rows] == [("limit", "cell-timeout", "limit")]
        assert late.is_safe
        assert sandbox.run_code("1").behaviour.rows == ()
        within = sandbox.run_code(shows, context=sandbox.create_context())
        assert [(row.code, row.count) for row in within.behaviour.rows] == [("javascript", 2)]


async def test_a_cell_that_runs_beside_has_nothing_of_it(image: str) -> None:
    async with AsyncSandbox(image=image, memory="512M") as sandbox:
        context = await sandbox.create_context()
        running = asyncio.Event()
        waits = (
            "print('begun', flush=True)\nimport os, time\nwhile not os.path.exists('/mnt/data/go'): time.sleep(0.01)"
        )
        beside = asyncio.create_task(sandbox.run_code(waits, on_stdout=lambda _: running.set()))
        await running.wait()
        shows = "from IPython.display import Javascript\nJavascript('1')"
        within = await sandbox.run_code(shows, context=context)
        await sandbox.files.write("go", b"")
        assert [row.code for row in within.behaviour.rows] == ["javascript"]
        assert (await beside).behaviour.rows == ()
