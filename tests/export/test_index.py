"""An index as it is made, searched, updated, killed, and damaged."""

import contextlib
import io
import math
import pathlib
import subprocess
import sys
import time
from unittest import mock

import numpy as np
from absl.testing import parameterized
from scipy import sparse

from export import index as indexes
from export.index import KINDS, Index, sqlite3
from export.residual import Residual
from infoword_tf import files
from infoword_tf.critics.late import LATE
from infoword_tf.critics.lexical import LEXICAL
from infoword_tf.critics.texts import Tokens, numbers_of
from infoword_tf.data.documents import Document, passages
from infoword_tf.evaluation import ranking
from tests import places
from tests.refused import refused

WIDTH = 70
KEY = {'corpus': 'text:*.txt', 'model': 'a', 'similarity': 'dot'}


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


def by_critic(critic, texts):
    """Vectors of tokens, or weights of 70 of them, that a text decides."""
    if critic == LEXICAL:
        return sparse.csr_array(np.maximum(embed(texts), 0))
    return Tokens.of([embed([f'{i} {x}' for i in range(len(x))])
                      for x in texts])  # fmt: skip


def unit_by(*texts):
    """Vectors of tokens of length 1, that a text decides."""
    tokens = by_critic(LATE, texts)
    return tokens.replaced(ranking.prepared(tokens.vectors, 'cosine'))


def content(folder):
    """Passages, words and vectors by name, and what FAISS holds of them."""
    import faiss

    with contextlib.closing(sqlite3.connect(folder / indexes.FILE)) as db:
        assert db.execute('PRAGMA integrity_check').fetchall() == [('ok',)]
        db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        rows = db.execute(
            'SELECT source, place, text, vectors.id, code FROM passages '
            'JOIN vectors USING (digest) ORDER BY source, place'
        ).fetchall()
    [path] = folder.glob('vectors-*.faiss')
    index = faiss.read_index(str(path))
    ids = faiss.vector_to_array(index.id_map).tolist()
    assert sorted(ids) == sorted({row[3] for row in rows})
    flat = faiss.downcast_index(index.index)
    codes = faiss.vector_to_array(flat.codes).reshape(len(ids), -1)
    place = {id: row for row, id in enumerate(ids)}
    return [
        (*row[:3], row[4], codes[place[row[3]]].tobytes()) for row in rows
    ]


PROGRAM = """if True:
    import pathlib, sys, time
    from export import index as indexes
    from tests.export.test_index import KEY, documents, embed
    folder, log, step, kind, count = sys.argv[1:]
    count = int(count)
    indexes.BLOCK = count // 16

    def slow(texts, role):
        time.sleep(0.02)
        with open(log, 'a') as file:
            print(*texts, sep='\\n', file=file)
        return embed(texts)

    texts, key = documents(range(count)), {**KEY, 'vectors': kind}
    if step == 'update':
        texts = documents(range(count, count + count // 4))
        texts, key = documents(range(1, 9), 'new') + texts, None
    indexes.Index(pathlib.Path(folder)).write(texts, slow, key)
"""


