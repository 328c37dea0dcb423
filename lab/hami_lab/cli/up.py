"""``hami up``: an embedded cluster that stays, for kubectl and whatever else speaks to one."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml
from rich.console import Console
from rich.text import Text

from hami.cli.flags.files import file_name, read_text
from hami.cli.foreground import run_until_signal
from hami.cli.terminal.escaping import visible
from hami.domain.errors import ConfigError, shortened
from hami.domain.kubernetes.objects import Node
from hami.hookspecs import PluginConfig
from hami.node.settings.served_vendor import vendor_named
from hami.simulate.documents import Document
from hami.vendors.registry import Vendors
from hami_lab.cluster import ClusterSettings, EmbeddedCluster
from hami_lab.demo.workloads import apply_objects, read_objects
from hami_lab.shapes import nodes_of

GPUS = "--simulated-gpus="
DEFAULT_NODES = "a100-40gx2:1,t4x4:1"
_MARK = "# Written by hami up, and removed when it ends.\n"


def begin_with(
    vendors: Vendors,
    config: PluginConfig,
    nodes: str | None,
    cluster: Path | None,
    *,
    alone: bool = True,
) -> list[Document]:
    """The objects that the cluster starts with; nodes by default where it would have no other.

    Raises:
        ConfigError: the text, the file or a model in it cannot be used.
    """
    if nodes is not None and cluster is not None:
        raise ConfigError("--nodes and --cluster are both given; leave one out")
    if cluster is not None:
        documents = read_objects([(file_name(cluster), read_text(cluster))])
    else:
        wanted = DEFAULT_NODES if nodes is None and alone else nodes
        made = nodes_of(wanted) if wanted is not None else []
        documents = [Document("--nodes", 1, node) for node in made]
    for document in documents:
        if document.value["kind"] == "Node":
            _check_node(vendors, document, config)
    return documents


def _check_node(vendors: Vendors, document: Document, config: PluginConfig) -> None:
    try:
        node = msgspec.convert(document.value, Node)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{document.place}: this Node cannot be read: {error}") from error
    simulated = vendors.simulated_annotations(node, config)
    if document.file == "--nodes" and not simulated:
        raise ConfigError(
            "nodes with simulated devices need a plugin that is not installed; install it from a "
            "checkout of hami: pip install -e . -e plugins/mock"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpAgent:
    """A node for a real node agent, its simulated GPUs, and the agent's flags."""

    node: str
    vendor: str
    gpus: str
    flags: Sequence[str]


def agents_of(texts: Sequence[str], vendors: Vendors) -> list[UpAgent]:
    """From ``<vendor> <flag> ...`` as a shell reads it; nodes are called ``<vendor>-agent-1``.

    Raises:
        ConfigError: the text cannot be split, or no plugin serves nodes with this vendor.
    """
    agents: list[UpAgent] = []
    numbers: Counter[str] = Counter()
    for text in texts:
        try:
            name, *flags = shlex.split(text)
        except ValueError as error:
            raise ConfigError(
                f"--agent {shortened(text)!r} is not a vendor and its flags; write it like "
                f"'mock --mock-devices=mockx2'"
            ) from error
        vendor = vendor_named(vendors, name).profile.key.lower()
        numbers[vendor] += 1
        node = f"{vendor}-agent-{numbers[vendor]}"
        # Ours, not the agent's; the last one counts, as of any flag.
        given = [flag.removeprefix(GPUS) for flag in flags if flag.startswith(GPUS)]
        own = [flag for flag in flags if not flag.startswith(GPUS)]
        agents.append(UpAgent(node=node, vendor=vendor, gpus="".join(given[-1:]), flags=own))
    return agents


def settings_of(config: PluginConfig, *, port: int, profiles: Path | None) -> ClusterSettings:
    """The cluster's; its scheduler reads the same profiles."""
    flags = [f"--profiles={profiles.absolute()}"] if profiles is not None else []
    return ClusterSettings(config=config, port=port, flags=flags)


def run_up(
    vendors: Vendors,
    settings: ClusterSettings,
    documents: list[Document],
    agents: Sequence[UpAgent],
    console: Console,
    *,
    kubeconfig: Path,
) -> None:
    """Until a signal ends it.

    Raises:
        ConfigError: an object or the kubeconfig's file cannot be used.
        HamiError: the cluster could not be started, or broke.
    """
    _check_overwritable(kubeconfig)

    async def work() -> None:
        async with EmbeddedCluster(settings, vendors=vendors) as cluster:
            applied = await apply_objects(cluster, documents)
            if applied.nodes:
                await cluster.ready_nodes(*applied.nodes)
            for agent in agents:
                node = await cluster.add_plugin_node(agent.node)
                gpus = None
                if agent.gpus:
                    gpus = await cluster.agents.simulate_gpus(node, agent.vendor, agent.gpus)
                await cluster.start_agent(node, agent.vendor, *agent.flags, gpus=gpus)
            write_kubeconfig(kubeconfig, cluster.server.kubeconfig())
            try:
                _say(console, cluster, kubeconfig)
                raise await cluster.failed()
            finally:
                _remove(kubeconfig)

    console.print("starting the cluster ...")
    run_until_signal(work)


def write_kubeconfig(path: Path, content: Mapping[str, Any]) -> None:
    """For its owner alone: it holds a token.

    Raises:
        ConfigError: the file cannot be written.
    """
    _check_overwritable(path)
    try:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(_MARK + yaml.safe_dump(dict(content), sort_keys=False))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a writable file") from error


def _check_overwritable(path: Path) -> None:
    """Never somebody's real kubeconfig."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path}: there is no folder {path.parent}; make it, or name another file"
        )
    try:
        ours = not path.exists() or path.read_text(errors="replace").startswith(_MARK)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a writable file") from error
    if not ours:
        raise ConfigError(
            f"{path} is there and was not written by hami up; name another file with --kubeconfig"
        )


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.read_text().startswith(_MARK):
            path.unlink()


def _say(console: Console, cluster: EmbeddedCluster, kubeconfig: Path) -> None:
    file = visible(str(kubeconfig))
    for line in (
        f"the API server listens on {cluster.server.url}; its kubeconfig is {file}",
        "",
        f"    export KUBECONFIG={visible(str(kubeconfig.absolute()))}",
        "    kubectl get nodes",
        "    kubectl apply -f workload.yaml",
        "",
        f"    export HAMI_SERVER={cluster.service.metrics}",
        "    hami quota",
        "",
        "the service's log: " + visible(str(cluster.service.log)),
        *(f"the log of {agent.name}: {visible(str(agent.log))}" for agent in cluster.agents.agents),
        "Ctrl-C ends it",
    ):
        console.print(Text(line))
