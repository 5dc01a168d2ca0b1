import functools
import gzip
import os
from unittest import mock

import numpy as np
import pyarrow
from absl.testing import parameterized

from infoword_tf.data import corpora, documents, textfiles
from infoword_tf.data.documents import Document
from tests import corpus as topics
from tests.data.texts import Temporary, words
from tests.refused import refused

TEXT = textfiles.Files('text')
ZST = functools.partial(pyarrow.compress, codec='zstd', asbytes=True)


class TextTest(Temporary):
    def open(self, pattern='*.txt*', heldout=None):
        return corpora.open_corpus(
            f'text:{self.folder}/{pattern}',
            heldout and f'{self.folder}/{heldout}',
        )

    def all(self, pattern='*.txt*'):
        pattern = f'{self.folder}/{pattern}'
        return list(TEXT.read(textfiles.find(pattern), pattern))

    def test_documents_of_many_files(self):
        self.write('b.txt', '\n\nOne. Two.\nThree\n \t\nFour')
        zipped = gzip.compress('Fünf\r\n\r\n\r\nSix\r\n'.encode())
        a = self.write('a.txt.gz', zipped)
        c = self.write('deep/er/c.txt', '\ufeffBom first.\n\nThen\u00a0more')
        self.write('deep/empty.txt', '')
        wide = '\ufeffGröße\r\n\r\nEnd \u2028 of it'.encode('utf-16-be')
        d = self.write('d.txt.zst', ZST(wide[:11]) + ZST(wide[11:]))
        e = self.write('e.txt', wide)
        b = self.folder / 'b.txt'
        self.assertCountEqual(self.all('**/*.txt*'), [
            Document(('Fünf',), f'{a}:1'),
            Document(('Six',), f'{a}:4'),
            Document(('One.', 'Two.', 'Three'), f'{b}:3'),
            Document(('Four',), f'{b}:6'),
            *(Document(x, f'{path}:{line}') for path in (d, e) for x, line
              in ((('Größe',), 1), (('End of it',), 3))),
            Document(('Bom first.',), f'{c}:1'),
            Document(('Then more',), f'{c}:3'),
        ])  # fmt: skip

    def test_home(self):
        self.write('home.txt', 'Home')
        with mock.patch.dict(os.environ, HOME=str(self.folder)):
            actual = textfiles.find('~/*.txt')
        self.assertEqual(actual, [self.folder / 'home.txt'])

    def test_no_file(self):
        with refused('no_file_matches', '*.txt'):
            self.open()

    @parameterized.product(
        case=(
            (b' \n\n\t\n', True, 'files_without_text', ' 2 file'),
            (b'a' * 8191 + b'\0', True, 'binary_file', '{} ', 'UTF-8'),
            # Further down than is looked at when it is opened.
            (b'\xef\xbb\xbfOne\r\n\r\n' + 'é\n\n'.encode() * 3000
             + b'abc\xe9d\n', False, 'file_not_utf8', '{}, line 6003 ', '0xe9',
             ' 12,013 '),
        ),
        packed=(('', bytes), ('.gz', gzip.compress), ('.zst', ZST)),
    )  # fmt: skip
    def test_complaints(self, case, packed):
        (content, at_once, id, *values), (end, pack) = case, packed
        self.write(f'x.txt{end}', pack(content))
        self.write('a.txt', '')
        if not at_once:
            corpus = self.open()
        with refused(id, *(value.format(f'x.txt{end}') for value in values)):
            self.open() if at_once else list(corpus.train())

    @parameterized.product(
        end=(-1, -9, 40, 3),
        how=(('gz', 'gzip', gzip.compress), ('zst', 'zstd', ZST)),
    )
    def test_truncated(self, end, how):
        """Also where more than the first member or frame is whole."""
        rng = np.random.default_rng(0)
        lines = '\n\n'.join(words(rng, 9) for _ in range(3000))
        kind, program, packed = how
        whole = packed(lines.encode())
        for data in (whole[:end], whole + whole[:end]):
            self.write(f'x.txt.{kind}', data)
            with refused('file_not_whole', f'x.txt.{kind} ', f' {program} '):
                list(self.open().train())

    @parameterized.parameters('gz', 'zst')
    def test_not_packed(self, kind):
        self.write(f'x.txt.{kind}', 'Just text.')
        with refused('file_not_whole', f' .{kind}.'):
            self.open()

    def test_packed_and_utf16_files_are_not_cut(self):
        text = '\n\n'.join(f'Text {i}.' for i in range(300))
        for name, data in (
            ('a.txt.gz', gzip.compress(text.encode())),
            ('a.txt.zst', ZST(text.encode())), ('a.txt', text.encode('utf-16')),
        ):  # fmt: skip
            (chunk,) = TEXT.chunks([self.write(name, data)], 99)
            self.assertLen(list(TEXT.read_chunk(chunk)), 300)
        self.assertGreater(len(TEXT.chunks([self.write('a.txt', text)], 99)), 9)

    def test_a_long_document_goes_on(self):
        self.write('x.txt', 'One line of it.\n' * 100)
        with mock.patch.object(textfiles, 'LONGEST', 400):
            actual = self.all()
        self.assertEqual(sum(len(d.sentences) for d in actual), 100)
        self.assertBetween(len(actual), 3, 5)

    @parameterized.parameters('word and ', 'wort', 'w\u00f6rt', '\u8a9e')
    def test_a_line_that_is_too_long_to_hold(self, text):
        text = (text * 300).strip()
        self.write('x.txt', text + '\nThe end.')
        with mock.patch.object(textfiles, 'LONGEST', 64):
            actual = [s for d in self.all() for s in d.sentences]
        self.assertEqual(actual[-1], 'The end.')
        space = ' ' if ' ' in text else ''
        self.assertEqual(space.join(actual[:-1]), text)
        self.assertLess(max(map(len, actual)), 130)

    def test_heldout_share(self):
        rng = np.random.default_rng(1)
        texts = [words(rng, 5) for _ in range(5000)]
        self.write('x.txt', '\n\n'.join(texts))
        corpus = self.open()
        train = [d.text for d in corpus.train()]
        heldout = [d.text for d in corpus.heldout()]
        self.assertBetween(len(heldout), 20, 80)  # 50 +- 4.3 sigma
        self.assertEqual(sorted(train + heldout), sorted(texts))
        # Both begin anew, and the order of a pass is that of the file.
        self.assertEqual(train, [d.text for d in corpus.train()])
        held = set(heldout)
        self.assertEqual(train, [t for t in texts if t not in held])
        self.assertEqual(heldout, [t for t in texts if t in held])

    def test_heldout_cap(self):
        rng = np.random.default_rng(1)
        every = [Document((words(rng, 5),), 'made') for _ in range(1500)]
        free = list(textfiles.heldout(every))
        self.assertGreater(len(free), 4)
        self.assertEqual(list(textfiles.heldout(every, limit=3)), free[:3])
        # What lies beyond the limit is not trained on: it may be a copy.
        train = list(textfiles.train(every))
        self.assertEqual(train, [d for d in every if d not in free])

    def topics(self, count):
        """Real documents of which none is held out by hash."""
        topics.write_topics(self.folder / 'topics')
        path = f'{self.folder}/topics/train.txt'
        every = list(TEXT.read(textfiles.find(path), path))
        training = [d for d in every if not textfiles.BY_HASH.holds_out(d)]
        training = [d for d in training if len(d.sentences) > 5]
        self.assertGreater(len(training), count)
        return training[:count]

    def parts(self, actual, name='few.txt'):
        """Documents as one file: its two parts."""
        text = '\n\n'.join('\n'.join(d.sentences) for d in actual)
        self.write(name, text)
        opened = self.open(name)
        parts = opened.train(), opened.heldout()
        return tuple([d.sentences for d in part] for part in parts)

    def test_of_a_small_corpus_the_lowest_hash_is_held_out(self):
        few = self.topics(20)
        lowest = min(few, key=lambda d: documents.text_hash(d.text))
        rest = [d.sentences for d in few if d is not lowest]
        for actual in (few, few[::-1], few[7:] + few[:7]):
            train, heldout = self.parts(actual)
            self.assertEqual(heldout, [lowest.sentences])
            self.assertCountEqual(train, rest)
        # No copy of it is trained on.
        train, heldout = self.parts([lowest, *few, lowest])
        self.assertEqual(heldout, [lowest.sentences] * 3)
        self.assertCountEqual(train, rest)

    def test_where_the_hash_holds_out_all(self):
        few = self.topics(2)
        with mock.patch.object(textfiles, 'HELDOUT_IN', 1):
            train, heldout = self.parts(few)
        lowest, other = sorted(few, key=lambda d: documents.text_hash(d.text))
        self.assertEqual(train, [other.sentences])
        self.assertEqual(heldout, [lowest.sentences])

    def test_of_a_single_document_its_end_is_held_out(self):
        (one,) = self.topics(1)
        self.assertLess(len(one.sentences), 200)
        for actual in ([one], [one, one]):
            train, heldout = self.parts(actual)
            self.assertEqual(train, [one.sentences[:-1]] * len(actual))
            self.assertEqual(heldout, [one.sentences[-1:]] * len(actual))
        many = tuple(s for d in self.topics(30) for s in d.sentences)[:350]
        train, heldout = self.parts([Document(many, 'made')])
        self.assertEqual((train, heldout), ([many[:347]], [many[347:]]))

    def test_a_single_sentence_cannot_be_parted(self):
        self.write('x.txt', 'It is alone.')
        opened = self.open('x.txt')
        for part in (opened.train, opened.heldout):
            with refused('text_of_one_sentence', 'x.txt ', '--heldout='):
                part()

    def test_a_corpus_is_read_no_further_than_is_needed(self):
        """To decide: until both parts have a document."""
        rng = np.random.default_rng(2)
        every = [Document((words(rng, 5),), 'made') for _ in range(3000)]
        first = [textfiles.BY_HASH.holds_out(d) for d in every].index(True)
        stream = iter(every)
        self.assertEqual(textfiles.split(stream, 'x'), textfiles.BY_HASH)
        self.assertLen(list(stream), 3000 - first - 1)

    def test_heldout_glob(self):
        self.write('train.txt', '\n\n'.join(f'Text {i}' for i in range(300)))
        self.write('valid.txt', 'Valid 1\n\nValid 2')
        corpus = self.open('train.txt', 'valid.txt')
        self.assertLen(list(corpus.train()), 300)
        heldout = [d.text for d in corpus.heldout()]
        self.assertEqual(heldout, ['Valid 1', 'Valid 2'])
        other = self.open('train.txt').fingerprint
        self.assertNotEqual(corpus.fingerprint, other)
        with refused('heldout_files_trained', 'valid.txt '):
            self.open('*.txt', 'valid.txt')
        with refused('no_file_matches', 'none'):
            self.open('*.txt', 'none')


class LinesTest(Temporary):
    def open(self, heldout='valid.txt'):
        return corpora.open_corpus(
            f'lines:{self.folder}/train*.txt',
            heldout and f'{self.folder}/{heldout}',
        )

    def test_every_line_is_a_document(self):
        a = self.write('train1.txt', ' \n = One = \n \n It is. So is\tit .\n')
        b = self.write('train2.txt', '\n\nno end')
        c = self.write('valid.txt', 'Held out .\r\n')
        corpus = self.open()
        self.assertEqual(list(corpus.train()), [
            Document((), f'{a}:1', 2),
            Document(('= One =',), f'{a}:2', 10),
            Document((), f'{a}:3', 2),
            Document(('It is.', 'So is it .'), f'{a}:4', 19),
            Document((), f'{b}:1', 1),
            Document((), f'{b}:2', 1),
            Document(('no end',), f'{b}:3', 6),
        ])  # fmt: skip
        held = Document(('Held out .',), f'{c}:1', 12)
        self.assertEqual(list(corpus.heldout()), [held])

    def test_no_text(self):
        self.write('train.txt', 'One\n')
        self.write('valid.txt', '\n \n')
        with refused('files_without_text', ' 1 file'):
            list(self.open().heldout())
