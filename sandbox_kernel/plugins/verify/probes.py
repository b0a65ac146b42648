"""The table of probes, in the order of an assessor's questions: what is tried, by which attacks, and what stops it.

Data. Those with attacks run inside; of the others the host finds out by itself what happened.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ProbeGroup(StrEnum):
    """What an assessor asks for."""

    PROGRAMS = "programs"
    RIGHTS = "rights"
    NETWORK = "network"
    NEIGHBOURS = "neighbours"
    LEAKS = "leaks"
    PLANTING = "planting"
    TECHNOLOGY = "technology"
    OUTPUT = "output"
    LIMITS = "limits"
    ENDS = "ends"


QUESTIONS = {
    ProbeGroup.PROGRAMS: "Does a program that is started inside get further than the code that starts it?",
    ProbeGroup.RIGHTS: "Can the code gain rights: another user's, a capability, a namespace, a device?",
    ProbeGroup.NETWORK: "Does anything reach a network, or a service of this machine?",
    ProbeGroup.NEIGHBOURS: "Does it find or reach other sandboxes, or processes of this machine?",
    ProbeGroup.LEAKS: "Does it read what belongs to the host?",
    ProbeGroup.PLANTING: "Can it leave files, settings or programs behind?",
    ProbeGroup.TECHNOLOGY: "What holds it, and is that seen from outside?",
    ProbeGroup.OUTPUT: "Can what it prints or shows act outside?",
    ProbeGroup.LIMITS: "Can it use up more than it was given?",
    ProbeGroup.ENDS: "Does everything end, and is nothing left?",
}


class Word(StrEnum):
    """On whose word a finding rests."""

    HOST = "host"
    """The host saw it: its kernel, its engine, its own sockets and folders. No sandbox can change that."""
    SANDBOX = "sandbox"
    """The sandbox says so, and a hostile one may say anything."""
    BOTH = "both"
    """The sandbox says that it tried, or what it is; the host saw what came of it."""


class Where(StrEnum):
    """Who finds out."""

    DOORS = "doors"
    """A sandbox with the settings as they are."""
    AGENT = "agent"
    """The same, at its end."""
    NEIGHBOUR = "neighbour"
    """The same, against the one beside it."""
    SMALL = "small"
    """A sandbox with less of everything, so that using it up costs the machine little."""
    HOST = "host"


class Probe(NamedTuple):
    """One row of the table."""

    code: str
    group: ProbeGroup
    tried: str
    stops: str
    """The layer that is to stop it."""
    attacks: tuple[str, ...] = ()
    where: Where = Where.DOORS
    word: Word = Word.SANDBOX


FILTER = "the filter of system calls"
NO_RIGHTS = "a user without capabilities, and no new privileges"
NO_NETWORK = "a network namespace with a loopback only"
NAMESPACES = "namespaces of its own"
MASKED = "masked and read-only paths in /proc and /sys"
READ_ONLY = "the read-only root, and no folder of the host"
LIMIT = "the limits of its control group and of its folders"
SHIELD = "the agent's own filter, and an agent that nobody may look into"
POLICY = "the output policy"
CLOCKS = "the host's clocks, budgets and guards"
ATTESTED = "the attestation before the first cell"

P, R, N, B, L, F, T, O, M, E = ProbeGroup  # noqa: E741


def _inside(  # noqa: PLR0917 (a row, as below)
    code: str, group: ProbeGroup, tried: str, stops: str, attacks: str, where: Where = Where.DOORS
) -> Probe:
    return Probe(code, group, tried, stops, tuple(attacks.split()), where)


def _host(code: str, group: ProbeGroup, tried: str, stops: str) -> Probe:
    return Probe(code, group, tried, stops, (), Where.HOST, Word.HOST)


PROBES: tuple[Probe, ...] = (
    # --- programs ---
    _inside("program-from-memory", P, "a program that exists in memory only", NO_RIGHTS, "program_in_memory_with_more_rights"),
    _inside("program-setuid", P, "a program of its own with the setuid bit", NO_RIGHTS, "setuid_program_with_more_rights"),
    _inside("program-setuid-of-image", P, "setuid programs, or those with capabilities, in the image", "an image without any", "setuid_programs_of_the_image"),
    _inside("program-debugger", P, "debugging another process: its memory, its files", FILTER, "ptrace_of_another_process reading_another_process_s_memory writing_another_process_s_memory taking_another_process_s_file comparing_kernel_objects"),
    _inside("program-by-the-kernel", P, "having the machine's kernel start a program: at a crash, for a module, a device, a format", MASKED, "program_run_by_the_kernel_for_a_crash program_run_by_the_kernel_for_a_module program_run_by_the_kernel_for_a_device program_run_by_the_kernel_for_a_format release_agent_of_a_cgroup"),
    _inside("program-in-the-kernel", P, "code in the machine's kernel: modules, another kernel, BPF", FILTER, "loading_a_module loading_a_module_from_a_file loading_another_kernel bpf_map"),
    _inside("program-text", P, "changing the code that others run: through /proc/self/mem, by shared mappings", READ_ONLY, "program_text_overwritten_for_others shared_writable_mapping_of_a_system_file writable_mapping_of_a_system_file_opened_for_it"),
    _host("program-stays-inside", P, "a program that a cell starts, looked for among the host's processes", NAMESPACES),
    # --- rights ---
    _inside("rights-user", R, "another user's id, root's, and groups", NO_RIGHTS, "another_user_s_id root_by_setuid groups_of_others"),
    _inside("rights-capabilities", R, "capabilities, by asking for them", NO_RIGHTS, "capabilities_by_asking ambient_capabilities"),
    _inside("rights-taken-back", R, "taking back what confines it: the filter, no new privileges, in a child too", FILTER, "taking_no_new_privileges_back taking_the_filter_back crossing_the_filter_by_a_child forging_what_proc_says_of_the_process"),
    _inside("rights-namespaces", R, "new namespaces of seven kinds, by each call that makes or enters one", FILTER, "new_user_namespace new_mount_namespace new_cgroup_namespace new_hostname_namespace new_ipc_namespace new_process_namespace new_network_namespace child_in_a_new_user_namespace child_in_a_new_user_namespace_by_clone3 entering_a_namespace"),
    _inside("rights-mounts", R, "mounts: a file system, a fresh /proc, a bind, uncovering a mask, by old and new calls", FILTER, "mount_of_a_file_system mount_of_a_fresh_proc bind_mount uncovering_a_masked_path mount_by_the_new_calls copy_of_the_mount_tree making_mounts_writable_by_attribute"),
    _inside("rights-root-folder", R, "another root folder: remount, pivot_root, chroot, handles of files", FILTER, "remounting_the_root_writable another_root_by_pivot another_root_by_chroot file_by_its_handle handle_of_the_root_folder"),
    _inside("rights-devices", R, "device nodes, and devices of the host", NO_RIGHTS, "device_node_for_the_memory device_node_for_a_disk reading_through_a_device_node devices_of_the_host ports_of_the_hardware"),
    _inside("rights-kernel-doors", R, "interfaces of the kernel that have had holes: io_uring, userfaultfd, perf, keyrings and more", FILTER, "io_uring page_faults_handled_by_the_user performance_counters key_in_a_keyring reading_a_keyring asynchronous_io_by_the_old_calls local_descriptor_table addresses_that_are_not_random user_pages_spliced_into_a_pipe message_queue_by_name"),
    _inside("rights-machine", R, "the machine's clock, name and power", NO_RIGHTS, "setting_the_clock setting_the_hostname restarting_the_machine power_and_devices keys_of_the_console"),
    _inside("rights-priority", R, "more of the machine: realtime, priority, locked memory, limits, being spared", NO_RIGHTS, "realtime_scheduling highest_priority realtime_disk_access memory_that_cannot_be_swapped higher_limits being_spared_when_memory_ends"),
    _inside("rights-terminal", R, "typing into a terminal of the host", FILTER, "typing_into_a_terminal"),
    _inside("rights-agent-memory", R, "the agent's memory, pipes and files", SHIELD, "memory_of_the_agent opening_the_memory_of_the_agent pipe_of_the_agent input_of_the_agent environment_of_the_agent root_folder_of_the_agent ptrace_of_the_agent reading_the_agent_s_memory_by_system_call taking_the_agent_s_pipe sparing_the_kernel_instead_of_the_agent", Where.AGENT),
    _inside("rights-agent-speed", R, "slowing, limiting or signalling the agent", SHIELD, "scheduling_class_of_the_agent scheduling_parameters_of_the_agent scheduling_attributes_of_the_agent processors_of_the_agent priority_of_the_agent priority_of_the_agent_s_group priority_of_all_threads_of_the_user disk_priority_of_the_agent disk_priority_of_all_threads_of_the_user limits_of_the_agent signals_to_each_thread_of_the_agent signals_to_the_agent_by_a_file_s_owner signals_to_the_agent_s_group_by_a_file_s_owner a_close_that_waits files_of_the_agent_in_proc signals_to_the_agent", Where.AGENT),
    _host("rights-user-of-processes", R, "whose the sandbox's processes are, as the host's kernel says", NO_RIGHTS),
    _host("rights-capabilities-of-processes", R, "their capabilities, as the host's kernel says", NO_RIGHTS),
    _host("rights-new-privileges", R, "whether a setuid file could give them any, as the host's kernel says", NO_RIGHTS),
    # --- network ---
    _inside("network-tcp", N, "TCP to an address outside, by both families", NO_NETWORK, "tcp_to_the_network tcp_by_an_ipv6_socket"),
    _inside("network-udp", N, "UDP to an address outside, as a question to a name server goes", NO_NETWORK, "udp_to_the_network"),
    _inside("network-ping", N, "a ping to an address outside", FILTER, "ping"),
    _inside("network-raw", N, "packets made by hand: raw, packet and ICMP sockets, foreign addresses, marks", FILTER, "raw_socket raw_ip_packets packet_socket address_of_its_own packets_with_a_firewall_mark packets_with_a_foreign_address"),
    _inside("network-netlink", N, "the kernel's own sockets: routes, firewall, devices", FILTER, "netlink_to_the_routing_table netlink_to_the_netfilter netlink_for_device_events netlink_to_the_generic_families"),
    _inside("network-families", N, "all other families and protocols: the hypervisor's, the crypto's, SCTP and more", FILTER, "vsock_to_the_hypervisor crypto_socket sockets_of_other_families sockets_of_other_internet_protocols"),
    _inside("network-settings", N, "the kernel's settings of networks", MASKED, "settings_of_the_network"),
    Probe("network-host-loopback", N, "services of this machine on its loopback, which lay in wait", NO_NETWORK, ("tcp_to_a_service_on_the_host_s_loopback", "udp_to_a_service_on_the_host_s_loopback"), word=Word.BOTH),
    Probe("network-host-sockets", N, "sockets of this machine: by an abstract name, by every file of the tree", NO_NETWORK, ("abstract_socket_of_the_host", "list_of_abstract_sockets", "unix_sockets_in_the_file_tree"), word=Word.BOTH),
    _host("network-interfaces", N, "interfaces and routes of its network, as the host's kernel says", NO_NETWORK),
    Probe("network-past-the-rules", N, "a host that no rule names, by the way out that the settings give", "the rules of the network", (), Where.HOST, Word.BOTH),
    # --- neighbours ---
    _inside("neighbour-processes", B, "processes of other users", NAMESPACES, "processes_of_the_host"),
    _inside("neighbour-memory", B, "shared memory, queues and semaphores of this machine", NAMESPACES, "shared_memory_of_the_host message_queue_of_the_host semaphores_of_the_host shared_memory_file_of_the_host message_queue_file"),
    _inside("neighbour-sockets", B, "sockets of the sandbox beside it", NAMESPACES, "tcp_to_a_service_on_the_host_s_loopback abstract_socket_of_the_host", Where.NEIGHBOUR),
    _inside("neighbour-files", B, "files and shared memory of the sandbox beside it", NAMESPACES, "file_of_the_host shared_memory_file_of_the_host shared_memory_of_the_host message_queue_of_the_host semaphores_of_the_host", Where.NEIGHBOUR),
    _host("neighbour-namespaces", B, "whether this machine, or the sandbox beside it, shares a namespace or a user with it", NAMESPACES),
    # --- leaks ---
    _inside("leak-file", L, "a file of this machine, by every way to a root folder that /proc has", READ_ONLY, "file_of_the_host"),
    _inside("leak-environment", L, "the environment of whoever started it", "an environment of its own", "environment_of_the_host"),
    _inside("leak-descriptors", L, "open files of the host, and what is behind the standard streams", "one pipe, and nothing else that is open", "file_descriptors_of_the_host folder_behind_a_standard_stream"),
    _inside("leak-memory", L, "the machine's memory and its addresses", MASKED, "the_machine_s_memory physical_addresses page_frames"),
    _inside("leak-kernel", L, "the kernel's symbols, log, modules and files", MASKED, "the_kernel_s_symbols the_kernel_s_log the_kernel_s_log_by_system_call the_kernel_s_modules the_kernel_s_configuration the_kernel_s_own_files debug_and_trace_files"),
    _inside("leak-machine", L, "the machine's firmware, interrupts, timers and pressure", MASKED, "the_machine_s_firmware interrupts_of_the_machine timers_of_the_machine what_the_machine_s_pressure_wakes"),
    _inside("leak-keys", L, "keys of others in the kernel", MASKED, "the_keys_of_others"),
    Probe("leak-secret", L, "a word of this machine that the sandbox was not told, looked for in all that came out", READ_ONLY, (), Where.HOST, Word.BOTH),
    # --- planting ---
    _inside("plant-system", F, "changes to system files: users, name servers, the interpreter's folder, rights, links", READ_ONLY, "file_beside_the_interpreter other_source_of_users other_rights_for_a_system_folder name_servers_of_its_own hard_link_out_of_scratch"),
    Probe("plant-anywhere", F, "a file in every other folder of the tree, looked for on this machine", READ_ONLY, ("file_in_any_other_folder",), word=Word.BOTH),
    _inside("plant-kernel-settings", F, "settings of the machine's kernel", MASKED, "settings_of_the_kernel"),
    _inside("plant-cgroups", F, "control groups: one of its own, other limits", MASKED, "limits_of_a_cgroup cgroup_of_its_own"),
    Probe("plant-next", F, "something for the next sandbox, in each place that can be written", "folders in memory, which end with their sandbox", (), Where.HOST),
    _host("plant-downloads", F, "links, pipes, programs and names that act, in the folder that results are copied to", "the host's rules of files"),
    # --- technology ---
    Probe("technology-attested", T, "the sandbox's own view and the engine's, compared with what was asked for", ATTESTED, (), Where.HOST, Word.BOTH),
    _host("technology-attestation-sees", T, "the same comparison for a sandbox that was asked for otherwise", ATTESTED),
    _host("technology-filter", T, "a filter of system calls on each process, as the host's kernel says", FILTER),
    _host("technology-namespaces", T, "which namespaces are its own, as the host's kernel says", NAMESPACES),
    _host("technology-writable", T, "what it may write to, by its mounts as the host's kernel says", READ_ONLY),
    _host("technology-kernel", T, "whether the code meets a kernel of its own, or the machine's", "a kernel of its own (gVisor, a virtual machine)"),
    # --- output ---
    _host("output-script", O, "scripts, handlers and addresses that act, in outputs of several types", POLICY),
    _host("output-load", O, "images, styles and frames that load from elsewhere", POLICY),
    _host("output-terminal", O, "sequences that a terminal obeys: title, clipboard, answers", POLICY),
    _host("output-payload", O, "a payload that writes the next cell", POLICY),
    _host("output-forged", O, "messages that a kernel does not send, or in the name of another cell", "the tables of messages and of known requests"),
    # --- limits ---
    _inside("limit-folders", M, "more files than the folders hold: in scratch, /tmp and /dev/shm", LIMIT, "files_in_scratch_beyond_its_size files_in_tmp_beyond_its_size files_in_shared_memory_beyond_its_size", Where.SMALL),
    _inside("limit-files", M, "empty files without end", LIMIT, "empty_files_without_end", Where.SMALL),
    _inside("limit-open-files", M, "open files without end", LIMIT, "open_files_without_end", Where.SMALL),
    _inside("limit-threads", M, "threads without end", LIMIT, "threads_without_end", Where.SMALL),
    _inside("limit-core", M, "a core file of a crash", LIMIT, "core_file_of_a_crash", Where.SMALL),
    _host("limit-processes", M, "processes without end", LIMIT),
    _host("limit-memory", M, "more memory than there is", LIMIT),
    _host("limit-memory-set", M, "the limit of memory that the host's kernel holds", LIMIT),
    _host("limit-processes-set", M, "the limit of processes that the host's kernel holds", LIMIT),
    _host("limit-processors-set", M, "the share of processors that the host's kernel holds", LIMIT),
    _host("limit-first-to-go", M, "who ends first when the machine itself runs out of memory", LIMIT),
    # --- ends ---
    _host("end-output", E, "output without end", CLOCKS),
    _host("end-time", E, "a cell without end that ignores being interrupted", CLOCKS),
    _host("end-kernel", E, "a cell that kills its own kernel, and the cell after it", CLOCKS),
    _host("end-owner", E, "the owner of a sandbox is killed: what becomes of the sandbox", CLOCKS),
    _host("end-containers", E, "sandboxes that are left, as the engine says", CLOCKS),
    _host("end-processes", E, "processes that are left, as the host's kernel says", CLOCKS),
)  # fmt: skip
"""Every probe. A code never changes its meaning."""

BY_CODE = {probe.code: probe for probe in PROBES}
