"""A token in an address, for clients that send no header: LibreChat has only the address of its interpreter to set.

It is taken out of the path before anything else sees it, and from then on it is the header that other clients send: no
log, record, figure, error, redirect or peer has the address with it.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send

_WITH_TOKEN = re.compile(rb"(/librechat)/(?!v1/)(.{1,2048}?)(/v1/.*)", re.DOTALL)
"""Of one wire alone. A token is text without a slash; what else stands there is a wrong one, and goes as well."""
KEY = b"x-api-key"


class AddressToken:
    """Has the token of an address be the header `X-API-Key`, and no page learn where it came from."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or quote(scope.get("path", "")).encode()
        match = _WITH_TOKEN.fullmatch(raw)
        if match is None:
            await self._app(scope, receive, send)
            return
        path, token = match[1] + match[3], unquote_to_bytes(match[2])
        headers = scope["headers"]
        if [value for name, value in headers if name.lower() == KEY] != [token]:  # two of them are refused
            headers = [*headers, (KEY, token)]
        text = unquote_to_bytes(path).decode("utf-8", "replace")

        async def sent(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"referrer-policy", b"no-referrer")]
            await send(message)

        await self._app({**scope, "path": text, "raw_path": path, "headers": headers}, receive, sent)
