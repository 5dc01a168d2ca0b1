"""An index as it is made, searched, updated, stopped, and damaged."""

import pathlib
from typing import NamedTuple
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from export import index as indexes
from infoword_tf import commands, files
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation.quantized import KINDS
from tests import places

WIDTH = 70
KEY = {'corpus': 'text:*.txt', 'model': 'of a test'}


class Document(NamedTuple):
    sentences: tuple[str, ...]
    source: str


def documents(numbers, text='text'):
    return [Document((f'{text} {n}',), f'id {n}') for n in numbers]


def embed(texts, role='passage'):
    """Random numbers that are always the same for a text: [n, WIDTH]."""
    del role
    return np.stack([
        np.random.default_rng(list(text.encode())).standard_normal(
            WIDTH, np.float32
        )
        for text in texts
    ])  # fmt: skip


class Stopped(Exception):
    """What stands for a signal that ends the process."""


class Case(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = places.make() / 'index'
        self.embed = mock.Mock(side_effect=embed)

    def make(self, some, vectors='float32', similarity='dot', **key):
        key = {**KEY, 'vectors': vectors, 'similarity': similarity, **key}
        return indexes.make(
            self.folder, key, indexes.passages(some), self.embed
        )

    def encoded(self):
        """Texts that were encoded since it was last asked."""
        texts = [t for call in self.embed.call_args_list for t in call.args[0]]
        self.embed.reset_mock()
        return sorted(texts)

    def content(self):
        """The bytes of all files, but of the lock."""
        key = indexes.read_key(self.folder)
        return {
            path.relative_to(self.folder / key['data']): path.read_bytes()
            for path in (self.folder / key['data']).rglob('*')
            if path.is_file()
        }

    def folders(self):
        return [p.name for p in self.folder.iterdir() if p.is_dir()]


class SearchTest(Case):
    @parameterized.product(
        vectors=list(KINDS), similarity=['dot', 'cosine'], block=[7, 4096]
    )
    def test_blocks_equal_one_product(self, vectors, similarity, block):
        """Of what was kept, over all, and sorted as it is there."""
        with mock.patch.object(indexes, 'BLOCK', block):
            index = self.make(documents(range(50)), vectors, similarity)
            queries = embed(['one', 'two', 'three'])
            # All of them: then `binary` is exact too.
            scores, numbers = index.search(queries, 50)
        kind = KINDS[vectors]
        texts = [passage.text for passage in index.passages()]
        kept = kind.decode(
            kind.encode(ranking.prepared(embed(texts), similarity))
        )
        products = ranking.prepared(queries, similarity) @ kept.T
        np.testing.assert_allclose(
            scores, -np.sort(-products, axis=1), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_allclose(
            np.take_along_axis(products, numbers, axis=1), scores,
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip
        self.assertLen(index, 50)
        self.assertEqual(index.width, WIDTH)
        passage = index.passage(int(numbers[0, 0]))
        self.assertEqual(passage, next(
            p for i, p in enumerate(index.passages()) if i == numbers[0, 0]
        ))  # fmt: skip

    def test_binary_orders_anew_what_its_bits_found(self):
        index = self.make(documents(range(400)), 'binary', 'cosine')
        queries = embed([f'query {n}' for n in range(5)])
        scores, numbers = index.search(queries, 3, oversample=4)
        kind = KINDS['binary']
        vectors = ranking.prepared(
            embed([p.text for p in index.passages()]), 'cosine'
        )
        arrays = kind.encode(vectors)
        _, wide = ranking.scan(
            5, [(np.arange(400), kind.scorer(queries, arrays))], 12
        )
        products = ranking.prepared(queries, 'cosine') @ kind.decode(arrays).T
        for row in range(5):
            best = sorted(wide[row], key=lambda n: -products[row, n])[:3]
            self.assertEqual(numbers[row].tolist(), best)
            np.testing.assert_allclose(
                scores[row], products[row, best], rtol=1e-4
            )

    @parameterized.parameters(*KINDS)
    def test_first_numbers_alone(self, vectors):
        index = self.make(documents(range(40)), vectors, 'cosine')
        index.cut(13, normalize=True)
        queries = embed(['one', 'two'])
        scores, _ = index.search(queries, 40)
        kind = KINDS[vectors]
        kept = kind.decode(kind.encode(ranking.prepared(
            embed([p.text for p in index.passages()]), 'cosine'
        )))[:, :13]  # fmt: skip
        products = (ranking.prepared(queries[:, :13], 'cosine')
                    @ ranking.prepared(kept, 'cosine').T)  # fmt: skip
        np.testing.assert_allclose(
            scores, -np.sort(-products, axis=1), rtol=1e-4, atol=1e-5
        )
        with self.assertRaisesRegex(ValueError, '--dims=71: vectors have 70'):
            index.cut(71, normalize=True)

    def test_fewer_passages_than_answers(self):
        index = self.make(documents(range(2)), 'binary')
        scores, numbers = index.search(embed(['one']), 5)
        self.assertEqual(sorted(numbers[0].tolist()), [-1, -1, -1, 0, 1])
        self.assertEqual(scores[0, 2:].tolist(), [-np.inf] * 3)

    @parameterized.parameters(
        ('float32', 4 * WIDTH), ('int8', WIDTH + 4),
        ('binary', 16 + WIDTH + 4),
    )  # fmt: skip
    def test_bytes(self, vectors, wanted):
        index = self.make(documents(range(100)), vectors)
        headers = 128 * len(KINDS[vectors].parts)
        self.assertEqual(index.size, 100 * wanted + headers)


class UpdateTest(Case):
    @parameterized.parameters(*KINDS)
    def test_appended_is_as_made_at_once(self, vectors):
        index = self.make(documents(range(30)), vectors)
        self.encoded()
        with mock.patch.object(indexes, 'BLOCK', 8):
            index = index.update(lambda: documents(range(20, 45)), self.embed)
        self.assertLen(self.encoded(), 15)
        self.assertLen(index, 45)
        appended = self.content()
        self.folder = self.folder.with_name('another')
        self.make(documents(range(45)), vectors)
        self.assertEqual(
            {k: v for k, v in self.content().items() if k.suffix != '.json'},
            {k: v for k, v in appended.items() if k.suffix != '.json'},
        )

    def test_what_differs_is_replaced_and_comes_last(self):
        index = self.make(documents(range(6)))
        self.encoded()
        new = [*documents([1], 'new'), *documents([2]),
               *documents([9]), Document((), 'id 4'),
               Document((), 'id 77')]  # fmt: skip
        changed = index.update(lambda: iter(new), self.embed)
        self.assertEqual(self.encoded(), ['new 1', 'text 9'])
        self.assertEqual(
            [(p.source, p.text) for p in changed.passages()],
            [('id 0', 'text 0'), ('id 2', 'text 2'), ('id 3', 'text 3'),
             ('id 5', 'text 5'), ('id 1', 'new 1'), ('id 9', 'text 9')],
        )  # fmt: skip
        for number, passage in enumerate(changed.passages()):
            _, found = changed.search(10 * embed([passage.text]), 1)
            self.assertEqual(found[0, 0], number)
        # Whoever had the old one open still has it.
        self.assertEqual(index.passage(1).text, 'text 1')
        self.assertLen(index, 6)
        self.assertEqual(changed.key['updates'], 1)

    def test_documents_of_several_passages(self):
        long = [Document((f'{"w " * 70}{i}', f'{"v " * 70}{i}'), f'id {i}')
                for i in range(3)]  # fmt: skip
        index = self.make(long)
        self.assertLen(index, 6)
        self.encoded()
        middle = long[1]._replace(
            sentences=(long[1].sentences[0], 'a new end ' * 20)
        )
        index = index.update(lambda: [middle, long[2]], self.embed)
        self.assertEqual(self.encoded(), [middle.sentences[1]])
        self.assertEqual(
            [p.source for p in index.passages()],
            ['id 0', 'id 0', 'id 2', 'id 2', 'id 1', 'id 1'],
        )

    def test_nothing_new_writes_nothing(self):
        index = self.make(documents(range(5)))
        self.encoded()
        before = self.content()
        again = index.update(lambda: documents([3, 1]), self.embed)
        self.assertIs(again, index)
        self.assertEqual(self.content(), before)
        self.assertEqual(self.encoded(), [])

    def test_a_name_that_occurs_twice(self):
        index = self.make(documents(range(5)))
        before = self.content()
        with self.assertRaisesRegex(ValueError, 'id 3 occurs twice'):
            index.update(lambda: documents([3, 7, 3]), self.embed)
        self.assertEqual(self.content(), before)

    def test_nothing_would_be_left(self):
        index = self.make(documents([1]))
        before = self.content()
        with self.assertRaisesRegex(commands.UsageError, 'no text to search'):
            index.update(lambda: [Document((), 'id 1')], self.embed)
        self.assertEqual(self.content(), before)
        self.assertEqual(self.folders(), ['data-1'])


class MadeTest(Case):
    def test_only_new_texts_are_encoded(self):
        self.make(documents(range(10)))
        self.assertLen(self.encoded(), 10)
        self.make(documents(range(5, 12)), corpus='another')
        self.assertEqual(self.encoded(), ['text 10', 'text 11'])
        self.assertEqual(self.folders(), ['data-2'])
        # Of another model, or of another kind, no vector is taken.
        self.make(documents(range(5, 12)), model='another')
        self.assertLen(self.encoded(), 7)
        self.make(documents(range(5, 12)), 'int8', model='another')
        self.assertLen(self.encoded(), 7)

    def test_copies_are_encoded_once(self):
        copies = [Document((f'text {n % 3}',), f'id {n}') for n in range(9)]
        index = self.make(copies)
        self.assertEqual(self.encoded(), ['text 0', 'text 1', 'text 2'])
        scores, _ = index.search(embed(['text 1']), 9)
        self.assertEqual((scores[0] == scores[0, 0]).sum(), 3)

    @parameterized.parameters(*KINDS)
    def test_stopped_at_any_block(self, vectors):
        """The old one stays; whoever comes next encodes the rest alone."""
        old = documents(range(5), 'old')
        self.make(old, vectors)
        before = self.content()
        new = documents(range(40))
        self.encoded()
        with mock.patch.object(indexes, 'BLOCK', 8):
            for stop in (2, 1, 1):  # of five blocks, each time
                calls = [embed] * stop

                def until(texts, role, calls=calls):
                    if not calls:
                        raise Stopped
                    return calls.pop()(texts, role)

                self.embed.side_effect = until
                with self.assertRaises(Stopped):
                    self.make(new, vectors)
                self.assertEqual(self.content(), before)
                self.assertLen(indexes.Index.open(self.folder), 5)
            self.embed.side_effect = embed
            self.encoded()
            index = self.make(new, vectors)
        self.assertEqual(self.encoded(), [f'text {n}' for n in range(32, 40)])
        self.assertLen(index, 40)
        self.assertLen(self.folders(), 1)
        found = self.content()
        self.folder = self.folder.with_name('another')
        self.make(new, vectors)
        self.assertEqual(self.content(), found)

    def test_killed_while_writing_leaves_the_old_one(self):
        """Between any two files that are written, and within the last."""
        self.make(documents(range(5), 'old'))
        before = self.content()
        for name in ('write_json', None):
            with self.assertRaises(Stopped):
                if name:
                    calls = []

                    def write(path, value, calls=calls, real=files.write_json):
                        calls.append(path.name)
                        if len(calls) == 2:  # the key of all, the last
                            raise Stopped
                        real(path, value)

                    with mock.patch.object(files, name, write):
                        self.make(documents(range(9)))
                else:
                    with mock.patch.object(
                        indexes.VectorFile, 'append', side_effect=Stopped
                    ):
                        self.make(documents(range(9)))
            self.assertEqual(self.content(), before)
            self.assertLen(indexes.Index.open(self.folder), 5)
        self.encoded()
        self.assertLen(self.make(documents(range(9))), 9)
        self.assertEqual(self.encoded(), [])

    def test_one_process_at_a_time(self):
        self.make(documents(range(2)))
        with (
            files.locked(self.folder),
            self.assertRaisesRegex(commands.UsageError, 'another process'),
        ):
            self.make(documents(range(3)))
        self.assertLen(indexes.Index.open(self.folder), 2)

    def test_vectors_that_are_no_numbers(self):
        self.make(documents(range(2)))
        self.embed.side_effect = lambda texts, role: embed(texts) * np.nan
        with self.assertRaisesRegex(ValueError, 'not finite'):
            self.make(documents(range(3)))
        self.assertLen(indexes.Index.open(self.folder), 2)


class OpenTest(Case):
    def test_a_cut_file_is_named(self):
        for name in ('codes.npy', 'passages.jsonl', 'ends.npy', 'bits.npy'):
            self.make(documents(range(9)), 'binary')
            [data] = self.folders()
            path = self.folder / data / name
            content = path.read_bytes()
            for left in (content[:-1], content[:100], b'', None):
                path.unlink()
                if left is not None:
                    path.write_bytes(left)
                with self.assertRaisesRegex(
                    commands.UsageError,
                    f'{name} has [0-9,]+ bytes instead of [0-9,]+: the index '
                    'is cut; delete',
                ):
                    indexes.Index.open(self.folder)
                path.write_bytes(content)
            self.assertLen(indexes.Index.open(self.folder), 9)

    def test_cut_while_it_is_open(self):
        index = self.make(documents(range(5000)))
        [data] = self.folders()
        path = self.folder / data / 'vectors.npy'
        with open(path, 'r+b') as file:
            file.truncate(1000)
        with self.assertRaisesRegex(ValueError, 'has become shorter'):
            index.search(embed(['one']), 3)

    def test_of_another_model_or_version_or_none(self):
        self.make(documents(range(2)))
        self.assertLen(indexes.Index.open(self.folder, KEY['model']), 2)
        with self.assertRaisesRegex(commands.UsageError, 'another model'):
            indexes.Index.open(self.folder, 'one that is not there')
        key = indexes.read_key(self.folder)
        for content, message in (
            ({**key, 'format': 1}, 'another version of this project'),
            ({**key, 'vectors': 'float8'}, 'another version'),
            ([], 'not of an index .no JSON object'),
        ):
            files.write_json(self.folder / 'key.json', content)
            with self.assertRaisesRegex(commands.UsageError, message):
                indexes.Index.open(self.folder)
        (self.folder / 'key.json').write_text('{"format": 2,')
        with self.assertRaisesRegex(commands.UsageError, 'not of an index'):
            indexes.Index.open(self.folder)
        with self.assertRaisesRegex(commands.UsageError, 'is no index'):
            indexes.Index.open(self.folder / 'nowhere')

    def test_a_folder_of_other_things(self):
        folder = places.make()
        for name in ('1', 'notes.txt'):
            path = pathlib.Path(folder) / name
            path.mkdir()
            with self.assertRaisesRegex(commands.UsageError, 'other things'):
                indexes.read_key(folder)
            path.rmdir()
        self.assertIsNone(indexes.read_key(folder))


if __name__ == '__main__':
    absltest.main()
