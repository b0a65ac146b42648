"""The kinds of images: what each is made of, and which tags a build may move."""

from __future__ import annotations

import json
import runpy
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from sandbox_kernel.cli.program import parse
from sandbox_kernel.core.package_files import brought
from sandbox_kernel.engines.image_names import BY_NAME, Kind, build_command
from sandbox_kernel.setup import image_build, image_kinds
from sandbox_kernel.setup.command_steps import Steps
from sandbox_kernel.setup.image_kinds import DEBIAN_PACKAGES, KINDS
from sandbox_kernel.wheels import image_wheels
from sandbox_kernel.wheels.pip_process import PYTHON_VERSION, WheelTarget

RECIPES = brought("images")


def tags(kind: Kind, tag: str | None = None) -> list[str]:
    return [stage.tag for stage in image_build.chain(kind, tag, None, "x86_64", fresh=False)]


@pytest.mark.parametrize(
    ("kind", "chain"),
    [
        ("base", ["base"]),
        ("data", ["base", "data"]),
        ("r", ["r"]),
        ("deno", ["base", "deno"]),
        ("all", ["r", "all"]),
        ("full", ["full"]),
    ],
)
def test_a_kind_is_built_in_stages_of_its_own_root_file_system(kind: Kind, chain: list[str]) -> None:
    assert tags(kind) == [f"sandbox-kernel:{name}" for name in chain]
    assert KINDS[kind].has_own_root == (chain[0] in {"r", "full"})
    assert set(DEBIAN_PACKAGES) <= set(KINDS[kind].debian)


def test_every_kind_has_a_name_and_each_of_its_locks_is_there() -> None:
    assert set(KINDS) == set(get_args(Kind)) == set(BY_NAME.values())
    for made in KINDS.values():
        for lock in made.locks:
            for python in image_wheels.LOCKED_FOR if lock != "full" else (PYTHON_VERSION,):
                assert image_wheels.lock_of(RECIPES, lock, python).is_file()


def test_another_package_of_debian_makes_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def digests() -> dict[Kind, str]:
        return {kind: image_build.chain(kind, None, None, "x86_64", fresh=False)[-1].digest for kind in KINDS}

    before = digests()
    more = {kind: replace(made, debian=(*made.debian, "sl")) for kind, made in KINDS.items() if made.has_own_root}
    monkeypatch.setattr(image_build, "KINDS", {**KINDS, **more})
    assert {kind for kind, digest in digests().items() if digest != before[kind]} == {"r", "all", "full"}


def test_a_tag_is_the_last_image_alone() -> None:
    assert tags("data", "mine:1") == ["sandbox-kernel:base", "mine:1"]


class Engine(image_build.Builder):
    """A builder that writes down which tags it would set, remove and start from."""

    def __init__(self, current: set[str]) -> None:
        super().__init__(None, Steps(lambda _: None))
        self.current, self.said = current, list[tuple[str, ...]]()

    def is_current(self, stage: image_build.Stage) -> bool:
        return stage.tag in self.current

    def _root_file_system(self, kind: image_kinds.KindStages) -> str:
        return "root"

    def _add(self, parent: str, stage: image_build.Stage, ready: Any, *, first: bool) -> None:
        self.said.append((parent, stage.tag, "first" if first else "later"))

    def _forget(self, name: str) -> None:
        self.said.append(("forget", name))


