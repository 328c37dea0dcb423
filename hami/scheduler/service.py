"""Puts the service together: informers into the state, the state behind the listeners.

``serve`` runs until it is cancelled; then requests that are under way are finished, the lease is
given back, and everything is closed.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import structlog

from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.events import EventRecorder
from hami.kube.informer import Handler, Informer, T
from hami.kube.leases import heartbeat
from hami.kube.resources import (
    AGENT_LEASES,
    COMPOSITE_QUOTAS,
    DISRUPTION_BUDGETS,
    ELASTIC_QUOTAS,
    NODES,
    POD_GROUPS,
    PODS,
    QUOTA_TREES,
    QUOTAS,
    Resource,
)
from hami.logs import set_level
from hami.policy.quota.elastic.units import Units
from hami.scheduler import wiring
from hami.scheduler.bookings.deps import SchedulerDeps
from hami.scheduler.bookings.lock_book import needs_lock
from hami.scheduler.bookings.problems import Problem
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.cluster.agents import Agents
from hami.scheduler.cluster.endings import end_overdue, end_promises
from hami.scheduler.cluster.feeds import (
    ElasticFeed,
    Following,
    GroupFeed,
    NodeFeed,
    PodFeed,
    QuotaFeed,
)
from hami.scheduler.cluster.handshake import Handshakes, Patience, alive_now, local_time
from hami.scheduler.cluster.takeover import Takeover
from hami.scheduler.cluster.verification import verify_signatures
from hami.scheduler.decide.binding import Binder, BindSettings
from hami.scheduler.decide.extender import Extender
from hami.scheduler.decide.locks import LockSettings, NodeLocks
from hami.scheduler.decide.wakeup import WakeUp
from hami.scheduler.events import ElasticQuotasArranged, PodSeen, Subscription, UsageChanged, on
from hami.scheduler.exposition.scrape import Scrape
from hami.scheduler.metrics import Metrics
from hami.scheduler.publish.elastic_status import ElasticStatus
from hami.scheduler.publish.publication import PacedPatches
from hami.scheduler.publish.quota_status import QuotaStatus
from hami.scheduler.publish.telling import Telling
from hami.scheduler.readiness import Readiness
from hami.scheduler.readonly.late_router import read_only_api
from hami.scheduler.reclaim.backing import Backing
from hami.scheduler.reclaim.budgets import BudgetIndex
from hami.scheduler.reclaim.preemption import Preemption
from hami.scheduler.resize.authorizer import Authorizer
from hami.scheduler.settings.config import SchedulerConfig
from hami.scheduler.settings.config_source import ConfigSource
from hami.scheduler.web.listeners import Served, listeners_of
from hami.scheduler.web.pod_webhook import Webhook
from hami.scheduler.web.quota_webhook import ListedQuotas, QuotaWebhook
from hami.scheduler.web.resize_route import ResizeParts
from hami.scheduler.web.server import serving
from hami.settings.watch import ConfigWatcher
from hami.signing import Signer, SigningKeys
from hami.vendors.boundary import VendorFailure
from hami.vendors.registry import Vendors, load_vendors
from hami.wire import keys

Ready = Callable[[Mapping[str, str]], None]
"""Told the listeners' URLs by name, once they listen."""

FIRST_KEYS = 3.0
"""Seconds that a start waits for the signing keys before it listens without them."""

SWEEP = 5.0
"""Seconds between looks at what has expired."""


async def serve(config: SchedulerConfig, ready: Ready, *, source: ConfigSource) -> None:
    """Until cancelled.

    Raises:
        ConfigError: a plugin, a key, an address or the API server's configuration is unusable.
        ExceptionGroup: a part has failed for good.
    """
    metrics = Metrics()
    async with await KubeClient.connect(config.kube, on_call=metrics.api_called) as client:
        service = Service(config, source, client, metrics)
        await service.run(ready)


