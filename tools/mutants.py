"""Makes deliberate mistakes, one at a time, and says which of them the tests notice.

    python tools/mutants.py             # all of tests/mutants/*.toml
    python tools/mutants.py ranking     # those with this word in their name or file

Each mistake is a piece of text that stands once in a file, what is put in its place, and the test
that must fail then. It is made in a copy of the working tree, `build/mutants/tree`; the engine is
the installed one, which must be fresh, or for mistakes in it one that is built in the copy. Exits 1
if a mistake goes unnoticed or no longer applies.
"""

from __future__ import annotations

import ast
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"
SECONDS = 180  # a test that takes longer hangs


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        name: Name of the mutant.
        file: The source file, from the root of the repository.
        before: Text that stands in it exactly once.
        after: Text that replaces it.
        test: Test that must fail then: ``tests/test_x.py::test_y``, or
            ``tests/cpp/test_x.cpp::y``, or ``y[tiny]`` for its run with tiny chunks.
    """

    name: str
    file: str
    before: str
    after: str
    test: str

    def applied(self, text: str) -> str:
        """The file with the mistake in it.

        Raises:
            ValueError: It does not apply.
        """
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.name}: {self.file} has the text before {text.count(self.before)} times, "
                f"expected once:\n{self.before}"
            )
        return text.replace(self.before, self.after)

    def check(self) -> None:
        """Whether it applies and its test is there.

        Raises:
            ValueError: One of them is not so.
            OSError: A file cannot be read.
        """
        text = (ROOT / self.file).read_text()
        if self.applied(text) == text:
            raise ValueError(f"{self.name}: found no difference, expected a mistake")
        path, _, test = self.test.partition("::")
        text = (ROOT / path).read_text()
        function = test.split("::")[-1].split("[")[0]
        if path.endswith(".cpp"):
            found = set(re.findall(r"^TEST\((\w+)\)", text, re.MULTILINE))
        else:
            found = {n.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)}
        if function not in found:
            raise ValueError(f"{self.name}: {path} has no test {function}")


def listed(words: Iterable[str] = ()) -> list[Mutant]:
    """The mistakes of all files, or those with a word in their name or file."""
    words = list(words)
    found: dict[str, Mutant] = {}
    for path in sorted((ROOT / "tests" / "mutants").glob("*.toml")):
        for entry in tomllib.loads(path.read_text())["mutant"]:
            mutant = Mutant(**entry)
            if mutant.name in found:
                raise ValueError(f"{path.name}: found a second {mutant.name}")
            found[mutant.name] = mutant
    return [m for m in found.values() if not words or any(w in m.name + m.file for w in words)]


class Copy:
    """A copy of the working tree with a Python and an engine of its own."""

    def __init__(self) -> None:
        self.tree = WORK / "tree"
        WORK.mkdir(parents=True, exist_ok=True)
        self._lock = (WORK / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # another run waits
        python = WORK / "venv" / "bin" / "python"
        packages = Path(sysconfig.get_path("purelib"))
        if not python.exists():
            venv.create(WORK / "venv", symlinks=True)
            # The tree comes before the packages that are installed here, whose .pth files, and
            # the editable install with them, do not count in another environment.
            site = next((WORK / "venv" / "lib").glob("python*")) / "site-packages"
            (site / "tree.pth").write_text(f"{self.tree}\n{packages}\n")
        code = "import pyg_graphzero._core as core; print(core.__file__)"
        self._installed = Path(_printed([sys.executable, "-c", code]).strip())
        self.renew()
        # _core needs torch's libraries, which it would find beside an installed torch.
        env = os.environ | {"LD_LIBRARY_PATH": str(packages / "torch" / "lib")}
        env.pop("PYTHONPATH", None)
        self._server = subprocess.Popen(
            [str(python), str(Path(__file__).resolve()), "--serve"],
            cwd=self.tree,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """Takes back what was changed, and ends the process that runs tests."""
        self.renew()
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()

    def renew(self) -> None:
        """Makes the copy what the working tree is; files that are the same keep their dates."""
        out = _printed(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        names = {name for name in out.split("\0") if name and (ROOT / name).is_file()}
        for path in [p for p in self.tree.rglob("*") if p.is_file()]:
            name = str(path.relative_to(self.tree))
            if name not in names and path.suffix not in (".so", ".pyc"):
                path.unlink()
        for name in names:
            content, copy = (ROOT / name).read_bytes(), self.tree / name
            if not copy.exists() or copy.read_bytes() != content:
                self.write(name, content)
                shutil.copymode(ROOT / name, copy)

    def write(self, name: str, content: bytes) -> None:
        """Changes a file of the copy."""
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        # Python takes a compiled file for fresh by its second and size.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()

    def run(
        self, tests: Iterable[str], seconds: int = SECONDS, own_engine: bool = False
    ) -> tuple[str, str]:
        """Runs tests, all of Python or one of C++.

        Args:
            tests: Which.
            seconds: How long they may take.
            own_engine: There are mistakes in the copy's engine.

        Returns:
            ``"passed"``, ``"failed"`` (also: died, or took too long) or ``"error"`` (no test was
            run); and what was printed.
        """
        tests = list(tests)
        path, _, name = tests[0].partition("::")
        is_cpp = path.endswith(".cpp")
        if is_cpp or own_engine:
            self._build("graphzero_tests" if is_cpp else "_core")
        if is_cpp:
            name, _, run = name.partition("[")
            command = ["graphzero_tests", name, *(["--tiny-chunks"] if run == "tiny]" else [])]
        else:
            module = self.tree / "pyg_graphzero" / "_core.abi3.so"
            module.unlink(missing_ok=True)  # it may be mapped
            shutil.copy(WORK / "cpp" / module.name if own_engine else self._installed, module)
            command = ["pytest", "-x", "-q", "-p", "no:cacheprovider", f"--timeout={seconds}"]
            command += tests
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps({"command": command, "seconds": seconds}), file=self._server.stdin)
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        # pytest: 2 to 5 are not failures of a test.
        state = "passed" if code == 0 else "error" if 2 <= code <= 5 else "failed"
        return state, (WORK / "printed").read_text(errors="replace")

    def _build(self, target: str) -> None:
        build, tools = WORK / "cpp", Path(sys.executable).parent
        if not (build / "build.ninja").exists():
            options = ["-DGZ_BUILD_TESTS=ON", f"-DPython_EXECUTABLE={sys.executable}"]
            options += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"]
            _printed([str(tools / "cmake"), "-S", str(self.tree), "-B", str(build), *options])
        _printed([str(tools / "cmake"), "--build", str(build), "--target", target])


def _printed(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def serve() -> None:
    """Runs the commands that come by standard input, each in a fork that has torch already."""
    import pyarrow  # noqa: F401
    import pytest
    import torch_geometric.loader  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            for stream, path, mode in (
                (0, Path(os.devnull), os.O_RDONLY),
                (1, WORK / "printed", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            ):
                os.dup2(os.open(path, mode, 0o644), stream)
            os.dup2(1, 2)
            program, *arguments = request["command"]
            if program != "pytest":
                os.execv(WORK / "cpp" / program, [program, *arguments])
            code = 3  # pytest's own, for errors that are none of a test
            try:
                code = pytest.main(arguments)
            finally:
                sys.stdout.flush()
                os._exit(code)
        deadline = time.monotonic() + request["seconds"]
        done, status = os.waitpid(child, os.WNOHANG)
        while not done and time.monotonic() < deadline:
            time.sleep(0.02)
            done, status = os.waitpid(child, os.WNOHANG)
        with contextlib.suppress(ProcessLookupError):  # it hangs, or what it started lives on
            os.killpg(child, signal.SIGKILL)
        if not done:
            _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def main(words: list[str]) -> int:
    """Makes each mistake in turn."""
    mutants = listed(words)
    for mutant in mutants:
        mutant.check()
    with contextlib.closing(Copy()) as copy:
        tests = list(dict.fromkeys(m.test for m in mutants))
        python = [test for test in tests if ".py::" in test]
        groups = ([python] if python else []) + [[t] for t in tests if t not in python]
        for group in groups:
            state, out = copy.run(group, SECONDS * len(group))
            if state != "passed":
                print(f"{out}\nThese tests fail without a mistake: {' '.join(group)}")
                return 1
        unnoticed = 0
        for mutant in mutants:
            copy.renew()
            text = (ROOT / mutant.file).read_text()
            copy.write(mutant.file, mutant.applied(text).encode())
            state, out = copy.run([mutant.test], own_engine=mutant.file.startswith("csrc/"))
            noticed = {"failed": "noticed", "passed": "UNNOTICED", "error": "ERROR"}[state]
            print(f"{noticed:9}  {mutant.name}  ({mutant.test})", flush=True)
            if state == "error":
                print(out)
            unnoticed += state != "failed"
    print(f"{len(mutants) - unnoticed} of {len(mutants)} noticed")
    return int(unnoticed > 0)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else sys.exit(main(sys.argv[1:]))
