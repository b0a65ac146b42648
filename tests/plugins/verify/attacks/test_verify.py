"""`sandbox-kernel verify` on real sandboxes: as they are, with protections taken away, and with one that lies.

Several protections are taken away from one set of sandboxes, and each probe that rests on one of them is seen to turn.
The attestation, which refuses such sandboxes, is stepped around here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.engines import hardening, shipping
from sandbox_kernel.engines.attachment import Attachment
from sandbox_kernel.engines.base import AttestationCheck
from sandbox_kernel.engines.docker.ahead import creation
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.plugins.bubblewrap import arguments, cgroups, launch
from sandbox_kernel.plugins.bubblewrap.container import BubblewrapContainer
from sandbox_kernel.plugins.verify import behaviour_probes, canaries, examination, probe_cells
from sandbox_kernel.plugins.verify.attack_program import PROGRAM
from sandbox_kernel.plugins.verify.probes import BY_CODE, PROBES, Where, Word
from sandbox_kernel.plugins.verify.verdicts import ProbeFinding, ProbeVerdict
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.verdict import Verdict as PolicyVerdict
from sandbox_kernel.session.session import Session
from tests.attacks.escape.alterations import Alteration, Body, Given, both, folder, host, no_filter, root, secret, tmpfs
from tests.attacks.escape.tools import BUBBLEWRAP
from tests.support.engines import IMAGE, docker_runtimes
from tests.support.roots import root_of_tests

ON_GVISOR = {probe.code for probe in PROBES if probe.where is Where.HOST} - {
    *("end-kernel", "end-output", "end-time", "end-owner", "plant-next", "limit-memory", "limit-processes"),
} | {
    "program-setuid",
    "network-tcp",
    "network-host-loopback",
    "neighbour-sockets",
    "plant-anywhere",
    "program-text",
    "leak-descriptors",
    "rights-agent-memory",
}
"""What the host sees, and an attack of each kind: the others cost tens of seconds there, and are tried in escape/."""


async def verified(settings: Settings, codes: set[str] | None = None) -> dict[str, ProbeFinding]:
    wanted = [probe for probe in PROBES if codes is None or probe.code in codes]
    return {one.probe.code: one for one in (await examination.examine(settings, wanted)).findings}


def said(found: dict[str, ProbeFinding], verdict: ProbeVerdict) -> dict[str, str]:
    return {code: one.happened for code, one in found.items() if one.verdict is verdict}


UNTRIED = re.compile(
    r"no answer|not answered|not be tried|showed nothing|nothing was tried|not lay|not start|it did not"
)


def untried(found: dict[str, ProbeFinding]) -> dict[str, str]:
    """Return what failed because nobody tried it, which shows nothing of a protection."""
    return {code: text for code, text in said(found, ProbeVerdict.FAIL).items() if UNTRIED.search(text)}


@pytest.mark.long
def test_sandboxes_of_gvisor_pass_as_they_are() -> None:
    """What is not applicable there has gVisor for its reason. runc's are tried by the wheel, in its own tests."""
    if "runsc" not in docker_runtimes():
        pytest.skip("the engine has no runtime 'runsc'")
    settings = from_keywords(image=IMAGE, memory="512M", network=["files.test"], runtime="runsc")
    found = asyncio.run(verified(settings, ON_GVISOR))
    assert said(found, ProbeVerdict.FAIL) == {}
    assert all("gVisor" in reason for reason in said(found, ProbeVerdict.NOT_APPLICABLE).values())
    assert found["technology-kernel"].verdict is ProbeVerdict.PASS


# --- with protections taken away --------------------------------------------------------------------------------------

SMALL = Limits(memory=256 << 20, scratch_size=32 << 20, tmp_size=16 << 20, shm_size=16 << 20)
CAPABILITIES = """
    SYS_ADMIN SYS_CHROOT DAC_READ_SEARCH SYSLOG IPC_LOCK SYS_RAWIO NET_RAW NET_ADMIN MKNOD SETUID SETGID SYS_NICE
    SYS_PTRACE FOWNER
""".split()  # noqa: SIM905 (one line a name says no more)


def allows(option: str) -> Alteration:
    """Leave out the security options that begin so."""

    def change(body: Body, _: Given) -> None:
        options = body["HostConfig"]["SecurityOpt"]
        body["HostConfig"]["SecurityOpt"] = [each for each in options if not each.startswith(option)]

    return change


