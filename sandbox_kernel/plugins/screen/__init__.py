"""Code that is about to run, read before it does: what it looks like it would do, by rules that are data.

It is triage and not the wall: whatever it does not find runs in the sandbox all the same. Nothing of a cell is run.

- `plugin`: What this plugin adds.
- `settings`: Its settings, with how an operator's rules are written.
- `codes`: What code that is about to run looks like it would do.
- `request_guard`: What the screen says of a request before it goes into the sandbox.
- `screen`: The screen of one session: cells in their order.
- `overrides`: Comments by which a cell allows what is found in it: their form, owner and end.
- `override_report`: All overrides of files, in force or not.
- `python_reader`: The Python of a cell: names by imports and simple assignments, constant texts, and what is called.
- `ipython_syntax`: A cell as IPython would run it: prompts, magics, `!` and `?` turned into Python, line for line.
- `magic_reader`: Magics of IPython: which run a shell, run Python, write files, show pages.
- `known_names`: What dotted names mean to the Python reader.
- `shell_reader`: Shell commands: split into simple ones, unwrapped, and looked up in the rules.
- `path_rules`: Which calls take paths, and what it means to read, write, delete or search one.
- `rule_index`: The rules, which are files in `rules/`, by what they look for.
- `operator_rules`: An operator's file of rules: TOML that adds rules, weighs them, switches them off.
- `cell_findings`: The findings of one cell while it is read, with their places.
- `file_parts`: A file in the parts that are read as cells, and what is found in each.
- `judges`: Who is asked about cells besides the rules: functions and programs of the operator's.
- `judge_process`: The process in which one function of the operator's judges cells.
- `agent_hook`: Answers the hook that a coding agent runs before a tool.
- `language_server`: What editors show of it, by the language server protocol.
- `command`: The command: reads notebooks and scripts, and prints what is found for people, as JSON, and as SARIF.
"""
