"""Encoders: g_omega of the table. An encoder takes a view, returns states."""

from infoword_tf.encoders.lookup import Lookup
from infoword_tf.encoders.transformer import Encoded, Transformer
from infoword_tf.encoders.transformer_xl import Memory, TransformerXL

ENCODERS = {
    'transformer': Transformer,
    'transformer_xl': TransformerXL,
    'lookup': Lookup,
}

__all__ = [
    'ENCODERS',
    'Encoded',
    'Lookup',
    'Memory',
    'Transformer',
    'TransformerXL',
]
