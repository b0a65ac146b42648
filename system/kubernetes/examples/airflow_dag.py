"""A notebook as a task of Airflow: a pod with the caller's service account, which makes the sandbox."""

from airflow import DAG
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

with DAG("notebook", schedule=None):
    KubernetesPodOperator(
        task_id="run",
        name="notebook",
        namespace="sandbox-kernel",
        service_account_name="sandbox-caller",
        image="registry.example/sandbox-kernel-caller:1",
        cmds=["sandbox-kernel", "run", "/notebooks/analysis.ipynb"],
        arguments=[
            "--output=/tmp/output",
            "--engine=kubernetes",
            "--kubernetes-namespace=sandboxes",
            "--image=registry.example/sandbox-kernel:data",
        ],
        env_vars={"HOME": "/tmp"},  # noqa: S108 (inside the pod)
        on_finish_action="delete_pod",
    )
