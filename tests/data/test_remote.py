"""Prepared text that lies elsewhere is read as that which lies here."""

import contextlib
import io
import itertools
import pathlib
import subprocess
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf import prepare
from infoword_tf.choices import TextChoices
from infoword_tf.data import opened, order, remote, sharded
from infoword_tf.data.order import visited
from infoword_tf.data.passages import DocumentSource
from infoword_tf.data.streams import StreamSource
from infoword_tf.data.windows import WindowSource
from tests import corpus, places

ROOT = pathlib.Path(__file__).parent.parent.parent
NUMBERS = itertools.count()
STORE = None


def setUpModule():
    global STORE
    folder = places.make()
    STORE = folder / 'store'
    name, heldout = corpus.write_topics(folder / 'text')
    with contextlib.redirect_stdout(io.StringIO()):
        prepare.run(
            corpus=name, heldout=heldout, vocab_size=400, shard_size=0.02,
            processes=1, output=str(STORE),
        )  # fmt: skip


def elsewhere():
    """The store, copied to a place of its own."""
    target = f'ram://{next(NUMBERS)}/store'
    for path in STORE.rglob('*'):
        if path.is_file() and path.name != '.lock':
            name = f'{target}/{path.relative_to(STORE)}'
            tf.io.gfile.makedirs(name.rpartition('/')[0])
            write(name, path.read_bytes())
    return target


def write(path, data):
    if tf.io.gfile.exists(path):
        tf.io.gfile.remove(path)  # a file of ram:// is written on
    with tf.io.gfile.GFile(path, 'wb') as file:
        file.write(data)


def text_of(folder):
    with contextlib.redirect_stdout(io.StringIO()):
        return opened.open_text(TextChoices(corpus=(f'store:{folder}',)))


def bounded(block, blocks):
    """Inside, so many blocks of so many bytes are kept."""
    stack = contextlib.ExitStack()
    for name, value in (
        ('BLOCK', block), ('KEPT', block * blocks), ('kept', remote.Kept()),
    ):  # fmt: skip
        stack.enter_context(mock.patch.object(remote, name, value))
    return stack


