"""Decisions of a run: every complaint, every default, in any order."""

import contextlib
import dataclasses
import itertools
import pathlib
import random
from unittest import mock

from absl.testing import parameterized

from infoword_tf import commands
from infoword_tf.choices import RunChoices
from infoword_tf.config import Config, DenseConfig
from infoword_tf.critics.late import LateConfig
from infoword_tf.encoders import ENCODERS
from infoword_tf.objectives import (
    SUMS,
    TABLE,
    Auxiliary,
    Vector,
    built,
    decided,
    flag_of,
    lm,
    parse,
    setting_flags,
)
from infoword_tf.resolve import ModelChoices, resolve
from infoword_tf.sizes import SIZES
from infoword_tf.views import VIEWS
from tests import zoo
from tests.refused import refused

V = 100


def config_of(objectives='mlm', **choices):
    return resolve(ModelChoices(objectives, **choices)).config(V)


class ComplaintsTest(parameterized.TestCase):
    def refused(self, id, *values, objectives='mlm', started=None, **choices):
        with refused(id, *values):
            resolve(ModelChoices(objectives, **choices), started)

    @parameterized.parameters(
        # The row has no such setting, and others or none.
        ('mlm', {'mlm.k': 3}, 'unknown_setting', '--mlm.k', '--mlm.transform'),
        ('plm', {'plm.n': 3}, 'unknown_setting', '--plm.n',
         '--permuted.k, --permuted.order'),
        ('nsp', {'nsp.k': 3}, 'unknown_setting', '--nsp.k', 'none'),
        # Of a row or a view that is not read, or not with a weight.
        ('mlm', {'permuted.k': 3}, 'setting_of_another_row',
         '--permuted.k is for plm', '--objectives=mlm'),
        ('mlm', {'sentences.repeat': 0.3}, 'setting_of_another_row',
         '--sentences.repeat is for simcse, soft_margin, soft_order, diffcse, '
         'infocse'),
        ('mlm,plm:0', {'permuted.k': 3}, 'setting_of_another_row', 'plm'),
        ('mlm', {'transform': True}, 'setting_of_another_row', '--transform'),
        # Out of bounds.
        ('plm', {'permuted.k': 1}, 'setting_too_small', '--permuted.k=1', 2),
        ('dim', {'dim.critic': 'x'}, 'unknown_setting_value',
         '--dim.critic=x', 'cosine'),
        # Without what it needs.
        *(('dim', {**critic, 'dim.temperature': 0.1}, 'setting_without_effect',
           '--dim.temperature', '--dim.critic=cosine')
          for critic in ({}, {'dim.critic': 'scaled'})),
        # Which contradict each other.
        ('label', {'label.mean': True, 'label.bilstm': True},
         'two_poolings_of_text', '--objectives=label'),
    )  # fmt: skip
    def test_settings(self, objectives, settings, id, *values):
        self.refused(id, *values, objectives=objectives, settings=settings)

    def test_rows_that_bring_other_auxiliaries(self):
        one, two = (
            dataclasses.replace(TABLE['mlm'], auxiliaries={'slow': auxiliary})
            for auxiliary in (Auxiliary(momentum=0.9), Auxiliary(momentum=0.8))
        )
        with mock.patch.dict(TABLE, one=one, two=two):
            self.refused('other_auxiliary_encoder', '--objectives=one,two',
                         "two brings another 'slow'", objectives='one,two')

    def test_a_batch_of_one(self):
        for objectives in ('bert_nce', 'mlm,dim', 'ict', 'infoword', 'simcse'):
            self.refused('batch_of_one', '--batch_size=1',
                         objectives=objectives, batch_size=1)
            resolve(ModelChoices(objectives, batch_size=2))
        for objectives in ('mlm', 'bert', 'nsp_nce', 'transformer_xl', 'plm'):
            resolve(ModelChoices(objectives, batch_size=1))

    @parameterized.parameters(
        ('mlm', 'lookup', 'mlm allows modern, transformer, disentangled '),
        ('mlm,ict', 'lookup', 'mlm allows modern, transformer, disent'),
        ('plm', 'transformer', 'plm allows relative '),
        ('ict', 'relative', 'ict allows modern, transformer, disentang'),
        ('mlm', 'rnn', 'mlm allows modern, transformer, disentangled (the'),
    )
    def test_an_encoder_that_a_row_does_not_allow(self, rows, name, allowed):
        self.refused('encoder_not_of_row', f'--encoder={name}', allowed,
                     objectives=rows, encoder=name)

    @parameterized.parameters(
        ('mlm,plm', 'no_encoder_for_all', 'mlm allows modern, transformer',
         'plm allows relative'),
        ('mlm,gpt', 'rows_fix_other_encoders', 'causal', 'True', 'False'),
        ('transformer_xl,plm', 'rows_fix_other_encoders', 'transformer_xl'),
    )  # fmt: skip
    def test_rows_that_no_encoder_serves(self, rows, id, *values):
        self.refused(id, f'--objectives={rows}', *values, objectives=rows)

    @parameterized.parameters(
        ('untie', True), ('clamp', 8), ('same_length', True),
        ('activation', 'relu', 'lookup'),
    )
    def test_arguments_of_another_encoder(self, flag, value, *encoders):
        for encoder in encoders or ('transformer', 'lookup'):
            self.refused(
                'argument_of_another_encoder', f'--{flag}', encoder,
                '--objectives=ict', objectives='ict', encoder=encoder,
                **{flag: value},
            )  # fmt: skip

    def test_rows_whose_settings_fix_an_argument_differently(self):
        other = dataclasses.replace(
            TABLE['transformer_xl'], objective=lm.NextTokens, needs=('gelu',)
        )
        gelu = {'causal': True, 'activation': 'gelu_erf'}
        published = {'transformer_xl.published': True}
        with (
            mock.patch.dict(TABLE, other=other),
            mock.patch.dict(ENCODERS['relative'].abilities, gelu=gelu),
        ):
            for rows in ('other,transformer_xl', 'transformer_xl,other'):
                self.refused(
                    'rows_fix_other_encoders', 'transformer_xl',
                    'activation relu', 'gelu_erf', objectives=rows,
                    settings=published,
                )  # fmt: skip
                resolve(ModelChoices(rows))

    def test_an_argument_that_a_row_fixes(self):
        published = {'transformer_xl.published': True}
        self.refused(
            'row_fixes_argument', '--objectives=transformer_xl',
            '--activation=gelu_erf', 'relu', objectives='transformer_xl',
            activation='gelu_erf', settings=published,
        )  # fmt: skip
        config_of('transformer_xl', activation='relu', settings=published)

    def test_same_length_of_what_looks_ahead(self):
        self.refused('same_length_not_causal', '--objectives=plm',
                     objectives='plm', same_length=True)
        arguments = config_of('transformer_xl', same_length=True).encoder
        self.assertTrue(arguments.arguments['same_length'])

    def test_memory_of_an_encoder_without(self):
        for length in (0, 8):
            self.refused(
                'encoder_without_memory', f'--memory_length={length}',
                'modern', '--objectives=mlm', memory_length=length,
            )  # fmt: skip

    def test_a_width_is_of_lookup_without_a_size(self):
        actual = resolve(ModelChoices(objectives='cbow', width=100)).encoder
        self.assertEqual(actual.arguments['width'], 100)
        self.refused('size_decides_argument', '--width=100', 'lookup',
                     'modern', width=100)
        self.refused('width_and_size', '--width=100', '--size=tiny',
                     objectives='cbow', width=100, size='tiny')

    def test_a_text_beyond_the_positions(self):
        self.refused('too_few_positions', '--seq_len=513', 512, '--positions',
                     seq_len=513)
        self.refused('too_few_positions', '--seq_len=65', 64, seq_len=65,
                     positions=64)
        resolve(ModelChoices('mlm', seq_len=64, positions=64))

    def test_layouts_that_differ(self):
        """Nothing in the table does so today: encoders keep them apart."""
        other = dataclasses.replace(
            TABLE['mlm'], vector=lambda settings: Vector(layout='end')
        )
        with mock.patch.dict(TABLE, other=other):
            self.refused('rows_of_other_layouts', objectives='mlm,other')


