"""A converted workdir is one like any other: trained on, shown, searched."""

import dataclasses
import json
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import convert, files
from infoword_tf.config import Config, EncoderConfig, FlowConfig, Layout
from infoword_tf.critics import CRITICS, critic
from infoword_tf.critics.cross import CrossCritic
from infoword_tf.critics.late import LateCritic
from infoword_tf.critics.lexical import LexicalConfig
from infoword_tf.data.examples import format_texts
from infoword_tf.encoders import ENCODERS
from infoword_tf.inference.states import end_places
from infoword_tf.layers import pointwise
from infoword_tf.layers.scores import PairScore
from infoword_tf.weights import (
    architectures,
    converted,
    huggingface,
    sentence_transformers,
)
from infoword_tf.weights.modules import SETTINGS
from tests import places, quick
from tests.corpus import write_topics
from tests.eager import eagerly
from tests.export import critics, workdirs
from tests.refused import refused
from tests.weights import folders


class OnwardTest(places.Folder, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())

    def converted(self, case, **options):
        source = folders.write(self.folder / 'source', case)
        files.write_json(source / 'tokenizer_config.json', options)
        convert.convert(source, self.folder / 'run')
        return self.folder / 'run'

    def test_training_goes_on_from_it(self):
        workdir = self.converted(
            'bert_pretraining', do_lower_case=False, strip_accents=True
        )
        corpus, heldout = write_topics(self.folder / 'text')
        quick.run(
            f'--corpus={corpus}', f'--heldout={heldout}',
            f'--init={workdir}', '--objectives=mlm', '--mlm.transform',
            '--seq_len=16', '--batch_size=2', '--steps=2', '--log_every=1',
            '--learning_rate=0', f'--workdir={self.folder}/on',
        )  # fmt: skip
        before, after = (
            files.read_tensors(path / 'weights.safetensors')
            for path in (workdir, self.folder / 'on')
        )
        for path, array in after.items():
            if path.startswith(('encoder/', 'objectives/mlm/')):
                np.testing.assert_array_equal(array, before[path], path)
        config = files.read_json(self.folder / 'on' / 'config.json')
        # The special tokens of a folder of others are found in texts.
        added = config['tokenizer']['options'].pop('added')
        self.assertEqual([token['id'] for token in added], list(range(5)))
        self.assertEqual(config['tokenizer'], {
            'kind': 'wordpiece', 'lower_case': False,
            'options': {'strip_accents': True},
        })  # fmt: skip
        texts = tf.constant(['\u00e9 a B'])
        actual = [
            infoword_tf.load(path).tokenizer.tokenize(texts).to_list()
            for path in (workdir, self.folder / 'on')
        ]
        self.assertEqual(*actual)

    def test_classes_of_decoders_read_no_padding(self):
        """Reads the last token that is not pad_token_id, as transformers does;
        a state does not depend on later tokens.
        """
        workdir, lengths = self.converted('qwen3_classes'), [5, 3, 1]
        ids = [[9, 8, 0, 0, 0], [0, 9, 0, 7, 7], [0] * 5]
        ids = tf.constant(ids, tf.int32)
        ends = [2, 2, 1]  # of all padding the first token
        ours = Config.read(workdir)
        self.assertEqual(ours.layout.padding, '[PAD]')
        layout = Layout((), ('[PAD]',), padding='[PAD]')
        ours.replace(layout=layout).write(workdir)
        convert.write(workdir, self.folder / 'out', 'huggingface')
        convert.convert(self.folder / 'out', self.folder / 'again')
        for path in (workdir, self.folder / 'again'):
            loaded = infoword_tf.load(path)
            self.assertEqual(loaded.layout, layout)
            np.testing.assert_allclose(
                loaded.classes.class_scores(ids, tf.constant(lengths)),
                loaded.classes.class_scores(ids, tf.constant(ends)),
                atol=1e-6,
            )
        texts = [('a b', 'a[PAD]b[PAD]', ''), None]
        examples, _ = format_texts(loaded.template, [texts], 9, {})
        ids, sizes, _ = loaded.format_texts(*texts)
        places = end_places(loaded.template, ids, sizes)
        np.testing.assert_array_equal(examples.places, places[:, 0])
        np.testing.assert_array_equal(sizes - examples.places, [2, 3, 1])

    def test_cls_of_decoders_is_the_first_token(self):
        """Pools as sentence-transformers does."""
        source = folders.write(self.folder / 'source', 'qwen3')
        folders.modules(source, 'Transformer', 'Pooling')
        folders.pooling(source, pooling_mode='cls')
        convert.convert(source, self.folder / 'run')
        loaded = infoword_tf.load(self.folder / 'run')
        ids, lengths, _ = loaded.format_texts(['a cab', 'dad'])
        np.testing.assert_allclose(
            loaded.encode(['a cab', 'dad']),
            loaded.states(ids, lengths)[:, 0],
            atol=1e-6,
        )
        source = folders.write(self.folder / 'classes', 'qwen3_classes')
        with refused('classes_of_the_last_state', source):
            convert.convert(source, self.folder / 'other', pooling='cls')

    def test_a_folder_of_others_is_no_workdir(self):
        source = folders.write(self.folder / 'source', 'bert')
        with self.assertRaisesRegex(ValueError, 'infoword_tf.convert'):
            Config.read(source)

    def test_a_workdir_of_our_own_goes_out_and_comes_back(self):
        workdir = workdirs.write(
            self.folder / 'own', ('plm',), 'relative', kind='sentencepiece'
        )
        convert.write(workdir, self.folder / 'out', 'huggingface')
        convert.convert(self.folder / 'out', self.folder / 'again')
        first, again = map(infoword_tf.load, (workdir, self.folder / 'again'))
        self.assertEqual(set(again.model.objectives), {'plm'})
        texts = ['read a file', 'Na\u00efve caf\u00e9', '']
        np.testing.assert_array_equal(*(
            x.encode(texts, progress=False) for x in (first, again)
        ))  # fmt: skip
        config = files.read_json(self.folder / 'out/config.json')
        self.assertEqual(config['d_inner'], 4 * first.encoder.width)

    def test_a_head_with_an_epsilon_of_its_own(self):
        """Scores follow it; transformers has the encoder's alone."""
        workdir = workdirs.write(
            self.folder / 'own', ('mlm',), 'transformer',
            settings={'mlm.transform': True},
        )  # fmt: skip
        first, config = infoword_tf.load(workdir), Config.read(workdir)
        config.rows['mlm'].settings['transform_epsilon'] = 0.5
        config.write(workdir)
        other, out = infoword_tf.load(workdir), self.folder / 'out'
        x = np.random.default_rng(0).normal(size=(1, 2, first.encoder.width))
        rows = [model.model.objectives['mlm'] for model in (first, other)]
        one, two = (
            (row.transformed(np.float32(x)) - row.beta).numpy()[0]
            for row in rows
        )
        ratios = two / one  # sqrt(v / (v + 0.5)), v the variance of a token
        self.assertLess(ratios.max(), 0.99)
        np.testing.assert_allclose(ratios, ratios[:, :1] + 0 * ratios, 1e-3)
        out.mkdir()
        reason = 'there its transform has 1e-12, not 0.5, in its norm'
        self.assertIn(
            f'the row mlm ({reason})', huggingface.write(out, other)
        )

    @parameterized.parameters(
        ('modern', {}, None),
        ('modern', {'activation': 'silu'}, 'gelu_tanh'),
        ('transformer', {'embedding_width': 8}, None),
    )
    def test_heads_of_masked_words_trained_here(self, encoder, sizes, form):
        """ModernBERT's have any activation there, ELECTRA's the exact GELU."""
        lexical = LexicalConfig(transform=True, transform_activation=form)
        critics = {'lexical': lexical.written()}
        workdir = workdirs.write(
            self.folder / 'own', ('mlm',), encoder,
            settings={'mlm.transform': True}, arguments=sizes,
            fields={'critics': {'cosine': None, **critics}},
        )  # fmt: skip
        config = Config.read(workdir)
        self.assertIsNone(config.rows['mlm'].settings['transform_activation'])
        config.rows['mlm'].settings['transform_activation'] = form
        config.write(workdir)
        first, out = infoword_tf.load(workdir), self.folder / 'out'
        out.mkdir()
        dropped = huggingface.write(out, first)
        if sizes.get('embedding_width'):
            reason = 'there its transform has the activation gelu_erf'
            self.assertIn(f'the row mlm ({reason})', dropped)
            return
        # As transformers 5 spells the form with tanh.
        written = files.read_json(out / 'config.json')
        self.assertEqual(written['classifier_activation'], 'gelu_new')
        convert.convert(out, self.folder / 'again')
        again = infoword_tf.load(self.folder / 'again')
        states = np.random.default_rng(0).normal(size=(1, 2, 64))
        one, other = (
            x.model.objectives['mlm'].token_scores(np.float32(states), None)
            for x in (first, again)
        )
        np.testing.assert_array_equal(one, other)
        first.workdir.config = first.config.replace(critics=critics)
        out = self.folder / 'splade'
        out.mkdir()
        sentence_transformers.write(out, first)
        written = files.read_json(out / 'config.json')
        self.assertEqual(written['classifier_activation'], 'gelu_new')
        _, vectors = sentence_transformers.read(out)
        config, *_ = converted.make(huggingface.read(out), vectors)
        self.assertEqual(config.critics, critics)

    @parameterized.parameters(
        ('pairs', 'BertForSequenceClassification', ['Transformer']),
        ('pairs_bare', 'BertModel', ['Transformer', 'Pooling', 'Dense']),
    )
    def test_a_reranker_goes_out_and_comes_back(self, kind, name, kinds):
        loaded, output = critics.loaded(kind), self.folder / 'out'
        texts = ['who wrote it', '', 'a ' * 40], ['', 'a name', 'the list ' * 9]
        expected = loaded.cross.text_scores(*texts)  # without a graph
        self.assertGreater(np.ptp(expected), 1e-3)
        (self.folder / 'bare').mkdir()
        dropped = huggingface.write(self.folder / 'bare', loaded)
        score = [] if kind == 'pairs' else [CrossCritic.described]
        self.assertEqual(dropped, score)
        convert.write(critics.workdir(kind), output, 'sentence_transformers')
        config, settings = (
            files.read_json(output / path)
            for path in ('config.json', SETTINGS)
        )
        modules = json.loads((output / 'modules.json').read_text())
        self.assertEqual(config['architectures'], [name])
        self.assertEqual(settings['activation_fn'], 'torch.nn.Identity')
        types = [x['type'].rpartition('.')[2] for x in modules]
        self.assertEqual(types, kinds)
        convert.convert(output, self.folder / 'again')
        again = infoword_tf.load(self.folder / 'again')
        self.assertEqual(again.config.critic, 'cross')
        actual = again.cross.text_scores(*texts)
        np.testing.assert_array_equal(actual, expected)

    def test_vectors_of_tokens_go_out_and_come_back(self):
        first = critics.loaded('both')
        for late in critics.LATE, dataclasses.replace(
            critics.LATE, expand=False, mean=True
        ):  # fmt: skip
            out = self.folder / f'{late.expand}'
            out.mkdir()
            config = first.config.replace(critics={'late': late.written()})
            dropped = sentence_transformers.write(
                out, first.with_config(config)
            )
            self.assertNotIn(LateCritic.described, dropped)
            _, vectors = sentence_transformers.read(out)
            again, model, _ = converted.make(huggingface.read(out), vectors)
            for name in ('critics', 'prompts', 'query_length',
                         'passage_length'):  # fmt: skip
                expected = getattr(config, name)
                self.assertEqual(getattr(again, name), expected, name)
            for path, weight in first.model.exported.items():
                if path.startswith(('encoder/', 'critics/late/')):
                    actual = model.exported[path]
                    np.testing.assert_array_equal(actual, weight, path)

    @parameterized.parameters(
        ({'dense': (FlowConfig(64, 1, 1, 8),)}, 'flow_not_public'),
        ({'pooling': 'first_last'}, 'pooling_not_public', 'first_last'),
        ({'pooling': 'cls', 'layout': 'end'}, 'last_state_not_public'),
    )
    def test_vectors_that_have_no_module(self, changes, id, *values):
        loaded = critics.loaded('both')
        config = loaded.config.replace(critics={'cosine': None}, **changes)
        with refused(id, *values):
            sentence_transformers.write(
                self.folder, loaded.with_config(config)
            )

    def test_what_a_reranker_cannot_take_along(self):
        loaded = critics.loaded('pairs_bare')
        config = loaded.config.replace(
            prompts={'query': 'ask ', 'document': ''}, query_length=9
        )
        (self.folder / 'out').mkdir()
        dropped = sentence_transformers.write(
            self.folder / 'out', loaded.with_config(config)
        )
        self.assertLen(dropped, 2)
        self.assertStartsWith(dropped[0], 'prompts')
        self.assertIn('how long a query', dropped[1])
        head = PairScore(loaded.encoder, 'gelu_norm')
        with (
            mock.patch.dict(loaded.model.critics, cross=head),
            refused('pooler_not_public', 'gelu_norm', 'tanh'),
        ):
            sentence_transformers.write(self.folder / 'out', loaded)


