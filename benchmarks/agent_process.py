"""``hami device-plugin`` as it runs in a pod: with a service account.

``python -m benchmarks.agent_process FOLDER FLAGS...``: FOLDER takes the place of the folder where
kubelet puts the account's files, which is no setting. Everything else is the unchanged command.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from hami.cli.main import main
from hami.kube.identity import settings


def run() -> None:
    folder = Path(sys.argv.pop(1))
    sys.argv.insert(1, "device-plugin")
    # The model of the settings, which asks for it by this name, is not imported yet.
    in_a_pod = partial(settings.KubeSettings, service_account=folder)
    settings.KubeSettings = in_a_pod  # type: ignore[misc,assignment]
    main()


if __name__ == "__main__":
    run()
