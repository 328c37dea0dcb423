"""NVML as the driver answers it: the real ``pynvml`` over a library that is made up."""
# ruff: noqa: N802

import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from shutil import which

import pytest
from hami_nvidia.health.watch import HealthWatch
from hami_nvidia.mig.instances import Instances
from hami_nvidia.nvml.driver import DriverNvml
from hami_nvidia.nvml.driver_session import Session, library_path, preload_library
from hami_nvidia.nvml.interface import (
    GpuLost,
    InUse,
    NotSupported,
    NvLink,
    NvmlAway,
    NvmlFailed,
    NvmlUnreadable,
    Recovery,
    XidEvent,
)

from ..devices.test_discovery import cut
from ..hardware_builders import discovered, lose, settings, simulated, take_driver_away, uuids
from ..mig.test_instances import Node
from .fake_library import driver_over, fresh_pynvml

MIXED_GPUS = [
    {"model": "a100-40g", "count": 2},
    {"model": "a100-80g", "mig": True},
    {"model": "t4", "sharesHostMemory": True},
    {"model": "v100-32g", "count": 3},
]


@pytest.fixture
def nvml(tmp_path):
    return cut(
        simulated(tmp_path, MIXED_GPUS), 2, ("3g.40gb", 4), ("1g.10gb", 0), ("1g.10gb+me", 1)
    )


@pytest.fixture
def driver(nvml):
    return driver_over(nvml)[0]


@pytest.fixture
def library(nvml):
    return driver_over(nvml)[1]


def without_numa(gpus):
    return [
        type(gpu)(**{name: getattr(gpu, name) for name in type(gpu).__slots__ if name != "numa"})
        for gpu in gpus
    ]


# It says what the simulated one says.


def test_gpus(nvml, driver):
    assert driver.gpus() == without_numa(nvml.gpus())


@pytest.mark.parametrize(
    "request_", ["probe", "busy", "mig_mode", "instances", "mig_devices", "links"]
)
def test_what_is_asked_of_a_gpu(nvml, driver, request_):
    for uuid in uuids(nvml):
        told, expected = (getattr(each, request_)(uuid) for each in (driver, nvml))
        assert told == (list(expected) if isinstance(expected, tuple) else expected)


def test_instance_profiles(nvml, driver):
    for uuid in uuids(nvml):
        assert list(driver.instance_profiles(uuid)) == list(nvml.instance_profiles(uuid))


def test_ancestors(nvml, driver):
    one, *others = uuids(nvml)
    for other in others:
        assert driver.ancestor(one, other) == nvml.ancestor(one, other)


def test_instances_are_made_and_destroyed(nvml, driver):
    gpu = uuids(nvml)[2]
    kind = next(k for k in driver.instance_profiles(gpu) if k.name == "2g.20gb")
    made = driver.create_instance(gpu, kind, kind.spans[1])
    assert driver.create_compute(gpu, made) == 0
    assert [d.profile for d in driver.mig_devices(gpu) if d.gpu_instance == made] == ["2g.20gb"]
    driver.destroy_compute(gpu, made, 0)
    driver.destroy_instance(gpu, made)
    assert made not in [instance.id for instance in nvml.instances(gpu)]


def test_mig_is_turned_on(nvml, driver):
    driver.set_mig(uuids(nvml)[0], enabled=True)
    assert nvml.mig_mode(uuids(nvml)[0]).enabled


def test_processes_on_a_gpu_and_on_its_mig_devices(nvml, driver):
    gpu = uuids(nvml)[2]
    device = nvml.mig_devices(gpu)[0].uuid
    with nvml.state.changing() as state:
        state.busy = [device]
    assert (driver.busy(gpu), driver.busy(device)) == (True, True)
    assert not driver.busy(nvml.mig_devices(gpu)[1].uuid)
    assert not driver.busy(uuids(nvml)[0])


@pytest.mark.parametrize("recovery", list(Recovery))
def test_what_the_driver_demands(nvml, driver, recovery):
    with nvml.state.changing() as state:
        state.gpu(uuids(nvml)[0]).recovery = recovery
    assert driver.probe(uuids(nvml)[0]) is recovery


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({"xid": 79}, id="of a GPU"),
        pytest.param({"xid": 94, "gpu_instance": 0, "compute_instance": 0}, id="of a MIG device: 0 is an id"),
    ],
)  # fmt: skip
def test_errors(nvml, driver, event):
    gpu = uuids(nvml)[1]
    watch = driver.watch(uuids(nvml))
    assert watch.refused == {}
    assert watch.wait(0) is None
    nvml.state.add_event(uuid=gpu, **event)
    assert watch.wait(0) == XidEvent(uuid=gpu, **event)
    watch.close()