def binds(*paths: str) -> Alteration:
    def change(body: Body, given: Given) -> None:
        bound = [path.format(**given) for path in paths]
        body["HostConfig"]["Binds"] = [*(body["HostConfig"].get("Binds") or []), *bound]

    return change


def on_the_host_s_network(body: Body, _: Given) -> None:
    del body["Hostname"], body["Domainname"]
    body["NetworkDisabled"] = False
    body["HostConfig"] |= {"NetworkMode": "host", "UTSMode": "host"}


@dataclass(frozen=True)
class Weakened:
    """What is taken away from all sandboxes of one examination, and the probes that turn for it."""

    change: Alteration
    turn: set[str]
    around: Callable[[pytest.MonkeyPatch, Path], None] = lambda *_: None
    """What is taken away on the host's side."""


def limit(name: str, most: int) -> dict[str, object]:
    return {"Name": name, "Soft": most, "Hard": most}


def codes(text: str) -> set[str]:
    return set(text.split())


NOWHERE_IS_NEAR = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as _way:
    fcntl.ioctl(_way, 0x8916, struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("192.0.2.1")))
"""
"""The address that nobody has becomes the sandbox's own: it is reached, and nothing leaves the machine."""


def with_an_address(patch: pytest.MonkeyPatch, _: Path) -> None:
    patch.setattr("sandbox_kernel.plugins.verify.attack_program.PROGRAM", NOWHERE_IS_NEAR + PROGRAM)
    without_a_shield(patch)


def without_a_shield(patch: pytest.MonkeyPatch) -> None:
    """Have the agent put no filter around what it starts, and leave new privileges to the engine."""
    agent(patch, "    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)", "    pass")
    agent(patch, "    return bool(libc.prctl(_PR_SET_SECCOMP", "    return bool(1 or libc.prctl(_PR_SET_SECCOMP")


SPAWNED, HANDED_ON = "words = [sys.executable,", 'os.set_inheritable(os.open("/", os.O_RDONLY), True); '


def with_its_own_environment(patch: pytest.MonkeyPatch, _: Path) -> None:
    """Cells have the agent's, which is the container's, and a file that it has open."""
    own = 'environment = config["environment"] if'
    agent(patch, own, 'environment = {**os.environ, **config["environment"]} if')
    agent(patch, SPAWNED, HANDED_ON + SPAWNED)


def agent(patch: pytest.MonkeyPatch, old: str, new: str) -> None:
    """Ship another agent; its sources stand in its program as literals."""
    real = shipping.agent_source
    assert old in real()
    patch.setattr(shipping, "agent_source", lambda *asked, **options: real(*asked, **options).replace(old, new))


LEFT: list[DockerContainer] = []
"""Containers that were not ended when they were to be."""
END = DockerContainer.kill


def without_policy_and_budgets(patch: pytest.MonkeyPatch, folder: Path) -> None:
    patch.setattr(OutputPolicy, "apply", lambda _, message, *__: PolicyVerdict(message))
    patch.setattr(behaviour_probes, "LEFT_SECONDS", 0.5)
    patch.setattr(
        probe_cells, "OWNER", OWNER_THAT_IS_NOT_THE_OWNER.format(real=probe_cells.OWNER, file=str(folder / "owner"))
    )
    patch.setattr(behaviour_probes, "BY_ITSELF_SECONDS", 4.0)
    real = Session.__init__

    def begin(session: Session, settings: Settings, *rest: Any, **named: Any) -> None:
        limits = replace(settings.limits, output_limit=1 << 30)
        real(session, replace(settings, limits=limits), *rest, **named)

    patch.setattr(Session, "__init__", begin)
    submit = Session.submit
    patch.setattr(Session, "submit", lambda session, request, client, *_: submit(session, request, client))

    async def stays(container: DockerContainer) -> None:
        """Leave it, as an owner does that cannot end it."""
        LEFT.append(container)

    patch.setattr(DockerContainer, "kill", stays)

    async def alike(*_: object) -> tuple[AttestationCheck, ...]:
        return (AttestationCheck("anything", "x", "x", ok=True),)

    patch.setattr(DockerContainer, "compare", alike)


