"""R and Deno in real sandboxes: what every language has to do, on each engine."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator

import pytest
from bs4 import BeautifulSoup

from sandbox_kernel import AsyncSandbox, Sandbox
from tests.languages.places import DENO, ENGINES, LANGUAGES, Language, R, asked_for, engine_is_here
from tests.support.patience import within

pytestmark = [asked_for, pytest.mark.timeout(180)]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # one pixel
HOSTILE = "<b onclick=alert(1)>bold</b><img src=x onerror=alert(1)>"
PROGRAM = "<b>bold</b><script>document.title = 1</script>"
only_r = pytest.mark.parametrize("place", [f"r-{engine}" for engine in ENGINES], indirect=True, scope="module")
only_deno = pytest.mark.parametrize("place", [f"deno-{engine}" for engine in ENGINES], indirect=True, scope="module")
SVG_HEAD, PNG_HEAD = "<svg", b"\x89PNG\r\n"


@pytest.fixture(scope="module", params=[f"{name}-{engine}" for name in LANGUAGES for engine in ENGINES])
def place(request: pytest.FixtureRequest) -> tuple[Language, str]:
    name, _, engine = request.param.partition("-")
    engine_is_here(engine)
    return LANGUAGES[name], engine


@pytest.fixture(scope="module")
def language(place: tuple[Language, str]) -> Language:
    return place[0]


@pytest.fixture(scope="module")
def sandbox(place: tuple[Language, str]) -> Iterator[Sandbox]:
    """One that tests share, which leave it as it was."""
    with started(place) as shared:
        yield shared


def started(place: tuple[Language, str], **settings: object) -> Sandbox:
    language, engine = place
    given = {"image": language.image, "kernel": language.kernel, "engine": engine, "cell_timeout": 60, **settings}
    return Sandbox(**given)  # type: ignore[arg-type]


# --- values, texts, errors --------------------------------------------------------------------------------------------


def test_a_value_and_a_text(sandbox: Sandbox, language: Language) -> None:
    code, text = language.value
    found = sandbox.run_code(code)
    assert (found.error, [result.text for result in found.results]) == (None, [text])
    assert "".join(sandbox.run_code(language.output).logs.stdout) == "hello, world\n"


def test_variables_stay_from_cell_to_cell(sandbox: Sandbox, language: Language) -> None:
    assert sandbox.run_code(language.assign).ok
    code, text = language.recall
    assert [result.text for result in sandbox.run_code(code).results] == [text]


def test_every_value_is_its_own_cells(sandbox: Sandbox) -> None:
    """A kernel may publish a value after the cell's idle: it is neither lost nor the next cell's."""
    for number in range(100):
        texts = [result.text for result in sandbox.run_code(f"{number} + 0").results]
        assert [text.removeprefix("[1] ") for text in texts if text] == [str(number)]


def test_an_error_has_its_traceback_and_leaves_the_kernel(sandbox: Sandbox, language: Language) -> None:
    code, name, text, trace = language.error
    error = sandbox.run_code(code).error
    assert error is not None
    assert (error.name, error.value.strip(), error.from_sandbox) == (name, text, False)
    assert trace in error.traceback
    assert sandbox.run_code(language.value[0].replace("two", "three")).ok


def test_no_network(sandbox: Sandbox, language: Language) -> None:
    error = sandbox.run_code(language.network, timeout=30).error
    assert error is not None
    assert not error.from_sandbox


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_timeout_keeps_variables(sandbox: Sandbox, language: Language) -> None:
    assert sandbox.run_code(language.assign).ok
    error = sandbox.run_code(language.busy, timeout=1).error
    assert error is not None
    assert (error.name, error.kept) == ("CellTimeout", "variables-and-files")
    assert [result.text for result in sandbox.run_code(language.recall[0]).results] == [language.recall[1]]


async def test_an_interrupt_ends_a_cell_and_keeps_variables(place: tuple[Language, str]) -> None:
    language, engine = place
    keywords = {"image": language.image, "kernel": language.kernel, "engine": engine}
    async with await AsyncSandbox.create(**keywords) as one:  # type: ignore[arg-type]
        assert (await one.run_code(language.assign)).ok
        begun = asyncio.Event()
        running = asyncio.create_task(
            one.run_code(f"{language.output}\n{language.busy}", on_stdout=lambda _: begun.set())
        )
        async with within(30):
            await begun.wait()
            assert await one.interrupt()
            ended = await running
        assert ended.error is not None
        assert (ended.error.name, ended.error.kept) == ("KeyboardInterrupt", "variables-and-files")
        assert [result.text for result in (await one.run_code(language.recall[0])).results] == [language.recall[1]]


def test_out_of_memory(place: tuple[Language, str]) -> None:
    with started(place, memory="512M") as small:
        error = small.run_code(place[0].memory).error
        assert error is not None
        assert (error.name, error.from_sandbox) == ("OutOfMemory", True)
        assert small.run_code(place[0].value[0]).ok


def test_a_flood_of_output(place: tuple[Language, str]) -> None:
    with started(place, output_limit="1M") as small:
        error = small.run_code(place[0].flood).error
        assert error is not None
        assert (error.name, error.from_sandbox) == ("OutputLimit", True)
        assert small.run_code(place[0].value[0]).ok


def test_a_dead_kernel_is_followed_by_another(place: tuple[Language, str]) -> None:
    language = place[0]
    with started(place) as one:
        assert one.run_code(language.write).ok
        error = one.run_code(language.death).error
        assert error is not None
        assert (error.name, error.kept) == ("KernelDied", "files")
        assert one.run_code(language.value[0]).ok
        assert one.files.read("out.txt") == "made"


@only_r
def test_quit_of_r_ends_nothing(place: tuple[Language, str]) -> None:
    """IRkernel asks the front end to end it, which is for the front end to do."""
    with started(place) as one:
        assert one.run_code(R.assign).ok
        assert one.run_code("quit()").ok
        assert [result.text for result in one.run_code(R.recall[0]).results] == [R.recall[1]]


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_in_and_out(sandbox: Sandbox, language: Language) -> None:
    sandbox.files.write("in.txt", "brought")
    assert "".join(sandbox.run_code(language.read).logs.stdout).strip() == "brought"
    assert sandbox.run_code(language.write).ok
    assert sandbox.files.read("out.txt") == "made"


# --- what is shown ----------------------------------------------------------------------------------------------------


def shown(sandbox: Sandbox, code: str, kind: str) -> str:
    found = sandbox.run_code(code)
    assert found.error is None, found.error.traceback
    [value] = [result.data[kind] for result in found.results if kind in result.data]
    return str(value)


def test_hostile_html_is_written_again(sandbox: Sandbox, language: Language) -> None:
    html = shown(sandbox, language.html % HOSTILE, "text/html")
    assert "<b>bold</b>" in html
    assert "alert" not in html


def test_a_program_in_html_gets_a_frame_of_its_own(sandbox: Sandbox, language: Language) -> None:
    html = shown(sandbox, language.html % PROGRAM, "text/html")
    assert html.startswith('<iframe sandbox="allow-scripts"')
    assert BeautifulSoup(html, "html.parser").find_all(["b", "script"]) == []


def test_a_program_in_html_is_removed_where_outputs_are_strict(place: tuple[Language, str]) -> None:
    with started(place, outputs="strict") as strict:
        html = shown(strict, place[0].html % PROGRAM, "text/html")
        assert "<b>bold</b>" in html
        assert "document" not in html


def test_hostile_html_passes_where_outputs_are_trusted(place: tuple[Language, str]) -> None:
    """The control: the kernel does send it."""
    with started(place, outputs="trusted") as trusted:
        for html in (HOSTILE, PROGRAM):
            assert html in shown(trusted, place[0].html % html, "text/html")


@only_r
@pytest.mark.parametrize("code", ["plot(1:3)", "library(ggplot2); ggplot(mtcars, aes(wt, mpg)) + geom_point()"])
def test_plots_of_r(sandbox: Sandbox, code: str) -> None:
    assert base64.b64decode(shown(sandbox, code, "image/png")).startswith(PNG_HEAD)
    assert sandbox.run_code("options(jupyter.plot_mimetypes = c('text/plain', 'image/svg+xml'))").ok
    try:
        assert "data:image/svg+xml" in shown(sandbox, code, "text/html")
    finally:
        assert sandbox.run_code("options(jupyter.plot_mimetypes = c('text/plain', 'image/png'))").ok


@only_r
def test_a_drawing_of_r_is_svg_where_outputs_are_trusted(place: tuple[Language, str]) -> None:
    with started(place, outputs="trusted") as trusted:
        assert trusted.run_code("options(jupyter.plot_mimetypes = c('text/plain', 'image/svg+xml'))").ok
        assert SVG_HEAD in shown(trusted, "plot(1:3)", "image/svg+xml")


@only_r
def test_tables_of_r(sandbox: Sandbox) -> None:
    for code in ("data.frame(a = 1:2)", "tibble::tibble(a = 1:2)", "data.table::data.table(a = 1:2)"):
        html = shown(sandbox, code, "text/html")
        assert "<table" in html
        assert "<td>2</td>" in html


@only_r
def test_r_has_its_packages_and_says_itself_why_none_is_added(sandbox: Sandbox) -> None:
    assert sandbox.run_code("suppressPackageStartupMessages(library(tidyverse)); library(data.table)").ok
    assert sandbox.run_code('library(Cairo); CairoPNG("/mnt/data/cairo.png"); plot(1:3); dev.off()').ok
    found = sandbox.run_code("names(capabilities('cairo')); Sys.timezone(); Sys.info()[['user']]; nchar('Grüße')")
    assert [result.text for result in found.results] == ['[1] "cairo"', '[1] "Etc/UTC"', '[1] "sandbox"', "[1] 5"]
    found = sandbox.run_code("install.packages('praise', repos = 'https://cloud.r-project.org')")
    assert "/usr/local/lib/R/site-library" in "".join(found.logs.stderr)
    assert found.error is not None
    assert "unable to install packages" in found.error.value


@only_deno
def test_an_await_of_deno_that_never_ends_takes_the_kernel(place: tuple[Language, str]) -> None:
    """Deno interrupts what runs, and not what waits."""
    with started(place) as one:
        assert one.run_code(DENO.write).ok
        error = one.run_code("await new Promise(() => setTimeout(() => {}, 600000))", timeout=1).error
        assert error is not None
        assert (error.name, error.kept) == ("CellTimeout", "files")
        assert one.run_code(DENO.value[0]).text == "2"
        assert one.files.read("out.txt") == "made"


@only_deno
def test_a_syntax_error_of_deno_is_an_error(sandbox: Sandbox) -> None:
    error = sandbox.run_code("let y = ;").error
    assert error is not None
    assert (error.name, error.value) == ("Error", "Execution failed")


@only_deno
def test_what_deno_prints_late_is_its_own_cell_s(sandbox: Sandbox) -> None:
    """Most of it comes after the idle of the cell: who listens on gets it, and so does who asks for the cell alone."""
    done = sandbox.run_code("for (let i = 0; i < 20000; i++) console.log('L' + i)")
    assert "".join(done.logs.stdout).splitlines() == [f"L{number}" for number in range(20000)]
    assert sandbox.run_code("2").logs.stdout == []


@only_deno
def test_images_of_deno(sandbox: Sandbox) -> None:
    code = f"await Deno.jupyter.display({{'image/png': '{PNG}'}}, {{raw: true}})"
    assert base64.b64decode(shown(sandbox, code, "image/png")).startswith(PNG_HEAD)
    assert shown(sandbox, "Deno.jupyter.html`<i>tilted</i>`", "text/html") == "<i>tilted</i>"
    assert shown(sandbox, "Deno.jupyter.md`# Head`", "text/markdown") == "# Head"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kernel", ["ir", "deno"])
def test_the_image_of_all_has_each_language(engine: str, kernel: str) -> None:
    engine_is_here(engine)
    language = next(one for one in LANGUAGES.values() if one.kernel == kernel)
    with Sandbox(image="sandbox-kernel:all", kernel=kernel, engine=engine) as one:
        assert [result.text for result in one.run_code(language.value[0]).results] == [language.value[1]]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_image_of_all_has_bash_and_sql(engine: str) -> None:
    engine_is_here(engine)
    with Sandbox(image="sandbox-kernel:all", kernel="bash", engine=engine) as one:
        assert "".join(one.run_code("echo $((6 * 7))").logs.stdout).strip() == "42"
    with Sandbox(image="sandbox-kernel:all", kernel="sql", engine=engine) as one:
        assert "42" in str(one.run_code("SELECT 6 * 7 AS a").results[0].text)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_image_of_all_has_the_packages_of_data(engine: str) -> None:
    engine_is_here(engine)
    with Sandbox(image="sandbox-kernel:all", engine=engine) as one:
        assert one.run_code("import pandas; pandas.DataFrame({'a': [1]}).shape").text == "(1, 1)"
