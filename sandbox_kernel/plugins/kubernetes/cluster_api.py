"""The API server of a cluster: requests, watches and attaching. The only module that knows the client.

kubernetes_asyncio finds the cluster and signs in, by the rules of kubectl (files, programs that bring tokens, a pod's
own account); requests are plain JSON over its session of aiohttp, which also speaks WebSocket and waits for a reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.connector import NEEDS_CLEANUP_CLOSED
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration
from yaml import YAMLError

from ...core.codes import EndCode, Note
from ...core.errors import ConfigurationError, EngineError, EngineUnavailable
from .codes import KubernetesCode
from .pod import is_name
from .pod_endings import SAID, shown

REQUEST_SECONDS = 10.0
ANSWER_BYTES = 64 << 20
LINE_BYTES = 4 << 20
"""Of one event of a watch; an object of a cluster has 1.5 MiB at most."""
WATCH_SECONDS = 120
"""How long one watch goes on. The next one begins where it ended; a connection that says nothing any more ends, too."""
PROTOCOL = "v5.channel.k8s.io"
"""The first that can say that stdin is at its end (Kubernetes 1.30)."""
HEARTBEAT_SECONDS = 10.0
"""How often the API server is asked over an attached connection whether it is there."""
TRIES, AGAIN_SECONDS, MAX_AGAIN_SECONDS = 5, 0.2, 5.0
"""How often is asked, and how long is waited in between: what the API server asks for, within bounds."""
NO_RUNTIME = re.compile(r'RuntimeClass "?([^" ]+)"? not found')
SIGN_IN_SECONDS = 60.0
IMPERSONATED = ("as", "as-uid", "as-groups", "as-user-extra")
NO_ATTACH = "this user cannot attach to pods (verbs get and create of pods/attach)"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token"
"""Where a pod has what its account signs in with."""
DEFAULT_FILE = "~/.kube/config"
"""Where kubectl looks if nothing is named. The client's own default is what KUBECONFIG was when it was imported."""


class ClusterRefused(EngineError):
    """The API server refused a request."""

    def __init__(self, note: Note, status: int, *, setting: str | None = None) -> None:
        super().__init__(note, setting=setting)
        self.status = status
        self.again_seconds = AGAIN_SECONDS


def refusal(status: int, said: Mapping[str, Any], namespace: str) -> ClusterRefused:
    """Translate what the API server says into whose fault it is and what to do. Pure."""
    message = shown(said.get("message") or said.get("reason") or "it does not say why")
    text = message.lower()
    if status == 404 and f'namespaces "{namespace}"' in text:
        return ClusterRefused(
            KubernetesCode.NAMESPACE_MISSING.note(namespace=namespace), status, setting="kubernetes_namespace"
        )
    if status == 403 and "exceeded quota" in text:
        return ClusterRefused(KubernetesCode.CLUSTER_QUOTA_REACHED.note(why=message), status)
    if status == 403 and (missing := NO_RUNTIME.search(message)) is not None:
        return ClusterRefused(KubernetesCode.RUNTIME_CLASS_MISSING.note(name=missing[1]), status, setting="runtime")
    if status in {401, 403} and ("cannot" in text or status == 401):
        return ClusterRefused(KubernetesCode.CLUSTER_FORBIDS.note(why=message), status)
    if status == 429:
        return ClusterRefused(KubernetesCode.CLUSTER_BUSY.note(), status)
    if status in {403, 422}:
        return ClusterRefused(KubernetesCode.CLUSTER_REFUSES.note(why=message), status)
    return ClusterRefused(Note(EndCode.ENGINE_FAILED, f"the cluster refused ({status}): {message}"), status)


def unreachable(error: BaseException) -> EngineUnavailable:
    """Translate a connection that is not there."""
    return EngineUnavailable(KubernetesCode.CLUSTER_UNREACHABLE.note(why=shown(error) or type(error).__name__))


def _not_configured(why: str) -> ConfigurationError:
    return ConfigurationError(KubernetesCode.CLUSTER_NOT_CONFIGURED.note(why=shown(why)), setting="kubernetes_context")


