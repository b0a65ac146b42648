"""Parts of a cluster are killed while pods run: the ends have names, come in time, and nothing is left after.

They kill what others use, so they make a cluster of their own, which they end.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.kubernetes.cluster_namespace import Cluster as Namespace
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from tests.cluster.__main__ import Cluster
from tests.plugins.kubernetes.cluster.test_ends_of_pods import a_spec, ended, run
from tests.support.engines import receive_line
from tests.support.patience import within

NUMBER = 4
"""Of the cluster that is killed."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    cluster = Cluster(nodes=1, number=NUMBER)
    cluster.up()
    cluster.control.kubectl("create", "namespace", "sandboxes", check=False)
    yield cluster
    cluster.down()


@pytest.fixture
def cluster(own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("KUBECONFIG", str(own_cluster.found.kubeconfig("admin")))
    yield own_cluster
    again(own_cluster)


def again(cluster: Cluster) -> None:
    """Start what was killed."""
    cluster.control.start()
    for node in cluster.nodes:
        for name in node.programs:
            node.start_one(name)
        node.until_ready()


@pytest.mark.parametrize("name", ["kubelet-1", "containerd-1", "kube-apiserver", "etcd"])
async def test_what_is_killed_ends_pods_by_name_or_not_at_all(cluster: Cluster, name: str) -> None:
    """Whichever carries the pipe ends it; what does not carry it leaves the pod as it is."""
    container = await KubernetesEngine().start(a_spec())
    await container.send(b"hello\n")
    assert await receive_line(container) == b"hello\n"
    await asyncio.to_thread(cluster.programs.stop, name, signal.SIGKILL)
    if name == "etcd":
        await container.send(b"again\n")
        assert await receive_line(container) == b"again\n"
    else:
        reason = await ended(container, 8)
        assert reason.code is KubernetesCode.ATTACH_LOST
    try:
        await container.kill()
    except EngineError:
        assert name in {"kube-apiserver", "etcd"}
    assert not Namespace.open_here()
    await asyncio.to_thread(again, cluster)
    async with within(120):
        while container.id in await run("--namespace=sandboxes", "get", "pods", "--output=name"):
            await KubernetesEngine().reap()
        while cluster.nodes[0].ctr("tasks", "list", "-q").split():  # noqa: ASYNC110 (containerd tells nobody)
            await asyncio.sleep(0.1)


async def test_a_start_while_the_api_server_is_away_is_refused_at_once(cluster: Cluster) -> None:
    await asyncio.to_thread(cluster.programs.stop, "kube-apiserver", signal.SIGKILL)
    with pytest.raises(EngineError) as caught:
        await KubernetesEngine().start(a_spec())
    assert caught.value.code is KubernetesCode.CLUSTER_UNREACHABLE
    assert not Namespace.open_here()
