"""Sizes of chunks in the engine stand in ``csrc/base/chunk_sizes.h``, where its tests make all of
them tiny: a new one that stands elsewhere is found here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Large numbers that are no sizes of chunks, or are arguments that tests choose.
OTHERS = {
    # How far ahead a loop prefetches; nothing is done at a time.
    "prefetch": "kPrefetchAhead kLine kRanksAhead kAhead",
    # The format, and the machine: a test with other ones would test something else.
    "format": "kBlockBytes kHeaderBytes kSectionAlignment kPage kAlignment kHugePage "
    "kSafeAlignment kBytesPer64",
    # Room in an array, of which ChunkSizes says how much is used.
    "rooms": "kBlock kPiece kFixedFiles kFindAtOnce",
    # Ranges that parallel_for() divides: ChunkSizes::range makes all of them small.
    "ranges": "kFrontierGrain kEdgeGrain kInduceGrain kLaborGrain kGrain kBoundsGrain kSlotsGrain "
    "kCheckGrain kSumGrain",
    # They decide what comes out: which neighbours, which codes, how wide an id is.
    "results": "kNarrowNodes kMaxNeighbors kUnrolled kSampledRows kTileColumns kSpreadBins "
    "kBinShift kOctavesBelow kExponentShift kLanes kParts kDropoutChunk kMostBits kWord",
    # How much there is at most, where nothing goes on after it.
    "limits": "kMaxRuns kMaxSlices kMaxBuckets kMaxParts kMaxPoolThreads kMaxIdle kLarge kTasks "
    "kMostRejected kFrameBytes kWindowShare kLeastTable kMostValues kWindowsToForget "
    "kMaxChunkRows kMaxSums",
    # Reads that measure a disk, and how many are under way.
    "reads": "kRandomRead kSequentialRead kSequentialDepth kRandomAdviceBytes kDepth",
}
KNOWN = set(" ".join(OTHERS.values()).split())

# Arguments: their defaults, and bounds of what an argument decides.
ARGUMENTS = {
    "csrc/base/half.h": ["(1U << 23)", "(112U << 23)"],  # bits of a float
    "csrc/gather/disk_gather.h": ["buffer_bytes = 32 << 20"],
    "csrc/gather/gather.cpp": ["(256 << 10) / std::max"],
    "csrc/gather/read_plan.h": ["merge_gap = 16 << 10", "max_read = 512 << 10"],
    "csrc/ids/row_index.h": ["parallel_for(wanted.size(), 1 << 14"],
    "csrc/pipeline/batch.h": ["kSampledTogether{16, 64 << 20}"],
    "csrc/sampling/neighbor_sums.h": ["chunk_rows = 1 << 20", "max_mapped = 64 << 20"],
}

# Not those in hexadecimal: bits, limits of floats, primes.
NUMBER = r"(?:std::\w+\{)?\d[\d']*[UL]*\}?(?: << \d+)?(?=[;,)])"
NAMED = re.compile(
    rf"constexpr (?:std::)?(?:u?int\d+_t|size_t|int|unsigned|long|auto) (k\w+) = ({NUMBER})"
)
SHIFTED = re.compile(r"\b\d+[UL]* << (?:1\d|2[0-9])\b")


def value_of(text: str) -> int:
    plain = re.sub(r"std::\w+\{(\d+)\}", r"\1", text).replace("'", "")
    return int(eval(re.sub(r"(?<=\d)[UL]+", "", plain), {}))


def unregistered(name: str, text: str) -> list[str]:
    """Lines of a file with a number that may be the size of a chunk."""
    found = []
    for line in text.split("\n"):
        code = line.split("//")[0]
        for constant, number in NAMED.findall(code):
            if value_of(number) >= 16 and constant not in KNOWN:
                found.append(code.strip())
        is_argument = any(known in code for known in ARGUMENTS.get(name, []))
        if SHIFTED.search(code) and not is_argument and "constexpr" not in code:
            found.append(code.strip())
    return found


def sources() -> list[Path]:
    paths = [p for kind in ("*.h", "*.cpp") for p in (ROOT / "csrc").rglob(kind)]
    return [p for p in paths if p.name != "chunk_sizes.h" and p.parent.name != "bindings"]


def test_every_size_of_a_chunk_is_listed():
    found = {}
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if lines := unregistered(name, path.read_text()):
            found[name] = lines
    assert not found, "put them into csrc/base/chunk_sizes.h, or say above why they are none"


def test_none_is_listed_that_is_gone():
    text = "\n".join(path.read_text() for path in sources())
    assert {name for name in KNOWN if name not in text} == set()
    for name, arguments in ARGUMENTS.items():
        assert all(known in (ROOT / name).read_text() for known in arguments)


@pytest.mark.parametrize(
    "line",
    [
        "constexpr std::int64_t kStep = 4096;",
        "  static constexpr std::size_t kStep = std::size_t{1} << 20;",
        "constexpr std::uint64_t kStep = 64ULL << 20;  // bytes",
        "  for (std::int64_t i = 0; i < n; i += 1 << 16) {",
    ],
)
def test_a_new_one_is_found(line):
    assert unregistered("csrc/new.cpp", line) == [line.split("//")[0].strip()]


def test_tests_make_all_of_them_tiny():
    """The header has the name of every size, and so has the C++ tests' list of tiny ones."""
    header = (ROOT / "csrc/base/chunk_sizes.h").read_text()
    names = set(re.findall(r"^  [\w:]+ (\w+) = ", header, re.M))
    tiny = set(re.findall(r"\.(\w+) = \d+", (ROOT / "tests/cpp/main.cpp").read_text()))
    assert len(names) > 20
    assert names == tiny
    used = "\n".join(path.read_text() for path in sources())
    assert {name for name in names if f"chunk_sizes.{name}" not in used} == set()
