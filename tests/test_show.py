"""Pictures say what is so, and every row has one."""

from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import pictures, show, views
from infoword_tf.config import Config, EncoderConfig, RowConfig, TokenizerConfig
from infoword_tf.encoders import ENCODERS
from infoword_tf.objectives import TABLE
from infoword_tf.text.sentencepiece import SentencePiece
from infoword_tf.views import Reads
from infoword_tf.views.view import CAPTIONS
from tests import places
from tests.tasks import command
from tests.zoo import defaults_of

FOX = 'The quick brown fox jumps over the lazy dog, and nobody notices it.'
TWO = ('Reads a file into a table.', 'The separator may be any character.')

LABELLED = [
    row for row, entry in TABLE.items()
    if 'examples' in entry.reads(defaults_of(row))
]  # fmt: skip
SPECIALS = views.Specials(2, 3, 4, 9)
WORDS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a', 'b', 'c', 'd']


def one(ids, **fields):
    fields = {
        name: np.array([x]) if not isinstance(x, dict) else x
        for name, x in fields.items()
    }
    return views.View(
        ids=np.array([ids], np.int32), sequences=np.zeros(1), **fields
    )


def make_config(
    kind='wordpiece', masking=None, encoder='transformer', **rows
):
    """Makes what a workdir says; rows: the settings of each."""
    return Config(
        EncoderConfig(encoder, {}),
        {row: RowConfig(1.0, settings) for row, settings in rows.items()},
        32,
        tokenizer=TokenizerConfig(kind, lower_case=True),
        masking=masking,
    )


class SeenTest(absltest.TestCase):
    def check(self, actual, expected):
        np.testing.assert_array_equal(actual.astype(int), expected)

    def test_everything_a_block_or_what_is_behind(self):
        block = [0, 0, 1, 1, 2]
        for view, more, expected in (
            (one([2, 5, 3]), {}, np.ones((3, 3))),
            (one([2, 5, 2, 6, 3], block_ids=block), {},
             np.equal.outer(block, block)),
            (one([5, 6, 7]), {'causal': True, 'memory': 2}, np.tri(3, 5, 2)),
        ):  # fmt: skip
            self.check(pictures.seen(view, **more), expected)

    def test_both_streams_in_the_papers_order(self):
        """3, 1, 5, 2, 4 with x4 as target, as in test_permuted.py."""
        strict = one(
            [5, 6, 7, 8, 5], ranks=[1, 3, 0, 4, 2], sees=[2, 4, 1, 4, 3]
        )
        content = [
            [1, 0, 1, 0, 0],
            [1, 1, 1, 0, 1],
            [0, 0, 1, 0, 0],
            [1, 1, 1, 1, 1],
            [1, 0, 1, 0, 1],
        ]
        self.check(pictures.seen(strict), content)
        asked = [1, 1, 1, 1, 0, 1], [1, 1, 0, 1, 0, 0]
        self.check(
            pictures.seen(strict, queries=[3, 0], memory=1),
            [*([1, *row] for row in content), *asked],
        )

    def test_one_of_several_texts(self):
        ids = np.array([[[2, 7, 3], [2, 8, 3]]])
        blocks = np.array([[[0, 0, 1], [0, 1, 1]]])
        view = views.View(ids=ids, sequences=None, block_ids=blocks)
        self.check(pictures.seen(view), [[1, 1, 0], [1, 1, 0], [0, 0, 1]])


