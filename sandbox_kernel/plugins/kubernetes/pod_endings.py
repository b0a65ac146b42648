"""Why a pod did not start, and why it ended, by what the cluster says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.codes import Note
from ...core.errors import EngineError, ImageMissing
from ...core.model import ExitReason
from .codes import KubernetesCode

SAID = 300
"""Characters of what the cluster says, in an error."""

NO_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
NO_START = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"}
NODE_GONE = {"NodeLost", "NodeShutdown", "Terminated", "Shutdown"}
SIGKILLED = 128 + 9


def container_state(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the state of the pod's only container, as the cluster has it."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    state: Mapping[str, Any] = statuses[0].get("state") or {}
    return state


def is_running(pod: Mapping[str, Any]) -> bool:
    return "running" in container_state(pod)


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether nothing of it runs any more."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in {"Succeeded", "Failed"} or "terminated" in container_state(pod)


def never(pod: Mapping[str, Any]) -> EngineError | None:
    """Return why a pod that does not run will not; None while it may."""
    waiting = container_state(pod).get("waiting") or {}
    word, message = str(waiting.get("reason", "")), str(waiting.get("message", ""))[:SAID]
    if word in NO_IMAGE:
        return ImageMissing(KubernetesCode.POD_IMAGE_NOT_THERE.note(why=message or word), setting="image")
    if word in NO_START:
        return EngineError(KubernetesCode.POD_NOT_STARTED.note(why=message or word), setting="image")
    if is_over(pod):
        note = _note_of(pod)
        return EngineError(note)
    return None


def slow(pod: Mapping[str, Any] | None, seconds: float) -> EngineError:
    """Return why a pod did not run in so many seconds."""
    limit = f"{seconds:.0f} s"
    if pod is None:
        return EngineError(KubernetesCode.POD_SLOW.note(why="the cluster says nothing of it"), limit=limit)
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            said = str(one.get("message", ""))[:SAID] or "it does not say why"
            return EngineError(KubernetesCode.POD_UNSCHEDULABLE.note(why=said), limit=limit, setting="memory")
    waiting = container_state(pod).get("waiting") or {}
    said = str(waiting.get("message") or waiting.get("reason") or "it is not said why")[:SAID]
    return EngineError(KubernetesCode.POD_SLOW.note(why=said), limit=limit, setting="start_timeout")


def ending(pod: Mapping[str, Any] | None, broke: str) -> ExitReason:
    """Return why a pod that ran has ended; `pod` is None if it was deleted. `broke` says why the pipe ended."""
    if pod is None:
        return ExitReason(kind="killed", exit_code=SIGKILLED, detail=KubernetesCode.POD_DELETED.text)
    done = container_state(pod).get("terminated") or {}
    code, word = done.get("exitCode"), str(done.get("reason", ""))
    if word == "OOMKilled":
        return ExitReason(kind="out_of_memory", exit_code=SIGKILLED)
    status = pod.get("status") or {}
    if str(status.get("reason", "")) or (pod.get("metadata") or {}).get("deletionTimestamp"):
        return ExitReason(kind="killed", exit_code=SIGKILLED, detail=_note_of(pod).text)
    if isinstance(code, int) and code != SIGKILLED:
        return ExitReason(kind="exited", exit_code=code)
    if code == SIGKILLED:
        return ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended from outside")
    return ExitReason(kind="engine_lost", detail=KubernetesCode.ATTACH_LOST.note(why=broke).text)


def _note_of(pod: Mapping[str, Any]) -> Note:
    """Return what the cluster says of a pod that is over."""
    status = pod.get("status") or {}
    word, message = str(status.get("reason", "")), str(status.get("message", ""))[:SAID]
    if word == "Evicted":
        return KubernetesCode.POD_EVICTED.note(why=message)
    if word == "DeadlineExceeded":
        return KubernetesCode.POD_DEADLINE.note()
    if word in NODE_GONE:
        return KubernetesCode.NODE_LOST.note(why=message or word)
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        disrupted = [one for one in status.get("conditions") or () if one.get("type") == "DisruptionTarget"]
        if disrupted:
            return KubernetesCode.NODE_LOST.note(why=str(disrupted[0].get("message", ""))[:SAID])
        return KubernetesCode.POD_DELETED.note()
    done = container_state(pod).get("terminated") or {}
    said = str(done.get("message") or message or done.get("reason") or "it is not said why")[:SAID]
    return KubernetesCode.POD_NOT_STARTED.note(why=said)
