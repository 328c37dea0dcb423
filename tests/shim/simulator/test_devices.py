"""Which simulated cards a process sees, and what the daemon takes for a card."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from ..simulated import MIB
from .clients import DATA, NO_DEVICE

UUIDS = [
    "GPU-aaaaaaaa-1111-4000-8000-000000000001",
    "GPU-aaaaaaab-2222-4000-8000-000000000002",
    "GPU-bbbbbbbb-3333-4000-8000-000000000003",
]
HELLO = b"\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0" + b"t".ljust(64, b"\0")
SIM_UNKNOWN, SIM_INVALID = 2, 3
# The third is the fastest.
CARDS = "".join(
    f"gpu name=Card{n} memory=1000 sms={100 + 10 * (n == 2)} uuid={uuid} pci=00000000:{n + 1:02X}:00.0\n"
    for n, uuid in enumerate(UUIDS)
)
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def seen(client, **env: str) -> list[int]:
    process = client(connected=False, env=env)
    process.tell("connect")
    code = process.code()
    if code != 0:
        assert code == NO_DEVICE
        return []
    process.tell("devices")
    return [int(word.split(":")[0]) for word in process.answer()[1:]]


@pytest.mark.parametrize(
    ("visible", "boards"),
    [
        (None, [0, 1, 2]),
        ("2,0", [2, 0]),
        ("1", [1]),
        (" 1 , 2 ", [1, 2]),
        ("0,-1,1", [0]),
        ("0,7,1", [0]),
        ("-1", []),
        ("", []),
        ("nonsense", []),
        ("1x", []),
        ("0,0", []),
        (UUIDS[1], [1]),
        ("GPU-b,GPU-aaaaaaab", [2, 1]),
        ("GPU-BBBBBBBB", [2]),
        ("GPU-aaaaaaa", []),  # two begin so
        ("GPU-", []),
        (f"{UUIDS[0]},0", []),  # twice the same
        ("MIG-aaaa", []),
    ],
)
def test_cuda_visible_devices_chooses(gpus_with, clients_of, visible, boards):
    with gpus_with(CARDS) as gpus, clients_of(gpus) as client:
        env = PCI if visible is None else {**PCI, "CUDA_VISIBLE_DEVICES": visible}
        assert seen(client, **env) == boards


def test_the_fastest_comes_first_unless_told_otherwise(gpus_with, clients_of):
    with gpus_with(CARDS) as gpus, clients_of(gpus) as client:
        assert seen(client) == [2, 0, 1]
        assert seen(client, CUDA_VISIBLE_DEVICES="0") == [2]
        assert seen(client, CUDA_DEVICE_ORDER="PCI_BUS_ID") == [0, 1, 2]


def test_a_container_has_the_cards_that_it_was_given(gpus_with, clients_of):
    with gpus_with(CARDS) as gpus, clients_of(gpus) as client:
        given = {**PCI, "HAMI_SIM_VISIBLE": f"2,{UUIDS[0]}"}
        assert seen(client, **given) == [0, 2]
        assert seen(client, **given, CUDA_VISIBLE_DEVICES="1") == [2]
        assert seen(client, **given, CUDA_VISIBLE_DEVICES=UUIDS[1]) == []


# Two instances of a seventh of the card each; prints their UUIDs.
MAKE_INSTANCES = """
import pynvml as nvml
nvml.nvmlInit()
card = nvml.nvmlDeviceGetHandleByIndex(0)
nvml.nvmlDeviceSetMigMode(card, 1)
profile = nvml.nvmlDeviceGetGpuInstanceProfileInfo(card, nvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE)
for index in range(2):
    made = nvml.nvmlDeviceCreateGpuInstance(card, profile.id)
    within = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(made, 0, 0)
    nvml.nvmlGpuInstanceCreateComputeInstance(made, within.id)
    print(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index)))
