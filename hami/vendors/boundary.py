"""One vendor's calls: its plugin's hook, or the default, behind one boundary for failures.

Whatever a plugin raises or returns out of contract becomes that vendor's refusal and a
:class:`VendorFailure` for whoever counts and logs; it never reaches another vendor. What is out of
contract, and what the refusal is, stands in the table of hooks (``hami.hookspecs.calls``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from hami.domain.devices import Device
from hami.domain.errors import Malformed, VendorFailed
from hami.domain.kubernetes.objects import Container, Node, Pod
from hami.domain.profile import ALL_COLUMNS, HEALTH_AND_CORDON, ModeRules, VendorProfile
from hami.domain.units import VendorKey
from hami.hookspecs.answer_types import WrongAnswer
from hami.hookspecs.calls import NodeCalls
from hami.hookspecs.hook import Answer, Asked, Hook, Refusal
from hami.policy.ports import VendorCalls
from hami.policy.profile import defaults
from hami.vendors.implementations import Implementations


@dataclass(frozen=True, slots=True)
class VendorFailure:
    """A plugin broke its contract: which, in which hook, and how."""

    vendor: str
    hook: str
    distribution: str
    problem: str
    error: BaseException | None = None

    def __str__(self) -> str:
        return f"{self.distribution}: {self.hook} of vendor {self.vendor} failed: {self.problem}"


def ignore_failure(_: VendorFailure) -> None:
    """For callers that see the refusals and need no count."""


def ignore_fit(_vendor: VendorKey, _seconds: float) -> None:
    """For callers that do not measure."""


class Vendor(VendorCalls, NodeCalls):
    """One vendor: its profile, and every hook as a method (``hami.hookspecs.calls``).

    What each call means is said in ``hami.hookspecs``.
    """

    def __init__(
        self,
        *,
        profile: VendorProfile,
        distribution: str,
        version: str,
        implementations: Implementations,
        on_failure: Callable[[VendorFailure], None],
        on_fit: Callable[[VendorKey, float], None] = ignore_fit,
    ) -> None:
        self.profile = profile
        self.distribution = distribution
        self.version = version
        self.hooks = tuple(sorted(implementations.own))
        self.scores = "hami_score" in self.hooks
        self.chooses = "hami_choose" in self.hooks
        self.fits = "hami_fit" in self.hooks
        self.has_node_hooks = any(hook.name in self.hooks for hook in NodeCalls.hooks_in_order())
        own = [hook for hook in self.hooks_in_order() if hook.name in self.hooks]
        columns = HEALTH_AND_CORDON if any(hook.decides for hook in own) else ALL_COLUMNS
        self._default_rules = ModeRules(prefilter=columns)
        self._rules = {
            mode: replace(rules, prefilter=columns) if rules.prefilter is None else rules
            for mode, rules in profile.modes.items()
        }
        self._functions = implementations.functions
        self._on_failure = on_failure
        self._on_fit = on_fit
        self._reads_by_default = "hami_parse_request" in implementations.by_default
        if self._reads_by_default:
            self.parse_request = partial(defaults.parse_request, profile)
        if "hami_node_devices" in implementations.by_default:
            self._read_where_registered()
        self.fit = self._timed(self.fit)

    def rules(self, mode: str) -> ModeRules:
        """The profile's rules for a device mode, with ``prefilter`` filled in."""
        return self._rules.get(mode, self._default_rules)

    def asks(self, container: Container, pod: Pod) -> bool:
        """``parse_request`` would not be None; cheaper where the vendor takes the default."""
        if self._reads_by_default:
            return defaults.asks(self.profile, container)
        return super().asks(container, pod)

    def call_of(self, hook: Hook[Asked, Answer, Refusal]) -> Callable[Asked, Answer | Refusal]:
        """The plugin's function, or the default, with the boundary around it."""
        ask = self._functions.get(hook.name)
        if ask is None:
            return self._not_implemented(hook)
        profile, check, refusal = self.profile, hook.check, hook.refusal
        answer_type = hook.answer_type()
        classes, read = answer_type.classes, answer_type.read

        def call(*by_position: Asked.args, **by_name: Asked.kwargs) -> Answer | Refusal:
            asked = hook.in_order(by_position, by_name) if by_name else by_position
            failed: BaseException | None = None
            try:
                answer: Answer = ask(profile, *asked)
                if not isinstance(answer, classes):
                    answer = read(answer)
                problem = check(answer, profile, *asked) if check else ""
                if not problem:
                    return answer
            except WrongAnswer as wrong:
                problem = str(wrong)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- past here failures are values
                problem, failed = f"{type(error).__name__}: {error}", error
            failure = VendorFailure(profile.key, hook.name, self.distribution, problem, failed)
            self._on_failure(failure)
            return refusal(str(failure), failed, profile, *asked)

        return call

    def _not_implemented(
        self, hook: Hook[Asked, Answer, Refusal]
    ) -> Callable[Asked, Answer | Refusal]:
        def call(*_: Asked.args, **__: Asked.kwargs) -> Answer | Refusal:
            raise VendorFailed(f"{self.distribution} does not implement {hook.name}")

        return call

    def _read_where_registered(self) -> None:
        """Most nodes have no device of most vendors: for those, nothing is called."""
        read, key = self.node_devices, self.profile.node_annotations.register

        def node_devices(node: Node) -> Sequence[Device] | Malformed:
            return read(node) if key in node.annotations else ()

        self.node_devices = node_devices

    def _timed(self, fit: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
        def timed(*arguments: Asked.args, **named: Asked.kwargs) -> Answer:
            begin = perf_counter()
            try:
                return fit(*arguments, **named)
            finally:
                self._on_fit(self.profile.key, perf_counter() - begin)

        return timed
