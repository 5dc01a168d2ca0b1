"""Some of the faults of tests/faults.py: those that end no process."""


from absl.testing import parameterized

from tests import faults, places, runs


def setUpModule():
    runs.set_up()


class FaultsTest(places.Folder, parameterized.TestCase):
    """A few faults; others are in test_resume, test_prepare, test_store."""

    @parameterized.parameters(
        ('term', 'SIGTERM while TensorFlow is imported'),
        ('term', 'SIGTERM while text is tokenized'),
        ('term', 'SIGTERM while the model is built'),
        ('term', 'SIGTERM while the run ends'),
        ('damage', '`weights.safetensors` of a workdir: a bit flipped'),
        ('damage', '`vocab.txt` of a workdir: a bit flipped'),
        ('damage', 'vocabularies/*.txt of the cache: cut'),
        ('other', 'clocks jump, and files are of any time'),
        ('other', 'a workdir of version 2'),
    )
    def test_it_holds(self, kind, what):
        faults.FAULTS[kind][what](faults.Bench(self.folder, faults.here))

    def test_what_differs_is_found(self):
        """Runs that are no run gone on with are not the same."""
        bench = faults.Bench(self.folder, faults.here)
        self.assertEqual(bench.run('run', '--seed=1').status, 0)
        with self.assertRaisesRegex(AssertionError, 'safetensors differs'):
            faults.same(bench.whole(), self.folder / 'run')
