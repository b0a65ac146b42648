"""The host folders of a session: what is copied in before a cell, and out after it, as two hooks of its requests.

Imports files and transfer; the session hands in how to ask its agent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ..core.model import Settings
from .host_paths import Folder
from .scratch import Stamp
from .transfer import Ask, Downloads, Report, SyncState, Uploads
from .tree import DownloadFolder, FileLimits, UploadFolder

Hook = Callable[[], Awaitable[list[str]]]


class Folders:
    """Both folders of one session; either may be missing."""

    def __init__(self, settings: Settings, ask: Ask, emit: Callable[..., None] = lambda event, **fields: None) -> None:
        limits = FileLimits.of(settings.limits)
        self._ask = ask
        self._emit = emit
        self._state = SyncState()
        self._uploads = (
            Uploads(UploadFolder(settings.uploads, limits), self._state, limits) if settings.uploads else None
        )
        self._downloads = (
            Downloads(DownloadFolder(settings.downloads), self._state, limits) if settings.downloads else None
        )

    @property
    def before_cell(self) -> Hook | None:
        """The hook that copies in, None without an upload folder."""
        return self._hook(self._uploads, "upload", "not copied into the sandbox")

    @property
    def after_cell(self) -> Hook | None:
        """The hook that copies out, None without a download folder."""
        return self._hook(self._downloads, "download", "not copied to the downloads folder")

    def _hook(self, side: Uploads | Downloads | None, op: str, refusal: str) -> Hook | None:
        if side is None:
            return None

        async def copy() -> list[str]:
            report = await side.sync(self._ask)
            for path, size in report.copied:
                self._emit("file", op=op, path=path, bytes=size, sha256=report.sha256.get(path))
            for one in report.refusals:
                self._emit("file_refused", op=op, path=one.path, code=one.code.code, reason=one.reason)
            return _notes(report, refusal)

        return copy

    def hold_downloads(self, folder: Folder) -> None:
        """Take a download folder that the caller has open, in place of looking its name up."""
        if self._downloads is not None:
            self._downloads.folder = DownloadFolder(folder)

    def close(self) -> None:
        """Let go of both; for the end of the session, when nothing is copied any more."""
        for side in (self._uploads, self._downloads):
            if side is not None:
                side.close()

    def forget_scratch(self) -> None:
        """Note that a new container has an empty scratch."""
        self._state.forget_scratch()

    def arrived(self, path: str, stamp: Stamp) -> None:
        """Note that a front end wrote a file into scratch: no cell made it, so it does not go to the downloads."""
        self._state.inside[path] = stamp

    def state(self) -> dict[str, Any]:
        """Return what a successor process needs to know, as plain JSON."""
        return self._state.as_json()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of another process that had the same container."""
        restored = SyncState.of(state)
        for name in ("sent", "inside", "written", "held"):
            setattr(self._state, name, getattr(restored, name))


def _notes(report: Report, what: str) -> list[str]:
    notes = [f"{what}: {path}: {reason}" for path, reason in report.refused]
    if report.more_refused:
        notes.append(f"{what}: {report.more_refused} more")
    return notes
