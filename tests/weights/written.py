"""Every case of oracles/huggingface.py, brought in and written out again.

    python -m tests.weights.written --output=DIR --adapters=ADAPTERS \\
      --critics=CRITICS --presets=PRESETS

makes DIR/CASE, which `python -m tests.oracles.huggingface --folders=DIR` loads
with transformers, in an environment of its own; folders of adapters, for
`python -m tests.oracles.peft --folders=ADAPTERS`; models of critics, for
`python -m tests.oracles.public_folders --folders=CRITICS`; and presets, for
`python -m tests.oracles.keras_hub --folders=PRESETS`.
"""

import argparse
import pathlib
import shutil
import tempfile

import numpy as np

import infoword_tf
from infoword_tf import convert
from tests import places
from tests.export import critics
from tests.oracles import frozen, huggingface, keras_hub, public_folders
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
    for case, where, _ in test_peft.OUT:
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            workdir = test_peft.write_workdir(root, case, where)
            convert.write(workdir, output / case, 'peft')
            shutil.copytree(root / 'public', output / f'{case}_base')
            expected = test_peft.answer(infoword_tf.load(workdir), case)
            np.save(output / case / 'expected.npy', expected)


def write_critics(output: pathlib.Path) -> None:
    """Writes all cases of public_folders.py that are of other critics.

    And two models as `--simcse.critic=cross` trains them, with their answers.
    """
    answers = frozen.read(frozen.FOLDER / 'public_folders.npz')
    shapes, saved = (
        frozen.from_bytes(answers[name]) for name in ('shapes', 'saved')
    )
    for case, about in public_folders.CASES.items():
        if about.critic not in ('late', 'lexical', 'cross'):
            continue
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            folder = public_folders.write(
                root / 'in', case, shapes[case], saved.get(case)
            )
            convert.convert(folder, root / 'run')
            convert.write(root / 'run', output / case, 'sentence_transformers')
    for kind in ('pairs', 'pairs_bare'):
        convert.write(
            critics.workdir(kind), output / kind, 'sentence_transformers'
        )
        scores = critics.loaded(kind).score_pairs(
            *map(list, zip(*public_folders.PAIRS, strict=True))
        )
        np.save(output / kind / public_folders.EXPECTED, scores[:, None])


def write_presets(output: pathlib.Path) -> None:
    """Writes all backbones of keras_hub.py."""
    for case in keras_hub.CASES:
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            source = keras_hub.unpacked(root / 'in', f'{case}/backbone')
            convert.convert(source, root / 'run')
            convert.write(root / 'run', output / case, 'keras_hub')


if __name__ == '__main__':
    parser = argparse.ArgumentParser()
    parser.add_argument('--output', type=pathlib.Path, required=True)
    parser.add_argument('--adapters', type=pathlib.Path, required=True)
    parser.add_argument('--critics', type=pathlib.Path, required=True)
    parser.add_argument('--presets', type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    write(arguments.output)
    write_adapters(arguments.adapters)
    write_presets(arguments.presets)
    with places.sharing():
        write_critics(arguments.critics)