def kubeconfig() -> str | None:
    """Return the files that the environment names; as for kubectl, empty is none. Asked now, and not once for all."""
    return os.environ.get("KUBECONFIG") or None


def _check_files(names: str) -> None:
    """Raise `ConfigurationError` for pipes and devices: the client would wait for them, and all else with it."""
    for name in filter(None, names.split(os.pathsep)):
        path = Path(name).expanduser()
        if path.exists() and not path.is_file():
            raise _not_configured("the kubeconfig file is no regular file")


class ClusterSource(NamedTuple):
    """Where it is written which cluster to use, and how to sign in."""

    file: str | None
    context: str | None

    async def read(self) -> Configuration:
        """Return it. Raises `ConfigurationError`."""
        found = Configuration()
        try:
            if self.context is None and self.file is None and os.path.exists(ACCOUNT):  # noqa: ASYNC240, PTH110
                config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
                return found
            file = self.file or DEFAULT_FILE
            _check_files(file)
            async with asyncio.timeout(SIGN_IN_SECONDS):  # a program that brings tokens may ask a person
                loaded = await config.load_kube_config(file, context=self.context, client_configuration=found)
        except TimeoutError as error:
            raise _not_configured(f"the program that brings tokens took longer than {SIGN_IN_SECONDS:.0f} s") from error
        except (config.ConfigException, OSError, ValueError, YAMLError) as error:
            raise _not_configured(str(error)) from error
        except (AssertionError, AttributeError, KeyError, TypeError) as error:
            raise _not_configured("the kubeconfig file is not one") from error
        user = loaded._user  # noqa: SLF001 (the client leaves it out, and would ask with more rights)
        if user is not None and any(name in user for name in IMPERSONATED):
            raise _not_configured("the kubeconfig file's user acts as another one (as, as-groups), which is not done")
        return found


