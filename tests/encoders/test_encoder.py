"""Steps and tokens that the states of each encoder depend on."""

from absl.testing import absltest

from infoword_tf.encoders import ENCODERS
from tests.encoders.calls import SIZES, V


class DependsTest(absltest.TestCase):
    def test_on_steps_before_and_on_other_tokens(self):
        encoders = [ENCODERS[x](vocab_size=V, **SIZES[x]) for x in SIZES]
        self.assertLen(encoders, len(ENCODERS))
        for name, expected in (
            ('remembers', {'relative', 'rnn', 'elmo'}),
            ('has_memory', {'relative'}),
            ('contextual', {*ENCODERS} - {'lookup'}),
        ):
            actual = {
                kind
                for kind, encoder in zip(SIZES, encoders, strict=True)
                if getattr(encoder, name)
            }
            self.assertEqual(actual, expected, name)
