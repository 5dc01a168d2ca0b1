"""What TensorBoard's Embedding Projector is given."""

import csv
import json
import pathlib
from types import SimpleNamespace

import numpy as np
from absl.testing import absltest
from google.protobuf import text_format
from tensorboard.plugins.projector import ProjectorConfig, projector_plugin

import infoword_tf
from infoword_tf import commands
from infoword_tf.training import projector
from tests import places, runs
from tests.runs import run_here


def setUpModule():
    runs.set_up()


def written(workdir):
    """Columns of the texts by name, and vectors as the plugin reads them."""
    folder = pathlib.Path(workdir) / 'tensorboard'
    config = text_format.Parse(
        (folder / 'projector_config.pbtxt').read_text(), ProjectorConfig()
    )
    (found,) = config.embeddings
    vectors = projector_plugin._read_tensor_tsv_file(
        str(folder / found.tensor_path)
    )
    assert list(vectors.shape) == list(found.tensor_shape), vectors.shape
    with open(folder / found.metadata_path, newline='') as file:
        rows = list(csv.reader(file, delimiter='\t', quoting=csv.QUOTE_NONE))
    names = ['text']
    if len(rows[0]) > 1:
        names, *rows = rows
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    assert len(rows) == len(vectors)
    return columns, vectors


class ProjectorTest(absltest.TestCase):
    def check(self, workdir, count):
        """Vectors are those of the texts, by the weights at the end."""
        columns, vectors = written(workdir)
        self.assertLen(vectors, count)
        loaded = infoword_tf.load(workdir)
        again = loaded.encode(list(columns['text']), progress=False)
        np.testing.assert_allclose(vectors, again, rtol=1e-4, atol=1e-5)
        return columns

    def test_sentences_of_a_text(self):
        workdir = places.make() / 'run'
        run_here(workdir, '--projector=7', '--steps=2', '--eval_every=1')
        columns = self.check(workdir, 7)
        self.assertEqual(list(columns), ['text'])
        self.assertLen(set(columns['text']), 7)
        held = pathlib.Path(runs.TEXT['heldout']).read_text().lower()
        held = ''.join(held.split())
        for text in columns['text']:
            self.assertIn(''.join(text.split()), held)
        # As the plugin itself finds it in the folder.
        plugin = projector_plugin.ProjectorPlugin(
            SimpleNamespace(
                logdir=str(workdir / 'tensorboard'),
                data_provider=SimpleNamespace(list_runs=lambda *a, **k: []),
            )
        )
        plugin._update_configs()
        self.assertEqual(list(plugin._configs), ['.'])

    def test_texts_of_pairs_and_of_languages(self):
        folder = places.make()
        corpus = pathlib.Path(runs.TEXT['corpus'].removeprefix('text:'))
        lines = [x for x in corpus.read_text().split('\n') if x][:60]
        (folder / 'pairs.csv').write_text(
            'a,b\n' + ''.join(f'"{i} first","{i} second"\n' for i in range(90))
        )
        run_here(
            folder / 'pairs', f'--pairs={folder}/pairs.csv', '--projector=3',
            '--objectives=simcse', '--steps=1',
        )  # fmt: skip
        columns = self.check(folder / 'pairs', 3)
        for text in columns['text']:
            self.assertRegex(text, r'^\d+ first$')
        for part, some in (('text', lines[:40]), ('held', lines[40:])):
            for name in ('de', 'en'):
                (folder / f'{part}.{name}').write_text(
                    ''.join(f'{name} {line}\n' for line in some)
                )
        run_here(
            folder / 'languages', f'--parallel={folder}/text.{{de,en}}',
            f'--heldout_parallel={folder}/held.{{de,en}}',
            '--objectives=xlco', '--projector=10', '--steps=1',
        )  # fmt: skip
        columns = self.check(folder / 'languages', 10)
        self.assertEqual(columns['language'], ('de',) * 5 + ('en',) * 5)
        for i in range(5):  # the same pairs of both
            self.assertEqual(
                columns['text'][i][3:12], columns['text'][i + 5][3:12]
            )

    def test_labels_and_scores(self):
        examples = SimpleNamespace(
            texts=2, size=2, ids=np.array([7, 8, 9, 7, 7]),
            begins=np.array([0, 1, 3, 4, 5]),
            targets={'label': np.array([1, 0]), 'score': np.array([0.5, 3])},
        )  # fmt: skip
        tokenizer = SimpleNamespace(text=lambda ids: ' '.join(map(str, ids)))
        part = projector.of_examples(examples, tokenizer, ['no', 'yes'])
        self.assertEqual(
            projector.chosen([part], 2),
            [
                {'text': '7', 'label': 'yes', 'score': '0.5'},
                {'text': '7', 'label': 'no', 'score': '3'},
            ],
        )

    def test_texts_are_spread_over_all_parts(self):
        parts = [
            projector.Part(size, lambda i, name=name: {'text': f'{name}{i}'})
            for name, size in (('a', 3), ('b', 0), ('c', 5))
        ]
        found = [row['text'] for row in projector.chosen(parts, 4)]
        self.assertEqual(found, ['a0', 'a2', 'c1', 'c3'])
        found = [row['text'] for row in projector.chosen(parts, 8)]
        self.assertEqual(found, [*'a0 a1 a2 c0 c1 c2 c3 c4'.split()])

    def test_more_than_there_are(self):
        part = projector.Part(5, lambda i: {})
        message = '^--projector=6: this run has 5 held-out texts; lower it'
        with self.assertRaisesRegex(commands.UsageError, message):
            projector.chosen([part], 6)
        with self.assertRaisesRegex(commands.UsageError, 'no held-out text'):
            projector.chosen([part._replace(size=0)], 1)
        workdir = places.make() / 'run'
        with self.assertRaisesRegex(commands.UsageError, '--projector=999999'):
            run_here(workdir, '--projector=999999')

    def test_a_line_is_a_text(self):
        """Whatever stands in it."""
        line = projector._line(['a\tb\r\n c\x0b\u2028d', '', 'x'])
        self.assertEqual(line, 'a b c d\t-\tx\n')

    def test_it_is_no_part_of_a_run(self):
        """The same weights, and a run goes on with another number."""
        folder = places.make()
        run_here(folder / 'a', '--steps=2')
        run_here(folder / 'b', '--steps=2', '--projector=5')
        one, two = (
            (folder / name / 'weights.safetensors').read_bytes()
            for name in 'ab'
        )
        self.assertEqual(one, two)
        record = json.loads((folder / 'b' / 'config.json').read_text())['run']
        self.assertNotIn('projector', record)


if __name__ == '__main__':
    absltest.main()
