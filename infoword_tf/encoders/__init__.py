"""Encoders: g_omega of the table. An encoder takes a view, returns states."""

from infoword_tf.encoders.lookup import Lookup
from infoword_tf.encoders.transformer import Encoded, Transformer

ENCODERS = {'transformer': Transformer, 'lookup': Lookup}

__all__ = ['ENCODERS', 'Encoded', 'Lookup', 'Transformer']
