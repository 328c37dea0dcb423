"""The commands that lead from HAMi to hami, and those that lead back from each step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hami.migration.seen import PLUGIN, SCHEDULER, HamiWorkload, SeenCluster

LABEL = "hami.io/node-agent"
"""Who serves a node while both are there: ``hami``, ours; ``none``; without it HAMi's plugin."""
NONE, OURS = "none", "hami"


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What the objects of both releases are called. ``scheduler`` and ``plugin`` are HAMi's.

    ``strategy`` is the DaemonSet's update strategy, ``fails`` whether its webhook stops pods.
    """

    hami_release: str = "hami"
    hami_namespace: str = "kube-system"
    scheduler: str = "hami-scheduler"
    plugin: str = "hami-device-plugin"
    accounts: tuple[str, ...] = ("hami-scheduler", "hami-device-plugin")
    replicas: int = 1
    strategy: Mapping[str, Any]
    webhook: str = "hami-webhook"
    fails: bool = False
    release: str = "gpus"
    namespace: str = "hami"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """``each_node``: the commands are for one node, NODE; the next one when this one serves."""

    title: str
    why: str
    commands: tuple[str, ...]
    back: tuple[str, ...]
    each_node: bool = False


def naming_of(seen: SeenCluster, *, release: str, namespace: str) -> Naming:
    """The names in this cluster; HAMi's usual ones where something is missing."""
    usual = Naming(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
    scheduler = next(iter(seen.schedulers), HamiWorkload())
    plugin = next(iter(seen.plugins), HamiWorkload())
    one = scheduler if scheduler.metadata.name else plugin
    accounts = [found.spec.template.spec.service_account_name for found in (scheduler, plugin)]
    hooks = (seen.hook.webhooks or []) if seen.hook else []
    return Naming(
        hami_release=one.label("instance") or usual.hami_release,
        hami_namespace=one.metadata.namespace or usual.hami_namespace,
        scheduler=scheduler.metadata.name or usual.scheduler,
        plugin=plugin.metadata.name or usual.plugin,
        accounts=tuple(name for name in accounts if name) or usual.accounts,
        replicas=scheduler.spec.replicas or usual.replicas,
        strategy=plugin.spec.update_strategy or usual.strategy,
        webhook=seen.hook.metadata.name if seen.hook else usual.webhook,
        fails=any(hook.failure_policy == "Fail" for hook in hooks),
        release=release,
        namespace=namespace,
    )


def beside_values(naming: Naming) -> dict[str, Any]:
    """Values for the time in which both are there."""
    users = [
        f"system:serviceaccount:{naming.hami_namespace}:{account}" for account in naming.accounts
    ]
    return {
        # Agents come to the nodes that are given to them, and start again what HAMi began.
        "vendors": {"NVIDIA": {"selectors": [{LABEL: OURS}]}},
        "node": {"devicePlugin": {"settings": {"accept-unsigned": "yes"}}},
        "policies": {"trustedUsers": users},
    }


def plan(naming: Naming) -> tuple[Step, ...]:
    """All steps in their order; back goes from the last one that was taken to the first."""
    return (_prepare(naming), _schedulers(naming), _let_go(naming), _node(naming), _finish(naming))


def _prepare(n: Naming) -> Step:
    return Step(
        title="Write the values",
        why="Nothing changes in the cluster.",
        commands=(
            f"helm get values {n.hami_release} -n {n.hami_namespace} -o yaml > hami-values.yaml",
            "hami chart convert hami-values.yaml -o values.yaml",
        ),
        back=(),
    )


def _schedulers(n: Naming) -> Step:
    hook = f"kubectl patch mutatingwebhookconfiguration {n.webhook} --type=json"
    policy = '[{{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "{}"}}]'
    opened = (f"{hook} -p '{policy.format('Ignore')}'",) if n.fails else ()
    closed = (f"{hook} -p '{policy.format('Fail')}'",) if n.fails else ()
    scale = f"kubectl scale deployment {n.scheduler} -n {n.hami_namespace} --replicas="
    return Step(
        title="Change the scheduler",
        why="First, because it works with HAMi's device plugins, and HAMi's scheduler does not "
        "work with our agents. Pods wait for a minute; those that run are not touched.",
        commands=(
            *opened,
            f"{scale}0",
            (
                f"kubectl wait --for=delete pod -n {n.hami_namespace} "
                f"-l app.kubernetes.io/component={SCHEDULER} --timeout=2m"
            ),
            (
                f"helm install {n.release} charts/hami -n {n.namespace} --create-namespace "
                "-f values.yaml -f beside-hami.yaml"
            ),
            (
                f"kubectl rollout status deployment {n.release}-scheduler -n {n.namespace} "
                "--timeout=3m"
            ),
        ),
        back=(
            f"helm uninstall {n.release} -n {n.namespace} --wait",
            f"{scale}{n.replicas}",
            *closed,
        ),
    )


def _let_go(n: Naming) -> Step:
    patch = f"kubectl patch daemonset {n.plugin} -n {n.hami_namespace} --type=merge -p "
    term = {"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}

    def of(strategy: Mapping[str, Any], affinity: Any) -> str:
        template = {"spec": {"affinity": affinity}}
        spec = {"updateStrategy": strategy, "template": template}
        return f"{patch}'{json.dumps({'spec': spec})}'"

    held = {"type": "OnDelete", "rollingUpdate": None}
    return Step(
        title="Let HAMi's device plugin leave nodes",
        why=f"A node with the label {LABEL} is not HAMi's. Its plugins that run are not restarted: "
        "with OnDelete only a node's own change counts.",
        commands=(of(held, {"nodeAffinity": required}),),
        back=(of(n.strategy, None),),
    )


def _node(n: Naming) -> Step:
    def gone(namespace: str, component: str) -> str:
        return (
            f"kubectl wait --for=delete pod -n {namespace} "
            f"-l app.kubernetes.io/component={component} "
            "--field-selector=spec.nodeName=NODE --timeout=2m"
        )

    waiting = "kubectl get pods -A --field-selector=spec.nodeName=NODE,status.phase=Pending"
    said = r"{.metadata.annotations.hami\.io/node-identity}"
    return Step(
        title="Move the nodes, one at a time",
        why="Containers that run go on, under HAMi's library; what starts from now on is ours. "
        "Wait until the second command lists no pod with devices: whoever comes next would serve "
        "it.",
        each_node=True,
        commands=(
            "kubectl cordon NODE",
            waiting,
            f"kubectl label node NODE {LABEL}={NONE}",
            gone(n.hami_namespace, PLUGIN),
            f"kubectl label node NODE {LABEL}={OURS} --overwrite",
            f"kubectl wait node NODE --for=jsonpath='{said}' --timeout=3m",
            "kubectl uncordon NODE",
        ),
        back=(
            "kubectl cordon NODE",
            waiting,
            f"kubectl label node NODE {LABEL}={NONE} --overwrite",
            gone(n.namespace, "device-plugin"),
            "kubectl annotate node NODE hami.io/node-identity-",
            f"kubectl label node NODE {LABEL}-",
            "kubectl uncordon NODE",
        ),
    )


def _finish(n: Naming) -> Step:
    return Step(
        title="Remove HAMi",
        why="When every node is moved, and hami migrate check names no pod without a signature: "
        "their containers would not start again. HAMi's library stays on the nodes, for those that "
        "have it. Back from here is everything at once: containers run on, and none starts for a "
        "minute.",
        commands=(
            f"helm uninstall {n.hami_release} -n {n.hami_namespace}",
            f"helm upgrade {n.release} charts/hami -n {n.namespace} -f values.yaml",
            f"kubectl label nodes --all {LABEL}-",
        ),
        back=(
            f"helm uninstall {n.release} -n {n.namespace} --wait",
            "kubectl annotate nodes --all hami.io/node-identity-",
            (
                f"helm install {n.hami_release} hami-charts/hami -n {n.hami_namespace} "
                "--version 2.10.0 -f hami-values.yaml"
            ),
        ),
    )
