"""The logic of action.yml, on any code host: which files models have written, what the screen finds, how they run.

`BASE`, `MODELS`, `RUN`, `THRESHOLD` and `RESULTS` are variables. The checkout is the working folder, and belongs to
strangers: names of files are arguments that begin with ./, and nothing of it is imported. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

MODELS = (
    r"anthropic\.com|\bclaude\b|\bcopilot\b|\bcodex\b|\bchatgpt\b|openai\.com|\bgemini\b|\bcursor(agent)?\b|\bdevin\b"
    r"|\baider\b|\bwindsurf\b|\bjules\b|\bamazon ?q\b|^(generated|assisted)-by:"
)
"""Where models and their tools sign: authors, committers, trailers, and the first words of a line."""
SUFFIXES = (".py", ".ipynb", ".sh", ".bash")
RUNS = {"none": (), "notebooks": (".ipynb",), "all": (".ipynb", ".py")}
MAX_FILES = 200
VERDICTS = ("passed", "its code failed", "no proper notebook", "the sandbox failed", "met a limit", "broke the policy")
OURS = ("sandbox-kernel",)


def git(*words: str) -> str:
    done = subprocess.run(["git", "-c", "core.quotePath=off", *words], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode(errors="surrogateescape")


def written_by_models(base: str, models: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Return the commits since `base` that a model has signed, and the files that they have made or changed."""
    if not re.fullmatch("[0-9a-f]{40,64}", base):
        raise SystemExit("BASE is not the hash of a commit")
    since = f"{base}..HEAD" if set(base) != {"0"} else "HEAD"
    commits, files = [], set()
    for commit in git("rev-list", "--no-merges", since).split():
        # A line of its own for whoever signs, and the message, whose last lines are trailers.
        signed = git("show", "-s", "--format=%an <%ae>%n%cn <%ce>%n%(trailers:only,unfold)", commit)
        body = git("show", "-s", "--format=%b", commit)
        lines = [*signed.splitlines(), *(line for line in body.splitlines() if "enerated with" in line)]
        if any(models.search(line) for line in lines):
            commits.append(commit)
            names = git(
                "diff-tree", "--root", "-r", "-z", "--no-commit-id", "--name-only", "--diff-filter=ACMR", commit
            )
            files |= {name for name in names.split("\0") if name.endswith(SUFFIXES)}
    return commits, sorted(name for name in files if Path(name).is_file() and not Path(name).is_symlink())


def screened(files: list[str], threshold: str, results: Path) -> dict[str, tuple[int, str]]:
    """Write SARIF; return points and codes by file."""
    command = [*OURS, "screen", "--screen-overrides", "forbid", "--screen-threshold", str(min(int(threshold), 100))]
    named = [f"./{name}" for name in files]
    found: dict[str, tuple[int, str]] = {}
    for form in ("sarif", "json"):
        with (results / f"screen.{form}").open("wb") as file:
            subprocess.run([*command, "--format", form, *named], check=False, stdout=file)
    for row in json.loads((results / "screen.json").read_bytes())["files"]:
        codes = {one["code"] for cell in row["cells"] for one in cell["findings"]}
        found[row["file"][2:]] = row["score"], ", ".join(sorted(codes)[:8])
    return found


def run(name: str, number: int, results: Path) -> int:
    """Run a file in a sandbox; return the exit code."""
    limits = ("--memory", "2G", "--timeout", "5m", "--total-timeout", "15m", "--screen", "warn", "--quiet")
    places = ("--output", str(results / f"{number}"), "--report", str(results / f"{number}.json"))
    return subprocess.run([*OURS, "run", f"./{name}", *limits, *places], check=False).returncode


def shown(name: str) -> str:
    """Return the name of a file as Markdown has it, whatever it holds."""
    return f"`{re.sub('[^A-Za-z0-9_./ -]', '?', name)[:120]}`"


def main() -> int:
    results = Path(os.environ["RESULTS"])
    results.mkdir(parents=True, exist_ok=True)
    models = re.compile(os.environ["MODELS"] or MODELS, re.IGNORECASE)
    suffixes, threshold = RUNS[os.environ["RUN"]], os.environ["THRESHOLD"]
    commits, files = written_by_models(os.environ["BASE"], models)
    lines = [f"{len(commits)} commits of models, {len(files)} files of theirs", ""]
    bad = len(files) > MAX_FILES
    if bad:
        lines += [f"Only {MAX_FILES} of them were looked at.", ""]
        files = files[:MAX_FILES]
    if files:
        lines += ["| File | Points | Findings | Run |", "| --- | --- | --- | --- |"]
        found = screened(files, threshold, results)
        for number, name in enumerate(files, 1):
            points, codes = found.get(name, (100, "it could not be read"))
            verdict = ""
            if name.endswith(suffixes) and suffixes:
                code = run(name, number, results)
                verdict = VERDICTS[code] if code < len(VERDICTS) else "was stopped"
                bad = bad or code != 0
            bad = bad or points >= int(threshold)
            lines.append(f"| {shown(name)} | {points} | {codes} | {verdict} |")
    text = "\n".join([*lines, "", "Found nothing is not harmless: the screen is triage, the sandbox is the wall.", ""])
    (results / "comment.md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(text)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
