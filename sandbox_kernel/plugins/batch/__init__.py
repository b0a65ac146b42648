"""One notebook or script through one sandbox, with a report and an exit code that says what happened.

- `plugin`: What this plugin adds: the commands `run`, `submit` and `result`, a setting, and its codes.
- `codes`: What a batch run refuses, and how it ends.
- `exit_codes`: Exit codes of a run, and the rules that choose one.
- `policy_events`: What was refused during a run, and which of it honest code would not have done.
- `many`: Several notebooks in one command, each a run of its own.
- `again`: One source several times, and what it did otherwise.
- `variations`: Under which circumstances that is, and in what two runs differ.
- `answers`: Answers of earlier runs of the same.
- `private_folder`: Folders of the user's own, in which runs are kept.
- `settings`: The table of engines by risk.
- `risk`: The engine of a run by what the screen finds in its code.
- `source_notebook`: A notebook or a script, with its parameters, as a notebook without outputs.
- `run_report`: The report of a run; a JSON Schema beside it describes it.
- `input_files`: Files that go in before the first cell, those that the code names, and hashes of what came out.
- `executed_notebook`: Messages as outputs of the executed notebook, by nbclient.
- `output_stream`: stdout and stderr, for readers that pause or go.
- `progress`: What a run says while it runs.
- `run`: One run: a sandbox, the inputs, the cells, and at every moment a notebook and a report.
- `background_command`: Runs that outlive the shell, and what became of them.
- `command`: `sandbox-kernel run SOURCE`: options, signals, and the summary at the end.
"""
