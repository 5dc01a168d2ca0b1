"""Prepared text is the text: made whole, in parts, and after being stopped."""

import contextlib
import functools
import gzip
import io
import json
import os
import shutil
import signal
from unittest import mock

import numpy as np
from absl.testing import parameterized

from infoword_tf import errors, prepare
from infoword_tf.choices import TextChoices
from infoword_tf.data import corpora, opened, sharding, textfiles
from infoword_tf.data import source as sources
from infoword_tf.data import store as stores
from infoword_tf.data.source import WindowSource
from tests import corpus as topics
from tests import places, runs
from tests.refused import refused
from tests.runs import python

FOLDER = None  # test_beam.py has its own


def setUpModule():
    global FOLDER
    FOLDER = places.make()
    runs.set_up()
    random = np.random.default_rng(0)
    vocabulary = [f'word{i}' for i in range(200)]
    for name, open_, count in (
        ('a.txt', open, 180), ('b.txt', open, 5), ('c.txt.gz', gzip.open, 90)
    ):  # fmt: skip
        documents = []
        for _ in range(count):
            lines = [
                ' '.join(random.choice(vocabulary, random.integers(4, 12)))
                .capitalize() + '.'
                for _ in range(random.integers(1, 6))
            ]  # fmt: skip
            documents.append('\n'.join(lines))
        with open_(FOLDER / name, 'wt') as file:
            file.write('\n \n'.join(documents) + '\n')


def corpus():
    return f'text:{FOLDER}/*.txt*'


def prepared(output, *words, **more):
    """Returns what the command says, and its result."""
    log = io.StringIO()
    choices = {
        'corpus': corpus(), 'vocab_size': 400, 'shard_size': 0.005,
        'processes': 1, 'output': str(output), **more,
    }  # fmt: skip
    with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        return prepare.run(*words, **choices), log.getvalue()


def text_of(name, **more):
    with contextlib.redirect_stdout(io.StringIO()):
        return opened.open_text(TextChoices(corpus=(name,), **more))


@functools.cache
def whole():
    output = FOLDER / 'whole'
    return output, *prepared(output)


def bytes_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob('*')
        if path.is_file() and path.name != '.lock'
    }


def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def sentences(reader, chunks):
    return [x.sentences for part in chunks for x in reader.read_chunk(part)]


class ChunksTest(places.Folder, parameterized.TestCase):
    @parameterized.product(size=(1, 100, 1777, 10**9), by_line=(False, True))
    def test_documents_of_a_file_in_chunks(self, size, by_line):
        path = FOLDER / 'a.txt'
        actual = textfiles.chunks([path], size, by_line)
        reader = textfiles.Files('lines' if by_line else 'text')
        expected = [x.sentences for x in reader.read([path], '')]
        self.assertEqual(sentences(reader, actual), expected)
        self.assertEqual(sum(chunk.size for chunk in actual),
                         path.stat().st_size)  # fmt: skip
        # Of documents of 200 bytes each is one, or all of them are.
        if size == 1:
            self.assertLen(actual, len(expected))
        elif size > 10**6:
            self.assertLen(actual, 1)

    def test_odd_files(self):
        long, reader = 'many words ' * 3000, textfiles.Files('text')
        for number, text in enumerate((
            '', '\n\n\n', 'One.', '\ufeffOne.\n\nTwo.', 'One.\r\n\r\nTwo.\r\n',
            f'{long}\n{long}\n\n{long}', 'One.\n' + ' \t\n' * 5000 + 'Two.',
            '一。\n\n二。\n\n三。', '\n\nOne.\n\n\n\nTwo.\n\n',
        )):  # fmt: skip
            path = self.folder / f'{number}.txt'
            path.write_text(text, newline='')
            expected = sentences(reader, [textfiles.Chunk(path)])
            for size in (1, 2, 5, 20, 9000):
                actual = sentences(reader, textfiles.chunks([path], size))
                self.assertEqual(actual, expected)


