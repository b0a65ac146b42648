"""The clock of the machine jumps while a broker runs, as one does that somebody sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.engines.docker.arguments import LABEL
from sandbox_kernel.engines.docker.engine import DockerEngine
from tests.plugins.broker.brokers import a_broker
from tests.plugins.broker.container.test_detached import ids, kept, until_ended
from tests.support.clock import Clock
from tests.support.engines import IMAGE

pytestmark = pytest.mark.timeout(900)  # the library may have to be fetched first


async def test_a_clock_that_jumps_ends_nothing_and_makes_nothing_live_longer(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    with a_broker("--pool", "1", environment=clock.environment) as daemon:
        engine = daemon.engine()

        async def made_at(container: str) -> float:
            found = await DockerEngine().request("GET", f"/containers/{container}/json")
            return float(found["Config"]["Labels"][f"{LABEL}.created"])

        one = await kept(daemon, lifetime=300)
        async with AsyncSandbox(engine=daemon.address, image=IMAGE) as two:
            for sandbox in (one, two):
                await sandbox.run_code("count = 0")
            seen = set()
            for turn, days in enumerate((0, 400, -400, 4000, 0), 1):
                before = set(await daemon.waiting())
                clock.jump(days)
                for sandbox in (one, two):
                    assert (await sandbox.run_code("count += 1; count")).text == str(turn)
                assert set(await daemon.waiting()) == before  # is not too old by now, nor from the future
                async with AsyncSandbox(engine=daemon.address, image=IMAGE) as three:
                    assert (await three.run_code("6 * 7")).text == "42"
                    assert before <= {row.container for row in await engine.list() if row.state == "running"}
                [fresh] = await daemon.waiting()
                assert clock.shows(await made_at(fresh))  # control: the broker does see another time
                seen.add(fresh)
                assert set(await ids(daemon)) == {one.id, two.id}
            assert len(seen) == 5
        await one.set_timeout(0.5)
        clock.jump(-400)
        await until_ended(daemon, one.id)
