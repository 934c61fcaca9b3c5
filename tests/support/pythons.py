"""New processes for Python code of tests, with the package already imported.

Code that may kill its process, or is about a whole one, runs in another, and importing torch and
PyG takes five seconds of each. These are forked from one that has imported the package and has done
nothing else: it has no thread and no file open. Tests that need settings before the first import
(``LD_PRELOAD``, malloc's settings), or are about importing, start Python itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

_PATIENCE = 120.0  # seconds
_server: tuple[socket.socket, subprocess.Popen[bytes]] | None = None


class Python:
    """A process that runs ``code``, with the interface of ``subprocess.Popen``.

    Args:
        code: Code with any indent; its ``sys.argv[1:]`` are ``arguments``.
        arguments: Values that become strings.
        threads: Threads of torch, whose team of several does not survive a fork; 0 leaves them.
        new_session: Whether the process gets a session of its own, as a shell would start it.
    """

    def __init__(
        self, code: str, *arguments: object, threads: int = 0, new_session: bool = False
    ) -> None:
        request = {
            "code": textwrap.dedent(code),
            "arguments": [str(each) for each in arguments],
            "threads": threads,
            "new_session": new_session,
            "cwd": os.getcwd(),
            "env": dict(os.environ),
        }
        pipes = [os.pipe() for _ in range(4)]
        theirs = [pipes[0][0], *(write for _, write in pipes[1:])]
        socket.send_fds(_connected(), [json.dumps(request).encode()], theirs)
        for each in theirs:
            os.close(each)
        self.stdin = open(pipes[0][1], "w")  # noqa: SIM115 - closed in wait()
        self.stdout, self.stderr, self._status = (open(read) for read, _ in pipes[1:])  # noqa: SIM115
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended, be it just now."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def communicate(self, timeout: float = _PATIENCE) -> tuple[str, str]:
        """All it writes until it ends; killed with its session if it takes longer than that."""
        self.stdin.close()
        kill = threading.Timer(timeout, self.send_signal, [signal.SIGKILL])
        kill.start()
        with ThreadPoolExecutor(2) as readers:
            out, err = readers.map(lambda stream: stream.read(), (self.stdout, self.stderr))
        kill.cancel()
        self.wait()
        return out, err

    def wait(self) -> int:
        """Its exit code, or the signal that ended it, negative."""
        if self.returncode is None:
            self.returncode = int(self._status.readline())
            for each in (self.stdin, self.stdout, self.stderr, self._status):
                each.close()
        return self.returncode


def run(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs ``code`` to its end (see :class:`Python`)."""
    timeout = options.pop("timeout", _PATIENCE)
    process = Python(code, *arguments, **options)
    out, err = process.communicate(timeout)
    return subprocess.CompletedProcess(["python", *arguments], process.wait(), out, err)


def _connected() -> socket.socket:
    global _server
    if _server is None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            here = Path(__file__)
            command = [sys.executable, str(here), str(theirs.fileno())]
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(
                command, stdin=nothing, stdout=nothing, pass_fds=[theirs.fileno()]
            )
        _server = ours, process
    return _server[0]


def stop() -> None:
    """Ends the process that others are forked from, if there is one."""
    global _server
    if _server is not None:
        _server[0].shutdown(socket.SHUT_RDWR)  # a forked child may have it too
        _server[0].close()
        _server[1].wait()
        _server = None


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Forks for each request, and returns it in the new process; None at the end."""
    while True:
        message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not message:
            return None
        # One between the two waits, and says what became of it.
        if os.fork() == 0:
            requests.close()
            status = fds.pop()
            child = os.fork()
            if child == 0:
                os.close(status)
                for number, fd in enumerate(fds):
                    os.dup2(fd, number)
                    os.close(fd)
                return json.loads(message)
            for each in fds:
                os.close(each)
            os.write(status, f"{child}\n".encode())
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os.write(status, f"{ended}\n".encode())
            os._exit(0)
        for each in fds:
            os.close(each)
        while _ended():
            pass


def _ended() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


if __name__ == "__main__":
    import torch

    import pyg_graphzero  # noqa: F401

    gc.freeze()  # or each would look at, and copy, all that was imported
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        request = _serve(requests)
    if request is None:
        sys.exit()
    if request["new_session"]:
        os.setsid()
    if request["threads"]:
        torch.set_num_threads(request["threads"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = ["-c", *request["arguments"]]
    sys.path[0] = ""
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(request["code"], main.__dict__)
