"""What each example of the chart becomes, as text: `python -m tests.chart.goldens` writes it anew."""

from __future__ import annotations

from pathlib import Path

import yaml

from ..kubernetes.chart import EXAMPLES, example, rendered

FOLDER = Path(__file__).parent / "goldens"
TAG = {"kubeScheduler": {"image": {"tag": "v1.36.0"}}}
"""Of kube-scheduler: without one it is what the rendering Helm takes the cluster to be."""


def golden(name: str) -> str:
    values = example(name)
    ours = values.get("kubeScheduler", {})
    image = {**ours.get("image", {}), **TAG["kubeScheduler"]["image"]}
    objects = rendered({**values, "kubeScheduler": {**ours, "image": image}})
    ordered = sorted(objects, key=lambda thing: (thing["kind"], thing["metadata"]["name"], thing["metadata"].get("namespace", "")))  # fmt: skip
    return yaml.safe_dump_all(ordered, sort_keys=True, width=100)


def main() -> None:
    for name in EXAMPLES:
        (FOLDER / f"{name}.yaml").write_text(golden(name))


if __name__ == "__main__":
    main()
