"""Where gVisor ends an attack otherwise than runc does: what it says, and why that is no way out."""

from __future__ import annotations

OWN = (
    "gVisor is a kernel of its own between the cell and the machine's: the call changes something in this kernel, "
    "which belongs to the session and dies with it; the machine's kernel never sees it"
)
LACKS = "gVisor's kernel does not have it, and says so in its own words"
OUTSIDE = (
    "gVisor's processes and files are memory to the engine: the limit of memory ends them, and the sandbox with it"
)

OPEN_FILES = (
    "gVisor checks the user of a process's open files, not whether it may be debugged; the host believes an agent "
    "nothing once a cell has run, so that a cell which speaks in its place gets what it could send anyway"
)

_BY_REASON: dict[str, dict[str, str]] = {
    LACKS: {
        "physical_addresses": "ENOENT",
        "the_kernel_s_log": "ENOENT",
        "handle_of_the_root_folder": "ENOTSUP",
        "reading_another_process_s_memory": "ENOSYS",
        "writing_another_process_s_memory": "ENOSYS",
        "taking_another_process_s_file": "ENOSYS",
        "entering_a_namespace": "ENOENT",
        "mount_by_the_new_calls": "ENOSYS",
        "copy_of_the_mount_tree": "ENOSYS",
        "making_mounts_writable_by_attribute": "ENOSYS",
        "file_by_its_handle": "ENOTSUP",
        "key_in_a_keyring": "EACCES",
        "reading_a_keyring": "EACCES",
        "performance_counters": "ENODEV",
        "addresses_that_are_not_random": "EINVAL",
        "user_pages_spliced_into_a_pipe": "ENOSYS",
        "ambient_capabilities": "EINVAL",
        "realtime_scheduling": "EINVAL",
        "typing_into_a_terminal": "ENOTTY",
        "netlink_to_the_netfilter": "EPROTONOSUPPORT",
        "netlink_to_the_generic_families": "EPROTONOSUPPORT",
        "vsock_to_the_hypervisor": "EAFNOSUPPORT",
        "crypto_socket": "EAFNOSUPPORT",
        "address_of_its_own": "ENOTTY",
        "packets_with_a_firewall_mark": "ENOPROTOOPT",
        "packets_with_a_foreign_address": "EADDRNOTAVAIL",
        "file_of_huge_pages": "EINVAL",
    },
    f"{OWN}: its log is made up": {"the_kernel_s_log_by_system_call": "worked"},
    f"{OWN}: a process may debug another of its own user": {"ptrace_of_another_process": "worked"},
    f"{OWN}: rights in a namespace of gVisor's are rights over gVisor's objects": {
        "new_user_namespace": "worked",
        "new_mount_namespace": "worked",
        "new_cgroup_namespace": "worked",
        "new_hostname_namespace": "worked",
        "new_ipc_namespace": "worked",
        "new_process_namespace": "worked",
        "new_network_namespace": "worked",
        "child_in_a_new_user_namespace": "worked",
        "crossing_the_filter_by_a_child": "worked",
    },
    f"{OWN}: queues, rings and asynchronous requests of its own": {
        "io_uring": "worked",
        "asynchronous_io_by_the_old_calls": "worked",
        "message_queue_by_name": "worked",
    },
    f"{OWN}: the engine's filter is for the machine's kernel, and gVisor does not report no_new_privs": {
        "program_in_memory_with_more_rights": "worked",
        "setuid_program_with_more_rights": "worked",
    },
    f"{OWN}: a node can be made, but not opened": {
        "device_node_for_the_memory": "worked",
        "device_node_for_a_disk": "worked",
        "reading_through_a_device_node": "ENXIO",
    },
    f"{OWN}: /dev/fuse and /dev/net/tun are gVisor's, useless without capabilities": {"devices_of_the_host": "worked"},
    f"{OWN}: its scheduler has no priorities": {"highest_priority": "worked"},
    f"{OWN}: the machine ends the whole sandbox, whatever its processes ask for": {
        "being_spared_when_memory_ends": "worked"
    },
    f"{OWN}: netlink knows the loopback only": {
        "netlink_to_the_routing_table": "worked",
        "netlink_for_device_events": "worked",
        "sockets_of_other_families": "worked",
    },
    f"{OWN}: its pages are pages of its own memory, which the limit counts": {"huge_pages_of_the_machine": "worked"},
    f"{OWN}: it lists the kinds of file systems that gVisor has": {"file_systems_of_the_machine": "worked"},
    f"{OWN}: ping sockets, and nothing to be reached with them": {"sockets_of_other_internet_protocols": "worked"},
    OPEN_FILES: {
        "pipe_of_the_agent": "worked",
        "input_of_the_agent": "worked",
        "environment_of_the_agent": "worked",
    },
    OUTSIDE: {
        "memory_beyond_the_limit": "sandbox out_of_memory",
        "memory_beyond_the_limit_in_several_processes": "sandbox out_of_memory",
        "shared_memory_segments_beyond_the_limit": "sandbox out_of_memory",
        "memory_file_beyond_the_limit": "sandbox out_of_memory",
        "pipes_beyond_the_memory_limit": "sandbox out_of_memory",
        "sockets_beyond_the_memory_limit": "sandbox out_of_memory",
        "connections_beyond_the_memory_limit": "sandbox out_of_memory",
        "datagrams_beyond_the_memory_limit": "sandbox out_of_memory",
        "processes_without_end": "sandbox out_of_memory",
        "threads_without_end": "worked",
        "empty_files_without_end": "worked",
    },
}

REASONS = {name: reason for reason, table in _BY_REASON.items() for name in table}
"""The name of an attack, and why that is no way out."""
DIFFERENCES = {name: outcome for table in _BY_REASON.values() for name, outcome in table.items()}
"""The name of an attack, and its outcome with gVisor; every other attack ends as with runc."""
