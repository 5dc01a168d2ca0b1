"""A model whose vectors count words: what stands in for a trained one."""

import json

import tensorflow as tf

from infoword_tf.config import Config, EncoderConfig

BUCKETS = 64
# Of QUERY the vectors of tokens match 2, 1, 3, 0 and 0 of PASSAGES, counts have
# these products, and a pair is rated by letters; BM25 knows a, b and c.
QUERY = 'red red boat'
PASSAGES = {
    'a': 'red red red red', 'b': 'boat', 'c': 'red boat', 'd': 'tree', 'e': '',
}  # fmt: skip
SCORES = {
    'late': (2, 1, 3, 0, 0), 'lexical': (8, 1, 3, 0, 0),
    'cross': tuple(map(len, PASSAGES.values())),
}  # fmt: skip


def hashes(words):
    """Numbers of words, in a ragged tensor or another."""
    return tf.strings.to_hash_bucket_fast(words, BUCKETS)


def embed(texts):
    """Counts of words by hash: [B] -> [B, BUCKETS]."""
    words = tf.strings.split(tf.strings.lower(texts))
    return tf.reduce_sum(tf.one_hot(hashes(words), BUCKETS), axis=1)


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


def save_critics(path):
    """Writes a version with the signatures of all critics but `cosine`.

    A token's vector is the one of its word, a weight counts a word, and a pair
    is rated by the letters of the passage.
    """
    module, spec = tf.Module(), tf.TensorSpec([None], tf.string, 'texts')

    def tokens(texts):
        words = tf.strings.split(texts)
        return {
            'embeddings': tf.one_hot(hashes(words.to_tensor()), BUCKETS),
            'count': words.row_lengths(),
        }  # fmt: skip

    def weights(texts):
        best = tf.math.top_k(embed(texts), BUCKETS)
        count = tf.math.count_nonzero(best.values, axis=1)
        return {'ids': best.indices, 'weights': best.values, 'count': count}

    def rate(texts, pairs):
        del texts
        return {'score': tf.cast(tf.strings.length(pairs), tf.float32)}

    signatures = {
        f'{name}{of}': tf.function(function, input_signature=[spec])
        for name, function in (
            ('embed_tokens', tokens), ('embed_sparse', weights))
        for of in ('', '_query')
    }  # fmt: skip
    pairs = tf.TensorSpec([None], tf.string, 'pairs')
    signatures['score_pairs'] = tf.function(rate, input_signature=[spec, pairs])
    tf.saved_model.save(module, str(path), signatures=signatures)


def write_config(path, similarity, **more):
    (path / 'assets.extra').mkdir()
    (path / 'assets.extra' / 'config.json').write_text(
        json.dumps({**config(similarity, **more).to_json(), 'export': {}})
    )


def config(similarity, critic='cosine', late=None, **more):
    """Returns a config of no model that there is."""
    encoder = EncoderConfig('lookup', {'vocab_size': BUCKETS})
    critics = {critic: None}
    if late is not None:
        critics['late'] = late.written()
    return Config(
        encoder, {}, 32, similarity=similarity, critics=critics, **more
    )
