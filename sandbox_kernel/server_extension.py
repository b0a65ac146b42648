"""The name by which a Jupyter Server is configured to load the plugin `browser_policy`; without its folder, nothing."""

from .plugins import index


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    there = index.is_here("browser_policy")
    return [{"module": "sandbox_kernel.plugins.browser_policy.extension", "name": __name__}] if there else []
