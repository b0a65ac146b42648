"""`sandbox-kernel warm-pool`: a warm pool of agent-sandbox for sessions with the same settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ..api import Command

if TYPE_CHECKING:
    import argparse


def add_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--replicas", type=int, default=1, help="how many pods wait (default: 1)")
    one.add_argument(
        "--for",
        dest="whom",
        choices=("sdk", "kernel"),
        default="sdk",
        help="who takes them (default: the SDK's, serve's)",
    )


def run(options: argparse.Namespace) -> int:
    """Write a warm pool of agent-sandbox, with the settings of the sessions that are to take pods from it.

    A session with the same settings, and the setting kubernetes_warm_pool, claims one that waits.
    """
    import json
    import sys
    from dataclasses import replace

    from ...engines.shipping import new_spec
    from ...setup.install import check
    from . import warm_pool
    from .pod import Pod
    from .settings import KubernetesSettings

    settings = replace(check(options.values), charts=options.whom == "sdk")
    ours = settings.of(KubernetesSettings)
    waited = warm_pool.waiting(new_spec(settings))
    if waited is None or ours.kubernetes_warm_pool is None:
        raise ConfigurationError(
            UsageCode.NOT_TOGETHER,
            "a warm pool needs the setting kubernetes_warm_pool, and no variables, datasets or volumes of a session's",
        )
    pool = Pod("", ours.kubernetes_namespace, int(ours.kubernetes_lifetime), {})
    found = warm_pool.manifests(ours.kubernetes_warm_pool, pool, waited, options.replicas)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


COMMAND = Command(
    name="warm-pool",
    run=run,
    add_options=add_options,
    group="Checking and maintaining",
    examples={
        "sandbox-kernel warm-pool --kubernetes-warm-pool warm --replicas 5 > pool.json": (
            "for kubectl apply: pods that wait with their kernel up, where the cluster has agent-sandbox"
        )
    },
)
