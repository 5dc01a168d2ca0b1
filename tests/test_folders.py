"""Folders of others where a workdir is asked for."""

import contextlib
import io
import shutil
from unittest import mock

import numpy as np
from absl.testing import absltest

import infoword_tf
from infoword_tf import convert, errors
from infoword_tf import folders as subject
from infoword_tf.choices import RunChoices
from infoword_tf.config import WEIGHTS, Config
from infoword_tf.training import begin
from tests import places, runs
from tests.eager import eagerly
from tests.refused import refused
from tests.weights import folders

TEXTS = ['a cab', 'bad dad', '']


def setUpModule():
    global FOLDER, SOURCE, MADE
    runs.set_up()
    FOLDER = places.make()
    SOURCE = folders.write(FOLDER / 'source', 'bert')
    with contextlib.redirect_stderr(io.StringIO()) as printed:
        MADE = subject.workdir_of(SOURCE)
    assert 'source: note: ' in printed.getvalue(), printed.getvalue()


class FoldersTest(absltest.TestCase):
    def test_is_what_convert_makes(self):
        convert.convert(SOURCE, FOLDER / 'converted')
        self.assertEqual(
            (MADE / WEIGHTS).read_bytes(),
            (FOLDER / 'converted' / WEIGHTS).read_bytes(),
        )
        with eagerly():
            expected = infoword_tf.load(FOLDER / 'converted').encode(TEXTS)
            actual = infoword_tf.load(str(SOURCE)).encode(TEXTS)
        np.testing.assert_array_equal(actual, expected)

    def test_is_made_once(self):
        """Makes one of the same bytes, wherever they lie."""
        folder = FOLDER / 'elsewhere'
        shutil.copytree(SOURCE, folder)
        (folder / 'README.md').write_text('words')
        with (
            mock.patch.object(subject.subprocess, 'run') as run,
            contextlib.redirect_stderr(io.StringIO()) as printed,
        ):
            self.assertEqual(subject.workdir_of(folder), MADE)
        run.assert_not_called()
        # What conversion left out is said again.
        self.assertStartsWith(
            printed.getvalue(), f'{folder}: note: not converted'
        )
        # Other bytes are another model, be there as many.
        config = (folder / 'config.json').read_text()
        config = config.replace('"gelu"', '"relu"')
        (folder / 'config.json').write_text(config)
        (folder / 'tokenizer_config.json').write_text(
            '{"additional_special_tokens": ["[FAR]"]}'
        )
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            other = subject.workdir_of(folder, begin.convert)
        self.assertRegex(
            printed.getvalue(), "elsewhere: note: .*token '.FAR.' has no embed"
        )
        self.assertNotEqual(other, MADE)
        self.assertEqual(Config.read(other).encoder.arguments['activation'],
                         'relu')  # fmt: skip
        self.assertEqual({x.name for x in MADE.parent.iterdir()},
                         {MADE.name, other.name})  # fmt: skip
        weights = bytearray((folder / 'model.safetensors').read_bytes())
        weights[-1] ^= 1
        (folder / 'model.safetensors').write_bytes(weights)
        with mock.patch.object(subject.subprocess, 'run') as run:
            stderr = f'a warning\nerror: --source={folder}: asked\n'
            run.return_value = mock.Mock(returncode=1, stderr=stderr)
            with self.assertRaises(errors.InputError) as raised:
                infoword_tf.load(folder)
        self.assertEqual(raised.exception.id, 'folder_not_converted')
        self.assertEqual(str(raised.exception), f'{folder}: asked')
        # And in the same process.
        (folder / 'config.json').write_text('{"model_type": "mamba"}')
        with refused('folder_not_converted', folder, "'mamba'", 'bert'):
            subject.workdir_of(folder, begin.convert)
        left = subject.files.cache_dir() / 'models'
        self.assertEmpty([x for x in left.iterdir() if x.name.startswith('.')])

    def test_a_damaged_one_is_made_anew(self):
        whole = FOLDER / 'whole'
        shutil.copytree(MADE, whole)

        def convert_again(command, **_):
            _, workdir = command[-1].split('=')
            shutil.copytree(whole, workdir)
            return mock.Mock(returncode=0, stdout='')

        (MADE / 'config.json').unlink()
        (MADE / 'left').touch()
        with mock.patch.object(subject.subprocess, 'run', convert_again):
            self.assertEqual(subject.workdir_of(SOURCE), MADE)
        self.assertTrue((MADE / 'config.json').is_file())
        self.assertFalse((MADE / 'left').exists())

    def test_what_is_none_is_itself(self):
        for folder in (MADE, FOLDER, FOLDER / 'missing'):
            self.assertEqual(subject.workdir_of(folder), folder)

    def test_adapters_are_of_another_model_when_their_base_is(self):
        base, folder = FOLDER / 'base', FOLDER / 'adapters'
        self.enterContext(mock.patch.dict(
            subject.os.environ, INFOWORD_CACHE=str(FOLDER / 'cached')
        ))  # fmt: skip
        shutil.copytree(SOURCE, base)
        folder.mkdir()
        (folder / subject.ADAPTER).write_text(
            f'{{"base_model_name_or_path": "{base}"}}'
        )
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))
        workdirs = []
        for activation in 'gelu', 'gelu', 'relu':
            folders.change(base / 'config.json', hidden_act=activation)
            workdirs.append(subject.workdir_of(
                folder, lambda _, workdir: shutil.copytree(MADE, workdir)
            ))  # fmt: skip
        self.assertEqual(workdirs[0], workdirs[1])
        self.assertNotEqual(workdirs[0], workdirs[2])

    def test_choices_that_name_models(self):
        source = str(SOURCE)
        named = {'init': source, 'objectives': source,
                 'settings': {'simcse.guide': source, 'nosuch.guide': source,
                              'diffcse.generator': ''}}  # fmt: skip
        expected = {'init': str(MADE), 'objectives': source,
                  'settings': {'simcse.guide': str(MADE),
                               'nosuch.guide': source,
                               'diffcse.generator': ''}}  # fmt: skip
        choices = subject.with_workdirs(RunChoices(**named), named)
        self.assertEqual(choices, RunChoices(**expected))
        self.assertEqual(named['init'], source)

    def test_complaints_come_first(self):
        with (
            mock.patch.object(subject, 'workdir_of') as converted,
            refused('unknown_row', "'mml'"),
        ):
            infoword_tf.train(
                init=str(SOURCE), objectives='mml', workdir=str(FOLDER / 'no')
            )
        converted.assert_not_called()

    def test_converted_in_the_same_process(self):
        expected = (MADE / WEIGHTS).read_bytes()
        shutil.rmtree(MADE)
        with (
            mock.patch.object(subject.subprocess, 'run') as run,
            contextlib.redirect_stderr(io.StringIO()) as printed,
        ):
            actual = subject.workdir_of(SOURCE, begin.convert)
        run.assert_not_called()
        self.assertEqual(actual, MADE)
        self.assertEqual((MADE / WEIGHTS).read_bytes(), expected)
        self.assertIn('note: not converted', printed.getvalue())

    def test_a_run_begins_with_one(self):
        flags = f'--init={SOURCE}', '--objectives=mlm', '--seq_len=16'
        for _ in range(2):  # it goes on, with the same flags
            runs.run_here(FOLDER / 'run', *flags)
        config = Config.read(FOLDER / 'run')
        self.assertEqual(config.run['init'], str(MADE))
        # Its flags, and so the card of an export, name what was typed.
        typed = (FOLDER / 'run' / 'flags.txt').read_text()
        self.assertIn(f'--init={SOURCE}\n', typed)
        self.assertNotIn(MADE.name, typed)
