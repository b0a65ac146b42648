"""`python -m benchmarks.kubernetes_scale`: many sessions on many nodes that KWOK pretends to be.

The API server, etcd, the scheduler and the controllers are real, and so are this project's pods, its requests and its
watch; no node runs anything, and nothing is attached. So it says what a cluster and one process of ours bear, and
nothing of how long a pod takes to start on a node. KUBECONFIG names the cluster, which should have no other work;
`--programs` is the folder of KWOK and kubectl, and `--stages` the one that KWOK's sources have as kustomize/stage: what
its nodes and pods do. All pods and nodes are removed at the end.

With `--claims`, sessions claim pods of a warm pool instead. agent-sandbox's controller plays its own part: its
resources are in the cluster, and it runs here, with the process number that the option has.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sandbox_kernel.core.model import MIB, Limits, SandboxSpec, Settings
from sandbox_kernel.engines.owner_process import OwnerProcess
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.kubernetes import pod_endings, warm_pool
from sandbox_kernel.plugins.kubernetes.claimed_pod import Claim
from sandbox_kernel.plugins.kubernetes.cluster_namespace import Cluster
from sandbox_kernel.plugins.kubernetes.pod import Pod, document
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings

NODE = "kwok.x-k8s.io/node"
LIMITS = Limits(memory=256 * MIB, cpus=0.5, scratch_size=32 * MIB, tmp_size=16 * MIB, shm_size=16 * MIB)
WAIT_SECONDS = 120.0
STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
STARTED: list[str] = []
POOL = "warm"
WAITING = 0.9
"""Of a pool, at the beginning of a step: a pod whose node was late once is not ready, and KWOK leaves it so."""
LIFETIME = 86400
PROGRAMS = {"kwok": "kwok", "kubectl": "kubectl"}
COUNTED = {
    "API calls": re.compile(r"^apiserver_request_total\{(?!.*verb=\"WATCH\")[^}]*\} (\S+)", re.MULTILINE),
    "etcd writes": re.compile(
        r'^etcd_request_duration_seconds_count\{[^}]*operation="(?:create|update|delete)"[^}]*\} (\S+)', re.MULTILINE
    ),
}
"""Of the API server's own figures."""
WATCHES = re.compile(r"^apiserver_longrunning_requests\{[^}]*verb=\"WATCH\"[^}]*\} (\S+)", re.MULTILINE)


@dataclass
class Step:
    """What it took to come to so many sessions."""

    sessions: int
    what: str
    seconds: list[float] = field(default_factory=list)
    known: list[float] = field(default_factory=list)
    """Until a claim's pod was named, in seconds: a session attaches then."""
    wall: float = 0.0
    failed: int = 0
    counted: Mapping[str, float] = field(default_factory=dict)
    watches: int = 0
    memory: int = 0
    controller: int = 0

    def row(self) -> str:
        done = len(self.seconds)
        quantiles = statistics.quantiles(self.seconds, n=20) if done > 1 else [0.0] * 19
        named = f"named {statistics.median(self.known):.2f} s, " if self.known else ""
        controller = f"; the controller {self.controller >> 20} MiB" if self.controller else ""
        each = " ".join(f"{name} {value / max(done, 1):.1f};" for name, value in self.counted.items())
        return (
            f"{self.sessions:>6} sessions: {done / self.wall:.1f} {self.what} a second, {named}median "
            f"{quantiles[9]:.2f} s, 19 of 20 within {quantiles[18]:.2f} s, {self.failed} failed; each: {each} "
            f"{self.watches} watches of all; this process {self.memory >> 20} MiB{controller}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--programs", default="", metavar="FOLDER", help="where kwok and kubectl are, if not in PATH")
    parser.add_argument("--stages", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=50, help="starts that are under way at a time")
    parser.add_argument("--namespace", default="scale")
    parser.add_argument("--claims", type=int, default=0, metavar="PID", help="of agent-sandbox's controller")
    given = parser.parse_args()
    PROGRAMS.update({name: str(Path(given.programs) / name) for name in PROGRAMS if given.programs})
    with pretended(given.stages):
        asyncio.run(run(given))
    return 0


