"""Keys of HAMi's values.yaml about the whole release and about its scheduler."""

from __future__ import annotations

from hami.migration import keys, rules
from hami.migration.keys import (
    ABSENT,
    HamiKey,
    not_honoured,
    same,
    translated,
    without_effect,
)

_HAMIS_IMAGE = "it is of HAMi's image, and none of HAMi's images runs here"
_NO_JOB = "there is no Job that makes a certificate: the scheduler makes its own"
_NO_PORTS = "the Service's ports are 443 and 9395, and Kubernetes chooses node ports"
_BY_LABEL = (
    "no label is a way past the webhook; leave namespaces out by name, in "
    "webhooks.pods.ignoredNamespaces, or accept the label hami.io/webhook with "
    "webhooks.pods.ignoreLabel"
)
_OWN_LABELS = "objects have the chart's labels and annotations and no others"
_BY_RELEASE = "names and namespace are the release's: helm install NAME -n NAMESPACE"
_STRATEGIES = ("binpack", "spread")


def release_keys() -> tuple[HamiKey, ...]:
    return (
        translated(
            "global.imageRegistry",
            "",
            "image.registry and kubeScheduler.image.registry; hami's images must be there",
            rules.registry,
        ),
        translated(
            "global.imagePullSecrets",
            [],
            "image.pullSecrets, as {name: ...}",
            rules.pull_secrets,
        ),
        without_effect("global.imageTag", "v2.10.0", _HAMIS_IMAGE),
        translated(
            "global.gpuHookPath",
            "/usr/local",
            "--hook-path in vendors.NVIDIA.devicePlugin.args, and the library's place in hostPaths",
            rules.hook_path,
        ),
        not_honoured("global.labels", {}, _OWN_LABELS),
        not_honoured("global.annotations", {}, _OWN_LABELS),
        without_effect(
            "global.managedNodeSelectorEnable",
            False,
            "HAMi's scheduler gets variables for it that it does not read",
        ),
        without_effect(
            "global.managedNodeSelector",
            {"usage": "gpu"},
            "HAMi's scheduler gets variables for it that it does not read",
        ),
        not_honoured("nameOverride", "", _BY_RELEASE),
        not_honoured("fullnameOverride", "", _BY_RELEASE),
        not_honoured("namespaceOverride", "", _BY_RELEASE),
        without_effect(
            "podSecurityPolicy.enabled", False, "Kubernetes has no PodSecurityPolicy since 1.25"
        ),
        same("schedulerName", "hami-scheduler", "scheduler.name", keys.filled),
        same("legacyMetrics", False, "metrics.legacyNames", keys.flag),
        same("prometheus.enabled", False, "metrics.serviceMonitors.enabled", keys.flag),
    )


def scheduler_keys() -> tuple[HamiKey, ...]:
    settings = "scheduler.settings"
    return (
        translated(
            "scheduler.nodeName",
            "",
            "scheduler.nodeSelector: kubernetes.io/hostname",
            rules.node_name,
        ),
        translated(
            "scheduler.nodeLabelSelector",
            ABSENT,
            f"{settings}.node-label-selector, as k=v,k=v",
            rules.label_selector,
        ),
        same("scheduler.nodeSelector", ABSENT, "scheduler.nodeSelector", keys.labels),
        translated(
            "scheduler.overwriteEnv",
            "false",
            "deviceConfig.nvidia.overwriteEnv",
            rules.device_setting("nvidia", "overwriteEnv", keys.flag),
        ),
        same(
            "scheduler.defaultSchedulerPolicy.nodeSchedulerPolicy",
            "binpack",
            f"{settings}.node-scheduler-policy",
            keys.one_of(*_STRATEGIES),
        ),
        same(
            "scheduler.defaultSchedulerPolicy.gpuSchedulerPolicy",
            "spread",
            f"{settings}.gpu-scheduler-policy",
            keys.text,
        ),
        not_honoured(
            "scheduler.metricsBindAddress", ":9395", "metrics are on port 9395, of pod and Service"
        ),
        same(
            "scheduler.forceOverwriteDefaultScheduler",
            True,
            f"{settings}.force-overwrite-default-scheduler",
            keys.flag,
        ),
        without_effect("scheduler.livenessProbe", False, "there always is one"),
        without_effect("scheduler.leaderElect", True, "one of the replicas always leads"),
        same("scheduler.replicas", 1, "scheduler.replicas", keys.at_least(1)),
        same("scheduler.nodeLockExpire", "5m", f"{settings}.node-lock-timeout", keys.text),
        same("scheduler.podAnnotations", {}, "scheduler.podAnnotations", keys.labels),
        same("scheduler.tolerations", [], "scheduler.tolerations", keys.mappings),
        same("scheduler.serviceAccountName", ABSENT, "scheduler.serviceAccount", keys.filled),
        *_container_keys(),
        *_webhook_keys(),
        *_certificate_keys(),
        *_service_keys(),
    )


