"""Build steps that pyproject.toml cannot say: generated stubs and the compiled decoder."""

from __future__ import annotations

import glob
import importlib.resources
import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
# The import package: links to the folders at the top level. Paths through it have the modules' full names.
PACKAGE = ROOT / "shardmerge"

# The modules that run compiled say so in their first lines; each is plain Python that also runs
# uncompiled (slowly).
COMPILED = sorted(
    str(path.relative_to(ROOT))
    for path in (PACKAGE / "worker").rglob("*.py")
    if "# cython: language_level=3" in path.read_text(encoding="utf-8")[:400]
)


def generate_stubs() -> None:
    """Write proto/*_pb2*.py and their type stubs next to proto/*.proto."""
    from grpc_tools import protoc

    protos = sorted(glob.glob("shardmerge/proto/*.proto", root_dir=ROOT))
    include = str(importlib.resources.files("grpc_tools") / "_proto")
    # protoc finds protoc-gen-mypy_grpc on PATH: the build environment's scripts folder.
    os.environ["PATH"] = str(Path(sys.executable).parent) + os.pathsep + os.environ.get("PATH", "")
    before = Path.cwd()
    os.chdir(ROOT)
    try:
        code = protoc.main(
            [
                "protoc",
                "-I.",
                f"-I{include}",
                "--python_out=.",
                "--pyi_out=.",
                "--grpc_python_out=.",
                "--mypy_grpc_out=.",
                *protos,
            ]
        )
    finally:
        os.chdir(before)
    if code != 0:
        raise SystemExit(f"protoc failed with code {code}")


class BuildPy(build_py):
    def run(self) -> None:
        generate_stubs()
        super().run()


class BuildExt(build_ext):
    def build_extensions(self) -> None:
        """Translate to C here, where it is needed, not each time the build asks for metadata."""
        from Cython.Build import cythonize

        self.parallel = os.cpu_count()
        translated = cythonize(
            [path for extension in self.extensions for path in extension.sources],
            compiler_directives={"language_level": "3"},
            build_dir="build/cython",
            nthreads=self.parallel,
        )
        sources = {extension.name: extension.sources for extension in translated}
        for extension in self.extensions:
            extension.sources = sources[extension.name]
        # The compiler is started for one after the other: the longest one last would leave processors idle.
        self.extensions.sort(key=lambda extension: -sum(os.path.getsize(path) for path in extension.sources))
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Copy the module if the development environment has compiled it from these sources: a compiler takes minutes
        for all of them."""
        made, wanted = ROOT / self.get_ext_filename(ext.name), Path(self.get_ext_fullpath(ext.name))
        read = (*ext.sources, *glob.glob("shardmerge/worker/binlog/*.h"), __file__)
        if (
            made.exists()
            and made.resolve() != wanted.resolve()
            and made.stat().st_mtime > max(map(os.path.getmtime, read))
        ):
            wanted.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made, wanted)
        else:
            super().build_extension(ext)


EXTENSIONS = [
    Extension(
        path.removesuffix(".py").replace(os.sep, "."),
        [path],
        include_dirs=["shardmerge/worker/binlog"],
        extra_compile_args=["-g0"],  # a quarter less of the compiler's time; the code is the same
    )
    for path in COMPILED
]

setup(cmdclass={"build_py": BuildPy, "build_ext": BuildExt}, ext_modules=EXTENSIONS)