class WritersTest(parameterized.TestCase):
    def test_of_a_critic_that_no_public_model_has(self):
        loaded = mock.Mock()
        loaded.config.critic = 'mine'
        loaded.config.critics = {'mine': object()}
        with mock.patch.dict(CRITICS, mine=critic.Critic), refused(
            'critic_not_public', 'mine', '--format=huggingface'
        ):
            sentence_transformers.write(None, loaded)


class ActivationTest(parameterized.TestCase):
    @parameterized.product(
        kind=list(architectures.ARCHITECTURES), form=pointwise.FORMS
    )
    def test_out_and_in_again(self, kind, form):
        """Or it has no name there: 'gelu' of GPT's files is the tanh form."""
        known = architectures.ARCHITECTURES[kind]
        encoder = ENCODERS[known.encoder](
            **{'vocab_size': 9, 'width': 8, 'activation': form, **known.fixed},
            **({'embedding_width': 4} if kind == 'albert' else {}),
        )
        partial = EncoderConfig(known.encoder, encoder.arguments)
        if (kind, form) == ('openai-gpt', 'gelu_erf'):
            with refused('kind_other_argument', "activation 'gelu_erf'"):
                architectures.config_of(kind, partial)
            return
        written = architectures.config_of(kind, partial)
        actual = architectures.encoder_of(written, 'config.json')
        self.assertEqual(actual.arguments['activation'], form)
