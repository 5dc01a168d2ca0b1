"""Several versions of one model: they answer alike, and a student's card."""

import dataclasses
import json
import pathlib
import re
import string

from absl.testing import absltest

from export import bundle, card
from infoword_tf import files
from infoword_tf.config import (
    Config,
    RowConfig,
    TaskConfig,
    TeacherConfig,
    read_exported,
)
from tests import places
from tests.export import finetuned, workdirs
from tests.refused import refused


def setUpModule():
    global FOLDER
    FOLDER = places.make()


class VersionsTest(absltest.TestCase):
    def test_a_student_beside_its_teacher(self):
        teacher, student = finetuned.workdir('classes'), finetuned.student()
        folder = finetuned.versions()
        first, second = (read_exported(folder / version) for version in '12')
        self.assertEqual(first[1]['signatures'], second[1]['signatures'])
        self.assertIsNone(first[0].teacher)
        known = second[0].teacher
        metrics = json.loads((student / 'metrics.json').read_text())
        self.assertEqual(known.name, str(teacher))
        self.assertIn(known.digest, second[0].run['teacher'])
        layers = Config.read(teacher).encoder.arguments['layers']
        self.assertEqual(known.layers, layers)
        self.assertEqual(known.metric, 'accuracy')
        self.assertEqual(known.score, metrics['teacher_accuracy'])

    def test_another_is_refused(self):
        folder = FOLDER / 'mixed'
        with workdirs.traced():
            bundle.write(workdirs.shared(), folder)
        lacks = 'classify, fill_mask, labels, serving_default'
        with refused('other_answers', 'mixed/1', lacks):
            bundle.write(finetuned.workdir('classes'), folder, 2)
        # Neither a trace of it, nor of what is no version.
        self.assertEqual(
            {p.name for p in folder.iterdir()}, {'1', 'MODEL_CARD.md'}
        )

    def test_other_labels_are_refused_and_other_widths_are_not(self):
        config, described = read_exported(workdirs.exported())
        config = config.replace(labels=('a', 'b'))
        folder = places.make(self.addCleanup)
        for name, of in (
            ('1', config), ('.2.here.77', config.replace(dims=7)),  # partial
        ):  # fmt: skip
            path = folder / name / bundle.EXPORTED
            path.parent.mkdir(parents=True)
            files.write_json(path, {**of.to_json(), 'export': described})
        several = {'label': RowConfig(1.0, {'multilabel': True})}
        output = described['signatures']['embed']['embeddings']
        output[-1] += 1
        bundle.check_same(folder, config, described)
        for changes, kind, what in (
            ({'labels': ('a', 'c')}, 'float32', 'labels'),
            ({'labels': ('b', 'a')}, 'float32', 'labels'),
            ({'dims': 8}, 'float32', 'dims'),
            ({'rows': several}, 'float32', 'number of labels'),
            ({}, 'float16', 'embed'),
        ):
            output[0] = kind
            with refused('other_answers', f'1 has another {what} than'):
                bundle.check_same(folder, config.replace(**changes), described)
        output[0] = 'float32'
        with refused('other_answers', 'another serving_default than'):
            bundle.check_same(folder, config, {**described, 'default': 'tag'})

    def test_a_version_that_another_export_wrote_stays(self):
        folder = places.make(self.addCleanup)
        partial = folder / '.1.here.77'
        for path in partial, folder / '1':
            path.mkdir()
            (path / 'x').write_text(path.name)
        with self.assertRaisesRegex(FileExistsError, 'write --version=2'):
            bundle._appear(partial, folder, 1)
        self.assertEqual((folder / '1' / 'x').read_text(), '1')
        bundle._appear(partial, folder, 2)
        self.assertEqual((folder / '2' / 'x').read_text(), partial.name)

    def test_fewer_numbers_of_vectors(self):
        model = workdirs.loaded()
        self.assertEqual(bundle.with_dims(model, 64).config.dims, 64)
        self.assertIsNone(bundle.with_dims(model, None).config.dims)
        with refused('dims_over_width', '65', '64'):
            bundle.with_dims(model, 65)

    def test_a_card_names_no_folders_of_a_machine(self):
        here = pathlib.Path.cwd()
        for value, expected in (
            ('text:/home/anna/my books/*.txt', 'text:.../*.txt'),
            ('--heldout=/home/anna/held.txt', '--heldout=.../held.txt'),
            ('/srv/a/b.tsv,/srv/c.tsv', '.../b.tsv,.../c.tsv'),
            (f'--init={here}/runs/a', '--init=runs/a'),
            ('text:books/**/*.txt.gz', 'text:books/**/*.txt.gz'),
            ('../books/a.txt', '../books/a.txt'),
            ('~/books/a.txt', '~/books/a.txt'),
            ('books (old)/a.txt', 'books (old)/a.txt'),
            ('https://books.org/a/b', 'https://books.org/a/b'),
            ('tfds:glue/cola', 'tfds:glue/cola'),
        ):
            self.assertEqual(card.portable(value), expected)

    def test_nor_does_all_of_it(self):
        config = Config.read(finetuned.workdir('classes'))
        places = {'corpus': 'text:/srv/a.txt', 'heldout': '/srv/b.txt'}
        _, described = read_exported(finetuned.exported('classes'))
        for more in (places, {'init': '/srv/run'}, {'source': '/srv/model'}):
            config = config.replace(run={**config.run, **more})
            card_text = card.render(config, described, 5, '--init=/srv/x\n', {})
            self.assertNotIn('/srv', card_text)
            self.assertNotIn(str(finetuned.folder()), card_text)

    def test_a_card_names_models_as_they_were_typed(self):
        """A run of public folders reads workdirs of the cache."""
        one, other = '/cache/models/3f2a', '/cache/models/9c41'
        config = Config.read(workdirs.shared()).replace(
            teacher=TeacherConfig(one, 'abc', 6, 2_000_000)
        )
        _, described = read_exported(workdirs.exported())
        for init, flags, names in (
            (other, '--init=bge-m3\n--teacher=/srv/MiniLM\n',
             ('`bge-m3`', '`.../MiniLM`')),
            (one, '--teacher=MiniLM\n', ('`MiniLM`', '`MiniLM`')),
            (one, '--layers=1\n', ('`.../3f2a`', '`.../3f2a`')),
        ):  # fmt: skip
            config.run['init'] = init
            text = card.render(config, described, None, flags, {})
            self.assertIn(f'Started from the weights of {names[0]}.', text)
            self.assertIn(f'A student of {names[1]} (weights abc)', text)
            section = card.lost(config, 1, {}, flags)
            self.assertIn(f'A student of {names[1]} (weights abc)', section)

    def test_a_card_knows_all_facts_of_its_template(self):
        """A line with one that nobody knows would be left out, unseen."""
        code = pathlib.Path(card.__file__)
        text = code.with_suffix('.md').read_text()
        names = {part[1] for part in string.Formatter().parse(text) if part[1]}
        self.assertGreater(len(names), 40)
        for name in names:
            self.assertIn(f"'{re.match('[a-z_]+', name)[0]}'", code.read_text())

    def test_the_card_of_a_student_that_nobody_scored(self):
        config = Config.read(workdirs.shared()).replace(
            teacher=TeacherConfig('runs/large', 'abc', 6, 2_000_000)
        )
        self.assertEqual(Config.from_json(config.to_json()), config)
        _, described = read_exported(workdirs.exported())
        card_text = card.render(
            config, {**described, 'weights': 500_000}, None, '', {}
        )
        self.assertIn('| weights | 2,000,000 | 500,000 | 25% |', card_text)
        self.assertIn('| MB in float32 | 8.0 | 2.0 | |', card_text)
        self.assertIn('| layers | 6 | 1 | |', card_text)
        self.assertNotIn('held out |', card_text)
        teacher = dataclasses.replace(config.teacher, metric='f1', score=0.5)
        task = TaskConfig('t', 'label', False, ('f1',), dict.fromkeys(
            ('train', 'heldout'), 'x.tsv'), {})  # fmt: skip
        config = config.replace(
            task=task, rows={'label': RowConfig(1.0, {})}, teacher=teacher
        )
        card_text = card.render(
            config, {**described, 'weights': 500_000}, None, '',
            {'heldout/label/f1': 0.75},
        )  # fmt: skip
        self.assertIn('| f1, held out | 0.5000 | 0.7500 | +0.2500 |', card_text)
