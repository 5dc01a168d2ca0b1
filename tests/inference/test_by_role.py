"""Vectors of tokens, weights of the vocabulary and scores of pairs, against
NumPy."""

import dataclasses
import json
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from infoword_tf import commands
from infoword_tf.config import TaskConfig
from infoword_tf.critics import CRITICS, lexical
from infoword_tf.critics.lexical import LexicalConfig
from infoword_tf.layers import lexical as layers
from infoword_tf.text.markedpairs import MarkedPairs
from tests import places
from tests.eager import eagerly
from tests.export import critics, workdirs
from tests.export.critics import LATE, TEXTS
from tests.near import near
from tests.oracles import public_folders
from tests.refused import refused


def loaded():
    return critics.loaded('both')


def changed(**late):
    config, late = loaded().config, dataclasses.replace(LATE, **late)
    critics = {**config.critics, 'late': late.written()}
    return loaded().with_config(config.replace(critics=critics))


def with_lexical(head):
    config = loaded().config
    critics = {**config.critics, 'lexical': head.written()}
    return loaded().with_config(config.replace(critics=critics)).untrained()


def encode(model, critic, texts, role):
    return CRITICS[critic].encode(model, texts, role)


def ids_of(model, text, role):
    """Ids of a text with prompt and special tokens."""
    config = model.config
    prompt = {'query': 'is ', 'passage': 'of '}[role]
    ids = model.tokenizer.tokenize([prompt + text])[0].numpy()
    ids = ids[: config.length_for(role) - 2]
    return [*model.before, *ids, *model.after]


def states_of(model, ids, hidden=None):
    return model.states(
        tf.constant([ids]), tf.constant([len(ids)]), hidden=hidden
    ).numpy()[0]


def vectors_of(model, states):
    """The dense layers of a model and length 1, written out."""
    x = states
    for layer in model.model.critics['late'].dense:
        x = x @ layer.kernel.numpy()
        if layer.has_bias:
            x = tf.nn.gelu(x + layer.bias.numpy()).numpy()
    return x / np.linalg.norm(x, axis=1, keepdims=True)


