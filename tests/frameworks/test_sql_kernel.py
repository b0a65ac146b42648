"""The SQL kernel of an image, on this machine: jupyter_kernel_test's suite, and what DuckDB is expected to do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import jupyter_kernel_test
import pytest

from tests.support.image_kernels import HostKernel, install


@pytest.fixture(scope="module", autouse=True)
def _by_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("jupyter")
    install("sql", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        yield


class TestSuite(jupyter_kernel_test.KernelTests):
    kernel_name = "host-sql"
    language_name = "sql"
    file_extension = ".sql"
    completion_samples = [{"text": "SELE", "matches": {"SELECT"}}]  # noqa: RUF012
    complete_code_samples = ["SELECT 1", "FROM range(3); SELECT 2;"]  # noqa: RUF012
    incomplete_code_samples = ["SELECT 'a", "SELECT 1 FROM"]  # noqa: RUF012
    invalid_code_samples = ["selec 1", "SELECT 1 1 FROM x"]  # noqa: RUF012
    code_generate_error = "SELECT * FROM no_such_table"
    code_inspect_sample = "upper"
    code_execute_result = [  # noqa: RUF012
        {"code": "SELECT 1 + 2 AS x", "result": "x\nINTEGER\n-------\n3"},
    ]
    code_display_data = [{"code": "SELECT 1; SET threads = 1", "mime": "text/html"}]  # noqa: RUF012


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostKernel]:
    kernel = HostKernel("sql", tmp_path_factory.mktemp("sql"))
    yield kernel
    kernel.close()


def lines(kernel: HostKernel, code: str) -> list[list[str]]:
    """Return the last result of a cell: the words of its lines, without names, types and a rule."""
    ran = kernel.run(code)
    assert ran.error is None
    return [line.split() for line in ran.shown[-1]["text/plain"].split("\n")[3:]]


def test_cells_share_tables_and_each_query_shows_its_result(sql: HostKernel) -> None:
    sql.run("CREATE TABLE one AS SELECT 1 AS x, 'a' AS y")
    ran = sql.run("INSERT INTO one VALUES (2, NULL); -- two\nFROM one; SELECT count(*) AS n FROM one; -- the end;")
    assert [data["text/plain"].split("\n")[3:] for data in ran.shown] == [["1"], ["1        a", "2        NULL"], ["2"]]
    assert [kind for kind, _ in ran.outputs] == ["display_data", "display_data", "execute_result"]


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.json", "t.csv.gz"])
def test_files_are_read_and_written(name: str, sql: HostKernel) -> None:
    sql.run(f"COPY (SELECT range AS n, 'x' || range AS s FROM range(3)) TO '{name}'")
    assert (sql.folder / name).exists()
    assert lines(sql, f"SELECT * FROM '{name}' ORDER BY n") == [["0", "x0"], ["1", "x1"], ["2", "x2"]]


def test_long_results_are_cut_and_that_is_said(sql: HostKernel) -> None:
    assert lines(sql, "FROM range(250)")[-1] == ["150", "more", "rows"]
    assert lines(sql, "FROM range(100)")[-1] == ["99"]
    assert lines(sql, "FROM range(100000000000)")[-1] == ["at", "least", "100000", "more", "rows"]
    wide = ", ".join(f"{number} AS c{number}" for number in range(130))
    assert lines(sql, f"SELECT {wide}")[-1] == ["30", "more", "columns"]
    shown = sql.run("SELECT repeat('x', 1000000) AS x").shown[0]
    assert len(shown["text/html"]) < 2000
    assert len(shown["text/plain"]) < 300


def test_values_are_text_as_duckdb_writes_it_and_no_markup(sql: HostKernel) -> None:
    query = (
        "SELECT TIMESTAMPTZ '2026-01-02 03:04:05+00' AS t, [1, NULL] AS l, 'infinity'::DATE AS d, '\\x00'::BLOB AS b"
    )
    assert lines(sql, f"SET TimeZone = 'UTC'; {query}; -- end") == [
        ["2026-01-02", "03:04:05+00", "[1,", "NULL]", "infinity", "\\x00"]
    ]
    html = sql.run("SELECT '<script>alert(1)</script>' AS \"<b>\"").shown[0]["text/html"]
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html


@pytest.mark.parametrize(
    ("code", "name", "place"),
    [
        ("SELECT\n  nothing FROM range(1)", "BinderException", ""),
        ("selec 1", "ParserException", "LINE 1: selec 1\n        ^"),
        ("SELECT 1;\nFROM no_such", "CatalogException", "Table with name no_such"),
        ("SELECT\n'x'::INT", "ConversionException", "LINE 2: 'x'::INT\n           ^"),
        ("SELECT error('oops')", "InvalidInputException", "oops"),
    ],
)
def test_errors_are_duckdbs_own_with_the_place(code: str, name: str, place: str, sql: HostKernel) -> None:
    ran = sql.run(code)
    assert ran.error is not None
    assert ran.error[0] == name
    assert "\n" not in ran.error[1]
    assert place in "\n".join(ran.reply["traceback"])


def test_an_error_ends_the_cell_and_leaves_what_was_done(sql: HostKernel) -> None:
    ran = sql.run("CREATE TABLE kept AS SELECT 1 AS x; SELECT error('no'); CREATE TABLE never AS SELECT 1")
    assert ran.error is not None
    assert lines(sql, "FROM kept") == [["1"]]
    assert sql.run("FROM never").error is not None


def test_an_interrupt_ends_a_query_and_what_comes_after_it(sql: HostKernel) -> None:
    sql.run("CREATE TABLE stays AS SELECT 5 AS x")
    threading.Timer(0.5, sql.interrupt).start()
    ran = sql.run("SELECT count(*) FROM range(100000000000) a, range(1000) b; CREATE TABLE after AS SELECT 1")
    assert ran.error == ("KeyboardInterrupt", "")
    assert lines(sql, "FROM stays") == [["5"]]
    assert sql.run("FROM after").error is not None


@pytest.mark.parametrize(
    "code",
    ["INSTALL httpfs", "LOAD httpfs", "FROM 'https://127.0.0.1:9/x.parquet'", "FROM 's3://x/y.csv'", "LOAD spatial"],
)
def test_no_extension_is_fetched_and_that_is_said_at_once(code: str, sql: HostKernel) -> None:
    begin = time.monotonic()
    ran = sql.run(code)
    assert ran.error is not None
    assert time.monotonic() - begin < 2


def test_no_name_means_a_variable_of_the_kernel(sql: HostKernel) -> None:
    ran = sql.run("FROM OPTIONS")
    assert ran.error is not None
    assert ran.error[0] == "CatalogException"


def test_completions_and_help_know_tables_columns_and_files(sql: HostKernel) -> None:
    sql.run("CREATE TABLE people AS SELECT 1 AS person_age; COPY people TO 'people.parquet'")
    assert sql.ask("complete", "FROM peo", 8)["matches"] == ["people"]
    assert sql.ask("complete", "SELECT people.pers", 18)["matches"] == ["people.person_age"]
    assert sql.ask("complete", "FROM 'peop", 10)["matches"] == ["people.parquet"]
    assert "person_age  INTEGER" in sql.ask("inspect", "people", 2)["data"]["text/plain"]
