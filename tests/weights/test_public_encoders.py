"""Encoders that people bring: their config.json in, once through, out again."""

import functools
import json

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from sentencepiece import sentencepiece_model_pb2

from infoword_tf import files
from infoword_tf.config import EncoderConfig
from infoword_tf.encoders import ENCODERS, Inputs
from infoword_tf.objectives import TABLE
from infoword_tf.text.numbers import Numbers
from infoword_tf.weights import (
    architectures,
    sentence_transformers,
    tokenizer_reader,
)
from infoword_tf.weights.kinds import ARCHITECTURES
from tests import pages, places
from tests.refused import refused
from tests.weights import folders
from tests.weights.public_encoders import facts, table, texts_of

ENCODERS_OF = facts()['encoders']
TOKENIZERS = facts()['tokenizers']
V, T = 300, 9
POSITIONS = 'max_position_embeddings', 'n_positions'
LETTERS = folders.LETTERS
# As `huggingface.write` chooses it by layout and tokenizer.
_ROBERTA = {
    'roberta': 'roberta', 'xlm-roberta': 'xlm-roberta',
    'camembert': 'xlm-roberta',
}  # fmt: skip


def named(refused_here):
    """Names of the encoders that are refused, or come in."""
    return [name for name, entry in ENCODERS_OF.items()
            if ('refused' in entry) == refused_here]  # fmt: skip


def tiny(arguments):
    """Arguments with small sizes of the same proportions, few layers."""
    heads = arguments['heads']
    few = arguments.get('kv_heads') or heads
    tiny_few = min(few, 2)
    tiny_heads = tiny_few * heads // few
    share = 8 * tiny_heads / arguments['width']
    sizes = {
        'vocab_size': V, 'max_length': 32, 'heads': tiny_heads,
        # A whole period of their pattern.
        'layers': arguments.get('global_every', 1) + 1,
        'kv_heads': tiny_few, 'width': 8 * tiny_heads,
        'head_width': 8 * (arguments.get('head_width') or 0) * heads
        // arguments['width'],
        'buckets': 8, 'local_window': 4,
    } | {
        name: max(1, int(share * (arguments.get(name) or 0)))
        for name in ('inner_width', 'embedding_width')
    }  # fmt: skip
    return arguments | {k: v for k, v in sizes.items() if arguments.get(k)}


@functools.cache
def states(name, arguments):
    """States [2, T, D] of an encoder with random weights; arguments as JSON."""
    encoder = ENCODERS[name](**json.loads(arguments))
    encoder.build()
    ids = np.random.default_rng(1).integers(5, V, (2, T))
    return encoder(Inputs(tf.constant(ids, tf.int32))).states.numpy()


def whole(encoder):
    """Completes the arguments of an encoder, as a loaded one has them."""
    arguments = ENCODERS[encoder.name](**encoder.arguments).arguments
    return EncoderConfig(encoder.name, arguments)


def vocabulary(tokenizer):
    """The model of a tokenizer.json with letters beside special tokens."""
    model, specials = dict(tokenizer['model']), tokenizer['specials']
    if model['type'] == 'Unigram':
        pieces = [*specials, *LETTERS, *(f'\u2581{x}' for x in LETTERS)]
        model['vocab'] = [(x, -1.0 - i) for i, x in enumerate(pieces)]
        model['unk_id'] = next(
            i for i, x in enumerate(pieces) if x.lower() in ('<unk>', '[unk]')
        )
        return model
    pieces = [*specials, *LETTERS, *(f'##{x}' for x in LETTERS)]
    if model['type'] == 'BPE':
        names, merges = folders.byte_pairs()
        if model['byte_fallback']:
            names = [*(f'<0x{i:02X}>' for i in range(256)), '\u2581', *LETTERS]
            merges = []
        pieces = [*specials, *(x for x in names if x not in specials)]
        model['merges'] = [tuple(x.split()) for x in merges]
    model['vocab'] = {piece: i for i, piece in enumerate(pieces)}
    return model


def template(tokenizer):
    """The post_processor of a tokenizer.json."""
    if tokenizer['template'] is None:
        return None
    specials = tokenizer['specials']

    def parts(written):
        for part in written.split():
            token, _, segment = part.partition(':')
            kind = 'Sequence' if token in ('A', 'B') else 'SpecialToken'
            yield {kind: {'id': token, 'type_id': int(segment or 0)}}

    single, pair = map(list, map(parts, tokenizer['template']))
    return {
        'type': 'TemplateProcessing', 'single': single, 'pair': pair,
        'special_tokens': {
            x: {'id': x, 'ids': [i], 'tokens': [x]}
            for i, x in enumerate(specials)
        },
    }  # fmt: skip


