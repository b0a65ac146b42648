"""The Bash and SQL kernels of an image, in real sandboxes: ends, files, and outputs that the policy judges."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sandbox_kernel import AsyncSandbox, Execution, Sandbox
from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program
from tests.support.patience import within
from tests.support.roots import let_others_in, unpack

WITHOUT = pytest.mark.skipif(bubblewrap_program() is None, reason="there is no bwrap on this machine")
ON_BUBBLEWRAP = pytest.param("bubblewrap", marks=[WITHOUT, pytest.mark.long])
"""The kernels know no engine, and test_contexts.py has Bash on this one, too."""
HOSTILE = "<b onclick=alert(1)>bold</b><img src=x onerror=alert(1)>"
PROGRAM = "<b>bold</b><script>document.title = 1</script>"


@pytest.fixture(scope="module", params=["docker", ON_BUBBLEWRAP])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def image(engine: str, image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The image of the tests, or a root with the same files."""
    if engine == "docker":
        return image
    folder = tmp_path_factory.mktemp("root")
    let_others_in(folder)
    unpack(image, folder)
    return str(folder)


def start(kernel: str, engine: str, image: str, **settings: object) -> Sandbox:
    return Sandbox(kernel=kernel, engine=engine, image=image, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def bash(engine: str, image: str) -> Iterator[Sandbox]:
    with start("bash", engine, image) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def sql(engine: str, image: str) -> Iterator[Sandbox]:
    with start("sql", engine, image) as sandbox:
        yield sandbox


def out(execution: Execution) -> str:
    return "".join(execution.logs.stdout)


def failed(execution: Execution) -> tuple[str, bool]:
    assert execution.error is not None
    return execution.error.name, execution.error.from_sandbox


# --- Bash -------------------------------------------------------------------------------------------------------------


def test_bash_keeps_its_shell_and_has_a_terminal(bash: Sandbox) -> None:
    assert bash.run_code("x=5; mkdir -p /mnt/data/sub; cd /mnt/data/sub").ok
    found = bash.run_code("echo $x $PWD; [[ -t 1 ]] && tput cols; cd ..")
    assert (out(found), found.error) == ("5 /mnt/data/sub\n80\n", None)
    found = bash.run_code("echo out; echo err >&2; (exit 3)")
    assert (out(found), "".join(found.logs.stderr)) == ("out\n", "err\n")
    assert found.error is not None
    assert (found.error.name, found.error.value, found.error.from_sandbox) == ("ExitCode", "3", False)


def test_bash_has_no_input_and_does_not_wait_for_one(bash: Sandbox) -> None:
    assert out(bash.run_code("read x; echo $?; cat; cat /dev/tty; echo end", timeout=20)) == "1\nend\n"


def test_files_of_bash_come_in_and_go_out(bash: Sandbox) -> None:
    bash.files.write("in.txt", "brought")
    assert out(bash.run_code("cat in.txt; echo made > out.txt")) == "brought"
    assert bash.files.read("out.txt") == "made\n"


@pytest.mark.parametrize(
    "code", ["while :; do :; done", "sleep 600", "while :; do /bin/true; done", "cat <(sleep 600)"]
)
def test_a_timeout_of_bash_keeps_its_variables(code: str, bash: Sandbox) -> None:
    assert bash.run_code("kept=1").ok
    ended = bash.run_code(code, timeout=1)
    assert failed(ended) == ("CellTimeout", True)
    assert out(bash.run_code("echo $kept")) == "1\n"


@pytest.mark.parametrize(("kernel", "begin", "busy", "after"), [
    ("bash", "kept=1", "echo go; sleep 600", "echo $kept"),
    ("sql", "CREATE TABLE kept AS SELECT 1 AS x",
     "SELECT 'go'; SELECT count(*) FROM range(100000000000) a, range(1000) b", "FROM kept"),
])  # fmt: skip
async def test_an_interrupt(  # noqa: PLR0917 (pytest gives them by name)
    kernel: str, begin: str, busy: str, after: str, engine: str, image: str
) -> None:
    async with await AsyncSandbox.create(kernel=kernel, engine=engine, image=image) as sandbox:
        assert (await sandbox.run_code(begin)).ok
        begun = asyncio.Event()
        cell = sandbox.run_code(busy, on_stdout=lambda _: begun.set(), on_result=lambda _: begun.set())
        running = asyncio.create_task(cell)
        async with within(30):
            await begun.wait()
            assert await sandbox.interrupt()
            ended = await running
        assert failed(ended) == ("KeyboardInterrupt", False)
        found = await sandbox.run_code(after)
        assert "1" in (out(found) + (found.text or "")).split()


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ("x=x; while :; do x=$x$x; done", "ShellEnded", "exit code 137, SIGKILL"),
        ("head -c 2G /dev/zero | tail", "ExitCode", "137"),
    ],
)
def test_what_takes_all_memory_is_killed(code: str, name: str, value: str, engine: str, image: str) -> None:
    """And not the kernel, which is small: the next cell runs."""
    with start("bash", engine, image, memory="512M") as sandbox:
        error = sandbox.run_code(code, timeout=60).error
        assert error is not None
        assert error.name == name
        assert value in error.value
        assert out(sandbox.run_code("echo on")) == "on\n"


