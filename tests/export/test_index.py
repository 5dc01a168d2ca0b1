"""An index as it is made, searched, made again, stopped, and damaged."""

import contextlib
import itertools
import json
import pathlib
from unittest import mock

import numpy as np
from absl.testing import parameterized
from scipy import sparse

from export import index as indexes
from export.index import Index
from infoword_tf import files
from infoword_tf.critics.cosine import COSINE
from infoword_tf.critics.late import LATE
from infoword_tf.critics.lexical import LEXICAL
from infoword_tf.critics.texts import Tokens, numbers_of
from infoword_tf.data.documents import Document, passages
from infoword_tf.evaluation import ranking
from infoword_tf.evaluation import vectors as vector_files
from infoword_tf.evaluation.bm25 import Bm25
from tests import places
from tests.refused import refused

WIDTH = 70
KEY = {'corpus': 'text:*.txt', 'model': 'a', 'critic': COSINE}


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
    """Vectors, of texts or of tokens, or weights of 70, that a text decides."""
    if critic == COSINE:
        return embed(texts)
    if critic == LEXICAL:
        return sparse.csr_array(np.maximum(embed(texts), 0))
    return Tokens.of([embed([f'{i} {x}' for i in range(len(x))])
                      for x in texts])  # fmt: skip


def as_they_are(texts):
    """Texts of a critic whose products are compared."""
    return ranking.prepared(texts, 'dot')


def content(folder):
    index = Index(folder)
    assert {x.name.partition('-')[0] for x in folder.glob('[!.]*')} == {
        'index.json', 'texts.jsonl', 'vectors.npy', 'words',
    }  # fmt: skip
    vectors = np.load(folder / 'vectors.npy')
    texts = [*map(json.loads, open(folder / 'texts.jsonl'))]
    assert len(texts) == len(vectors) == len(set(texts))
    return [
        (source, texts[i], vectors[i].tobytes())
        for source, i in zip(
            index.about['sources'], index.about['texts'], strict=True
        )
    ]


class Stopped(Exception):
    """A process ends, as by a kill."""


@contextlib.contextmanager
def stopped_at(number):
    """Ends whoever writes an index at a step, before it or after it.

    Yields:
        What counts the steps, of which there may be fewer.
    """
    steps = itertools.count()

    def counted(call):
        def step(*arguments, **settings):
            if next(steps) == number:
                raise Stopped
            result = call(*arguments, **settings)
            if next(steps) == number:
                raise Stopped
            return result

        return step

    with contextlib.ExitStack() as stack, contextlib.suppress(Stopped):
        for place, name in (
            (vector_files.VectorFile, 'append'), (vector_files, 'open'),
            (files.os, 'replace'), (Bm25, 'save'), (indexes.shutil, 'rmtree'),
        ):  # fmt: skip
            call = getattr(place, name, open)
            stack.enter_context(
                mock.patch.object(place, name, counted(call), create=True)
            )
        yield steps