class ClusterApi:
    """One cluster, for one loop."""

    def __init__(self, client: ApiClient, address: str, source: ClusterSource) -> None:
        self.address = address
        self._client, self._source = client, source
        self._signing = asyncio.Lock()
        # The client's own session would take names and passwords of ~/.netrc along, and follow where it is sent.
        traces = aiohttp.TraceConfig()
        traces.on_request_redirect.append(_sent_elsewhere)
        theirs = client.rest_client.pool_manager.connector
        connector = aiohttp.TCPConnector(
            limit=0,  # each sandbox has a connection of its own
            ssl=theirs._ssl,  # type: ignore[union-attr]  # noqa: SLF001 (what the file says of certificates)
            enable_cleanup_closed=NEEDS_CLEANUP_CLOSED,  # else a connection with an unread answer stays open
        )
        self._own = aiohttp.ClientSession(connector=connector, trace_configs=[traces])

    @classmethod
    async def connect(cls, context: str | None) -> ClusterApi:
        """Find the cluster. Raises `ConfigurationError` where none is named. Nothing is asked yet."""
        source = ClusterSource(kubeconfig(), context)
        found = await source.read()
        try:
            return cls(ApiClient(found), str(found.host), source)
        except OSError as error:  # a certificate that is none
            raise _not_configured(str(error)) from error

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        namespace: str = "",
        kind: str = "application/json",
    ) -> dict[str, Any]:
        """Return the answer; waits and asks again where the API server says so. Raises `EngineError`."""
        for left in reversed(range(TRIES)):
            headers = await self._headers()
            try:
                return await self._request(method, path, body, headers, query=query, namespace=namespace, kind=kind)
            except ClusterRefused as error:
                if error.status == 401 and left and await self._sign_in_anew(headers):
                    continue
                pause = error.again_seconds
                # What was refused for being too much was not done; what failed may have been.
                again = error.status == 429 or (method in {"GET", "DELETE"} and error.status in {500, 503, 504})
                if not again or not left:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _request(
        self,
        method: str,
        path: str,
        body: object,
        headers: Mapping[str, str],
        *,
        query: Mapping[str, str] | None,
        namespace: str,
        kind: str,
    ) -> dict[str, Any]:
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers = {**headers, "Content-Type": kind}
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        with self._reached():
            async with self._session.request(
                method,
                self._url(path, query),
                data=data,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                **self._way,
            ) as answer:
                text = await _whole(answer, ANSWER_BYTES)
                status, pause = answer.status, answer.headers.get("Retry-After", "")
        said = parsed(text) if text else {}
        if status >= 300:
            refused = refusal(status, said or {"message": text[:SAID].decode("utf-8", "replace")}, namespace)
            if pause.isascii() and pause.isdigit():
                refused.again_seconds = min(float(pause[:9]), MAX_AGAIN_SECONDS)
            raise refused
        if said is None:
            raise EngineError(EndCode.ENGINE_UNKNOWN_ANSWER)
        return said

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """Yield the events of a watch until it ends. Raises `EngineError`."""
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_SECONDS, sock_read=WATCH_SECONDS + REQUEST_SECONDS
        )
        with self._reached():
            async with self._session.get(
                self._url(path, {**query, "watch": "1", "timeoutSeconds": str(WATCH_SECONDS)}),
                headers=await self._headers(),
                timeout=timeout,
                allow_redirects=False,
                **self._way,
            ) as answer:
                if answer.status >= 300:
                    said = (await answer.content.read(SAID)).decode("utf-8", "replace")
                    raise refusal(answer.status, {"message": said}, "")
                kept = bytearray()
                async for data in answer.content.iter_any():
                    *lines, last = data.split(b"\n")
                    for line in lines:
                        kept += line
                        if kept:
                            yield _event(bytes(kept))
                        kept.clear()
                    kept += last
                    if len(kept) > LINE_BYTES:
                        raise _unknown("an event of a watch is too long", f"{LINE_BYTES} bytes")

    async def attach(self, namespace: str, pod: str, container: str) -> aiohttp.ClientWebSocketResponse:
        """Attach to the stdin, stdout and stderr of a container. Raises `EngineError`."""
        if not is_name(pod):
            raise _unknown("a pod's name is none")
        query = {"container": container, "stdin": "true", "stdout": "true", "stderr": "true", "tty": "false"}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/attach"
        with self._reached():
            try:
                wire: aiohttp.ClientWebSocketResponse = await self._session.ws_connect(
                    self._url(path, query),
                    headers=await self._headers(),
                    protocols=(PROTOCOL,),
                    heartbeat=HEARTBEAT_SECONDS,
                    max_msg_size=1 << 20,
                    **self._way,
                )
            except aiohttp.WSServerHandshakeError as error:
                said = NO_ATTACH if error.status == 403 else error.message  # what it says there is not handed on
                raise refusal(error.status, {"message": said}, namespace) from error
        if wire.protocol != PROTOCOL:  # an older one has no end of stdin, and none at all has no streams
            await wire.close()
            raise _unknown(f"the API server does not attach by {PROTOCOL}: it is older than Kubernetes 1.30, or none")
        return wire

    async def close(self) -> None:
        """Close all connections, those that are in use, too; who waits for an answer gets none."""
        await self._own.close()
        await self._client.close()

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Translate what the client says of a connection that is not there, or that `close` has closed meanwhile."""
        try:
            yield
        except AssertionError as error:
            if not self._own.closed:
                raise
            raise unreachable(error) from error  # it was about to ask once more, by a session that is closed
        except (aiohttp.ClientError, TimeoutError, OSError, RuntimeError) as error:
            raise unreachable(error) from error

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._own.closed or self._own.connector is None or self._own.connector.closed:
            raise EngineError(EndCode.ENGINE_LOST)
        return self._own

    @property
    def _way(self) -> Any:
        """How the file says to get there: by a proxy, and by which name the API server shows itself."""
        client, there = self._client.rest_client, urlsplit(self.address)
        proxy = client.proxy
        if proxy is None and not proxy_bypass(there.hostname or ""):
            proxy = getproxies().get(there.scheme)
        return {"proxy": proxy, "server_hostname": client.server_hostname}

    async def _sign_in_anew(self, refused: Mapping[str, str]) -> bool:
        """Read again what to sign in with, once for all that were refused; return whether it is something else.

        Tokens that a program brings end after minutes, and the client reads them once.
        """
        async with self._signing:
            if await self._headers() == refused:
                try:
                    found = await self._source.read()
                except ConfigurationError:  # what the API server says is the answer
                    return False
                if str(found.host) == self.address:  # no cluster gets another one's token
                    self._client.configuration.api_key = found.api_key
            return await self._headers() != refused

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self.address}{quote(path)}" + (f"?{urlencode(query)}" if query else "")

    async def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        try:
            await self._client.update_params_for_auth(headers, [], ["BearerToken"])
        except (config.ConfigException, OSError) as error:  # a pod's own token is a file that the cluster replaces
            raise unreachable(error) from error
        return headers


async def _sent_elsewhere(session: object, context: object, to: aiohttp.TraceRequestRedirectParams) -> None:
    """What a pod is told goes to the API server that the file names, and to no other."""
    raise aiohttp.ClientError(f"the API server sends elsewhere: {shown(to.response.headers.get('Location', ''))}")


def parsed(text: bytes) -> dict[str, Any] | None:
    """Return the object that a text is; None for all else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def listed(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects of a list. Raises `EngineError` if it is no list: pods must not look gone then."""
    found = answer.get("items") or []
    metadata = answer.get("metadata")
    is_one = isinstance(metadata, dict) and isinstance(metadata.get("resourceVersion"), str)
    if not is_one or not isinstance(found, list) or not all(map(_is_object, found)):
        raise _unknown("a list of the cluster's is none")
    if not all(is_name(one["metadata"].get("name")) for one in found):
        raise _unknown("a list of the cluster's has something without a name")
    return found


def known(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an object of the cluster's. Raises `EngineError` if the answer is none."""
    if not _is_object(answer):
        raise _unknown("an object of the cluster's is none")
    return answer


def _event(line: bytes) -> dict[str, Any]:
    """Return an event of a watch. Raises `EngineError` for another line."""
    event = parsed(line)
    if event is None or not isinstance(event.get("object"), dict) or not isinstance(event.get("type"), str):
        raise _unknown("an event of a watch is none")
    if event.get("type") != "ERROR" and not _is_object(event["object"]):
        raise _unknown("an event of a watch has no object")
    return event


def _is_object(found: object) -> bool:
    """Return whether it has what is read of each pod, in its type; what a pod's spec says is compared as a whole."""
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        return False
    words = [found["metadata"].get(name) or {} for name in ("labels", "annotations")]
    if not all(isinstance(one, dict) and all(isinstance(word, str) for word in one.values()) for one in words):
        return False
    status = found.get("status", {})
    if not isinstance(status, dict) or not isinstance(found.get("spec", {}), dict) or not _has_words(status):
        return False
    rows = [status.get(name) or [] for name in ("containerStatuses", "conditions")]
    if not all(isinstance(row, list) and all(isinstance(one, dict) for one in row) for row in rows):
        return False
    if not all(map(_has_words, rows[1])):
        return False
    states = [one.get("state", {}) for one in rows[0]]
    if not all(isinstance(one, dict) for one in states):
        return False
    return all(isinstance(one, dict) and _has_words(one) for state in states for one in state.values())


def _has_words(found: Mapping[str, Any]) -> bool:
    return all(isinstance(found.get(name, ""), str | None) for name in ("phase", "reason", "message", "type", "status"))


def _unknown(words: str, limit: str | None = None) -> EngineError:
    return EngineError(EndCode.ENGINE_UNKNOWN_ANSWER, words, limit=limit)


async def _whole(answer: aiohttp.ClientResponse, most: int) -> bytes:
    """Return a whole answer. Raises `EngineError` for more bytes than anybody asked for."""
    found = bytearray()
    async for data in answer.content.iter_any():
        found += data
        if len(found) > most:
            raise EngineError(EndCode.ENGINE_UNKNOWN_ANSWER, "the cluster's answer is too long", limit=f"{most} bytes")
    return bytes(found)
