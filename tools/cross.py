"""Compiles for machines that are not here, by ``zig c++``: their C++ tests, and wheels.

    python tools/cross.py test arm        # under qemu-aarch64: make test-arm
    python tools/cross.py test windows    # under wine: make test-windows
    python tools/cross.py wheels          # dist/: make wheels

Zig has the C libraries of all targets in one package of the index (``ziglang``), glibc of any
version among them: what is compiled for 2.28 runs on each Linux since 2018. Zig's C++ library is
linked into the module. OpenMP is libgomp's, of which zig has none: the module is linked to one
that has its names alone, and finds torch's when it is loaded.

Needs ziglang and ninja; wheels need build, twine, abi3audit and auditwheel besides.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from wheel import OPENMP, ROOT, check, install_and_try, run, tool

BUILD = ROOT / "build" / "zig"


@dataclass(frozen=True)
class Target:
    """A machine.

    Attributes:
        zig: What zig calls it, with the version of its C library or system.
        system: What CMake calls its system.
        processor: What CMake calls its processor.
        tag: The platform that its wheel is for.
        emulator: The command that runs its programs here.
        packages: Debian's, which have the command and what it needs.
    """

    zig: str
    system: str
    processor: str
    tag: str = ""
    emulator: tuple[str, ...] = ()
    packages: str = ""


TARGETS = {
    "x86-64": Target("x86_64-linux-gnu.2.28", "Linux", "x86_64", "manylinux_2_28_x86_64"),
    "arm": Target(
        "aarch64-linux-gnu.2.28",
        "Linux",
        "aarch64",
        "manylinux_2_28_aarch64",
        ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
        "qemu-user libc6-arm64-cross",
    ),
    "macos": Target("aarch64-macos.12.0", "Darwin", "arm64", "macosx_12_0_arm64"),
    "windows": Target(
        "x86_64-windows-gnu", "Windows", "AMD64", emulator=("wine",), packages="wine wine64"
    ),
}

# Names of libgomp, each with the version that it has there.
LIBGOMP = {
    "OMP_1.0": ("omp_get_max_threads", "omp_set_num_threads"),
    "GOMP_4.0": ("GOMP_parallel",),
}


def zig() -> Path:
    """The compiler.

    Raises:
        SystemExit: It is not installed.
    """
    spec = find_spec("ziglang")
    if spec is None or spec.origin is None:
        raise SystemExit("found no zig, expected ziglang: pip install ziglang")
    return Path(spec.origin).with_name("zig")


def toolchain(target: Target) -> Path:
    """CMake's file about a target, with the programs that it names."""
    folder = BUILD / target.zig
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in (("c++", f"c++ -target {target.zig}"), ("ar", "ar"), ("ranlib", "ranlib")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{zig()}" {command} "$@"\n')
        program.chmod(0o755)
    lines = [
        f"set(CMAKE_SYSTEM_NAME {target.system})",
        f"set(CMAKE_SYSTEM_PROCESSOR {target.processor})",
        f"set(CMAKE_CXX_COMPILER {folder}/c++)",
        f"set(CMAKE_AR {folder}/ar)",
        f"set(CMAKE_RANLIB {folder}/ranlib)",
        "set(CMAKE_CXX_FLAGS_RELEASE_INIT -g0)",
    ]
    if target.system == "Linux":
        link_openmp(target, folder)
        lines += [f"set(CMAKE_{kind}_LINKER_FLAGS_INIT -L{folder})" for kind in ("EXE", "MODULE")]
    file = folder / "toolchain.cmake"
    file.write_text("\n".join(lines) + "\n")
    return file


def link_openmp(target: Target, folder: Path) -> None:
    """A libgomp that has names and no code, to link to."""
    source, versions = folder / "gomp.c", folder / "gomp.map"
    names = [name for each in LIBGOMP.values() for name in each]
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    versions.write_text(
        "".join(f"{version} {{ {'; '.join(each)}; }};\n" for version, each in LIBGOMP.items())
    )
    flags = ("-shared", f"-Wl,-soname,{OPENMP}", f"-Wl,--version-script={versions}")
    run(zig(), "cc", "-target", target.zig, *flags, source, "-o", folder / "libgomp.so")


def program(name: str, package: str) -> str:
    """A program of this environment, or of the machine.

    Raises:
        SystemExit: There is none.
    """
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise SystemExit(f"found no {name}, expected it: {package}")
    return found


def test(name: str) -> None:
    """Compiles the engine and its tests, and runs them twice, as ``make cpptest`` does.

    Raises:
        SystemExit: The emulator is not installed.
    """
    target = TARGETS[name]
    program(target.emulator[0], f"apt install {target.packages}")
    cmake, ninja = program("cmake", "pip install cmake"), program("ninja", "pip install ninja")
    folder = BUILD / f"test-{name}"
    options = {
        "CMAKE_TOOLCHAIN_FILE": toolchain(target),
        "CMAKE_MAKE_PROGRAM": ninja,
        "GZ_BUILD_PYTHON": "OFF",
        "GZ_BUILD_TESTS": "ON",
        "GZ_OPENMP": "OFF",
    }
    defined = [f"-D{name}={value}" for name, value in options.items()]
    run(cmake, "-S", ROOT, "-B", folder, "-G", "Ninja", *defined)
    run(cmake, "--build", folder)
    (tests,) = (path for path in folder.glob("graphzero_tests*") if path.suffix in ("", ".exe"))
    for arguments in ([], ["--tiny-chunks"]):
        run(*target.emulator, tests, *arguments)


def wheel(target: Target, sdist: Path, out: Path) -> Path:
    """The wheel of a target, made from an sdist."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        settings = {
            "cmake.define.CMAKE_TOOLCHAIN_FILE": toolchain(target),
            "build-dir": BUILD / f"wheel-{target.tag}",
            "install.strip": "true",
        }
        if target.system == "Darwin":
            settings["cmake.define.CMAKE_SYSTEM_VERSION"] = "12.0"
        config = [f"--config-settings={key}={value}" for key, value in settings.items()]
        pip = [*tool("pip"), "wheel", "-q", "--no-deps", "--no-build-isolation"]
        run(*pip, "-w", made, *config, sdist)
        (built,) = made.glob("*.whl")
        run(*tool("wheel"), "tags", "--remove", "--platform-tag", target.tag, built)
        (tagged,) = made.glob("*.whl")
        extra = [name for name in zipfile.ZipFile(tagged).namelist() if ".so." in name]
        if extra:
            raise SystemExit(f"{tagged.name} has {extra}: expected no library but the module")
        return Path(shutil.copy2(tagged, out / tagged.name))


def wheels(names: list[str], out: Path, constraints: Path | None) -> None:
    """An sdist, wheels of targets, what checks say of them, and this machine's tried."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("*.whl"), *out.glob("*.tar.gz")):
        old.unlink()
    run(*tool("build"), "--sdist", "--outdir", out, ROOT)
    (sdist,) = out.glob("*.tar.gz")
    for name in names:
        made = wheel(TARGETS[name], sdist, out)
        check(sdist, made)
        if TARGETS[name].system == "Linux":
            show = [*map(str, tool("auditwheel")), "show", str(made)]
            shown = subprocess.run(show, check=True, capture_output=True, text=True).stdout
            if f'"{TARGETS[name].tag}"' not in " ".join(shown.split()):
                raise SystemExit(f"{made.name}: found {shown}\nexpected {TARGETS[name].tag}")
        if name == "x86-64":
            install_and_try(made, constraints)
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>12,} {path.name}")


def main() -> None:
    """One of the two."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("test").add_argument("name", choices=["arm", "windows"])
    made = commands.add_parser("wheels")
    made.add_argument("names", nargs="*", default=["x86-64", "arm", "macos"])
    made.add_argument("--out", type=Path, default=ROOT / "dist", help="where to")
    made.add_argument("--constraints", type=Path, help="versions of what the wheel needs")
    args = parser.parse_args()
    if args.command == "test":
        test(args.name)
    else:
        wheels(args.names, args.out.resolve(), args.constraints)


if __name__ == "__main__":
    main()