# Older drivers.


def test_without_names_of_profiles_they_are_computed(nvml):
    driver, library = driver_over(nvml)
    library.missing |= {"nvmlDeviceGetGpuInstanceProfileInfoV", "old names"}
    gpu = uuids(nvml)[2]
    names = [kind.name for kind in driver.instance_profiles(gpu)]
    assert names == ["1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb", "1g.20gb"]
    assert [d.profile for d in driver.mig_devices(gpu)] == ["3g.40gb", "1g.10gb", "1g.10gb"]


@pytest.mark.parametrize(
    ("function", "ask", "expected"),
    [
        pytest.param("nvmlDeviceGetFieldValues", lambda d, gpu: d.probe(gpu), Recovery.UNKNOWN, id="no recovery action"),
        pytest.param("nvmlDeviceGetMigMode", lambda d, gpu: d.mig_mode(gpu), None, id="no MIG"),
        pytest.param("nvmlDeviceGetMaxMigDeviceCount", lambda d, gpu: d.mig_devices(gpu), [], id="no MIG devices"),
        pytest.param("nvmlDeviceGetComputeRunningProcesses_v3", lambda d, gpu: d.busy(gpu), False, id="a former version of a function"),
        pytest.param("nvmlDeviceGetNvLinkRemoteDeviceType", lambda d, gpu: d.links(gpu)[0], NvLink(remote_bus_id="00000000:C0:00.0"), id="links to unknown things"),
        pytest.param("nvmlDeviceGetNvLinkState", lambda d, gpu: d.links(gpu), NotSupported, id="no NVLinks asked for"),
        pytest.param("nvmlDeviceGetGraphicsRunningProcesses_v3", lambda d, gpu: d.busy(gpu), NotSupported, id="nobody knows who runs"),
    ],
)  # fmt: skip
def test_what_an_old_library_does_not_know(nvml, function, ask, expected):
    driver, library = driver_over(nvml)
    library.missing.add(function)
    if isinstance(expected, type):
        with pytest.raises(expected):
            ask(driver, uuids(nvml)[0])
    else:
        assert ask(driver, uuids(nvml)[0]) == expected


# Errors.


@pytest.mark.parametrize(
    ("number", "expected", "text"),
    [
        pytest.param(9, NvmlAway, "load the kernel module", id="driver not loaded"),
        pytest.param(18, NvmlAway, "restart this agent", id="another driver's library"),
        pytest.param(1, NvmlAway, "session", id="uninitialised"),
        pytest.param(15, GpuLost, "GPU is lost.*: it fell off the bus; reboot", id="GPU is lost"),
        pytest.param(
            16,
            GpuLost,
            "requires restart.*: reset it with nvidia-smi --gpu-reset",
            id="a reset is required",
        ),
        pytest.param(19, InUse, "In use by another client", id="in use"),
        pytest.param(3, NotSupported, "Not Supported", id="not supported"),
        pytest.param(4, NvmlFailed, "Insufficient Permissions", id="no permission"),
        pytest.param(999, NvmlFailed, "Unknown Error", id="unknown"),
        pytest.param(77, NvmlFailed, "77", id="one that the module does not know"),
    ],
)
def test_errors_are_told_apart(nvml, number, expected, text):
    driver, library = driver_over(nvml)
    library.failing["nvmlDeviceGetTopologyCommonAncestor"] = number
    one, other, *_ = uuids(nvml)
    with pytest.raises(NvmlFailed, match=text) as caught:
        driver.ancestor(one, other)
    assert type(caught.value) is expected
    assert f"{one}: find what it shares with {other}" in str(caught.value)


def test_a_lost_gpu_is_counted_and_not_read(nvml, driver):
    lose(nvml, 1)
    listed = driver.gpus()
    assert isinstance(listed[1], NvmlUnreadable)
    assert "GPU 1: read its properties: GPU is lost" in listed[1].problem
    assert [gpu.index for gpu in listed] == list(range(7))
    with pytest.raises(GpuLost):
        driver.probe(uuids(nvml)[1])


def test_a_device_that_is_not_there(driver):
    with pytest.raises(NvmlFailed, match="GPU-none: read its MIG mode: Not Found"):
        driver.mig_mode("GPU-none")


