"""Writes a version: SavedModel, warm-up requests, config, and a card beside.

    DIR/1/saved_model.pb, variables/      what a server loads
    DIR/1/assets.extra/                   warm-up requests, config.json
    DIR/MODEL_CARD.md                     of the newest version

A version appears whole or not at all, by a rename, and is never changed
afterwards: servers look into DIR while it is written.
"""

import errno
import functools
import json
import os
import pathlib
import platform
import shutil
from typing import TYPE_CHECKING, Any

import infoword_tf
from export import serving_ops, warmup
from infoword_tf import files
from infoword_tf.config import EXPORTED, Config, read_exported
from tasks import retrieval
from tasks import sts as task

if TYPE_CHECKING:  # these import TensorFlow
    from export.signatures import Signatures
    from infoword_tf.inference.loaded import Loaded

# What Keras calls them: weights of a run stay float32 beside the others.
POLICIES = {'float32': 'float32', 'bfloat16': 'mixed_bfloat16'}


def check_free(output: pathlib.Path, version: int) -> None:
    """Refuses to touch a version that is there.

    Raises:
        FileExistsError: it is there.
    """
    if (output / str(version)).exists():
        there = [int(p.name) for p in output.iterdir() if p.name.isdecimal()]
        raise FileExistsError(
            f'{output}/{version} is there already, and a version that may be '
            f'served is never changed; write --version={max(there) + 1}'
        )


def check_same(
    output: pathlib.Path, config: Config, described: dict[str, Any]
) -> None:
    """Complains of a version that would answer otherwise than another one.

    Versions of a model share its name: who asks it need not know which one
    answers. Names and types of outputs (of `describe`) are compared, labels
    and whether a text has several, and what answers by default; sizes of
    vectors may differ, as those of a student from its teacher's.

    Raises:
        ValueError: it would.
    """

    def answers(config: Config, described: dict[str, Any]) -> dict[str, Any]:
        return {
            'labels': list(config.labels),
            'number of labels': any(
                entry.settings.get('multilabel', False)
                for entry in config.rows.values()
            ),
            'dims': config.dims,
            'serving_default': described.get('default', 'embed'),
        } | {
            name: {output: kind for output, (kind, *_) in outputs.items()}
            for name, outputs in described['signatures'].items()
        }

    ours = answers(config, described)
    for path in sorted(output.glob(f'*/{EXPORTED}')):
        version = path.parent.parent
        if not version.name.isdecimal():
            continue
        theirs = answers(*read_exported(version))
        differ = [
            name
            for name in sorted(ours | theirs)
            if ours.get(name) != theirs.get(name)
        ]
        if differ:
            raise ValueError(
                f'{version} has another {", ".join(differ)} than this '
                'workdir gives, and all versions of a model must have the '
                'same; name another --output'
            )


def with_dims(loaded: 'Loaded', dims: int | None) -> 'Loaded':
    """The same, whose vectors are their first numbers.

    Raises:
        ValueError: there are not so many.
    """
    if dims is not None:
        retrieval.check_dims(dims, loaded.vector_width())
    loaded.config = loaded.config.replace(dims=dims)
    return loaded


def write(
    init: str | pathlib.Path,
    output: str | pathlib.Path,
    version: int = 1,
    precision: str = 'float32',
    sts: str | None = None,
    dims: int | None = None,
) -> pathlib.Path:
    """Exports a workdir.

    Args:
        init: the workdir of a finished run.
        output: what servers call the base path of the model.
        version: the number of the folder in it.
        precision: 'float32' or 'bfloat16', what the encoder stores and
            computes in; vectors are float32.
        sts: a file of STS-B, on which the card shall say what that costs.
        dims: the first so many numbers of each vector alone; None: all.

    Returns:
        The folder of the version.

    Raises:
        FileExistsError: the version is there.
        FileNotFoundError: `init` is no finished workdir.
        ValueError: the graph holds what servers cannot run, another version
            answers otherwise, or there are more dims than numbers.
    """
    init, output = pathlib.Path(init), pathlib.Path(output)
    final = output / str(version)
    check_free(output, version)
    Config.read(init)  # complains before TensorFlow starts
    from export import card  # from here on what takes seconds
    from export.signatures import Signatures

    loaded = with_dims(infoword_tf.load(init, POLICIES[precision]), dims)
    signatures = Signatures(loaded)
    described = describe(signatures, version, precision)
    check_same(output, loaded.config, described)
    output.mkdir(parents=True, exist_ok=True)
    _sweep(output)
    # No number: not served.
    partial = output / f'.{version}.{platform.node()}.{os.getpid()}'
    try:
        signatures.save(str(partial))
        inputs = signatures.inputs
        warmup.write(
            partial,
            {'serving_default': inputs[signatures.default], **inputs},
            loaded.max_length,
        )
        if sts is not None:
            exact = with_dims(infoword_tf.load(init), dims)
            models = {'float32': exact, precision: loaded}
            described['sts'] = task.correlations(
                sts,
                loaded.config.similarity,
                {name: functools.partial(model.encode, progress=False)
                 for name, model in models.items()},
            )  # fmt: skip
        files.write_json(
            partial / EXPORTED, {**loaded.config.to_json(), 'export': described}
        )
        ops = serving_ops.unservable(partial)
        if ops:
            raise ValueError(
                'TensorFlow Serving cannot run this graph: '
                f'{"; ".join(ops[:3])}; export/serving_ops.py says which '
                'operations it has'
            )
        with files.written(output / 'MODEL_CARD.md') as file:
            file.write_text(
                card.render(
                    loaded.config,
                    described,
                    loaded.training_pieces,
                    _text(init / 'flags.txt'),
                    json.loads(_text(init / 'metrics.json') or '{}'),
                )
            )
        _flush(partial)
        try:
            os.rename(partial, final)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            check_free(output, version)  # another export was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return final


def _sweep(output: pathlib.Path) -> None:
    """Deletes what killed exports of this machine have left."""
    for partial in output.glob(f'.*.{platform.node()}.*'):
        number = partial.name.rpartition('.')[2]
        try:
            os.kill(int(number), 0)
        except (ValueError, PermissionError):
            continue  # somebody else's
        except ProcessLookupError:
            shutil.rmtree(partial, ignore_errors=True)


def describe(
    signatures: 'Signatures', version: int, precision: str
) -> dict[str, Any]:
    """What config.json of an export says beside the run's own config."""
    import tensorflow as tf

    weights = [*signatures.weights.values(), *signatures.constants.values()]
    return {
        'version': version,
        'precision': precision,
        'tensorflow': tf.__version__,
        'weights': sum(int(weight.shape.num_elements()) for weight in weights),
        'default': signatures.default,
        'signatures': {
            name: {
                output: [tensor.dtype.name, *tensor.shape.as_list()]
                for output, tensor in function.structured_outputs.items()
            }
            for name, function in signatures.functions.items()
        },
    }


def _text(path: pathlib.Path) -> str:
    return path.read_text() if path.is_file() else ''


def _flush(folder: pathlib.Path) -> None:
    """Sends every file to the disk: a rename must not come before them."""
    for path in folder.rglob('*'):
        if path.is_file():
            with open(path, 'rb') as file:
                os.fsync(file.fileno())
