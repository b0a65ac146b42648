"""The doctor on a real engine: a machine that is well, and one ailment after another."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import LimitsKept, Settings
from sandbox_kernel.engines.attachment import Attachment
from sandbox_kernel.engines.attested_start import attestations
from sandbox_kernel.engines.docker import few_users
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine, engine_info
from sandbox_kernel.engines.docker.engine_errors import refusal
from sandbox_kernel.engines.inspectable import MachineCondition
from sandbox_kernel.engines.neighbours import facts
from sandbox_kernel.plugins.doctor import doctor
from sandbox_kernel.plugins.doctor.doctor import DoctorCheck, table
from sandbox_kernel.setup import image_build
from sandbox_kernel.setup.install import install
from tests.support.command_line import run
from tests.support.engines import IMAGE, containers_of, new_spec
from tests.support.remedies import only

Change = Callable[[dict[str, Any]], object]


def by_name(shown: dict[str, Any]) -> dict[str, Any]:
    """Return the rows that `doctor --json` prints."""
    return {row["name"]: row for row in shown["checks"]}


@pytest.fixture
def kernelspec(tmp_path: Path) -> Path:
    return install({"memory": "1G"}, prefix=str(tmp_path))


@pytest.fixture
async def info() -> dict[str, Any]:
    """The running engine's own description."""
    found: dict[str, Any] = await DockerEngine().request("GET", "/info")
    return found


def test_a_machine_that_is_well(kernelspec: Path) -> None:
    """Every row is fine, the attestation is shown line by line, and the exit code is 0."""
    done = run("doctor", "--json", variables={"JUPYTER_PATH": str(kernelspec.parent.parent)})
    shown = json.loads(done.stdout)
    rows = by_name(shown)
    assert done.returncode == 0, done.stdout
    assert shown["ok"] is True
    assert rows.keys() >= {"engine", "seccomp", "limits", "runtime", "image", "attestation", "first cell", "kernelspec"}
    lines = {line["name"]: line for line in rows["attestation"]["details"]}
    assert lines["no_new_privs"]["found"] == "1"
    assert lines["root file system"]["ok"]
    assert len(lines) > 50


def test_without_an_engine_the_rest_is_not_guessed() -> None:
    """One row says what is wrong and what to do; rows that need the engine are not there."""
    done = run("doctor", "--engine=unix:///nonexistent/engine.sock", "--json")
    rows = by_name(json.loads(done.stdout))
    assert done.returncode == 1
    assert rows["engine"]["status"] == "wrong"
    assert "/nonexistent/engine.sock" in rows["engine"]["found"]
    assert rows["engine"]["remedy"]
    of_machine = {one.name: str(one.code or "") for one in facts()}
    assert {name: rows[name]["code"] for name in of_machine} == of_machine
    assert rows.keys() - of_machine.keys() == {"engine", "kernelspec", "browser"}


def test_a_missing_image_and_runtime_have_their_remedies() -> None:
    """Both are named at once; a start is not tried."""
    done = run("doctor", "--image=no-such-image:1", "--runtime=no-such-runtime")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert "WRONG image no-such-image:1 is not there remedy: build or load no-such-image:1" in text
    assert "WRONG runtime no-such-runtime is chosen" in text
    assert "- start not tried" in text


AILMENTS: dict[str, tuple[Change, str, str]] = {
    "no seccomp": (lambda d: d.update(SecurityOptions=["name=apparmor"]), "seccomp", "no seccomp"),
    "no security options at all": (lambda d: d.update(SecurityOptions=None), "seccomp", "no seccomp"),
    "no memory limit": (lambda d: d.update(MemoryLimit=False), "limits", "cannot limit memory"),
    "no limit of processes": (lambda d: d.pop("PidsLimit"), "limits", "cannot limit pids"),
    "no limit of processors": (lambda d: d.update(CpuCfsQuota=False), "limits", "cannot limit cpus"),
    "a runtime that is not there": (lambda d: d.update(Runtimes={"crun": {}}), "runtime", "there are crun"),
}


