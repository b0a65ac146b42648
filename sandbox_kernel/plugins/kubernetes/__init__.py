"""The engine `kubernetes`: each session is a pod of a cluster.

Imports nothing, so that it costs nothing: the client is an extra, and what needs it is imported when the engine is
made.

- `plugin`: What this plugin adds.
- `settings`: How the cluster, the namespace and the pods' lifetime are written.
- `codes`: The codes of clusters.
- `pod`: A sandbox's protections in Kubernetes' words: the pod; pure, with snapshot tests.
- `pod_gate`: The first program of a pod: it waits for its owner, takes its limits, and becomes the sandbox's program.
- `pod_witness`: What the cluster says of a pod, compared with what it was asked for; pure.
- `pod_endings`: Why a pod did not start, and why it ended, by what the cluster says of it; pure.
- `cluster_api`: The API server: requests, watches and attaching; the only module that knows the client.
- `pod_watch`: What happens to the pods of this process, heard by one watch for all of them.
- `pod_pipe`: The stdin and stdout of a pod on one socket, as all other parts know a container's.
- `cluster_namespace`: One namespace of one cluster: the client and the watch that all pods of a process share.
- `cluster_conditions`: What a cluster must have before sandboxes belong in it; each piece is tried.
- `container`: One running pod: its pipe, why it ended, and whether the cluster made what it was asked for.
- `pod_reaper`: Deletes pods as they end, whose owners were killed.
- `warm_pool`: What a pool of agent-sandbox is made of, and what a session may take from it; pure.
- `warm_pool_command`: `sandbox-kernel warm-pool`, which writes one.
- `claimed_pod`: A pod that waited in such a pool: claimed, attached to, and told that it has an owner.
- `engine`: Start, list, reap, and what the cluster says of itself.
"""
