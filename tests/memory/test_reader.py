"""Rows read past the page cache, against plain indexing: both readers, files that fail."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest
import pythons
import torch
from torch import Tensor

from pyg_graphzero import _core

READERS = ["pool"] + ([] if _core.uring_refusal() else ["uring"])


def write_table(path: Path, num_rows: int, row_bytes: int) -> tuple[Tensor, _core.ColumnFile]:
    """Random rows, and the file that has them."""
    table = torch.randint(256, (num_rows, row_bytes), dtype=torch.uint8)
    path.write_bytes(table.numpy().tobytes())
    return table, _core.ColumnFile.open(str(path), 0, num_rows, row_bytes, row_bytes)


@pytest.mark.parametrize("reader", READERS)
def test_positions(reader: str, tmp_path: Path) -> None:
    table, column = write_table(tmp_path / "t", 100, 64)
    out = torch.zeros(6, 64, dtype=torch.uint8)
    disk = _core.DiskGather(reader)
    assert disk.reader == reader
    disk.gather(column, [torch.tensor([7, 7, 99])], [out], [torch.tensor([5, 0, 2])])
    assert torch.equal(out[[5, 0, 2]], table[[7, 7, 99]])
    assert not out[[1, 3, 4]].any()
    with pytest.raises(IndexError, match=r"positions\[0\]: found position 6, expected 0 <="):
        disk.gather(column, [torch.tensor([7])], [out], [torch.tensor([6])])
    with pytest.raises(ValueError, match=r"outs\[0\]: its shape must be"):
        disk.gather(column, [torch.tensor([7])], [out])


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no tmpfs")
@pytest.mark.parametrize("reader", READERS)
def test_a_filesystem_in_memory(reader: str) -> None:
    """Whether it takes O_DIRECT depends on the kernel; the rows do not."""
    path = Path("/dev/shm") / f"graphzero-test-{os.getpid()}"
    try:
        table, column = write_table(path, 1000, 512)
        index, out = torch.randint(1000, (300,)), torch.zeros(300, 512, dtype=torch.uint8)
        _core.DiskGather(reader).gather(column, [index], [out])
        assert torch.equal(out, table[index])
        assert _core.probe_disk(str(path), seconds=0.02, reader=reader).random_iops > 0
    finally:
        path.unlink(missing_ok=True)


def test_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reader: found 'aio', expected 'auto', 'uring' or 'pool'"):
        _core.DiskGather("aio")
    with pytest.raises(FileNotFoundError):
        _core.ColumnFile.open(str(tmp_path / "none"), 0, 1, 1, 1)


PREPARE = """
    import ctypes, errno, os, resource, struct, sys
    import torch
    from pyg_graphzero import _core

    table = torch.arange(100 * 512).view(100, 512).to(torch.uint8)
    column = _core.ColumnFile.open(sys.argv[1], 0, 100, 512, 512)

    def check(reader="auto", disk=None):
        disk = disk or _core.DiskGather(reader)
        out = torch.zeros(50, 512, dtype=torch.uint8)
        index = torch.arange(99, 0, -2)
        disk.gather(column, [index], [out])
        assert torch.equal(out, table[index])
        return disk

    def in_child(call, *arguments):
        child = os.fork()
        if child == 0:
            try:
                call(*arguments)
            except BaseException as error:
                print(call.__name__, arguments, repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
"""


def run(code: str, tmp_path: Path) -> None:
    """Runs Python code that begins with ``PREPARE`` in a process of its own."""
    path = tmp_path / "t"
    path.write_bytes(torch.arange(100 * 512).to(torch.uint8).numpy().tobytes())
    code = textwrap.dedent(PREPARE) + textwrap.dedent(code)
    done = pythons.run(code, path, threads=1)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="seccomp")
def test_io_uring_forbidden(tmp_path: Path) -> None:
    """Where a sandbox such as Docker's forbids io_uring, the pool reads; ``uring`` is refused."""
    run(
        """
        def forbid(number, error):
            # A seccomp filter: load the number of the call; if it is `number`, fail with `error`;
            # else allow.
            steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error),
                     (0x06, 0, 0, 0x7FFF0000)]
            code = b"".join(struct.pack("HBBI", *step) for step in steps)
            held = ctypes.create_string_buffer(code, len(code))
            program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(held))
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.prctl(38, 1, 0, 0, 0) == 0
            assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()

        def without(number, error):
            forbid(number, error)
            assert os.strerror(error) in _core.uring_refusal(), _core.uring_refusal()
            assert check().reader == "pool"
            try:
                _core.DiskGather("uring")
            except OSError as refused:
                assert (refused.errno, refused.filename) == (error, "io_uring"), refused
            else:
                raise AssertionError("io_uring was not refused")

        def forbidden_under_way():
            disk = check("uring")
            forbid(426, errno.EPERM)
            try:
                check(disk=disk)
            except OSError as refused:
                assert refused.errno == errno.EPERM, refused
            else:
                raise AssertionError("nothing was raised")

        # io_uring_setup, io_uring_enter, io_uring_register: the same numbers on all but Alpha.
        if not _core.uring_refusal():
            for number in (425, 426, 427):
                for error in (errno.EPERM, errno.ENOSYS):
                    in_child(without, number, error)
            in_child(forbidden_under_way)
        print("good")
        """,
        tmp_path,
    )


def test_little_memory_may_be_locked(tmp_path: Path) -> None:
    """Not enough for the buffers, or not even for a ring: the rows come all the same."""
    run(
        """
        def with_at_most(limit):
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)  # root may lock what it likes
            check("pool")
            assert check().reader == ("pool" if _core.uring_refusal() else "uring")

        for limit in (0, 1 << 20):
            in_child(with_at_most, limit)
        print("good")
        """,
        tmp_path,
    )