class Case(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(places.make()) / 'index'
        self.embed = mock.Mock(side_effect=embed)

    def make(self, texts, **key):
        index = Index(self.folder)
        index.write(texts, self.embed, {**KEY, **key})
        return index

    def encoded(self):
        """Texts that were encoded since it was last asked."""
        texts = [t for call in self.embed.call_args_list for t in call.args[0]]
        self.embed.reset_mock()
        return sorted(texts)


class SearchTest(Case):
    @parameterized.parameters(COSINE, LATE, LEXICAL)
    def test_answers_are_those_of_all_scores(self, critic):
        """Also of what BM25 has found; a text has as many vectors as letters.
        """
        self.embed.side_effect = lambda texts, role: by_critic(critic, texts)
        query = by_critic(critic, ['a query'])
        with mock.patch.object(vector_files, 'BLOCK', 4):
            self.make(documents(range(12)), critic=critic)
        self.assertLen(self.encoded(), 12)
        index = Index(self.folder)  # as another process opens it
        texts = [f'text {n}' for n in range(12)]
        vectors = by_critic(critic, texts)
        stored = index._encoded.read(np.arange(12), query)
        np.testing.assert_array_equal(numbers_of(stored), numbers_of(vectors))
        scores = ranking.comparer(vectors)(query)[0]
        best = np.argsort(-scores)
        for count in (5, 20):
            actual = index.find('', query, as_they_are, count)
            self.assertEqual([p.text for _, p in actual],
                             [texts[i] for i in best[:count]])  # fmt: skip
            np.testing.assert_allclose(
                [x for x, _ in actual], scores[best[:count]], rtol=1e-5
            )
        actual = index.find('3 7 11', query, as_they_are, 1, first=3)
        [(score, passage)] = actual
        self.assertEqual(passage.text, 'text 11')  # one letter is no word
        self.assertAlmostEqual(score, scores[11], places=3)
        # As many answers as are asked for, if that is more.
        actual = index.find('text', query, as_they_are, 5, first=1)
        self.assertLen(actual, 5)
        self.assertEmpty(index.find('zebra', query, as_they_are, 5, first=3))

    def test_what_is_compared_is_prepared(self):
        """The query and the passages, each time they are compared."""
        index = self.make(documents(range(9)))
        query = embed(['a query'])

        def prepare(texts):
            return ranking.prepared(texts[:, :3], 'cosine')

        [(score, actual)] = index.find('', query, prepare, 1)
        texts = [f'text {n}' for n in range(9)]
        scores = (prepare(query) @ prepare(embed(texts)).T)[0]
        self.assertEqual(actual.text, texts[scores.argmax()])
        self.assertAlmostEqual(score, scores.max(), places=5)

    def test_texts_without_tokens(self):
        """Their score is 0, also where no text has a token."""
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
        for critic in (LATE, LEXICAL):
            with self.subTest(critic):
                self.folder = places.make(cache=False)
                index = self.make(empty, critic=critic)
                query = encoded(['text 3'], 'query')
                [(score, _)] = index.find('', query, as_they_are, 9)
                self.assertEqual(score, 0)
                self.make(documents(range(8)) + empty, critic=critic)
                scores = {
                    passage.text: score
                    for score, passage in Index(self.folder).find(
                        '', query, as_they_are, 9
                    )
                }
                self.assertLen(scores, 9)
                self.assertEqual(scores['zzz'], 0)
                self.assertGreater(scores['text 3'], 0)

    def test_words_are_those_of_bm25(self):
        texts = ['the boats sail', 'boat boats', 'cats', 'dogs', 'a tree',
                 'to the lighthouse', 'rivers']  # fmt: skip
        self.make([Document((t,), t) for t in texts])
        index = Index(self.folder)
        [scores], [numbers] = Bm25(texts).search(['The boats!'], 5)
        actual = index.find('The boats!', None, as_they_are, 5, words=1)
        self.assertEqual([p.text for _, p in actual], [texts[1], texts[0]])
        self.assertEqual(numbers[:2].tolist(), [1, 0])
        np.testing.assert_allclose([x for x, _ in actual], scores[:2])
        for nothing in ('to the', '"', '', 'zebra AND', 'boats* NOT'):
            actual = index.find(nothing, None, as_they_are, 5, words=1)
            self.assertLen(actual, 2 * nothing.startswith('boats'), nothing)

    def test_a_text_without_words(self):
        self.make([Document(('. . .',), 'a')])
        index = Index(self.folder)
        self.assertEmpty(index.find('a boat', None, as_they_are, 5, words=1))
        self.assertLen(index.find('', embed(['x']), as_they_are, 5, 0.5), 1)

    def test_both_are_merged(self):
        """Scores of each, of mean 0 and deviation 1, by their shares.

        Of 7 passages 3 have the word: the others have the score 0.
        """
        index = self.make(documents([1, 2, 3], 'a boat') + documents(range(4)))
        query = embed(['cats'])
        sums = {}
        for share, words in ((1.4, 0), (0.6, 1)):
            actual = index.find('boats', query, as_they_are, 100, words)
            self.assertLen(actual, 3 if words else 7)
            scores = np.zeros(7)
            scores[: len(actual)] = [score for score, _ in actual]
            scores = (scores - scores.mean()) / max(scores.std(), 1e-12)
            by_text = {passage.text: score for score, (_, passage)
                       in zip(scores, actual, strict=False)}  # fmt: skip
            for text in sums or by_text:
                score = by_text.get(text, scores[-1])
                sums[text] = sums.get(text, 0) + share * score
        actual = index.find('boats', query, as_they_are, 3, words=0.3)
        best = sorted(sums.values(), reverse=True)[:3]
        np.testing.assert_allclose([x for x, _ in actual], best, rtol=1e-5)
        for score, passage in actual:
            self.assertAlmostEqual(sums[passage.text], score, places=5)

    def test_copies_and_fewer_passages_than_answers(self):
        copies = [Document((f'text {n % 3}',), f'id {n}') for n in range(9)]
        index = self.make(copies)
        self.assertEqual(self.encoded(), ['text 0', 'text 1', 'text 2'])
        actual = index.find('', embed(['text 1']), as_they_are, 20)
        self.assertLen(actual, 9)
        self.assertEqual([p.source for _, p in actual[:3]],
                         ['id 7', 'id 4', 'id 1'])  # fmt: skip
        self.assertEqual(actual[0][0], actual[2][0])


class MadeAgainTest(Case):
    def test_passages_are_exchanged(self):
        self.make(documents(range(6)))
        long = Document((f'{"w " * 70}0', f'{"v " * 70}0'), 'long')
        self.encoded()
        index = self.make(
            [*documents([1], 'new'), *documents([2, 9]), long, long,
             Document((), 'id 4')], fingerprint='b',
        )  # fmt: skip
        self.assertEqual(
            self.encoded(), sorted([*passages(long), 'new 1', 'text 9'])
        )
        self.assertEqual(index.about['fingerprint'], 'b')
        sources, texts = index.about['sources'], index._encoded.texts
        self.assertEqual(
            [(x, texts[i]) for x, i in zip(sources, index.about['texts'],
                                           strict=True)],
            [('id 1', 'new 1'), ('id 2', 'text 2'), ('id 9', 'text 9'),
             ('long', long.sentences[0]), ('long', long.sentences[1])],
        )  # fmt: skip
        for opened in index, Index(self.folder):
            self.assertLen(opened, 5)
            for text in ('new 1', 'text 9'):
                [(_, actual)] = opened.find('', embed([text]), as_they_are, 1)
                self.assertEqual(actual.text, text)
            actual = opened.find('text', embed(['']), as_they_are, 9, 0.5)
            self.assertNotIn('text 4', str(actual))

    def test_only_new_texts_are_encoded(self):
        self.make(documents(range(10)))
        self.assertLen(self.encoded(), 10)
        index = self.make(documents(range(5, 12)), corpus='another')
        self.assertEqual(self.encoded(), ['text 10', 'text 11'])
        self.assertLen(index, 7)
        # Of another model or critic no vector is taken.
        self.make(documents(range(5, 12)), model='another')
        self.assertLen(self.encoded(), 7)
        self.assertLen(content(self.folder), 7)
        self.embed.side_effect = lambda texts, role: by_critic(LATE, texts)
        self.make(documents(range(5, 12)), model='another', critic=LATE)
        self.assertLen(self.encoded(), 7)

    def test_what_is_refused_changes_nothing(self):
        """No text, no numbers, and a second process at a time."""
        index = self.make(documents(range(2)))
        before = content(self.folder)
        with refused('no_text_to_search'):
            index.write([Document((), 'id 1')], self.embed, KEY)
        with files.locked(self.folder):
            with self.assertRaisesRegex(RuntimeError, 'another run is writing'):
                index.write(documents(range(3)), self.embed, KEY)
            query = embed(['text 1'])
            self.assertLen(index.find('', query, as_they_are, 5), 2)
        self.embed.side_effect = lambda texts, role: embed(texts) * np.nan
        with self.assertRaisesRegex(ValueError, 'not finite'):
            index.write(documents(range(3)), self.embed, KEY)
        self.assertEqual(content(self.folder), before)

    def test_stopped(self):
        """At any step: the former one is there, and the end is as always."""
        new = documents(range(1, 9), 'new') + documents(range(9, 24))
        for before, after in ([], documents(range(20))), (
            documents(range(20)), new
        ):  # fmt: skip
            whole, number, steps = None, -1, itertools.count()
            with mock.patch.object(vector_files, 'BLOCK', 4):
                while number <= next(steps):
                    self.folder = places.make(cache=False) / 'index'
                    if before:
                        self.make(before)
                    self.encoded()
                    with stopped_at(number) as steps:
                        self.make(after)
                    self.assertIn(
                        len(Index(self.folder)), {len(before), len(after)}
                    )
                    self.make(after)
                    whole = whole or content(self.folder)
                    self.assertEqual(content(self.folder), whole)
                    # One block is done again, at most.
                    texts = self.encoded()
                    self.assertLessEqual(len(texts) - len({*texts}), 4)
                    number += 1
            self.assertGreater(number, 20)


class DamageTest(Case):
    def test_a_damaged_file_is_named(self):
        self.make(documents(range(900)))
        before = content(self.folder)
        for name in ('index.json', 'texts.jsonl', 'vectors.npy'):
            path = self.folder / name
            whole = path.read_bytes()
            for damaged in (whole[:-2000], whole[:100], b'x' * 9999, None):
                path.unlink()
                if damaged is not None:
                    path.write_bytes(damaged)
                with self.subTest(name), refused(
                    'unreadable_index', self.folder
                ):  # fmt: skip
                    Index(self.folder)
                path.write_bytes(whole)
        self.assertEqual(content(self.folder), before)

    def test_of_another_version_or_of_other_things(self):
        for name in ('1', 'key.json', 'passages.sqlite'):
            folder = pathlib.Path(places.make())
            (folder / name).mkdir()
            with refused('unreadable_index', folder):
                Index(folder)
        with refused('unreadable_index', 'file'):
            (folder / 'file').touch()
            Index(folder / 'file')
        self.assertEqual(Index(folder / 'nowhere').about, {})
        self.assertEmpty(Index(folder / 'nowhere'))
