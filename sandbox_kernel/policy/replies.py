"""Replies to a front end's requests: text stays text, bundles are filtered, and no reply makes a front end act."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, TypeGuard

from ..core.codes import OutputCode
from . import terminal
from .budget import MAX_COMMS
from .cell_errors import error
from .json_check import count, is_id, mapped, plain
from .mime import Bundles
from .verdict import Notes, named

MAX_MATCHES = 10_000
MAX_MATCH = 4096
"""Characters of one completion."""
MAX_ERROR = 1 << 20
"""Characters of an error that a reply repeats. The error output has all of it."""

MAX_LISTED = 2_000
"""Items of a debugger's answer, all its lists together: its panel draws every one, with no window that scrolls."""

_TYPE = re.compile(r"[\w<>. -]{0,40}")
_INDENT = re.compile(r"[ \t]{0,1000}")
_URL = re.compile(r"https?://[^\s\x00-\x1f\"'<>]{1,2000}", re.IGNORECASE)
_HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""What would make a completion or an offered input insert other code than it shows."""
_NAME = re.compile(r"\w*")

Asked = Mapping[str, Any]
"""The content of the request that a reply answers. It comes from a front end."""
Filter = Callable[[Mapping[str, Any], Bundles, Notes, Asked], Mapping[str, Any]]


def texts(value: Any) -> Any:
    """Return a JSON tree with every string cleaned for a terminal."""
    return mapped(value, terminal.clean)


def execute(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    result = {**_status(content)}
    result["execution_count"] = count(content.get("execution_count"))
    payloads = content.get("payload")
    if isinstance(payloads, list):
        kept = [_page(payload, notes) for payload in payloads[:16]]
        result["payload"] = [payload for payload in kept if payload]
    expressions = content.get("user_expressions")
    if isinstance(expressions, dict):
        result["user_expressions"] = {
            terminal.clean(name): _expression(value, bundles, notes) for name, value in expressions.items()
        }
    return result


def _page(payload: Any, notes: Notes) -> dict[str, Any] | None:
    """Let text through to the pager; a payload that writes code, exits or opens an editor does not pass."""
    source = payload.get("source") if isinstance(payload, dict) else None
    if source != "page":
        if source == "ask_exit":
            notes.add(OutputCode.EXIT_PAYLOAD)
        else:
            notes.add(OutputCode.PAYLOAD, source=named(source))
        return None
    data = payload.get("data")
    text = data.get("text/plain") if isinstance(data, dict) else None
    if not isinstance(text, str):
        return None
    return {
        "source": "page",
        "data": {"text/plain": terminal.clean(text)},
        "start": count(payload.get("start")) or 0,
    }


def _expression(value: Any, bundles: Bundles, notes: Notes) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("status") != "ok":
        return {"status": "error", **error(value if isinstance(value, dict) else {})}
    data, metadata = bundles.apply(value.get("data"), value.get("metadata"), notes, line=False)
    return {"status": "ok", "data": data, "metadata": metadata}


def inspect(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    data, metadata = bundles.apply(content.get("data", {}), content.get("metadata", {}), notes, line=False)
    return {**_status(content), "found": content.get("found") is True, "data": data, "metadata": metadata}


def complete(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    """Return completions that insert what they show in place of the word at the cursor that was `asked` about.

    JupyterLab shows `matches[i]` and inserts the text of the i-th type; it replaces what the kernel names as the range.
    """
    matches, metadata = content.get("matches"), content.get("metadata")
    matches = matches if isinstance(matches, list) else []
    types = metadata.get("_jupyter_types_experimental") if isinstance(metadata, dict) else None
    types = types[:MAX_MATCHES] if isinstance(types, list) else []
    start, end = content.get("cursor_start"), content.get("cursor_end")
    first, cursor, last = word(asked)
    if matches and not (_place(start) and _place(end) and first <= start <= cursor <= end <= last):
        notes.add(OutputCode.COMPLETION_RANGE)
        matches, types = [], []
    if not matches or not _place(start) or not _place(end):
        start = end = cursor
    kept = [place for place, match in enumerate(matches[:MAX_MATCHES]) if _shows_what_it_is(match)]
    if len(kept) < len(matches):
        notes.add(OutputCode.COMPLETIONS)
    result = {**_status(content), "matches": [matches[place] for place in kept], "metadata": {}}
    typed = [_typed(matches[place], types[place], start, end) for place in kept if place < len(types)]
    if typed:
        result["metadata"] = {"_jupyter_types_experimental": typed}
    return {**result, "cursor_start": start, "cursor_end": end}


def word(asked: Asked) -> tuple[int, int, int]:
    """Return where a completion may begin, where the cursor is, and where it may end, in characters of the code.

    It begins after a blank of the cursor's line, or at the quote that is open there: names of files and columns have
    blanks. A kernel's range is bounded by this and not by a name of its language, which each parts in its own way.
    """
    code, cursor = asked.get("code"), asked.get("cursor_pos")
    code = code if isinstance(code, str) else ""
    cursor = min(cursor, len(code)) if _place(cursor) else len(code)
    line = code[max(code.rfind(mark, 0, cursor) for mark in "\n\r") + 1 : cursor]
    behind = _NAME.match(code, cursor)
    before = [len(line) - len(line.split(" ")[-1].split("\t")[-1])]
    before += [line.rfind(quote) for quote in "\"'`" if line.count(quote) % 2]
    return cursor - len(line) + min(before), cursor, behind.end() if behind else cursor


def _place(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _shows_what_it_is(match: Any) -> bool:
    return isinstance(match, str) and len(match) <= MAX_MATCH and _HIDDEN.search(match) is None


def _typed(match: str, item: Any, start: int, end: int) -> dict[str, Any]:
    """Return what a kernel says of a match, if it is of that match, with the one range that all of them have."""
    if not isinstance(item, dict) or item.get("text") != match:
        return {"text": match}
    kept: dict[str, Any] = {"text": match, **{key: at for key, at in (("start", start), ("end", end)) if key in item}}
    if isinstance(item.get("type"), str) and _TYPE.fullmatch(item["type"]):
        kept["type"] = item["type"]
    if _shows_what_it_is(item.get("signature")):
        kept["signature"] = item["signature"]
    return kept


def history(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    """Return the inputs that a console offers to run again: none that reads otherwise than it is."""
    entries = plain(content).get("history")
    entries = entries if isinstance(entries, list) else []
    kept = [entry for entry in entries if _is_entry(entry)]
    if len(kept) < len(entries):
        notes.add(OutputCode.HISTORY_HIDDEN)
    return {**_status(content), "history": texts(kept)}


def _is_entry(entry: Any) -> bool:
    """Return whether this is (session, line, input), or has a pair of input and output."""
    if not isinstance(entry, list) or len(entry) != 3:
        return False
    code = entry[2][0] if isinstance(entry[2], list) and len(entry[2]) == 2 else entry[2]
    return isinstance(code, str) and _HIDDEN.search(code.replace("\n", "").replace("\t", "")) is None


def is_complete(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    status, indent = content.get("status"), content.get("indent", "")
    return {
        "status": status if status in ("complete", "incomplete", "invalid", "unknown") else "unknown",
        "indent": indent if isinstance(indent, str) and _INDENT.fullmatch(indent) else "",
    }


def kernel_info(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    result = dict(texts(plain(content)))
    links = result.get("help_links")
    result["help_links"] = [
        {"text": link["text"], "url": link["url"]}
        for link in (links if isinstance(links, list) else [])[:64]
        if isinstance(link, dict)
        and isinstance(link.get("text"), str)
        and isinstance(link.get("url"), str)
        and _URL.fullmatch(link["url"])
    ]
    return result


def debug(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    """A reply of the debug adapter, whose rich variables are a bundle."""
    result = debugged(content, notes)
    body = result.get("body")
    if isinstance(body, dict) and "data" in body:
        data, metadata = bundles.apply(body.get("data"), body.get("metadata", {}), notes, line=False)
        result = {**result, "body": {**body, "data": data, "metadata": metadata}}
    return dict(result)


def debugged(content: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    """Return what a debugger says, as text, with as many items in its lists as its panel may draw."""
    left, dropped = MAX_LISTED, 0

    def short(value: Any) -> Any:
        nonlocal left, dropped
        if isinstance(value, dict):
            return {key: short(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            kept = value[:left]
            left -= len(kept)
            dropped += len(value) - len(kept)
            return [short(item) for item in kept]
        return value

    result = short(texts(plain(content)))
    if dropped:
        notes.add(OutputCode.DEBUGGER_ITEMS, count=dropped, most=MAX_LISTED)
    return dict(result)


def comm_info(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    """Return the open comms; a front end asks the kernel about each of them at once."""
    listed = content.get("comms")
    comms = listed if isinstance(listed, dict) else {}
    kept = {
        name: {"target_name": terminal.clean(comm["target_name"])}
        for name, comm in islice(comms.items(), MAX_COMMS)
        if is_id(name) and isinstance(comm, dict) and isinstance(comm.get("target_name"), str)
    }
    if len(kept) < len(comms):
        notes.add(OutputCode.COMMS_LISTED, count=len(comms) - len(kept), most=MAX_COMMS)
    return {**_status(content), "comms": kept}


def subshell(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    """Return the id of a subshell, if there is one; a front end writes it into the headers of its requests."""
    kept = _subshells([content["subshell_id"]] if "subshell_id" in content else [], notes)
    return {**_status(content), **({"subshell_id": kept[0]} if kept else {})}


def subshells(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    listed = content.get("subshell_id")
    return {**_status(content), "subshell_id": _subshells(listed if isinstance(listed, list) else [], notes)}


def _subshells(listed: list[Any], notes: Notes) -> list[str]:
    kept = [name for name in listed[:MAX_COMMS] if is_id(name)]
    if len(kept) < len(listed):
        notes.add(OutputCode.SUBSHELL_IMPROPER)
    return kept


def other(content: Mapping[str, Any], bundles: Bundles, notes: Notes, asked: Asked) -> Mapping[str, Any]:
    """A reply without markup in it."""
    return dict(texts(plain(content)))


def cut(texts: Iterable[Any], left: int = MAX_ERROR) -> tuple[str, ...]:
    """Return the texts, cut after `left` characters, with a note where they were cut."""
    kept: list[str] = []
    for text in texts:
        if not isinstance(text, str):
            continue
        if len(text) > left or len(kept) >= MAX_MATCHES:
            kept.append(f"{text[:left]}\n[sandbox_kernel: cut here]")
            break
        kept.append(text)
        left -= len(text)
    return tuple(kept)


def _status(content: Mapping[str, Any]) -> dict[str, Any]:
    status = content.get("status")
    if status == "error":
        lines = content.get("traceback")
        short: dict[str, Any] = {"traceback": cut(lines if isinstance(lines, list) else ())}
        for key in ("ename", "evalue"):
            value = content.get(key)
            short[key] = "".join(cut([str(value) if isinstance(value, (int, float)) else value]))
        return {"status": "error", **error({**short, "traceback": list(short["traceback"])})}
    return {"status": status if status in ("ok", "aborted", "abort") else "ok"}


REPLIES: Mapping[str, Filter] = {
    "execute_reply": execute,
    "inspect_reply": inspect,
    "complete_reply": complete,
    "is_complete_reply": is_complete,
    "kernel_info_reply": kernel_info,
    "debug_reply": debug,
    "history_reply": history,
    "comm_info_reply": comm_info,
    "create_subshell_reply": subshell,
    "delete_subshell_reply": subshell,
    "list_subshell_reply": subshells,
    "usage_reply": other,
}