class InitTest(parameterized.TestCase):
    refused = ComplaintsTest.refused

    def test_it_decides_the_encoder(self):
        started = config_of(
            'bert', size='mini', positions=64, activation='gelu_erf', seq_len=64
        )
        actual = resolve(
            ModelChoices('infoword', dropout=0.3, seq_len=32), started
        ).config(V)
        arguments = dict(started.encoder.arguments)
        self.assertEqual(arguments['activation'], 'gelu_erf')
        self.assertEqual(actual.encoder.arguments, {**arguments, 'rate': 0.3})
        self.assertEqual(actual.max_length, 64)  # of what can be loaded
        self.assertEqual(list(actual.rows), ['bert_nce', 'dim'])

    def test_another_size(self):
        started = config_of()
        self.refused('init_of_other_size', '--size=mini', '2 layers, 128 wide',
                     started=started, size='mini')
        resolve(ModelChoices('mlm', size='tiny'), started)
        lookup = config_of('ict', encoder='lookup')
        self.refused('init_of_other_size', '--size=tiny', '0 layers, 256 wide',
                     objectives='ict', started=lookup, encoder='lookup',
                     size='tiny')

    @parameterized.parameters(
        ('positions', 512), ('activation', 'relu'), ('untie', True)
    )
    def test_what_it_has_decided(self, flag, value):
        started = config_of('transformer_xl')
        self.refused('init_decides_argument', f'--{flag}', started=started,
                     objectives='transformer_xl', **{flag: value})

    def test_another_encoder(self):
        id, lookup = 'init_of_other_encoder', config_of('ict', encoder='lookup')
        self.refused(id, "holds the encoder 'modern'", "want 'relative'",
                     objectives='plm', started=config_of())
        self.refused(id, "holds the encoder 'lookup'", "want 'modern'",
                     started=lookup)

    @parameterized.parameters(False, True)
    def test_another_setting_of_the_encoder(self, value):
        one, other = (
            {'transformer_xl.published': published}
            for published in (value, not value)
        )
        started = config_of('transformer_xl', settings=one)
        actual = resolve(
            ModelChoices('transformer_xl', settings=one), started
        ).config(V)
        self.assertEqual(actual.encoder, started.encoder)
        self.refused(
            'init_of_other_setting',
            f'--transformer_xl.published={not value}',
            f'scale_embeddings {not value}', f'one with {value}',
            objectives='transformer_xl', started=started, settings=other,
        )  # fmt: skip
        # Another row takes the encoder as it is.
        same = resolve(ModelChoices('plm'), started).encoder.arguments
        self.assertEqual(same['scale_embeddings'], value)

    def test_a_text_beyond_its_positions(self):
        started = config_of(positions=64, seq_len=64)
        self.refused('too_few_positions', '--seq_len=65', 64, started=started,
                     seq_len=65)

    def test_what_is_no_weight_may_change(self):
        """And stays with rows that can have it."""
        started = config_of('transformer_xl', clamp=8, same_length=True)
        for more, expected in (
            ({}, (8, True)), ({'clamp': 16}, (16, True)),
            ({'same_length': False}, (8, False)),
        ):  # fmt: skip
            choices = ModelChoices('transformer_xl', **more)
            actual = resolve(choices, started).encoder.arguments
            self.assertEqual(
                (actual['clamp'], actual['same_length']), expected
            )
        gone = resolve(ModelChoices('plm'), started).encoder
        self.assertNotIn('same_length', gone.arguments)
        ENCODERS[gone.name](**gone.arguments)