def killed(folder, kills, count, kind):
    """Kills processes that make an index, and then such as update it.

    What is there in between, and in the end, is compared with what processes
    leave that nobody has disturbed.

    Returns:
        How many were killed before they ended.
    """
    done, log = 0, folder / 'encoded'
    disturbed, other = folder / 'disturbed', folder / 'other'
    for step, sizes in ('make', {0, count}), (
        'update', {count, count + count // 4},
    ):  # fmt: skip

        def start(where, step=step):
            return subprocess.Popen(
                [sys.executable, '-c', PROGRAM, where, log, step, kind,
                 str(count)], stderr=subprocess.DEVNULL,
            )  # fmt: skip

        began = time.monotonic()
        assert not start(other).wait()
        took = time.monotonic() - began
        log.unlink()
        for kill in range(kills):
            process = start(disturbed)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(took * (kill + 1) / (kills + 1))
            done += process.poll() is None
            process.kill()
            process.wait()
            index = Index(disturbed)
            assert len(index) in sizes, len(index)
            if step == 'update':
                [(score, actual)] = index.find('', embed(['text 0']), 1)
                assert actual == ('text 0', 'id 0'), actual
        assert not start(disturbed).wait()
        assert content(disturbed) == content(other)
        texts = log.read_text().splitlines()
        # Of each that was killed one block is done again, at most.
        assert len(texts) - len(set(texts)) <= kills * (count // 16)
    return done


class Case(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(places.make()) / 'index'
        self.embed = mock.Mock(side_effect=embed)

    def make(self, texts, vectors='float32', **key):
        index = Index(self.folder)
        index.write(texts, self.embed, {**KEY, 'vectors': vectors, **key})
        return index

    def encoded(self):
        """Texts that were encoded since it was last asked."""
        texts = [t for call in self.embed.call_args_list for t in call.args[0]]
        self.embed.reset_mock()
        return sorted(texts)


class SearchTest(Case):
    @parameterized.product(
        vectors=list(KINDS), similarity=['dot', 'cosine'],
        faiss=[True, False],
    )  # fmt: skip
    def test_answers_are_all_products(self, vectors, similarity, faiss):
        """Answers by FAISS, and by NumPy where there is none."""
        with mock.patch.object(indexes, 'BLOCK', 7), \
             mock.patch.object(indexes, 'has_faiss', return_value=faiss):
            index = self.make(
                documents(range(50)), vectors, similarity=similarity
            )
            query = embed(['one'])
            actual = index.find('', query, 20)
        self.assertEqual(
            [p.name for p in sorted(self.folder.glob('[!.]*'))],
            ['passages.sqlite'] + faiss * ['vectors-1.faiss'],
        )
        texts = [f'text {n}' for n in range(50)]
        codes = ranking.prepared(embed(texts), similarity)
        restored = indexes.decoded(indexes.encoded(codes, vectors), vectors)
        products = (ranking.prepared(query, similarity) @ restored.T)[0]
        best = np.argsort(-products)[:20]
        self.assertEqual([p.text for _, p in actual], [texts[i] for i in best])
        np.testing.assert_allclose(
            [score for score, _ in actual], products[best], rtol=1e-5
        )

    @parameterized.parameters(
        (LATE, 'float32', 0), (LATE, 'float16', 2e-3), (LATE, 'int8', 2e-2),
        (LEXICAL, 'float32', 0),
    )  # fmt: skip
    def test_other_critics(self, critic, vectors, error):
        """Answers are those of all scores, also of what BM25 has found.

        A text has as many vectors as letters.
        """
        self.embed.side_effect = lambda texts, role='passage': by_critic(
            critic, texts
        )
        query = by_critic(critic, ['a query'])
        with mock.patch.object(indexes, 'TEXTS', 4):
            index = self.make(documents(range(9)), vectors, critic=critic)
            index.find('', query, 1)  # what it holds is of 9 texts
            index.write(documents(range(7, 12)), self.embed)
        self.assertLen(self.encoded(), 9 + 3)
        self.assertEqual(index.key()['bytes'], 0)
        index.mend()
        [path] = self.folder.glob('[!.]*')
        texts = [f'text {n}' for n in range(12)]
        vectors_of = by_critic(critic, texts)
        restored = indexes.decoded(
            indexes.encoded(vectors_of, vectors), vectors, query
        )
        np.testing.assert_allclose(
            numbers_of(restored), numbers_of(vectors_of),
            atol=error,
        )  # fmt: skip
        scores = ranking.comparer(restored)(query)[0]
        best = np.argsort(-scores)
        for _ in range(2):
            actual = index.find('', query, 5)
            self.assertEqual([p.text for _, p in actual],
                             [texts[i] for i in best[:5]])  # fmt: skip
            np.testing.assert_allclose(
                [x for x, _ in actual], scores[best[:5]], rtol=1e-5
            )
        index.first = 3
        words = [p.text for _, p in index.find('3 7 11', None, 3, words=1)]
        self.assertCountEqual(words, ['text 11'])
        [(score, actual)] = index.find('3 7 11', query, 5)
        self.assertEqual(actual.text, 'text 11')
        self.assertAlmostEqual(score, scores[11], places=3)
        # Ordered anew: of the two best those that end later come first.
        index.first, index.top = None, 2
        index.rerank = lambda _, answers: np.array(
            [int(x.split()[1]) for x in answers]
        )
        actual = index.find('', query, 1)
        self.assertEqual(actual[0][1].text, texts[best[:2].max()])
        self.assertLen(actual, 1)
        # As many answers as are asked for, if that is more.
        self.assertLen(index.find('', query, 5), 5)
        index.first = 1
        self.assertLen(index.find('3 7 11 text', query, 5), 5)

    def test_residual_codes(self):
        """2 bytes and 2 bits a number; fitted once, and known after an update.
        """
        self.embed.side_effect = lambda texts, role: unit_by(*texts)
        index = self.make(documents(range(40)), 'residual', critic=LATE)
        index.write(documents(range(30, 50)), self.embed)
        with index._opened() as db:
            codes = indexes._codes(db, index.key())
            stored = dict(db.execute(
                'SELECT text, code FROM vectors JOIN passages USING (digest)'
            ))  # fmt: skip
        self.assertLen(stored, 50)
        # At most a quarter of 270 vectors, a power of two.
        self.assertEqual(codes.centroids.shape, (64, WIDTH))
        size = 2 + math.ceil(WIDTH / 4)
        self.assertEqual({len(stored[x]) // size for x in stored}, {6, 7})
        for text in 'text 3', 'text 44':
            [(score, actual)] = index.find('', unit_by(text), 1)
            self.assertEqual(actual.text, text)
            self.assertAlmostEqual(score, len(text), delta=0.2 * len(text))
        # A centroid and one of four values, then of length 1.
        codes = Residual(
            np.float32([[0.6, 0.8, 0], [0, 0, 1]]),
            np.float32([-0.1, 0, 0.1]), np.float32([-0.2, -0.05, 0.05, 0.2]),
        )  # fmt: skip
        vectors = np.float32([[0.9, 0.65, -0.04], [0.02, 0, 0.8]])
        expected = np.array([[0.8, 0.6, -0.05], [0.05, -0.05, 0.8]])
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        rows = Residual.of_bytes(codes.to_bytes()).encode(vectors)
        self.assertEqual(rows.tolist(), [[0, 0, 19], [1, 0, 6]])
        np.testing.assert_allclose(codes.decode(rows), expected, rtol=1e-6)

    def test_texts_without_tokens(self):
        """Their score is 0, also where no text of an update has a token."""
        def encoded(texts, role):
            tokens = Tokens.of([
                embed([text] * text.count('e')).reshape(-1, WIDTH)
                if 'e' in text else np.zeros((0, WIDTH), np.float32)
                for text in texts
            ])  # fmt: skip
            if critic == LATE:
                return tokens
            return sparse.csr_array(np.maximum(tokens.sums(), 0))

        self.embed.side_effect = encoded
        empty = [Document(('zzz',), 'empty')]
        for critic, kind in (
            (LATE, 'float32'), (LATE, 'float16'), (LATE, 'int8'),
            (LATE, 'residual'), (LEXICAL, 'float32'),
        ):  # fmt: skip
            with self.subTest(f'{critic} {kind}'):
                self.folder = places.make()
                if kind == 'residual':
                    with refused('nothing_to_fit', 'residual', 'int8'):
                        self.make(empty, kind, critic=critic)
                index = self.make(documents(range(8)), kind, critic=critic)
                index.write(empty, self.embed)
                scores = {
                    passage.text: score
                    for score, passage in index.find(
                        '', encoded(['text 3'], 'query'), 9
                    )
                }
                self.assertLen(scores, 9)
                self.assertEqual(scores['zzz'], 0)
                self.assertGreater(scores['text 3'], 0)

    def test_coarse_codes(self):
        self.embed.side_effect = lambda texts, role: unit_by(*texts)
        index = self.make(documents(range(1)), 'residual', critic=LATE)
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            index.write(documents(range(1, 3)), self.embed)
            self.assertNotIn('coarse', printed.getvalue())
            index.write(documents(range(3, 40)), self.embed)
        # Of 37 passages at least 37 vectors, so 8 centroids; of 6 vectors one.
        self.assertIn('codes of 1 centroids', printed.getvalue())
        self.assertIn('coarse for 37 new ones', printed.getvalue())

    def test_binary_orders_anew_what_its_bits_find(self):
        index = self.make(documents(range(400)), 'binary')
        query = embed(['query'])
        actual = index.find('', query, 3, oversample=4)
        texts = [f'text {n}' for n in range(400)]
        vectors = embed(texts)
        differing = ((query > 0) != (vectors > 0)).sum(axis=1)
        restored = indexes.decoded(indexes.encoded(vectors, 'binary'), 'binary')
        near = np.argsort(differing, kind='stable')[:12]
        best = near[np.argsort(-(query @ restored[near].T)[0])][:3]
        self.assertEqual([p.text for _, p in actual], [texts[i] for i in best])
        [(_, actual)] = index.find('', query, 1, oversample=400)
        self.assertEqual(actual.text, texts[np.argmax(query @ restored.T)])

    def test_words_are_scored_by_bm25(self):
        """As its formula has it, with stems, and no word that all texts have.
        """
        texts = ['the boats sail', 'boat boats', 'cats', 'dogs', 'a tree',
                 'to the lighthouse', 'rivers']  # fmt: skip
        index = self.make([Document((t,), t) for t in texts])
        mean = sum(len(t.split()) for t in texts) / 7
        idf = math.log((7 - 2 + 0.5) / (2 + 0.5))

        def score(count, length):
            norm = 1.2 * (0.25 + 0.75 * length / mean)
            return idf * count * 2.2 / (count + norm)

        actual = index.find('The boats!', None, 5, words=1)
        self.assertEqual([p.text for _, p in actual], [texts[1], texts[0]])
        np.testing.assert_allclose(
            [x for x, _ in actual], [score(2, 2), score(1, 3)], rtol=1e-5
        )
        for nothing in ('to the', '"', '', 'zebra AND', 'boats* NOT'):
            actual = index.find(nothing, None, 5, words=1)
            self.assertLen(actual, 2 * nothing.startswith('boats'), nothing)

    def test_both_are_merged(self):
        """Scores of each, of mean 0 and deviation 1, by their shares.

        Of 7 passages 3 have the word: the others have the score 0.
        """
        index = self.make(documents([1, 2, 3], 'a boat') + documents(range(4)))
        query = embed(['cats'])
        sums = {}
        for share, words in ((1.4, 0), (0.6, 1)):
            actual = index.find('boats', query, 100, words)
            self.assertLen(actual, 3 if words else 7)
            scores = np.zeros(7)
            scores[: len(actual)] = [score for score, _ in actual]
            scores = (scores - scores.mean()) / max(scores.std(), 1e-12)
            by_text = {passage.text: score for score, (_, passage)
                       in zip(scores, actual, strict=False)}  # fmt: skip
            for text in sums or by_text:
                score = by_text.get(text, scores[-1])
                sums[text] = sums.get(text, 0) + share * score
        actual = index.find('boats', query, 3, words=0.3)
        best = sorted(sums.values(), reverse=True)[:3]
        np.testing.assert_allclose([x for x, _ in actual], best, rtol=1e-5)
        for score, passage in actual:
            self.assertAlmostEqual(sums[passage.text], score, places=5)

    def test_copies_and_fewer_passages_than_answers(self):
        copies = [Document((f'text {n % 3}',), f'id {n}') for n in range(9)]
        index = self.make(copies, 'binary')
        self.assertEqual(self.encoded(), ['text 0', 'text 1', 'text 2'])
        actual = index.find('', embed(['text 1']), 20)
        self.assertLen(actual, 9)
        self.assertEqual([p.source for _, p in actual[:3]],
                         ['id 7', 'id 4', 'id 1'])  # fmt: skip
        self.assertEqual(actual[0][0], actual[2][0])

    def test_bytes_are_off_by_half_a_step_at_most(self):
        random = np.random.default_rng(0)
        scales = np.exp(random.uniform(-60, 60, (300, 1)))
        vectors = random.standard_normal((300, 70)) * scales
        vectors = np.float32([*vectors, [0] * 70, [1e-45] * 70])
        codes = indexes.encoded(vectors, 'int8')
        self.assertEqual({len(code) for code in codes}, {74})
        error = np.abs(indexes.decoded(codes, 'int8') - vectors).max(axis=1)
        steps = np.abs(vectors).max(axis=1) / 127
        self.assertTrue((error <= 0.5001 * steps + 1e-38).all())
        self.assertGreater((error[:300] / steps[:300]).max(), 0.49)


class UpdateTest(Case):
    @parameterized.parameters(*KINDS)
    def test_added_is_as_made_at_once(self, vectors):
        index = self.make(documents(range(30)), vectors)
        self.encoded()
        with mock.patch.object(indexes, 'BLOCK', 8):
            index.write(documents(range(20, 45)), self.embed)
        self.assertLen(self.encoded(), 15)
        self.assertLen(index, 45)
        added = content(self.folder)
        self.folder = self.folder.with_name('another')
        self.make(documents(range(45)), vectors)
        self.assertEqual(content(self.folder), added)

    def test_passages_that_differ_are_exchanged(self):
        index = self.make(documents(range(6)))
        long = Document((f'{"w " * 70}0', f'{"v " * 70}0'), 'long')
        self.encoded()
        middle = long._replace(sentences=(long.sentences[0], 'an end ' * 20))
        for texts, expected in (
            ([*documents([1], 'new'), *documents([2, 9]), long,
              Document((), 'id 4'), Document((), 'id 77')],
             [*passages(long), 'new 1', 'text 9']),
            ([middle], ['an end ' * 20]),
            ([middle, *documents([2])], []),
        ):  # fmt: skip
            index.write(iter(texts), self.embed)
            self.assertEqual(self.encoded(), sorted(expected))
        self.assertEqual(
            [row[:3] for row in content(self.folder)],
            [('id 0', 0, 'text 0'), ('id 1', 0, 'new 1'),
             ('id 2', 0, 'text 2'), ('id 3', 0, 'text 3'),
             ('id 5', 0, 'text 5'), ('id 9', 0, 'text 9'),
             ('long', 0, long.sentences[0]), ('long', 1, 'an end ' * 20)],
        )  # fmt: skip
        # Whoever had it open sees what is new, and nothing that left.
        for text in ('new 1', 'text 9'):
            [(_, actual)] = index.find('', embed([text]), 1)
            self.assertEqual(actual.text, text)
        self.assertNotIn('text 4', str(index.find('text', embed(['']), 9, 0.5)))
        # What was not new has written nothing.
        self.assertEqual(index.key()['updates'], 2)
        self.assertEqual(index.key()['number'], 3)

    def test_only_new_texts_are_encoded(self):
        self.make(documents(range(10)))
        self.assertLen(self.encoded(), 10)
        index = self.make(documents(range(5, 12)), corpus='another')
        self.assertEqual(self.encoded(), ['text 10', 'text 11'])
        self.assertLen(index, 7)
        # Of another model, kind or similarity no vector is taken.
        for kind, similarity in (
            ('float32', 'dot'), ('int8', 'dot'), ('int8', 'cosine')
        ):  # fmt: skip
            self.make(
                documents(range(5, 12)), kind, model='another',
                similarity=similarity,
            )  # fmt: skip
            self.assertLen(self.encoded(), 7)
            self.assertLen(content(self.folder), 7)
        self.embed.side_effect = lambda texts, role: by_critic(LATE, texts)
        self.make(
            documents(range(5, 12)), 'int8', model='another',
            similarity='cosine', critic=LATE,
        )  # fmt: skip
        self.assertLen(self.encoded(), 7)

    def test_nothing_would_be_left(self):
        index = self.make(documents([1]))
        before = content(self.folder)
        with refused('no_text_to_search'):
            index.write([Document((), 'id 1')], self.embed)
        self.assertEqual(content(self.folder), before)

    def test_vectors_that_are_no_numbers(self):
        index = self.make(documents(range(2)))
        self.embed.side_effect = lambda texts, role: embed(texts) * np.nan
        with self.assertRaisesRegex(ValueError, 'not finite'):
            index.write(documents(range(3)), self.embed)
        self.assertLen(content(self.folder), 2)

    def test_one_process_at_a_time(self):
        index = self.make(documents(range(2)))
        with files.locked(self.folder):
            with self.assertRaisesRegex(RuntimeError, 'another run is writing'):
                index.write(documents(range(3)), self.embed)
            self.assertLen(index.find('', embed(['text 1']), 5), 2)

    def test_killed(self):
        """Many times; the former one is there, and the end is as always."""
        self.assertGreater(killed(places.make(), 4, 320, 'binary'), 4)


class DamageTest(Case):
    def test_the_file_of_faiss_is_made_again(self):
        index = self.make(documents(range(9)), 'int8')
        before = content(self.folder)
        for size in (-1, 100, 0, None):
            [path] = self.folder.glob('vectors-*.faiss')
            whole = path.read_bytes()
            path.unlink()
            if size is not None:
                path.write_bytes(whole[:size])
            with self.subTest(size):
                query = embed(['text 4'])
                [(_, actual)] = Index(self.folder).find('', query, 1)
                self.assertEqual(actual.text, 'text 4')
                index.mend()
                self.assertEqual(content(self.folder), before)

    def test_a_damaged_file_is_named(self):
        self.make(documents(range(900)))
        path = self.folder / indexes.FILE
        whole = path.read_bytes()
        for damaged in (whole[:-20_000], whole[:100], b'x' * 9999):
            path.write_bytes(damaged)
            index = Index(self.folder)
            with (
                self.subTest(len(damaged)),
                refused('unreadable_index', 'passages.sqlite'),
            ):
                index.find('text', embed(['one']), 5, 0.5)
        path.write_bytes(whole)
        self.assertLen(Index(self.folder), 900)

    def test_of_another_version_or_of_other_things(self):
        index = self.make(documents(range(2)))
        with contextlib.closing(
            sqlite3.connect(self.folder / indexes.FILE)
        ) as db:
            db.execute('PRAGMA user_version = 9')
        with refused('index_of_other_version', self.folder):
            index.key()
        for name in ('1', 'key.json'):
            folder = pathlib.Path(places.make())
            (folder / name).mkdir()
            with refused('folder_of_other_things', folder):
                Index(folder)
        self.assertEqual(Index(folder / 'nowhere').key(), {})
