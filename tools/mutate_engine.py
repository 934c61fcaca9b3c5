"""Puts small mistakes into the engine, one at a time, and says which ones its C++ tests notice.

    python tools/mutate_engine.py csrc/gather/paged_rows.cpp csrc/sampling/induce.h --count 40

works in a copy of the engine (``build/mutate``), builds it once, then for each mistake one object
and the test program again. A mistake that does not compile does not count. What survives is printed
with its line: either a test is missing, or the change is none that anybody can see.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

ROOM = 16 << 30  # bytes of addresses for a program that may have lost count

# (what it is called, what is looked for, what takes its place)
SWAPS = [
    ("comparison", r" <= ", " < "),
    ("comparison", r" < (?![^()]*>\()", " <= "),
    ("comparison", r" >= ", " > "),
    ("comparison", r" > ", " >= "),
    ("comparison", r" == ", " != "),
    ("comparison", r" != ", " == "),
    ("condition", r" && ", " || "),
    ("condition", r" \|\| ", " && "),
    ("condition", r"\bif \(!(?=\w)", "if ("),
    ("arithmetic", r" \+ (?!1\b)", " - "),
    ("arithmetic", r" - (?!1\b)", " + "),
    ("off by one", r" \+ 1\b", ""),
    ("off by one", r" - 1\b", ""),
    ("off by one", r"(?<=[=(\[{, ])0(?=[;,)\]}])", "1"),
    ("off by one", r"(?<=[=(\[{, ])1(?=[;,)\]}])", "2"),
    ("extremes", r"std::min\b(?=[<(])", "std::max"),
    ("extremes", r"std::max\b(?=[<(])", "std::min"),
]
DECLARATION = re.compile(
    r"^\s*(const|static|constexpr|inline|auto|using|struct|class|return|throw|template|explicit"
    r"|friend|namespace|public|private|case|default|else|#|std::\w+<.*> \w+|Buffer<"
    r"|std::u?int\w+ \w|bool \w|int \w|[A-Z]\w+ \w+[;({ ]|[A-Z]\w+& |virtual|mutable|void)"
)


@dataclass(frozen=True)
class Mutant:
    """One line that another takes the place of."""

    file: str
    line: int  # from 1
    kind: str
    before: str
    after: str


def code_of(line: str) -> str:
    """A line without its comment."""
    return line if line.lstrip().startswith(("#", "//")) else line.split("//")[0].rstrip()


def negated(code: str) -> str | None:
    """The line with the condition of its ``if`` the other way round, if all of it is there."""
    at = code.find("if (")
    if at < 0 or ";" in code[at:].split(") ")[0]:
        return None
    depth = 0
    for end in range(at + 3, len(code)):
        depth += (code[end] == "(") - (code[end] == ")")
        if depth == 0:
            return f"{code[: at + 4]}!({code[at + 4 : end]}){code[end:]}"
    return None


def mutants_of(file: str, text: str) -> list[Mutant]:
    """All mistakes that can be put into a file's code."""
    found = []
    ended = True  # the line before was the end of a statement
    for number, line in enumerate(text.split("\n"), 1):
        code = code_of(line)
        begins, ended = ended, code.rstrip().endswith((";", "{", "}", ":")) or not code.strip()
        if not code.strip() or code.lstrip().startswith(("#", "//", "template")):
            ended = True
            continue
        if any(word in code for word in ('"', "static_assert", "prefetch", "namespace")):
            continue
        for kind, pattern, replacement in SWAPS:
            for match in re.finditer(pattern, code):
                changed = code[: match.start()] + replacement + code[match.end() :]
                found.append(Mutant(file, number, kind, code.strip(), changed.strip()))
        if (other := negated(code)) is not None:
            found.append(Mutant(file, number, "condition", code.strip(), other.strip()))
        whole = begins and code.endswith(";") and code.count("(") == code.count(")")
        if whole and not DECLARATION.match(code) and not code.strip().startswith(("for", "}")):
            found.append(Mutant(file, number, "dropped", code.strip(), ";"))
    return found