class LateTest(parameterized.TestCase):
    @parameterized.parameters(8, 2)
    def test_passages(self, batch_size):
        model = loaded()
        actual = model.encode_tokens(TEXTS, batch_size=batch_size)
        self.assertEqual(model.late.cut, 1)
        spelled = model.tokenizer.vocabulary
        for text, vectors in zip(TEXTS, actual, strict=True):
            ids = ids_of(model, text, 'passage')
            stays = [i for i, x in enumerate(ids)
                     if spelled[x] not in LATE.skip]  # fmt: skip
            expected = vectors_of(model, states_of(model, ids))[stays]
            np.testing.assert_allclose(vectors, expected, atol=1e-5)
        self.assertLen(actual[1], 3)  # the prompt and what is around
        self.assertLen(actual[5], 4)

    @parameterized.parameters((False, 2), (False, 8), (True, 8))
    def test_queries_are_expanded(self, attend, batch_size):
        model, mask = loaded(), loaded().tokenizer.mask_id
        with eagerly(attend):
            model = changed(attend=True) if attend else model
            actual = model.encode_tokens(TEXTS, 'query', batch_size)
        self.assertEqual(model.late.cut, 1)
        for text, vectors in zip(TEXTS, actual, strict=True):
            ids = ids_of(model, text, 'query')
            masks = 9 - len(ids)
            hidden = None
            if not attend:
                hidden = tf.constant([[0] * len(ids) + [1] * masks])
            states = states_of(model, ids + [mask] * masks, hidden)
            expected = vectors_of(model, states)
            np.testing.assert_allclose(vectors, expected, atol=1e-5)

    @eagerly()
    def test_masks_that_no_token_attends_to_change_no_other(self):
        plain = changed(expand=False).encode_tokens(TEXTS, 'query')
        for attend, same in ((False, True), (True, False)):
            expanded = changed(attend=attend).encode_tokens(TEXTS, 'query')
            gaps = [
                np.abs(long[: len(short)] - short).max()
                for short, long in zip(plain, expanded, strict=True)
                if len(short) < len(long)
            ]
            self.assertLen(gaps, 5)
            self.assertEqual(max(gaps) < 1e-5, same)

    @eagerly()
    def test_first_state_and_dims(self):
        whole = changed(skip=()).encode_tokens(TEXTS)
        for dims, stored in ((2, None), (None, 2)):
            model = changed(skip=(), first=False)
            model = model.with_config(model.config.replace(dims=stored))
            for x, y in zip(
                whole, model.encode_tokens(TEXTS, dims=dims), strict=True
            ):
                expected = x[1:, :2]
                expected /= np.linalg.norm(expected, axis=1, keepdims=True)
                np.testing.assert_allclose(y, expected, atol=1e-5)

    @eagerly()
    def test_means_are_of_queries(self):
        """Their vectors are divided by the number of tokens."""
        model = changed(mean=True, expand=False, skip=())
        for role, divided in ('query', True), ('passage', False):
            actual = encode(model, 'late', TEXTS, role)
            sizes = actual.sizes if divided else np.ones_like(actual.sizes)
            np.testing.assert_allclose(
                np.linalg.norm(actual.vectors, axis=1),
                np.repeat(1 / sizes, actual.sizes), rtol=1e-5,
            )  # fmt: skip

    @eagerly()
    def test_tokenized_once(self):
        model = loaded()
        for answer in (model.late, model.lexical):
            once = answer.tokenize(TEXTS, 'query')
            self.assertEqual(once.cut, 1)
            with mock.patch.object(commands, 'bar', wraps=commands.bar) as bar:
                actual = answer.encode_tokenized(once, 'query', 1)
                expected = answer.encode(TEXTS, 'query', 1)
            hidden = [call.kwargs['disable'] for call in bar.mock_calls]
            self.assertEqual(hidden, [True, False])
            for x, y in zip(actual, expected, strict=True):
                gap = x - y
                self.assertLess(abs(gap).max(), 1e-5)

    @eagerly()
    def test_outputs_of_an_export(self):
        """Texts as `encode` has them, padded with 0."""
        model = loaded()
        for role in ('passage', 'query'):
            actual = model.late.expected(TEXTS, role)
            texts = model.encode_tokens(TEXTS, role)
            self.assertEqual([*actual['count']], [*map(len, texts)])
            padded = np.zeros((len(TEXTS), max(map(len, texts)), 5))
            for row, text in zip(padded, texts, strict=True):
                row[: len(text)] = text
            near(actual['embeddings'], padded, atol=1e-5)
            actual = model.lexical.expected(TEXTS, role)
            weights = model.encode_sparse(TEXTS, role).toarray()
            most = (weights > 0).sum(axis=1).max()
            self.assertEqual(actual['ids'].shape, (len(TEXTS), most))
            placed = np.zeros_like(weights)
            for row, *both in zip(placed, *actual.values(), strict=True):
                np.add.at(row, *both)
            near(placed, weights, atol=1e-5)

    @eagerly()
    def test_weights_at_once(self):
        """A call of few texts holds no more weights than one of many."""
        model = loaded().with_config(loaded().config)
        expected = loaded().encode_sparse(TEXTS).toarray()
        batches = model.lexical._in_batches
        with mock.patch.object(lexical, 'WEIGHTS_AT_ONCE', 2 * 900), \
             mock.patch.object(
                 model.lexical, '_in_batches', side_effect=batches
             ) as counted:
            actual = model.encode_sparse(TEXTS, batch_size=len(TEXTS))
        np.testing.assert_allclose(actual.toarray(), expected, atol=1e-5)
        most = counted.call_args.kwargs['most']
        self.assertEqual(most, 2)  # texts of a batch

    def test_refusals(self):
        model, bare = loaded(), workdirs.loaded()
        with refused('unknown_role', "'document'", 'query, passage'):
            model.encode_tokens(TEXTS, 'document')
        short = model.with_config(model.config.replace(dims=3))
        for asked, dims, width in (model, 6, 5), (short, 4, 3):
            with refused(
                'token_dims_out_of_range', f'dims {dims}', f'have {width}'
            ):
                asked.encode_tokens(TEXTS, dims=dims)
        with refused('no_head_of_critic', 'critic=late'):
            bare.encode_tokens(TEXTS)
        for asked in (bare.encode_sparse, bare.terms, bare.lexical.tokenize):
            with refused('no_head_of_critic', 'critic=lexical'):
                asked(TEXTS)
        self.assertEqual(model.encode_tokens([]), [])
        self.assertEqual(model.encode_sparse([]).shape, (0, 900))