class Service:
    """Every part, built once and handed to those that need it."""

    def __init__(
        self, config: SchedulerConfig, source: ConfigSource, client: KubeClient, metrics: Metrics
    ) -> None:
        self._config = config
        self._policy = config.policy
        self._source = source
        self._client = client
        self._metrics = metrics
        self._log = structlog.get_logger("hami.scheduler")
        self._said: set[str] = set()
        self._keys = SigningKeys(wiring.key_source(config, client))
        self._events = EventRecorder(
            client, component=config.scheduler_name or "hami-scheduler", on_problem=self._problem
        )
        self._telling = Telling(self._write_event, metrics.problems_told)
        self._agents = Agents(self._agent_changed)
        self._state = ClusterState(
            self._load_vendors(config), self._deps(), config.elastic, self._subscriptions()
        )
        self._readiness = Readiness(self._awaited, self._state.quota_objects.measure)
        self._budgets = BudgetIndex(self._state.pods.get)
        self._followings = self._informers()
        self._lease = wiring.lease_of(config, client, self._problem)
        self._leadership = Takeover(
            self._lease,
            relist=self._followings[1].relist,
            began=self._begin_leading,
            ended=self._end_leading,
        )
        self._locks = NodeLocks(self._state, client, self._lock_settings, self._agents.silent)
        self._binder = Binder(
            self._state,
            client,
            self._leadership,
            self._locks,
            settings=self._bind_settings,
            signer=self._signer,
            failed=lambda pod, text: self._events.record(pod, "BindingFailed", text, warning=True),
        )
        self._extender = Extender(
            self._state,
            self._binder,
            self._leadership,
            metrics,
            policy=lambda: self._policy,
            refused=lambda pod, why: self._events.record(pod, "FilteringFailed", why, warning=True),
        )
        self._role = wiring.role_label(config, client, self._problem)
        self._public_keys = wiring.public_keys(
            config, client, self._problem, self._signer, self._leads
        )
        self._certificate = wiring.certificate_keeper(config, client, self._problem, self._leads)
        self._wakeup = WakeUp(
            self._state, client, self._leadership, metrics, policy=lambda: self._policy
        )
        self._resizer = wiring.resizer_of(
            self._state, client, self._leadership, self._events, self._signer, self._bind_timeout
        )
        self._follow_quotas(client)

    def _follow_quotas(self, client: KubeClient) -> None:
        """What is done about quota beside filters: shown, labelled, and taken back."""
        paced = PacedPatches(client)
        self._quota_status = QuotaStatus(
            self._state, paced, leading=self._leads, on_problem=self._problem
        )
        self._backing = Backing(
            self._state,
            known=lambda: self._readiness.complete and self._leads(),
            changed=lambda: self._elastic_status.touch_all(),  # noqa: PLW0108 -- it is made below
        )
        self._elastic_status = ElasticStatus(
            self._state,
            paced,
            leading=self._leads,
            on_problem=self._problem,
            unbacked=lambda: self._backing.unbacked,
        )
        self._preemption = Preemption(
            self._state,
            client,
            self._leadership,
            self._metrics,
            self._events,
            self._budgets,
            policy=lambda: self._policy,
        )

    def _subscriptions(self) -> list[Subscription]:
        """What is published follows from what happens to the state."""
        return [
            on(self._usage_changed, UsageChanged),
            on(self._quotas_arranged, ElasticQuotasArranged),
            on(self._pod_seen, PodSeen),
        ]

    def _usage_changed(self, event: UsageChanged) -> None:
        self._quota_status.touch(event.namespace)
        self._elastic_status.touch(event.namespace)

    def _quotas_arranged(self, _event: ElasticQuotasArranged) -> None:
        self._elastic_status.touch_all()
        self._backing.touch()

    def _pod_seen(self, event: PodSeen) -> None:
        self._resizer.pod_seen(event)
        if event.pod.spec.node_name and not event.pod.finished:
            self._elastic_status.look_at(event.pod)

    def _deps(self) -> SchedulerDeps:
        return SchedulerDeps(
            clock=time.monotonic,
            alive=alive_now,
            signer=self._signer,
            report=self._telling.tell,
            bind_seen=self._metrics.bind_seen,
            hold=self._config.preemption_hold,
            scheduler_name=lambda: self._config.scheduler_name,
            needs_lock=self._needs_lock,
            lock_expiry=lambda: self._config.node_lock_timeout,
        )

    async def run(self, ready: Ready) -> None:
        """Listen first, so that probes have an answer; then read the cluster."""
        # By default a start with 20 000 pods stops for 100 ms, again and again, and finds nothing.
        gc.set_threshold(2_000_000, 20, 100)
        await self._first_keys()
        served = Served(
            extender=self._extender,
            webhook=self._webhook(),
            health=self,
            metrics=Scrape(
                self._state,
                self._metrics,
                leading=self._leads,
                unbacked=lambda: self._backing.missing,
                legacy=self._config.legacy_metrics,
            ),
            api_router=read_only_api(
                self._state,
                leading=self._leads,
                unplanned=lambda: self._preemption.unplanned if self._leads() else {},
            ),
            quota_webhook=QuotaWebhook(
                others=ListedQuotas(self._client),
                units=lambda: Units.of(self._state.vendors),
                metrics=self._metrics,
            ),
            resizing=ResizeParts(self._resizer, Authorizer(self._client), self._metrics),
            certificate=self._certificate.served if self._certificate else None,
        )
        listeners = listeners_of(self._config, served)
        async with asyncio.TaskGroup() as group, _cancelled_at_end() as tasks:
            leading = group.create_task(self._leadership.run())
            tasks += [group.create_task(part) for part in self._parts()]
            try:
                async with serving(listeners, self._config.shutdown_grace) as servers:
                    ready(servers.addresses)
                    await servers.failed()
            finally:
                await self._binder.close()
                await self._resizer.close()
                await self._locks.close()
                leading.cancel()
                await asyncio.wait([leading])
                if self._binder.quiet and self._resizer.quiet:
                    # Else a write may yet arrive: the lease runs out by itself, which takes longer.
                    await self._lease.release()
                await self._events.flush()

    async def _first_keys(self) -> None:
        """A start without the API server goes on without them: they are awaited like the rest."""
        try:
            async with asyncio.timeout(FIRST_KEYS):
                await self._keys.reload()
        except (ApiError, TimeoutError) as error:
            self._problem(f"no signing keys yet: {error or 'no answer'}; trying again")

    # Health, as the listeners ask for it.

    def missing(self) -> Sequence[str]:
        """What a start still waits for."""
        return self._readiness.missing()

    def _awaited(self) -> list[str]:
        waiting = [following.what for following in self._followings if not following.ready]
        waiting += [] if self._keys.known else ["signing keys"]
        waiting += ["a certificate"] if self._certificate and not self._certificate.known else []
        return waiting + (["signatures"] if self._state.bound.unjudged else [])

    async def _begin(self) -> None:
        """Say that the start is over, once nothing is awaited any more, and what it has found."""
        while self.missing():
            await asyncio.sleep(0.02)
        # What was read stays: the collector need not walk through a million objects again.
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)  # So many young objects take 2 ms.
        await self._telling.started()

    def failed(self) -> Sequence[str]:
        """None: a part that fails ends the process."""
        return ()

    # Parts.

    def _parts(self) -> list[Coroutine[Any, Any, None]]:
        watcher = ConfigWatcher(self._source, self._config, self._apply)
        return [
            *(following.run() for following in (*self._followings, *self._group_informers())),
            self._events.run(),
            self._wakeup.run(),
            self._locks.run(self._leads),
            self._agents.run(),
            self._keys.run(self._problem, changed=self._other_keys),
            watcher.run(),
            self._quota_status.run(),
            self._elastic_status.run(),
            self._backing.run(),
            self._preemption.run(),
            *(one.run() for one in (self._role, self._public_keys, self._certificate) if one),
            Handshakes(
                self._state,
                self._client,
                leading=self._leads,
                now=local_time,
                on_problem=self._problem,
            ).run(),
            Patience(self._state, now=local_time).run(),
            verify_signatures(self._state, self._signer),
            self._begin(),
            self._sweep(),
        ]

    def _informers(self) -> list[Following[Any]]:
        """Pods are the second: a new leader lists them anew."""
        state = self._state
        elastic = ElasticFeed(state.quota_objects)
        return [
            self._following("nodes", NODES, NodeFeed(state), self._config.node_label_selector),
            self._following("pods", PODS, PodFeed(state)),
            self._following("quotas", QUOTAS, QuotaFeed(state)),
            self._following("elastic quotas", ELASTIC_QUOTAS, elastic),
            self._following("composite quotas", COMPOSITE_QUOTAS, elastic),
            self._following("quota trees", QUOTA_TREES, elastic),
            self._following("disruption budgets", DISRUPTION_BUDGETS, self._budgets),
            self._following("agents", AGENT_LEASES, self._agents, keys.AGENT, heartbeat.NAMESPACE),
        ]

    def _group_informers(self) -> list[Following[Any]]:
        """Nobody waits for these: of a group that nobody describes, all pods run together."""
        return [
            self._following(f"pod groups of {api}", kind, GroupFeed(self._state, api))
            for kind in POD_GROUPS
            for api in (kind.group_version.partition("/")[0],)
        ]

    def _following(
        self,
        what: str,
        resource: Resource[T],
        handler: Handler[T],
        label_selector: str = "",
        namespace: str = "",
    ) -> Following[T]:
        informer = Informer(
            self._client,
            resource,
            handler,
            namespace=namespace,
            label_selector=label_selector,
            on_problem=self._problem,
            optional=resource.group_version not in ("v1", "policy/v1"),
        )
        return Following(what, informer)

    def _agent_changed(self, name: str) -> None:
        self._state.inventory.look_at_locks(name)

    def _needs_lock(self, node: Node, profile: VendorProfile) -> str:
        return needs_lock(node, profile, silent=self._agents.silent(node.name, profile.key))

    def _signer(self) -> Signer:
        return self._keys.signer

    def _other_keys(self) -> None:
        self._state.bound.judge_anew()
        if self._public_keys:
            self._public_keys.touch()

    def _webhook(self) -> Webhook:
        return Webhook(
            vendors=lambda: self._state.vendors,
            ledger=lambda: self._state.ledger,
            settings=lambda: self._config.admission,
            metrics=self._metrics,
        )

    async def _sweep(self) -> None:
        """Give up what was promised long ago; count what others have counted."""
        relists = dict.fromkeys(self._followings, 1)  # The first list is none.
        dropped = 0
        while True:
            await asyncio.sleep(SWEEP)
            for following in self._followings:
                made = following.informer.relists
                self._metrics.relisted(following.what, max(made - relists[following], 0))
                relists[following] = made
            self._metrics.event_dropped(self._events.dropped - dropped)
            dropped = self._events.dropped
            self._state.quota_objects.measure()
            end_overdue(self._state, self._config.reservation_ttl, self._config.policy)

    # Leadership.

    def _leads(self) -> bool:
        return self._leadership.leading

    def _begin_leading(self) -> None:
        self._quota_status.touch_all()
        self._elastic_status.touch_all()
        if self._role:
            self._role.set(leading=True)
        for kept in (self._public_keys, self._certificate):
            if kept:
                kept.touch()
        self._state.pending.begin_leading()

    def _end_leading(self) -> None:
        self._state.pending.end_leading()
        end_promises(self._state)
        if self._role:
            self._role.set(leading=False)

    # Settings that may change while it runs.

    def _bind_settings(self) -> BindSettings:
        return BindSettings(policy=self._policy, timeout=self._bind_timeout())

    def _bind_timeout(self) -> float:
        return self._config.bind_timeout

    def _lock_settings(self) -> LockSettings:
        return LockSettings(
            expiry=self._config.node_lock_timeout,
            group_patience=self._config.node_lock_retry_timeout,
        )

    def _apply(self, config: SchedulerConfig) -> None:
        if config.devices != self._config.devices:
            self._state.use(self._load_vendors(config))
        if config.log_level != self._config.log_level:
            set_level(config.log_level)
        self._config = config
        self._policy = config.policy

    def _load_vendors(self, config: SchedulerConfig) -> Vendors:
        return load_vendors(
            config.devices,
            profiles=config.profiles,
            on_failure=self._vendor_failed,
            on_fit=self._metrics.fitted,
        )

    # What goes wrong.

    def _problem(self, text: str) -> None:
        self._log.warning("problem", problem=text)

    def _vendor_failed(self, failure: VendorFailure) -> None:
        """Once: a failing plugin may fail for every node of every pod."""
        text = str(failure)
        if text not in self._said:
            self._said.add(text)
            self._log.error("a plugin failed", problem=text)

    def _write_event(self, problem: Problem) -> None:
        self._events.record(problem.about, problem.reason, problem.text, warning=True)


@asynccontextmanager
async def _cancelled_at_end() -> AsyncIterator[list[asyncio.Task[None]]]:
    """Tasks that only end when they are told to."""
    tasks: list[asyncio.Task[None]] = []
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
