"""Building the images: a root file system with Python, then wheels from a hash-pinned lock, installed offline.

What is done inside an image is `images/recipe.py`; here is what brings it there.

    Debian's packages, or ROOT_IMAGE and these  ->  base  ->  data  ->  a user's own requirements

`image_kinds` says which kinds there are, and what each is made of. Each image carries a digest of all that went into it
as a label, so building it again has nothing to do.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..core.codes import EndCode
from ..core.errors import ConfigurationError, EngineError, EngineUnavailable
from ..core.package_files import brought
from ..engines import shipping
from ..engines.image_names import Kind
from ..engines.select import PODMAN
from ..plugins import index
from ..wheels import image_wheels
from ..wheels.pip_process import WheelTarget
from . import engine_setup
from .build_lock import alone
from .command_steps import Say, Steps, tail
from .image_kinds import DEBIAN_SUITE, KERNEL_FILES, KINDS, KindStages, bootstrapped

ROOT_IMAGE = f"debian:{DEBIAN_SUITE}-slim"
RECIPE_FILES = (
    "warm.py",
    *("recipe.py", "plots.py", "measures.py", "pip.conf"),
    *("unpack.js", "plotly_failures.js", "plotly_without_outlines.js"),
    *(f"kernels/{name}" for name in KERNEL_FILES),
)
"""Of images/: what is done inside, and what goes in besides packages."""

DIGEST_LABEL = "sandbox-kernel.contents"
BYTECODE_LABEL = "sandbox-kernel.bytecode"
"""Of which programs of ours it has the bytecode: others are compiled at each start."""
SETTINGS = (
    "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "ENV LANG=C.UTF-8",
    "WORKDIR /",
    'CMD ["python3"]',
)
BOOTSTRAP_IMAGE = "sandbox-kernel:bootstrap"
BUILD_FOLDER = "/opt/sandbox/build"

HOME_OF_PODMAN = "localhost/"
"""Without it, Podman takes a name for one of Docker's registry, also that of an image which was built here."""

REFIT = (
    f"import shutil, sys; sys.path.insert(0, {BUILD_FOLDER!r}); import warm; warm.write_shipped();"
    f" shutil.rmtree({BUILD_FOLDER!r})"
)

SILENCE_SECONDS = 900.0
"""How long the engine may be silent in one request; compiling the bytecode of everything takes half a minute."""

_TAG = re.compile(
    r"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
)
"""A name as the engine's API takes it (the grammar of an image reference), without a digest."""


def build(
    kind: Kind = "data",
    *,
    tag: str | None = None,
    requirements: Path | None = None,
    force: bool = False,
    progress: Say = print,
    engine: str | None = None,
) -> str:
    """Build an image unless it is there with the same contents, and return its tag.

    `requirements` is a pip requirements file, whose packages are added to the image of `kind`. The tag is
    `sandbox-kernel:KIND` or, with requirements, `sandbox-kernel:custom`, if `tag` does not say otherwise. With `tag`,
    no other tag is moved. `engine` is a name or an address, as of `engine_setup.find_engine`.
    Raises `EngineUnavailable`, `EngineError`, and `ConfigurationError` for requirements that cannot be met.
    """
    check_tag(tag)
    status = engine_setup.require_engine(engine_setup.find_engine(engine))
    stages = chain(kind, tag, requirements, status.architecture, fresh=force)
    home = HOME_OF_PODMAN if status.product == PODMAN else ""
    stages = [replace(stage, tag=_at_home(stage.tag, home)) for stage in stages]
    with engine_errors(), closing(engine_setup.connect(status.host, seconds=SILENCE_SECONDS)) as client:
        builder = Builder(client, Steps(progress), home)
        is_current = not force and builder.is_current(stages[-1])
        if is_current and builder.is_fit(stages[-1]):
            builder.steps(f"the image {stages[-1].tag} is up to date")
            return stages[-1].tag
        with alone(image_wheels.cache(), builder.steps):
            if is_current:
                builder.refit(stages[-1])
            else:
                builder.run(stages, KINDS[kind], force=force, others_stay=tag is not None)
    return stages[-1].tag