class OldFlagsTest(parameterized.TestCase):
    """Settings of views that were flags of each row."""

    @parameterized.parameters(
        ('simcse:1,infocse:1', '--simcse.repeat=0.3 --infocse.repeat=0.3 '
         '--simcse.momentum=0.9 --simcse.keys=positives '
         '--infocse.keys=positives --simcse.shuffle --infocse.shuffle',
         '--sentences.repeat=0.3 --simcse.momentum=0.9 '
         '--sentences.keys=positives --sentences.shuffle'),
        ('consert', '--nosimcse.shuffle', '--nosentences.shuffle'),
        ('cbow', '--cbow.window=3 -cbow.subsample=1e-5 --cbow.negatives=8',
         '--words.window=3 --words.subsample=1e-5 --words.negatives=8'),
        ('plm', '--plm.k=4 --plm.order=strict --gelu=erf',
         '--permuted.k=4 --permuted.order=strict --activation=gelu_erf'),
        ('plm', '--plm.k=4 --gelu=tanh',
         '--permuted.k=4 --activation=gelu_tanh'),
        ('tlm,xlco', '--tlm.restart --noxlco.masked',
         '--translated.restart --nocrossed.masked'),
    )  # fmt: skip
    def test_an_old_flagfile_and_a_new_one(self, rows, *typed):
        folder = pathlib.Path(self.create_tempdir().full_path)
        chosen = []
        for flags in typed:
            (folder / 'a.flags').write_text(flags.replace(' -', '\n-'))
            arguments = [f'--objectives={rows}', f'--flagfile={folder}/a.flags']
            chosen.append(commands.parse(RunChoices, arguments))
        old, new = chosen
        self.assertEqual(old, new)
        self.assertNotEqual(
            resolve(RunChoices(**new)), resolve(RunChoices(objectives=rows))
        )

    def test_every_old_flag_is_one_of_today(self):
        """From Python too."""
        known = setting_flags()
        for old, new in commands.RENAMED.items():
            if '=' in old:
                continue
            row, _, name = old.partition('.')
            self.assertEqual(new, flag_of(row, name))
            value = known[new][0].default
            self.assertEqual(
                commands.checked(RunChoices, {'settings': {old: value}}),
                {'settings': {new: value}},
            )


