"""Workdirs as a finished run leaves them, with random weights, in seconds.

All tests share a workdir and its export, also those of another process; they
change neither.
"""

import dataclasses
import functools
import pathlib
from pydoc_data import topics
from unittest import mock

import numpy as np
import tensorflow as tf

import infoword_tf
from export import bundle
from export import signatures as export_signatures
from infoword_tf import files
from infoword_tf.config import TokenizerConfig
from infoword_tf.model import Model
from infoword_tf.resolve import ModelChoices, resolve
from infoword_tf.text.tokenizers import TOKENIZERS
from tests import places

READ = tf.saved_model.load  # which `answers` replaces
FLAGS = '--corpus=text:books/*.txt\n--seed=7\n--steps=1234\n'
METRICS = {
    'step': 1234, 'seconds': 56.7, 'heldout/bert_nce/mi': 0.377,
    'heldout/bert_nce/ceiling': 6.932, 'heldout/bert_nce/loss': 6.556,
    'heldout/bert_nce/accuracy': 0.033,
}  # fmt: skip


folder = places.shared


@places.once
def shared():
    """The workdir of most tests: rows that fill blanks, mean of all states."""
    return write(folder() / 'run')


@functools.cache
def load(workdir):
    """A workdir in memory, whose functions are traced once for all tests."""
    return infoword_tf.load(workdir)


@functools.cache
def serve(version):
    """A version, by its path as a string, as TensorFlow loads it."""
    import tensorflow_text  # noqa: F401  (its operations are in the graph)

    return READ(version)


def loaded():
    return load(shared())


@functools.cache
def signatures():
    return export_signatures.Signatures.of(loaded())


@places.once
def exported():
    """A version of the shared workdir, made of those graphs."""
    with traced():
        return bundle.write(shared(), folder() / 'model')


def traced(graphs=None):
    """Inside, whatever is exported has these graphs: those of `signatures`.

    Tracing is nearly all that an export costs.
    """
    graphs = graphs or signatures()
    return mock.patch.object(
        export_signatures.Signatures, 'of', mock.Mock(return_value=graphs)
    )


def served():
    """The functions of the version, as TensorFlow loads them."""
    return serve(str(exported())).signatures


def answer(function, texts, **more):
    """Outputs of a signature as arrays, of `texts` and other inputs by name."""
    inputs = {'texts': texts, **more}
    outputs = function(**{k: tf.constant(v, tf.string)
                          for k, v in inputs.items()})  # fmt: skip
    return {name: tensor.numpy() for name, tensor in outputs.items()}


def card_of(version):
    return (version.parent / 'MODEL_CARD.md').read_text()


def kinds(name, write):
    """Functions of workdirs that `write` makes, each made once, by its kind.

    Returns:
        What gives the workdir; a version of it; the workdir in memory; the
        functions of the version.
    """
    workdir = places.once(write, name)

    def export(kind, precision):
        output = folder() / name / kind / precision
        return bundle.write(workdir(kind), output, 1, precision)

    once = places.once(export, name)

    def exported(kind, precision='float32'):
        return once(kind, precision)

    def served(kind, precision='float32'):
        return serve(str(exported(kind, precision))).signatures

    return workdir, exported, lambda kind: load(workdir(kind)), served


@functools.cache
def tokenizer_of(kind):
    return TOKENIZERS[kind].learn(sorted(topics.topics.values()), 900)


def write(
    folder, rows=('bert_nce', 'mlm'), encoder='transformer', pooling='mean',
    max_length=24, kind='wordpiece', layers=1, settings=None, without=(),
    width=64, arguments=None, fields=None,
):  # fmt: skip
    """Writes the files that an export reads; returns `folder`.

    settings: of rows, by 'ROW.NAME'; without: how the paths of tensors begin
    that are left out of the weights; arguments: of the encoder, besides these;
    fields: of the config.
    """
    tokenizer = tokenizer_of(kind)
    resolved = resolve(ModelChoices(
        objectives=','.join(rows), settings=settings or {}, encoder=encoder,
        positions=64, seq_len=max_length,
        memory_length=8 if encoder == 'relative' else None,
    ))  # fmt: skip
    small = {'width': width}
    if encoder != 'lookup':
        small |= {'layers': layers}
    if 'heads' in resolved.encoder.arguments:
        small |= {'heads': 2}
    if encoder == 'elmo':
        small |= {'inner_width': 24, 'filters': [3, 4, 5]}
    config = resolved.config(
        len(tokenizer), TokenizerConfig(kind, lower_case=True),
        precision='mixed_bfloat16',
        run={'corpus': 'text:books/*.txt', 'heldout': 'books/held.txt'},
    )  # fmt: skip
    sizes = {**config.encoder.arguments, **small, **(arguments or {})}
    config = config.replace(
        encoder=dataclasses.replace(config.encoder, arguments=sizes),
        **{'pooling': pooling, 'similarity': 'cosine', **(fields or {})},
    )
    model = Model(config.replace(precision='float32'), tokenizer.specials)
    random = np.random.default_rng(0)
    tensors = {}
    for path, variable in model.variables.items():
        value = variable.numpy()
        if value.ndim < 2:  # zeros and ones would hide what is left out
            value = value + 0.2 * random.standard_normal(value.shape)
        tensors[path] = value.astype(np.float32)
    ids = tokenizer.tokenize(sorted(topics.topics.values())).flat_values
    tensors['unigram'] = np.bincount(ids.numpy(), minlength=len(tokenizer))
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    config.write(folder)
    files.write_json(folder / 'metrics.json', METRICS)
    (folder / 'flags.txt').write_text(FLAGS)
    tokenizer.write(folder / tokenizer.file)
    present = {k: v for k, v in tensors.items() if not k.startswith(without)}
    files.write_tensors(folder / 'weights.safetensors', present)
    return folder
