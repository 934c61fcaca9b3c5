"""How fast the disk under a file is, measured once and remembered for each device.

Two figures decide how rows are read (see ``docs/internals.md``): random reads a second and bytes
a second. Measuring only reads; nothing is ever written next to the data.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import sleep

from pyg_graphzero import _core
from pyg_graphzero.util.system import device_number, disk_of, mount_of, stored_bytes

#: A gap of this many bytes is read rather than skipped where the disk could not be measured.
DEFAULT_MERGE_GAP = 16 << 10
#: Bounds of a gap, however odd the measurement.
MIN_MERGE_GAP, MAX_MERGE_GAP = 4 << 10, 1 << 20
#: Memory of the asynchronous reader for reads under way, and for plans of reads.
READER_BYTES = 32 << 20
#: A smaller file may be read from the disk's own cache.
MIN_FILE_BYTES = 64 << 20
# A file that takes less of the disk than this share of its size has holes, which are read as well.
_LEAST_STORED = 0.9

_FORMAT = 2
# No gap of a flash disk is larger. A larger one was measured on a spinning disk, or while others
# used this one: other work can only make it slower, so it is measured again, _MEASURED_AGAIN times
# at most.
_USUAL_MERGE_GAP = 64 << 10
_MEASURED_AGAIN = 3
# Random reads under way at the same time, and bytes of each.
_DEPTH = 128
_PROBED_READ = 4096


@dataclass(frozen=True)
class DiskSpeed:
    """Speed of a disk, as :func:`probe` found it.

    Attributes:
        device: The device the file is on: number, model, size.
        random_iops: Random reads of 4 KiB a second, ``depth`` of them under way.
        bytes_per_second: Bytes a second of reads of 1 MiB, one after the other.
        depth: Reads under way at the same time.
        direct: Measured past the page cache.
        file_bytes: Size of the file that was read.
        remembered: The figures are those of an earlier call.
        is_sparse: The file takes less of the disk than its size says.
    """

    device: str
    random_iops: float
    bytes_per_second: float
    depth: int
    direct: bool
    file_bytes: int
    remembered: bool = False
    is_sparse: bool = False

    @property
    def doubt(self) -> str:
        """Why the figures may not be those of the disk; empty where they are."""
        if not self.direct:
            return "the filesystem allows no direct reads, so the page cache may have answered"
        if self.is_sparse:
            return "the file has holes, or is compressed, and the disk was not asked for all of it"
        if self.file_bytes < MIN_FILE_BYTES:
            return (
                f"the file has {self.file_bytes:,} bytes, and of less than {MIN_FILE_BYTES:,} "
                "the disk's own cache may have answered"
            )
        return ""

    @property
    def merge_gap(self) -> int:
        """The gap in bytes that takes as long to read as a further read takes."""
        if self.doubt:
            return DEFAULT_MERGE_GAP
        gap = int(self.bytes_per_second / self.random_iops)
        return min(max(gap, MIN_MERGE_GAP), MAX_MERGE_GAP)

    def seconds(self, reads: float, num_bytes: float) -> float:
        """How long a number of reads take that have ``num_bytes`` together, many under way.

        Each read has its price besides its bytes, also where both figures were measured alone: at
        4 KiB a read this is ``random_iops``, with reads without end ``bytes_per_second``.
        """
        each = max(0.0, 1 / self.random_iops - _PROBED_READ / self.bytes_per_second)
        return reads * each + num_bytes / self.bytes_per_second

    def __str__(self) -> str:
        speed = (
            f"{self.random_iops:,.0f} random reads/s at depth {self.depth}, "
            f"{self.bytes_per_second / 1e6:,.0f} MB/s, gaps up to {self.merge_gap:,} bytes are read"
        )
        return f"{speed} ({self.doubt})" if self.doubt else speed


def probe(
    path: str | os.PathLike[str], *, seconds: float = 0.6, refresh: bool = False
) -> DiskSpeed:
    """Measures the disk under a file or store, or remembers what it measured before.

    A disk with few random reads for its bandwidth is measured again, up to three times: others may
    have used it meanwhile. Figures are kept for each device in ``$XDG_CACHE_HOME/pyg_graphzero``
    (``~/.cache`` by default), unless there is a :attr:`DiskSpeed.doubt` about them, or the user has
    no home.

    Args:
        path: A file of at least 4 KiB, or a directory, whose largest file is read.
        seconds: How long to measure.
        refresh: Measure even if figures are remembered, as after a change of hardware.

    Raises:
        FileNotFoundError: There is no such file, or no file in the directory.
        ValueError: The file is too small to measure anything.

    Example:
        >>> from pyg_graphzero.util.disk import probe
        >>> speed = probe(example_store, seconds=0.02)
        >>> speed.merge_gap  # the example is far too small to tell
        16384
    """
    file = _largest_file(Path(path))
    device = _device_of(file)
    memory = _cache_file(device)
    known = None if refresh or memory is None else _remembered(memory, device)
    if known is not None:
        return known
    speed = _measured(file, device, seconds)
    for _ in range(_MEASURED_AGAIN):
        if speed.doubt or speed.merge_gap <= _USUAL_MERGE_GAP:
            break
        sleep(seconds)
        again = _measured(file, device, seconds)
        speed = replace(
            speed,
            random_iops=max(speed.random_iops, again.random_iops),
            bytes_per_second=max(speed.bytes_per_second, again.bytes_per_second),
        )
    if memory is not None and not speed.doubt:
        _remember(memory, speed)
    return speed


def _measured(file: Path, device: str, seconds: float) -> DiskSpeed:
    found, status = _core.probe_disk(str(file), seconds, _DEPTH), file.stat()
    return DiskSpeed(
        device=device,
        random_iops=found.random_iops,
        bytes_per_second=found.bytes_per_second,
        depth=found.depth,
        direct=found.direct,
        file_bytes=found.file_bytes,
        is_sparse=stored_bytes(status) < _LEAST_STORED * status.st_size,
    )


def _largest_file(path: Path) -> Path:
    if not path.is_dir():
        return path
    files = [file for file in path.rglob("*") if file.is_file()]
    if not files:
        raise FileNotFoundError(f"{path}: found no file to measure the disk with")
    return max(files, key=lambda file: file.stat().st_size)


def _device_of(file: Path) -> str:
    """A name that another disk in its place would not have."""
    number, disk = device_number(file), disk_of(file)
    if disk is None:  # network and overlay filesystems have no device of their own
        return " ".join([number, *(mount_of(file) or ())])
    facts = (disk / "device" / "model", disk / "size")
    return " ".join([number, *(fact.read_text().strip() for fact in facts if fact.exists())])


def cache_folder() -> Path | None:
    """Where the package keeps what can be made again; None for a user without a home."""
    home = os.environ.get("XDG_CACHE_HOME")
    if not home:
        try:
            home = str(Path.home() / ".cache")
        except RuntimeError:  # no HOME, and a user whom the system does not know
            return None
    return Path(home) / "pyg_graphzero"


def _cache_file(device: str) -> Path | None:
    """Where figures are kept."""
    folder = cache_folder()
    name = "".join(c if c.isalnum() else "-" for c in device)
    return None if folder is None else folder / f"disk-{name}.json"


def _remembered(memory: Path, device: str) -> DiskSpeed | None:
    try:
        record = json.loads(memory.read_text())
        if record.pop("format") != _FORMAT or record["device"] != device:
            return None
        return DiskSpeed(**{**record, "remembered": True})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # nothing there, or written by another version: measure


def _remember(memory: Path, speed: DiskSpeed) -> None:
    try:
        memory.parent.mkdir(0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=memory.parent, delete=False) as file:
            json.dump({"format": _FORMAT, **asdict(speed)}, file)
        os.replace(file.name, memory)
    except OSError:
        return  # a home that cannot be written to costs a measurement each time, no more
