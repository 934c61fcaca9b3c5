"""Replays what must not change when code moves, and compares it with ``recording.json``.

    python tests/replay/run.py                              all of it
    python tests/replay/run.py batches 'reads/rows*'        a section, a pattern
    python tests/replay/run.py --write 'stores/data, int8'  records these anew

Three sections: ``batches``, the hash of the batches of an epoch (``batches.py``); ``stores``, the
hash of each file of a converted store (``stores.py``); ``reads``, the places that loaders under a
small budget read from disk (``reads.py``), whose batches are in the first section, "out of core".
Prints each difference by its name, and exits 1 if there is one. An entry that is recorded anew is a
decision: the commit says why.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from replay import batches, reads, stores

RECORDING = Path(__file__).with_name("recording.json")
OUT_OF_CORE = "batches/out of core, "
Found = dict[str, Any]


def names() -> list[str]:
    """Names of all entries."""
    return [
        *(f"batches/{name}" for name in batches.CONFIGURATIONS),
        *(OUT_OF_CORE + name for name in reads.READS),
        *(f"stores/{name}" for name in stores.STORES),
        *(f"reads/{name}" for name in reads.READS),
    ]


def recorded() -> Found:
    """The recording: a hash, or a hash by file, of each entry."""
    sections = json.loads(RECORDING.read_text())
    return {f"{part}/{name}": found for part in sections for name, found in sections[part].items()}


def play(wanted: list[str]) -> Found:
    """Entries by what the code does today."""
    found: Found = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for part in ("batches", "stores", "reads"):
            (root / part).mkdir()
        plain = [name for name in batches.CONFIGURATIONS if f"batches/{name}" in wanted]
        made = batches.make_stores(root / "batches") if plain else {}
        for name in plain:
            found[f"batches/{name}"] = batches.replayed(name, made)
        for name in stores.STORES:
            if f"stores/{name}" in wanted:
                found[f"stores/{name}"] = stores.replayed(name, root / "stores")
        under = [n for n in reads.READS if {f"reads/{n}", OUT_OF_CORE + n} & set(wanted)]
        if under:
            reads.make_stores(root / "reads")
            for name, value in reads.replayed(under, root / "reads").items():
                found[OUT_OF_CORE + name] = value["batches"]
                found[f"reads/{name}"] = value["reads"]
    return {name: found[name] for name in wanted}


def differences(found: Found, known: Found) -> Iterator[str]:
    """A line for each value that differs, by its name."""
    for name in found:
        now, then = found[name], known.get(name)
        if not isinstance(now, dict) or not isinstance(then, dict):
            now, then = {"": now}, {"": then}
        for file in sorted({*now, *then}):
            if now.get(file) != then.get(file):
                place = f"{name}: {file}" if file else name
                here, there = now.get(file) or "nothing", then.get(file) or "nothing"
                yield f"{place}\n  found    {here}\n  recorded {there}"


def write(found: Found, known: Found) -> None:
    """Records entries anew, and leaves the others; entries that are no more go."""
    sections: dict[str, Found] = {}
    for name in names():
        if name in found or name in known:
            section, _, entry = name.partition("/")
            sections.setdefault(section, {})[entry] = found.get(name, known.get(name))
    RECORDING.write_text(json.dumps(sections, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help="section, entry or pattern; all by default")
    parser.add_argument("--write", action="store_true", help="record the named entries anew")
    options = parser.parse_args(arguments)
    if options.write and not options.name:
        parser.error("--write: expected the names of the entries that are recorded anew")
    begun, wanted = perf_counter(), list[str]()
    for pattern in options.name or ["*"]:
        mine = [n for n in names() if fnmatchcase(n, pattern) or n.startswith(f"{pattern}/")]
        if not mine:
            parser.error(f"{pattern}: found no such entry; there are {'; '.join(names())}")
        wanted += [name for name in mine if name not in wanted]
    known, found = recorded(), play(wanted)
    lines = list(differences(found, known))
    for line in lines:
        print(line)
    if options.write:
        write(found, known)
    result = f"{len(lines)} differences" if lines else "no difference"
    print(f"{len(found)} entries, {result}, {perf_counter() - begun:.0f} s")
    return int(bool(lines) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
