"""Which resources there are: the built-in ones, and those that CRDs add."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A resource in one version.

    ``storage`` is shared by the versions of one resource: they show the same objects.
    ``versioned_spec``: ``metadata.generation`` counts changes of what the user wants.
    ``needs_version``: an update must carry a resourceVersion. ``created_by_update``: a PUT of what
    does not exist creates it. ``answers_object``: a delete answers with the object, not a Status.
    ``review``: a question; it is posted and answered, and there is nothing to read.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    singular: str = ""
    subresources: tuple[str, ...] = ()
    versioned_spec: bool = False
    needs_version: bool = False
    created_by_update: bool = False
    answers_object: bool = False
    review: bool = False
    custom: bool = False
    storage: tuple[str, str] = ("", "")

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """``pods``, ``leases.coordination.k8s.io``: how messages call it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    @property
    def prefix(self) -> bytes:
        """The beginning of an object as JSON; what is stored begins with the next field."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.group_version}",'.encode()


class Kinds:
    """All resources that are served now."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, str], Kind] = {}
        for kind in builtin_kinds():
            self.add(kind)

    def add(self, kind: Kind) -> None:
        self._kinds[kind.group, kind.version, kind.plural] = kind

    def remove(self, kind: Kind) -> None:
        self._kinds.pop((kind.group, kind.version, kind.plural), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def of(self, api_version: str, kind: str) -> Kind | None:
        """By what a manifest says about itself."""
        return next((k for k in self if k.group_version == api_version and k.kind == kind), None)

    def named(self, plural: str, group: str = "") -> Kind:
        """The first version of a resource.

        Raises:
            KeyError: there is no such resource.
        """
        for kind in self:
            if kind.plural == plural and kind.group == group:
                return kind
        raise KeyError(f"{plural}.{group}" if group else plural)

    def groups(self) -> dict[str, list[str]]:
        """Group -> its versions, in order of preference."""
        found: dict[str, list[str]] = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        return found

    def within(self, group: str, version: str) -> list[Kind]:
        return [k for k in self if (k.group, k.version) == (group, version)]

    def has_version(self, group: str, version: str) -> bool:
        return any((k.group, k.version) == (group, version) for k in self)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())


def builtin_kinds() -> Iterable[Kind]:
    """The table below, one kind a line."""
    for line in _BUILTIN.strip().splitlines():
        group_version, plural, kind, marks, *rest = line.split()
        group, _, version = group_version.rpartition("/")
        named = dict(part.split("=") for part in rest)
        yield Kind(
            group=group,
            version=version,
            plural=plural,
            kind=kind,
            singular=kind.lower(),
            namespaced="n" in marks,
            categories=("all",) if "a" in marks else (),
            subresources=tuple(filter(None, named.get("sub", "").split(","))),
            short_names=tuple(filter(None, named.get("short", "").split(","))),
            versioned_spec="g" in marks,
            needs_version="v" in marks,
            created_by_update="u" in marks,
            answers_object="o" in marks,
            review="r" in marks,
            # Both groups show the same events, each in its own words.
            storage=("", "events") if plural == "events" else (group, plural),
        )


# n: namespaced, c: cluster-wide, g: counts generations, v: updates need a resourceVersion,
# u: a PUT creates, o: a delete answers with the object, a: part of `kubectl get all`, r: a review.
_BUILTIN = """
v1 configmaps ConfigMap n short=cm
v1 endpoints Endpoints nu short=ep
v1 events Event nu short=ev
v1 limitranges LimitRange n short=limits
v1 namespaces Namespace c short=ns sub=finalize,status
v1 nodes Node c short=no sub=status
v1 persistentvolumeclaims PersistentVolumeClaim no short=pvc sub=status
v1 persistentvolumes PersistentVolume co short=pv sub=status
v1 pods Pod ngoa short=po sub=binding,eviction,status
v1 podtemplates PodTemplate no
v1 replicationcontrollers ReplicationController nga short=rc sub=status
v1 resourcequotas ResourceQuota no short=quota sub=status
v1 secrets Secret n
v1 serviceaccounts ServiceAccount no short=sa sub=token
v1 services Service nou short=svc sub=status
apps/v1 controllerrevisions ControllerRevision n
apps/v1 daemonsets DaemonSet nga short=ds sub=status
apps/v1 deployments Deployment nga short=deploy sub=scale,status
apps/v1 replicasets ReplicaSet nga short=rs sub=scale,status
apps/v1 statefulsets StatefulSet nga short=sts sub=scale,status
events.k8s.io/v1 events Event nu short=ev
batch/v1 cronjobs CronJob nga short=cj sub=status
batch/v1 jobs Job nga sub=status
networking.k8s.io/v1 ingresses Ingress ng short=ing sub=status
networking.k8s.io/v1 networkpolicies NetworkPolicy ng short=netpol
policy/v1 poddisruptionbudgets PodDisruptionBudget ng short=pdb sub=status
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding c
rbac.authorization.k8s.io/v1 clusterroles ClusterRole c
rbac.authorization.k8s.io/v1 rolebindings RoleBinding n
rbac.authorization.k8s.io/v1 roles Role n
storage.k8s.io/v1 csidrivers CSIDriver co
storage.k8s.io/v1 csinodes CSINode co
storage.k8s.io/v1 csistoragecapacities CSIStorageCapacity n
storage.k8s.io/v1 storageclasses StorageClass co short=sc
storage.k8s.io/v1 volumeattachments VolumeAttachment co sub=status
storage.k8s.io/v1 volumeattributesclasses VolumeAttributesClass co short=vac
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration cg
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration cg
authentication.k8s.io/v1 tokenreviews TokenReview cr
authorization.k8s.io/v1 subjectaccessreviews SubjectAccessReview cr
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition cgv short=crd sub=status
scheduling.k8s.io/v1 priorityclasses PriorityClass cg short=pc
coordination.k8s.io/v1 leases Lease nuv
node.k8s.io/v1 runtimeclasses RuntimeClass c
discovery.k8s.io/v1 endpointslices EndpointSlice ng
resource.k8s.io/v1 deviceclasses DeviceClass cg
resource.k8s.io/v1 resourceclaims ResourceClaim no sub=status
resource.k8s.io/v1 resourceclaimtemplates ResourceClaimTemplate no
resource.k8s.io/v1 resourceslices ResourceSlice cg
"""