class PictureTest(absltest.TestCase):
    def picture(self, name, view, reads, **more):
        """A picture of a view, and the names of what its mask shows."""
        reads = {row: Reads(where) for row, where in reads.items()}
        actual = pictures.picture(name, view, reads, WORDS, SPECIALS, **more)
        return actual, [
            [pictures.NAMES[n] for n in row] for row in actual.mask
        ]

    def test_hidden_words(self):
        view = one(
            [2, 5, 4, 3], positions=[0, 1, 2, 8],
            places={'mlm': np.array([[2, 1]])},
            targets={'mlm': np.array([[7, 5]])},
            weights={'mlm': np.array([[1, 0]])},
        )  # fmt: skip
        actual, names = self.picture('masked', view, {'mlm': 'tokens'})
        self.assertEqual(actual.keys, ['[CLS]', 'a', '[MASK]', '[SEP]'])
        self.assertEqual(  # the other place is padding
            actual.queries,
            ['[CLS]   0', 'a   1', '[MASK] → c   2', '[SEP]   8'],
        )
        self.assertEqual(actual.kinds, ['special', 'word', 'asked', 'special'])
        self.assertEqual(names, [
            ['self', 'word', 'asked', 'special'],
            ['special', 'self', 'asked', 'special'],
            ['special', 'word', 'self', 'special'],
            ['special', 'word', 'asked', 'self'],
        ])  # fmt: skip

    def test_queries(self):
        """a b [SEP], then memory: b before a, and [SEP] sees neither."""
        view = one(
            [5, 6, 3], ranks=[1, 0, 0], sees=[1, 0, 0], segment_ids=[0, 0, 1],
            places={'plm': np.array([[0, 1]])},
            targets={'plm': np.array([[5, 6]])},
            weights={'plm': np.array([[1, 1]])},
        )  # fmt: skip
        actual, names = self.picture(
            'permuted', view, {'plm': 'queries'}, memory=[8]
        )
        self.assertEqual(actual.keys, ['d', 'a', 'b', '[SEP]'])
        self.assertEqual(
            actual.queries,
            ['a   0 A', 'b   1 A', '[SEP]   2 B', '2: ? → a   0 A',
             '1: ? → b   1 A'],
        )  # fmt: skip
        self.assertEqual(names, [
            ['memory', 'self', 'asked', 'special'],
            ['memory', 'nothing', 'self', 'nothing'],
            ['memory', 'nothing', 'nothing', 'self'],
            ['memory', 'blind', 'asked', 'special'],
            ['memory', 'nothing', 'blind', 'nothing'],
        ])  # fmt: skip

    def test_packed_texts(self):
        view = one(
            [2, 5, 3, 3], block_ids=[0, 0, 0, 2],
            places={'dim': np.array([[0, 0]])},
            weights={'dim': np.array([[1.0, 0.0]])},
            targets={'dim': np.array([[0, 1]])},
        )  # fmt: skip
        actual, names = self.picture('ngrams', view, {'dim': 'start'})
        self.assertEqual(actual.starts, [0])
        self.assertEqual(
            actual.kinds, ['special', 'word', 'special', 'nothing']
        )
        self.assertEqual(names[3], ['nothing'] * 4)
        self.assertNotIn('→', ''.join(actual.queries))

    def test_next_words(self):
        view = one([5, 6, 7], targets={'lm': np.array([[6, 7, 8]])})
        actual, names = self.picture(
            'streamed', view, {'lm': 'text'}, causal=True
        )
        self.assertEqual(
            actual.queries, ['a → b   0', 'b → c   1', 'c → d   2']
        )
        self.assertEqual(actual.kinds, ['word'] * 3)
        self.assertEqual(names[1], ['word', 'self', 'nothing'])
        actual, _ = self.picture('streamed', one([5, 6], directions=-1), {})
        self.assertIn('This text is read backward.', actual.lines)

    def test_every_row_has_a_sentence(self):
        """On what it wants, with its settings as they are by default."""
        for row, entry in TABLE.items():
            for reads in entry.reads(defaults_of(row)).values():
                self.assertIn(reads.where, CAPTIONS, row)


class TextTest(parameterized.TestCase):
    @parameterized.parameters(
        (['mlm'], 10, 12), (['mlm'], 3, 8), (['mlm', 'plm'], 24, 28),
        (['gpt'], 10, 24), (['gpt'], 22, 26), (['tlm'], 10, 23),
        (['mmlm', 'tlm'], 2, 8),
    )  # fmt: skip
    def test_as_long_as_all_views_need(self, rows, tokens, expected):
        self.assertEqual(show.shortest(rows, tokens), expected)

    @parameterized.parameters(
        (['one two three four'], ['one two', 'three four']),
        (['One two. Three.'], ['One two.', 'Three.']),
        (['  One\n two.', 'Three  four.'], ['One two.', 'Three four.']),
    )
    def test_sentences(self, texts, expected):
        self.assertEqual(show.sentences_of(texts), expected)


