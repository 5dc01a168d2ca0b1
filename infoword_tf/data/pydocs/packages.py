"""Packages and files that `pydocs` reads.

The standard library and installed packages, without tests and generated code.
"""

import contextlib
import importlib.metadata
import os
import pathlib
import sysconfig
from collections.abc import Iterable
from typing import NamedTuple

# Fixed, so that the text stays the same when requirements change: all that
# setup.py required in November 2026, directly or not.
PACKAGES = tuple(
    """
    absl-py ai-edge-litert anyio array-record astunparse attrs
    backports-strenum bleach certifi cffi charset-normalizer click
    cloudpickle colorama contourpy cryptography cycler cython dm-tree
    docstring-parser etils fastjsonschema filelock flatbuffers fonttools
    fsspec gast gin-config google-api-core google-api-python-client
    google-auth google-auth-httplib2 google-pasta googleapis-common-protos
    grpcio h11 h5py hf-xet httpcore2 httplib2 httpx2 huggingface-hub idna
    immutabledict joblib jsonschema jsonschema-specifications jupyter-core
    jupytext kaggle kagglesdk keras kiwisolver libclang lxml markdown
    markdown-it-py markupsafe matplotlib mdit-py-plugins mdurl ml-dtypes
    mock namex narwhals nbformat numpy oauth2client opencv-python-headless
    opentelemetry-api opt-einsum optree packaging pandas pillow platformdirs
    portalocker promise proto-plus protobuf psutil py-cpuinfo pyarrow pyasn1
    pyasn1-modules pycocotools pycparser pygments pyparsing python-dateutil
    python-dotenv python-slugify pyyaml referencing regex requests rich
    rpds-py rsa sacrebleu safetensors scikit-learn scipy sentencepiece seqeval
    setuptools simple-parsing six tabulate tensorboard tensorboard-data-server
    tensorflow tensorflow-datasets tensorflow-hub tensorflow-metadata
    tensorflow-model-optimization tensorflow-text termcolor text-unidecode
    tf-keras tf-models-official tf-slim threadpoolctl tokenizers toml
    tqdm traitlets truststore typing-extensions tzdata uritemplate urllib3
    webencodings werkzeug wheel wrapt
    """.split()
)
STDLIB = 'python'  # the "distribution" of the standard library, and its package
_SKIPPED_FOLDERS = frozenset(
    'test tests idle_test site-packages dist-packages __pycache__'.split()
)


class SourceFile(NamedTuple):
    """Source file: place on disk, and name in `Document.source`."""

    path: str
    name: str


def installed(
    names: Iterable[str],
) -> dict[str, importlib.metadata.Distribution]:
    """Looks packages up by name; omits packages that are not installed."""
    distributions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            distributions[name] = importlib.metadata.distribution(name)
    return distributions


def source_files(
    distributions: Iterable[importlib.metadata.Distribution],
) -> list[SourceFile]:
    """Lists the files of the standard library, then of each package.

    Files of one package are sorted by name, without tests and generated code.
    """
    root = pathlib.Path(sysconfig.get_path('stdlib'))
    names = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [f for f in subfolders if f not in _SKIPPED_FOLDERS]
        inside = pathlib.Path(folder).relative_to(root)
        names += [(inside / file).as_posix() for file in files]
    sources = [
        SourceFile(str(root / name), f'{STDLIB}/{name}')
        for name in _selected(names)
    ]
    for distribution in distributions:
        files_of = {file.as_posix() for file in distribution.files or []}
        sources += [
            SourceFile(str(distribution.locate_file(name)), name)
            for name in _selected(files_of)
        ]
    return sources


def _selected(names: Iterable[str]) -> list[str]:
    """Sorts the names of source files, without tests and generated code."""

    def is_wanted(name: str) -> bool:
        *folders, file = name.split('/')
        return (
            file.endswith('.py')
            and not file.endswith(('_test.py', '_pb2.py', '_pb2_grpc.py'))
            and not file.startswith('test_')
            and '..' not in folders
            and _SKIPPED_FOLDERS.isdisjoint(map(str.lower, folders))
        )

    return sorted(filter(is_wanted, names))
