"""Why a pod did not start, and why it ended, by what the cluster says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.codes import Note
from ...core.errors import EngineError, ImageMissing
from ...core.model import SIGKILLED, ExitReason
from ...files.file_rules import printable
from .codes import KubernetesCode

SAID = 300
"""Characters of what the cluster says, in an error."""

NO_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
NO_START = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff"}
NODE_GONE = {"NodeLost", "NodeShutdown", "Terminated", "Shutdown"}
WITH_ITS_NODE = {"DeletionByTaintManager", "DeletionByPodGC"}
"""Who deletes the pods of a node that is gone; others make room, or empty a node."""


def shown(said: object) -> str:
    """Return what the cluster says as a message may repeat it: bounded, on one line, and no terminal obeys it."""
    return printable(str(said), SAID)


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


def is_going(pod: Mapping[str, Any]) -> bool:
    """Return whether somebody has it deleted."""
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def never(pod: Mapping[str, Any]) -> EngineError | None:
    """Return why a pod that does not run will not; None while it may."""
    waiting = container_state(pod).get("waiting") or {}
    word, message = str(waiting.get("reason", "")), shown(waiting.get("message", ""))
    if word in NO_IMAGE:
        return ImageMissing(KubernetesCode.POD_IMAGE_NOT_THERE.note(why=message or word), setting="image")
    if word in NO_START:
        return EngineError(KubernetesCode.POD_NOT_STARTED.note(why=message or word), setting="image")
    if is_over(pod) or is_going(pod):
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
            said = shown(one.get("message", "")) or "it does not say why"
            return EngineError(KubernetesCode.POD_UNSCHEDULABLE.note(why=said), limit=limit, setting="memory")
    waiting = container_state(pod).get("waiting") or {}
    said = shown(waiting.get("message") or waiting.get("reason") or "it is not said why")
    return EngineError(KubernetesCode.POD_SLOW.note(why=said), limit=limit, setting="start_timeout")


def ending(pod: Mapping[str, Any] | None, broke: str, *, deleted: bool) -> ExitReason:
    """Return why a pod that ran has ended.

    `pod` is the last that the cluster said of it, `deleted` whether it has been deleted since; `broke` says why the
    pipe ended.
    """
    done = container_state(pod or {}).get("terminated") or {}
    code, word = done.get("exitCode"), str(done.get("reason", ""))
    if word == "OOMKilled":
        return ExitReason(kind="out_of_memory", exit_code=SIGKILLED)
    if pod is not None and (str((pod.get("status") or {}).get("reason", "")) or is_going(pod)):
        return _named(_note_of(pod))
    if isinstance(code, int) and code != SIGKILLED:
        return ExitReason(kind="exited", exit_code=code)
    if code == SIGKILLED:
        return ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended from outside")
    if pod is None or deleted:
        return _named(KubernetesCode.POD_DELETED.note())
    return lost(broke)


def lost(broke: str) -> ExitReason:
    """Return why a pod has ended of which the cluster says nothing but that its pipe broke."""
    note = KubernetesCode.ATTACH_LOST.note(why=shown(broke))
    return ExitReason(kind="engine_lost", detail=note.text, code=note.code)


def _named(note: Note) -> ExitReason:
    return ExitReason(kind="killed", exit_code=SIGKILLED, detail=note.text, code=note.code)


def _note_of(pod: Mapping[str, Any]) -> Note:
    status = pod.get("status") or {}
    word, message = str(status.get("reason", "")), shown(status.get("message", ""))
    if word == "Evicted":
        return KubernetesCode.POD_EVICTED.note(why=message)
    if word == "DeadlineExceeded":
        return KubernetesCode.POD_DEADLINE.note()
    if word in NODE_GONE:
        return KubernetesCode.NODE_LOST.note(why=message or word)
    if is_going(pod):
        for condition in status.get("conditions") or ():
            if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
                reason = condition.get("reason")
                code = KubernetesCode.NODE_LOST if reason in WITH_ITS_NODE else KubernetesCode.POD_EVICTED
                return code.note(why=shown(condition.get("message") or reason or "it is not said why"))
        return KubernetesCode.POD_DELETED.note()
    done = container_state(pod).get("terminated") or {}
    why = shown(done.get("message") or message or done.get("reason") or "it is not said why")
    return KubernetesCode.POD_NOT_STARTED.note(why=why)