@pytest.mark.parametrize("case", AILMENTS)
def test_an_engine_that_lacks_something(case: str, info: dict[str, Any]) -> None:
    """The running engine's own description with one thing taken away: that row is wrong, no other, and has a remedy."""
    change, name, reason = AILMENTS[case]
    settings = Settings(runtime="runc")
    assert all(row.ok for row in doctor.engine_rows(engine_info({}, info), settings))
    change(info)
    wrong = [row for row in doctor.engine_rows(engine_info({}, info), settings) if not row.ok]
    assert [row.name for row in wrong] == [name]
    assert reason in wrong[0].found
    assert wrong[0].remedy


def test_swap_that_cannot_be_limited_matters_where_there_is_swap(
    info: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a swap file a missing swap limit takes nothing away."""
    info["SwapLimit"] = False
    for host_has_swap, ok in ((True, False), (False, True)):
        monkeypatch.setattr(doctor, "_host_has_swap", lambda there=host_has_swap: there)
        limits = next(row for row in doctor.engine_rows(engine_info({}, info), Settings()) if row.name == "limits")
        assert limits.ok is ok


def test_more_memory_than_the_machine_has_is_worth_a_note(info: dict[str, Any]) -> None:
    """It is allowed, and the note says what can come of it."""
    settings = from_keywords(memory=info["MemTotal"] + 1, scratch_size="64M")
    memory = next(row for row in doctor.engine_rows(engine_info({}, info), settings) if row.name == "memory")
    assert memory.status == "note"
    assert "--memory" in memory.remedy


async def test_an_image_of_another_version_is_worth_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """It works as it is, and the note says how to have the one that this version would build."""
    engine = DockerEngine()
    found = await engine.request("GET", "/images/sandbox-kernel:data/json")
    digest = found["Config"]["Labels"][image_build.DIGEST_LABEL]
    stage = image_build.chain("data", None, None, found["Architecture"], fresh=False)[-1]
    for would_build, status in ((digest, "ok"), ("0" * 64, "note")):
        monkeypatch.setattr(image_build, "chain", lambda *_, now=would_build, **__: [replace(stage, digest=now)])
        row = await doctor.image_row(engine, "sandbox-kernel:data", found["Architecture"])
        assert row.status == status
        assert row.remedy == ("`sandbox-kernel build`" if status == "note" else "")


class WritableRoot(DockerEngine):
    """An engine that leaves one protection out."""

    async def start_body(
        self, session_id: str, body: dict[str, Any], held: Attachment | None = None, program: bytes = b""
    ) -> DockerContainer:
        body["HostConfig"]["ReadonlyRootfs"] = False
        return await super().start_body(session_id, body, held, program)


async def test_a_missing_protection_is_named() -> None:
    """The attestation of a real sandbox with a writable root differs in that, and the first cell is refused."""
    engine = WritableRoot()
    lines, _other = await attestations(Settings(), engine)
    assert "root file system" in {line.name for line in lines if not line.ok}
    row = await doctor.attested_row(engine, Settings())
    assert row.status == "wrong"
    assert "root file system: expected read-only" in row.found
    row = await doctor.first_cell_row(engine, Settings())
    assert row.status == "wrong"
    assert "AttestationFailed" in row.found


class AsPodman(DockerEngine):
    """An engine that answers to a create what Podman does to one of Docker's."""

    async def start_body(
        self, session_id: str, body: dict[str, Any], held: Attachment | None = None, program: bytes = b""
    ) -> DockerContainer:
        raise refusal(500, 'container create: opening seccomp profile failed: open {"defaultAction":', body)


def test_limits_that_a_rootless_engine_lacks_are_accepted_by_best_effort(info: dict[str, Any]) -> None:
    lacking = info | {"MemoryLimit": False, "PidsLimit": False}
    rootless = lacking | {"SecurityOptions": ["name=seccomp", "name=rootless"]}
    for said, limits, status in (
        (rootless, "best-effort", "note"),
        (rootless, "enforced", "wrong"),
        (lacking, "best-effort", "wrong"),  # its containers are attested with their limits
    ):
        kept = from_keywords(limits=limits)
        (row,) = [row for row in doctor.engine_rows(engine_info({}, said), kept) if row.name == "limits"]
        assert (row.status, "memory, pids" in row.found) == (status, True)


async def test_what_an_engine_does_not_take_is_not_laid_to_the_image() -> None:
    for row in (await doctor.attested_row(AsPodman(), Settings()), await doctor.first_cell_row(AsPodman(), Settings())):
        assert row.status == "wrong"
        assert "does not take all protections" in row.found
        assert row.remedy == EndCode.ENGINE_LACKS_PROTECTION.remedy


class StartsNothing(DockerEngine):
    """An engine that takes a container and cannot start it, as where its user ids do not suffice."""

    options: tuple[str, ...] = ()

    async def start_body(
        self, session_id: str, body: dict[str, Any], held: Attachment | None = None, program: bytes = b""
    ) -> DockerContainer:
        body["HostConfig"]["Tmpfs"]["/tmp"] = "uid=none"
        return await super().start_body(session_id, body, held, program)

    async def request(self, method: str, target: str, body: object = None) -> Any:
        answer = await super().request(method, target, body)
        if target == "/info":
            answer["SecurityOptions"] += self.options
        return answer


class Remapped(StartsNothing):
    options = ("name=userns",)


class Rootless(StartsNothing):
    options = ("name=rootless",)


@pytest.mark.parametrize(
    ("engine", "code", "words"),
    [
        pytest.param(StartsNothing, EndCode.ENGINE_FAILED, "", id="the_machine_s"),
        pytest.param(Remapped, EndCode.ENGINE_LACKS_USERS, "is set to userns-remap", id="remapped"),
        pytest.param(Rootless, EndCode.ENGINE_LACKS_USERS, "is rootless", id="rootless"),
    ],
)
async def test_a_start_that_fails_for_want_of_user_ids(
    engine: type[StartsNothing], code: EndCode, words: str, info: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is said where the engine's containers have ids of their own; there it has a row, too."""
    monkeypatch.setattr(few_users, "known", {})
    spec = new_spec()
    with pytest.raises(EngineError) as caught:
        await engine().start(spec)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert await containers_of(engine(), spec.session_id) == []
    if words:
        row = await doctor.attested_row(engine(), Settings(image=IMAGE))
        assert row.remedy == code.remedy
        info["SecurityOptions"] += engine.options
        (row,) = [row for row in doctor.engine_rows(engine_info({}, info), Settings()) if row.name == "user ids"]
        assert words in row.found


@pytest.mark.parametrize(("limits", "status", "remedy"), [("enforced", "wrong", "do so"), ("best-effort", "note", "")])
def test_a_lack_that_a_setting_has_accepted_asks_for_nothing(limits: LimitsKept, status: str, remedy: str) -> None:
    lack = MachineCondition("cgroup", met=False, found="none", remedy="do so")
    [row] = doctor.condition_rows([lack], Settings(limits_kept=limits))
    assert (row.status, row.remedy) == (status, remedy)


KERNELSPECS: dict[str, tuple[Change, str]] = {
    "another kernel": (
        lambda d: d.update(argv=["python3", "-m", "ipykernel", "-f", "{connection_file}"]),
        "another kernel",
    ),
    "no connection file": (lambda d: d["argv"].remove("{connection_file}"), "has no value"),
    "another connection file": (lambda d: d["argv"].__setitem__(5, "/c.json"), "does not pass the connection file on"),
    "a misspelt setting": (lambda d: d["argv"].append("--memroy=1G"), "did you mean memory"),
    "a folder that is gone": (lambda d: d["argv"].append("--uploads=/nonexistent/none"), "not a folder"),
    "interrupts by signal": (lambda d: d.update(interrupt_mode="signal"), "interrupt_mode"),
    "a Python that is gone": (lambda d: d["argv"].__setitem__(0, "/nonexistent/python"), "does not run"),
    "a Python without the package": (lambda d: d["argv"].__setitem__(1, "-IS"), "does not find sandbox_kernel"),
}


def test_the_settings_of_the_installed_kernel_are_checked_unless_others_are_given(tmp_path: Path) -> None:
    install({"engine": "unix:///nonexistent/none.sock"}, name="gone", prefix=str(tmp_path))
    place = {"JUPYTER_PATH": str(tmp_path / "share/jupyter")}
    for given, address in ((), "none.sock"), (("--engine=unix:///nonexistent/other.sock",), "other.sock"):
        done = run("doctor", "--json", "--name", "gone", *given, variables=place)
        rows = by_name(json.loads(done.stdout))
        assert (rows["engine"]["status"], rows["kernelspec"]["status"]) == ("wrong", "ok")
        assert address in rows["engine"]["found"]


WRONG_VALUES = {"memory": "lots", "outputs": "all", "cell_timeout": "-1", "network": "no such rule", "image": "-v"}


@pytest.mark.parametrize("setting", WRONG_VALUES)
def test_a_wrong_value_of_an_installed_kernel_is_a_row_that_names_it(setting: str, kernelspec: Path) -> None:
    """Who asks the doctor has given no wrong argument; the other rows are of the settings that are left."""
    document = json.loads((kernelspec / "kernel.json").read_text())
    flag = f"--{setting.replace('_', '-')}"
    wrong = f"{flag}={WRONG_VALUES[setting]}"
    document["argv"] += [wrong, "--engine=unix:///nonexistent/none.sock"]
    (kernelspec / "kernel.json").write_text(json.dumps(document))
    place = {"JUPYTER_PATH": str(kernelspec.parent.parent)}
    done = run("doctor", "--json", variables=place)
    assert done.returncode == 1, done.stderr
    rows = by_name(json.loads(done.stdout))
    row = rows["kernelspec"]
    assert row["status"] == "wrong"
    assert f"sandbox-python in {kernelspec}" in row["found"]
    assert f"its setting {setting} is refused" in row["found"]
    assert f"another {flag}" in row["remedy"]
    assert "none.sock" in rows["engine"]["found"]
    given = run("doctor", "--json", wrong, variables=place)  # the control: one that is given here is a wrong argument
    assert (given.returncode, given.stdout) == (2, "")


@pytest.mark.parametrize("case", KERNELSPECS)
def test_a_kernelspec_that_cannot_work(case: str, kernelspec: Path) -> None:
    """Each thing that would stop the kernel from starting is found before a front end finds it."""
    change, reason = KERNELSPECS[case]
    assert doctor.kernelspec_row("sandbox-python", kernelspec).ok
    document = json.loads((kernelspec / "kernel.json").read_text())
    change(document)
    (kernelspec / "kernel.json").write_text(json.dumps(document))
    row = doctor.kernelspec_row("sandbox-python", kernelspec)
    assert row.status == "wrong"
    assert reason in row.found
    assert row.remedy


def test_the_remedy_of_a_kernelspec_that_is_missing_installs_the_kernel_that_was_asked_for(
    tmp_path: Path,
) -> None:
    """What it says is typed as it stands: then there is the kernel, with the settings of the check."""
    place = {"JUPYTER_PATH": str(tmp_path / "share/jupyter"), "JUPYTER_DATA_DIR": str(tmp_path / "share/jupyter")}
    given = ("--image", "sandbox-kernel:base", "--memory", "300M", "--cpus", "1")
    name = "sandbox-of-a-remedy"
    rows = by_name(json.loads(run("doctor", "--json", "--name", name, *given, variables=place).stdout))
    remedy = shlex.split(only(rows["kernelspec"]["remedy"]))
    assert remedy[:2] == ["sandbox-kernel", "install"]
    done = run(*remedy[1:], "--prefix", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = by_name(json.loads(run("doctor", "--json", "--name", name, variables=place).stdout))
    assert rows["kernelspec"]["status"] == "ok"
    assert "300.0 MiB a session" in rows["memory"]["found"], "the settings are the kernel's now"


@pytest.mark.parametrize("text", ["{bad", "[]", ""])
def test_a_broken_kernelspec_is_a_row_of_the_table(text: str, kernelspec: Path) -> None:
    (kernelspec / "kernel.json").write_text(text)
    row = doctor.kernelspec_row("sandbox-python", kernelspec)
    assert row.status == "wrong"
    assert "cannot be read" in row.found


def test_the_table_shows_remedies_beneath_their_rows() -> None:
    """Notes have one too, but only what is wrong counts as wrong."""
    rows = [
        DoctorCheck("one", "ok", "fine"),
        DoctorCheck("two", "note", "odd", "maybe"),
        DoctorCheck("three", "wrong", "bad", "do it"),
    ]
    lines = table(rows).splitlines()
    assert lines[0].split() == ["ok", "one", "fine"]
    assert lines[2].strip() == "remedy: maybe"
    assert lines[4].strip() == "remedy: do it"
    assert lines[-1] == "1 of 3 checks found something wrong"
    assert table(rows[:2]).splitlines()[-1] == "everything a session needs is there"
