"""Tests in forks are reported as if the worker had run them."""

import collections
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as ET

import tensorflow as tf
from absl.testing import absltest

from tests import forks, places

ROOT = pathlib.Path(__file__).parent.parent
CONFTEST = '''
from tests import forks

forks.LARGE = {large}

def pytest_configure(config):
    if hasattr(config, 'workerinput'):
        config.pluginmanager.register(forks.Forks(config))
'''
FIRST = '''
import os, pathlib, unittest, warnings

class FirstTest(unittest.TestCase):
    def setUp(self):
        with open('pids', 'a') as file:
            print('first', os.getpid(), file=file)

    def test_a_passes(self):
        warnings.warn('so far so good')

    def test_b_fails(self):
        self.assertEqual(1, 2)

    def test_c_in_part(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertLess(number, 2)

    def test_d_dies(self):
        os._exit(7)

    def test_e_goes_on(self):
        pass

    @unittest.skip('for a reason')
    def test_f_skipped(self):
        pass
'''
SECOND = '''
import os

def test_in_another_file():
    with open('pids', 'a') as file:
        print('second', os.getpid(), file=file)
'''

AT_IMPORT = '''
import tensorflow as tf

ONE = tf.ones([])

def test_one():
    pass
'''


@absltest.skipUnless(sys.platform == 'linux', 'forks are of Linux')
class ForksTest(places.Folder, absltest.TestCase):
    def printed(self, large=2**40, **modules):
        """Returns what pytest prints of modules in forks."""
        (self.folder / 'conftest.py').write_text(CONFTEST.format(large=large))
        for name, text in modules.items():
            (self.folder / f'{name}.py').write_text(text)
        return subprocess.run(
            [sys.executable, '-m', 'pytest', '-n', '1', '--dist=loadfile',
             '--no-loadscope-reorder', '-p', 'no:cacheprovider',
             '--junitxml=results.xml', '.'],
            cwd=self.folder, env=os.environ | {'PYTHONPATH': str(ROOT)},
            capture_output=True, text=True, check=False,
        ).stdout  # fmt: skip

    def run_pytest(self, large):
        """Returns what pytest printed, outcomes by name, pids by file."""
        shown = self.printed(large, test_first=FIRST, test_second=SECOND)
        outcomes = {}
        for case in ET.parse(self.folder / 'results.xml').iter('testcase'):
            outcomes[case.get('name')] = {x.tag for x in case}
        pids = collections.defaultdict(list)
        for line in (self.folder / 'pids').read_text().splitlines():
            name, pid = line.split()
            pids[name].append(pid)
        (self.folder / 'pids').unlink()
        return shown, outcomes, pids

    def test_reports(self):
        shown, outcomes, pids = self.run_pytest(large=2**40)
        self.assertIn('the process of this test ended: 7', shown)
        self.assertIn('so far so good', shown)
        self.assertIn('2 not less than 2', shown)
        failed = {name for name, x in outcomes.items() if 'failure' in x}
        self.assertEqual(
            failed, {'test_b_fails', 'test_c_in_part', 'test_d_dies'}
        )
        self.assertEqual(outcomes['test_f_skipped'], {'skipped'})
        self.assertEqual(outcomes['test_e_goes_on'], set())
        # One until it died; the next is small, and stays.
        self.assertLen(set(pids['first'][:4]), 1)
        self.assertLen(set(pids['first']), 2)
        self.assertEqual(pids['second'], pids['first'][-1:])

    def test_a_process_that_has_grown_is_replaced_after_a_file(self):
        _, _, pids = self.run_pytest(large=0)
        self.assertLen(set(pids['first']), 2)
        self.assertNotIn(pids['second'][0], pids['first'])

    def test_an_operation_at_import_ends_the_run(self):
        shown = self.printed(test_at_import=AT_IMPORT, test_second=SECOND)
        self.assertIn('test_at_import.py runs an operation', shown)
        self.assertFalse((self.folder / 'pids').exists(), 'a test ran')

    def test_operations_of_this_process_are_seen(self):
        tf.ones([])
        self.assertTrue(forks.tensorflow_runs())
