"""Ways to a network, and to the sockets of the host. Runs inside; aims at reserved addresses and the loopback."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct

from .kit import GIVEN, attack

NOWHERE = "192.0.2.1"  # RFC 5737: nobody has it
UNREACHABLE = "ENETUNREACH EHOSTUNREACH"
ECHO = struct.pack("!BBHHH", 8, 0, 0xF7FD, 1, 1)  # an ICMP echo request with its checksum


def connect(family: int, kind: int, address: object) -> str:
    with socket.socket(family, kind) as way:
        way.settimeout(2)
        way.connect(address)  # type: ignore[arg-type]
        way.send(GIVEN["session"].encode())  # by which the host knows who came
        return f"reached {address!r}"


@attack(UNREACHABLE)
def tcp_to_the_network() -> object:
    return connect(socket.AF_INET, socket.SOCK_STREAM, (NOWHERE, 80))


@attack(UNREACHABLE)
def udp_to_the_network() -> object:
    return connect(socket.AF_INET, socket.SOCK_DGRAM, (NOWHERE, 53))


@attack(f"{UNREACHABLE} EADDRNOTAVAIL EAFNOSUPPORT")
def tcp_over_ipv6() -> object:
    return connect(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 80))


@attack(f"{UNREACHABLE} EAFNOSUPPORT")
def tcp_by_an_ipv6_socket() -> object:
    """The same address of IPv4, by the other family's way."""
    return connect(socket.AF_INET6, socket.SOCK_STREAM, (f"::ffff:{NOWHERE}", 80))


@attack(UNREACHABLE)
def metadata_service() -> object:
    return connect(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80))


@attack(f"{UNREACHABLE} EPERM EACCES")
def broadcast() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        return way.sendto(b"out", ("255.255.255.255", 9))


@attack(f"{UNREACHABLE} ENODEV")
def multicast() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        return way.sendto(b"out", ("224.0.0.251", 5353))


@attack("gaierror EAI_AGAIN")
def dns_lookup() -> object:
    return socket.getaddrinfo("example.invalid", 80)


@attack("gaierror nothing")
def name_of_the_host_s_gateway() -> object:
    names = [*("host.docker.internal", "gateway.docker.internal", "host.containers.internal", "_gateway")]
    found = []
    for name in names:
        try:
            found.append(socket.gethostbyname(name))
        except socket.gaierror:
            pass
    return found


@attack("ECONNREFUSED", control="the host's network")
def tcp_to_a_service_on_the_host_s_loopback() -> object:
    return connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", GIVEN["tcp"]))


@attack("ECONNREFUSED", control="the host's network")
def udp_to_a_service_on_the_host_s_loopback() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.settimeout(5)
        way.connect(("127.0.0.1", GIVEN["udp"]))
        way.send(GIVEN["session"].encode())
        return way.recv(16)


@attack("ECONNREFUSED", control="the host's network")
def abstract_socket_of_the_host() -> object:
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, GIVEN["abstract"])


@attack("nothing", control="the host's network")
def list_of_abstract_sockets() -> object:
    with open("/proc/net/unix") as file:
        return [line for line in file if " @" in line]


@attack("nothing", control="a folder of the host")
def unix_sockets_in_the_file_tree() -> object:
    """Every socket file of another user that can be found is tried, the engine's among them."""
    found = []
    for folder, _, names in os.walk("/"):
        if folder.startswith(("/proc", "/sys")):
            continue
        for path in (os.path.join(folder, name) for name in names):
            try:
                found_there = os.lstat(path)
                if stat.S_ISSOCK(found_there.st_mode) and found_there.st_uid != os.getuid():
                    found.append(connect(socket.AF_UNIX, socket.SOCK_STREAM, path))
            except OSError:
                pass
    return found


@attack("EPERM", control="root, NET_RAW and NET_ADMIN, no filter")
def raw_socket() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as way:
        way.settimeout(5)
        way.sendto(ECHO, ("127.0.0.1", 0))
        return way.recv(100)


@attack("EPERM", control="root, NET_RAW and NET_ADMIN, no filter")
def raw_ip_packets() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as way:
        return way.fileno()


@attack(f"{UNREACHABLE} EPERM EACCES")
def ping() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as way:
        return way.sendto(ECHO, (NOWHERE, 0))


@attack("EPERM", control="root, NET_RAW and NET_ADMIN, no filter")
def packet_socket() -> object:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as way:
        way.bind(("lo", 0))
        return way.fileno()


def netlink(protocol: int) -> object:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as way:
        way.bind((0, 0))
        return way.fileno()


@attack("EINVAL", control="no filter")
def netlink_to_the_routing_table() -> object:
    return netlink(0)


@attack("EINVAL", control="no filter")
def netlink_to_the_netfilter() -> object:
    return netlink(12)


@attack("EINVAL", control="no filter")
def netlink_for_device_events() -> object:
    return netlink(15)


@attack("EINVAL", control="no filter")
def netlink_to_the_generic_families() -> object:
    return netlink(16)


@attack("EPERM", control="no filter")
def vsock_to_the_hypervisor() -> object:
    """Creates the socket only: the one to be reached with it is not ours."""
    with socket.socket(40, socket.SOCK_STREAM) as way:
        return way.fileno()


@attack("EPERM")
def crypto_socket() -> object:
    with socket.socket(38, socket.SOCK_SEQPACKET) as way:
        way.bind(("hash", "sha256"))
        return way.fileno()


@attack("nothing", control="no filter")
def sockets_of_other_families() -> object:
    """Each family is kernel code of its own, and loads its module when it is asked for."""
    found = []
    for family in set(range(64)) - {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6}:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
            try:
                os.close(socket.socket(family, kind).detach())
                found.append((family, kind))
            except OSError:
                pass
    return found


@attack("nothing", control="no filter")
def sockets_of_other_internet_protocols() -> object:
    """SCTP, DCCP, MPTCP, L2TP, UDP-Lite, ping: each is kernel code of its own, too."""
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, 6):
            for protocol in set(range(1, 263)) - {socket.IPPROTO_TCP, socket.IPPROTO_UDP}:
                try:
                    os.close(socket.socket(family, kind, protocol).detach())
                    found.append((family, kind, protocol))
                except OSError:
                    pass
    return found


@attack("EPERM", control="root, NET_RAW and NET_ADMIN, no filter")
def address_of_its_own() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        request = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, socket.inet_aton("127.0.0.9"))
        return fcntl.ioctl(way, 0x8916, request)  # SIOCSIFADDR


@attack("EPERM", control="root and NET_ADMIN")
def packets_with_a_firewall_mark() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.setsockopt(socket.SOL_SOCKET, 36, 7)  # SO_MARK
        return way.getsockopt(socket.SOL_SOCKET, 36)


@attack("EPERM", control="root and NET_ADMIN")
def packets_with_a_foreign_address() -> object:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.setsockopt(socket.IPPROTO_IP, 19, 1)  # IP_TRANSPARENT
        way.bind((NOWHERE, 0))
        return way.getsockname()