class RemoteTest(parameterized.TestCase):
    def test_the_same_text(self):
        here, there = text_of(STORE), text_of(elsewhere())
        self.assertEqual(here.fingerprint, there.fingerprint)
        self.assertEqual(
            here.tokenizer.vocabulary, there.tokenizer.vocabulary
        )
        self.assertGreater(len(here.train.ids.shards), 5)
        for part in ('train', 'heldout'):
            a, b = getattr(here, part), getattr(there, part)
            for field in ('ids', 'flags', 'documents', 'counts'):
                np.testing.assert_array_equal(
                    getattr(a, field)[:], getattr(b, field)[:]
                )

    @parameterized.parameters(
        (WindowSource, 30), (DocumentSource, 40), (StreamSource, 17)
    )
    def test_the_same_batches(self, kind, length):
        with bounded(1024, 9):
            a, b = (
                kind(text_of(place).train, length, 8, seed=2)
                for place in (STORE, elsewhere())
            )
            for step in (0, 1, 7, 100):
                for x, y in zip(a.batch(step), b.batch(step), strict=True):
                    np.testing.assert_array_equal(x, y)

    def test_a_batch_in_blocks_reads_of_few_shards(self):
        """Each window once, and the same ones as of a store that is here."""
        found = {}
        for block in (None, 4000):
            with bounded(512, 99), mock.patch.object(order, 'GROUP', 3):
                there = text_of(elsewhere()).train
                source = WindowSource(there, 16, 32, 3, shuffle_block=block)
                here = WindowSource(
                    text_of(STORE).train, 16, 32, 3, shuffle_block=block
                )
                for step in (0, 1):
                    np.testing.assert_array_equal(
                        source.batch(step).ids, here.batch(step).ids
                    )
                found[block] = len(there.ids.opened)
        self.assertGreater(len(there.ids.shards), 9)
        self.assertGreater(found[None], 8)
        # Three blocks, each of one shard or two.
        self.assertLessEqual(found[4000], 6)
        starts = np.concatenate([
            visited(np.arange(32) + 32 * step, source.windows, 3, 2,
                    source.block)
            for step in range(source.windows // 32)
        ])  # fmt: skip
        self.assertLen(set(starts.tolist()), source.windows // 32 * 32)

    @parameterized.parameters(512, 4096)
    def test_no_more_is_kept_than_is_said(self, block):
        """Whatever is read, and in whatever order."""
        with bounded(block, 5):
            there, plain = text_of(elsewhere()).train.ids, (
                text_of(STORE).train.ids[:]
            )
            random = np.random.default_rng(0)
            for shape in ((), (3,), (4, 50), (0,)):
                place = random.integers(0, len(plain), shape)
                np.testing.assert_array_equal(there[place], plain[place])
                self.assertLessEqual(remote.kept.bytes, 5 * block)
            for begin, end in ((0, 0), (7, 8), (900, 5000), (0, len(plain))):
                np.testing.assert_array_equal(
                    there[begin:end], plain[begin:end]
                )
                self.assertLessEqual(remote.kept.bytes, 5 * block)
            held = sum(x.nbytes for x in remote.kept.blocks.values())
            self.assertEqual(remote.kept.bytes, held)
            self.assertGreater(held, 3 * block)

    def test_what_is_kept_is_not_read_again(self):
        read = remote.Entries._read
        with (
            bounded(4096, 1000),
            mock.patch.object(
                remote.Entries, '_read', autospec=True, side_effect=read
            ) as reading,
        ):
            ids = text_of(elsewhere()).train.ids
            self.assertEqual(reading.call_count, 0)
            ids[np.array([0, 1, 2])]
            blocks = -(-ids.shards[0].tokens * 2 // 4096)
            self.assertEqual(reading.call_count, blocks)
            ids[: ids.shards[0].tokens], ids[np.arange(90)]
            self.assertEqual(reading.call_count, blocks)

    @parameterized.parameters(
        ('train/000002/ids.bin', 'ids.bin is damaged'),
        ('train/000001/flags.bin', 'flags.bin is damaged'),
        ('vocab.txt', 'vocab.txt is missing or damaged'),
        ('train/documents.npy', 'documents.npy is missing or damaged'),
        ('heldout/ids.bin', 'heldout/ids.bin is missing or damaged'),
        ('store.json', 'store.json is damaged'),
    )
    def test_damaged(self, name, message):
        folder = elsewhere()
        data = bytearray((STORE / name).read_bytes())
        data[len(data) // 2] ^= 128
        for wrong in (data, None):
            if wrong is None:
                tf.io.gfile.remove(f'{folder}/{name}')
                message = f'is missing|there is no {name}'
            else:
                write(f'{folder}/{name}', bytes(wrong))
            with (
                places_cache(self),
                self.assertRaisesRegex(ValueError, message) as raised,
            ):
                train = text_of(folder).train
                train.ids[:], train.flags[:]
            self.assertIn(folder, str(raised.exception))
            self.assertLen(str(raised.exception).splitlines(), 1)

    def test_changed_on_the_way(self):
        folder = elsewhere()
        with bounded(512, 2):
            ids = text_of(folder).train.ids
            ids[np.array([0])]
            path = f'{folder}/train/{ids.shards[0].name}/ids.bin'
            write(path, bytes(ids.shards[0].tokens * 2))
            with self.assertRaisesRegex(ValueError, 'changed while it was rea'):
                ids[: ids.shards[0].tokens]
            tf.io.gfile.remove(path)
            with self.assertRaisesRegex(ValueError, f'{path} cannot be read '):
                ids[: ids.shards[0].tokens]

    def test_a_damaged_copy_is_made_anew(self):
        folder = elsewhere()
        with places_cache(self) as cache:
            text_of(folder)
            (copy,) = cache.rglob('vocab.txt')
            data = copy.read_bytes()
            copy.write_bytes(b'x' + data[1:])
            text_of(folder)
            self.assertEqual(copy.read_bytes(), data)
            # A name of six digits; those of folders are digests.
            shards = list(cache.rglob('0000[0-9][0-9]'))
            self.assertEmpty(shards, 'they are not copied')

    def test_no_such_place(self):
        with self.assertRaisesRegex(
            ValueError, "nowhere://x/store.json cannot be read .*'nowhere'"
        ) as raised:
            text_of('nowhere://x')
        self.assertLen(str(raised.exception).splitlines(), 1)
        with self.assertRaisesRegex(ValueError, 'ram://no is no prepared text'):
            text_of('ram://no')

    def test_here_nothing_needs_tensorflow(self):
        code = (
            'import sys\n'
            'from infoword_tf.data import sharded\n'
            f'sharded.open_prepared({str(STORE)!r}).check()\n'
            "print('tensorflow' in sys.modules)\n"
        )
        done = subprocess.run(
            [sys.executable, '-c', code],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        self.assertEqual(done.stdout, 'False\n')

    def test_all_of_it_is_checked(self):
        folder = elsewhere()
        store = sharded.open_prepared(folder, places.make(cache=False))
        store.check()
        write(f'{folder}/train/000003/ids.bin', b'')
        with self.assertRaisesRegex(ValueError, '000003.* is missing or cut'):
            store.check()


@contextlib.contextmanager
def places_cache(test):
    """Inside, the cache is an empty folder of its own."""
    folder = pathlib.Path(test.create_tempdir().full_path)
    with mock.patch.dict('os.environ', {places.CACHE: str(folder)}):
        yield folder


if __name__ == '__main__':
    absltest.main()