# Sums of --pairs.
PAIRED = 'colbert', 'splade', 'monobert', 'margin_mse'
# Of rows over `modern`, those that read their texts again and again.
AGAIN = (
    'simcse', 'diffcse', 'label', 'score', 'span', 'soft', 'soft_score',
    'soft_span', 'patience', 'embed', 'embed_distance', 'pairs', 'tag',
    'soft_tag', 'soft_margin', 'soft_order', *PAIRED,
)  # fmt: skip


class DefaultsTest(parameterized.TestCase):
    @parameterized.parameters(*TABLE, *SUMS)
    def test_all_that_a_config_holds(self, objectives):
        pairs = {'sentences.pairs': 2} if objectives in PAIRED else {}
        actual = config_of(objectives, settings=pairs)
        self.assertEqual(
            {row: entry.weight for row, entry in actual.rows.items()},
            built(parse(objectives)),
        )
        named = SUMS[objectives].settings if objectives in SUMS else {}
        named = {**named, **pairs}
        if named.get('simcse.critic', 'cosine') != 'cosine':
            named['simcse.temperature'] = 1.0
        for row, entry in actual.rows.items():
            self.assertEqual(
                entry.settings,
                {
                    name: named.get(flag_of(row, name), s.default)
                    for name, s in TABLE[row].settings.items()
                },
            )
        arguments = actual.encoder.arguments
        self.assertEqual(arguments['vocab_size'], V)
        self.assertEqual(arguments['max_length'], 512)
        read = actual.encoder.name == 'modern' and objectives not in AGAIN
        self.assertEqual(arguments['rate'], 0.0 if read else 0.1)
        if objectives in SUMS:
            modern = actual.encoder.name == 'modern'
            self.assertEqual(modern, objectives in ('pairs', *PAIRED))
        taken = ENCODERS[actual.encoder.name].settings
        size = {'width': 256} if actual.encoder.name == 'lookup' else {
            k: v for k, v in SIZES['tiny'].items() if k in taken
        }
        self.assertContainsSubset(size, arguments)
        for name, known in taken.items():
            if known.flag:
                self.assertEqual(arguments[name], known.default)
        for row, entry in actual.rows.items():
            encoders = TABLE[row].encoders(entry.settings)
            self.assertContainsSubset(encoders[actual.encoder.name], arguments)
        self.assertEqual(Config.from_json(actual.to_json()), actual)
        ENCODERS[actual.encoder.name](**arguments)  # takes them all

    @parameterized.parameters(
        ('cls', {}, 'cls'), ('mean', {}, 'mean'),
        ('last_two', {}, 'last_two'),
        ('weighted', {}, 'mean'),  # by a row of that run
        ('cls', {'simcse.pooling': 'first_last'}, 'first_last'),
        (None, {}, 'mean'),
    )  # fmt: skip
    def test_pairs_are_pooled_as_init_pools(self, pooling, chosen, expected):
        started = pooling and config_of('mlm').replace(pooling=pooling)
        choices = ModelChoices(
            'pairs', settings={'sentences.pairs': 2, **chosen}
        )
        actual = resolve(choices, started)
        self.assertEqual(actual.rows['simcse'].settings['pooling'], expected)
        self.assertEqual(actual.vector.pooling, expected)
        where = actual.plan.views['sentences'].rows['simcse'].where
        self.assertEqual(where, 'example' if expected == 'cls' else 'text')
        (source_spec,) = actual.plan.source_specs
        self.assertEqual(dict(source_spec.arguments)['once'], True)

    @parameterized.parameters(
        # The model's, up to --seq_len; flags win, one by one.
        ('pairs', {}, ('late', 24, 64, True, True, False)),
        ('margin_mse', {}, ('late', 24, 64, True, True, False)),
        ('pairs', {'sentences.passage_length': 9, 'sentences.attend': False},
         ('late', 24, 9, True, False, False)),
        ('pairs', {'sentences.expand': False, 'simcse.skip_punctuation': True},
         ('late', 24, 64, False, True, True)),
        # The sum's, and the model's where it says nothing.
        ('colbert', {}, ('late', 32, 64, True, True, False)),
        # Of another critic the model says nothing.
        ('pairs', {'simcse.critic': 'cosine'},
         ('cosine', 0, 0, False, False, True)),
        ('splade', {}, ('lexical', 0, 0, False, False, True)),
        ('monobert', {}, ('cross', 0, 0, False, False, True)),
    )  # fmt: skip
    def test_the_sides_of_pairs_are_those_of_init(self, name, chosen, expected):
        prompts = {'query': '[Q] ', 'document': '[D] '}
        started = config_of('mlm').replace(
            query_length=24, passage_length=90, prompts=prompts,
            critics={'late': LateConfig(
                (DenseConfig(8, 'identity'),), expand=True, attend=True
            ).written()},
        )  # fmt: skip
        settings = {'sentences.pairs': 2, **chosen}
        actual = resolve(
            ModelChoices(name, seq_len=64, settings=settings), started
        )
        names = ('critic', 'query_length', 'passage_length', 'expand', 'attend',
                 'skip_punctuation')  # fmt: skip
        values = actual.rows['simcse'].settings
        values = {**values, 'passage_length': min(values['passage_length'], 64)}
        self.assertEqual(tuple(values[x] for x in names), expected)
        fields = actual.vector_fields
        markers = {'query': '[unused0]', 'document': '[unused1]'}
        self.assertEqual(
            fields['prompts'], markers if name == 'colbert' else prompts
        )
        if expected[0] == 'late':
            self.assertEqual(fields['query_length'], expected[1])
            late = fields['critics']['late']
            self.assertEqual((late['expand'], late['attend']), expected[3:5])

    def test_queries_without_a_length_are_padded_to_that_of_any_text(self):
        late = LateConfig((DenseConfig(8, 'identity'),), expand=True)
        started = config_of('mlm', seq_len=40)
        started = started.replace(critics={'late': late.written()})
        for seq_len, expected in (64, 40), (32, 32):
            choices = ModelChoices(
                'pairs', seq_len=seq_len, settings={'sentences.pairs': 2}
            )
            actual = resolve(choices, started)
            settings = actual.rows['simcse'].settings
            self.assertTrue(settings['expand'])
            head = actual.vector_fields['critics']['late']['dense']
            self.assertEqual(head, late.written()['dense'])
            self.assertEqual(settings['query_length'], expected)
        choices = ModelChoices('pairs', seq_len=32, settings={
            'sentences.pairs': 2, 'simcse.token_width': 12,
        })  # fmt: skip
        fields = resolve(choices, started).vector_fields
        (head,) = fields['critics']['late']['dense']
        self.assertEqual(head['width'], 12)

    def test_bert_is_bert(self):
        """With the transform that its rows alone have on request."""
        for objectives, changes, expected in (
            ('bert', {}, True),
            ('bert', {'mlm.transform': False}, False),
            ('mlm:1,nsp:1', {}, False),
        ):
            rows = resolve(ModelChoices(objectives, settings=changes)).rows
            self.assertEqual(rows['mlm'].settings['transform'], expected)

    def test_a_transform_goes_on_with_its_activation(self):
        started = config_of('mlm', settings={'mlm.transform': True})
        form = {'transform_activation': 'relu', 'transform_epsilon': 0.01}
        started.rows['mlm'].settings.update(form)
        for row in 'mlm', 'mmlm':
            for transform, expected in (True, form), (False, {}):
                choices = ModelChoices(
                    row, settings={f'{row}.transform': transform}
                )
                actual = resolve(choices, started).rows[row].settings
                for name in form:
                    self.assertEqual(actual[name], expected.get(name))
        settings = {'simcse.critic': 'lexical', 'sentences.pairs': 2}
        choices = ModelChoices('simcse', settings=settings)
        [lexical] = resolve(choices, started).config(V).critics.values()
        self.assertEqual({x: lexical[x] for x in form}, form)

    @parameterized.parameters(
        # Without the transform there is no bias that makes weights 0.
        (None, 'init', 'tokens', False), (False, 'init', 'tokens', False),
        (True, 'init', 'vocabulary', True), (True, 'tokens', 'tokens', False),
        (False, 'vocabulary', 'vocabulary', False),
    )  # fmt: skip
    def test_what_gives_weights_to_tokens(self, old, terms, head, transform):
        started = config_of('bert_nce' if old is None else 'mlm')
        if old:
            started = config_of('mlm', settings={'mlm.transform': True})
        settings = {
            'simcse.critic': 'lexical', 'sentences.pairs': 2,
            'simcse.terms': terms,
        }  # fmt: skip
        choices = ModelChoices('simcse', settings=settings)
        [entry] = resolve(choices, started).config(V).critics.values()
        self.assertEqual(
            (entry['head'], entry['transform']), (head, transform)
        )

    def test_rows_of_no_weight_are_left_out(self):
        """Models and batches are made of what is the same without them."""
        for objectives in ('mlm:2,plm:0', 'bert_nce:1,dim:0'):
            first = objectives.split(',')[0]
            actual, alone = map(resolve, map(ModelChoices, (objectives, first)))
            self.assertEqual(actual.config(V), alone.config(V))
            self.assertEqual([*actual.plan.views], ['masked'])
            self.assertEqual(actual.plan.source_specs, alone.plan.source_specs)

    def test_a_setting_of_a_view_is_one_of_all_rows_that_read_it(self):
        choices = ModelChoices(
            'mlm,simcse,infocse', settings={'sentences.repeat': 0.3}
        )
        actual = resolve(choices)
        for row in ('simcse', 'infocse'):
            self.assertEqual(actual.rows[row].settings['repeat'], 0.3)
        self.assertNotIn('repeat', actual.rows['mlm'].settings)
        source = dict(actual.plan.views['sentences'].source_spec.arguments)
        self.assertEqual(source['repeat'], 0.3)

    def test_each_flag_is_one_setting(self):
        """Also where a view has the name of a row, as `overlap`."""
        self.assertIn('overlap', TABLE.keys() & VIEWS.keys())
        for flag, (known, rows) in setting_flags().items():
            owner, _, name = flag.partition('.')
            self.assertIn(owner, [*rows, *VIEWS])
            for row in {*rows, owner} & TABLE.keys():
                self.assertIs(TABLE[row].settings.get(name, known), known)

    @parameterized.parameters(
        ('mlm', None), ('ict', None), ('rnn_lm', None),
        ('transformer_xl', 128), ('plm', 128), ('plm', 0, 0), ('plm', 5, 5),
    )
    def test_memory_is_as_long_as_a_text(self, objectives, length, chosen=None):
        actual = config_of(objectives, memory_length=chosen)
        self.assertEqual(actual.memory_length, length)

    def test_the_encoder(self):
        for row, entry in TABLE.items():
            for name in entry.encoders(zoo.defaults_of(row)):
                actual = config_of(row, encoder=name)
                self.assertEqual(actual.encoder.name, name)
        # Without a choice, the first that all allow.
        self.assertEqual(config_of('ict').encoder.name, 'modern')
        width = config_of('ict', encoder='lookup').encoder.arguments['width']
        self.assertEqual(width, 256)

    def test_choices_reach_the_encoder(self):
        actual = config_of(
            'transformer_xl', size='mini', positions=200, dropout=0.4,
            activation='gelu_erf', untie=False, clamp=9, same_length=True,
        ).encoder.arguments  # fmt: skip
        self.assertEqual(
            actual,
            {
                **SIZES['mini'], 'vocab_size': V, 'max_length': 200,
                'rate': 0.4, 'activation': 'gelu_erf', 'causal': True,
                'untie': False, 'clamp': 9, 'same_length': True,
                'scale_embeddings': False,
            },
        )  # fmt: skip

    def test_labels_beside_next_words(self):
        """GPT's fine-tuning: read at the last token, from such a start.

        The labelled texts are laid out for it where it reads them.
        """
        pre_norm = {'gpt.pre_norm': True}
        started = config_of('gpt', settings=pre_norm)
        self.assertEqual(started.layout, 'end')
        for reads, layout, views in (
            ('stream', 'end', {'streamed', 'examples'}),
            ('examples', 'gpt', {'examples'}),
        ):
            choices = ModelChoices(
                'label:1,gpt:0.5', settings={**pre_norm, 'gpt.reads': reads}
            )
            actual = resolve(choices, started)
            self.assertEqual(actual.vector.layout, layout)
            self.assertEqual(set(actual.plan.views), views)
            self.assertEqual(actual.plan.reads('text'), reads == 'stream')
            self.assertTrue(actual.encoder.arguments['causal'])
            self.assertTrue(actual.encoder.arguments['pre_norm'])
            self.assertEqual(actual.encoder.arguments['epsilon'], 1e-5)
            choices = ModelChoices(
                'label:1,gpt:0.5', settings={'gpt.reads': reads}
            )
            with refused('rows_of_other_layouts'):
                resolve(choices, config_of('mlm'))
        # What was taught so is read so, whatever it is taught next.
        for layout in ('gpt', 'end'):
            taught = started.replace(layout=layout)
            actual = resolve(ModelChoices('label'), taught)
            self.assertEqual(actual.vector.layout, layout)


