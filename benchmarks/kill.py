"""Kills conversion with SIGKILL at random instants and looks at what is left.

    python benchmarks/kill.py --kills 200

An older store lies at the target. After every kill the target must be that store, or the new one
complete, with all checksums right; at the end, one conversion that is left alone must leave nothing
but its store. The graph goes through temporary files. Prints what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

import pyg_graphzero as gz

OLD_EDGES = 1000
CHILD = """
import sys
import pyg_graphzero as gz
from pyg_graphzero.util.workspace import MIN_ROOM
from pyg_graphzero.util.system import rss
print("ready", flush=True)
gz.convert(sys.argv[1], sys.argv[2], undirected=True, coalesce="first", force=True,
           memory=rss() + MIN_ROOM + (8 << 20), progress=False)
"""


def run(command: list[str], kill_after: float | None = None) -> float | None:
    """Seconds that the conversion took; None if it was killed at work."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    child.stdout.readline()  # it has imported everything and starts
    begin = time.perf_counter()
    if kill_after is not None:
        time.sleep(kill_after)
        child.send_signal(signal.SIGKILL)
    child.stdout.close()
    code = child.wait()
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"the conversion failed: exit code {code}")
    return None if code else time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--edges", type=int, default=3_000_000)
    args = parser.parse_args()
    rng, found = random.Random(0), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "e.npy"), Path(folder, "out", "store")
        target.parent.mkdir()
        edges = np.random.default_rng(0).integers(0, 100_000, (2, args.edges))
        np.save(source, edges)
        command = [sys.executable, "-c", CHILD, str(source), str(target)]
        full = run(command)
        assert full is not None
        new_edges = gz.open(target).data().num_edges
        gz.convert(edges[:, :OLD_EDGES], target, force=True)
        for _ in range(args.kills):
            found["killed at work"] += run(command, rng.random() * full) is None
            with gz.open(target) as store:
                count = store.data().num_edges
                found["bad checksums"] += not store.verify().ok
            if count == new_edges:
                found["new store"] += 1
                gz.convert(edges[:, :OLD_EDGES], target, force=True)
            else:
                found["old store" if count == OLD_EDGES else "partial store"] += 1
        run(command)
        found["left behind"] = len(os.listdir(target.parent)) - 1
    print(json.dumps({"kills": args.kills, "seconds to convert": round(full, 2), **found}))
    if found["bad checksums"] or found["partial store"] or found["left behind"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