class LexicalTest(absltest.TestCase):
    def expected(self, model, text, role):
        """log(1 + relu(max over tokens of s . e + b)), [V]."""
        ids = ids_of(model, text, role)
        head, scores = model.model.critics['lexical'], states_of(model, ids)
        if head.transform:
            scores = head.transformed(scores).numpy()
        scores = scores @ model.encoder.embedding_table.numpy().T
        if head.transform:
            scores = scores + head.token_bias.numpy()
        return np.log1p(np.maximum(scores.max(axis=0), 0))

    @eagerly()
    def test_weights(self):
        model, lines = loaded().with_config(loaded().config), []
        for role in ('passage', 'query'):
            with mock.patch.object(layers, 'SCORES_AT_ONCE', 9999):
                actual = model.encode_sparse(TEXTS, role, batch_size=2)
            self.assertEqual(model.lexical.cut, 1)
            one = loaded().encode_sparse(TEXTS, role)
            expected = np.stack(
                [self.expected(model, text, role) for text in TEXTS]
            )
            np.testing.assert_allclose(actual.toarray(), expected, atol=1e-5)
            np.testing.assert_allclose(one.toarray(), expected, atol=1e-5)
            self.assertTrue(actual.has_sorted_indices)
            lines.append(expected)
        a, b = lines[1], lines[0]
        np.testing.assert_allclose(
            (one @ model.encode_sparse(TEXTS).T).toarray(), a @ b.T, rtol=1e-4
        )

    def test_terms(self):
        model = loaded()
        (actual,) = model.terms(['the value of a name'], top_k=7)
        weights = self.expected(model, 'the value of a name', 'passage')
        best = np.argsort(-weights)[:7]
        self.assertEqual(
            [term for term, _ in actual],
            [model.tokenizer.vocabulary[i] for i in best],
        )
        np.testing.assert_allclose(
            [weight for _, weight in actual], weights[best], atol=1e-5
        )

    def test_tokens_as_people_read_them(self):
        """Without marks of words, and bytes as their characters."""
        marked = public_folders.marked_pairs('gemma').to_str()
        pieces = types.SimpleNamespace(
            kind='sentencepiece', vocabulary=['\u2581form', 'er']
        )
        for tokenizer, expected in (
            (MarkedPairs(json.loads(marked)),
             {'\u2581hello': 'hello', '<0x41>': 'A', '\u2581': '\u2581'}),
            (pieces, {'\u2581form': 'form', 'er': 'er'}),
        ):  # fmt: skip
            spelled = lexical.spelled(tokenizer)
            ids = map(tokenizer.vocabulary.index, expected)
            self.assertEqual([spelled[i] for i in ids], [*expected.values()])

    @eagerly()
    def test_states_themselves(self):
        """Without a transform, which an encoder alone does not have."""
        model = with_lexical(LexicalConfig())
        actual = model.encode_sparse(TEXTS).toarray()
        for text, weights in zip(TEXTS, actual, strict=True):
            expected = self.expected(model, text, 'passage')
            np.testing.assert_allclose(weights, expected, atol=1e-5)

    @eagerly()
    def test_one_number_a_token(self):
        """The largest score of a token counts; special tokens have none."""
        head = LexicalConfig('tokens', activation='relu', top_k=3)
        model, text = with_lexical(head), TEXTS[2]
        (actual,) = model.encode_sparse([text]).toarray()
        ids = ids_of(model, text, 'passage')
        kernel = model.model.critics['lexical'].kernel.numpy()[:, 0]
        numbers = np.maximum(states_of(model, ids) @ kernel + 1, 0)
        best = {}
        for i, x in zip(ids[1:-1], numbers[1:-1], strict=True):
            best[i] = max(x, best.get(i, 0))
        expected = np.zeros(900)
        for i in sorted(best, key=best.get)[-3:]:
            expected[i] = best[i]
        np.testing.assert_allclose(actual, expected, atol=1e-5)

    @eagerly()
    def test_a_text_without_tokens(self):
        model = loaded()
        model = model.with_config(model.config.replace(prompts={}))
        self.assertEqual(model.encode_sparse(['', ' ', 'x'])[:2].nnz, 0)
        self.assertEqual(model.terms(['']), [[]])


