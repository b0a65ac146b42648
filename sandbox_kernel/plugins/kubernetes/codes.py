"""The codes of clusters."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_CHART = "Install the manifests of docs/kubernetes.md in the cluster, or have its operator do so."
_ROOM = "Free room in the cluster, ask for less (memory, cpus), or try again later."
_IMAGE = "Put the image where the cluster's nodes find it, and name it in the setting image."
_CLUSTER = "Look at the cluster: `sandbox-kernel doctor --engine kubernetes`."


@unique
class KubernetesCode(Code):
    """Why a cluster has no pod for a session, or has it no longer (docs/kubernetes.md)."""

    # --- before it runs ---
    CLUSTER_NOT_CONFIGURED = (
        "failure",
        "there is no cluster to ask: {why}",
        "Set KUBECONFIG, or kubernetes_context, or run within a pod with a service account.",
    )
    CLUSTER_UNREACHABLE = "failure", "the cluster's API server cannot be reached: {why}", _CLUSTER
    CLUSTER_FORBIDS = "failure", "the cluster does not let this user do that: {why}", _CHART
    CLUSTER_BUSY = "limit", "the cluster's API server asks to wait", "Try again in a moment."
    CLUSTER_REFUSES = "failure", "the cluster refuses the pod: {why}", _CHART
    NAMESPACE_MISSING = "failure", "the cluster has no namespace {namespace}", _CHART
    RUNTIME_CLASS_MISSING = (
        "failure",
        "the cluster has no runtime '{name}'",
        "Add a RuntimeClass of that name, or change runtime.",
    )
    CLUSTER_QUOTA_REACHED = "limit", "the namespace's quota has no room for the pod: {why}", _ROOM
    POD_UNSCHEDULABLE = "limit", "no node of the cluster has room for the pod: {why}", _ROOM
    POD_IMAGE_NOT_THERE = "failure", "the node does not get the image: {why}", _IMAGE
    POD_NOT_STARTED = "failure", "the node does not start the pod: {why}", _CLUSTER
    POD_SLOW = "limit", "the pod does not run in time: {why}", "Raise start_timeout, or look at the node."
    # --- its end ---
    POD_EVICTED = "failure", "the cluster evicted the pod: {why}", _ROOM
    POD_DEADLINE = "limit", "the pod reached its lifetime", "Raise kubernetes_lifetime, and run the cells again."
    POD_DELETED = "failure", "somebody deleted the pod", "Run the cells again."
    NODE_LOST = "failure", "the pod's node is gone: {why}", "Run the cells again: they get another node."
    ATTACH_LOST = (
        "failure",
        "the connection to the pod broke, and the pod ended with it: {why}",
        "Run the cells again; look at the API server and the node's kubelet.",
    )