class CommandTest(places.Folder, parameterized.TestCase):
    def workdir(self, words, **config):
        """A workdir without weights, of so many words, each once."""
        make_config(**config).write(self.folder)
        words = dict.fromkeys([*WORDS[:5], *words])
        (self.folder / 'vocab.txt').write_text('\n'.join(words) + '\n')
        return self.folder

    def run_here(self, *arguments, draw=None):
        """The command in this process; returns what it would draw."""
        with mock.patch.object(pictures, 'draw', side_effect=draw) as drawn:
            done = command.run(
                show, f'--output={self.folder}/x.png', *arguments,
                words='the sentences',
            )  # fmt: skip
        self.assertEqual(
            (done.status, done.out), (0, f'{self.folder}/x.png\n'), done.err
        )
        return drawn.call_args[0][2]

    def test_settings_that_show(self):
        """Shows settings of views, and those that choose other views."""
        actual = show.ShowChoices.setting_flags()
        shown = {'words.window', 'dim.one_mask', 'gpt.reads', 'simcse.critic'}
        self.assertContainsSubset(shown, actual)
        self.assertNoCommonElements(
            {'mlm.transform', 'dim.critic', 'simcse.head', 'label.texts'},
            actual,
        )

    @parameterized.parameters(
        *(name for name in ('infoword', *TABLE) if name not in LABELLED)
    )
    def test_a_picture_of_every_row(self, objectives):
        actual = self.run_here(
            f'--objectives={objectives}', *TWO, draw=pictures.draw
        )
        picture = (self.folder / 'x.png').read_bytes()
        self.assertTrue(picture.startswith(b'\x89PNG'))
        self.assertNotEmpty(actual)
        for one_view in actual:
            self.assertIn(one_view.title, views.VIEWS)
            self.assertNotEqual(one_view.title, 'joined')

    def test_one_mask_for_an_ngram(self):
        """The views of `dim` then, and no other's."""
        actual = self.run_here('--objectives=infoword', '--dim.one_mask', *TWO)
        actual = {one_view.title: one_view for one_view in actual}
        self.assertEqual(set(actual), {'masked', 'joined', 'ngrams'})
        joined, masked = (actual[x].keys for x in ('joined', 'masked'))
        text = [kind != 'nothing' for kind in actual['joined'].kinds]
        masks = joined.count('[MASK]')
        self.assertLen(actual['ngrams'].starts, masks)
        self.assertLess(masks, masked.count('[MASK]'))
        self.assertEqual(
            sum(text), len(masked) - masked.count('[MASK]') + masks
        )
        actual = self.run_here('--objectives=dim', '--dim.one_mask', *TWO)
        self.assertEqual(
            [one_view.title for one_view in actual], ['joined', 'ngrams']
        )

    def test_text_begins_at_the_beginning(self):
        (actual,) = self.run_here('--objectives=mlm', FOX)
        words = ['[CLS]', *FOX.replace(',', ' ,').replace('.', ' .').split()]
        shown = [row.split(' → ')[-1].split()[0] for row in actual.queries]
        self.assertEqual(shown, [*words, '[SEP]'])

    def test_memory_is_what_was_read_before(self):
        row = '--objectives=transformer_xl'
        (actual,) = self.run_here(
            row, '--memory_length=30', '--seq_len=16', FOX
        )
        self.assertEqual(actual.kinds.count('memory'), 30)
        self.assertEqual(actual.mask.shape, (16, 46))
        text = FOX.replace(',', ' ,').replace('.', ' . [SEP]').split()
        # Two steps of 16 and this one: tokens 2 to 47 of the text's circle.
        self.assertEqual(actual.keys, (text * 4)[2:48])
        (actual,) = self.run_here(row, '--memory_length=0', FOX)
        self.assertNotIn('memory', actual.kinds)

    def test_seed_and_length(self):
        first, again, other = (
            self.run_here('--objectives=mlm', '--seq_len=64', *seed, FOX)[0]
            for seed in ([], [], ['--seed=1'])
        )
        self.assertLen(first.keys, 64)
        self.assertEqual(first.queries, again.queries)
        self.assertNotEqual(first.queries, other.queries)

    @parameterized.parameters(*ENCODERS)
    def test_every_encoder(self, name):
        """Shows that of a workdir by the first row that it serves."""
        row = next(
            row for row, entry in TABLE.items()
            if row not in LABELLED and name in entry.encoders(defaults_of(row))
        )  # fmt: skip
        words = [*WORDS, *' '.join(TWO).lower().split()]
        workdir = self.workdir(words, encoder=name, **{row: {}})
        actual, *_ = self.run_here(f'--init={workdir}', *TWO)
        ahead = actual.mask[0, actual.kinds.count('memory') + 1]
        looks_back = {'relative': 'transformer_xl', 'rnn': 'rnn_lm'}
        self.assertEqual(ahead == 0, looks_back.get(name) == row)

    def test_a_workdir(self):
        workdir = self.workdir(
            ['the', 'fo', '##x', '.'], masking='words', mlm={'transform': True}
        )
        (actual,) = self.run_here(
            f'--init={workdir}', 'The fox the fox. The fox.'
        )
        self.assertContainsSubset({'the', 'fo', '##x'}, actual.keys)
        (actual,) = self.run_here(
            '--objectives=mlm', f'--vocab={workdir}/vocab.txt', FOX
        )
        self.assertIn('[UNK]', actual.keys)

    def test_share_that_is_masked(self):
        """Masks of 15 tokens; the flag decides over the workdir."""
        workdir = self.workdir(FOX.lower().split(), mlm={})
        Config.read(workdir).replace(mask_share=0.6).write(workdir)
        init, share = f'--init={workdir}', '--mask_share=0.4'
        for chosen, masked in (
            (['--objectives=mlm', share], 6), ([init], 9), ([init, share], 6)
        ):  # fmt: skip
            (actual,) = self.run_here(*chosen, FOX)
            self.assertEqual(list(actual.kinds).count('asked'), masked)

    def test_settings_of_a_workdir(self):
        """The settings are those of the run, unless flags differ."""
        workdir = self.workdir(
            FOX.lower().replace(',', '').split(),
            encoder='relative', plm={'k': 3, 'order': 'strict'},
        )  # fmt: skip
        arguments = f'--init={workdir}', '--seq_len=48'
        (actual,) = self.run_here(*arguments, FOX)
        self.assertLen(actual.queries, 48 + 48 // 3)
        same = (
            '--objectives=plm', '--permuted.k=3', '--permuted.order=strict',
            *arguments,
        )  # fmt: skip
        (again,) = self.run_here(*same, FOX)
        np.testing.assert_array_equal(actual.mask, again.mask)
        for another, k in (
            ('--permuted.order=partial', 3), ('--permuted.k=4', 4)
        ):  # fmt: skip
            (other,) = self.run_here(*arguments, another, FOX)
            self.assertLen(other.queries, 48 + 48 // k)
            self.assertFalse(np.array_equal(actual.mask, other.mask))

    def test_a_sentencepiece_workdir(self):
        tokenizer = SentencePiece.learn([FOX, *TWO], 60)
        path = self.folder / tokenizer.file
        tokenizer.write(path)
        config = make_config('sentencepiece', mlm={'transform': False})
        config.write(self.folder)
        for argument in (f'--init={self.folder}', f'--vocab={path}'):
            (actual,) = self.run_here('--objectives=mlm', argument, FOX)
            self.assertContainsSubset(
                {'[CLS]', '[SEP]', '[MASK]'}, set(actual.keys)
            )
            self.assertTrue(any(t[0] == '\u2581' for t in actual.keys))