def test_a_library_that_is_not_there():
    with pytest.raises(NvmlAway, match=r"libnvidia-ml.so.1"):
        DriverNvml(api=without_library()).gpus()


def without_library():
    api = fresh_pynvml()

    def missing(flags=0):
        raise api.NVMLError(api.NVML_ERROR_LIBRARY_NOT_FOUND)

    api.nvmlInit = missing
    return api


def with_activation(nvml, status):
    """A driver that takes a mode, and says this of its activation."""
    driver, library = driver_over(nvml)
    real = type(library).nvmlDeviceSetMigMode

    class Activating(type(library)):
        def nvmlDeviceSetMigMode(self, handle, mode, out):
            real(self, handle, mode, out)
            out._obj.value = status

    library.__class__ = Activating
    return driver


@pytest.mark.parametrize(("status", "expected"), [(19, InUse), (4, NvmlFailed), (15, GpuLost)])
def test_a_refused_mode_is_an_error(nvml, status, expected):
    with pytest.raises(NvmlFailed, match="set its MIG mode") as caught:
        with_activation(nvml, status).set_mig(uuids(nvml)[0], enabled=True)
    assert type(caught.value) is expected


def test_a_mode_that_waits_for_a_reset_is_no_error(nvml):
    """The GPU is well; ``mig_mode`` says that the mode is not in force."""
    with_activation(nvml, 16).set_mig(uuids(nvml)[0], enabled=True)


# Sessions.


def test_one_session_serves_all_requests(nvml):
    driver, library = driver_over(nvml)
    driver.gpus()
    driver.links(uuids(nvml)[0])
    assert library.calls.count("nvmlInitWithFlags") == 1
    driver.close()
    assert library.sessions == 0
    driver.gpus()
    assert library.sessions == 1


def test_a_driver_that_went_away_is_asked_again_from_the_start(nvml):
    driver, library = driver_over(nvml)
    before = driver.gpus()
    take_driver_away(nvml)
    for _ in range(3):
        with pytest.raises(NvmlAway):
            driver.gpus()
    assert library.sessions == 0
    take_driver_away(nvml, "")
    assert driver.gpus() == before
    assert library.calls.count("nvmlInitWithFlags") == 4


def test_a_session_is_not_ended_under_somebody():
    api = Counting()
    session = Session(api=api)
    with session.asking("outer"):
        session.end()
        with session.asking("inner"):
            assert api.log == ["init"]
        assert api.log == ["init"]
    assert api.log == ["init", "shutdown"]


def test_while_somebody_is_still_inside_a_broken_session_nobody_enters():
    api = Counting()
    session = Session(api=api)
    with session.asking("outer"):
        with pytest.raises(NvmlAway), session.asking("broken"):
            raise api.NVMLError(api.NVML_ERROR_DRIVER_NOT_LOADED)
        with pytest.raises(NvmlAway), session.asking("late"):
            pass
    with session.asking("afterwards"):
        assert api.log == ["init", "shutdown", "init"]


def test_many_threads_share_one_session():
    api = Counting()
    session = Session(api=api)
    together = threading.Barrier(8)

    def ask():
        together.wait()
        for _ in range(200):
            with session.asking("something"):
                assert api.log[-1] == "init"
            session.end()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert api.log.count("init") == api.log.count("shutdown")


class Counting:
    """``pynvml`` as far as a session uses it."""

    def __init__(self):
        real = fresh_pynvml()
        for name in dir(real):
            if name.startswith("NVML_ERROR"):
                setattr(self, name, getattr(real, name))
        self.NVMLError = real.NVMLError
        self.log = []

    def nvmlInit(self):
        self.log.append("init")

    def nvmlShutdown(self):
        self.log.append("shutdown")


def test_a_watch_of_a_former_session_is_of_no_use(nvml, driver):
    watch = driver.watch(uuids(nvml))
    driver.close()
    with pytest.raises(NvmlFailed, match="session of this watch has ended"):
        watch.wait(0)
    watch.close()


def test_a_watch_that_was_closed_is_of_no_use(nvml, driver):
    watch = driver.watch(uuids(nvml))
    watch.close()
    watch.close()
    with pytest.raises(NvmlFailed):
        watch.wait(0)