def _container_keys() -> tuple[HamiKey, ...]:
    one, other = "scheduler.kubeScheduler", "scheduler.extender"
    return (
        not_honoured(
            f"{one}.enabled",
            True,
            "the chart always runs a kube-scheduler of its own beside hami's; to have another one "
            "ask hami, write the Deployment yourself",
        ),
        translated(
            f"{one}.image.registry",
            "registry.cn-hangzhou.aliyuncs.com",
            "kubeScheduler.image.registry",
            rules.kube_scheduler_registry,
        ),
        same(
            f"{one}.image.repository",
            "google_containers/kube-scheduler",
            "kubeScheduler.image.repository",
            keys.filled,
        ),
        same(f"{one}.image.tag", "", "kubeScheduler.image.tag", keys.text),
        *pull_keys(f"{one}.image"),
        same(f"{one}.resources", {}, "kubeScheduler.resources", keys.resources),
        translated(
            f"{one}.extraNewArgs",
            ["--config=/config/config.yaml", "-v=4"],
            "kubeScheduler.verbosity, qps and burst; the chart writes --config",
            rules.kube_scheduler_arguments,
        ),
        without_effect(
            f"{one}.extraArgs",
            ["--policy-config-file=/config/config.json", "-v=4"],
            "it is for Kubernetes before 1.22",
        ),
        *image_keys(f"{other}.image"),
        same(f"{other}.resources", {}, "scheduler.resources", keys.resources),
        translated(
            f"{other}.extraArgs",
            ["--debug", "-v=4"],
            "scheduler.settings, by the flag's name; --debug and klog's flags do nothing",
            rules.scheduler_arguments,
        ),
    )


def _webhook_keys() -> tuple[HamiKey, ...]:
    hook = "scheduler.admissionWebhook"
    return (
        same(f"{hook}.enabled", True, "webhooks.pods.enabled", keys.flag),
        translated(f"{hook}.customURL.enabled", False, "webhooks.url", rules.webhook_url),
        translated(f"{hook}.customURL.host", "127.0.0.1", "webhooks.url", rules.webhook_url),
        translated(f"{hook}.customURL.port", 31998, "webhooks.url", rules.webhook_url),
        translated(
            f"{hook}.customURL.path", "/webhook", "none: it is always /webhook", rules.webhook_path
        ),
        same(f"{hook}.whitelistNamespaces", None, "webhooks.pods.ignoredNamespaces", keys.texts),
        without_effect(
            f"{hook}.manageNamespaceSelector",
            True,
            "namespaces are left out by name; where a platform writes the selector too, apply ours "
            "with --force-conflicts",
        ),
        not_honoured(f"{hook}.namespaceSelector.matchLabels", None, _BY_LABEL),
        not_honoured(f"{hook}.namespaceSelector.matchExpressions", [], _BY_LABEL),
        not_honoured(f"{hook}.objectSelector.matchLabels", ABSENT, _BY_LABEL),
        not_honoured(f"{hook}.objectSelector.matchExpressions", [], _BY_LABEL),
        without_effect(
            f"{hook}.reinvocationPolicy",
            "Never",
            "it is IfNeeded: a second call about the same pod changes nothing",
        ),
        same(
            f"{hook}.failurePolicy",
            "Ignore",
            "webhooks.pods.failurePolicy",
            keys.one_of("Ignore", "Fail"),
        ),
    )


def _certificate_keys() -> tuple[HamiKey, ...]:
    patch = "scheduler.patch"
    return (
        translated(
            "scheduler.certManager.enabled",
            False,
            "certificate.source: cert-manager",
            rules.certificates,
        ),
        without_effect(
            f"{patch}.enabled",
            True,
            "the scheduler makes its own certificate; for yours set certificate.source: secret",
        ),
        *image_keys(f"{patch}.image", "jettech/kube-webhook-certgen", "v1.5.2", because=_NO_JOB),
        *image_keys(f"{patch}.imageNew", "liangjw/kube-webhook-certgen", "v1.1.1", because=_NO_JOB),
        without_effect(f"{patch}.priorityClassName", "", _NO_JOB),
        without_effect(f"{patch}.podAnnotations", {}, _NO_JOB),
        without_effect(f"{patch}.nodeSelector", {}, _NO_JOB),
        without_effect(f"{patch}.tolerations", [], _NO_JOB),
        without_effect(f"{patch}.runAsUser", 2000, _NO_JOB),
    )


def _service_keys() -> tuple[HamiKey, ...]:
    service = "scheduler.service"
    return (
        same(
            f"{service}.type",
            "NodePort",
            "scheduler.service.type",
            keys.one_of("ClusterIP", "NodePort", "LoadBalancer"),
        ),
        not_honoured(f"{service}.httpPort", 443, _NO_PORTS),
        not_honoured(f"{service}.schedulerPort", 31998, _NO_PORTS),
        not_honoured(f"{service}.monitorPort", 31993, _NO_PORTS),
        without_effect(f"{service}.monitorTargetPort", 9395, "the pod's port is 9395"),
        without_effect(f"{service}.httpTargetPort", 443, "the pod's port is 9443"),
        not_honoured(f"{service}.labels", {}, "the Service has the chart's labels and no others"),
        same(f"{service}.annotations", {}, "scheduler.service.annotations", keys.labels),
    )


def image_keys(
    image: str,
    repository: str = "projecthami/hami",
    tag: str = "",
    *,
    because: str = _HAMIS_IMAGE,
) -> tuple[HamiKey, ...]:
    """Of an image that does not run here."""
    return (
        without_effect(f"{image}.registry", "docker.io", because),
        without_effect(f"{image}.repository", repository, because),
        without_effect(f"{image}.tag", tag, because),
        *(
            pull_keys(image)
            if because == _HAMIS_IMAGE
            else (
                without_effect(f"{image}.pullPolicy", "IfNotPresent", because),
                without_effect(f"{image}.pullSecrets", [], because),
            )
        ),
    )


def pull_keys(image: str) -> tuple[HamiKey, ...]:
    """Of an image whose place one of ours takes."""
    return (
        translated(
            f"{image}.pullPolicy",
            "IfNotPresent",
            "image.pullPolicy, which is one for all images",
            rules.pull_policy,
        ),
        translated(
            f"{image}.pullSecrets", [], "image.pullSecrets, of all pods", rules.pull_secrets
        ),
    )
