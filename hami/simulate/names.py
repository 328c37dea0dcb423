"""Names as Kubernetes' controllers and its API server make them."""

from __future__ import annotations

import uuid

from hami.domain.kubernetes.objects import Metadata

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of Kubernetes' random suffixes: no vowels, so no words
(staging/src/k8s.io/apimachinery/pkg/util/rand/rand.go)."""
_DRAWN = 5
_LONGEST_HASH = 10


def generated_name(prefix: str, seed: str) -> str:
    """A name as the API server makes it from ``generateName``, but the same for the same seed."""
    number = uuid.uuid5(uuid.NAMESPACE_URL, seed).int
    drawn = (number // len(_ALPHABET) ** place % len(_ALPHABET) for place in range(_DRAWN))
    return prefix + "".join(_ALPHABET[index] for index in drawn)


def deployment_of(replica_set: str, pod: Metadata) -> str:
    """The Deployment whose ReplicaSet made this pod; empty when there is none.

    A Deployment's ReplicaSets are called ``<name>-<hash>``, and their pods have the hash as a
    label.
    https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#pod-template-hash-label
    """
    name, _, suffix = replica_set.rpartition("-")
    label = (pod.labels or {}).get("pod-template-hash")
    if label is not None:
        return name if suffix == label else ""
    is_hash = 0 < len(suffix) <= _LONGEST_HASH and set(suffix) <= set(_ALPHABET)
    return name if is_hash else ""


def cron_job_of(job: str) -> str:
    """The CronJob that made this Job; empty when there is none.

    A CronJob's Jobs are called ``<name>-<minutes since 1970>`` (pkg/controller/cronjob/utils.go in
    Kubernetes).
    """
    name, _, minutes = job.rpartition("-")
    return name if minutes.isascii() and minutes.isdigit() else ""
