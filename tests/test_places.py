import os
import unittest

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
