"""What rows want of the text, put together or refused."""

import dataclasses
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import sampling
from infoword_tf.objectives import SUMS, TABLE, parse
from infoword_tf.plan import make_plan
from infoword_tf.views import VIEWS
from tests import zoo

T = 32
PLM = {'k': 6, 'order': 'partial'}


def plan_of(objectives, masking='tokens', length=T):
    rows = {row: TABLE[row].settings for row in parse(objectives)}
    return make_plan(rows, length, masking)


class SourcesTest(parameterized.TestCase):
    @parameterized.parameters(
        ('mlm', {'masked': 'windows'}),
        ('infoword', {'masked': 'windows', 'ngrams': 'windows'}),
        ('ict', {'passage': 'documents', 'sentence': 'documents'}),
        ('nsp', {'masked': 'pairs'}),
        ('nsp_nce', {'masked': 'next_pairs', 'rivals': 'next_pairs'}),
        ('transformer_xl', {'streamed': 'streams'}),
        ('xlnet', {'permuted': 'streams'}),
    )
    def test_of_rows(self, objectives, sources):
        found = plan_of(objectives)
        self.assertEqual(found.sources, sources)
        self.assertEqual(list(found.reading), list(set(sources.values())))

    @parameterized.parameters('mlm:1,nsp:1', 'nsp:1,mlm:1')
    def test_a_view_is_one_for_all_rows(self, objectives):
        found = plan_of(objectives)
        self.assertEqual(found.sources, {'masked': 'pairs'})
        self.assertEqual(found.reading, {'pairs': {'length': T - 2}})

    def test_ngrams_go_along_with_the_text_they_are_cut_from(self):
        for row, source in (('nsp', 'pairs'), ('nsp_nce', 'next_pairs')):
            found = plan_of(f'dim:1,{row}:1', 'spans')
            self.assertEqual(found.sources['ngrams'], source)
            self.assertEqual(list(found.reading), [source])

    def test_other_views_keep_theirs(self):
        found = plan_of('mlm:1,nsp_nce:1,ict:1,transformer_xl:1')
        self.assertEqual(
            found.sources,
            {
                'masked': 'next_pairs',
                'rivals': 'next_pairs',
                'passage': 'documents',
                'sentence': 'documents',
                'streamed': 'streams',
            },
        )
        self.assertEqual(
            list(found.reading), ['next_pairs', 'documents', 'streams']
        )

    @parameterized.parameters(
        ('mlm:1,nsp:1,nsp_nce:1', 'nsp reads pairs and nsp_nce reads next_p'),
        ('nsp_nce:1,mlm:1,nsp:1', 'nsp_nce reads next_pairs and nsp reads p'),
    )
    def test_two_sources_for_one_view(self, objectives, message):
        with self.assertRaisesRegex(
            ValueError, f"{message}.*'masked' is one for all rows; leave out"
        ):
            plan_of(objectives)

    @parameterized.parameters(*TABLE, *SUMS)
    def test_every_view_of_a_row_has_a_source(self, objectives):
        found = plan_of(objectives)
        views = {v for row in parse(objectives) for v in TABLE[row].views}
        self.assertEqual(set(found.rows), views)
        self.assertEqual(set(found.sources), views)
        self.assertEqual(set(found.reading), set(found.sources.values()))
        self.assertLessEqual(views, set(VIEWS))


class RowsTest(absltest.TestCase):
    def test_by_view_what_each_row_wants(self):
        self.assertEqual(
            plan_of('bert_nce:1,dim:0.8,nsp:1', 'spans').rows,
            {
                'masked': {'bert_nce': 'words', 'dim': 'start', 'nsp': 'next'},
                'ngrams': {'dim': 'start'},
            },
        )

    def test_readers(self):
        found = plan_of('ict:1,dim:1,mlm:1', 'spans')
        self.assertEqual(found.readers('documents'), ['ict'])
        # dim reads them in two views.
        self.assertEqual(found.readers('windows'), ['dim', 'mlm'])
        self.assertEqual(found.readers('streams'), [])