OWNER_THAT_IS_NOT_THE_OWNER = """
import subprocess, sys
owner = subprocess.Popen([sys.executable, "-P", "-c", {real!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
owner.stdin.write(sys.stdin.buffer.readline())
owner.stdin.flush()
open({file!r}, "w").write(str(owner.pid))
print(owner.stdout.readline().decode(), end="", flush=True)
owner.wait()
"""

WEAKENED = {
    "root, all rights, and a writable root": Weakened(
        both(
            root(*CAPABILITIES),
            no_filter,
            allows("no-new-privileges"),
            host(ReadonlyRootfs=False, MaskedPaths=[], ReadonlyPaths=[], CgroupnsMode="host"),
            host(Devices=[{"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rw"}]),
            binds("/sys/fs/cgroup:/sys/fs/cgroup", "{folder}:/media"),
        ),
        codes("""
            program-from-memory program-text program-setuid program-debugger program-by-the-kernel program-in-the-kernel
            rights-user rights-capabilities rights-taken-back rights-namespaces rights-mounts rights-root-folder
            rights-devices rights-kernel-doors rights-machine rights-priority rights-terminal rights-agent-memory
            rights-agent-speed rights-user-of-processes rights-capabilities-of-processes rights-new-privileges
            network-tcp network-udp network-ping network-raw network-netlink network-families network-settings
            leak-memory leak-kernel leak-machine leak-keys
            plant-system plant-anywhere plant-kernel-settings plant-cgroups
            technology-attested technology-filter technology-namespaces technology-writable
        """),
        with_an_address,
    ),
    "what is the host's": Weakened(
        both(
            on_the_host_s_network,
            host(PidMode="host", IpcMode="host", ShmSize=0),
            secret,
            folder,
            binds("{shared}:/var/tmp", "{setuid}:/usr/local/bin/helper:ro"),
        ),
        codes("""
            network-host-loopback network-host-sockets network-interfaces
            neighbour-processes neighbour-memory neighbour-sockets neighbour-files neighbour-namespaces
            leak-file leak-environment leak-secret leak-descriptors
            plant-next program-setuid-of-image program-stays-inside
        """),
        with_its_own_environment,
    ),
    "no limits, and no host that looks": Weakened(
        both(
            host(Memory=1 << 30, MemorySwap=1 << 30, PidsLimit=0, CpuQuota=0, OomScoreAdj=0),
            host(Ulimits=[limit("nofile", 4096), limit("core", -1)], ShmSize=64 << 20),
            tmpfs("size", str(64 << 20)),
            tmpfs("nr_inodes", "0"),
        ),
        codes("""
            limit-folders limit-files limit-core limit-open-files limit-threads limit-processes limit-memory
            limit-memory-set limit-processes-set limit-processors-set limit-first-to-go
            output-script output-load output-terminal output-payload
            end-output end-time end-owner end-containers end-processes technology-attestation-sees
        """),
        without_policy_and_budgets,
    ),
}
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern").read_text(encoding="utf-8")
ELSEWHERE = {"limit-core"} if CORE_PATTERN.startswith(("|", "/")) else set[str]()
"""Where a core file goes is a setting of the whole machine: on some it never lies in a sandbox, limited or not."""
JUDGED_ALONE = {
    "network-past-the-rules": "tests/plugins/verify/unit/test_verify.py judges what was denied and what was not",
    "output-forged": "tests/plugins/verify/unit/test_verify.py judges the messages as a kernel sends them",
    "plant-downloads": "tests/plugins/verify/unit/test_verify.py judges a folder with what may not arrive there",
    "technology-kernel": "tests/plugins/verify/unit/test_verify.py judges a runtime that is gVisor by name only",
    "end-kernel": "tests/plugins/verify/unit/test_verify.py judges other ends",
}
"""Probes that turn in no sandbox here, and why."""


def test_each_probe_is_seen_to_turn_or_says_why_not() -> None:
    turned = set().union(*(each.turn for each in WEAKENED.values()))
    assert turned | set(JUDGED_ALONE) == set(BY_CODE)
    assert turned.isdisjoint(JUDGED_ALONE)


