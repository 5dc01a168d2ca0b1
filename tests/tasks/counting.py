"""A model whose vectors count words: what stands in for a trained one."""

import json

import tensorflow as tf

from infoword_tf.config import Config, EncoderConfig

BUCKETS = 64


def embed(texts):
    """Counts of words by hash: [B] -> [B, BUCKETS]."""
    words = tf.strings.split(tf.strings.lower(texts))
    hashes = tf.strings.to_hash_bucket_fast(words, BUCKETS)
    return tf.reduce_sum(tf.one_hot(hashes, BUCKETS), axis=1)


def save(path, similarity=None):
    """Writes a version of an export, without a config if it has no similarity.
    """
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.string, 'texts')
    module.embed = tf.function(
        lambda texts: {'embeddings': embed(texts)}, input_signature=[spec]
    )
    tf.saved_model.save(module, str(path), signatures={'embed': module.embed})
    if similarity is not None:
        write_config(path, similarity)


def write_config(path, similarity, **more):
    """Writes the config of a version."""
    (path / 'assets.extra').mkdir()
    (path / 'assets.extra' / 'config.json').write_text(
        json.dumps({**config(similarity, **more).to_json(), 'export': {}})
    )


def config(similarity, **more):
    """Of no model that there is."""
    encoder = EncoderConfig('lookup', {})
    return Config(encoder, {}, 32, similarity=similarity, **more)
