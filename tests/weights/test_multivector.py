"""Lengths of texts by role, as folders of late interaction have them."""

from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from infoword_tf import files
from infoword_tf.critics.late import LateConfig
from infoword_tf.weights import multivector
from tests import places, zoo
from tests.refused import refused
from tests.weights import folders


class LengthsTest(parameterized.TestCase):
    @parameterized.parameters(
        (8, 16, {'query_length': 8, 'document_length': 16}),
        (None, 16, {'document_length': 16}),
        (8, None, {'query_length': 8}),
        (None, None, {}),
    )
    def test_out_and_in_again(self, query, passage, written):
        lengths = {'query_length': query, 'passage_length': passage}
        config = zoo.config('simcse').replace(**lengths)
        self.assertEqual(multivector.lengths_of(config), written)
        self.assertEqual(multivector.lengths(written), lengths)

    @parameterized.parameters(
        (8, 16, 512, 16), (16, 8, None, 16), (None, 16, 9, 16),
        (None, 8, 9, 9), (20, None, 9, 20), (8, None, None, None),
    )  # fmt: skip
    def test_no_text_is_longer_than_the_folder_says(
        self, query, passage, longest, outcome
    ):
        """Nor than that of the other role, where each has a length."""
        late = LateConfig((), skip=('.',))
        settings = multivector.settings_of(late, query, passage, longest)
        self.assertEqual(settings.max_length, outcome)
        self.assertEqual(settings.critics, {'late': late})


class StanfordTest(places.Folder, absltest.TestCase):
    def test_what_is_said_and_what_is_not(self):
        kernel = np.arange(21, dtype=np.float32).reshape(7, 3)
        folders.save(
            self.folder / 'model.safetensors', {'linear.weight': kernel}
        )
        settings = multivector.stanford(self.folder)
        late = settings.critics['late']
        (layer,) = late.dense
        self.assertEqual(
            (layer.width, layer.activation, layer.bias), (7, 'identity', False)
        )
        self.assertEqual((late.expand, late.attend), (True, False))
        self.assertIn('!', late.skip)
        self.assertEqual(
            settings.prompts,
            {'query': '[unused0] ', 'document': '[unused1] '},
        )
        self.assertEqual(settings.markers, ('[unused0] ', '[unused1] '))
        lengths = settings.query_length, settings.passage_length
        self.assertEqual(lengths, (32, 220))
        files.write_json(self.folder / 'artifact.metadata', {
            'query_maxlen': 9, 'doc_maxlen': 11, 'doc_token_id': '[D]',
            'attend_to_mask_tokens': True, 'mask_punctuation': False,
        })  # fmt: skip
        settings = multivector.stanford(self.folder)
        late = settings.critics['late']
        self.assertEqual((late.attend, late.skip), (True, ()))
        self.assertEqual(settings.prompts['document'], '[D] ')
        lengths = settings.query_length, settings.passage_length
        self.assertEqual((*lengths, settings.max_length), (9, 11, 11))

    def test_the_first_state_always_has_a_vector_there(self):
        late = LateConfig((), first=False)
        config = zoo.config('simcse').replace(critics={'late': late.written()})
        with refused('first_state_not_public', '--format=huggingface'):
            multivector.write(self.folder, mock.Mock(config=config))
