"""Builds the kernels of `node.kernels`: a library in plain C++, which needs neither Python's nor torch's headers.

They are optional: where there is no compiler, or it fails, layerline is installed without them and computes with
torch. Each instruction set is compiled by itself, since each has flags of its own; which one runs is chosen at run
time. As the library knows nothing of Python, one wheel serves every version of it on a platform.
"""

from __future__ import annotations

import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

SOURCES = Path("node/kernels/src")
FLAG_OF = {"avx512": "avx512_vnni", "avxvnni": "avx_vnni"}  # in /proc/cpuinfo
ALL = "LAYERLINE_ALL_KERNELS"  # set: for every processor of this kind, not for this one alone
ENDING = ".dylib" if sys.platform == "darwin" else ".so"
FLAGS = ["-std=c++17", "-O2", "-fvisibility=hidden", "-ffp-contract=off", "-g0", "-w"]
MACHINE = platform.machine().lower()

if sys.platform == "darwin":  # else a Python for two kinds of processors would have both compiled at once
    os.environ.setdefault("ARCHFLAGS", f"-arch {MACHINE}")


def instruction_sets() -> dict[str, list[str]]:
    """The instruction sets of this machine's processors, each with the flags that it is compiled with."""
    plain = {"plain": ["-O1"]}
    if MACHINE in ("x86_64", "amd64"):
        avx2 = ["-mavx2", "-mfma", "-mf16c"]
        vnni = {
            "avx512": [*avx2, *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "vnni"))],
            "avxvnni": [*avx2, "-mavxvnni"],
        }
        return {**{name: flags for name, flags in vnni.items() if is_wanted(name)}, "avx2": avx2, **plain}
    if MACHINE in ("aarch64", "arm64"):
        return {"neon": ["-march=armv8.2-a+dotprod+fp16"], **plain}
    return plain


def is_wanted(instruction_set: str) -> bool:
    """Whether to spend the time on it: for this machine if that has it, and for wheels that other machines get."""
    if os.environ.get(ALL):
        return True
    try:
        return FLAG_OF[instruction_set] in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except OSError:  # not Linux
        return True


class BuildKernels(build_ext):
    """Compiles the instruction sets beside each other, and links them with what is common to them.

    One that this compiler does not know is left out. The source is for compilers that take GCC's flags, which MSVC does
    not: on Windows there are no kernels yet.
    """

    def build_extension(self, ext: Extension) -> None:
        """Builds the library."""
        if self.compiler.compiler_type == "msvc":
            raise CompileError("the kernels cannot be compiled by MSVC")
        shared = [path for path in sorted(SOURCES.glob("*.cpp")) if not path.stem.startswith("kernels_")]
        with ThreadPoolExecutor(max(1, cpu_count() or 1)) as threads:
            made = dict(threads.map(self._instruction_set, instruction_sets().items()))
            built = {name: objects for name, objects in made.items() if objects}
            defines = [(f"LAYERLINE_HAS_{name.upper()}", "1") for name in built]
            common = [threads.submit(self._compiled, path, [], defines) for path in shared]
        if "plain" not in built:
            raise CompileError("the kernels could not be compiled")
        objects = [each for part in (*built.values(), *(each.result() for each in common)) for each in part]
        path = self.get_ext_fullpath(ext.name)
        self.compiler.link_shared_object(objects, path, libraries=["pthread"], target_lang="c++")

    def _instruction_set(self, named: tuple[str, list[str]]) -> tuple[str, list[str]]:
        """One by its name, with its objects; none if it could not be compiled."""
        name, flags = named
        try:
            return name, self._compiled(SOURCES / f"kernels_{name}.cpp", flags, [])
        except CompileError as failure:
            self.warn(f"no kernels for {name}: {failure}")
            return name, []

    def _compiled(self, path: Path, flags: list[str], defines: list[tuple[str, str]]) -> list[str]:
        made: list[str] = self.compiler.compile(
            [str(path)], output_dir=self.build_temp, macros=defines, extra_postargs=[*FLAGS, *flags]
        )
        return made

    def get_ext_filename(self, fullname: str) -> str:
        """The library's path in the package, the same for every Python."""
        return fullname.replace(".", "/") + ENDING

    def get_export_symbols(self, ext: Extension) -> list[str]:  # noqa: ARG002
        """None but those that the source names: it is no module of Python's."""
        return []


class PlatformWheel(bdist_wheel):
    """A wheel for this platform and any Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """As setuptools would have it, but for Python's version."""
        _, _, platform_tag = super().get_tag()
        return "py3", "none", platform_tag


setup(
    ext_modules=[Extension("node.kernels.kernels", [], optional=not os.environ.get(ALL))],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
)
