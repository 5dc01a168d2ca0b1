"""Turns of workdirs and their exports."""

from unittest import mock

from absl.testing import parameterized

from benchmarks import exports
from export import bundle
from tests.export import critics


class CompeteTest(parameterized.TestCase):
    @parameterized.parameters('both', 'pairs')
    def test_both_compute_the_same(self, kind):
        version, workdir = critics.exported(kind), str(critics.workdir(kind))
        texts = [text for text in critics.TEXTS if text.strip()]
        choices = exports.ExportsChoices(rounds=2, batch_size=3)
        with mock.patch.object(bundle, 'write', lambda *_: version):
            record = exports.compete(workdir, [texts, texts[::-1]], choices)
        for row, name in zip(
            record['rows'], ('workdir', 'export'), strict=True
        ):
            self.assertEqual((row['name'], row['group']), (name, workdir))
            self.assertEqual(row['amounts'], [len(texts)] * 2)
            self.assertBetween(row['apart'], 0, 1e-5)
