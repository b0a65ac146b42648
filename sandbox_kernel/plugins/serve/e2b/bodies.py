"""E2B's wire: the bodies of its requests."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ....core.codes import Code
from ....sdk.snapshots import MAX_FORKS
from ..bodies import Body, NotOffered, Seconds, TextList, Texts, WithMemory
from ..codes import ServeCode
from .rpc import bytes_of

Base64 = Annotated[bytes, BeforeValidator(bytes_of)]
Side = Annotated[int, Field(gt=0, lt=10_000)]


class E2bBody(Body):
    model_config = ConfigDict(alias_generator=to_camel)


# --- outside of a sandbox ---


class SandboxNetwork(E2bBody):
    """What a client asks of the network; there may be more fields than are known here."""

    model_config = ConfigDict(extra="allow")
    allow_out: TextList = Field(default=[])
    deny_out: TextList = Field(default=[])
    allow_public_traffic: Any = None


class NewSandbox(E2bBody):
    template: str = Field(default="", alias="templateID")
    timeout: Seconds | None = None
    metadata: Texts = Field(default={})
    env_vars: Texts = Field(default={})
    secure: bool = True
    allow_internet_access: bool = Field(default=True, alias="allow_internet_access")
    network: SandboxNetwork | None = None
    auto_pause: bool = False
    auto_pause_memory: bool = True
    auto_resume: NotOffered = None
    mcp: NotOffered = None
    iam: NotOffered = None
    volume_mounts: NotOffered = None


class Connect(E2bBody):
    timeout: Seconds | None = None
    memory: WithMemory = True
    auto_pause: bool = False


class Timeout(E2bBody):
    timeout: Seconds


class Pause(E2bBody):
    memory: WithMemory = True


class Stay(E2bBody):
    duration: Seconds = 0.0


class NetworkChange(E2bBody):
    model_config = ConfigDict(extra="allow")
    deny_out: Any = None


class NewSnapshot(E2bBody):
    name: str = ""
    memory: WithMemory = True


class Fork(E2bBody):
    count: Annotated[int, Field(ge=1, le=MAX_FORKS)] = 1
    timeout: Seconds | None = None


# --- cells ---


class ExecuteRequest(Body):
    code: str
    context_id: str = ""
    language: str = ""
    env_vars: Texts = Field(default={})

    @classmethod
    def code_of(cls, name: str) -> Code:
        return ServeCode.REQUEST_IMPROPER if name == "code" else super().code_of(name)


class NewContext(Body):
    language: str = ""
    cwd: str = ""


# --- folders ---


class PathRequest(E2bBody):
    path: str = ""


class ListDir(PathRequest):
    depth: Annotated[int, Field(ge=0, description="Levels; 0 is one, too")] = 1


class MoveRequest(E2bBody):
    source: str = ""
    destination: str = ""


class WatchRequest(PathRequest):
    recursive: bool = False
    include_entry: bool = False


class OfWatcher(E2bBody):
    watcher_id: str = ""


# --- commands ---


class ProcessConfig(E2bBody):
    cmd: str = ""
    args: TextList = Field(default=[])
    envs: Texts = Field(default={})
    cwd: str = ""


class Size(E2bBody):
    rows: Side
    cols: Side


class PtyRequest(E2bBody):
    size: Size


class Start(E2bBody):
    process: ProcessConfig
    pty: PtyRequest | None = None
    stdin: bool = True
    tag: NotOffered = None


class Selector(E2bBody):
    pid: int


class OfProcess(E2bBody):
    process: Selector


class Bytes(E2bBody):
    stdin: Base64 = b""
    pty: Base64 = b""


class Data(E2bBody):
    input: Bytes = Field(default_factory=Bytes)


class SendInput(OfProcess, Data):
    pass


class StreamStart(E2bBody):
    start: OfProcess


class StreamData(E2bBody):
    data: Data | None = None


class SendSignal(OfProcess):
    signal: Any = None


class Update(OfProcess):
    pty: PtyRequest


class EmptyRequest(E2bBody):
    pass