def sample(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of them, of every file and kind in turn."""
    draw = random.Random(seed)
    piles: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in mutants:
        piles.setdefault((mutant.file, mutant.kind), []).append(mutant)
    for pile in piles.values():
        draw.shuffle(pile)
    order = sorted(piles)
    draw.shuffle(order)
    chosen: list[Mutant] = []
    while len(chosen) < min(count, len(mutants)):
        for key in order:
            if piles[key] and len(chosen) < count:
                chosen.append(piles[key].pop())
    return sorted(chosen, key=lambda mutant: (mutant.file, mutant.line))


class Engine:
    """A copy of the engine with its tests, to break."""

    def __init__(self, where: Path) -> None:
        self.where = where
        tools = Path(sys.executable).parent
        self._build = [str(tools / "ninja"), "-C", str(where / "build")]
        for folder in ("csrc", "tests/cpp", "CMakeLists.txt"):
            for path in (ROOT / folder, *(ROOT / folder).rglob("*")):
                copy = where / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                same = copy.is_file() and copy.read_bytes() == path.read_bytes()
                if path.is_file() and not same:  # or all would be built again
                    shutil.copyfile(path, copy)
        self._environment = os.environ | {"CCACHE_BASEDIR": str(where)}
        subprocess.run(
            [
                *(str(tools / "cmake"), "-S", where, "-B", where / "build", "-G", "Ninja"),
                *(f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}", "-DGZ_BUILD_PYTHON=OFF"),
                *("-DGZ_BUILD_TESTS=ON", "-DCMAKE_BUILD_TYPE=None"),
                "-DCMAKE_CXX_FLAGS=-O1 -DNDEBUG",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if not self.build():
            raise RuntimeError(self.output)

    def build(self) -> bool:
        """Whether it compiles."""
        done = subprocess.run(self._build, capture_output=True, text=True, env=self._environment)
        self.output = done.stdout
        return done.returncode == 0

    def noticed(self, timeout: float) -> dict[str, list[str]]:
        """By run of the tests ("usual", "tiny"), those that fail."""
        found = {}
        for run, arguments in (("usual", []), ("tiny", ["--tiny-chunks"])):
            try:
                done = subprocess.run(
                    [self.where / "build" / "graphzero_tests", "--names", *arguments],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    errors="replace",
                    timeout=timeout,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM)),
                )
                code, out = done.returncode, done.stdout
            except subprocess.TimeoutExpired as error:
                code, out = -1, (error.stdout or b"").decode(errors="replace")
            found[run] = re.findall(r"^FAILED (\w+)", out, re.M)
            if code not in (0, 1):  # it crashed or hangs in the last one
                found[run] += re.findall(r"^RUN (\w+)", out, re.M)[-1:]
            if code != 0 and not found[run]:
                found[run] = [f"ended with {code}"]
        return found

    def try_out(self, mutant: Mutant, timeout: float) -> dict[str, Any]:
        """Makes the mistake, and takes it back."""
        path = self.where / mutant.file
        text = path.read_text()
        lines = text.split("\n")
        lines[mutant.line - 1] = mutant.after
        path.write_text("\n".join(lines))
        noticed = self.noticed(timeout) if self.build() else None
        path.write_text(text)
        return asdict(mutant) | {"noticed": noticed}


def main() -> None:  # noqa: D103
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", help="of csrc/, to put mistakes into")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=25.0, help="no mistake is begun later")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--where", type=Path, default=ROOT / "build" / "mutate")
    parser.add_argument("--out", type=Path, help="results as JSON")
    parser.add_argument(
        "--list", type=Path, help="instead of a sample: the mistakes of such a file"
    )
    options = parser.parse_args()
    everything = [m for f in options.files for m in mutants_of(f, (ROOT / f).read_text())]
    chosen = sample(everything, options.count, options.seed)
    if options.list:
        records = json.loads(options.list.read_text())
        wanted = {(r["file"], r["before"], r["after"]) for r in records}
        chosen = [m for m in everything if (m.file, m.before, m.after) in wanted]
    random.Random(options.seed).shuffle(chosen)  # where time is short, every file has its share
    engines = [Engine(options.where.resolve() / str(job)) for job in range(options.jobs)]
    began = time.monotonic()
    if any((noticed := engines[0].noticed(600)).values()):
        sys.exit(f"the tests fail without any mistake: {noticed}")
    limit = 30 + 3 * (time.monotonic() - began)
    end = time.monotonic() + 60 * options.minutes
    results: list[dict[str, Any]] = []

    def work(engine: Engine) -> None:
        while chosen and time.monotonic() < end:
            result = engine.try_out(chosen.pop(), limit)
            results.append(result)
            noticed = result["noticed"]
            mark = "does not compile" if noticed is None else "SURVIVED"
            if noticed is not None and any(noticed.values()):
                mark = f"{noticed['usual'][:3]} {noticed['tiny'][:3]}"
            print(f"{result['file']}:{result['line']} {result['kind']}: {mark}")
            print(f"    {result['before']}\n    {result['after']}", flush=True)
            if options.out:
                options.out.write_text(json.dumps(results, indent=1) + "\n")

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, engines))
    counted = [r["noticed"] for r in results if r["noticed"] is not None]
    killed = sum(any(noticed.values()) for noticed in counted)
    usual = sum(bool(noticed["usual"]) for noticed in counted)
    print(f"{killed} of {len(counted)} noticed, {usual} without tiny chunks")


if __name__ == "__main__":
    main()
