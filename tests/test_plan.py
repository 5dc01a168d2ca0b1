"""Texts that rows want, put together or refused."""

import dataclasses
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf.data.sources import SOURCES
from infoword_tf.objectives import SUMS, TABLE, parse
from infoword_tf.objectives.objective import ANSWERS
from infoword_tf.plan import SourceSpec, make_plan
from infoword_tf.resolve import answering
from infoword_tf.views import VIEWS, Reads
from infoword_tf.views.masked import MASKINGS
from infoword_tf.views.permuted import ORDERS, permutation
from tests import zoo
from tests.refused import refused
from tests.zoo import defaults_of

T = 32
PLM = {'k': 6, 'order': 'partial'}


def plan_of(objectives, masking=None, length=T, share=None):
    rows = {row: defaults_of(row) for row in parse(objectives)}
    return make_plan(rows, length, masking, share)


def sources(plan):
    return {name: view.source_spec.source for name, view in plan.views.items()}


def drawn(plan, view, text, seed=0):
    draw = plan.views[view].draw
    return draw.function(text, np.random.default_rng(seed), **draw.settings)


class SourcesTest(parameterized.TestCase):
    @parameterized.parameters(
        ('mlm', {'masked': 'windows'}),
        ('infoword', {'masked': 'windows', 'ngrams': 'windows'}),
        ('ict', {'passage': 'documents', 'sentence': 'documents'}),
        ('nsp', {'masked': 'pairs'}),
        ('nsp_nce', {'masked': 'next_pairs', 'negatives': 'next_pairs'}),
        ('transformer_xl', {'streamed': 'streams'}),
        ('gpt', {'streamed': 'streams'}),
        ('xlnet', {'permuted': 'streams'}),
    )
    def test_of_rows(self, objectives, expected):
        actual = plan_of(objectives)
        self.assertEqual(sources(actual), expected)
        self.assertEqual(
            [r.source for r in actual.source_specs],
            list(set(expected.values())),
        )

    @parameterized.parameters(
        ('mlm', 'windows', {'length': 30}),
        ('transformer_xl', 'streams', {'length': 32}),
        ('plm', 'streams',
         {'length': 29, 'advance': 16, 'both_directions': True}),
        # A view is one for all rows.
        *((rows, 'pairs', {'length': 30, 'packed': True})
          for rows in ('mlm:1,nsp:1', 'nsp:1,mlm:1')),
    )  # fmt: skip
    def test_written_out(self, objectives, source, way):
        actual = plan_of(objectives)
        expected = SourceSpec(source, tuple(sorted(way.items())))
        self.assertEqual(actual.source_specs, [expected])
        self.assertLen(actual.views, 1)

    @parameterized.parameters(
        ('nsp', True), ('nsp:1,bert_nce:1', True), ('nsp:1,dim:1', False),
        ('mlm:1,nsp_nce:1', False), ('mlm', False),
    )  # fmt: skip
    def test_pairs_share_rows_where_all_is_asked_by_pair(self, rows, packed):
        for source_spec in plan_of(rows).source_specs:
            self.assertEqual('packed' in dict(source_spec.arguments), packed)

    def test_ngrams_go_along_with_the_text_they_are_cut_from(self):
        for row, source in (('nsp', 'pairs'), ('nsp_nce', 'next_pairs')):
            for objectives in (f'dim:1,{row}:1', f'{row}:1,dim:1'):
                actual = plan_of(objectives)
                self.assertEqual(sources(actual)['ngrams'], source)
                self.assertLen(actual.source_specs, 1)

    @parameterized.parameters(*TABLE, *SUMS)
    def test_every_view_of_a_row_has_a_source(self, objectives):
        rows = {row: defaults_of(row) for row in parse(objectives)}
        if 'soft_margin' in rows:  # all its rows read pairs
            rows = {row: {**x, 'pairs': 3} for row, x in rows.items()}
        actual = make_plan(rows, T)
        views = {
            view for row, x in rows.items() for view in TABLE[row].reads(x)
        }
        self.assertEqual(set(actual.views), views)
        self.assertLessEqual(views, set(VIEWS))
        self.assertLessEqual(set(sources(actual).values()), set(SOURCES))
        self.assertEqual(
            set(actual.source_specs),
            {v.source_spec for v in actual.views.values()},
        )


