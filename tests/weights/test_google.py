"""Checkpoints of TensorFlow: Google's, and the Model Garden's."""

import re
import shutil

import numpy as np
import tensorflow as tf
from absl.testing import absltest

import infoword_tf
from infoword_tf import convert, files
from infoword_tf.encoders import Inputs
from tests import places
from tests.oracles import huggingface
from tests.refused import refused
from tests.weights import folders

GARDEN = {
    'vocab_size': 60, 'hidden_size': 16, 'num_layers': 2,
    'num_attention_heads': 2, 'intermediate_size': 24,
    'max_position_embeddings': 20,
}  # fmt: skip


def save(prefix, arrays):
    """A checkpoint of TensorFlow 1: arrays by name."""
    names = sorted(arrays)
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names,
        shape_and_slices=[''] * len(names),
        tensors=[tf.constant(arrays[name]) for name in names],
    )  # fmt: skip


def google_bert(state):
    """Names and shapes as Google's BERT has them, of transformers' ones."""
    actual = {}
    for name, array in state.items():
        if 'decoder' in name:
            continue
        name = name.replace('.', '/')
        name = re.sub(r'layer/(\d+)', r'layer_\1', name)
        if 'LayerNorm' in name:
            name = name.replace('/weight', '/gamma').replace('/bias', '/beta')
        elif 'embeddings' in name:
            name = name.removesuffix('/weight')
        elif name.startswith('cls/seq_relationship'):
            name = name.replace('/weight', '/output_weights')
            name = name.replace('/bias', '/output_bias')
        elif name == 'cls/predictions/bias':
            name = 'cls/predictions/output_bias'
        elif name.endswith('/weight'):
            name, array = name.replace('/weight', '/kernel'), array.T
        actual[name] = array
        actual[f'{name}/adam_m'] = np.zeros_like(array)
    actual['global_step'] = np.int64(7)
    return actual


def google_xlnet(state):
    """Names and shapes as Google's XLNet has them."""
    actual, stacked = {}, {}
    for name, array in state.items():
        name = name.replace('transformer.', 'model/transformer/')
        name = re.sub(r'layer\.(\d+)\.', r'layer_\1/', name)
        match = re.search(r'layer_(\d)/rel_attn\.(r_.*|seg_embed)$', name)
        if match:
            stacked.setdefault(match[2], {})[int(match[1])] = array
            continue
        if name == 'lm_loss.weight':
            continue
        name = name.replace('lm_loss.bias', 'model/lm_loss/bias')
        name = name.replace(
            'word_embedding.weight', 'word_embedding/lookup_table'
        )
        name = name.replace('mask_emb', 'mask_emb/mask_emb')
        name = name.replace('layer_norm.weight', 'LayerNorm/gamma')
        name = name.replace('layer_norm.bias', 'LayerNorm/beta')
        if re.search(r'ff\.layer_\d\.weight', name):
            name, array = name.replace('.weight', '/kernel'), array.T
        name = name.replace('.bias', '/bias').replace('.', '/')
        if re.search(r'rel_attn/[qkvor]$', name):
            name = f'{name}/kernel'
        actual[name] = array
    for name, layers in stacked.items():
        in_order = [layers[i] for i in sorted(layers)]
        actual[f'model/transformer/{name}'] = np.stack(in_order)
    return actual


class GoogleTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.root = places.make(self.addCleanup, cache=False)
        self.source = self.root / 'google'
        self.source.mkdir()

    def folder(self, name, case):
        """A folder of Google's files, but for the checkpoint."""
        source = self.root / name
        source.mkdir()
        config = huggingface.CASES[case][1]
        files.write_json(source / 'bert_config.json', config)
        (source / 'vocab.txt').write_text('\n'.join(folders.vocabulary()))
        return source

    def tensors(self, source, name):
        convert.convert(source, self.root / name)
        return files.read_tensors(self.root / name / 'weights.safetensors')

    def same(self, actual, expected):
        self.assertEqual(set(actual), set(expected))
        for path, array in expected.items():
            np.testing.assert_array_equal(actual[path], array, path)

    def test_bert_of_tensorflow_1(self):
        case = 'bert_pretraining'
        source = self.folder('bert', case)
        config = dict(huggingface.CASES[case][1])
        del config['model_type']
        files.write_json(source / 'bert_config.json', config)
        save(source / 'bert_model.ckpt', google_bert(folders.state(case)))
        other = folders.write(self.root / 'other', case)
        self.same(self.tensors(source, 'a'), self.tensors(other, 'b'))
        loaded = infoword_tf.load(self.root / 'a')
        self.assertEqual(loaded.encoder.arguments['activation'], 'gelu_tanh')
        self.assertEqual(set(loaded.model.objectives), {'mlm', 'nsp'})

    def test_xlnet_of_tensorflow_1(self):
        config = {
            'n_token': 60, 'n_layer': 2, 'd_model': 16, 'n_head': 2,
            'd_inner': 24, 'd_head': 8, 'ff_activation': 'gelu',
            'untie_r': True,
        }  # fmt: skip
        files.write_json(self.source / 'xlnet_config.json', config)
        other = folders.write(self.root / 'other', 'xlnet')
        shutil.copy(other / 'tokenizer.json', self.source)
        arrays = google_xlnet(folders.state('xlnet'))
        save(self.source / 'xlnet_model.ckpt', arrays)
        self.same(self.tensors(self.source, 'a'), self.tensors(other, 'b'))

    def test_model_garden(self):
        """Its encoder, and its pretrainer: as it is published, and whole."""
        from official.modeling import tf_utils
        from official.nlp.configs import encoders
        from official.nlp.modeling import layers, models

        bert = encoders.BertEncoderConfig(**GARDEN)
        config = encoders.EncoderConfig(type='bert', bert=bert)
        encoder = encoders.build_encoder(config)
        head = layers.ClassificationHead(
            16, 2, dropout_rate=0.0, name='next_sentence'
        )
        model = models.BertPretrainerV2(
            encoder_network=encoder,
            mlm_activation=tf_utils.get_activation('gelu'),
            classification_heads=[head],
        )
        fields = huggingface.inputs('bert')
        ids, real, segments = (
            fields[name].astype(np.int32)
            for name in ('input_ids', 'attention_mask', 'token_type_ids')
        )
        places = np.int32([[0, 3, 5]] * 2)
        asked = {
            'input_word_ids': ids, 'input_mask': real,
            'input_type_ids': segments,
        }  # fmt: skip
        model({**asked, 'masked_lm_positions': places})
        random = np.random.default_rng(1)
        for weight in model.weights:
            weight.assign(random.normal(0, 0.2, weight.shape))
        answers = encoder(asked)
        expected = model({**asked, 'masked_lm_positions': places})['mlm_logits']
        inputs = Inputs(ids, segment_ids=segments, block_ids=1 - real)
        for name, checkpoint in (
            ('encoder', tf.train.Checkpoint(encoder=encoder)),
            ('parts', tf.train.Checkpoint(**model.checkpoint_items)),
            ('whole', tf.train.Checkpoint(model=model)),
        ):
            source = self.folder(f'garden_{name}', 'bert')
            checkpoint.write(str(source / 'bert_model.ckpt'))
            self.tensors(source, name)
            loaded = infoword_tf.load(self.root / name)
            encoded = loaded.encoder(inputs, all_layers=True)
            for one, two in zip(
                [*encoded.layers[1:], encoded.states],
                [*answers['encoder_outputs'], answers['sequence_output']],
                strict=True,
            ):
                near = np.abs(one - two) * real[..., None]
                self.assertLess(near.max(), 1e-5)
            if name != 'encoder':
                states = loaded.encoder(inputs, places=tf.constant(places))
                row = loaded.model.objectives['mlm']
                scores = row.token_scores(states.states, None)
                np.testing.assert_allclose(scores, expected, atol=3e-5)

    def test_damaged_checkpoints(self):
        for part in ('index', 'data-00000-of-00001'):
            source = self.folder(part, 'bert')
            state = folders.state('bert_pretraining')
            save(source / 'one.ckpt', google_bert(state))
            path = source / f'one.ckpt.{part}'
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
            with refused('public_weights_damaged', 'one.ckpt'):
                convert.convert(source, self.root / 'a')
            self.assertFalse((self.root / 'a').exists())

    def test_complaints(self):
        with self.assertRaisesRegex(FileNotFoundError, 'no config.json'):
            convert.convert(self.source, self.root / 'a')
        arrays = {'bert/embeddings/word_embeddings': np.ones((2, 2), 'f4')}
        save(self.source / 'one.ckpt', arrays)
        with self.assertRaisesRegex(FileNotFoundError, 'bert_config.json'):
            convert.convert(self.source, self.root / 'a')
        save(self.source / 'two.ckpt', arrays)
        with refused('several_checkpoints', 'one.ckpt, two.ckpt'):
            convert.convert(self.source, self.root / 'a')
