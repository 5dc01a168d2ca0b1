from absl.testing import parameterized

from infoword_tf.data import documents


class SplitSentencesTest(parameterized.TestCase):
    @parameterized.parameters(
        ('', []),
        (' \n\t ', []),
        ('One. Two.', ['One.', 'Two.']),
        ('No end', ['No end']),
        ('Is it? It is! Good.', ['Is it?', 'It is!', 'Good.']),
        ('He said "Go." Then he left.', ['He said "Go."', 'Then he left.']),
        ('It is so. (See there.) Yes.', ['It is so.', '(See there.)', 'Yes.']),
        ('Why? "Because," he said.', ['Why?', '"Because," he said.']),
        ('It has 3. 4 is more.', ['It has 3.', '4 is more.']),
        ('Pi is 3.14 or so.', ['Pi is 3.14 or so.']),
        ('Use os.Path here.', ['Use os.Path here.']),
        ('Pets, e.g. Cats, i.e. Felines.', None),
        ('Dogs, cats etc. Birds too.', None),
        ('Mr. Smith vs. Dr. Jones.', None),
        ('See No. 5 and Fig. 3.', None),
        ('Say no. It is enough.', ['Say no.', 'It is enough.']),
        ('By J. R. Tolkien and D. Knuth.', None),
        ('The U.S. Army came.', None),
        ('x, y, ... N more.', None),
        ('end. and lower case.', None),
        ('Él vino. Él se fue. él', ['Él vino.', 'Él se fue. él']),
        ('他来了。你呢？好！', ['他来了。', '你呢？', '好！']),
        ('彼は言った。「行こう。」', ['彼は言った。', '「行こう。」']),
        ('「はい。」と言った。 何！？', ['「はい。」', 'と言った。', '何！？']),
        ('そう。。。', None),
        ('是的。”', None),
        ('هل هذا بيت؟ نعم هذا بيت.', ['هل هذا بيت؟', 'نعم هذا بيت.']),
        ('यह घर है। वह कुत्ता है।', ['यह घर है।', 'वह कुत्ता है।']),
    )
    def test_cases(self, text, expected):
        self.assertEqual(
            documents.split_sentences(text),
            [text] if expected is None else expected,
        )

    def test_white_space_becomes_single_spaces(self):
        text = 'One\ttwo \r\n three.\u00a0Four\u2003 five.\x0bSix\x1c.'
        self.assertEqual(
            documents.split_sentences(text),
            ['One two three.', 'Four five.', 'Six .'],
        )

    def test_hash_bucket_is_fixed(self):
        # Other numbers would move documents between the parts of a corpus.
        self.assertEqual(
            [documents.hash_bucket(t, 100) for t in ('', 'a', 'b', 'é')],
            [76, 43, 33, 43],
        )


class PartsTest(parameterized.TestCase):
    @parameterized.parameters(
        ('', ['']),
        ('a b', ['a b']),
        ('<unk>', ['', '']),
        ('a <unk> b', ['a', 'b']),
        ('<unk> <unk> b <unk>', ['', '', 'b', '']),
        ('<unk>s of "<unk>" and x<unk> y', ['<unk>s of "<unk>" and x<unk> y']),
    )
    def test_around_the_words_unk(self, text, expected):
        self.assertEqual(documents.split_at_unknown(text), expected)
