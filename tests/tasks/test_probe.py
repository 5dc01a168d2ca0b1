"""tasks.probe on texts whose classes are known, and on vectors made by hand."""

import csv
from pydoc_data.topics import topics
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf.evaluation import models
from tasks import probe
from tests import places
from tests.export import workdirs
from tests.tasks import command, counting

TOPICS = ('debugger', 'string-methods')


def paragraphs(name):
    """Those of a topic of the language reference that are sentences."""
    actual = (' '.join(part.split()) for part in topics[name].split('\n\n'))
    return [text for text in actual if len(text.split()) > 5]


def clouds(count, width, distance, classes=2):
    """[n, D] around one point a class, and [n] classes."""
    random = np.random.default_rng(0)
    targets = np.arange(count) % classes
    vectors = random.standard_normal((count, width))
    vectors[np.arange(count), targets] += distance
    return vectors, targets


def accuracy(vectors, targets, train_count):
    splits = probe.splits_of(targets, train_count)
    probed = probe.probe(vectors, targets, splits)
    return probe.measure(probed, targets, train_count)['accuracy']


class ProbeTest(absltest.TestCase):
    def test_noise_is_not_learned(self):
        """No text is scored by what it was learned from.

        Of 64 numbers a plane nearly parts 80 texts, whatever their labels.
        """
        vectors, targets = clouds(80, 64, distance=0)
        deviation = 100 * np.sqrt(0.25 / 80)
        actual = accuracy(vectors, targets, 80)
        self.assertBetween(actual, 50 - 3 * deviation, 50 + 3 * deviation)

    def test_three_clouds(self):
        vectors, targets = clouds(90, 4, distance=12, classes=3)
        self.assertEqual(accuracy(vectors, targets, 90), 100.0)
        self.assertEqual(accuracy(vectors, targets, 60), 100.0)

    def test_the_scale_of_vectors_does_not_matter(self):
        vectors, targets = clouds(80, 4, distance=1.5)
        actual = [
            probe.probe(v, targets, probe.splits_of(targets, 40))
            for v in (vectors, 1000 * vectors + 7)
        ]
        np.testing.assert_array_equal(*(x.predictions for x in actual))
        self.assertEqual(actual[0].strengths, actual[1].strengths)

    def test_what_is_scored_is_not_trained_on(self):
        """One text far away changes what is said of no other."""
        vectors, targets = clouds(80, 4, distance=1.5)
        splits = probe.splits_of(targets, 40)
        near = probe.probe(vectors, targets, splits)
        vectors[79] *= 1e6
        far = probe.probe(vectors, targets, splits)
        np.testing.assert_array_equal(
            near.predictions[:-1], far.predictions[:-1]
        )

    def test_measures(self):
        """3 of 4 right; class 1 is commonest in training, once of 4 here."""
        targets = np.array([0, 1, 1, 0, 0, 1, 2])
        probed = probe.Probed(np.array([0, 0, 1, 1]), np.arange(3, 7), [0.1])
        self.assertEqual(probe.measure(probed, targets, 3), {
            'accuracy': 75.0, 'standard_error': 21.65,  # sqrt(.75 * .25 / 4)
            'majority': 25.0, 'n': 4, 'train_n': 3, 'folds': 0, 'C': [0.1],
        })  # fmt: skip


