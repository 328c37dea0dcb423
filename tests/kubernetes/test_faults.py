"""Whatever breaks between kube-scheduler, the service and the API server: each pod gets its devices
once, nothing is given twice, and nothing stays in use that nobody has.
"""

from __future__ import annotations

import signal
import ssl
import time

import pytest

from .objects import a_pod
from .processes import until
from .proxy import Proxy
from .recount import Amount

BIND = r"^POST /bind"
BINDING = r"^POST .*/binding"


@pytest.fixture
def to_service(cluster):
    """Between kube-scheduler and the service; upstream is set once that has an address."""
    with Proxy("http://127.0.0.1:9") as proxy:
        yield proxy


@pytest.fixture
def to_api(cluster):
    """Between the service and the API server."""
    authority = cluster.plane.authority.certificate
    with Proxy(cluster.plane.url, tls=ssl.create_default_context(cafile=authority)) as proxy:
        yield proxy


def restarted(service, proxy):
    """SIGKILL, and another process that knows nothing of the first."""
    service.kill()
    service.start()
    proxy.upstream = service.url


def bound_once(cluster, service, *names, seconds=60):
    """All of them, each by one binding that the API server accepted."""
    cluster.bound(*names, seconds=seconds)
    for name in names:
        bindings = cluster.writes("hami", "pods/binding", name)
        assert bindings.count("create pods/binding 201") == 1, (name, bindings)
    cluster.agrees(service)


class TestKilled:
    def test_between_filter_and_bind(self, cluster, to_service):
        """The reservation dies with it; the next one must find room anew, or say no."""
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service()
        to_service.upstream = service.url
        cluster.kube_scheduler(to_service.url)
        bind = to_service.hold(BIND)
        cluster.add_pod(a_pod("p", gpu=1, mem=9000))
        bind.wait()
        assert service.used() == {("n1", "GPU-n1-0"): Amount(1, 9000, 0)}, "it is reserved"
        restarted(service, to_service)
        assert service.used() == {("n1", "GPU-n1-0"): Amount()}
        bind.release()
        bound_once(cluster, service, "p")

    def test_between_filter_and_bind_while_another_pod_takes_the_place(self, cluster, to_service):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service()
        to_service.upstream = service.url
        cluster.kube_scheduler(to_service.url)
        bind = to_service.hold(BIND)
        cluster.add_pod(a_pod("late", gpu=1, mem=9000))
        bind.wait()
        restarted(service, to_service)
        cluster.add_pod(a_pod("other", gpu=1, mem=9000))
        cluster.bound("other")
        bind.release()
        cluster.refused("late", "CardInsufficientMemory")
        cluster.agrees(service)
        cluster.remove_pod("other")
        bound_once(cluster, service, "late")

    @pytest.mark.parametrize("arrives", [True, False])
    def test_while_the_binding_is_on_its_way(self, cluster, to_api, to_service, arrives):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service(server=to_api.url)
        to_service.upstream = service.url
        cluster.kube_scheduler(to_service.url)
        binding = to_api.hold(BINDING, late=arrives)
        cluster.add_pod(a_pod("p", gpu=1, mem=9000))
        binding.wait()
        service.kill()
        binding.release()
        service.start()
        to_service.upstream = service.url
        bound_once(cluster, service, "p")

    @pytest.mark.timeout(300)
    def test_in_the_middle_of_a_burst(self, cluster, to_service):
        cluster.add_nodes(*(f"n{n}" for n in range(4)), devices="t4x4")
        service = cluster.service()
        to_service.upstream = service.url
        cluster.kube_scheduler(to_service.url)
        names = [f"p{n:03}" for n in range(100)]
        cluster.add_pods(*(a_pod(name, gpu=1, mem=2000, cores=10) for name in names))
        for share in (10, 40):
            until(
                f"{share} are bound",
                lambda share=share: len(cluster.writes("hami", "pods/binding")) >= share,
            )
            restarted(service, to_service)
        bound_once(cluster, service, *names, seconds=120)
        assert sum(amount.slots for amount in service.used().values()) == 100

    def test_a_stopped_one_ends_well(self, cluster):
        service = cluster.service()
        assert service.stop() == 0


