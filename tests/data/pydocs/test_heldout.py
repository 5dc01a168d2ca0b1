import numpy as np
from absl.testing import parameterized

from infoword_tf.data.documents import Document, hash_bucket
from infoword_tf.data.pydocs import heldout
from tests.data.texts import in_bucket, words


class SplitHeldoutTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(5)

    def split(self, *texts):
        train, held, dropped = heldout.split_heldout(
            [Document((t,), t) for t in texts]
        )
        return [d.text for d in train], [d.text for d in held], dropped

    def test_share_of_candidates(self):
        texts = [words(self.rng, 9) for _ in range(4000)]
        train, held, dropped = self.split(*texts)
        self.assertBetween(len(held), 140, 260)  # 200 +- 4.4 sigma
        self.assertEqual(dropped, 0)
        self.assertEqual(sorted(train + held), sorted(texts))
        self.assertEqual(train, [t for t in texts if t in set(train)])

    def test_a_copy_with_a_changed_word_is_dropped(self):
        rng = self.rng
        original = in_bucket(rng, 60, False)
        while True:
            changed = f'{original.rsplit(" ", 1)[0]} {words(rng, 1)}'
            if hash_bucket(changed, 20) == 0:
                break
        other = in_bucket(rng, 60, True)
        self.assertEqual(
            self.split(changed.upper(), original, changed, other)[1:],
            ([other], 1),
        )

    # A candidate of 27 words has 20 shingles; when its first 7 + s words are
    # another's, s of them are shared. Four of 20 are the 20 %.
    @parameterized.product(shared=(0, 3, 4, 5), is_trained=(False, True))
    def test_threshold(self, shared, is_trained):
        rng = self.rng
        prefix = words(rng, 7 + shared)
        text = in_bucket(rng, 20 - shared, True, prefix)
        # The other is long: if a candidate, its own share stays small.
        other = in_bucket(rng, 100, not is_trained, prefix)
        train, held, dropped = self.split(text, other)
        self.assertEqual(text not in held, shared >= 4)
        self.assertEqual(dropped, int(shared >= 4))
        self.assertEqual(train, [other] if is_trained else [])

    def test_both_of_two_like_candidates_are_dropped(self):
        prefix = words(self.rng, 30)
        texts = [in_bucket(self.rng, 5, True, prefix) for _ in range(2)]
        self.assertEqual(self.split(*texts), ([], [], 2))

    def test_repetition_inside_a_document_is_not_shared(self):
        while True:
            text = ' '.join([words(self.rng, 10)] * 5)
            if hash_bucket(text, 20) == 0:
                break
        self.assertEqual(self.split(text), ([], [text], 0))

    def test_shingles_do_not_cross_documents(self):
        # The last words of one and the first of the next are in training
        # together; the candidate's only shingle is across them.
        rng = self.rng
        while True:
            a, b = words(rng, 20), words(rng, 20)
            text = ' '.join(a.split()[-4:] + b.split()[:4])
            if hash_bucket(text, 20) == 0 and all(
                hash_bucket(t, 20) for t in (a, b)
            ):
                break
        self.assertEqual(self.split(a, b, text), ([a, b], [text], 0))

    def test_nothing(self):
        self.assertEqual(self.split(), ([], [], 0))