class VectorTest(parameterized.TestCase):
    @parameterized.parameters(
        ('mlm', 'mean', 'cosine'),
        ('bert', 'mean', 'cosine'),
        ('dim', 'cls', 'dot'),
        ('infoword', 'cls', 'dot'),
        ('bert_nce,dim,nsp', 'cls', 'dot'),
        ('ict', 'weighted', 'cosine'),
        ('bert_nce,dim,ict', 'weighted', 'cosine'),
        ('transformer_xl', 'mean', 'cosine', 'end'),
        ('plm', 'mean', 'cosine', 'xlnet'),
    )
    def test_of_sums(self, objectives, pooling, similarity, layout='bert'):
        """ict before dim before the rest, however they are ordered."""
        for rows in itertools.permutations(parse(objectives)):
            actual = config_of(','.join(rows))
            self.assertEqual(
                (actual.pooling, actual.similarity, actual.layout),
                (pooling, similarity, layout),
            )

    def test_of_settings(self):
        for critic, similarity in ('cosine', 'cosine'), ('scaled', 'dot'):
            actual = config_of('infoword', settings={'dim.critic': critic})
            self.assertEqual(
                (actual.pooling, actual.similarity), ('cls', similarity)
            )

    def test_the_encoder_of_init_comes_first(self):
        """`label` allows several; alone it takes the first of them."""
        relative = config_of('plm')
        for row in ('label', 'score'):
            for started, name in (None, 'modern'), (relative, 'relative'):
                actual = resolve(ModelChoices(row), started).encoder
                self.assertEqual(actual.name, name)

    def test_priorities_are_distinct(self):
        """Else the order of the rows would decide; 0 is the plain vector."""
        vectors = {
            row: decided(entry.vector, zoo.defaults_of(row))
            for row, entry in TABLE.items()
        }
        vectors = {row: v for row, v in vectors.items() if v is not None}
        ranks = [v.priority for v in vectors.values() if v.priority]
        self.assertLen(set(ranks), len(ranks))
        others = [e for row in vectors if row != 'elmo'
                  for e in zoo.encoders_of(row)]  # fmt: skip
        self.assertNoCommonElements(zoo.encoders_of('elmo'), others)
        for row, vector in vectors.items():
            if not vector.priority and row != 'elmo':  # which is never in a sum
                self.assertEqual(vector, Vector(layout=vector.layout), row)