class ReadingTest(parameterized.TestCase):
    @parameterized.parameters(
        ('mlm', 'windows', {'length': 30}),
        ('transformer_xl', 'streams', {'length': 32}),
        (
            'plm',
            'streams',
            {'length': 29, 'advance': 16, 'both_directions': True},
        ),
    )
    def test_written_out(self, objectives, source, way):
        self.assertEqual(plan_of(objectives).reading, {source: way})

    @parameterized.parameters(
        ('transformer_xl:1,plm:1', 'transformer_xl and plm'),
        ('plm:1,transformer_xl:1', 'plm and transformer_xl'),
    )
    def test_two_ways(self, objectives, names):
        with self.assertRaisesRegex(
            ValueError, f'{names} read streams in different ways; train .*apart'
        ):
            plan_of(objectives)

    def test_one_way_with_the_same_settings_only(self):
        def reading(length, settings):
            return {'length': settings['n'] * length}

        some = dataclasses.replace(TABLE['transformer_xl'], reading=reading)
        with mock.patch.dict(TABLE, one=some, two=some):
            found = make_plan({'one': {'n': 2}, 'two': {'n': 2}}, T)
            self.assertEqual(found.reading, {'streams': {'length': 2 * T}})
            with self.assertRaisesRegex(ValueError, 'one and two read streams'):
                make_plan({'one': {'n': 2}, 'two': {'n': 3}}, T)


class DrawsTest(parameterized.TestCase):
    @parameterized.parameters(*sampling.MASKINGS)
    def test_masking(self, masking):
        """One name, so that a mask is the same whatever else is read."""
        found = plan_of('mlm', masking)
        what, hide = found.draws['windows']
        self.assertEqual(what, masking)
        self.assertEqual(found.draws['pairs'], found.draws['windows'])
        self.assertEqual(found.draws['next_pairs'], found.draws['windows'])
        text = zoo.make_windows()
        drawn, wanted = (
            function(text, np.random.default_rng(0))
            for function in (hide, sampling.MASKINGS[masking])
        )
        np.testing.assert_array_equal(drawn.hidden, wanted.hidden)

    def test_documents(self):
        self.assertEqual(
            plan_of('ict').draws['documents'], ('cloze', sampling.cloze)
        )

    def test_nothing_is_drawn_of_next_words(self):
        self.assertNotIn('streams', plan_of('transformer_xl').draws)

    @parameterized.parameters(*sampling.ORDERS)
    def test_settings_reach_the_permutation(self, order):
        found = make_plan({'plm': {'k': 4, 'order': order}}, T)
        what, permute = found.draws['streams']
        self.assertEqual(what, 'permutation')
        text = zoo.make_streams(**found.reading['streams'])
        drawn, wanted = (
            function(text, np.random.default_rng(3), **given)
            for function, given in (
                (permute, {}),
                (sampling.permutation, {'k': 4, 'order': order}),
            )
        )
        for field, array in drawn._asdict().items():
            np.testing.assert_array_equal(array, getattr(wanted, field), field)
        self.assertEqual(drawn.places.shape, (8, T // 4))

    @parameterized.parameters(
        ({}, 33, '--seq_len=33: .*even number of 10'),
        ({}, 8, '--seq_len=8: .*even number of 10'),
        ({'k': 17}, 32, '--k=17: one in 17 of 32 .*without a target; take 2 t'),
        ({'k': 1}, 32, '--k=1: .*leaves no context; take 2 to 16'),
    )
    def test_what_cannot_be_split(self, settings, length, message):
        with self.assertRaisesRegex(ValueError, message):
            make_plan({'plm': {**PLM, **settings}}, length)

    @parameterized.parameters(({'k': 5}, 10, 2), ({'k': 16}, 32, 2))
    def test_what_can_just_be_split(self, settings, length, targets):
        found = make_plan({'plm': {**PLM, **settings}}, length)
        permute = found.draws['streams'][1]
        text = zoo.make_streams(**found.reading['streams'])
        drawn = permute(text, np.random.default_rng(0))
        self.assertEqual(drawn.places.shape, (8, targets))


if __name__ == '__main__':
    absltest.main()
