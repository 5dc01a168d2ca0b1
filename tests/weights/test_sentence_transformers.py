"""Folders of sentence-transformers: modules, prompts, and back again."""

import json
import pathlib

import numpy as np
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf import convert, files
from tests.weights import folders

TEXTS = ['a bad cab.', 'deaf bees', 'x', '']
D = 16


def modules(folder, *kinds, settings=None):
    """Writes modules.json; of each kind its folder, or the encoder's own."""
    files.write_json(
        folder / 'modules.json',
        [
            {
                'idx': i,
                'name': str(i),
                'path': '' if not i else f'{i}_{kind}',
                'type': f'sentence_transformers.models.{kind}',
            }
            for i, kind in enumerate(kinds)
        ],
    )
    if settings is not None:
        files.write_json(
            folder / 'config_sentence_transformers.json', settings
        )


def pooling(folder, number=1, **values):
    """Writes the module Pooling."""
    place = folder / f'{number}_Pooling'
    place.mkdir()
    files.write_json(
        place / 'config.json', {'word_embedding_dimension': D, **values}
    )


def dense(folder, number, wide, bias=True):
    """Writes a module Dense; returns its weights."""
    random = np.random.default_rng(number)
    place = folder / f'{number}_Dense'
    place.mkdir()
    name = 'torch.nn.modules.activation.Tanh'
    files.write_json(
        place / 'config.json',
        {
            'in_features': D,
            'out_features': wide,
            'bias': bias,
            'activation_function': name,
        },
    )
    arrays = {'linear.weight': random.normal(size=(wide, D)).astype('f4')}
    if bias:
        arrays['linear.bias'] = random.normal(size=wide).astype('f4')
    files.write_tensors(place / 'model.safetensors', arrays, {'format': 'pt'})
    return arrays


class ModulesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.create_tempdir().full_path)
        self.source = folders.write(self.root / 'source', 'bert')

    def converted(self, **more):
        convert.convert(self.source, self.root / 'workdir', **more)
        return infoword_tf.load(self.root / 'workdir')

    def states(self, loaded, text):
        """[T, D] of one text with its specials."""
        ids, lengths, _ = loaded.laid_out([text])
        return loaded.states(ids, lengths)[0].numpy()

    @parameterized.parameters(
        ('pooling_mode_cls_token', lambda x: x[0]),
        ('pooling_mode_mean_tokens', lambda x: x.mean(0)),
        ('pooling_mode_max_tokens', lambda x: x.max(0)),
        ('pooling_mode_lasttoken', lambda x: x[-1]),
        (
            'pooling_mode_weightedmean_tokens',
            lambda x: np.average(x, 0, np.arange(1, len(x) + 1)),
        ),
    )
    def test_poolings(self, flag, expected):
        modules(self.source, 'Transformer', 'Pooling')
        pooling(self.source, **{flag: True})
        loaded = self.converted()
        wanted = [expected(self.states(loaded, text)) for text in TEXTS]
        np.testing.assert_allclose(
            loaded.encode(TEXTS, progress=False), wanted, atol=1e-5
        )

    def test_newer_files_name_one_mode(self):
        modules(self.source, 'Transformer', 'Pooling')
        pooling(self.source, pooling_mode='lasttoken')
        self.assertEqual(self.converted().config.pooling, 'last')

    def test_dense_and_normalize_follow_in_order(self):
        modules(self.source, 'Transformer', 'Pooling', 'Dense', 'Normalize')
        pooling(self.source, pooling_mode_cls_token=True)
        arrays = dense(self.source, 2, 7)
        loaded = self.converted()
        pooled = loaded.encode(TEXTS, progress=False, pooling='cls')
        self.assertEqual(pooled.shape, (4, D))
        wanted = np.tanh(
            pooled @ arrays['linear.weight'].T + arrays['linear.bias']
        )
        wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        found = loaded.encode(TEXTS, progress=False)
        np.testing.assert_allclose(found, wanted, atol=1e-6)
        self.assertEqual(loaded.vector_width(), 7)

    def test_prompts_stand_before_texts(self):
        modules(
            self.source,
            'Transformer',
            'Pooling',
            settings={
                'prompts': {'query': 'ask: ', 'document': ''},
                'default_prompt_name': 'query',
                'similarity_fn_name': 'dot',
            },
        )
        pooling(self.source, pooling_mode_mean_tokens=True)
        loaded = self.converted()
        self.assertEqual(loaded.config.prompts, {'query': 'ask: '})
        self.assertEqual(loaded.config.similarity, 'dot')
        bare = loaded.encode(['ask: a cab'], progress=False, prompt='')
        for prompt in (None, 'query'):
            np.testing.assert_array_equal(
                loaded.encode(['a cab'], progress=False, prompt=prompt), bare
            )
        np.testing.assert_array_equal(
            loaded.encode([b'a cab'], progress=False), bare
        )
        with self.assertRaisesRegex(ValueError, 'has query'):
            loaded.encode(['a cab'], progress=False, prompt='passage')

    def test_prompts_can_be_given(self):
        loaded = self.converted(prompts={'passage': 'it says '})
        np.testing.assert_array_equal(
            loaded.encode(['a'], progress=False, prompt='passage'),
            loaded.encode(['it says a'], progress=False),
        )

    def test_max_seq_length_cuts(self):
        modules(self.source, 'Transformer', 'Pooling')
        pooling(self.source, pooling_mode_mean_tokens=True)
        files.write_json(
            self.source / 'sentence_bert_config.json', {'max_seq_length': 6}
        )
        loaded = self.converted()
        np.testing.assert_array_equal(
            loaded.encode(['a b c d e f g'], progress=False),
            loaded.encode(['a b c d'], progress=False),
        )
        self.assertEqual(loaded.max_length, 6)

    def test_the_tokenizer_says_how_long_a_text_may_be(self):
        files.write_json(
            self.source / 'tokenizer_config.json', {'model_max_length': 7}
        )
        self.assertEqual(self.converted().max_length, 7)

    def test_out_again_and_in_again(self):
        modules(
            self.source,
            'Transformer',
            'Pooling',
            'Dense',
            'Dense',
            'Normalize',
            settings={
                'prompts': {'query': 'ask: '},
                'default_prompt_name': 'query',
                'similarity_fn_name': 'dot',
            },
        )
        pooling(self.source, pooling_mode_max_tokens=True)
        dense(self.source, 2, D)
        dense(self.source, 3, 5, bias=False)
        loaded = self.converted()
        convert.give(
            self.root / 'workdir',
            self.root / 'output',
            'sentence_transformers',
        )
        convert.convert(self.root / 'output', self.root / 'again')
        again = infoword_tf.load(self.root / 'again')
        self.assertEqual(again.config.similarity, 'dot')
        self.assertEqual(again.config.prompt, 'query')
        for prompt in ('', 'query'):
            np.testing.assert_array_equal(
                again.encode(TEXTS, progress=False, prompt=prompt),
                loaded.encode(TEXTS, progress=False, prompt=prompt),
            )
        self.assertEqual(
            again.config.replace(run={}), loaded.config.replace(run={})
        )
        written = json.loads(
            (self.root / 'output' / '3_Dense' / 'config.json').read_text()
        )
        self.assertEqual((written['in_features'], written['bias']), (D, False))

    @parameterized.parameters(
        (['Transformer', 'Pooling', 'LSTM'], 'LSTM; known are Transformer'),
        (['Pooling', 'Transformer'], 'begins with Pooling and Transformer'),
        (
            ['Transformer', 'Pooling', 'Normalize', 'Dense'],
            'Dense behind Normalize',
        ),
    )
    def test_unknown_modules_are_refused(self, kinds, message):
        modules(self.source, *kinds)
        if 'LSTM' not in kinds:
            pooling(self.source, pooling_mode_mean_tokens=True)
        with self.assertRaisesRegex(ValueError, message):
            self.converted()
        self.assertFalse((self.root / 'workdir').exists())

    def test_two_modes_are_refused(self):
        modules(self.source, 'Transformer', 'Pooling')
        pooling(
            self.source,
            pooling_mode_mean_tokens=True,
            pooling_mode_cls_token=True,
        )
        with self.assertRaisesRegex(ValueError, 'pools by mean and cls|cls'):
            self.converted()


if __name__ == '__main__':
    absltest.main()