def said(current: set[str], tag: str | None, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    monkeypatch.setattr(image_wheels, "all_locked", lambda *_: image_wheels.Wheels((), ""))
    engine = Engine(current)
    stages = image_build.chain("data", tag, None, "x86_64", fresh=False)
    engine.run(stages, KINDS["data"], force=False, others_stay=tag is not None)
    return engine.said


def test_a_build_with_a_tag_moves_no_other_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = said(set(), "mine:1", monkeypatch)
    name = steps[0][1]
    assert name.startswith("sandbox-kernel:stage-")
    assert steps == [
        ("root", name, "first"),
        (name, "mine:1", "later"),
        ("forget", image_build.BOOTSTRAP_IMAGE),
        ("forget", name),
    ]


def test_a_build_without_a_tag_names_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    assert said(set(), None, monkeypatch) == [
        ("root", "sandbox-kernel:base", "first"),
        ("sandbox-kernel:base", "sandbox-kernel:data", "later"),
        ("forget", image_build.BOOTSTRAP_IMAGE),
    ]


def test_a_build_with_a_tag_starts_from_a_stage_that_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said({"sandbox-kernel:base"}, "mine:1", monkeypatch) == [("sandbox-kernel:base", "mine:1", "later")]


def test_deno_is_started_as_its_kernel_needs_it() -> None:
    """It ends by SIGINT, and writes what it loads into a folder that a session has."""
    spec = json.loads((RECIPES / "kernels" / "deno.json").read_text())
    assert spec["argv"] == ["/usr/local/bin/deno", "jupyter", "--kernel", "--conn", "{connection_file}"]
    assert (spec["display_name"], spec["language"], spec["interrupt_mode"]) == ("Deno", "typescript", "message")
    assert spec["env"]["DENO_DIR"].startswith("/tmp/home/")


def test_the_recipe_brings_the_kernels_that_are_sent_along() -> None:
    recipe = runpy.run_path(str(RECIPES / "recipe.py"))
    assert recipe["KERNELS"] == image_kinds.KERNELS
    assert {path.name for path in (RECIPES / "kernels").iterdir() if path.is_file()} == set(image_kinds.KERNEL_FILES)


@pytest.mark.parametrize(("name", "language"), [("bash", "bash"), ("sql", "sql")])
def test_our_kernels_are_started_from_their_own_folder(name: str, language: str) -> None:
    """And not from the folder of the cells, where anybody may put a module."""
    spec = json.loads((RECIPES / "kernels" / f"{name}.json").read_text())
    assert spec["argv"][:2] == ["python3", "-c"]
    assert spec["argv"][2].startswith("import sys; sys.path[0] = sys.argv[1]; ")
    assert spec["argv"][3:] == ["{resource_dir}", "{connection_file}"]
    assert (spec["language"], spec["interrupt_mode"]) == (language, "signal")


def test_locks_together_have_each_wheel_once_and_the_installer_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"data": ("a.whl", "b.whl", "pip.whl"), "deno": ("b.whl", "c.whl", "pip.whl")}

    def locked(recipes: Path, name: str, target: object) -> image_wheels.Wheels:
        return image_wheels.Wheels(tuple(tmp_path / file for file in found[name]), f"of {name}")

    monkeypatch.setattr(image_wheels, "locked", locked)
    wheels = image_wheels.all_locked(RECIPES, ("data", "deno"), WheelTarget("x86_64"))
    assert [file.name for file in wheels.files] == ["a.whl", "b.whl", "c.whl", "pip.whl"]
    assert wheels.requirements == "of data\nof deno"


@pytest.mark.parametrize(
    ("name", "engine", "command"),
    [
        ("sandbox-kernel:data", "docker", "sandbox-kernel build"),
        ("sandbox-kernel:r", "docker", "sandbox-kernel build --kind r"),
        ("sandbox-kernel:mine", "docker", "sandbox-kernel build --requirements FILE --tag sandbox-kernel:mine"),
        ("python:3.13", "docker", None),
        ("sandbox-kernel:data", "bubblewrap", "sandbox-kernel build --engine bubblewrap"),
        ("sandbox-kernel:all", "qemu", "sandbox-kernel build --engine qemu --kind all"),
        ("no body", "bubblewrap", "sandbox-kernel build --engine bubblewrap --requirements FILE --tag 'no body'"),
        ("/srv/root", "bubblewrap", None),
    ],
)
def test_what_is_missing_has_the_command_that_makes_just_that(name: str, engine: str, command: str | None) -> None:
    assert build_command(name, engine) == command
    if command is not None:
        arguments = parse(shlex.split(command)[1:])
        assert (arguments.kind, arguments.tag or name) == (BY_NAME.get(name, "data"), name)