class RowsTest(absltest.TestCase):
    def test_by_view_what_each_row_wants(self):
        actual = plan_of('bert_nce:1,dim:0.8,nsp:1')
        self.assertEqual({
            name: {row: r.where for row, r in view.rows.items()}
            for name, view in actual.views.items()
        }, {
            'masked': {'bert_nce': 'tokens', 'dim': 'start', 'nsp': 'next'},
            'ngrams': {'dim': 'start'},
        })  # fmt: skip
        for name, view in actual.views.items():
            self.assertIs(view.spec, VIEWS[name])
            for row, reads in view.rows.items():
                expected = TABLE[row].reads(defaults_of(row))[name]
                self.assertEqual(reads, expected)

    def test_readers(self):
        actual = plan_of('ict:1,dim:1,mlm:1')
        documents, windows = actual.source_specs
        self.assertEqual(actual.readers(documents), ['ict'])
        # dim reads them in two views.
        self.assertEqual(actual.readers(windows), ['dim', 'mlm'])
        self.assertEqual(actual.readers(SourceSpec('streams', ())), [])


class SettingsTest(absltest.TestCase):
    def test_no_view_has_a_setting_of_its_rows_name(self):
        """Else one would hide the other; but one setting that both need."""
        for entry in TABLE.values():
            views = [VIEWS[VIEWS[v].like or v].settings for v in entry.views]
            for name, setting in entry.settings.items():
                for settings in views:
                    self.assertIs(settings.get(name, setting), setting)

    def test_of_views_that_are_cut_out_of_another(self):
        like = VIEWS['permuted']._replace(like='permuted', settings={})
        views = {'part': Reads('queries')}
        row = dataclasses.replace(TABLE['plm'], views=views)
        with mock.patch.dict(VIEWS, part=like), mock.patch.dict(TABLE, one=row):
            self.assertEqual(list(TABLE['one'].settings), ['k', 'order'])
            actual = make_plan({'one': {'k': 4, 'order': 'strict'}}, T)
        self.assertEqual(
            actual.views['part'].draw.settings, {'k': 4, 'order': 'strict'}
        )

    def test_other_settings_of_the_rows_may_differ(self):
        with mock.patch.dict(TABLE, two=TABLE['dim']):
            other = {**defaults_of('dim'), 'critic': 'cosine'}
            actual = make_plan({'dim': defaults_of('dim'), 'two': other}, T)
        self.assertEqual(list(actual.views['masked'].rows), ['dim', 'two'])

    def test_views_that_a_setting_chooses(self):
        """`joined` instead of `masked`, of the same draw, row by row."""
        one_mask = {**defaults_of('dim'), 'one_mask': True}
        for rows, views in (
            ({'dim': defaults_of('dim')}, ['masked', 'ngrams']),
            ({'dim': one_mask}, ['joined', 'ngrams']),
            ({'dim': one_mask, 'bert_nce': defaults_of('bert_nce')},
             ['joined', 'ngrams', 'masked']),
        ):  # fmt: skip
            actual = make_plan(rows, T)
            self.assertEqual(list(actual.views), views)
            self.assertLen(actual.source_specs, 1)
            first, *others = (v.draw for v in actual.views.values())
            self.assertTrue(all(draw == first for draw in others))
        self.assertEqual(list(actual.views['joined'].rows), ['dim'])
        self.assertEqual(list(actual.views['masked'].rows), ['bert_nce'])


