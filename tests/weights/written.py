"""Every case of oracles/huggingface.py, brought in and written out again.

    python -m tests.weights.written --output=DIR

makes DIR/CASE, which `python -m tests.oracles.huggingface --folders=DIR` loads
with transformers, in an environment of its own.
"""

import argparse
import pathlib
import tempfile

from infoword_tf import convert
from tests.oracles import huggingface
from tests.weights import folders


def write(output: pathlib.Path) -> None:
    """Writes all that transformers can load."""
    with tempfile.TemporaryDirectory() as name:
        for case in huggingface.CASES:
            root = pathlib.Path(name) / case
            convert.convert(folders.write(root / 'in', case), root / 'run')
            convert.write(root / 'run', output / case, 'huggingface')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--output', type=pathlib.Path, required=True)
    write(parser.parse_args().output)