def check_tag(tag: str | None) -> None:
    """Refuse what cannot be the name of an image."""
    if tag is not None and not _TAG.fullmatch(tag):
        raise ConfigurationError(
            EndCode.WRONG_SETTING,
            "that is no name of an image, which is like name:version",
            value=tag,
            setting="--tag",
        )


def _at_home(tag: str, home: str) -> str:
    """Return the name of an image of this machine, which has a registry's name in it or begins with `home`."""
    first, slash, _ = tag.partition("/")
    return tag if slash and (first == "localhost" or {".", ":"} & {*first}) else home + tag


@dataclass(frozen=True, slots=True)
class Stage:
    """One image of the chain."""

    tag: str
    digest: str
    fetch: Callable[[], image_wheels.Wheels]


def chain(kind: Kind, tag: str | None, requirements: Path | None, architecture: str, *, fresh: bool) -> list[Stage]:
    """Return the stages up to the one asked for; each digest covers the stages before it."""
    recipes, target, made = brought("images"), WheelTarget(architecture), KINDS[kind]
    texts = [(recipes / name).read_text() for name in (*RECIPE_FILES, "installer.lock")]
    digest = _digest(architecture, *SETTINGS, *made.debian, *texts)
    stages = []
    for name, locks in made.stages:
        digest = _digest(digest, *((recipes / f"{lock}.lock").read_text() for lock in locks))
        stages.append(Stage(f"sandbox-kernel:{name}", digest, partial(image_wheels.all_locked, recipes, locks, target)))
    if requirements is not None:
        identity, resolve = index.requirements(requirements)
        digest = _digest(digest, identity)
        fetch = partial(resolve, recipes, target=target, fresh=fresh)
        stages.append(Stage("sandbox-kernel:custom", digest, fetch))
    return [*stages[:-1], replace(stages[-1], tag=tag or stages[-1].tag)]


def build_files(ready: image_wheels.Wheels) -> dict[str, Path | bytes]:
    """Return what lies in `BUILD_FOLDER` when the recipe runs, by its name there: a file of this machine, or bytes."""
    files: dict[str, Path | bytes] = {f"wheels/{path.name}": path for path in ready.files}
    files |= {name: brought("images") / name for name in RECIPE_FILES}
    # No part of the digest: an image of another version works as well, and compiles it at each start.
    return files | {"shipped.json": shipped().encode(), "requirements.txt": ready.requirements.encode()}


def shipped() -> str:
    """Return what a sandbox is sent at its start, for its image to have the bytecode."""
    return json.dumps(shipping.sources())


