"""SQL as a kernel: DuckDB, in memory, with the files of the working directory at hand.

Statements run in a thread, so that an interrupt is heard meanwhile. Rows are read as they are shown: a query whose
first rows are there at once shows them at once. DuckDB turns values into text, and does so for types that Python lacks.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from html import escape
from itertools import islice
from typing import Any

import duckdb
import kernel_base
from kernel_base import Content, Kernel

MAX_ROWS, MAX_COLUMNS = 100, 100
"""Shown of a result."""
MAX_COUNTED = 100_000
"""Rows that are read to say how many more there are."""
MAX_VALUE, MAX_PLAIN_VALUE = 1000, 60
"""Characters of a value, in a table of HTML and in one of text."""
MAX_MATCHES = 500
INTERRUPT_SECONDS = 0.05
"""From one try to interrupt to the next: one that comes before a statement begins has no effect."""
NOWHERE = "/nonexistent"
MEMORY = "/tmp"  # noqa: S108 (DuckDB makes nothing there)
"""Where files are memory of the sandbox."""

OPTIONS: dict[str, Any] = {
    # No extension comes from the network by itself. Those for Parquet, JSON and time zones are built in.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "custom_extension_repository": NOWHERE,
    "autoinstall_extension_repository": NOWHERE,
    "python_enable_replacements": False,  # a name means a table, and no variable of this program
}
_WORD = re.compile(r"[\w.]*$")
_FILE = re.compile(r"'([^'\n]*)$")
_LINE = re.compile(r"^LINE (\d+)(?=:)", re.MULTILINE)


class SqlKernel(Kernel):
    """One connection to one database in memory."""

    implementation = "sandbox_sql"
    banner = f"SQL (DuckDB {duckdb.__version__})"
    language_info = {  # noqa: RUF012 (a constant)
        "name": "sql",
        "version": duckdb.__version__,
        "mimetype": "text/x-sql",
        "file_extension": ".sql",
        "codemirror_mode": "sql",
        "pygments_lexer": "sql",
    }

    def __init__(self, connection_file: str) -> None:
        super().__init__(connection_file)
        self.database = duckdb.connect(":memory:", config=OPTIONS | {"temp_directory": temporary_folder()})

    def execute(self, code: str, *, allow_stdin: bool) -> Content:
        try:
            statements = self.database.extract_statements(code)
            for number, statement in enumerate(statements, 1):
                table = self.in_thread(lambda one=statement: run(self.database, one))
                if table is not None:
                    self.show(table, is_last=number == len(statements))
        except duckdb.Error as error:
            if isinstance(error, duckdb.InterruptException):
                return self.error("KeyboardInterrupt", "", "interrupted")
            text = str(error).rstrip()
            return self.error(type(error).__name__, text.partition("\n")[0], *text.split("\n"))
        return {}

    def show(self, table: Table, *, is_last: bool) -> None:
        content = {"data": {"text/html": table.html(), "text/plain": table.plain()}, "metadata": {}}
        if is_last:
            self.publish("execute_result", content | {"execution_count": self.count})
        else:
            self.publish("display_data", content)

    def in_thread(self, call: Callable[[], Any]) -> Any:
        """Return what `call` returns; what interrupts the cell interrupts the database."""
        results: list[Any] = []

        def run() -> None:
            try:
                results.append(call())
            except BaseException as error:  # it is raised below
                results.append(error)
            os.write(self.woken, b"x")

        if self.interrupts:
            raise duckdb.InterruptException
        threading.Thread(target=run, daemon=True).start()
        while not results:
            self.wait(seconds=INTERRUPT_SECONDS if self.interrupts else None)
            if self.interrupts and not results:
                self.database.interrupt()
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    # --- questions ----------------------------------------------------------------------------------------------------

    def complete(self, code: str, cursor: int) -> Content:
        before = code[:cursor]
        if found := _FILE.search(before):
            matches, start = files(found[1]), found.start(1)
        else:
            found = _WORD.search(before)
            word = found[0] if found else ""
            start = cursor - len(word)
            matches = self.names(word)
        return {"matches": matches[:MAX_MATCHES], "cursor_start": start, "cursor_end": cursor, "metadata": {}}

    def names(self, word: str) -> list[str]:
        """Return the names that begin with a word: of columns and tables first, then keywords and functions."""
        qualifier, _, start = word.rpartition(".")
        columns = "SELECT DISTINCT column_name FROM duckdb_columns() WHERE NOT internal"
        if qualifier:
            queries = [f"{columns} AND table_name = $table"]
        else:
            queries = [
                columns,
                "SELECT table_name FROM duckdb_tables() UNION SELECT view_name FROM duckdb_views() WHERE NOT internal",
                "SELECT upper(keyword_name) FROM duckdb_keywords()",
                "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_name ~ '^[a-z]'",
            ]
        found: dict[str, None] = {}
        for query in queries if word else queries[1:2]:
            cursor = self.database.cursor()
            rows = cursor.execute(
                f"FROM ({query}) t(name) WHERE starts_with(lower(name), $start) ORDER BY name",
                {"start": start.lower()} | ({"table": qualifier} if qualifier else {}),
            ).fetchmany(MAX_MATCHES)
            found |= dict.fromkeys(f"{qualifier}.{name}" if qualifier else name for (name,) in rows)
        return list(found)

    def inspect(self, code: str, cursor: int) -> Content:
        start, end = _WORD.search(code[:cursor]), re.match(r"\w*", code[cursor:])
        word = (start[0] if start else "") + (end[0] if end else "")
        text = ""
        if word:
            reader = self.database.cursor()
            rows = reader.execute(
                "SELECT DISTINCT concat(function_name, '(', array_to_string(parameters, ', '), ')  ', description)"
                " FROM duckdb_functions() WHERE function_name = lower($word) LIMIT 20",
                {"word": word},
            ).fetchall()
            columns = reader.execute(
                "SELECT concat(column_name, '  ', data_type) FROM duckdb_columns() WHERE table_name = $word",
                {"word": word},
            ).fetchall()
            text = "\n".join(line for (line,) in (*columns, *rows))
        return {"found": bool(text), "data": {"text/plain": text} if text else {}, "metadata": {}}

    def is_complete(self, code: str) -> Content:
        try:
            self.database.extract_statements(code)
        except duckdb.Error as error:
            *_, line, mark = ("", *str(error).split("\n"))
            more = "unterminated" in str(error) or len(mark) >= len(line.rstrip())  # it marks the last word
            return {"status": "incomplete", "indent": ""} if more else {"status": "invalid"}
        return {"status": "complete"}


class Table:
    """What is shown of a result: its first rows, and how many more there are."""

    def __init__(self, names: list[str], types: list[str], fetch: Callable[[int], list[tuple[Any, ...]]]) -> None:
        self.names, self.types = names[:MAX_COLUMNS], types[:MAX_COLUMNS]
        self.rows = [[None if value is None else str(value) for value in row[:MAX_COLUMNS]] for row in fetch(MAX_ROWS)]
        more = 0
        if len(self.rows) == MAX_ROWS:
            while more < MAX_COUNTED and (count := len(fetch(10_000))):
                more += count
        notes = [f"{'at least ' if more >= MAX_COUNTED else ''}{more} more rows"] if more else []
        if len(names) > MAX_COLUMNS:
            notes.append(f"{len(names) - MAX_COLUMNS} more columns")
        self.note = ", ".join(notes)

    def html(self) -> str:
        head = "".join(f"<th>{escape(name)}<br><small>{escape(kind)}</small></th>" for name, kind in self.heads())
        rows = (
            "".join("<td><i>NULL</i></td>" if one is None else f"<td>{escape(cut(one, MAX_VALUE))}</td>" for one in row)
            for row in self.rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        note = f"<p>{self.note}</p>" if self.note else ""
        return f'<table class="dataframe"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}'

    def plain(self) -> str:
        lines = [self.names, self.types, *([("NULL" if one is None else one) for one in row] for row in self.rows)]
        cells = [[cut(" ".join(one.split()), MAX_PLAIN_VALUE) for one in line] for line in lines]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        texts = [
            "  ".join(one.ljust(width) for one, width in zip(line, widths, strict=True)).rstrip() for line in cells
        ]
        texts.insert(2, "  ".join("-" * width for width in widths))
        return "\n".join([*texts, self.note] if self.note else texts)

    def heads(self) -> zip[tuple[str, str]]:
        return zip(self.names, self.types, strict=True)


def run(database: Any, statement: Any) -> Table | None:
    """Run one statement; return what it shows."""
    if statement.type == duckdb.StatementType.SELECT:
        query = without_end(statement.query)
        try:
            relation = database.sql(query)  # nothing runs yet
        except duckdb.Error:
            pass  # it is wrong, which is said below of the user's own lines, or it cannot be a part of another one
        else:
            names, types = list(relation.columns), [str(each).strip('"') for each in relation.types]
            try:
                database.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM (\n{query}\n)")
                return Table(names, types, database.fetchmany)
            except duckdb.Error as error:  # the user's first line is the second one there
                raise type(error)(_LINE.sub(lambda found: f"LINE {int(found[1]) - 1}", str(error))) from None
    database.execute(statement)
    names, types = [each[0] for each in database.description], [str(each[1]) for each in database.description]
    if names == ["Success"] or (names == ["Count"] and statement.type == duckdb.StatementType.CREATE):
        return None
    return Table(names, types, database.fetchmany)


def without_end(query: str) -> str:
    """Return a statement without the semicolon and the comments after it."""
    data = query.encode(errors="replace")
    kinds = duckdb.tokenize(query)
    ends = [at for at, kind in kinds if kind == duckdb.token_type.operator and data[at : at + 1] == b";"]
    return data[: ends[0]].decode() if ends else query


def cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"


def files(start: str) -> list[str]:
    """Return the files whose paths begin so."""
    folder, _, name = start.rpartition("/")
    try:
        with os.scandir(folder or ("/" if start.startswith("/") else ".")) as entries:
            found = [entry.name + "/" * entry.is_dir() for entry in entries if entry.name.startswith(name)]
    except OSError:
        return []
    return sorted(start[: len(start) - len(name)] + each for each in islice(found, MAX_MATCHES))


def temporary_folder() -> str:
    """Return where DuckDB puts what does not fit into memory: nowhere, unless the sandbox has a disk.

    /tmp is memory of the sandbox too. What spilled there would end the sandbox where a statement should fail.
    """
    folder = os.environ.get("TMPDIR", MEMORY)
    return "" if folder == MEMORY else os.path.join(folder, f"duckdb-{os.getpid()}")


def main() -> None:
    kernel_base.run(SqlKernel)


if __name__ == "__main__":
    main()
