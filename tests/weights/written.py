"""Every case of oracles/huggingface.py, brought in and written out again.

    python -m tests.weights.written --output=DIR --adapters=ADAPTERS

makes DIR/CASE, which `python -m tests.oracles.huggingface --folders=DIR` loads
with transformers, in an environment of its own; and folders of adapters, for
`python -m tests.oracles.peft --folders=ADAPTERS`.
"""

import argparse
import pathlib
import shutil
import tempfile

import numpy as np

import infoword_tf
from infoword_tf import convert
from tests.oracles import huggingface
from tests.weights import folders, test_peft


def write(output: pathlib.Path) -> None:
    """Writes all that transformers can load."""
    with tempfile.TemporaryDirectory() as name:
        for case in huggingface.CASES:
            root = pathlib.Path(name) / case
            convert.convert(folders.write(root / 'in', case), root / 'run')
            convert.write(root / 'run', output / case, 'huggingface')


def write_adapters(output: pathlib.Path) -> None:
    """Writes adapters, the models that they change, and what both answer."""
    for case, where in test_peft.OUT:
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            workdir = test_peft.write_workdir(root, case, where)
            convert.write(workdir, output / case, 'peft')
            shutil.copytree(root / 'public', output / f'{case}_base')
            expected = test_peft.answer(infoword_tf.load(workdir), case)
            np.save(output / case / 'expected.npy', expected)


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--output', type=pathlib.Path, required=True)
    parser.add_argument('--adapters', type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    write(arguments.output)
    write_adapters(arguments.adapters)
