"""A pipeline of Apache Beam leaves the bytes that processes leave.

`FnApiRunner` is what `DirectRunner` runs in memory; asked for by its own name
it looks for no other program on the net.
"""

import importlib.util
import json
import pathlib
import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest

from infoword_tf import errors
from infoword_tf.data import sharding
from tests import places, test_prepare
from tests.test_prepare import bytes_of

FOLDER = None
HAS_BEAM = importlib.util.find_spec('apache_beam') is not None
needs_beam = unittest.skipUnless(
    HAS_BEAM, 'Apache Beam is not installed: make beam-check'
)


def setUpModule():
    """Two files of texts."""
    global FOLDER
    FOLDER = places.make()
    random = np.random.default_rng(0)
    vocabulary = [f'word{i}' for i in range(200)]
    for name in 'ab':
        documents = [
            ' '.join(random.choice(vocabulary, random.integers(5, 90)))
            for _ in range(150)
        ]
        (FOLDER / f'{name}.txt').write_text('.\n\n'.join(documents))


def prepare(output, **more):
    result, _ = test_prepare.prepared(
        output, corpus=f'text:{FOLDER}/?.txt', vocab_size=300,
        shard_size=0.012, **more,
    )  # fmt: skip
    return result


def by_beam(output, processes=None):
    options = ['runner=FnApiRunner']
    return prepare(output, beam_options=options, processes=processes)


class BeamTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    @needs_beam
    def test_the_same_bytes(self):
        expected = prepare(self.folder / 'wanted')
        index = json.loads((self.folder / 'wanted/store.json').read_text())
        self.assertGreater(len(index['shards']), 6)
        self.assertEqual(by_beam(self.folder / 'there'), expected)
        self.assertEqual(
            bytes_of(self.folder / 'there'), bytes_of(self.folder / 'wanted')
        )

    @needs_beam
    def test_restarts(self):
        """Starts processes again, and a pipeline that was stopped."""
        expected = prepare(self.folder / 'wanted')
        real, calls = sharding.write, []

        def writing(at):
            def write(number, job):
                if number == at:
                    raise ValueError('stopped')
                calls.append(number)
                real(number, job)

            return mock.patch.object(sharding, 'write', write)

        output, work = self.folder / 'there', self.folder / 'there/work'
        with writing(2), self.assertRaisesRegex(ValueError, 'stopped'):
            prepare(output)
        with (
            writing(5),
            self.assertRaisesRegex(Exception, 'stopped'),
            self.assertLogs(level='ERROR'),
        ):
            by_beam(output)
        self.assertFalse((output / 'store.json').exists())
        finished = {int(x.name[:6]) for x in work.glob('*.done.json')}
        self.assertContainsSubset({0, 1}, finished)
        self.assertNotIn(5, finished)
        calls.clear()
        with writing(-1):
            self.assertEqual(by_beam(output), expected)
        self.assertNoCommonElements(calls, finished)
        self.assertEqual(bytes_of(output), bytes_of(self.folder / 'wanted'))

    @needs_beam
    def test_a_worker_that_writes_elsewhere(self):
        with (
            mock.patch.object(sharding, 'write', lambda number, job: None),
            self.assertRaisesRegex(RuntimeError, 'a worker writes elsewhere'),
        ):
            by_beam(self.folder / 'out')

    def test_processes_are_of_this_machine(self):
        with self.assertRaisesRegex(
            errors.UsageError, 'has workers of its own'
        ):
            by_beam(self.folder / 'out', processes=2)

    @unittest.skipIf(HAS_BEAM, 'Apache Beam is installed')
    def test_without_beam(self):
        with self.assertRaisesRegex(errors.UsageError, r'infoword_tf\[beam'):
            by_beam(self.folder / 'out')
