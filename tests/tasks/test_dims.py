"""First numbers of vectors: of a workdir as of an export that has no others."""

import csv
import functools
import shutil

import numpy as np
from absl.testing import absltest

from export import bundle, search
from infoword_tf.config import Config
from infoword_tf.evaluation import models
from tasks import probe, retrieval, sts
from tests import corpus, places
from tests.export import critics, workdirs
from tests.refused import refused
from tests.tasks import command, counting

DIMS = 5


@functools.cache
def workdir():
    """Vectors of length 1, compared by dot product: a cut is none of both."""
    folder = places.make() / 'run'
    shutil.copytree(workdirs.shared(), folder)
    config = Config.read(folder).replace(normalize=True, similarity='dot')
    config.write(folder)
    return folder


@functools.cache
def exported():
    with critics.few('embed'):
        return bundle.write(workdir(), workdir().parent / 'model', dims=DIMS)


class DimsTest(command.Checks, absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = places.make()
        self.corpus, self.heldout = corpus.write_topics(self.folder / 'text')
        with open(self.heldout) as file:
            texts = [line.strip() for line in file if len(line.split()) > 8]
        self.texts = texts[:40]

    def run_it(self, module, *choices):
        return command.run(module, f'--workdir={self.folder}/out', *choices)

    def both(self, module, *choices):
        """Returns what a command says of the workdir, and of the export."""
        records = []
        for source in (
            (f'--init={workdir()}', f'--dims={DIMS}'),
            (f'--model={exported()}',),
        ):
            done = command.succeeded(self.run_it(module, *source, *choices))
            records.append(done.result)
        self.assertEqual([r['dims'] for r in records], [DIMS, None])
        return records

    def test_sts(self):
        path = self.folder / 'sts.tsv'
        path.write_text(
            ''.join(
                f'g\tf\ty\t{i}\t{i * 7 % 20}\t{a}\t{b}\n'
                for i, (a, b) in enumerate(
                    zip(self.texts[:20], self.texts[20:], strict=True)
                )
            )
        )
        ours, theirs = self.both(sts, f'--data={path}')
        self.assertEqual(ours['spearman'], theirs['spearman'])
        whole = self.run_it(sts, f'--init={workdir()}', f'--data={path}')
        self.assertNotEqual(whole.result['spearman'], ours['spearman'])

    def test_probe(self):
        path = self.folder / 'rows.csv'
        with open(path, 'w', newline='') as file:
            writer = csv.writer(file)
            writer.writerow(('text', 'label'))
            writer.writerows((x, len(x) > 99) for x in self.texts)
        ours, theirs = self.both(probe, f'--train={path}', f'--dev={path}')
        self.assertEqual(ours['accuracy'], theirs['accuracy'])
        self.assertEqual(ours['C'], theirs['C'])

    def test_retrieval(self):
        ours, theirs = self.both(
            retrieval, f'--corpus={self.corpus}', f'--heldout={self.heldout}',
            f'--vectors={self.folder}/kept',
        )  # fmt: skip
        self.assertEqual(ours['model'], theirs['model'])
        paths = sorted(p.name[:5] for p in self.folder.glob('kept/*.npy'))
        self.assertEqual(paths, ['model', 'model', 'untra'])

    def test_an_export_with_all_numbers(self):
        """Its vectors are cut, and of length 1 where the config says so."""
        path = self.folder / 'model' / '1'
        counting.save(path)
        counting.write_config(path, 'dot', normalize=True)
        whole, _ = models.exported(path, 2)
        few, _ = models.exported(path, 2, DIMS)
        vectors = whole(self.texts, None)[:, :DIMS]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        expected = vectors / np.maximum(norms, 1e-12)  # some have none of these
        np.testing.assert_allclose(few(self.texts, None), expected, rtol=1e-6)
        with refused('dims_over_width', '--dims=65', '64'):
            models.exported(path, 2, 65)

    def test_search(self):
        """By the index of whole vectors, which stays as it is."""
        path = self.folder / 'model' / '1'
        counting.save(path)
        counting.write_config(path, 'dot', normalize=True)
        (self.folder / 'text.txt').write_text('\n\n'.join(self.texts))
        choices = (f'--model={path}', f'--corpus=text:{self.folder}/text.txt',
                 '--top_k=3', self.texts[0])  # fmt: skip
        command.run(search, *choices, words='queries')
        [folder] = path.parent.glob('search')
        before = [(x.name, x.stat().st_mtime_ns) for x in folder.glob('*')]
        done = command.run(search, *choices, '--dims=9', words='queries')
        self.assertEqual(done.status, 0, done.err)
        encode, _ = models.exported(path, 2, 9)
        vectors = encode(self.texts, None)
        scores = np.sort(vectors @ vectors[0])[::-1]
        actual = [line for line in done.out.splitlines() if 'text.txt' in line]
        for line, score in zip(actual, scores[:3], strict=True):
            self.assertStartsWith(line, f'  {score:.3f}  ')
        after = [(x.name, x.stat().st_mtime_ns) for x in folder.glob('*')]
        self.assertCountEqual(before, after)
        done = command.run(search, *choices, '--dims=65', words='queries')
        self.assert_refused(done, 'dims_over_width', '--dims=65', '64')