@pytest.mark.parametrize(
    ("number", "refused"),
    [
        pytest.param(3, 0, id="a GPU that knows no such events is not watched"),
        pytest.param(4, 7, id="one that refuses is told"),
    ],
)
def test_gpus_that_cannot_be_watched(nvml, number, refused):
    driver, library = driver_over(nvml)
    library.failing["nvmlDeviceRegisterEvents"] = number
    assert len(driver.watch(uuids(nvml)).refused) == refused


# The rest of the plugin runs on it as on the simulated one.


def test_discovery_is_the_same(nvml, driver):
    numas = {gpu.uuid: gpu.numa for gpu in nvml.gpus()}
    found = discovered(driver, settings(preConfiguredDeviceMemory=1024))
    expected = discovered(nvml, settings(preConfiguredDeviceMemory=1024))
    assert [(d.id, d.extra, d.memory_mib) for d in found] == [
        (d.id, d.extra, d.memory_mib) for d in expected
    ]
    assert len(numas) == len(found)


def test_instances_are_ensured_and_released(tmp_path):
    node = Node(tmp_path)
    node.instances = Instances(driver_over(node.nvml)[0])
    claim = node.claim("3g.20gb@4")
    made = node.instances.ensure(claim)
    assert node.instances.ensure(claim) == made
    node.release(claim, made)
    assert node.places() == set()


def test_health_follows_the_driver(nvml, driver):
    devices = discovered(driver, settings(preConfiguredDeviceMemory=1024))
    watch = HealthWatch(driver, wait_seconds=0)
    assert watch.check(devices, settings()) == []
    cut_one, struck, lost = uuids(nvml)[2], uuids(nvml)[0], uuids(nvml)[4]
    assert watch.ailing().keys() == {cut_one}
    nvml.state.add_event(79, struck)
    assert [c.device_id for c in watch.check(devices, settings())] == [struck]
    lose(nvml, 4)
    assert [c.device_id for c in watch.check(devices, settings())] == [lost]
    assert watch.ailing().keys() == {cut_one, struck, lost}
    watch.close()


# The library's place.


@pytest.mark.parametrize(
    ("root", "below", "found"),
    [
        pytest.param("driver", "usr/lib64", True, id="as on Red Hat"),
        pytest.param("driver", "usr/lib/x86_64-linux-gnu", True, id="as on Debian"),
        pytest.param("driver", "lib/aarch64-linux-gnu", True, id="as on Arm"),
        pytest.param("driver", "opt", False, id="anywhere else"),
        pytest.param("driver", None, False, id="nowhere"),
    ],
)
def test_the_library_below_the_drivers_root(tmp_path, root, below, found):
    if below:
        folder = tmp_path / root / below
        folder.mkdir(parents=True)
        (folder / "libnvidia-ml.so.580.1").touch()
        (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1")
    path = library_path(tmp_path / root)
    assert path == (folder / "libnvidia-ml.so.580.1" if found else None)


def test_the_nodes_own_root_is_the_loaders(tmp_path):
    assert library_path(Path("/")) is None
    assert preload_library(tmp_path) is None


def test_a_library_that_cannot_be_loaded(tmp_path):
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").write_text("no library")
    with pytest.raises(NvmlAway, match="--container-driver-root"):
        preload_library(tmp_path)


SOURCE = """
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 0; return 0; }
"""


@pytest.mark.skipif(which("cc") is None, reason="needs a C compiler to make a library")
def test_a_library_below_the_root_is_the_one_that_pynvml_loads(tmp_path):
    """In a process of its own: a library stays loaded."""
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    source = tmp_path / "nvml.c"
    source.write_text(SOURCE)
    library = folder / "libnvidia-ml.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", library, source],
        check=True,
    )
    program = (
        "from pathlib import Path\n"
        "from hami_nvidia.nvml.driver import DriverNvml\n"
        f"print(DriverNvml(Path({str(tmp_path)!r})).gpus())\n"
        "print(open('/proc/self/maps').read())"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert output.startswith("[]\n")
    assert str(library) in output


def test_the_real_driver_if_there_is_one():
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        pytest.skip("this machine has no libnvidia-ml.so.1")
    driver = DriverNvml()
    try:
        gpus = driver.gpus()
    except NvmlAway as away:
        pytest.skip(f"this machine has no NVIDIA driver: {away}")
    for gpu in gpus:
        assert not isinstance(gpu, NvmlUnreadable)
        assert driver.probe(gpu.uuid) in Recovery
        assert driver.mig_mode(gpu.uuid) == gpu.mig
        driver.links(gpu.uuid)
    driver.watch([gpu.uuid for gpu in gpus]).close()
    driver.close()