class PublicEncodersTest(places.Folder, parameterized.TestCase):
    @parameterized.parameters(*named(refused_here=False))
    def test_comes_in_and_goes_out(self, name):
        entry = ENCODERS_OF[name]
        published = entry['config']
        kind = published['model_type']
        architecture = ARCHITECTURES[kind]
        arguments = architectures.encoder_of(published, name).arguments
        self.assertEqual(arguments['vocab_size'], published['vocab_size'])
        first = architectures.first_position(published)
        named = *POSITIONS, 'sliding_window'
        positions = [published[x] for x in named if x in published]
        if positions:
            self.assertIn(arguments['max_length'] + first, positions)
        encoder = whole(architectures.encoder_of(published, name))
        small = tiny(arguments)
        ours = states(encoder.name, json.dumps(small, sort_keys=True))
        self.assertEqual(ours.shape, (2, T, small['width']))
        self.assertTrue(np.isfinite(ours).all())
        for head in entry.get('heads', ()):
            heads = {*architecture.naming.heads, architecture.tied}
            self.assertIn(TABLE[head].public_head, heads)
        out = entry.get('out', kind)
        roberta = _ROBERTA.get(entry['tokenizer'])
        self.assertEqual(architectures.kind_of(encoder, roberta), out)
        pad = published.get('pad_token_id', 0)
        written = architectures.config_of(out, encoder, pad)
        again = architectures.encoder_of(written, name)
        self.assertEqual(whole(again), encoder)

    @parameterized.parameters(*named(refused_here=True))
    def test_is_refused_by_name(self, name):
        entry = ENCODERS_OF[name]
        with refused(*entry['refused']):
            if entry['refused'][0] == 'public_unknown_module':
                sentence_transformers.read(self.written(entry['modules']))
            architectures.encoder_of(entry['config'], name)

    def written(self, modules):
        """Writes a folder of sentence-transformers without its encoder."""
        folder, kinds = self.folder, ['Transformer']
        for number, module in enumerate(modules, 1):
            kind, *values = module.split()
            if kind == 'dense':
                wide, width = (int(x) // 64 for x in values[:2])
                tanh = values[2] == 'Tanh'
                name = f'{"activation" if tanh else "linear"}.{values[2]}'
                folders.dense(folder, number, width, tanh, wide, name)
            elif kind in sentence_transformers.POOLINGS:
                flag = sentence_transformers.POOLINGS[kind]
                folders.pooling(folder, number, **{flag: True})
                kind = 'pooling'
            elif kind != 'normalize':
                folders.change(folder / f'{number}_{kind}' / 'config.json')
            kinds.append(kind[0].upper() + kind[1:])
        folders.modules(folder, *kinds)
        return folder

    @parameterized.parameters(*(
        x for x in named(refused_here=False) if 'modules' in ENCODERS_OF[x]
    ))  # fmt: skip
    def test_modules(self, name):
        modules = ENCODERS_OF[name]['modules']
        _, vectors = sentence_transformers.read(self.written(modules))
        self.assertEqual(vectors.normalize, 'normalize' in modules)
        dense = [x.split()[2:] for x in modules if x.startswith('dense')]
        if vectors.critic == 'late':
            layers = vectors.critics['late'].dense
        elif vectors.critic == 'lexical':
            lexical = vectors.critics['lexical']
            self.assertEqual(lexical.activation, 'log1p_relu')
            layers = ()
        else:
            self.assertEqual(vectors.pooling, modules[0])
            layers = vectors.dense
        ours = [[str(64 * x.width), x.activation] for x in layers]
        self.assertEqual(ours, [[x, y.lower()] for x, y in dense])

    @parameterized.parameters(*TOKENIZERS)
    def test_tokenizers(self, name):
        tokenizer = TOKENIZERS[name]
        folder = self.folder
        if 'file' in tokenizer:
            proto = sentencepiece_model_pb2.ModelProto()
            kinds = {'[UNK]': 2, '[PAD]': 3, '[CLS]': 3, '[SEP]': 3}
            for piece in (*tokenizer['specials'], '\u2581', *LETTERS):
                proto.pieces.add(piece=piece, type=kinds.get(piece, 1))
            proto.trainer_spec.unk_id = tokenizer['specials'].index('[UNK]')
            (folder / tokenizer['file']).write_bytes(proto.SerializeToString())
        else:
            flags = dict.fromkeys(
                ('single_word', 'lstrip', 'rstrip', 'normalized'), False
            )
            files.write_json(folder / 'tokenizer.json', {
                'version': '1.0',
                'added_tokens': [
                    {'id': i, 'content': token, 'special': True, **flags}
                    for i, token in enumerate(tokenizer['specials'])
                ],
                'normalizer': tokenizer['normalizer'],
                'pre_tokenizer': tokenizer['pre_tokenizer'],
                'post_processor': template(tokenizer),
                'model': vocabulary(tokenizer),
            })  # fmt: skip
        settings = {'tokenizer_class': tokenizer['class']}
        files.write_json(folder / 'tokenizer_config.json', settings)
        ours = tokenizer_reader.read(folder, 2 * V).tokenizer
        kind = 'ids' if ours.kind == Numbers.kind else 'strings'
        self.assertEqual(kind, texts_of({'tokenizer': name}))
        if kind == 'strings':
            self.assertNotEmpty(ours.tokenize(['ab ba']).values.numpy())

    def test_the_page_has_this_table(self):
        self.assertEqual(pages.WEIGHTS.read_text(), pages.weights_page())
        self.assertIn(table(), pages.weights_page())
