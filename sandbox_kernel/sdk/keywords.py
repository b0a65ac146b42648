"""The settings as keywords of `Sandbox`. Written by `make settings`, of the table of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class SettingKeywords(TypedDict, total=False):
    """The settings, as keywords; `sandbox-kernel settings` explains them. None is the default."""

    preset: str | None
    engine_by_risk: str | Mapping[str, str] | None
    engine: str | None
    runtime: str | None
    image: str | None
    kernel: str | None
    time_zone: str | None
    undo: str | None
    fuel: int | None
    pool: int | None
    preload: str | Sequence[str] | None
    memory: str | int | None
    cpus: float | None
    cpuset: str | int | None
    core_scheduling: str | None
    pids: int | None
    limits: str | None
    open_files: int | None
    scratch: str | None
    scratch_size: str | int | None
    tmp_size: str | int | None
    shm_size: str | int | None
    cell_timeout: str | float | None
    interrupt_grace: str | float | None
    idle_timeout: str | float | None
    start_timeout: str | float | None
    output_limit: str | int | None
    output_messages: int | None
    message_limit: str | int | None
    display_lines: int | None
    display_size: str | int | None
    outputs: str | None
    uploads: str | None
    downloads: str | None
    file_limit: str | int | None
    folder_limit: str | int | None
    folder_files: int | None
    datasets: str | Sequence[str] | Mapping[str, str] | None
    volumes: str | Sequence[str] | Mapping[str, str] | None
    kubernetes_context: str | None
    kubernetes_namespace: str | None
    kubernetes_lifetime: str | float | None
    kubernetes_warm_pool: str | None
    network: str | Sequence[str] | None
    secrets: str | Sequence[str] | Mapping[str, Mapping[str, object]] | None
    network_connections: int | None
    network_bytes: str | int | None
    network_timeout: str | float | None
    network_proxy: str | None
    network_certificates: str | None
    packages: str | Sequence[str] | None
    packages_index: str | None
    packages_size: str | int | None
    screen: str | None
    screen_threshold: int | None
    screen_rules: str | None
    screen_overrides: str | None
    screen_override_needs: str | None
    screen_judges: str | Sequence[str] | None
    screen_command: str | Sequence[str] | None
    screen_judge_seconds: str | float | None
    screen_judge_fails: str | None
    monitor: str | Mapping[str, object] | None
    monitor_webhook: str | None
    monitor_command: str | Sequence[str] | None
    trace: str | None
    display_name: str | None
    clients: str | None
    plugins: str | Sequence[str] | None
    snapshots_size: str | int | None
    snapshots_age: str | float | None
    pause_memory: str | float | None
    audit: str | None
    audit_key: str | None
    audit_size: str | int | None
    audit_source: str | None
