"""What a caller asks for, read against a table, and the spec that is made of it. Nothing of it is passed on as it came.

Pure; imports the words of the seam, and what makes a spec.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...core import time_zone
from ...core.errors import EngineError, SandboxError
from ...core.model import KERNEL_NAME, AgentOptions, Attached, Limits, LimitsKept, SandboxSpec
from ...engines import attachment
from ...engines.shipping import COMMAND, program_of
from ...engines.user_ids import new_uid
from .client import packets
from .client.packets import digest
from .codes import BrokerCode

IMAGE = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@-]{0,254}")
RUNTIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ZONE = re.compile(time_zone.FORM)
KERNEL = re.compile(KERNEL_NAME)
FIELDS = frozenset(
    {
        *("image", "runtime", "limits", "limits_kept", "charts", "home", "zone", "kernel", "variables", "attached"),
        *("inside", "watch"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRequest:
    """A sandbox that somebody wants: names and numbers, each of its own form."""

    image: str
    runtime: str | None
    limits: Limits
    limits_kept: LimitsKept
    options: AgentOptions = field(repr=False)
    attached: tuple[Attached, ...] = ()
    reader: int | None = None
    """Who asks, once a ceiling has allowed it."""

    @property
    def is_plain(self) -> bool:
        """Whether nothing in it is for one session alone, so that it can be made before somebody asks."""
        return not self.options.variables and self.options.inside is None and not self.attached

    @property
    def disk(self) -> int:
        """Bytes of the machine's disk that are reserved for it."""
        return self.limits.scratch_size if self.limits.scratch == "disk" else 0

    def key(self, preload: tuple[str, ...]) -> str:
        """Return a digest of everything that the sandbox is made of, but for its number and its user id."""
        spec = self.spec(warm=True, preload=preload)
        said = [digest(spec), spec.image, spec.runtime, packets.asked(spec), sorted(spec.environment.items())]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def digest(self) -> str:
        """Return what a caller of this version says of its agent."""
        return digest(self.spec())

    def spec(self, *, warm: bool = False, preload: tuple[str, ...] = ()) -> SandboxSpec:
        """Return a new spec, with a number and a user id of this process's choice."""
        return SandboxSpec(
            session_id=os.urandom(16).hex(),
            image=self.image,
            runtime=self.runtime,
            limits=self.limits,
            command=COMMAND,
            program=program_of(self.options, self.limits, warm=warm, preload=preload),
            limits_kept=self.limits_kept,
            uid=attachment.owner(self.attached) or new_uid(),
            made_of=self.options,
            attached=self.attached,
            reader=self.reader,
        )


def read(said: object) -> CreateRequest:
    """Return what a caller asks for. Raises `EngineError` for what is not proper, and `ConfigurationError`."""
    try:
        if not isinstance(said, Mapping) or said.keys() != FIELDS:
            raise ValueError("other fields than those of a sandbox")
        options = packets.options(said)
        if not KERNEL.fullmatch(options.kernel):
            raise ValueError("that is no name of a kernel")
        if options.zone is not None and not ZONE.fullmatch(options.zone):
            raise ValueError("that is no time zone")
        if said["limits_kept"] not in {"enforced", "best-effort"}:
            raise ValueError("that is no choice")
        image = packets.text(said["image"])
        if not IMAGE.fullmatch(image) or ".." in image:
            raise EngineError(BrokerCode.BROKER_DENIED, "that is no name of an image", setting="image")
        runtime = said["runtime"]
        if runtime is not None and not RUNTIME.fullmatch(packets.text(runtime)):
            raise EngineError(BrokerCode.BROKER_DENIED, "that is no name of a runtime", setting="runtime")
        return CreateRequest(
            image=image,
            runtime=runtime,
            limits=packets.limits(said["limits"]),
            limits_kept=said["limits_kept"],
            options=options,
            attached=packets.attached(said["attached"]),
        )
    except SandboxError:
        raise
    except (LookupError, TypeError, ValueError) as error:
        raise EngineError(BrokerCode.BROKER_IMPROPER, f"no sandbox can be asked for so: {error}"[:300]) from error
