"""Builds the kernels of `node.kernels`: a library in plain C++, which needs neither Python's nor torch's headers.

They are optional: where there is no compiler, or it fails, layerline is installed without them and computes with
torch. Each instruction set is compiled by itself, since each has flags of its own; which one runs is chosen at run
time. As the library knows nothing of Python, one wheel serves every version of it on a platform.
"""

from __future__ import annotations

import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("node/kernels/src")
ENDINGS = {"win32": ".dll", "darwin": ".dylib"}
X86, ARM = ("x86_64", "amd64"), ("aarch64", "arm64")
GNU_FLAGS = ["-std=c++17", "-O2", "-fvisibility=hidden", "-ffp-contract=off", "-g0", "-w"]
MSVC_FLAGS = ["/std:c++17", "/O2", "/EHsc", "/fp:precise"]


def instruction_sets(*, msvc: bool) -> dict[str, list[str]]:
    """The instruction sets of this machine's processors, each with the flags that it is compiled with."""
    machine = platform.machine().lower()
    if machine in X86 and msvc:
        return {"avx512": ["/arch:AVX512"], "avx2": ["/arch:AVX2"], "plain": []}
    if machine in X86:
        avx2 = ["-mavx2", "-mfma", "-mf16c"]
        avx512 = [f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "vnni")]
        return {"avx512": [*avx2, *avx512], "avx2": avx2, "plain": ["-O1"]}
    if machine in ARM and not msvc:
        return {"neon": ["-march=armv8.2-a+dotprod+fp16"], "plain": ["-O1"]}
    return {"plain": ["" if msvc else "-O1"]}


class BuildKernels(build_ext):
    """Compiles the instruction sets beside each other, and links them with what is common to them."""

    def build_extension(self, ext: Extension) -> None:
        """Builds the library."""
        msvc = self.compiler.compiler_type == "msvc"
        sets = instruction_sets(msvc=msvc)
        common = MSVC_FLAGS if msvc else GNU_FLAGS
        defines = [(f"LAYERLINE_HAS_{name.upper()}", "1") for name in sets]
        own = [(SOURCES / f"kernels_{name}.cpp", flags) for name, flags in sets.items()]
        shared = [(path, []) for path in sorted(SOURCES.glob("*.cpp")) if not path.stem.startswith("kernels_")]

        def compiled(source: tuple[Path, list[str]]) -> list[str]:
            path, flags = source
            return self.compiler.compile(
                [str(path)], output_dir=self.build_temp, macros=defines, extra_postargs=[*common, *flags]
            )

        with ThreadPoolExecutor(max(1, cpu_count() or 1)) as threads:
            objects = [made for part in threads.map(compiled, [*own, *shared]) for made in part]
        libraries = [] if msvc else ["pthread"]
        self.compiler.link_shared_object(
            objects, self.get_ext_fullpath(ext.name), libraries=libraries, target_lang="c++"
        )

    def get_ext_filename(self, fullname: str) -> str:
        """The library's path in the package, the same for every Python."""
        return fullname.replace(".", "/") + ENDINGS.get(sys.platform, ".so")

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
    ext_modules=[Extension("node.kernels.kernels", [], optional=True)],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
)