@contextmanager
def pretended(stages: Path) -> Iterator[None]:
    """Have KWOK play the nodes that are marked as its own, and their pods."""
    command = [
        PROGRAMS["kwok"],
        f"--kubeconfig={os.environ['KUBECONFIG']}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={NODE}=fake",
        "--node-lease-duration-seconds=40",  # else the cluster takes a node for dead within 20 s
        "--server-address=127.0.0.1:0",
        *(f"--config={stages / name}" for name in STAGES),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


async def run(given: argparse.Namespace) -> None:
    """Make the nodes, and sessions in ten steps; then end them."""
    settings = KubernetesSettings(kubernetes_namespace=given.namespace)
    owner = OwnerProcess.of(os.getpid())
    cluster = await Cluster.join(settings, owner)
    api = cluster.api
    try:
        await _made(lambda: api.request("POST", "/api/v1/namespaces", _named("Namespace", given.namespace)))
        for number in range(given.nodes):
            await _made(lambda number=number: api.request("POST", "/api/v1/nodes", node(f"fake-{number}")))
        await until("/api/v1/nodes", cluster, lambda nodes: sum(map(is_ready, nodes)) >= given.nodes)
        await cluster.watch.listen()
        each = given.sessions // 10
        if given.claims:
            await pooled(cluster, each)
        for count in range(each, given.sessions + 1, each):
            print((await step(cluster, owner, count, each, given)).row(), flush=True)
        begin, room = time.monotonic(), asyncio.Semaphore(given.at_once)

        async def end(name: str) -> None:
            async with room:
                await (cluster.delete(f"{cluster.claims}/{name}") if given.claims else cluster.remove(name))

        await asyncio.gather(*map(end, STARTED))
        print(f"all deleted in {time.monotonic() - begin:.1f} s")
    finally:
        await api.request("DELETE", f"/api/v1/namespaces/{given.namespace}")
        for number in range(given.nodes):
            await _made(lambda number=number: api.request("DELETE", f"/api/v1/nodes/fake-{number}"))
        await cluster.leave()


async def step(cluster: Cluster, owner: OwnerProcess, count: int, more: int, given: argparse.Namespace) -> Step:
    """Start `more` sessions, so that there are `count`."""
    done = Step(count, "claims" if given.claims else "starts")
    room = asyncio.Semaphore(given.at_once)
    if given.claims:
        await until(pools(cluster), cluster, lambda found: waiting(found) >= WAITING * more)
    before = await counts(cluster)

    async def one() -> None:
        async with room:
            begin = time.monotonic()
            try:
                async with asyncio.timeout(WAIT_SECONDS):
                    if given.claims:
                        done.known.append(await claimed(cluster, owner))
                    else:
                        await session(cluster, owner)
            except Exception as error:  # what breaks first is what this is for
                done.failed += 1
                print(f"failed: {error!r}"[:200], file=sys.stderr)
            else:
                done.seconds.append(time.monotonic() - begin)

    begin = time.monotonic()
    await asyncio.gather(*(one() for _ in range(more)))
    done.wall = time.monotonic() - begin
    after = await counts(cluster)
    done.counted = {name: after[name] - before[name] for name in COUNTED}
    done.watches = int(after["watches"])
    done.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    done.controller = resident(given.claims) if given.claims else 0
    return done


async def session(cluster: Cluster, owner: OwnerProcess) -> None:
    """Ask for a pod as a session does, and wait until it is said to run."""
    spec = SandboxSpec(
        session_id=os.urandom(16).hex(), image="sandbox-kernel:base", limits=LIMITS, command=("python3",), uid=1000
    )
    pod = Pod(owner.container_name(spec.session_id), cluster.namespace, LIFETIME, cluster.labels)
    changed, seen = asyncio.Event(), dict[str, Any]()

    def heard(found: Mapping[str, Any] | None, gone: bool) -> None:
        seen.update(found or {})
        changed.set()

    cluster.watch.hear(pod.name, heard)
    asked = document(spec, pod)
    asked["spec"]["nodeSelector"] = {"type": "kwok"}
    await cluster.api.request("POST", cluster.pods, asked, namespace=cluster.namespace)
    while not pod_endings.is_running(seen):
        await changed.wait()
        changed.clear()
    cluster.watch.hear(pod.name, lambda found, gone: None)
    STARTED.append(pod.name)


@cache
def made_of() -> SandboxSpec:
    """Return what the pool's pods are."""
    found = warm_pool.waiting(new_spec(Settings(image="sandbox-kernel:base", limits=LIMITS)))
    assert found is not None
    return found


@cache
def pool_name() -> str:
    return warm_pool.name(POOL, made_of(), LIFETIME)


def pools(cluster: Cluster) -> str:
    return f"/apis/{warm_pool.VERSION}/namespaces/{cluster.namespace}/sandboxwarmpools"


def waiting(found: list[Any]) -> int:
    """Return how many pods of the pools wait."""
    return sum((one.get("status") or {}).get("readyReplicas", 0) for one in found)


async def pooled(cluster: Cluster, replicas: int) -> None:
    """Have a pool of that many pods, on KWOK's nodes."""
    template, pool = warm_pool.manifests(POOL, Pod("", cluster.namespace, LIFETIME, {}), made_of(), replicas)["items"]
    template["spec"]["podTemplate"]["spec"]["nodeSelector"] = {"type": "kwok"}
    templates = f"/apis/{warm_pool.VERSION}/namespaces/{cluster.namespace}/sandboxtemplates"
    await cluster.api.request("POST", templates, template)
    await cluster.api.request("POST", pools(cluster), pool)


async def claimed(cluster: Cluster, owner: OwnerProcess) -> float:
    """Claim a pod as a session does, until it is given away; return the seconds until it was named."""
    pod = Pod(owner.container_name(os.urandom(16).hex()), cluster.namespace, LIFETIME, cluster.labels)
    one, begin = Claim(cluster, pod.name), time.monotonic()
    await one.make(warm_pool.claim(pod, pool_name()))
    named = time.monotonic() - begin
    while await one.given() is None:
        pass
    STARTED.append(pod.name)
    return named


def resident(pid: int) -> int:
    """Return the bytes of a process in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


async def until(path: str, cluster: Cluster, well: Callable[[list[Any]], bool]) -> None:
    """Return when a list of the API server's is well."""
    while not well((await cluster.api.request("GET", path))["items"]):  # noqa: ASYNC110 (a cluster)
        await asyncio.sleep(1)


def is_ready(found: Mapping[str, Any]) -> bool:
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def counts(cluster: Cluster) -> dict[str, float]:
    """Return the API server's own figures."""
    command = (PROGRAMS["kubectl"], "get", "--raw", "/metrics")
    asked = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    text = (await asked.communicate())[0].decode()
    found = {name: sum(map(float, pattern.findall(text))) for name, pattern in COUNTED.items()}
    return found | {"watches": sum(map(float, WATCHES.findall(text)))}


def node(name: str) -> dict[str, Any]:
    """Return a node that KWOK plays."""
    room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    found = _named("Node", name)
    found["metadata"] |= {"annotations": {NODE: "fake"}, "labels": {"type": "kwok", "kubernetes.io/hostname": name}}
    return found | {"status": {"allocatable": room, "capacity": room}}


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


async def _made(request: Callable[[], Awaitable[object]]) -> None:
    """Do it, unless it is done."""
    try:
        await request()
    except Exception as error:
        if getattr(error, "status", 0) not in {404, 409}:
            raise


if __name__ == "__main__":
    sys.exit(main())
