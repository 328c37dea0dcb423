"""Some steps of PyTorch training, then the limit; started by pytorch.py.

``training.py CHUNK_MIB [LIMIT]`` prints a line of JSON. Without a limit it only trains.
"""

import json
import sys
import time

import torch
from torch import nn


def train(steps: int) -> dict[str, object]:
    torch.manual_seed(1)
    device = torch.device("cuda")
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(4),
        nn.Flatten(), nn.Linear(32 * 8 * 8, 256), nn.ReLU(), nn.Linear(256, 10),
    ).to(device)  # fmt: skip
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images = torch.randn(64, 3, 32, 32, device=device)
    labels = torch.randint(0, 10, (64,), device=device)
    losses = []
    start = 0.0
    for step in range(steps + 5):
        if step == 5:
            torch.cuda.synchronize()
            start = time.perf_counter()
        optimiser.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()
        if step in (0, steps + 4):
            losses.append(loss.item())
    torch.cuda.synchronize()
    return {"losses": losses, "step_ms": (time.perf_counter() - start) / steps * 1e3}


def fill(chunk: int) -> dict[str, object]:
    """Allocate everything there is, give it back, and do it once more."""
    counts = []
    for _ in range(2):
        held = []
        try:
            while True:
                held.append(torch.empty(chunk, dtype=torch.uint8, device="cuda"))
        except torch.cuda.OutOfMemoryError:
            counts.append(len(held) * chunk)
        del held
        torch.cuda.empty_cache()
    return {"filled": counts}


def main() -> None:
    found = {"torch": torch.__version__, **train(50)}
    if len(sys.argv) > 2:
        found["total"] = torch.cuda.mem_get_info()[1]
        found |= fill(int(sys.argv[1]) << 20)
        found["after"] = train(5)["losses"]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
