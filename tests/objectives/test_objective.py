"""Rows and the encoders that they allow, the whole table written out."""

import dataclasses
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import encoders
from infoword_tf.encoders import ENCODERS
from infoword_tf.objectives import TABLE, Objective, decided
from infoword_tf.weights.heads import HEADS, row_of

# By encoder, the arguments that a row fixes; in the order of complaints.
BOTH_SIDES = {
    'modern': {'causal': False}, 'transformer': {'causal': False},
    'disentangled': {},
}  # fmt: skip
TWO_SEGMENTS = {
    'modern': {'causal': False, 'segments': 2},
    'transformer': {'causal': False}, 'disentangled': {'segments': 2},
}  # fmt: skip
ATTENTION = {'modern': {}, 'transformer': {}, 'relative': {},
             'disentangled': {}}  # fmt: skip
STUDENTS = {**ATTENTION, 'lookup': {}}
ANY = {**STUDENTS, 'rnn': {}, 'elmo': {}}
COMPARED = {'modern': {}, 'transformer': {}, 'disentangled': {}}
VECTORS = {**COMPARED, 'lookup': {}}
COPIES = {'modern': {}, 'transformer': {}}
GPT = {'causal': True, 'segments': 0, 'embedding_norm': False, 'epsilon': 1e-5}
LONG = {'causal': True, 'scale_embeddings': False}
ALLOWED = {
    **dict.fromkeys(
        ('mlm', 'mmlm', 'tlm', 'bert_nce', 'dim', 'overlap', 'same_text',
         'soft_margin', 'soft_order', 'xlco'),
        BOTH_SIDES,
    ),
    **dict.fromkeys(('nsp', 'nsp_nce'), TWO_SEGMENTS),
    **dict.fromkeys(('skip_gram', 'cbow'), {'lookup': {}}),
    **dict.fromkeys(('label', 'score'), ANY),
    **dict.fromkeys(('span', 'soft_span', 'patience'), ATTENTION),
    **dict.fromkeys(
        ('soft', 'soft_score', 'soft_tag', 'embed', 'embed_distance'), STUDENTS
    ),
    **dict.fromkeys(('diffcse', 'infocse'), COPIES),
    'tag': {**STUDENTS, 'elmo': {}},
    'ict': VECTORS,
    'simcse': COMPARED,
    'gpt': {
        'modern': {'causal': True}, 'transformer': {**GPT, 'pre_norm': False},
    },
    'transformer_xl': {'relative': LONG},
    'rnn_lm': {'rnn': {'cell': 'lstm'}},
    'elmo': {'elmo': {}},
    'plm': {'relative': {'segments': 2, 'causal': False}},
}  # fmt: skip
# By row, setting and value, where other encoders or arguments are allowed.
OTHERWISE = {
    ('ict', 'critic', 'late'): COMPARED,
    ('ict', 'critic', 'lexical'): COMPARED,
    ('simcse', 'pooling', 'mean'): VECTORS,
    ('gpt', 'pre_norm', True): {'transformer': {**GPT, 'pre_norm': True}},
    ('transformer_xl', 'published', True): {
        'relative': {
            'causal': True, 'scale_embeddings': True, 'activation': 'relu',
        },
    },
    ('rnn_lm', 'cell', 'gru'): {'rnn': {'cell': 'gru'}},
    ('rnn_lm', 'cell', 'plain'): {'rnn': {'cell': 'plain'}},
}  # fmt: skip


def defaults(row):
    return {name: x.default for name, x in TABLE[row].settings.items()}


def listed(allowed):
    """Arguments too in their order, which complaints have."""
    return [(name, list(fixed.items())) for name, fixed in allowed.items()]