@pytest.fixture
def weaken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Weakened], None]]:
    """Return what takes protections away from all sandboxes of this test; nothing of them is left."""

    def take(weakened: Weakened) -> None:
        given: dict[str, Any] = {}
        real, lay = creation, canaries.laid
        shared, setuid = tmp_path / "shared", tmp_path / "setuid"
        shared.mkdir()
        shared.chmod(0o777)
        setuid.write_text("#!/bin/sh\n")
        setuid.chmod(0o4755)
        for each in list(tmp_path.parents)[:3]:
            each.chmod(0o755)  # so that only the sandbox is in the way

        @contextlib.contextmanager
        def laid(session: str, place: Path) -> Iterator[canaries.Canaries]:
            place.chmod(0o777)
            with lay(session, place) as found:
                given.update(found.given, shared=shared, setuid=setuid)
                command = [sys.executable, "-c", "import sys; sys.stdin.read()", str(found.given["marker"])]
                outside = subprocess.Popen(command, stdin=subprocess.PIPE)  # as a program would be that got out
                with outside:
                    yield found

        def weakened_creation(spec: Any) -> tuple[dict[str, Any], Attachment]:
            body, held = real(spec)
            weakened.change(body, given)
            return body, held

        async def accepted(*_: object) -> None:
            """Take what the attestation would refuse."""

        monkeypatch.setattr(examination, "laid", laid)
        monkeypatch.setattr("sandbox_kernel.engines.docker.engine.creation", weakened_creation)
        monkeypatch.setattr(DockerContainer, "attest", accepted)
        weakened.around(monkeypatch, tmp_path)

    yield take
    monkeypatch.undo()
    while LEFT:  # where the time of a test was over: its sandboxes are left only as its loop ends
        LEFT.pop().abandon()
    if (owner := tmp_path / "owner").exists():
        os.kill(int(owner.read_text()), signal.SIGTERM)


@pytest.mark.parametrize("case", WEAKENED)
async def test_a_protection_that_is_missing_turns_its_probes(case: str, weaken: Callable[[Weakened], None]) -> None:
    weakened = WEAKENED[case]
    weaken(weakened)
    try:
        found = await verified(Settings(image=IMAGE, limits=SMALL), weakened.turn - ELSEWHERE)
    finally:
        while LEFT:
            await END(LEFT.pop())
    assert said(found, ProbeVerdict.PASS) | said(found, ProbeVerdict.NOT_APPLICABLE) == {}
    assert untried(found) == {}


ON_GVISOR_WEAKENED = Weakened(
    both(
        root(),
        host(ReadonlyRootfs=False, Memory=1 << 30, MemorySwap=1 << 30, CpuQuota=0, OomScoreAdj=0),
        secret,
        folder,
    ),
    codes("""
        program-text rights-user plant-anywhere leak-file leak-environment leak-secret leak-descriptors
        technology-attested limit-memory-set limit-processors-set limit-first-to-go
    """),
    with_its_own_environment,
)


@pytest.mark.long
def test_probes_turn_on_gvisor_as_well(weaken: Callable[[Weakened], None]) -> None:
    """What is missing is missed there by the sandbox's own word, by this machine's, and by both."""
    if "runsc" not in docker_runtimes():
        pytest.skip("the engine has no runtime 'runsc'")
    weaken(ON_GVISOR_WEAKENED)
    settings = Settings(image=IMAGE, limits=SMALL, runtime="runsc")
    found = asyncio.run(verified(settings, ON_GVISOR_WEAKENED.turn))
    assert said(found, ProbeVerdict.PASS) | said(found, ProbeVerdict.NOT_APPLICABLE) == {}
    assert untried(found) == {}
    assert {one.word for one in found.values()} == set(Word)


# --- on bubblewrap ----------------------------------------------------------------------------------------------------


@pytest.fixture
def bubblewrap() -> str:
    """Return the root that its sandboxes have."""
    if why := BUBBLEWRAP.absent():
        pytest.skip(why)
    return root_of_tests()


def test_sandboxes_of_bubblewrap_pass_as_they_are(bubblewrap: str) -> None:
    settings = from_keywords(engine="bubblewrap", image=bubblewrap, memory="512M", network=["files.test"])
    found = asyncio.run(verified(settings))
    assert said(found, ProbeVerdict.FAIL) == {}
    assert said(found, ProbeVerdict.NOT_APPLICABLE).keys() == {"technology-kernel", "limit-files"}