"""


def test_a_process_sees_whole_cards_or_one_mig_instance(plain_gpus, plain_client, nvml):
    pytest.importorskip("pynvml")
    one, other = subprocess.run(
        [sys.executable, "-c", MAKE_INSTANCES],
        env=plain_gpus.env() | {"LD_LIBRARY_PATH": nvml}, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert seen(plain_client) == [16]
    assert seen(plain_client, CUDA_VISIBLE_DEVICES=other) == [17]
    assert seen(plain_client, CUDA_VISIBLE_DEVICES=f"{other},{one}") == [17]
    assert seen(plain_client, CUDA_VISIBLE_DEVICES=other[:12]) == [17]
    assert seen(plain_client, CUDA_VISIBLE_DEVICES="0") == []  # a card in MIG mode runs nothing
    assert seen(plain_client, HAMI_SIM_VISIBLE=other) == [17]
    assert seen(plain_client, HAMI_SIM_VISIBLE=other, CUDA_VISIBLE_DEVICES=one) == []
    process = plain_client("a")
    share = process.ask("free", 0)
    assert 9000 * MIB < share < 12000 * MIB
    process.ask("take", 0, share, DATA)
    assert plain_gpus.held("a", 16).data == share
    assert plain_client("b", env={"CUDA_VISIBLE_DEVICES": other}).ask("free", 0) == share


def test_without_a_daemon_there_is_no_device(gpus_with, clients_of):
    with gpus_with(CARDS) as gpus, clients_of(gpus) as client:
        assert seen(client, HAMI_SIM_DIR="") == []
        assert seen(client, HAMI_SIM_DIR="/nonexistent") == []
        gpus.command("quit")
        gpus.eventually(lambda: not (gpus.folder / "socket").exists())
        assert seen(client) == []


@pytest.mark.parametrize(
    "config",
    [
        "",
        "gpu memory=-1\n",
        "gpu memory=1000000000000\n",
        "gpu speed=9\n",
        "gpu memory\n",
        "card memory=1000\n",
        "gpu uuid=GPU-1\n",
        "gpu cc=nine\n",
        "gpu nvlink=1\n",
        "gpu nvlink=0\ngpu\n",
        "gpu uuid=GPU-aaaaaaaa-1111-4000-8000-000000000001\n" * 2,
        "gpu pci=00000000:09:00.0\ngpu pci=00000000:08:00.0\n",
        "gpu\n" * 17,
    ],
)
def test_a_file_that_describes_no_cards_is_refused(simgpud, tmp_path, config):
    (tmp_path / "cards").write_text(config)
    done = subprocess.run(
        [simgpud, str(tmp_path), "--config", str(tmp_path / "cards")],
        capture_output=True, text=True, check=False, timeout=20,
    )  # fmt: skip
    assert done.returncode == 1
    assert "simgpud: " in done.stderr
    assert "ready" not in done.stdout


def test_a_directory_has_one_daemon(simgpud, gpus_with):
    with gpus_with() as gpus:
        done = subprocess.run(
            [simgpud, str(gpus.folder)], capture_output=True, text=True, check=False, timeout=20
        )
        assert done.returncode == 1
        assert "another one serves this directory" in done.stderr
        assert gpus.used() == 0


def raw(gpus, name: str, kind: socket.SocketKind) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, kind)
    connection.settimeout(20)
    folder = os.open(gpus.folder, os.O_PATH)
    connection.connect(f"/proc/self/fd/{folder}/{name}")
    os.close(folder)
    return connection


@pytest.mark.parametrize(
    "message",
    [
        b"x",
        b"\0" * 8,
        b"\1\0\0\0\1\0\0\0",
        b"\1\0\0\0\1\0\0\0" + b"\xff" * 72,
        b"\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0" + b"t" * 64,  # a tenant without an end
        b"\2\0\0\0\1\0\0\0" + b"\0" * 32,  # before any hello
        b"\x64\0\0\0\1\0\0\0",
        b"z" * 9000,
    ],
)
def test_garbage_ends_its_connection_and_nothing_else(gpus_with, clients_of, message):
    with gpus_with() as gpus, clients_of(gpus) as client:
        one = client()
        one.ask("take", 0, 1, 0)
        with raw(gpus, "socket", socket.SOCK_SEQPACKET) as connection:
            connection.send(message)
            assert connection.recv(100) == b""
        assert gpus.log.count("\n") == 1
        one.ask("take", 0, 1, 0)


def test_garbage_after_a_good_hello(gpus_with):
    with gpus_with() as gpus:
        for bad in (HELLO, b"\7\0\0\0\2\0\0\0" + b"\0" * 32, b"\2\0\0\0\2\0\0\0" + b"\0" * 31):
            with raw(gpus, "socket", socket.SOCK_SEQPACKET) as connection:
                connection.send(HELLO)
                assert len(connection.recv(100)) == 24
                connection.send(bad)
                assert connection.recv(100) == b""
        for odd in (
            b"\2\0\0\0\3\0\0\0" + b"\xff" * 32,  # take: no such unit
            b"\4\0\0\0\3\0\0\0" + b"\xff" * 32,  # share: no such id
            b"\5\0\0\0\3\0\0\0" + b"\0" * 8 + b"\xff" * 24,  # queue: no such place
            b"\6\0\0\0\3\0\0\0" + b"\0" * 32,  # release: no such queue
            b"\3\0\0\0\3\0\0\0" + b"\0" * 32,  # give: nothing
        ):
            with raw(gpus, "socket", socket.SOCK_SEQPACKET) as connection:
                connection.send(HELLO)
                connection.recv(100)
                connection.send(odd)
                assert connection.recv(100)[0] in (SIM_UNKNOWN, SIM_INVALID)
        assert gpus.used() == 0


@pytest.mark.parametrize("how", range(13))
def test_scribbling_over_the_shared_memory_hurts_only_the_scribbler(gpus_with, clients_of, how):
    with gpus_with() as gpus, clients_of(gpus) as client:
        one, other = client("a"), client("b")
        for process in (one, other):
            process.ask("queue", 0, 0)
        other.ask("run", 0, 1000, 1, 3)
        one.ask("scribble", how)
        other.ask("run", 0, 1000, 1000, 100)
        other.ask("finish", 0)
        if how == 11:
            assert gpus.log == ""
        else:
            gpus.eventually(lambda: [c["tenant"] for c in gpus.clients()] == ["b"])
            assert "its ring holds nonsense" in gpus.log
        assert gpus.busy_of("b").sm_ns == 100 * 1000 + 3


def test_nobody_can_cut_off_what_the_daemon_has_mapped(gpus_with):
    with gpus_with() as gpus:
        with raw(gpus, "socket", socket.SOCK_SEQPACKET) as connection:
            connection.send(HELLO)
            _, descriptors, _, _ = socket.recv_fds(connection, 100, 2)
        for size in (0, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptors[0], size)
        for descriptor in descriptors:
            os.close(descriptor)
        assert gpus.used() == 0


@pytest.mark.parametrize("text", [b"x" * 5000, b"le\0dger\n", b"\xff\xfe\n", b"half a line"])
def test_a_commander_may_write_anything(gpus_with, text):
    with gpus_with() as gpus:
        with raw(gpus, "control", socket.SOCK_STREAM) as connection:
            connection.sendall(text)
        assert gpus.used() == 0


def test_commands_that_are_wrong_say_so(gpus_with):
    with gpus_with() as gpus:
        for words in [
            "nothing",
            "set",
            "set memory 0",
            "set memory 5 100",
            "set sample_ms 0",
            "set x 1",
        ]:
            with pytest.raises(AssertionError, match="error"):
                gpus.command(words)
        gpus.command("set memory 0 1000")
        assert gpus.used() == 0


def test_three_hundred_connections(gpus_with):
    with gpus_with() as gpus:
        connections = [raw(gpus, "socket", socket.SOCK_SEQPACKET) for _ in range(300)]
        for connection in connections:
            connection.send(HELLO)
        for connection in connections:
            assert len(connection.recv(100)) == 24
        assert len(gpus.clients()) == 300
        for connection in connections:
            connection.close()
        gpus.eventually(lambda: gpus.clients() == [])
