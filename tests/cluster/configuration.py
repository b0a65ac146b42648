"""Certificates, tokens, and what the programs are told: files in the cluster's folder, made once."""

from __future__ import annotations

import json
import secrets
import subprocess
from pathlib import Path
from typing import Any

from .network import MAX_NODES, Network

USERS = {
    "admin": ("admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", "system:node-proxier"),
    "policies": ("network-policies", ""),
    "agent-sandbox": ("agent-sandbox", ""),
    "kwok": ("kwok", "system:masters"),
}
"""Who has a token: a user and a group. Each node has one as well."""


class Configuration:
    """The files of one cluster."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self.network = folder, network

    def path(self, name: str) -> Path:
        return self.folder / name

    def make(self) -> None:
        """Make what is missing, for as many nodes as there may be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.path("tokens.csv").exists():
            return
        self.folder.chmod(0o700)
        self._authority()
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        self.certificate(
            "api-server", "kube-apiserver", [self.network.host, self.network.api_service, "127.0.0.1"], names
        )
        self.certificate("api-server-client", "kube-apiserver", organisation="system:masters")
        self.certificate("etcd", "etcd", ["127.0.0.1"])
        self._run("genrsa", "-out", "service-accounts.key", "2048")
        users = dict(USERS)
        for number in range(1, MAX_NODES + 1):
            name = f"node{number}"
            self.certificate(name, name, [self.network.node_address(number)], [name])
            users[name] = (f"system:node:{name}", "system:nodes")
        lines = []
        for name, (user, group) in users.items():
            token = secrets.token_urlsafe(24)
            self._kubeconfig(name, token)
            lines.append(f'{token},{user},{name},"{group}"' if group else f"{token},{user},{name}")
        self.path("tokens.csv").write_text("\n".join(lines) + "\n")

    def certificate(
        self,
        name: str,
        common: str,
        addresses: list[str] | None = None,
        names: list[str] | None = None,
        organisation: str = "",
    ) -> None:
        """Make a key and a certificate of the cluster's own authority: NAME.key and NAME.crt."""
        also = [f"IP:{one}" for one in addresses or ()] + [f"DNS:{one}" for one in names or ()]
        extensions = "extendedKeyUsage=serverAuth,clientAuth\n"
        if also:
            extensions += f"subjectAltName={','.join(also)}\n"
        self.path(f"{name}.ext").write_text(extensions)
        subject = f"/O={organisation}/CN={common}" if organisation else f"/CN={common}"
        self._run(
            "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject
        )
        self._run(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-days", "3650", "-out", f"{name}.crt", "-extfile", f"{name}.ext"),
        )

    def write(self, name: str, document: Any) -> Path:
        """Write a file in JSON, which is YAML too."""
        self.path(name).write_text(json.dumps(document, indent=1))
        return self.path(name)

    def kubeconfig(self, name: str) -> Path:
        return self.path(f"{name}.kubeconfig")

    def _kubeconfig(self, name: str, token: str) -> None:
        cluster = {
            "server": f"https://{self.network.host}:6443",
            "certificate-authority": str(self.path("ca.crt")),
        }
        self.write(
            f"{name}.kubeconfig",
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "tests", "cluster": cluster}],
                "users": [{"name": name, "user": {"token": token}}],
                "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": name}}],
                "current-context": "tests",
            },
        )

    def _authority(self) -> None:
        self._run(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt"),
            *("-days", "3650", "-subj", "/CN=cluster-of-tests"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),  # newer clients take no authority without
        )

    def _run(self, *words: str) -> None:
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"openssl {' '.join(words)} failed:\n{done.stderr}")


def api_server_flags(found: Configuration, etcd: str) -> list[str]:
    """Return the API server's command line, but for its program."""
    path = found.path
    return [
        f"--advertise-address={found.network.host}",
        f"--bind-address={found.network.host}",
        "--secure-port=6443",
        f"--etcd-servers={etcd}",
        f"--etcd-cafile={path('ca.crt')}",
        f"--etcd-certfile={path('etcd.crt')}",
        f"--etcd-keyfile={path('etcd.key')}",
        f"--service-cluster-ip-range={found.network.services}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--token-auth-file={path('tokens.csv')}",
        f"--client-ca-file={path('ca.crt')}",
        f"--tls-cert-file={path('api-server.crt')}",
        f"--tls-private-key-file={path('api-server.key')}",
        f"--kubelet-certificate-authority={path('ca.crt')}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={path('api-server-client.crt')}",
        f"--kubelet-client-key={path('api-server-client.key')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={path('service-accounts.key')}",
        f"--service-account-signing-key-file={path('service-accounts.key')}",
        "--allow-privileged=true",
        "--profiling=false",
    ]