class PrepareTest(places.Folder, parameterized.TestCase):
    def assert_whole(self, output):
        """Checks that it has the bytes of the store that one call made."""
        self.assertEqual(bytes_of(output), bytes_of(whole()[0]))

    def test_the_same_tokens_as_of_the_text(self):
        output, result, log = whole()
        self.assertGreater(len(list((output / 'train').glob('0*'))), 5)
        text = text_of(corpus(), vocab_size=400)
        store = text_of(f'store:{output}')
        self.assertEqual(store.tokenizer.vocabulary, text.tokenizer.vocabulary)
        for part in ('train', 'heldout'):
            a, b = getattr(text, part), getattr(store, part)
            for field in ('ids', 'flags', 'documents'):
                expected, actual = getattr(a, field), getattr(b, field)
                self.assertLen(actual, len(expected))
                np.testing.assert_array_equal(actual[:], expected[:])
            np.testing.assert_array_equal(a.counts, b.counts)
            self.assertEqual(a.unk_id, b.unk_id)
        self.assertEqual(result['tokens'], len(text.train.ids))
        self.assertEqual(
            result['documents'],
            {'train': len(text.train.documents) - 1,
             'heldout': len(text.heldout.documents) - 1},
        )  # fmt: skip
        self.assertEqual(result['left_out'], {})
        self.assertIn('left out: none', log)

    def test_a_batch_in_blocks_reads_of_few_shards(self):
        """Each window once, and the same ones as of a store of one file."""
        name, heldout = topics.write_topics(self.folder / 'text')
        store = self.folder / 'store'
        prepared(store, shard_size=0.02, corpus=name, heldout=heldout)
        read = {}
        for block in (None, 4000):
            with mock.patch.object(sources, 'GROUP', 3):
                sharded_store = text_of(f'store:{store}').train
                source, plain = (
                    WindowSource(store, 16, 32, 3, shuffle_block=block)
                    for store in (
                        sharded_store,
                        sharded_store._replace(ids=sharded_store.ids[:]),
                    )
                )
                sharded_store.ids.opened.clear()
                for step in (0, 1):
                    np.testing.assert_array_equal(
                        source.batch(step).ids, plain.batch(step).ids
                    )
                read[block] = len(sharded_store.ids.opened)
        self.assertGreater(len(sharded_store.ids.shards), 9)
        self.assertGreater(read[None], 8)
        # Three blocks, each of one shard or two.
        self.assertLessEqual(read[4000], 6)
        starts = np.concatenate([
            sources.visited(np.arange(32) + 32 * step, source.windows, 3,
                            2, source.block)
            for step in range(source.windows // 32)
        ])  # fmt: skip
        self.assertLen(set(starts.tolist()), source.windows // 32 * 32)

    def records(self, folder):
        """The text as records, of which three have none: files by kind."""
        values = [
            '\n'.join(x.sentences)
            for x in corpora.open_corpus(corpus()).every()
        ]
        values[3:3] = [None, ' \n', '']
        rows, names = [{'text': x} for x in values], {}
        for kind in ('jsonl', 'jsonl.zst', 'parquet'):
            path = folder / f'x.{kind}'
            path.write_bytes(topics.file_of(kind, rows, 9))
            names[kind] = f'{kind.removesuffix(".zst")}:{path}'
        return names

    def test_records_make_the_tokens_of_their_text(self):
        """In shards of lines, of row groups, and of a packed file."""
        expected = text_of(f'store:{whole()[0]}')
        for kind, name in self.records(self.folder).items():
            output = self.folder / kind
            result, log = prepared(output, corpus=name)
            shards = len(list((output / 'train').glob('0*')))
            self.assertEqual(kind == 'jsonl.zst', shards == 1)
            self.assertEqual(result['left_out'], {'without a text': 3})
            self.assertIn('left out: 3 without a text', log)
            self.assertEqual(log.count('3 record(s) without a text'), 1)
            store = text_of(f'store:{output}')
            for part in ('train', 'heldout'):
                a, b = getattr(expected, part), getattr(store, part)
                np.testing.assert_array_equal(a.ids[:], b.ids[:])
                np.testing.assert_array_equal(a.documents[:], b.documents[:])

    def test_an_array_of_shards_is_one(self):
        """And nothing is read before it is needed."""
        store = text_of(f'store:{whole()[0]}').train
        self.assertEmpty(store.ids.opened)
        store.ids[np.array([0, 3])]
        self.assertEqual(list(store.ids.opened), [0])
        plain = store.ids[:]
        random = np.random.default_rng(0)
        for shape in ((), (7,), (3, 40), (2, 1, 5), (0,)):
            place = random.integers(0, len(plain), shape)
            np.testing.assert_array_equal(store.ids[place], plain[place])
        for begin, end in ((0, 0), (5, 6), (0, len(plain)), (900, 5000),
                           (len(plain) - 3, len(plain) + 9)):  # fmt: skip
            np.testing.assert_array_equal(
                store.ids[begin:end], plain[begin:end]
            )

    def test_small_files_share_a_shard(self):
        for number in range(30):
            path = self.folder / f'{number:02d}.txt'
            path.write_text(f'Text {number} is it.')
        result, _ = prepared(
            self.folder / 'out', corpus=f'text:{self.folder}/*.txt',
            vocab_size=60, shard_size=0.0002,
        )  # fmt: skip
        index = json.loads((self.folder / 'out' / 'store.json').read_text())
        sizes = [shard[2] for shard in index['shards']]
        self.assertEqual(sum(sizes), 29)
        self.assertLess(len(sizes), 5)
        self.assertEqual(result['documents'], {'train': 29, 'heldout': 1})

    def test_processes(self):
        """Two processes make the same bytes, of what one left behind."""
        output = self.folder / 'store'
        with (
            mock.patch.object(sharding, 'finish', side_effect=ValueError),
            self.assertRaises(ValueError),
        ):
            prepared(output)
        for number in (1, 4, 5):
            (output / f'work/{number:06d}.done.json').unlink()
        prepared(output, processes=2)
        self.assert_whole(output)

    def test_a_process_that_is_killed(self):
        output = self.folder / 'store'
        with (
            mock.patch.object(prepare, '_begin', killed),
            self.assertRaisesRegex(RuntimeError, 'a process was killed'),
        ):
            prepared(output, processes=2)
        prepared(output)
        self.assert_whole(output)

    def test_a_process_ends_with_the_one_that_began_it(self):
        code = (
            'import os, time\n'
            'from infoword_tf import prepare\n'
            'prepare._ALIVE = 0.01\n'
            'parent = os.getpid()\n'
            'if os.fork() == 0:\n'
            '    prepare._begin(1, parent)\n'
            '    time.sleep(60)\n'
            'print(1)\n'
        )
        # Its output ends with the last process that holds it.
        self.assertEqual(python('-c', code, timeout=30).stdout, '1\n')

    def test_a_text_that_changes_on_the_way(self):
        folder, path = self.folder, self.folder / 'x.txt'
        path.write_text('\n\n'.join(f'Text number {i}.' for i in range(60)))
        real = sharding.write

        def changing(*choices):
            real(*choices)
            with open(path, 'a') as file:
                file.write('\n\nAnother one.')

        more = {'corpus': f'text:{path}', 'vocab_size': 60}
        with (
            mock.patch.object(sharding, 'write', changing),
            refused('corpus_changed', path),
        ):
            prepared(folder / 'out', **more)
        with refused('prepared_otherwise', 'text has changed'):
            prepared(folder / 'out', **more)
        # An output among its files is one, too.
        other = f'text:{folder}/**/*.txt'
        with refused('corpus_changed', folder / 'inside'):
            prepared(folder / 'inside', corpus=other, vocab_size=60)

    @parameterized.parameters('begin', 'write', 'finish')
    def test_stopped(self, where):
        """At each place; the same command goes on, and makes the same."""
        output = self.folder / 'store'
        real, calls = sharding.write, []

        def stopping(at):
            def work(number, job):
                if number == at:
                    # What a kill leaves of a shard.
                    folder = job.folder('train', number)
                    (folder.parent / f'{folder.name}.x').mkdir(parents=True)
                    (folder.parent / '.counts.npy.12').touch()
                    raise KeyboardInterrupt
                calls.append(number)
                real(number, job)

            return mock.patch.object(sharding, 'write', work)

        ends = {'side_effect': KeyboardInterrupt}
        stopped = {
            'begin': mock.patch.object(prepare.files, 'write_json', **ends),
            'write': stopping(4),
            'finish': mock.patch.object(stores, 'join', **ends),
        }
        with stopped[where], self.assertRaises(KeyboardInterrupt):
            prepared(output)
        self.assertFalse((output / 'store.json').exists())
        with refused('store_not_prepared', output):
            text_of(f'store:{output}')
        # And once more: there is nothing to do.
        for at in (-1, 0):
            with stopping(at):
                prepared(output)
            self.assert_whole(output)
            self.assertEqual(calls, sorted(set(calls)))

    def test_what_a_batch_complains_of_is_a_sentence(self):
        """Batches are made inside a graph, whose errors have pages of it."""
        real = WindowSource.batch

        def batch(source, step):
            if step:
                raise errors.InputError('damage', 'ids.bin is damaged; delete')
            return real(source, step)

        with (
            mock.patch.object(WindowSource, 'batch', batch),
            self.assertRaises(errors.InputError) as raised,
        ):
            runs.run_here(
                self.folder, '--objectives=bert_nce', '--steps=2',
                '--eval_every=2', '--vocab_size=300',
                f'--corpus=text:{FOLDER}/a.txt', f'--heldout={FOLDER}/b.txt',
            )  # fmt: skip
        self.assertEqual(raised.exception.id, 'batch_failed')
        self.assertEqual(str(raised.exception), 'ids.bin is damaged; delete')

    def test_damaged(self):
        for name, id in (
            ('train/000002/ids.bin', 'shard_damaged'),
            ('train/000001/flags.bin', 'shard_damaged'),
            ('vocab.txt', 'store_file_damaged'),
            ('train/counts.npy', 'store_file_damaged'),
            ('heldout/ids.bin', 'store_file_damaged'),
        ):
            output = self.folder / name.replace('/', '_')
            shutil.copytree(whole()[0], output)
            data = bytearray((output / name).read_bytes())
            data[len(data) // 2] ^= 1
            (output / name).write_bytes(data)
            with refused(id, name):
                store = text_of(f'store:{output}').train
                store.ids[:], store.flags[:]
            # The same command looks at all of it, too.
            with refused(id, name):
                prepared(output)
        output = self.folder / 'lost'
        shutil.copytree(whole()[0], output)
        (output / 'train/000003/ids.bin').unlink()
        with refused('shard_damaged', '000003'):
            text_of(f'store:{output}').train.ids[:]
        (output / 'store.json').write_text('{"version": 1')
        with refused('store_index_damaged', 'store.json'):
            text_of(f'store:{output}')
        (output / 'store.json').write_text('{"version": 99}')
        with refused('store_other_version', '99'):
            text_of(f'store:{output}')

    def test_a_store_of_which_a_former_version_left_documents_out(self):
        """It is trained on; that today's command would make it is not said."""
        output = self.folder / 'store'
        shutil.copytree(whole()[0], output)
        index = json.loads((output / 'store.json').read_text())
        index['asked'] |= {'min_words': 3, 'duplicates': 'near'}
        index['left_out'] = {'short': 1, 'near': 2}
        (output / 'store.json').write_text(json.dumps(index))
        self.assertLen(text_of(f'store:{output}').train.ids, index['tokens'])
        with refused('prepared_otherwise', '--min_words was 3 and is None'):
            prepared(output)

    def test_complaints(self):
        output = whole()[0]
        for kind, lacking in ((0, 'held-out'), (1, 'training')):

            def one_part(text, size, kind=kind):
                return [corpora.CorpusChunk('train', text.train),
                        corpora.CorpusChunk('heldout', text.heldout)][kind:][:1]

            with (
                mock.patch.object(corpora, 'chunks_of', one_part),
                refused('store_without_documents', lacking),
            ):
                prepared(self.folder / lacking)
        for more in ({'vocab_size': 9}, {'lower_case': True}):
            with refused('store_decides_vocab', f'--{[*more][0]}'):
                text_of(f'store:{output}', **more)
        with refused('store_without_text', output):
            next(corpora.open_corpus(f'store:{output}').train())
