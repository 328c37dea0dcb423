"""The table of hooks: each with its check, and with what a failing plugin's answer becomes.

A line here makes a method of every vendor. Its arguments and its type are those of the hookspec;
what a hook does without a plugin's answer is ``hami.policy.profile.defaults``.
"""

from __future__ import annotations

from hami.hookspecs import checks, refusals
from hami.hookspecs.hook import Hook, HookCalls
from hami.hookspecs.node import NodeHooks
from hami.hookspecs.scheduler import SchedulerHooks


class SchedulerCalls(HookCalls):
    """The scheduler's hooks of one vendor. They always answer, ``node_annotations`` excepted."""

    node_devices = Hook(
        SchedulerHooks.hami_node_devices,
        check=checks.wrong_devices,
        refusal=refusals.unreadable_devices,
    )
    node_annotations = Hook(SchedulerHooks.hami_node_annotations, refusal=refusals.raised)
    admit = Hook(SchedulerHooks.hami_admit, refusal=refusals.denied_where_asked)
    parse_request = Hook(
        SchedulerHooks.hami_parse_request,
        check=checks.wrong_request,
        refusal=refusals.invalid_where_asked,
    )
    charge = Hook(
        SchedulerHooks.hami_charge,
        check=checks.wrong_charge,
        refusal=refusals.refused_device,
        decides=True,
    )
    accept = Hook(SchedulerHooks.hami_accept, refusal=refusals.refused_device, decides=True)
    choose = Hook(SchedulerHooks.hami_choose, refusal=refusals.refused_candidates, decides=True)
    fit = Hook(
        SchedulerHooks.hami_fit,
        check=checks.wrong_placement,
        refusal=refusals.refused_states,
        decides=True,
    )
    score = Hook(SchedulerHooks.hami_score, check=checks.wrong_score, refusal=refusals.refused_node)
    allocation_annotations = Hook(
        SchedulerHooks.hami_allocation_annotations, refusal=refusals.refused_node
    )
    restore = Hook(
        SchedulerHooks.hami_restore,
        check=checks.wrong_allocation,
        refusal=refusals.corrupt_devices,
    )


class NodeCalls(HookCalls):
    """The node's hooks of one vendor. They raise ``VendorFailed``: the agent tries again."""

    node_options = Hook(NodeHooks.hami_node_options, refusal=refusals.raised)
    discover = Hook(NodeHooks.hami_discover, refusal=refusals.raised)
    static_devices = Hook(NodeHooks.hami_static_devices, refusal=refusals.raised)
    static_edits = Hook(NodeHooks.hami_static_edits, refusal=refusals.raised)
    enforce = Hook(NodeHooks.hami_enforce, refusal=refusals.raised)
    release = Hook(NodeHooks.hami_release, refusal=refusals.raised)
    reconcile = Hook(NodeHooks.hami_reconcile, refusal=refusals.raised)
    check_health = Hook(NodeHooks.hami_check_health, refusal=refusals.raised)
    measure = Hook(NodeHooks.hami_measure, check=checks.wrong_measurement, refusal=refusals.raised)
