"""A node: containerd and the kubelet in a network namespace, the service proxy, and who enforces network policies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from .configuration import Configuration
from .control_plane import ControlPlane
from .programs import Programs

PAUSE = "sandbox-kernel-pause:1"
READY_SECONDS = 90.0
REMOVE_SECONDS = 20.0
CGROUPS = Path("/sys/fs/cgroup")


class Node:
    """One of them, by its number, from 1."""

    def __init__(
        self,
        number: int,
        binaries: Path,
        state: Path,
        *,
        found: Configuration,
        programs: Programs,
        control: ControlPlane,
    ) -> None:
        self.number = number
        self.name = f"node{number}"
        self._binaries, self._found, self._programs, self._control = binaries, found, programs, control
        self._network, self._cgroup = found.network, found.network.cgroup(number)
        self._state = state / self.name
        self.socket = self._state / "containerd.sock"

    @property
    def programs(self) -> tuple[str, ...]:
        kinds = ("containerd", "kubelet", "kube-proxy", "kube-router")
        return tuple(f"{kind}-{self.number}" for kind in kinds)

    def start(self, images: tuple[str, ...]) -> None:
        self._state.mkdir(parents=True, exist_ok=True)
        self._configure()
        for name in self.programs:
            self.start_one(name)
            if name.startswith("containerd"):
                self._until_containerd()
                self._import(images)

    def start_one(self, name: str) -> None:
        """Start one of its programs, unless it runs."""
        kind = name.rpartition("-")[0]
        command = getattr(self, f"_{kind.replace('-', '_')}")()
        self._programs.start(name, [*self._network.inside(self.number), *command])

    def until_ready(self) -> None:
        """Wait until pods may start here, reach the API server by its service, and are held to their policies."""
        kubectl = (*("wait", "--for=condition=Ready", f"node/{self.name}"), f"--timeout={READY_SECONDS:.0f}s")
        until = time.monotonic() + READY_SECONDS
        while self._control.kubectl(*kubectl, check=False).returncode or not self._has_rules():
            if time.monotonic() > until:
                raise SystemExit(f"{self.name} is not ready after {READY_SECONDS:.0f} s: see the logs of its programs")
            time.sleep(0.5)
            self.start_one(f"kube-router-{self.number}")  # it ends where its node is not known yet

    def _has_rules(self) -> bool:
        for table, rule in ("nat", f"-d {self._network.api_service}/32"), ("filter", "-j KUBE-ROUTER-FORWARD"):
            command = [*self._network.inside(self.number), "iptables", "-t", table, "-S"]
            if rule not in subprocess.run(command, capture_output=True, text=True, check=False).stdout:
                return False
        return True

    def stop(self) -> None:
        """End it, its pods and what it has mounted, whichever of its programs still runs."""
        runs = all(self._programs.pid(f"{kind}-{self.number}") for kind in ("containerd", "kubelet"))
        if runs and not self._control.kubectl("get", "node", self.name, "--request-timeout=5s", check=False).returncode:
            self._delete_pods()
        for name in reversed(self.programs):
            self._programs.stop(name)
        for shim in self._shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(shim, signal.SIGKILL)
        groups = [folder for group in CGROUPS.glob(f"*/{self._cgroup}") for folder in (*group.rglob("*/"), group)]
        for folder in groups:
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if (place := line.split()[1]).startswith(f"{self._state}/"):
                subprocess.run(["umount", "--lazy", place], check=False)
        until = time.monotonic() + REMOVE_SECONDS
        for folder in sorted(groups, reverse=True):
            while not _removed(folder) and time.monotonic() < until:
                time.sleep(0.05)
        # What these programs write in places of the machine's, and leave there if they are killed.
        for address in self._state.glob("run/io.containerd.runtime.v2.task/k8s.io/*/address"):
            Path(address.read_text().removeprefix("unix://")).unlink(missing_ok=True)
        for link in Path("/var/log/containers").glob("*.log"):
            if str(link.readlink()).startswith(f"{self._state}/"):
                link.unlink()
        for result in Path("/var/lib/cni/results").glob("*"):
            if f"{self._state}/" in result.read_text():
                result.unlink()

    def _delete_pods(self) -> None:
        """Let the kubelet end its pods, which removes the namespaces of their networks as well."""
        words = ("delete", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={self.name}", "--wait=false")
        self._control.kubectl(*words, "--grace-period=1", check=False)
        until = time.monotonic() + REMOVE_SECONDS
        while self.ctr("tasks", "list", "-q", check=False).split() and time.monotonic() < until:
            time.sleep(0.2)

    def _shims(self) -> list[int]:
        """Return the processes that hold this node's containers."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if Path(words[0].decode()).name.startswith("containerd-shim") and str(self.socket).encode() in words:
                    found.append(int(folder.name))
        return found

    def ctr(self, *words: str, check: bool = True) -> str:
        command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
        return done.stdout

    # --- what its programs are told ---

    def _configure(self) -> None:
        for group in CGROUPS.iterdir():
            if group.is_dir():
                (group / self._cgroup).mkdir(exist_ok=True)
        for used in (CGROUPS / "cpuset" / "cpuset.cpus", CGROUPS / "cpuset" / "cpuset.mems"):
            if used.exists():
                (used.parent / self._cgroup / used.name).write_text(used.read_text())
        networks = self._state / "networks"
        networks.mkdir(exist_ok=True)
        bridge = {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": self._network.pods_of(self.number)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
                "dataDir": str(self._state / "addresses"),
            },
        }
        # Policies are about the addresses that pods are given: those that a link gives itself would be free of them.
        one_family = {"type": "tuning", "sysctl": {"net.ipv6.conf.all.disable_ipv6": "1"}}
        (networks / "10-pods.conflist").write_text(
            json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, one_family]})
        )
        (self._state / "containerd.toml").write_text(self._containerd_toml(networks))
        path = self._found.path
        self._found.write(
            f"{self.name}.kubelet",
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "address": self._network.node_address(self.number),
                "healthzBindAddress": "127.0.0.1",
                "tlsCertFile": str(path(f"{self.name}.crt")),
                "tlsPrivateKeyFile": str(path(f"{self.name}.key")),
                "authentication": {
                    "anonymous": {"enabled": False},
                    "webhook": {"enabled": True},
                    "x509": {"clientCAFile": str(path("ca.crt"))},
                },
                "authorization": {"mode": "Webhook"},
                "containerRuntimeEndpoint": f"unix://{self.socket}",
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": f"/{self._cgroup}",
                "enforceNodeAllocatable": [],
                # This machine's root may not lower what a process is worth when memory runs out.
                "featureGates": {"KubeletInUserNamespace": True},
                "failSwapOn": False,
                "podPidsLimit": 1024,
                "maxPods": 110,
                "imageGCHighThresholdPercent": 100,
                "imageGCLowThresholdPercent": 99,
                "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                "serializeImagePulls": False,
                "registerWithTaints": [],
                "podLogsDir": str(self._state / "logs"),
                "volumePluginDir": str(self._state / "plugins"),
            },
        )

    def _containerd_toml(self, networks: Path) -> str:
        # There is no gVisor: its shim gives itself an oom_score_adj of -999, for which root of small machines lacks a
        # right (CAP_SYS_RESOURCE), and below runc's shim no container is ever said to have started.
        cri = '[plugins."io.containerd.grpc.v1.cri"'
        return f"""version = 2
root = "{self._state}/containerd"
state = "{self._state}/run"
[grpc]
  address = "{self.socket}"
[plugins]
  {cri}]
    sandbox_image = "{PAUSE}"
    restrict_oom_score_adj = true
    netns_mounts_under_state_dir = true
    {cri}.cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "{networks}"
    {cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      {cri}.containerd.runtimes.runc.options]
        Root = "{self._state}/runc"
  [plugins."io.containerd.internal.v1.opt"]
    path = "{self._state}/opt"
"""

    def _containerd(self) -> list[str]:
        return ["containerd", "--config", str(self._state / "containerd.toml"), "--log-level", "warn"]

    def _kubelet(self) -> list[str]:
        return [
            str(self._binaries / "kubelet"),
            f"--kubeconfig={self._found.kubeconfig(self.name)}",
            f"--config={self._found.path(f'{self.name}.kubelet')}",
            f"--hostname-override={self.name}",
            f"--root-dir={self._state / 'kubelet'}",
            f"--cert-dir={self._state / 'pki'}",
            f"--node-ip={self._network.node_address(self.number)}",
        ]

    def _kube_proxy(self) -> list[str]:
        return [
            str(self._binaries / "kube-proxy"),
            f"--kubeconfig={self._found.kubeconfig('proxy')}",
            f"--hostname-override={self.name}",
            f"--cluster-cidr={self._network.pods}",
            "--proxy-mode=iptables",
            "--masquerade-all",
            "--conntrack-max-per-core=0",
            "--healthz-bind-address=127.0.0.1",
            "--metrics-bind-address=127.0.0.1",
        ]

    def _kube_router(self) -> list[str]:
        # `kube-network-policies` takes nftables' queue, which kernels of small machines lack (CONFIG_NFT_QUEUE).
        return [
            str(self._binaries / "kube-router"),
            f"--kubeconfig={self._found.kubeconfig('policies')}",
            f"--hostname-override={self.name}",
            f"--service-cluster-ip-range={self._network.services}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--health-port=0",
        ]

    # --- images ---

    def _until_containerd(self) -> None:
        until = time.monotonic() + READY_SECONDS
        while not self.ctr("version", check=False):
            if time.monotonic() > until:
                raise SystemExit("containerd does not answer: see its log")
            time.sleep(0.1)

    def _import(self, images: tuple[str, ...]) -> None:
        """Give containerd images of Docker's, unless it has what Docker has under their names."""
        pause = self._binaries / "pause"
        if not _docker("image", "inspect", "--format", "{{.Id}}", PAUSE).strip():
            packed = subprocess.run(["tar", "-c", "-C", str(pause.parent), "pause"], check=True, capture_output=True)
            command = ["docker", "import", "--change", 'ENTRYPOINT ["/pause"]', "-", PAUSE]
            subprocess.run(command, input=packed.stdout, check=True, capture_output=True)
        had = self.ctr("images", "list", check=False)
        lacks: dict[str, tuple[Path, str]] = {}
        for image in (PAUSE, *images):
            identity = _docker("image", "inspect", "--format", "{{.Id}}", image).strip()
            if not identity:
                raise SystemExit(f"Docker has no image {image}: the project's setup makes it")
            mark = self._state / f"image-{image.replace(':', '-').replace('/', '-')}"
            if not (mark.exists() and mark.read_text() == identity and f"/{image}" in had):
                lacks[image] = (mark, identity)
        if not lacks:
            return
        # All at once: what they have in common is written and read once.
        with subprocess.Popen(["docker", "save", *lacks], stdout=subprocess.PIPE) as saving:
            command = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io", "images", "import", "-"]
            subprocess.run(command, stdin=saving.stdout, check=True, stdout=subprocess.DEVNULL)
        for mark, identity in lacks.values():
            mark.write_text(identity)


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False).stdout


def _removed(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        folder.rmdir()
    return not folder.exists()