class EncodersTest(parameterized.TestCase):
    def test_the_whole_table(self):
        self.assertEqual(set(ALLOWED), set(TABLE))
        for row, expected in ALLOWED.items():
            actual = TABLE[row].encoders(defaults(row))
            self.assertEqual(listed(actual), listed(expected), row)

    def test_settings_that_decide(self):
        """Each value of each setting, alone."""
        actual = {}
        for row, entry in TABLE.items():
            usual = entry.encoders(defaults(row))
            for name, known in entry.settings.items():
                values = known.choices or (0, 1, 0.5, 7)
                if isinstance(known.default, bool):
                    values = False, True
                for value in values:
                    allowed = entry.encoders({**defaults(row), name: value})
                    if allowed != usual:
                        actual[row, name, value] = allowed
        self.assertEqual(actual, OTHERWISE)

    @parameterized.parameters(
        ({'cut_features': 0.1},), ({'cut_tokens': 0.1},), ({'critic': 'late'},),
        ({'critic': 'lexical'},), ({'critic': 'cross'},),
    )  # fmt: skip
    def test_a_mean_of_vectors_that_are_no_means_of_words(self, settings):
        settings = {**defaults('simcse'), 'pooling': 'mean', **settings}
        self.assertEqual(TABLE['simcse'].encoders(settings), COMPARED)


class AbilitiesTest(absltest.TestCase):
    def test_all_are_known_and_asked_for(self):
        known = set(encoders.ABILITIES)
        of_encoders = [set(kind.abilities) for kind in ENCODERS.values()]
        self.assertEqual(set().union(*of_encoders), known)
        asked = set()
        for row in TABLE:
            settings = [{**defaults(row)}]
            settings += [
                {**defaults(row), name: value}
                for of, name, value in OTHERWISE
                if of == row
            ]
            for values in settings:
                asked |= {*decided(TABLE[row].needs, values)}
        self.assertEqual(asked, known)

    def test_arguments_are_those_of_the_encoder(self):
        for name, kind in ENCODERS.items():
            for fixed in kind.abilities.values():
                self.assertContainsSubset(fixed, kind.settings, name)

    def test_an_encoder_with_the_abilities_of_another(self):
        """All its rows allow it: no row names an encoder."""

        class Another(ENCODERS['modern']):
            """A new encoder."""

        with mock.patch.dict(ENCODERS, another=Another):
            for row in TABLE:
                actual = TABLE[row].encoders(defaults(row))
                self.assertEqual('another' in actual, 'modern' in actual, row)
                if 'modern' in actual:
                    self.assertEqual(actual['another'], actual['modern'])

    def test_a_row_that_no_encoder_serves(self):
        both = dataclasses.replace(TABLE['mlm'], needs=('memory', 'alone'))
        self.assertEqual(both.encoders(defaults('mlm')), {})


class FieldsTest(absltest.TestCase):
    """Fields of a row that other rooms ask for."""

    def test_a_public_head_is_known_and_has_a_row(self):
        asked = {entry.public_head for entry in TABLE.values()} - {None}
        self.assertEqual(asked, set(HEADS))
        for head in HEADS:
            self.assertEqual(TABLE[row_of(head, {})].public_head, head)
        number = {'problem_type': 'regression'}
        self.assertEqual(row_of('classes', number), 'score')
        self.assertEqual(row_of('tags', number), 'tag')

    def test_rows_that_begin_alike_have_one_public_head(self):
        for row, entry in TABLE.items():
            if entry.begins_as:
                first = TABLE[entry.begins_as]
                self.assertEqual(entry.public_head, first.public_head, row)

    def test_what_learns_from_a_teacher_reads_the_scores_of_the_taught(self):
        taught = {x: e.taught_by for x, e in TABLE.items() if e.taught_by}
        self.assertLen(taught, 4)
        for row, other in taught.items():
            self.assertEqual(TABLE[other].scored_by, row)

    def test_rows_of_tokens(self):
        answers = [e.answers for e in TABLE.values() if e.of_tokens]
        self.assertCountEqual(answers, [('spans',), ('tags',)])

    def test_the_weight_is_of_the_view_that_has_the_row(self):
        views = {
            name: mock.Mock(weights={row: np.float32([1, 0, 0.5])})
            for name, row in (('other', 'mlm'), ('masked', 'dim'))
        }
        batch = mock.Mock(views=views | {'last': mock.Mock(weights={})})
        views['masked'].weights['dim'] = np.float32([0.25, 2])
        row = mock.Mock(row='dim')
        self.assertEqual(float(Objective.weight(row, batch)), 2.25)
