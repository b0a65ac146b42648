"""What every room may use: errors, values, and where the package lies.

- `errors`: The tree of errors; each says whose fault it is, the limit, the value, what is left and the setting to
  change.
- `codes`: What a refusal is as a value, and the tables of all codes: severity, text and remedy.
- `screen_findings`: What the screen says of a cell: its findings, which of them were allowed, and a score.
- `behaviour`: What code did that matters, with one score.
- `model`: Frozen values that the parts hand to each other, with units in their names.
- `events`: What happens in a session, each as a value.
- `call_context`: For whom a call is made, however many tasks it goes through.
- `state_table`: What a table of states is.
- `tasks`: Background tasks with an owner: held while they run, heard of when they fail, and ended together.
- `descriptors`: Open files: passed from one process to another, and looked at for another's lock.
- `helper_processes`: Small processes of ours: how they are started, and which variables they get.
- `answer_allowance`: What one answer of a sandbox may make this process build.
- `json_memory`: What a piece of JSON will cost in memory, found before it is parsed.
- `prometheus_text`: Figures in Prometheus's text form.
- `heap`: Memory that large messages took, kept for the next one.
- `home_folder`: The home folder of a user, by the machine's table.
- `time_zone`: The time zone of this machine.
- `version`: The version of the package.
- `package_files`: Where the package lies, and what it brings along besides code.
- `remedies`: Commands in messages: what a person runs to mend what is wrong.
- `kernel_command`: The command of a kernel of ours, as a kernelspec has it.
"""
