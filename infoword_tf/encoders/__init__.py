"""Encoders: g_omega of the table. An encoder takes inputs, returns states."""

from infoword_tf.encoders.elmo import Elmo
from infoword_tf.encoders.encoder import Encoded, Encoder, Inputs
from infoword_tf.encoders.lookup import Lookup
from infoword_tf.encoders.relative import Memory, RelativeTransformer
from infoword_tf.encoders.rnn import Rnn
from infoword_tf.encoders.transformer import Transformer

ENCODERS: dict[str, type[Encoder]] = {
    'transformer': Transformer,
    'relative': RelativeTransformer,
    'lookup': Lookup,
    'rnn': Rnn,
    'elmo': Elmo,
}

__all__ = [
    'ENCODERS',
    'Elmo',
    'Encoded',
    'Encoder',
    'Inputs',
    'Lookup',
    'Memory',
    'RelativeTransformer',
    'Rnn',
    'Transformer',
]
