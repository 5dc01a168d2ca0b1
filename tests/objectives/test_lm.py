"""`transformer_xl` against its formula."""

import numpy as np
from absl.testing import parameterized
from scipy import special

from infoword_tf.encoders import Inputs
from infoword_tf.objectives import Statistics
from infoword_tf.views import VIEWS
from infoword_tf.views.streams import Streams
from tests import eager, zoo
from tests.near import near
from tests.objectives.eq1 import (
    EagerCase,
    F,
    losses_of,
    of_piece,
    states_of,
    sums,
)

V, B, T = zoo.V, 3, 7
KEY = eager.new_key(3)


def make_view(seed=0):
    random = np.random.default_rng(seed)
    ids = random.integers(zoo.FIRST, V, (B, T + 1)).astype(np.int32)
    ids[0, 3] = ids[1, -1] = zoo.SEP
    ids[2, 2] = zoo.UNK
    ids[2, 4] = zoo.MASK
    none = np.zeros((B, T), bool)
    streams = Streams(
        ids[:, :-1], none, none, none, np.ones(B, np.int32), ids[:, -1]
    )
    rows = {'transformer_xl': 'text'}
    return VIEWS['streamed'].make(streams, None, rows, zoo.SPECIALS)


class NextTokensTest(EagerCase):
    def test_every_pair_by_itself(self):
        model, view = zoo.make_model('transformer_xl', rate=0.0), make_view()
        states, _ = model.encode({'streamed': view})
        states = np.asarray(states_of(states, 'transformer_xl', 'streamed'))
        words = np.asarray(model.encoder.embedding_table)
        bias = np.asarray(model.objectives['transformer_xl'].token_bias)
        total = np.zeros(F)
        for i in range(B):
            for j in range(T):
                target = view.targets['transformer_xl'][i, j]
                scores = words @ states[i, j] + bias
                if target == zoo.MASK:
                    continue  # it is of another text
                if target == zoo.SEP:  # in the loss, and not in MI
                    loss = special.logsumexp(scores) - scores[target]
                    total[:2] += loss, 1
                    continue
                total += of_piece(scores, target, zoo.statistics())
        self.assertEqual(total[1], B * T - 1)
        self.assertEqual(total[-1], B * T - 3)
        views = {'streamed': view}
        for key in (None, KEY):
            actual, _ = model.outcomes(views, zoo.statistics(), key)
            near(sums(actual['transformer_xl']), total, rtol=1e-5)

    def test_labelled_texts_each_as_if_alone(self):
        """`gpt` beside `label`: as each text gives it without the others."""
        model, text = zoo.make_model('label_gpt', rate=0.0), zoo.make_examples()
        text.ids[0, 0, text.lengths[0, 0] - 1] = zoo.MASK
        text.ids[4, 0, 2] = zoo.SEP
        expected = {'label': 'example', 'gpt': 'following'}
        view = VIEWS['examples'].make(text, None, expected, zoo.SPECIALS)
        counts = np.arange(1.0, V + 1)
        pieces = Statistics(counts, counts[::-1])
        arrays = zoo.statistics()
        arrays = arrays._replace(by_row={**arrays.by_row, 'gpt': pieces})
        table = np.asarray(model.encoder.embedding_table)
        bias = np.asarray(model.objectives['gpt'].token_bias)
        total, ends = np.zeros(F), 0
        for ids, length in zip(text.ids[:, 0], text.lengths[:, 0], strict=True):
            states = model.encoder(Inputs(ids[None, :length])).states[0]
            for state, target in zip(states, ids[1:length], strict=False):
                scores = table @ np.asarray(state) + bias
                actual = of_piece(scores, target, pieces)
                if target in (zoo.SEP, zoo.MASK):  # in the loss alone
                    actual[2:] = 0
                    ends += 1
                total += actual
        self.assertEqual(ends, 2)
        self.assertEqual(total[1], text.lengths.sum() - len(text.ids))
        for key in (None, KEY):
            actual, _ = model.outcomes({'examples': view}, arrays, key)
            near(sums(actual['gpt']), total, rtol=1e-4)

    @parameterized.parameters('rnn_lm', 'rnn_lm_gru')
    def test_a_table_of_its_own(self, name):
        """Scores are with it, and not with the input embeddings."""
        self.enterContext(eager.eagerly(False))  # a recurrence
        model = zoo.make_model(name, rate=0.0)
        objective, has_table = model.objectives['rnn_lm'], name == 'rnn_lm_gru'
        paths = set(model.variables)
        self.assertEqual(
            'objectives/rnn_lm/piece_embeddings' in paths, has_table
        )
        views = zoo.make_views(name)
        actual, _ = model.outcomes(views, zoo.statistics())
        view = views['streamed']
        states = model.encoder(Inputs(view.ids)).states.numpy()
        whose = objective if has_table else model.encoder
        table = whose.token_table if has_table else whose.embedding_table
        scores = states @ np.asarray(table).T + objective.token_bias.numpy()
        losses = losses_of(scores, view.targets['rnn_lm'])
        self.assertAlmostEqual(
            float(actual['rnn_lm'].loss / actual['rnn_lm'].weight),
            np.average(losses, weights=view.weights['rnn_lm']),
            places=4,
        )

    def test_elmo_asks_both_ways(self):
        """One table; each half of a state answers for its direction."""
        self.enterContext(eager.eagerly(False))  # a recurrence
        model = zoo.make_model('elmo', rate=0.0)
        self.assertEqual(
            [p for p in model.variables if p.startswith('objectives/')],
            ['objectives/elmo/piece_bias',
             'objectives/elmo/piece_embeddings'],
        )  # fmt: skip
        objective, view = model.objectives['elmo'], zoo.make_views('elmo')
        actual, _ = model.outcomes(view, zoo.statistics())
        view = view['neighbours']
        left, right = np.split(
            model.encoder(Inputs(view.ids)).states.numpy(), 2, axis=2
        )
        table = objective.token_table.numpy()
        bias = objective.token_bias.numpy()
        total = np.zeros(F)
        for i, row in enumerate(view.ids):
            before = [zoo.SEP, *row[:-1]]
            for half, targets in (
                (left, view.targets['elmo'][i, : zoo.T]), (right, before)
            ):  # fmt: skip
                for state, b in zip(half[i], targets, strict=True):
                    if b != zoo.SEP:
                        scores = table @ state + bias
                        total += of_piece(scores, b, zoo.statistics())
        measured = sums(actual['elmo'])
        near(measured[2:], total[2:], rtol=1e-4)
        # An end is in the loss alone, once for each direction.
        self.assertEqual(measured[1], total[1] + 2)