class Builder:
    """The steps of one build, against one engine."""

    def __init__(self, client: Any, steps: Steps, home: str = "") -> None:
        """`home` is what names of images of this machine begin with."""
        self.client = client
        self.steps = steps
        self.home = home

    def run(self, stages: list[Stage], kind: KindStages, *, force: bool, others_stay: bool) -> None:
        """Build the stages after the last one that is up to date.

        With `others_stay`, those before the last have names of their own while they are needed.
        """
        done = 0
        for number, stage in enumerate(stages, 1):
            if not force and self.is_current(stage):
                done = number
        todo = stages[done:]
        if not todo:
            self.steps(f"the image {stages[-1].tag} was built meanwhile")
            return
        if others_stay:
            own = f"{self.home}sandbox-kernel:stage-"
            todo[:-1] = [replace(stage, tag=f"{own}{stage.digest[:12]}") for stage in todo[:-1]]
        self.steps(f"building {', '.join(stage.tag for stage in todo)}; wheels are fetched at the same time")
        with ThreadPoolExecutor() as pool:
            fetched = [pool.submit(stage.fetch) for stage in todo]
            parent = stages[done - 1].tag if done else self._root_file_system(kind)
            for number, (stage, future) in enumerate(zip(todo, fetched, strict=True), done):
                with self.steps.during(f"waiting for the wheels of {stage.tag}"):
                    ready = future.result()
                self._add(parent, stage, ready, first=number == 0)
                parent = stage.tag
        if not done:
            self._forget(self.home + BOOTSTRAP_IMAGE)
        if others_stay:
            for stage in todo[:-1]:
                self._forget(stage.tag)
        self.steps(f"the image {stages[-1].tag} is ready")

    def is_current(self, stage: Stage) -> bool:
        """Say whether the engine has the image of a stage, made of the same things."""
        return self._label(stage, DIGEST_LABEL) == stage.digest

    def is_fit(self, stage: Stage) -> bool:
        """Say whether the image of a stage has the bytecode of what this version sends to a sandbox."""
        return self._label(stage, BYTECODE_LABEL) == _digest(shipped())

    def refit(self, stage: Stage) -> None:
        """Write that bytecode anew, into a layer above: another version of this package made the image."""
        made = self._container(stage.tag, ["-B", "-c", REFIT], stage.tag)
        with self._replacing(stage.tag), self.steps.during(f"fitting {stage.tag} to this version"), made as container:
            self._send(container, {"warm.py": brought("images") / "warm.py", "shipped.json": shipped().encode()})
            self._run_recipe(container, stage.tag)
            self._commit(container, stage)

    def _label(self, stage: Stage, name: str) -> str | None:
        from docker.errors import ImageNotFound

        try:
            labels: dict[str, str] = self.client.images.get(stage.tag).labels or {}
        except ImageNotFound:
            return None
        return labels.get(name)

    # --- the root file system ---------------------------------------------------------------------------------------

    def _root_file_system(self, kind: KindStages) -> str:
        """Return an image with what a kind needs of Debian: made here, or where that cannot be, of a registry's."""
        try:
            with bootstrapped(kind.debian, self.steps) as archive, archive.open("rb") as tar:
                self._import(tar, self.home + BOOTSTRAP_IMAGE, [])
        except EngineError as error:
            self.steps(f"{error.message}; trying {ROOT_IMAGE}")
            self._on_debian(kind, error)
        return self.home + BOOTSTRAP_IMAGE

    def _on_debian(self, kind: KindStages, why: EngineError) -> None:
        """Have a registry's Debian install the packages; no code but Debian's own has a network there."""
        from docker.errors import APIError

        install = f"apt-get update -q && apt-get install -qy --no-install-recommends {' '.join(kind.debian)}"
        try:
            with self.steps.during(f"adding packages of Debian to {ROOT_IMAGE}"):
                container = self.client.containers.run(
                    ROOT_IMAGE, ["sh", "-c", install], detach=True, ulimits=self._limits()
                )
                try:
                    if container.wait()["StatusCode"]:
                        failed = tail(container.logs().decode(errors="replace"))
                        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"{ROOT_IMAGE} cannot install packages: {failed}")
                    container.commit(*(self.home + BOOTSTRAP_IMAGE).split(":"))
                finally:
                    container.remove(force=True, v=True)
        except APIError as error:
            raise EngineError(why.code, f"{why.message}; and no registry gives {ROOT_IMAGE}: {error}") from error

    # --- one stage --------------------------------------------------------------------------------------------------

    def _add(self, parent: str, stage: Stage, ready: image_wheels.Wheels, *, first: bool) -> None:
        """Run the recipe on `parent` and keep the result as `stage`: the first as a single layer, then one on top."""
        steps = ["system", "packages"] if first else ["packages"]
        command = [f"{BUILD_FOLDER}/recipe.py", *steps]
        with self._replacing(stage.tag), self._container(parent, command, stage.tag) as container:
            with self.steps.during(f"installing {len(ready.files)} wheels in {stage.tag}, offline"):
                self._send(container, build_files(ready))
                self._run_recipe(container, stage.tag)
            with self.steps.during(f"storing {stage.tag}"):
                if first:  # what was removed is gone, not hidden beneath another layer
                    self._import(container.export(), stage.tag, _changes(stage))
                else:
                    self._commit(container, stage)

    @contextmanager
    def _container(self, image: str, command: list[str], tag: str) -> Iterator[Any]:
        """Make a container in which Python runs a command for the image `tag`, as root and without a network."""
        container = self.client.containers.create(
            image,
            ["python3", "-I", *command],
            entrypoint=[],
            network_mode="none",
            user="0:0",
            labels={"sandbox-kernel.build": tag},
            ulimits=self._limits(),
        )
        try:
            yield container
        finally:
            container.remove(force=True, v=True)

    def _commit(self, container: Any, stage: Stage) -> None:
        repository, _, tag = stage.tag.partition(":")
        container.commit(repository, tag or "latest", changes="\n".join(_changes(stage)))

    def _limits(self) -> list[Any] | None:
        """Name those that Podman raises where they are not named, for which some machines' root lacks the right."""
        from docker.types import Ulimit

        named = {"nproc": 4096, "nofile": 1024}
        return [Ulimit(name=name, soft=most, hard=most) for name, most in named.items()] if self.home else None

    def _send(self, container: Any, files: Mapping[str, Path | bytes]) -> None:
        """Copy what a build needs in: as an archive, because the engine may be on another machine."""
        with tempfile.TemporaryFile(dir=image_wheels.cache()) as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                for name, content in files.items():
                    there = f"{BUILD_FOLDER.lstrip('/')}/{name}"
                    if isinstance(content, Path):
                        archive.add(content, there)
                        continue
                    info = tarfile.TarInfo(there)
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
            file.seek(0)
            container.put_archive("/", file)

    def _run_recipe(self, container: Any, tag: str) -> None:
        container.start()
        lines = []
        for line in container.logs(stream=True, follow=True):
            lines.append(line.decode(errors="replace").rstrip())
            self.steps(f"  {lines[-1]}")
        if code := container.wait()["StatusCode"]:
            raise EngineError(
                EndCode.IMAGE_NOT_BUILT,
                f"building {tag} failed with exit code {code}: {tail(chr(10).join(lines))}",
            )

    def _import(self, tar: Any, name: str, changes: list[str]) -> None:
        said = self.client.api.import_image(tar, repository=name, changes=changes)  # Podman reads no tag apart
        if '"error"' in said:
            raise EngineError(
                EndCode.IMAGE_NOT_BUILT, f"the engine does not take the image {name}: {said.strip()[-500:]}"
            )

    @contextmanager
    def _replacing(self, tag: str) -> Iterator[None]:
        """Remove the image that `tag` meant before, once it means another."""
        from docker.errors import ImageNotFound

        try:
            before = self.client.images.get(tag).id
        except ImageNotFound:
            before = None
        yield
        if before and before != self.client.images.get(tag).id:
            self._forget(before)

    def _forget(self, name: str) -> None:
        from docker.errors import APIError

        with suppress(APIError):  # there is none, or a container or another image still needs it
            self.client.images.remove(name)


@contextmanager
def engine_errors() -> Iterator[None]:
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except RequestException as error:
        raise EngineUnavailable(
            EndCode.ENGINE_LOST, f"the container engine went away, or was silent for {SILENCE_SECONDS:g} s"
        ) from error
    except DockerException as error:
        raise EngineError(
            EndCode.IMAGE_NOT_BUILT, f"the container engine refused a step of the build: {error}"
        ) from error


def _changes(stage: Stage) -> list[str]:
    """Return what an image is said to be, as lines of a Dockerfile."""
    labels = f"LABEL {DIGEST_LABEL}={stage.digest}", f"LABEL {BYTECODE_LABEL}={_digest(shipped())}"
    return [*SETTINGS, *labels]


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
