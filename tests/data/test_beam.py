"""A pipeline of Apache Beam leaves the bytes that processes leave.

`FnApiRunner` is what `DirectRunner` runs in memory; asked for by its own name
it looks for no other program on the net.
"""

import contextlib
import importlib.util
import io
import json
import pathlib
import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest

from infoword_tf import commands, prepare
from infoword_tf.data import sharding
from tests import places

FOLDER = None
NEAR = {'duplicates': 'near', 'similarity': 0.7, 'min_words': 10}
HAS_BEAM = importlib.util.find_spec('apache_beam') is not None
needs_beam = unittest.skipUnless(
    HAS_BEAM, 'Apache Beam is not installed: make beam-check'
)


def setUpModule():
    """Texts, and files of them in which earlier ones come again."""
    global FOLDER
    FOLDER = places.make()
    random = np.random.default_rng(0)
    vocabulary = [f'word{i}' for i in range(200)]
    texts = []
    for name in 'ab':
        documents = []
        for number in range(150):
            text = [*random.choice(vocabulary, random.integers(5, 90))]
            if number % 5 == 4:
                text = [*texts[random.integers(len(texts))]]
            if number % 10 == 9:
                text[random.integers(len(text))] = 'other'
            texts.append(text)
            documents.append(' '.join(text) + '.')
        (FOLDER / f'{name}.txt').write_text('\n\n'.join(documents))


def made(output, **more):
    given = {
        'corpus': f'text:{FOLDER}/?.txt', 'vocab_size': 300,
        'shard_size': 0.012, 'output': str(output), **more,
    }  # fmt: skip
    if 'beam_options' not in given:
        given['processes'] = 1
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        return prepare.run(**given)


def by_beam(output, **more):
    return made(output, beam_options=['runner=FnApiRunner'], **more)


def bytes_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob('*'))
        if path.is_file() and path.name != '.lock'
    }


class BeamTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    @needs_beam
    def test_without_filters(self):
        wanted = made(self.folder / 'wanted')
        self.assertEqual(by_beam(self.folder / 'found'), wanted)
        self.assertEqual(
            bytes_of(self.folder / 'found'), bytes_of(self.folder / 'wanted')
        )

    @needs_beam
    def test_duplicates_that_meet_from_several_shards_and_a_restart(self):
        wanted = made(self.folder / 'wanted', **NEAR)
        self.assertEqual([*wanted['left_out']], ['short', 'duplicate', 'near'])
        self.assertGreater(min(wanted['left_out'].values()), 9)
        index = json.loads((self.folder / 'wanted/store.json').read_text())
        self.assertGreater(len(index['shards']), 6)

        real, calls = sharding.write, []

        def stopping(at):
            def write(job, number, reasons):
                if number == at:
                    raise ValueError('stopped')
                real(job, number, reasons)

            return mock.patch.object(sharding, 'write', write)

        def counting(job, number, reasons):
            calls.append(number)
            real(job, number, reasons)

        output, work = self.folder / 'found', self.folder / 'found/work'
        with stopping(2), self.assertRaisesRegex(ValueError, 'stopped'):
            made(output, **NEAR)
        with (
            stopping(5),
            self.assertRaisesRegex(Exception, 'stopped'),
            self.assertLogs(level='ERROR'),
        ):
            by_beam(output, **NEAR)
        self.assertFalse((output / 'store.json').exists())
        finished = {int(x.name[:6]) for x in work.glob('*.done.json')}
        self.assertContainsSubset({0, 1}, finished)
        every = {int(x.name[:6]) for x in work.glob('*.npz')}
        (work / '000002.npz').unlink()
        with mock.patch.object(sharding, 'write', counting):
            self.assertEqual(by_beam(output, **NEAR), wanted)
        self.assertCountEqual(calls, every - finished)
        self.assertEqual(bytes_of(output), bytes_of(self.folder / 'wanted'))

    @needs_beam
    def test_exact_duplicates_alone(self):
        wanted = made(self.folder / 'wanted', duplicates='exact')
        found = by_beam(self.folder / 'found', duplicates='exact')
        self.assertEqual([*wanted['left_out']], ['duplicate'])
        self.assertEqual(found, wanted)
        self.assertEqual(
            bytes_of(self.folder / 'found'), bytes_of(self.folder / 'wanted')
        )

    @needs_beam
    def test_a_worker_that_writes_elsewhere(self):
        with (
            mock.patch.object(sharding, 'write'),
            self.assertRaisesRegex(RuntimeError, 'a worker writes elsewhere'),
        ):
            by_beam(self.folder / 'out')

    def test_processes_are_of_this_machine(self):
        with self.assertRaisesRegex(
            commands.UsageError, 'has workers of its own'
        ):
            by_beam(self.folder / 'out', processes=2)

    @unittest.skipIf(HAS_BEAM, 'Apache Beam is installed')
    def test_without_beam(self):
        with self.assertRaisesRegex(commands.UsageError, r'infoword_tf\[beam'):
            by_beam(self.folder / 'out')


if __name__ == '__main__':
    absltest.main()
