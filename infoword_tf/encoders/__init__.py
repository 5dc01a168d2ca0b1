"""Encoders: g_omega of the table. An encoder takes inputs, returns states."""

from infoword_tf.encoders.disentangled import DisentangledTransformer
from infoword_tf.encoders.elmo import Elmo
from infoword_tf.encoders.encoder import (
    ABILITIES,
    Encoded,
    Encoder,
    Inputs,
)
from infoword_tf.encoders.lookup import Lookup
from infoword_tf.encoders.modern import ModernTransformer
from infoword_tf.encoders.relative import Memory, RelativeTransformer
from infoword_tf.encoders.rnn import Rnn
from infoword_tf.encoders.transformer import Transformer

# From scratch the first that all rows allow is the default.
ENCODERS: dict[str, type[Encoder]] = {
    'modern': ModernTransformer,
    'transformer': Transformer,
    'relative': RelativeTransformer,
    'disentangled': DisentangledTransformer,
    'lookup': Lookup,
    'rnn': Rnn,
    'elmo': Elmo,
}
# The argument that a flag chooses: by flag, then by encoder.
FLAGS: dict[str, dict[str, str]] = {}
for _encoder, _kind in ENCODERS.items():
    for _name, _setting in _kind.settings.items():
        if _setting.flag:
            FLAGS.setdefault(_setting.flag, {})[_encoder] = _name

__all__ = [
    'ABILITIES',
    'ENCODERS',
    'FLAGS',
    'DisentangledTransformer',
    'Elmo',
    'Encoded',
    'Encoder',
    'Inputs',
    'Lookup',
    'Memory',
    'ModernTransformer',
    'RelativeTransformer',
    'Rnn',
    'Transformer',
]