class DrawsTest(parameterized.TestCase):
    @parameterized.parameters(*MASKINGS)
    def test_masking(self, masking):
        """One name, so that a mask is the same whatever else is read."""
        text = zoo.make_windows()
        expected = MASKINGS[masking](text, np.random.default_rng(0))
        for objectives in ('mlm', 'nsp', 'nsp_nce'):
            actual = plan_of(objectives, masking)
            self.assertEqual(actual.masking, masking)
            for view in actual.views.values():
                self.assertEqual(view.draw.name, masking)
            drawn_text = drawn(actual, 'masked', text)
            np.testing.assert_array_equal(drawn_text.masked, expected.masked)

    @parameterized.parameters(
        ('mlm', 'tokens'), ('nsp', 'tokens'), ('ict', None),
        ('mlm:1,dim:1', 'spans'), ('dim:1,mlm:1', 'spans'),
        ('nsp:1,bert_nce:1', 'spans'),
    )
    def test_masking_that_nobody_named(self, objectives, masking):
        self.assertEqual(plan_of(objectives).masking, masking)

    @parameterized.parameters(
        (row, name)
        for row in TABLE
        for name, view in plan_of(row).views.items()
        if view.draw and 'share' in view.draw.settings
    )
    def test_the_share_that_is_masked(self, objectives, view):
        """Whatever masks; the usual one is 15 in 100."""
        for share, expected in ((None, 0.15), (0.4, 0.4)):
            plan = plan_of(objectives, share=share)
            self.assertEqual(plan.mask_share, expected)
            self.assertEqual(plan.views[view].draw.settings['share'], expected)
        self.assertIsNone(plan_of('ict').mask_share)

    @parameterized.parameters(
        ('mlm:1,nsp:1,nsp_nce:1', {}, 'view_of_two_sources',
         'nsp reads pairs', 'nsp_nce reads next_pairs', 'masked'),
        ('nsp_nce:1,mlm:1,nsp:1', {}, 'view_of_two_sources',
         'nsp_nce reads next_pairs', 'nsp reads pairs', 'masked'),
        ('ict', {'share': 0.4}, 'nothing_is_masked', '--mask_share', 0.4),
        *((row, {'masking': 'words'}, 'nothing_is_masked', '--masking', 'words')
          for row in ('ict', 'plm', 'transformer_xl')),
        ('mlm', {'masking': 'some'}, 'unknown_masking', 'some',
         'spans, words, tokens'),
        *((objectives, {'masking': masking}, 'row_masks_otherwise', masking,
           'dim', 'spans')
          for objectives in ('dim', 'mlm:1,dim:1', 'dim:1,mlm:1')
          for masking in ('words', 'tokens')),
    )  # fmt: skip
    def test_what_cannot_be(self, objectives, more, id, *values):
        with refused(id, *values):
            plan_of(objectives, **more)

    @parameterized.parameters(
        ({'maskd': Reads('tokens')}, 'unknown_view', 'maskd'),
        ({'masked': Reads('tokens', encoders=('momentum',))},
         'undeclared_auxiliary_encoder', 'momentum'),
    )  # fmt: skip
    def test_rows_that_read_what_there_is_not(self, views, id, name):
        reads = dataclasses.replace(TABLE['mlm'], views=views)
        with mock.patch.dict(TABLE, mlm=reads), refused(id, 'mlm', name):
            make_plan({'mlm': {'transform': False}}, T)

    @parameterized.parameters(*ORDERS)
    def test_settings_reach_the_permutation(self, order):
        actual = make_plan({'plm': {'k': 4, 'order': order}}, T)
        self.assertEqual(actual.views['permuted'].draw.name, 'permutation')
        (source_spec,) = actual.source_specs
        text = zoo.make_streams(**dict(source_spec.arguments))
        drawn_text = drawn(actual, 'permuted', text, 3)
        expected = permutation(text, np.random.default_rng(3), 4, order)
        for field, array in drawn_text._asdict().items():
            np.testing.assert_array_equal(
                array, getattr(expected, field), field
            )
        self.assertEqual(drawn_text.places.shape, (8, T // 4))

    @parameterized.parameters(({'k': 5}, 10, 2), ({'k': 16}, 32, 2))
    def test_what_can_just_be_split(self, settings, length, targets):
        actual = make_plan({'plm': {**PLM, **settings}}, length)
        (source_spec,) = actual.source_specs
        text = zoo.make_streams(**dict(source_spec.arguments))
        self.assertEqual(
            drawn(actual, 'permuted', text).places.shape, (8, targets)
        )


class AnswersTest(absltest.TestCase):
    def test_rows_name_what_there_is(self):
        named = {name for row in TABLE.values() for name in row.answers}
        self.assertEqual(named, set(ANSWERS))

    def test_who_gives_them(self):
        """Also of a row that this code does not have."""
        rows = ['span', 'gone', 'nsp', 'label']
        self.assertEqual(
            answering(('classes', 'spans'), rows), ['span', 'label']
        )
        self.assertCountEqual(
            answering(('next',)),
            [row for row in TABLE if 'next' in TABLE[row].answers],
        )
