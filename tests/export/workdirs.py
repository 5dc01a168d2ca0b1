"""Workdirs as a finished run leaves them, with random weights, in seconds."""

import functools
import pathlib
from pydoc_data import topics

import numpy as np

from infoword_tf import files
from infoword_tf.model import CONFIG_VERSION, Model
from infoword_tf.objectives import TABLE
from infoword_tf.text.tokenizers import TOKENIZERS

FLAGS = '--corpus=text:books/*.txt\n--seed=7\n--steps=1234\n'
METRICS = {
    'step': 1234,
    'seconds': 56.7,
    'heldout/bert_nce/mi': 0.377,
    'heldout/bert_nce/ceiling': 6.932,
    'heldout/bert_nce/loss': 6.556,
    'heldout/bert_nce/accuracy': 0.033,
}


@functools.cache
def tokenizer_of(kind):
    return TOKENIZERS[kind].learn(sorted(topics.topics.values()), 900)


def write(
    folder,
    rows=('bert_nce', 'mlm'),
    encoder='transformer',
    pooling='mean',
    max_length=24,
    kind='wordpiece',
):
    """Writes the files that an export reads; returns `folder`."""
    tokenizer = tokenizer_of(kind)
    arguments = {'vocab_size': len(tokenizer), 'width': 64, 'max_length': 64}
    if encoder != 'lookup':
        arguments |= {'layers': 2, 'heads': 2}
    for row in rows:
        arguments |= TABLE[row].arguments
    config = {
        'version': CONFIG_VERSION,
        'encoder': {'name': encoder, 'arguments': arguments},
        'tokenizer': {'kind': kind, 'lower_case': True},
        'rows': {
            row: {'weight': 1.0, 'settings': dict(TABLE[row].settings)}
            for row in rows
        },
        'max_length': max_length,
        'memory_length': 8 if encoder == 'transformer_xl' else None,
        'layout': TABLE[rows[0]].layout,
        'pooling': pooling,
        'similarity': 'cosine',
        'precision': 'mixed_bfloat16',
        'replicas': 1,
        'run': {'corpus': 'text:books/*.txt', 'heldout': 'books/held.txt'},
    }
    model = Model({**config, 'precision': 'float32'}, tokenizer.specials)
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
    files.write_json(folder / 'config.json', config)
    files.write_json(folder / 'metrics.json', METRICS)
    (folder / 'flags.txt').write_text(FLAGS)
    tokenizer.write(folder / tokenizer.file)
    files.write_tensors(folder / 'weights.safetensors', tensors)
    return folder
