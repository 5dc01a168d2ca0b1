import os
import unittest
from unittest import mock

from absl.testing import absltest

from tests import places


class PlacesTest(absltest.TestCase):
    def test_all_is_as_before(self):
        for before in ('/before', None):
            places._put_back(before)
            with self.subTest(before):
                case = unittest.TestCase()
                folder = places.make(case.addCleanup)
                self.assertEqual(os.environ[places.CACHE], f'{folder}/cache')
                (folder / 'file').touch()
                inner = places.make(case.addCleanup)
                self.assertEqual(os.environ[places.CACHE], f'{inner}/cache')
                case.doCleanups()
                self.assertEqual(os.environ.get(places.CACHE), before)
                self.assertFalse(folder.exists())
                self.assertFalse(inner.exists())

    def setUp(self):
        super().setUp()
        self.addCleanup(places._put_back, os.environ.get(places.CACHE))

    def test_the_cache_may_stay(self):
        before = os.environ.get(places.CACHE)
        folder = places.make(self.addCleanup, cache=False)
        self.assertTrue(folder.is_dir())
        self.assertEqual(os.environ.get(places.CACHE), before)

    def test_once(self):
        """A second decorator stands for another process."""
        folder, calls = places.make(self.addCleanup, cache=False), []

        def write(*words):
            calls.append(words)
            return folder, *words

        with mock.patch.dict(os.environ, {places.SHARED: str(folder)}):
            for _ in range(2):
                ask = places.once(write, 'a')
                self.assertEqual(ask('x'), (folder, 'x'))
                self.assertEqual(ask('x', 'y'), (folder, 'x', 'y'))
            places.once(write, 'b')('x')
        self.assertEqual(calls, [('x',), ('x', 'y'), ('x',)])