BUBBLEWRAP_WEAKENED = codes("""
    network-netlink network-families network-host-loopback network-host-sockets network-interfaces
    neighbour-memory neighbour-sockets neighbour-namespaces
    leak-file plant-anywhere rights-namespaces
    limit-memory-set limit-processes-set limit-processors-set limit-first-to-go
    technology-attested technology-filter technology-namespaces technology-writable
""")


@pytest.mark.long
async def test_probes_turn_on_bubblewrap_as_well(
    bubblewrap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another root, the machine's network and its IPC, no filter, and control groups without limits."""
    given: dict[str, Any] = {}
    lay, real = canaries.laid, arguments.arguments
    for each in (tmp_path, *list(tmp_path.parents)[:3]):
        each.chmod(0o755)  # so that only the sandbox is in the way

    @contextlib.contextmanager
    def laid(session: str, place: Path) -> Iterator[canaries.Canaries]:
        place.chmod(0o777)
        with lay(session, place) as found:
            given.update(found.given)
            yield found

    def weakened(*asked: Any) -> list[str]:
        words = real(*asked)
        for left_out in ("--unshare-net", "--unshare-ipc", "--unshare-uts"):
            words.remove(left_out)
        for option in ("--seccomp", "--hostname", "--remount-ro"):
            at = len(words) - 1 - words[::-1].index(option)
            del words[at : at + 2]
        end = words.index("--")
        return [*words[:end], "--bind", *[str(given["folder"])] * 2, *words[end:]]

    async def accepted(*_: object) -> None:
        """Take what the attestation would refuse."""

    monkeypatch.setattr(examination, "laid", laid)
    monkeypatch.setattr(launch, "arguments", weakened)
    monkeypatch.setattr(hardening.Protections, "oom_score", 0)
    monkeypatch.setattr(cgroups.CgroupSet, "limit", lambda *_: None)
    monkeypatch.setattr(BubblewrapContainer, "attest", accepted)
    without_a_shield(monkeypatch)
    found = await verified(Settings(engine="bubblewrap", image=bubblewrap, limits=SMALL), BUBBLEWRAP_WEAKENED)
    assert said(found, ProbeVerdict.PASS) | said(found, ProbeVerdict.NOT_APPLICABLE) == {}
    assert untried(found) == {}


# --- a sandbox that lies ----------------------------------------------------------------------------------------------

LIES = """
_apart = kit.apart
def _lie(function):
    _apart(function)
    return min(kit.ATTACKS[function.__name__].refused), ""
kit.apart = _lie
kit.main("""
"""Does everything, and says of everything that it was refused."""


def with_lies(patch: pytest.MonkeyPatch, _: Path) -> None:
    patch.setattr("sandbox_kernel.plugins.verify.attack_program.PROGRAM", PROGRAM.replace("kit.main(", LIES))
    without_a_shield(patch)


LYING = Weakened(
    both(
        root(),
        no_filter,
        allows("no-new-privileges"),
        on_the_host_s_network,
        host(ReadonlyRootfs=False, PidsLimit=0, CpuQuota=0, OomScoreAdj=0, Memory=1 << 30, MemorySwap=1 << 30),
        binds("{folder}:/media"),
    ),
    codes("""
        network-host-loopback network-host-sockets network-interfaces neighbour-namespaces plant-anywhere
        rights-user-of-processes rights-capabilities-of-processes rights-new-privileges
        technology-filter technology-namespaces technology-writable
        limit-memory-set limit-processes-set limit-processors-set limit-first-to-go
    """),
    with_lies,
)


async def test_a_sandbox_that_lies_does_not_change_what_the_host_sees(weaken: Callable[[Weakened], None]) -> None:
    """What rests on its own word it can fake, and that is said; nothing of the host's."""
    weaken(LYING)
    faked = {"plant-system", "program-setuid"}
    found = await verified(Settings(image=IMAGE, limits=SMALL), LYING.turn | faked)
    assert said(found, ProbeVerdict.PASS).keys() == faked
    assert untried(found) == {}
    assert {found[code].word for code in faked} == {Word.SANDBOX}
    assert {one.word for code, one in found.items() if code not in faked} == {Word.HOST, Word.BOTH}