class ProbeFilesTest(places.Folder, command.Checks, parameterized.TestCase):
    def write(self, name, content):
        (self.folder / name).write_bytes(content)

    def table(self, name, rows):
        path = self.folder / name
        with open(path, 'w', newline='') as file:
            csv.writer(file).writerows([('body', 'topic'), *rows])
        return path

    def run_probe(self, *arguments):
        return command.run(probe, f'--workdir={self.folder}/out', *arguments)

    def read(self, **choices):
        return probe.read(probe.ProbeChoices(train=str(self.folder), **choices))

    def test_the_layout_of_mr(self):
        """Latin-1, whose 0x85 ends no line; blank lines are no texts."""
        self.write('rt-polarity.pos', b'a clich\xe9 \x85 that works \n\nfine\n')
        self.write('rt-polarity.neg', b'dull\r\n')
        rows, scored = self.read()
        self.assertIsNone(scored)
        self.assertEqual(rows.first, ['dull', 'a clich\xe9 \x85 that works',
                                      'fine'])  # fmt: skip
        self.assertEqual(rows.labels, ['neg', 'pos', 'pos'])
        self.assertEqual(rows.lines.tolist(), [1, 1, 3])

    def test_utf_8_stays_what_it_is(self):
        self.write('x.pos', 'a cliché\n'.encode())
        self.write('x.neg', b'dull\n')
        self.assertEqual(self.read()[0].first, ['dull', 'a cliché'])

    def test_the_layout_of_trec(self):
        self.write(
            'train_5500.label',
            b'DESC:manner How did serfdom : leave Russia ?\n'
            b'ENTY:other What is a \xf0 ?\n',
        )
        self.write('TREC_10.label', b'ENTY:plant What is it ?\n')
        rows, scored = self.read()
        self.assertEqual(rows.first, ['How did serfdom : leave Russia ?',
                                      'What is a ð ?'])  # fmt: skip
        self.assertEqual(rows.labels, ['DESC', 'ENTY'])
        self.assertEqual(scored.first, ['What is it ?'])
        self.assertEqual(scored.labels, ['ENTY'])

    def test_real_text(self):
        """Paragraphs of two topics, told apart by vectors of random weights."""
        rows = [(text, name) for name in TOPICS for text in paragraphs(name)]
        done = command.succeeded(self.run_probe(
            f'--init={workdirs.shared()}', '--text=body', '--label=topic',
            f'--train={self.table("rows.csv", rows)}',
        ))  # fmt: skip
        actual = done.result
        counts = [len(paragraphs(name)) for name in TOPICS]
        self.assertEqual(actual['n'], sum(counts))
        self.assertEqual(actual['classes'], list(TOPICS))
        self.assertEqual(
            actual['majority'], round(100 * max(counts) / sum(counts), 2)
        )
        self.assertEqual((actual['folds'], len(actual['C'])), (10, 10))
        self.assertGreater(actual['accuracy'], actual['majority'] + 20)

    def test_a_table_to_score(self):
        """Counts words of two classes by a stand-in for a model."""
        def encode(texts, role):
            return counting.embed(texts).numpy()

        tables = [
            self.table(name, count * [('cats', 'x'), ('boats', 'y')])
            for name, count in (('train.csv', 5), ('dev.csv', 2))
        ]
        with mock.patch.object(
            models, 'vectors_of', lambda *_, **__: (encode, 'cosine')
        ):
            done = command.succeeded(self.run_probe(
                '--init=any', '--text=body', '--label=topic',
                f'--train={tables[0]}', f'--dev={tables[1]}',
            ))  # fmt: skip
        expected = {'n': 4, 'train_n': 10, 'accuracy': 100.0}
        self.assertLessEqual(expected.items(), done.result.items())

    def test_an_export_puts_its_own_prompt_before_texts(self):
        """The default, as `encode` does, not that of passages."""

        def signature(value):
            return lambda texts: {'embeddings': tf.fill([len(texts), 2], value)}

        config = counting.config('cosine', prompts={'passage': 'p: '})
        names = {'embed': signature(1.0), 'embed_passage': signature(2.0)}
        with (
            mock.patch.object(
                models, 'read_exported', return_value=(config, None)
            ),
            mock.patch.object(
                tf.saved_model, 'load', return_value=mock.Mock(signatures=names)
            ),
        ):
            encode, _ = models.vectors_of(None, 'm/1')
            actual = encode(['a', 'b'], None)
        np.testing.assert_array_equal(actual, np.ones((2, 2)))