class PairScoresTest(absltest.TestCase):
    @eagerly()
    def test_prompts_and_lengths_of_both(self):
        """Keeps 2 tokens of a query, 18 of a passage, each after its prompt."""
        model = critics.loaded('pairs')
        model = model.with_config(model.config.replace(
            query_length=4, passage_length=20,
            prompts={'query': 'is ', 'document': 'of '},
        ))  # fmt: skip
        queries = TEXTS[0], TEXTS[2], 'x'
        passages = TEXTS[2], 'x', TEXTS[6]
        expected = []
        for query, passage in zip(queries, passages, strict=True):
            first, second = (
                ids.numpy()
                for ids in model.tokenizer.tokenize(
                    ['is ' + query, 'of ' + passage]
                )
            )
            first = [*model.before, *first[:2], *model.after]
            ids = [*first, *second[:18], *model.after]
            scores = model.cross.pair_scores(
                tf.constant([ids]), tf.constant([len(ids)]),
                tf.constant([len(first)]),
            )  # fmt: skip
            expected.append(float(scores[0, 0]))
        actual = model.score_pairs(queries, passages)
        np.testing.assert_allclose(actual, expected, rtol=1e-4)

    @eagerly()
    def test_a_row_scores_pairs_unless_it_is_of_one_text(self):
        folder = places.make() / 'score'
        workdirs.write(folder, ('score',), width=8)
        model = workdirs.load(folder)
        for pairs in (True, False):
            task = TaskConfig('t', 'score', pairs, ('pearson',), {}, {})
            cross = model.with_config(model.config.replace(task=task)).cross
            self.assertEqual(cross.available, pairs)
            if pairs:
                self.assertEqual(cross.row, 'score')
                texts = ['the end', 'x'], ['a value', 'names']
                inputs = model.format_texts(*map(tf.constant, texts))
                expected = model.class_scores(*inputs, row='score')[:, 0]
                near(cross.score_pairs(*texts), expected, atol=1e-5)
                with refused('unequal_pairs_to_score', 2, 1):
                    cross.score_pairs(['a', 'b'], ['c'])
        with refused('no_score_of_pairs', 'critic=cross'):
            cross.score_pairs(['a'], ['b'])
        with refused('sides_not_trained', 'score', 'one text'):
            model.with_config(cross.config).rate(['a'], ['b'])
        with refused('classes_unequal_pairs', 1, 2):
            model.rate(['a'], ['b', 'c'])
        with refused('row_not_loaded', 'score: label is not'):
            model.class_scores(tf.constant([[2, 3]]), [2], row='label')