class OrderTest(parameterized.TestCase):
    """Neither the order of the table nor that of --objectives matters."""

    @parameterized.parameters(
        *(name for name, case in zoo.CASES.items() if len(case.rows) > 1),
        'ict', 'plm_strict',
    )  # fmt: skip
    def test_same_config(self, name):
        case = zoo.CASES[name]
        expected = case.resolved
        rng = random.Random(0)
        for _ in range(4):
            parts = [f'{row}:{weight}' for row, weight in case.rows.items()]
            rng.shuffle(parts)
            settings = [
                (flag_of(row, name), value)
                for row, entry in expected.rows.items()
                for name, value in entry.settings.items()
                if TABLE[row].settings[name].default != value
            ]
            rng.shuffle(settings)
            table = list(TABLE.items())
            rng.shuffle(table)
            with mock.patch.dict(TABLE, clear=True, values=dict(table)):
                self.assertEqual(list(TABLE), [row for row, _ in table])
                actual = case._replace(
                    objectives=','.join(parts), settings=dict(settings)
                ).resolved
            self.assertEqual(actual.config(V), expected.config(V))
            self.assertEqual(actual.vector, expected.vector)
            self.assertEqual(actual.plan.masking, expected.plan.masking)
            self.assertEqual(set(actual.plan.views), set(expected.plan.views))
            for view, view_plan in actual.plan.views.items():
                other = expected.plan.views[view]
                self.assertEqual(view_plan.rows, other.rows)
                self.assertEqual(view_plan.source_spec, other.source_spec)

    def test_same_complaint_whichever_comes_first(self):
        for rows in itertools.permutations(('mlm', 'dim', 'plm')):
            with refused('no_encoder_for_all'):
                resolve(ModelChoices(','.join(rows)))

    def test_same_encoder(self):
        """Takes the first of ENCODERS where all rows allow two."""
        turned = dataclasses.replace(TABLE['ict'], needs=('turning',))
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(TABLE, turned=turned))
            for name in ('lookup', 'transformer'):
                able = mock.patch.dict(ENCODERS[name].abilities, turning={})
                stack.enter_context(able)
            for objectives in ('turned', 'ict,turned', 'turned,ict'):
                actual = resolve(ModelChoices(objectives)).encoder.name
                self.assertEqual(actual, 'transformer')
