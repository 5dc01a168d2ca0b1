"""Hard negatives: which texts are taken, and what each rule costs."""

import collections
import contextlib
import csv
import io
import json
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

import infoword_tf
from infoword_tf.config import Config, RowConfig, TaskConfig
from infoword_tf.critics import CRITICS
from tasks import mine
from tests import places
from tests.export import workdirs
from tests.refused import refused


class RulesTest(parameterized.TestCase):
    @parameterized.parameters(
        # The best below b.
        ([0.9, 0.8, 0.7, 0.6], 0.75, {}, {'negatives': 2}, [2, 3],
         {'margin': 2}),
        ([0.79, 0.74, 0.70, 0.5], 0.8, {}, {'margin': 0.05}, [1, 2, 3],
         {'margin': 1}),
        ([0.79, 0.74, 0.70, 0.5], 0.8, {}, {'relative_margin': 0.1}, [2, 3],
         {'margin': 2}),
        ([0.8, 0.7], 0.8, {}, {}, [0, 1], {}),  # without one, as near as b
        # Below a negative score, where positive (1 - m) would be above it.
        ([-0.49, -0.52, -0.56], -0.5, {}, {'relative_margin': 0.1}, [2],
         {'margin': 2}),
        # Never one's own.
        ([0.9, 0.6, 0.5], 0.95, {0, 2}, {}, [1], {'own': 2}),
        ([0.9, 0.8, 0.7, 0.6], 0.95, {0}, {'skip': 1, 'window': 1}, [2],
         {'own': 1, 'skipped': 1}),
    )  # fmt: skip
    def test_who_is_taken(self, scores, b, excluded, settings, taken, lost):
        every = range(len(scores))
        excluded = [i in excluded for i in every]
        choices = mine.MineChoices(**{'relative_margin': 0.0, **settings})
        actual = mine.select(every, scores, b, excluded, choices)
        self.assertEqual(actual.negatives, taken)
        self.assertEqual(actual.lost, lost)

    def test_nothing_is_no_text(self):
        """-1 is not the last one."""
        choices = mine.MineChoices()
        actual = mine.select([3, -1], [0.1, -np.inf], 0.9, [0, 0], choices)
        self.assertEqual(actual.negatives, [3])


def judge_of(rows, pairs=True):
    """A folder of which config.json says that it is a workdir of rows."""
    folder = places.make()
    Config.read(workdirs.shared()).replace(
        rows={row: RowConfig(1.0, x) for row, x in rows.items()},
        task=TaskConfig('t', 'score', pairs, ('accuracy',), {}, {}),
    ).write(folder)
    return folder


class JudgeTest(parameterized.TestCase):
    @parameterized.parameters(
        ({'mlm': {}}, True, '(its rows: mlm)'),
        ({'label': {'classes': 3}}, True, 'gives 3 classes'),
        ({'label': {'classes': 2, 'multilabel': True}}, True,
         'gives several labels'),
        ({'score': {}}, False, 'was taught by single texts'),
        ({'label': {'classes': 2}}, True, None),
        ({'score': {}}, True, None),
    )
    def test_what_rates_pairs(self, rows, pairs, wrong):
        """Complains by config.json alone, before the search."""
        folder = judge_of(rows, pairs)
        if wrong is None:
            return mine.check_judge(str(folder))
        with refused('rescore_cannot_judge', f'--rescore={folder}', wrong):
            mine.check_judge(str(folder))

    def test_a_number_is_the_score(self):
        model = mock.Mock(
            rows_that=lambda answer: ['score'] if answer == 'numbers' else [],
            rate=lambda first, second: [first, second],
        )
        self.assertEqual(mine.rated(model, ['a'], ['b']), [['a'], ['b']])

    def test_no_document_is_of_use(self):
        folder = places.make()
        (folder / 'qrels').mkdir()
        (folder / 'qrels' / 'train.tsv').write_text('q\td\t0\n')
        for name, id in ('corpus', 'd'), ('queries', 'q'):
            line = json.dumps({'_id': id, 'text': name})
            (folder / f'{name}.jsonl').write_text(line)
        with refused('no_positive_judgement', folder.name):
            mine.read_folder(mine.MineChoices(), folder)


# How well texts belong to a, as people might say. Of the two b of `CLASS` one
# scores less: what is below both is a negative, which `near` is not.
CLASS, LOOP = 'what is a class', 'what is a loop'
BELONG = {
    'a class is a statement of the language': 0.9, 'classes are objects': 0.5,
    'A CLASS is a Statement of the language': 0.1, 'What IS a class': 0.1,
    'near': 0.7, 'close': 0.45, 'far': 0.3, 'further': 0.2,
    'a loop repeats': 0.05,
}  # fmt: skip


class Judge:
    """A cross-encoder of two classes: whether texts belong together."""

    def rows_that(self, answer):
        return []

    def classify(self, first, second):
        scores = [
            BELONG[b] if a == CLASS else 0.6 * (b == 'a loop repeats')
            for a, b in zip(first, second, strict=True)
        ]
        return np.stack([1 - np.array(scores), scores], axis=1)


class MineCommandTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = places.make()
        self.loaded = infoword_tf.load(workdirs.shared())
        judge = judge_of({'label': {'classes': 2}})
        models = {str(workdirs.shared()): self.loaded, str(judge): Judge()}
        self.enterContext(
            mock.patch.object(
                infoword_tf, 'load', lambda folder, *_: models[folder]
            )
        )
        self.judge = str(judge)
        first, second, *texts, third = BELONG
        self.pairs = [(CLASS, first), (CLASS, second), (LOOP, third)]
        rows = [{'query': CLASS, 'pos': [first, second]},
                {'query': LOOP, 'pos': [third], 'neg': ['far']}]  # fmt: skip
        path = self.folder / 'pairs.jsonl'
        path.write_text('\n'.join(map(json.dumps, rows)))
        documents = '\n\n'.join(texts).replace('CLASS is', 'CLASS  is')
        (self.folder / 'text.txt').write_text(documents)

    def mined(self, **chosen):
        """Returns what metrics.json says, and the rows of pairs.csv."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            record = mine.run(
                init=str(workdirs.shared()), relative_margin=0.0,
                workdir=str(self.folder / 'mined'), **{
                    'pairs': f'{self.folder}/pairs.jsonl',
                    'corpus': f'text:{self.folder}/text.txt', **chosen,
                },
            )  # fmt: skip
        self.printed = printed.getvalue()
        with open(self.folder / 'mined' / 'pairs.csv', newline='') as file:
            head, *rows = csv.reader(file)
        names = [f'negative_{i + 1}' for i in range(len(head) - 2)]
        self.assertEqual(head, ['a', 'b', *names])
        self.assertEqual([tuple(row[:2]) for row in rows], self.pairs)
        return record, [list(filter(None, row[2:])) for row in rows]

    def by_likeness(self, a, texts):
        """Texts as the model orders them, the nearest first."""
        x, y = (self.loaded.encode(z, normalize=True, progress=False)
                for z in ([a], texts))  # fmt: skip
        return [texts[i] for i in np.argsort(-(y @ x[0]), kind='stable')]

    def test_what_a_judge_leaves(self):
        """The scores are the judge's, the order is that of the vectors."""
        record, (one, same, other) = self.mined(
            negatives=9, window=9, rescore=self.judge
        )
        below = ['close', 'far', 'further', 'a loop repeats']
        self.assertEqual(one, self.by_likeness(CLASS, below))
        self.assertEqual(same, one)
        # Copies of the b of another a, case and spaces apart, are negatives.
        others = [text for text in BELONG if text != 'a loop repeats']
        self.assertCountEqual(other, others)
        self.assertEqual(  # copies are as near as each other
            [text.casefold() for text in other],
            [text.casefold() for text in self.by_likeness(LOOP, others)],
        )
        self.assertIn('2 of 2 texts have fewer than 9 neg', self.printed)
        expected = {'lost': {'own': 5, 'skipped': 0, 'margin': 1}, 'pairs': 3,
                    'queries': 2, 'texts': 9}  # fmt: skip
        self.assertLessEqual(expected.items(), record.items())
        self.assertEqual({k: v for k, v in record['found'].items() if v},
                         {'4': 1, '8': 1})  # fmt: skip

    def test_each_text_is_encoded_once(self):
        """All documents, also what a run would hold out."""
        encoded, encode = collections.Counter(), CRITICS['cosine'].encode

        def counted(loaded, texts, role, **named):
            encoded.update((role, text) for text in texts)
            return encode(loaded, texts, role, **named)

        with mock.patch.object(CRITICS['cosine'], 'encode', counted):
            _, (one, _, other) = self.mined(negatives=1, rescore=self.judge)
        expected = [('query', CLASS), ('query', LOOP)]
        expected += [('passage', text) for text in BELONG]
        self.assertEqual(encoded, collections.Counter(expected))
        self.assertEqual((len(one), len(other)), (1, 1))
        self.assertNotIn('fewer than', self.printed)

    def test_another_critic(self):
        folder = places.make()
        config = Config.read(workdirs.shared())
        config.replace(critics={'late': None}).write(folder)
        choices = mine.MineChoices(
            init=str(folder), workdir=str(folder / 'mined'), pairs='pairs.csv'
        )
        with refused('mine_by_other_critic', f'--init={folder}', 'late'):
            mine.check(choices, {})

    def test_no_judged_document_of_a_query_is_its_negative(self):
        """Whatever its grade, and whether it is one of the pairs."""
        texts = list(BELONG)
        first, second, *_, far, _, loop = texts
        judged = [(0, second, 1), (0, first, 2), (0, 'close', 0),
                  (1, loop, 1), (1, far, -1)]  # fmt: skip
        lines = [f'{q}\t{texts.index(b)}\t{grade}' for q, b, grade in judged]
        (self.folder / 'qrels').mkdir()
        (self.folder / 'qrels' / 'train.tsv').write_text('\n'.join(lines))
        for name, each in (('corpus', texts), ('queries', [CLASS, LOOP])):
            (self.folder / f'{name}.jsonl').write_text('\n'.join(
                json.dumps({'_id': str(i), 'text': text})
                for i, text in enumerate(each)
            ))  # fmt: skip
        self.pairs = [(CLASS, first), (CLASS, second), (LOOP, loop)]
        chosen = {'pairs': None, 'corpus': None, 'data_dir': str(self.folder),
                  'negatives': 9, 'rescore': self.judge}  # fmt: skip
        record, (one, same, other) = self.mined(**chosen)
        self.assertCountEqual(one, ['far', 'further', loop])
        self.assertEqual(same, one)
        self.assertCountEqual(other, {*texts} - {far, loop})
        self.assertEqual((record['pairs'], record['texts']), (3, 9))
        del self.pairs[1]
        _, (one, _) = self.mined(**chosen, positives=1)
        self.assertCountEqual(one, ['near', 'far', 'further', loop])
