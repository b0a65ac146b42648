"""Sounds, films and images of widgets and of markup: in a real browser, no playlist in them is followed."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import pytest

from sandbox_kernel.policy import html
from sandbox_kernel.policy.media import is_played, is_played_text
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.verdict import Notes
from tests.support.chromium import Evil, listening, show
from tests.support.policy.messages import message, model

PLAYED = {
    "mp4": b"\0\0\0\x18ftypmp42\0\0\0\0",
    "quicktime": b"\0\0\0\x14moov",
    "webm": b"\x1a\x45\xdf\xa3\x9fB\x86\x81\x01",
    "ogg": b"OggS\0\2",
    "wav": b"RIFF\x24\0\0\0WAVEfmt ",
    "flac": b"fLaC\0\0\0\x22",
    "mp3": b"\xff\xfb\x90\x44\0\0",
    "aac": b"\xff\xf1\x50\x80\0\0",
    "mp3 with a tag": b"ID3\x04\0\0\0\0\x02\x01" + bytes(257) + b"\xff\xfb\x90\x44",
}
LIST = "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:9,\n{}\n#EXT-X-ENDLIST\n"


def lists(address: str = "http://evil.test/x.ts") -> dict[str, bytes]:
    """Return what loads an address, or might in another player, by name."""
    one = LIST.format(address).encode()
    return {
        "playlist": one,
        "master": f"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{address}\n".encode(),
        "key": one.replace(b"#EXTINF", f'#EXT-X-KEY:METHOD=AES-128,URI="{address}"\n#EXTINF'.encode()),
        "marked": b"\xef\xbb\xbf" + one,
        "spaced": b"\n \t" + one,
        "tagged": b"ID3\x04\0\0\0\0\0\x04" + bytes(4) + one,
        "tagged and padded": b"ID3\x04\0\x10\0\0\0\x02" + bytes(30) + one,
        "asx": f"<ASX version='3'><entry><ref href='{address}'/></entry></ASX>".encode(),
        "mpd": f"<?xml version='1.0'?><MPD><BaseURL>{address}</BaseURL></MPD>".encode(),
        "sdp": b"v=0\no=- 0 0 IN IP4 192.0.2.1\n",
        "concat": f"ffconcat version 1.0\nfile '{address}'\n".encode(),
        "pls": f"[playlist]\nFile1={address}\n".encode(),
        "reference": f"RTSPtextRTSP://{address}".encode(),
    }


def sent(name: str, data: bytes) -> tuple[bytes, ...]:
    """Return the bytes that reach a front end when they are opened with a widget, and that an update has, too."""
    policy = OutputPolicy("safe")
    opened = policy.apply(model("c", name)).message
    assert opened is not None
    state = {"method": "update", "state": {}, "buffer_paths": [["value"]]}
    passed = policy.apply(message("comm_msg", {"comm_id": "c", "data": state}, buffers=(data,))).message
    assert passed is not None
    assert len(passed.content["data"]["buffer_paths"]) == len(passed.buffers)
    return passed.buffers


@pytest.mark.parametrize("name", ["VideoModel", "AudioModel"])
def test_a_widget_plays_containers_and_nothing_that_names_an_address(name: str) -> None:
    for data in PLAYED.values():
        assert sent(name, data) == (data,)
    for data in lists().values():
        assert sent(name, data) == ()


def test_markup_plays_the_same() -> None:
    for data in PLAYED.values():
        text = base64.b64encode(data).decode()
        for tag in ("audio", "video"):
            source = f'<{tag} controls="" src="data:{tag}/mp4;base64,{text}"></{tag}>'
            assert text in html.sanitise(source, Notes())
        assert is_played_text("\n".join(text)) == is_played(data) is True
    for data in lists().values():
        text = base64.b64encode(data).decode()
        assert "src" not in html.sanitise(f'<video src="data:video/mpegurl;base64,{text}"></video>', Notes())
        assert "src" not in html.sanitise(
            f'<audio><source src="data:audio/mp4;base64,{" ".join(text)}"></audio>', Notes()
        )


def as_a_widget_shows(blobs: list[bytes]) -> str:
    """Return a page's script that plays bytes as ipywidgets' view does: from a blob, of the format that was said."""
    texts = json.dumps([base64.b64encode(one).decode() for one in blobs])
    return (
        f"<script>for(const t of {texts}){{const v=document.createElement('video'),s=document.createElement('source');"
        "s.type='video/mp4';s.src=URL.createObjectURL(new Blob([Uint8Array.from(atob(t),c=>c.charCodeAt(0))],"
        "{type:'video/mp4'}));v.preload='auto';v.append(s);document.body.append(v)}</script>"
    )


def asked(evil: Evil, folder: Path, *, filtered: bool) -> set[str]:
    found = lists(f"http://evil.test:{evil.tcp}/leak").values()
    blobs = [data for one in found for data in (sent("VideoModel", one) if filtered else (one,))]
    show([as_a_widget_shows([*blobs, PLAYED["webm"]])], evil, folder)
    return evil.paths()


def test_a_browser_loads_nothing_for_a_widgets_film(tmp_path: Path) -> None:
    with listening() as evil:
        assert asked(evil, tmp_path, filtered=True) == set()


def test_control_a_browser_follows_a_playlist_in_a_film(tmp_path: Path) -> None:
    with listening() as evil:
        assert asked(evil, tmp_path, filtered=False) == {"leak"}


def test_an_image_of_a_widget_claims_no_more_pixels_than_any_other() -> None:
    """A picture of a few bytes makes a browser find room for all that it claims."""
    start = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    assert sent("ImageModel", start + struct.pack(">II", 9_000, 9_000)) != ()
    assert sent("ImageModel", start + struct.pack(">II", 30_000, 30_000)) == ()
    gif = (
        b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0, 0, 0) + b"," + struct.pack("<HHHH", 0, 0, 60_000, 60_000) + bytes(9)
    )
    assert sent("ImageModel", gif) == ()
    bmp = b"BM" + bytes(12) + b"\x28\0\0\0"
    assert sent("ImageModel", bmp + struct.pack("<ii", 900, -900)) != ()
    assert sent("ImageModel", bmp + struct.pack("<ii", 30_000, -30_000)) == ()
    assert sent("ImageModel", b"\0\0\0\x1cftypavif" + bytes(99)) == ()
