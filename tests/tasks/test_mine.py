"""Hard negatives: which texts are taken, and what each rule costs."""

import collections
import csv
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import commands
from infoword_tf.config import Config, RowConfig, TaskConfig
from infoword_tf.evaluation import ranking
from tasks import mine
from tests import places
from tests.export import workdirs


class RulesTest(absltest.TestCase):
    def chosen(self, scores, positive, own=(), **settings):
        own = [i in own for i in range(len(scores))]
        given = mine.Choices(**{'relative_margin': 0.0, **settings})
        return mine.chosen_of(range(len(scores)), scores, positive, own, given)

    def test_the_best_below_b(self):
        found = self.chosen([0.9, 0.8, 0.7, 0.6], 0.75, negatives=2)
        self.assertEqual(found.negatives, [2, 3])
        self.assertEqual(found.lost, {'margin': 2})

    def test_margins(self):
        scores = [0.79, 0.74, 0.70, 0.5]
        found = self.chosen(scores, 0.8, margin=0.05)
        self.assertEqual(found.negatives, [1, 2, 3])
        found = self.chosen(scores, 0.8, relative_margin=0.1)
        self.assertEqual(found.negatives, [2, 3])

    def test_a_relative_margin_of_a_negative_score_is_below_it(self):
        """positive (1 - m) would be above it."""
        found = self.chosen([-0.49, -0.52, -0.56], -0.5, relative_margin=0.1)
        self.assertEqual(found.negatives, [2])

    def test_never_ones_own(self):
        found = self.chosen([0.9, 0.6, 0.5], 0.95, own={0, 2})
        self.assertEqual(found.negatives, [1])
        self.assertEqual(found.lost, {'own': 2})

    def test_window_and_skip(self):
        found = self.chosen(
            [0.9, 0.8, 0.7, 0.6], 0.95, own={0}, skip=1, window=1
        )
        self.assertEqual(found.negatives, [2])
        self.assertEqual(found.lost, {'own': 1, 'skipped': 1})

    def test_nothing_is_no_text(self):
        """-1 is not the last one."""
        given = mine.Choices()
        found = mine.chosen_of([3, -1], [0.1, -np.inf], 0.9, [0, 0], given)
        self.assertEqual(found.negatives, [3])


class SearchTest(absltest.TestCase):
    def test_blocks_after_the_first_are_looked_through(self):
        """Whatever is left out before the partition: ties too."""
        random = np.random.default_rng(0)
        queries = random.standard_normal((9, 4)).astype(np.float32)
        texts = random.integers(-2, 3, (3000, 4)).astype(np.float32)
        scores = queries @ texts.T
        for size in (7, 100, 3000):
            blocks = (
                (np.arange(i, min(i + size, 3000)), texts[i : i + size])
                for i in range(0, 3000, size)
            )
            found, numbers = ranking.search(queries, blocks, 20, 'dot')
            order = np.lexsort((-np.arange(3000)[None] + 0 * scores, -scores))
            np.testing.assert_array_equal(numbers, order[:, :20])
            np.testing.assert_allclose(
                found, np.take_along_axis(scores, order[:, :20], 1), rtol=1e-5
            )


class JudgeTest(parameterized.TestCase):
    @parameterized.parameters(
        ({'mlm': {}}, True, r"gives neither .*\(its rows: mlm\)"),
        ({'label': {'classes': 3}}, True, 'gives 3 classes'),
        ({'score': {}}, False, 'was taught by single texts'),
        ({'label': {'classes': 2}}, True, None),
        ({'score': {}}, True, None),
    )
    def test_what_rates_pairs(self, rows, pairs, wrong):
        """Of config.json alone: the complaint comes before the search."""
        folder = places.make()
        Config.read(workdirs.shared()).replace(
            rows={row: RowConfig(1.0, x) for row, x in rows.items()},
            task=TaskConfig('t', 'score', pairs, ('accuracy',), {}, {}),
        ).write(folder)
        if wrong is None:
            return mine.check_judge(str(folder))
        with self.assertRaisesRegex(
            commands.UsageError, f'^--rescore={folder} {wrong}; name a workdir'
        ):
            mine.check_judge(str(folder))


class CommandTest(absltest.TestCase):
    def test_the_file_that_comes_out(self):
        folder = places.make()
        pairs = [
            (f'what is a {name}', f'a {name} is a statement of the language')
            for name in ('class', 'function', 'module', 'loop', 'name', 'type')
        ]
        pairs.append((pairs[0][0], 'classes are objects'))
        path = folder / 'pairs.csv'
        with open(path, 'w', newline='') as file:
            csv.writer(file).writerows([('q', 'a'), *pairs])
        documents = ['A CLASS is a statement  of the language',
                     'what is a loop', pairs[2][1]] + [
            f'something else entirely, {i}' for i in range(40)
        ]  # fmt: skip
        (folder / 'text.txt').write_text('\n\n'.join(documents))
        encoded, encode = collections.Counter(), mine.encode

        def counted(loaded, texts, role, *given):
            encoded.update((role, text) for text in texts)
            return encode(loaded, texts, role, *given)

        with mock.patch.object(mine, 'encode', counted):
            record = mine.run(
                init=str(workdirs.shared()), pairs=str(path), negatives=2,
                corpus=f'text:{folder}/text.txt', window=9,
                relative_margin=0.0, workdir=str(folder / 'mined'),
            )  # fmt: skip
        # All documents, also what a run would hold out, and each text once.
        texts = {b for _, b in pairs} | {' '.join(d.split()) for d in documents}
        self.assertEqual(record['texts'], len(texts))
        wanted = [('query', a) for a, _ in pairs[:6]]
        wanted += [('passage', text) for text in texts]
        self.assertEqual(encoded, collections.Counter(wanted))
        self.assertEqual(record['queries'], 6)
        self.assertEqual(record['pairs'], 7)
        self.assertEqual(sum(record['found'].values()), 6)
        with open(folder / 'mined' / 'pairs.csv', newline='') as file:
            head, *rows = csv.reader(file)
        self.assertEqual(head, ['a', 'b', 'negative_1', 'negative_2'])
        self.assertEqual([tuple(row[:2]) for row in rows], pairs)
        for row in rows:
            own = {mine.same(row[0]), mine.same(row[1])}
            self.assertNoCommonElements(own, map(mine.same, row[2:]))
        self.assertTrue(any(row[2] for row in rows))
        first = {x for row in (rows[0], rows[6]) for x in row[2:]}
        self.assertNotIn('classes are objects', first)
        with self.assertRaisesRegex(commands.UsageError, 'gives neither'):
            mine.run(
                init=str(workdirs.shared()), pairs=str(path),
                rescore=str(workdirs.shared()), workdir=str(folder / 'again'),
            )  # fmt: skip
