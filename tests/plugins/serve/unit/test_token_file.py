"""A token file is no link, is closed to others, and says whose each token is."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.serve import token_file
from sandbox_kernel.plugins.serve.token_file import tokens_of
from tests.support.patience import until
from tests.support.remedies import in_shell, only

TOKEN = "e2b_" + "0" * 40


def file_of(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.touch(mode)
    path.chmod(mode)
    path.write_text(text)
    return path


def test_a_file_that_is_not_there_is_made_with_a_token_and_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    made = tokens_of(path)
    assert path.stat().st_mode & 0o777 == 0o600
    name, token = path.read_text().split()
    assert (made.names, made.name_of(token)) == (("default",), name)
    assert tokens_of(path).name_of(token) == "default"


def test_each_token_has_its_name(tmp_path: Path) -> None:
    tokens = tokens_of(file_of(tmp_path, f"# people\nann {TOKEN}\n\nbob {TOKEN}1\nann {TOKEN}2\n"))
    assert tokens.names == ("ann", "bob")
    found = [tokens.name_of(TOKEN + end) for end in ("", "1", "2", "3")]
    assert [*found, tokens.name_of(""), tokens.name_of("\ud800")] == ["ann", "bob", "ann", None, None, None]


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (f"ann {TOKEN}\n", 0o644),
        (f"ann {TOKEN}\n", 0o620),
        ("", 0o600),
        ("\n\n", 0o600),
        ("ann ünïcödë-tökën-of-length\n", 0o600),
        (f"{TOKEN}\n", 0o600),
        ("ann short\n", 0o600),
        (f"a/b {TOKEN}\n", 0o600),
        (f"ann {TOKEN} x\n", 0o600),
        (f"ann {TOKEN}\nbob {TOKEN}\n", 0o600),
        (f"ann {TOKEN}\n" + "# people\n" * 8000, 0o600),
    ],
)
def test_a_token_file_that_is_open_or_improper_is_refused(tmp_path: Path, text: str, mode: int) -> None:
    with pytest.raises(ConfigurationError) as found:
        tokens_of(file_of(tmp_path, text, mode))
    assert found.value.code.code == "serve-tokens-unfit"


def test_a_file_in_the_form_of_tokens_alone_is_refused_with_the_form_that_it_must_have(tmp_path: Path) -> None:
    """`mcp --http` once had files with a token on each line."""
    with pytest.raises(ConfigurationError, match=r"lines of a name and a token \(NAME TOKEN\)"):
        tokens_of(file_of(tmp_path, f"{TOKEN}\n{TOKEN}1\n"))


def test_a_file_that_others_may_read_says_how_it_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    made = tokens_of(file)
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(ConfigurationError, match="can be read or changed by others") as caught:
            tokens_of(file)
        assert in_shell(only(str(caught.value))).returncode == 0
        assert tokens_of(file).names == made.names


def test_a_token_file_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    for place in (fifo, tmp_path):
        with pytest.raises(ConfigurationError, match=r"regular file|cannot be read"):
            tokens_of(place)
    with pytest.raises(ConfigurationError, match="cannot be made"):
        tokens_of(tmp_path / "missing" / "token")


def test_only_a_token_as_a_whole_opens(tmp_path: Path) -> None:
    tokens = tokens_of(file_of(tmp_path, f"ann {TOKEN}x\nbob {TOKEN}Y\n"))
    for wrong in ("", TOKEN, f"{TOKEN}xx", f"{TOKEN}X", f"{TOKEN}x {TOKEN}Y", "\ud800", "é"):
        assert tokens.name_of(wrong) is None, wrong
    assert [tokens.name_of(TOKEN + end) for end in "xY"] == ["ann", "bob"]


@pytest.mark.slow
def test_a_token_file_is_no_link(repo: Path) -> None:
    mine = file_of(repo.parent / "mine", f"ann {TOKEN}\n")
    assert tokens_of(mine).names == ("ann",)
    (repo / "tokens").symlink_to("../mine/tokens")
    (repo / "folder").symlink_to("../mine")
    for name in ("tokens", "folder/tokens", "folder/new"):
        with pytest.raises(ConfigurationError, match="link"):
            tokens_of(Path(name))
    assert tokens_of(Path("new")).names == ("default",)
    assert Path("new").stat().st_mode & 0o777 == 0o600


async def test_a_file_that_goes_while_it_is_read_again_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = file_of(tmp_path, f"ann {TOKEN}\n")
    tokens, said = tokens_of(file), list[str]()
    stamps = iter([(0, 0, 0, 0)])
    file.unlink()
    monkeypatch.setattr(token_file, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(token_file, "_stamp", lambda path: next(stamps, (1, 1, 1, 1)))  # as it was a moment before
    following = asyncio.create_task(token_file.follow(file, tokens, said.append))
    await until(lambda: said, 10)
    following.cancel()
    assert (tokens.names, file.exists()) == (("ann",), False)
    assert said[0].startswith("the tokens stay as they were: ")
