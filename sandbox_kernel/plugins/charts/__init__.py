"""What a figure of matplotlib shows, as data beside its picture, for callers of the SDK. Without it, they get pictures.

- `plugin`: What this plugin adds.
- `chart_data`: The data of a figure, rebuilt on the host: it is an output as any other.
- `charts`: The same as values: a class for each kind of chart.

Package: `inside` (what reads the figure, in the kernel).
"""