@pytest.mark.parametrize("code", ["yes", "while :; do echo flood; done", "cat /dev/urandom", "cat /dev/zero >&2"])
def test_a_flood_of_bash_ends_at_the_limit(code: str, engine: str, image: str) -> None:
    with start("bash", engine, image, output_limit="1M") as sandbox:
        assert failed(sandbox.run_code(code)) == ("OutputLimit", True)
        assert out(sandbox.run_code("echo on")) == "on\n"


def test_a_dead_kernel_is_followed_by_another(engine: str, image: str) -> None:
    with start("bash", engine, image) as sandbox:
        assert sandbox.run_code("echo made > out.txt").ok
        ended = sandbox.run_code("kill -9 $PPID; sleep 60")
        assert failed(ended) == ("KernelDied", True)
        assert out(sandbox.run_code("cat out.txt")) == "made\n"


def test_a_dead_shell_is_followed_by_another(bash: Sandbox) -> None:
    ended = bash.run_code("x=1; exit 4")
    assert failed(ended) == ("ShellEnded", False)
    assert out(bash.run_code("echo [$x]")) == "[]\n"


def test_escape_sequences_of_bash_are_judged(bash: Sandbox) -> None:
    """That the kernel sends them is in tests/frameworks/test_bash_kernel.py."""
    assert out(bash.run_code("printf '\\e]0;title\\a\\e[31mred\\e[0m\\e[2J\\e[6n'")) == "\x1b[31mred\x1b[0m"


@pytest.mark.parametrize(("html", "outputs", "passes"), [
    (HOSTILE, "safe", False), (PROGRAM, "strict", False), (HOSTILE, "trusted", True), (PROGRAM, "trusted", True),
])  # fmt: skip
def test_html_of_display_is_judged(html: str, outputs: str, passes: bool, engine: str, image: str) -> None:
    with start("bash", engine, image, outputs=outputs) as sandbox:
        found = sandbox.run_code(f"printf '%s' '{html}' > page.html; display page.html")
        assert found.error is None
        [result] = found.results
        assert "bold</b>" in str(result.data["text/html"])
        assert (html in str(result.data["text/html"])) is passes


# --- SQL --------------------------------------------------------------------------------------------------------------


def test_sql_reads_and_writes_files_of_scratch(sql: Sandbox) -> None:
    sql.files.write("in.csv", "name,size\na,1\nb,2\n")
    found = sql.run_code("COPY (SELECT sum(size) AS s FROM 'in.csv') TO 'out.csv'; SELECT * FROM 'out.csv'")
    assert found.error is None
    assert (found.text or "").split() == ["s", "BIGINT", "------", "3"]
    assert sql.files.read("out.csv") == "s\n3\n"


def test_an_error_of_sql_has_its_place(sql: Sandbox) -> None:
    error = sql.run_code("SELECT\n  'x'::INT").error
    assert error is not None
    assert (error.name, error.from_sandbox) == ("ConversionException", False)
    assert "LINE 2:" in error.traceback


def test_a_timeout_of_sql_keeps_its_tables(sql: Sandbox) -> None:
    assert sql.run_code("CREATE OR REPLACE TABLE kept AS SELECT 7 AS x").ok
    ended = sql.run_code("SELECT count(*) FROM range(100000000000) a, range(1000) b", timeout=1)
    assert failed(ended) == ("CellTimeout", True)
    assert "7" in (sql.run_code("FROM kept").text or "").split()


def test_sql_knows_what_memory_it_has(engine: str, image: str) -> None:
    with start("sql", engine, image, memory="512M") as sandbox:
        ended = sandbox.run_code("SELECT count(DISTINCT hash(range)) FROM range(40000000)", timeout=100)
        assert failed(ended) == ("OutOfMemoryException", False)
        assert "1" in (sandbox.run_code("SELECT 1 AS x").text or "").split()


@pytest.mark.parametrize("code", ["INSTALL httpfs", "FROM 'https://192.0.2.1/x.parquet'"])
def test_sql_has_no_network(code: str, sql: Sandbox) -> None:
    assert failed(sql.run_code(code, timeout=10))[0] in {"IOException", "Error"}


def test_markup_in_values_is_text(sql: Sandbox) -> None:
    found = sql.run_code(f"SELECT '{PROGRAM}' AS x")
    html = str(found.results[-1].data["text/html"])
    assert "&lt;script&gt;" in html
    assert "<script" not in html