class TestStopped:
    def test_a_process_that_sleeps_and_comes_back(self, cluster):
        """SIGSTOP: a paused machine. kube-scheduler's call waits or fails, and comes again."""
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        service.process.send_signal(signal.SIGSTOP)
        cluster.add_pods(*(a_pod(f"p{n}", gpu=1, mem=3000) for n in range(3)))
        time.sleep(2)
        service.process.send_signal(signal.SIGCONT)
        bound_once(cluster, service, "p0", "p1", "p2")


class TestErrorsWhileBinding:
    @pytest.mark.parametrize("forward", [True, False], ids=["after it happened", "instead"])
    @pytest.mark.parametrize("status", [500, 503, 504, 0], ids=["500", "503", "504", "a reset"])
    def test_an_unknown_outcome(self, cluster, to_api, status, forward):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service(server=to_api.url)
        cluster.kube_scheduler(service.url)
        rule = (
            to_api.answer(BINDING, status, forward=forward)
            if status
            else to_api.drop(BINDING, forward=forward)
        )
        cluster.add_pods(*(a_pod(f"p{n}", gpu=1, mem=7000) for n in range(2)))
        bound_once(cluster, service, "p0", "p1")
        assert len(rule.caught) == 1

    @pytest.mark.parametrize("status", [403, 409, 422, 429])
    def test_a_definite_refusal_frees_at_once(self, cluster, to_api, status):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service(server=to_api.url)
        cluster.kube_scheduler(service.url)
        to_api.answer(BINDING, status, forward=False)
        cluster.add_pods(*(a_pod(f"p{n}", gpu=1, mem=7000) for n in range(2)))
        bound_once(cluster, service, "p0", "p1")

    def test_a_binding_that_arrives_after_everybody_gave_up(self, cluster, to_api):
        """The devices stay its own until it is known what became of it."""
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service(server=to_api.url, bind_timeout="1s")
        cluster.kube_scheduler(service.url)
        binding = to_api.hold(BINDING, late=True)
        cluster.add_pod(a_pod("late", gpu=1, mem=9000))
        binding.wait()
        cluster.add_pod(a_pod("other", gpu=1, mem=9000))
        time.sleep(3)
        binding.release()
        cluster.bound("late")
        cluster.refused("other", "CardInsufficientMemory")
        cluster.agrees(service)

    def test_a_pod_deleted_while_its_binding_is_on_its_way(self, cluster, to_api):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service(server=to_api.url)
        cluster.kube_scheduler(service.url)
        binding = to_api.hold(BINDING)
        cluster.add_pod(a_pod("gone", gpu=1, mem=9000))
        binding.wait()
        cluster.remove_pod("gone")
        binding.release()
        cluster.add_pod(a_pod("next", gpu=1, mem=9000))
        cluster.bound("next")
        cluster.agrees(service)

    def test_a_pod_made_anew_under_its_name_does_not_get_its_binding(self, cluster, to_api):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service(server=to_api.url)
        cluster.kube_scheduler(service.url)
        binding = to_api.hold(BINDING, late=True)
        cluster.add_pod(a_pod("p", gpu=1, mem=9000))
        binding.wait()
        cluster.remove_pod("p")
        cluster.add_pod(a_pod("p", gpu=1, mem=3000))
        binding.release()
        (pod,) = cluster.bound("p")
        assert ",3000," in pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
        assert cluster.writes("hami", "pods/binding", "p").count("create pods/binding 201") == 1
        cluster.agrees(service)


class TestBrokenWatches:
    def test_what_was_missed_is_caught_up_on(self, cluster, to_api):
        """Watches end and cannot be made again for a while, in which pods come and go."""
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service(server=to_api.url)
        cluster.kube_scheduler(service.url)
        cluster.add_pods(*(a_pod(f"p{n}", gpu=1, mem=7000) for n in range(2)))
        cluster.bound("p0", "p1")
        refusing = to_api.answer(r"^GET .*watch=", 503, forward=False, times=None)
        to_api.cut(r"^GET .*watch=")
        refusing.wait()
        cluster.remove_pod("p0")
        refusing.release()
        cluster.add_pod(a_pod("p2", gpu=1, mem=7000))
        bound_once(cluster, service, "p2")
