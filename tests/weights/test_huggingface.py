"""Folders of transformers: what it answers, we answer, and back again."""

import contextlib
import dataclasses
import io
import pathlib
import re

import ml_dtypes
import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from scipy import special

import infoword_tf
from infoword_tf import convert, files
from infoword_tf.config import Config, EncoderConfig, Layout
from infoword_tf.encoders import ENCODERS, Inputs
from infoword_tf.weights import (
    architectures,
    tokenizer_reader,
    tokenizer_writer,
)
from infoword_tf.weights.huggingface import labels_of, read, write
from tests import places
from tests.eager import eagerly
from tests.near import near, same
from tests.oracles import huggingface
from tests.refused import refused
from tests.weights import folders

NEAR = 1e-5
# What our encoders have not, or has the words of another: by hand from the
# models of transformers 5.23, a value of each key that changes its answers.
_OF_BERT = {'position_embedding_type': 'relative_key', 'is_decoder': True}
_OF_GTE = {
    'position_embedding_type': 'absolute', 'layer_norm_type': 'rms_norm',
    'logn_attention_scale': True, 'logn_attention_clip1': True,
}  # fmt: skip
_OF_LLAMA = {'attention_bias': True, 'mlp_bias': True}
OTHERWISE = {
    **dict.fromkeys(
        ('bert', 'electra', 'roberta', 'xlm-roberta', 'camembert'), _OF_BERT
    ),
    'albert': {'num_hidden_groups': 2, 'inner_group_num': 2,
               'position_embedding_type': 'relative_key'},
    'mpnet': {'relative_attention_num_buckets': 16, 'pad_token_id': 0},
    'xlnet': {'attn_type': 'uni', 'bi_data': True, 'untie_r': False,
              'clamp_len': 8, 'same_length': True, 'summary_type': 'mean',
              'summary_use_proj': False, 'summary_activation': None},
    'gpt2': {'add_cross_attention': True, 'scale_attn_weights': False,
             'scale_attn_by_inverse_layer_idx': True},
    'modernbert': {'attention_bias': True, 'mlp_bias': True, 'norm_bias': True,
                   'classifier_bias': True, 'decoder_bias': False,
                   'classifier_activation': 'silu'},
    'deberta-v2': {'relative_attention': False, 'position_biased_input': True,
                   'pos_att_type': 'c2p', 'norm_rel_ebd': 'none',
                   'share_att_key': False, 'embedding_size': 8,
                   'pooler_hidden_size': 8, 'attention_head_size': 4,
                   'conv_kernel_size': 3, 'pooler_hidden_act': 'tanh'},
    **dict.fromkeys(('gte', 'new'), _OF_GTE),
    'nomic_bert': {'prenorm': True, 'parallel_block': True,
                   'use_rms_norm': True, 'qkv_proj_bias': True,
                   'mlp_fc1_bias': True, 'mlp_fc2_bias': True, 'causal': True,
                   'rotary_emb_fraction': 0.5, 'rotary_emb_interleaved': True,
                   'rotary_emb_scale_base': 512, 'num_experts': 8,
                   'moe_every_n_layers': 2},
    **dict.fromkeys(('llama', 'llama_bidirec', 'eurobert'), _OF_LLAMA),
    'qwen2': {'use_sliding_window': True},
    'qwen3': {'attention_bias': True, 'use_sliding_window': True},
    'gemma3_text': {'attention_bias': True, 'attn_logit_softcapping': 50.0,
                    'final_logit_softcapping': 30.0},
}  # fmt: skip


_PARTS = {r'self_attn\.[qkv]_proj': 'self_attn.QKV'}
FIRST_NAMES = {
    'nomic_bert': {
        **_PARTS, '^nomic_bert': 'bert', r'self_attn\.QKV': 'attn.Wqkv',
        r'embeddings\.LayerNorm': 'emb_ln', r'\blayers\b': 'encoder.layers',
        r'self_attn\.o_proj': 'attn.out_proj', 'up_proj': 'fc11',
        'gate_proj': 'fc12', 'down_proj': 'fc2',
        'post_attention_layernorm': 'norm1', 'post_mlp_layernorm': 'norm2',
        r'^cls\.predictions\.bias': 'cls.predictions.decoder.bias',
    },
    'gte': {
        **_PARTS, '^gte': 'new', r'\blayers\b': 'encoder.layer',
        r'self_attn\.QKV': 'attention.qkv_proj',
        r'self_attn\.o_proj': 'attention.o_proj',
        r'\b(up|gate)_proj': 'up_gate_proj',
        'post_attention_layernorm': 'attn_ln', 'post_mlp_layernorm': 'mlp_ln',
        r'lm_head\.layer_norm': 'lm_head.norm',
    },
}  # fmt: skip
# Of cases, keys that are others on the way out.
_BY_ANOTHER_NAME = ('model_type', 'architectures', 'is_causal',
                    'sliding_window', 'max_position_embeddings')  # fmt: skip
OTHER_KEYS = {
    # A head is left out.
    'electra': ('architectures',), 'albert': ('architectures',),
    # BERT's encoder, EuroBERT's and Llama's.
    'electra_wide': ('architectures', 'model_type', 'embedding_size'),
    'llama_seeing_all': _BY_ANOTHER_NAME, 'mistral': _BY_ANOTHER_NAME,
}  # fmt: skip
FIRST_KEYS = {
    'hidden_size': 'n_embd', 'num_hidden_layers': 'n_layer',
    'num_attention_heads': 'n_head', 'intermediate_size': 'n_inner',
    'max_position_embeddings': 'n_positions',
}  # fmt: skip


def softmax(logits):
    return special.softmax(logits, axis=1)


def layers_of(loaded, kind):
    """[L + 1, B, T, D] of the oracle's inputs, 0 at padding."""
    arrays = huggingface.inputs(kind)
    ids = tf.constant(arrays['input_ids'], tf.int32)
    real = arrays.get('attention_mask', np.ones(ids.shape))
    more = {}
    if 'token_type_ids' in arrays:
        more['segment_ids'] = tf.constant(arrays['token_type_ids'], tf.int32)
    encoded = loaded.encoder(
        Inputs(ids, block_ids=tf.constant(1 - real, tf.int32), **more),
        all_layers=True,
    )
    return np.stack(encoded.layers) * real[..., None], encoded.states


# Keys of a case's config.json, and the arguments that they make of it ...
_NTK = {'type': 'ntk', 'factor': 16.0}
READ = (
    # The half window counts.
    ('modern', {'sliding_window': 7}, {'local_window': 14}),
    # NTK is another base and slower planes (Su 2023); heads are 8 wide.
    ('gte', {'rope_theta': 500.0, 'rope_scaling': _NTK},
     {'global_theta': 8000.0, 'global_factor': 2.0}),
    ('nomic', {'rotary_scaling_factor': 2.0, 'max_trained_positions': 12},
     {'max_length': 12}),
    # Mistral is Llama within a window.
    *(('mistral', {'sliding_window': window}, {'max_length': longest})
      for window, longest in ((16, 16), (None, 20), (40, 20))),
    # DeBERTa's repeated widths, lists, and defaults of transformers.
    *(('deberta_mlm', more, {'max_distance': 20}) for more in (
        {}, {'pos_att_type': ['c2p', 'p2c']}, {'pos_att_type': 'C2P | p2c'},
        {'max_relative_positions': -1}, {'max_relative_positions': 20},
        {'attention_head_size': 8}, {'pooler_hidden_size': 16},
    )),
)  # fmt: skip
# ... or how it is refused; None takes a key away.
REFUSED = (
    ('albert', {'embedding_size': 16}, 'albert_equal_widths', 16),
    ('modern', {'rope_scaling': {'type': 'linear', 'factor': 2.0}},
     'unknown_rope', 'linear'),
    ('deberta_mlm', {'position_buckets': -1}, 'config_lacks_key',
     'one has no position_buckets'),
    *(('deberta_mlm', {key: None}, 'value_not_convertible', key) for key in (
        'relative_attention', 'position_biased_input', 'pos_att_type',
        'norm_rel_ebd', 'share_att_key',
    )),
)  # fmt: skip
# Arguments of a case's encoder, the kind that it would be, and what that lacks.
NOT_WRITTEN = (
    ('mpnet', {'relative_buckets': 16}, 'mpnet', 'relative_buckets 16'),
    ('albert', {'embedding_width': None}, 'bert', 'shared_layers True'),
    ('albert', {'relative_buckets': 32}, 'albert', 'relative_buckets 32'),
)


# Keys that a config.json may lack, and by case the arguments that transformers
# has then; RoBERTa's first positions are of no token.
LACKED = {
    'activation', 'embedding_size', 'global_rope_theta', 'hidden_act',
    'hidden_activation', 'layer_norm_eps', 'layer_types', 'local_attention',
    'local_rope_theta', 'max_position_embeddings', 'max_relative_positions',
    'n_positions', 'query_pre_attn_scalar', 'rope_parameters', 'sliding_window',
    'type_vocab_size',
}  # fmt: skip
_USUAL = {'rate': 0.1, 'activation': 'gelu_erf', 'epsilon': 1e-12}
_GPT = {'rate': 0.1, 'activation': 'gelu_tanh', 'epsilon': 1e-5}
_LLAMA = {'rate': 0.0, 'activation': 'silu', 'epsilon': 1e-6,
          'global_theta': 1e4}  # fmt: skip
DEFAULTS = {
    'bert': {**_USUAL, 'max_length': 512, 'segments': 2},
    'roberta': {**_USUAL, 'max_length': 510, 'segments': 2},
    'mpnet': {**_USUAL, 'max_length': 510},
    'distilbert': {**_USUAL, 'max_length': 512},
    'electra': {**_USUAL, 'max_length': 512, 'embedding_width': 128},
    'albert': {**_USUAL, 'max_length': 512, 'embedding_width': 128,
               'rate': 0.0, 'activation': 'gelu_tanh'},
    'xlnet': _USUAL,
    'deberta': {**_USUAL, 'epsilon': 1e-7, 'max_length': 512, 'segments': 0},
    'gpt': {**_GPT, 'max_length': 512},
    'gpt2': {**_GPT, 'max_length': 1024},
    'modern': {**_USUAL, 'rate': 0.0, 'epsilon': 1e-5, 'max_length': 8192,
               'global_every': 3, 'local_window': 128, 'global_theta': 1.6e5,
               'local_theta': 1e4},
    'llama': {**_LLAMA, 'max_length': 2048},
    'mistral': {**_LLAMA, 'max_length': 4096},  # its window
    'qwen3': {**_LLAMA, 'max_length': 32_768},
    'gemma': {**_LLAMA, 'activation': 'gelu_tanh', 'global_theta': 1e6,
              'local_theta': 1e4, 'local_window': 4096, 'query_scalar': 256.0,
              'max_length': 131_072},
}  # fmt: skip


class ConfigJsonTest(parameterized.TestCase):
    """Entries of config.json: what they make of an encoder, or a refusal."""

    @parameterized.parameters(*DEFAULTS)
    def test_lacked(self, case):
        _, values = huggingface.CASES[case]
        values = {k: x for k, x in values.items() if k not in LACKED}
        actual = architectures.encoder_of(values, '').arguments
        self.assertLessEqual(DEFAULTS[case].items(), actual.items())

    @parameterized.parameters(*READ)
    def test_read(self, case, changes, expected):
        _, values = huggingface.CASES[case]
        usual = architectures.encoder_of(values, '').arguments
        actual = architectures.encoder_of(values | changes, '').arguments
        self.assertEqual(actual, usual | expected)

    @parameterized.parameters(*REFUSED)
    def test_refused(self, case, changes, id, value):
        values = huggingface.CASES[case][1] | changes
        values = {k: x for k, x in values.items() if x is not None}
        with refused(id, value):
            architectures.encoder_of(values, 'one')

    @parameterized.parameters(*NOT_WRITTEN)
    def test_not_written(self, case, changes, kind, value):
        _, config = huggingface.CASES[case]
        encoder = architectures.encoder_of(config, 'config.json')
        arguments = {**encoder.arguments, **changes}
        encoder = dataclasses.replace(encoder, arguments=arguments)
        self.assertEqual(architectures.kind_of(encoder, None), kind)
        with refused('kind_other_argument', kind, value):
            architectures.config_of(kind, encoder)

    def test_rotary_positions_of_both_forms(self):
        gemma = dict(huggingface.CASES['gemma'][1])
        expected = architectures.encoder_of(gemma, '')
        rope = gemma.pop('rope_parameters')['full_attention']
        first = {
            **gemma, 'rope_theta': 1000.0, 'rope_local_base_freq': 50.0,
            'rope_scaling': {k: rope[k] for k in ('rope_type', 'factor')},
        }  # fmt: skip
        self.assertEqual(architectures.encoder_of(first, ''), expected)


class ParityTest(places.Folder, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.root = places.make(cls.addClassCleanup, cache=False)

    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())

    def whole(self, case):
        """A case as it is: `source`, and `workdir` of it, made once."""
        root = self.root / case
        if not root.exists():
            source = folders.write(root / 'source', case)
            convert.convert(source, root / 'workdir')
        return root

    def converted(self, case, **config):
        """Writes a folder, and a workdir of it."""
        root = pathlib.Path(self.create_tempdir().full_path)
        source = folders.write(root / 'source', case, **config)
        convert.convert(source, root / 'workdir')
        return source, root / 'workdir'

    def written(self, workdir):
        """A folder of a workdir beside it, and what its config.json says."""
        output = workdir.with_name('output')
        convert.write(workdir, output, 'huggingface')
        return output, files.read_json(output / 'config.json')

    @parameterized.parameters(*huggingface.CASES)
    def test_all_layers_and_heads_are_those_of_transformers(self, case):
        kind = huggingface.CASES[case][1]['model_type']
        expected = folders.answers(case)
        loaded = infoword_tf.load(self.whole(case) / 'workdir')
        layers, states = layers_of(loaded, kind)
        # ELECTRA's has the embeddings before they are widened.
        first = int(case.startswith('electra') and case != 'electra_wide')
        near(layers[first:], expected['layers'][first:], atol=NEAR)
        objectives = loaded.model.objectives
        masked = ('tokens', 0.15) if 'mlm' in objectives else (None, None)
        config = loaded.config
        self.assertEqual((config.masking, config.mask_share), masked)
        for part in expected.keys() - {'layers', 'weights'}:
            name = 'next' if case == 'bert_relu_next' else part
            scores = self.scores(loaded, states, huggingface.inputs(kind), name)
            logits = expected[part]
            real = np.any(logits, axis=-1)
            if kind == 'xlnet' and logits.ndim == 2:
                real[1] = False  # theirs reads the last place, padding or not
            bound = NEAR if logits.shape[-1] < huggingface.V else 3 * NEAR
            near(
                np.asarray(scores)[real], logits[real], atol=bound, message=part
            )

    def scores(self, loaded, states, inputs, part):
        """Returns what the head of a part of the oracle's answers says."""
        objectives = loaded.model.objectives
        if part == 'next':
            return objectives['nsp'].class_scores(states[:, 0])
        if 'tag' in objectives:
            return objectives['tag'].scores_of(states, None, None)
        if 'span' in objectives:
            return tf.stack(objectives['span'].ends(states), -1)
        if 'mlm' in objectives:
            return objectives['mlm'].token_scores(states, None)
        if 'gpt' in objectives:
            return objectives['gpt'].token_scores(states)
        if 'plm' in objectives:
            table = loaded.encoder.embedding_table
            scores = tf.matmul(states, table, transpose_b=True)
            return scores + objectives['plm'].token_bias
        second = tf.constant([4, 4]) if 'token_type_ids' in inputs else None
        return loaded.classes.class_scores(
            tf.constant(inputs['input_ids'], tf.int32),
            tf.constant([huggingface.T, huggingface.PADDED]), second,
        )  # fmt: skip

    @parameterized.parameters(*huggingface.CASES)
    def test_out_again_every_number_has_its_name(self, case):
        source = self.whole(case) / 'source'
        output, after = self.written(self.whole(case) / 'workdir')
        expected = folders.state(case)
        kind = huggingface.CASES[case][1]['model_type']
        renamed = architectures.ARCHITECTURES[kind].naming.old.items()
        for old, new in renamed:  # a head in another form
            expected = {re.sub(old, new, n): x for n, x in expected.items()}
        actual = files.read_tensors(output / 'model.safetensors')
        if case in ('gpt', 'gpt2'):  # theirs goes out with its head
            expected = {f'transformer.{n}': x for n, x in expected.items()}
        bare = {n.split('.', 1)[1] if n.startswith(
            ('bert.', 'roberta.', 'electra.', 'distilbert.', 'transformer.',
             'model.', 'mpnet.', 'albert.', 'deberta.', 'nomic_bert.', 'gte.')
        ) else n: n for n in expected}  # fmt: skip
        for name, array in actual.items():
            original = expected[name if name in expected else bare[name]]
            if name.endswith('position_embeddings.weight'):
                array, original = array[2:], original[2:]  # two have no token
            # Norms of Gemma's hold one less than what they multiply by.
            near(
                array, original, rtol=0, atol=3e-7 * ('gemma' in case),
                message=name,
            )  # fmt: skip
        dropped = (
            'pooler.', 'discriminator_', 'decoder.', 'vocab_projector.w',
            'sop_classifier.', 'lm_loss.weight', 'generator_lm_head.weight',
            'word_emb', 'lm_head.weight',
        )  # fmt: skip
        for name in expected:
            if name not in actual and name.partition('.')[2] not in actual:
                self.assertTrue(any(d in name for d in dropped), name)
        before = files.read_json(source / 'config.json')
        if case in ('gpt', 'gpt2'):
            name = before['architectures'][0].removesuffix('Model')
            before['architectures'] = [f'{name}LMHeadModel']
        for key, value in before.items():
            if key not in OTHER_KEYS.get(case, ()):
                self.assertEqual(after.get(key, value), value, key)

    @parameterized.parameters((0, 1), (2, 1), (0, 0))
    def test_positions_begin_after_the_number_of_the_padding(self, read, pad):
        """RoBERTa's: transformers adds pad_token_id to 1, 2, 3, ...

        In by what config.json says, out by what the tokenizer pads with.
        """
        names = ['<pad>', '</s>', '<unk>', '<mask>']
        names.insert(1 - pad, '<s>')
        source, workdir = self.folder / 'source', self.folder / 'workdir'
        folders.write(source, 'roberta', pad_token_id=read)
        names, _ = folders.byte_pairs(*names)
        index = {piece: i for i, piece in enumerate(names)}
        self.assertEqual(index['<pad>'], pad)
        files.write_json(source / 'vocab.json', index)
        convert.convert(source, workdir)
        name = 'roberta.embeddings.position_embeddings.weight'
        table = folders.state('roberta')[name][read + 1 :]
        ours = files.read_tensors(workdir / 'weights.safetensors')
        same(ours['encoder/position_embeddings'], table)
        output, config = self.written(workdir)
        self.assertEqual(config['pad_token_id'], pad)
        self.assertEqual(config['max_position_embeddings'], 22 - read + pad)
        theirs = files.read_tensors(output / 'model.safetensors')
        same(theirs[name][pad + 1 :], table)

    def test_padding_that_texts_hold_is_said(self):
        code = {'AutoModel': 'own.Model'}
        source = folders.write(
            self.folder / 'source', 'roberta', pad_token_id=0, auto_map=code
        )
        note, other = read(source).tokenizer.notes
        self.assertIn("transformers takes '<s>' (pad_token_id 0) in a", note)
        self.assertIn('(auto_map) is not run: it is read as any rob', other)
        files.write_json(source / 'adapter_config.json', {})
        with refused('adapter_folder', 'merge_and_unload'):
            read(source)

    def test_padding_of_folders_that_say_none(self):
        """transformers has a number for Gemma, and none for Qwen."""
        for case, pads in (('gemma', '[PAD]'), ('qwen3', None)):
            source = folders.write(self.folder / case, case)
            self.assertEqual(read(source).padding, '[PAD]')
            folders.change(source / 'config.json', pad_token_id=None)
            self.assertEqual(read(source).padding, pads)

    def test_gpt_2_of_another_inner_width(self):
        """As if the numbers beyond it were 0."""
        wide = folders.state('gpt2')
        narrow = dict(wide)
        for i in range(2):
            end = f'h.{i}.mlp.c_proj.weight'
            for part in ('weight', 'bias'):
                name = f'h.{i}.mlp.c_fc.{part}'
                narrow[name] = wide[name][..., :24]
            narrow[end] = wide[end][:24]
            wide[end] = np.pad(narrow[end], ((0, 40), (0, 0)))
        states = []
        for tensors, inner in ((wide, 64), (wide, None), (narrow, 24)):
            _, workdir = self.converted('gpt2', tensors=tensors, n_inner=inner)
            loaded = infoword_tf.load(workdir)
            states.append(loaded.states(tf.constant([[7, 8, 9]]), [3])[0])
        for other in states[1:]:
            near(other, states[0], atol=1e-6)
        self.assertEqual(self.written(workdir)[1]['n_inner'], 24)

    def test_layers_of_a_shared_stack(self):
        """One runs as often as layers are asked for, and goes out again."""
        _, workdir = self.converted('albert')
        loaded = infoword_tf.load(workdir)
        short = loaded.shortened([1, 3])
        ids, lengths = tf.constant([[7, 8, 9]]), [3]
        near(
            short.states(ids, lengths), loaded.states(ids, lengths, [2]),
            atol=1e-6,
        )  # fmt: skip
        short.write(workdir.with_name('short'))
        _, config = self.written(workdir.with_name('short'))
        self.assertEqual(config['num_hidden_layers'], 2)

    @parameterized.parameters('bert_spans', 'modern_spans')
    def test_limits_of_answers(self, case):
        """Limits of answers in a folder are read, and stay."""
        limits = {'handle_impossible_answer': True, 'max_answer_len': 3,
                  'max_question_len': 2}  # fmt: skip
        settings = {'question-answering': limits}
        _, workdir = self.converted(case, task_specific_params=settings)
        loaded = infoword_tf.load(workdir)
        loaded.workdir.config = loaded.config.replace(null_threshold=99.0)
        actual = loaded.config.rows['span'].settings
        self.assertEqual(
            [actual[x] for x in ('null', 'longest', 'question')], [True, 3, 2]
        )
        out = workdir.with_name('out')
        out.mkdir()
        self.assertIn('above which it gives no answer', *write(out, loaded))
        config = files.read_json(out / 'config.json')
        self.assertEqual(config['task_specific_params'], settings)

    def test_the_first_token_of_a_word(self):
        first = {'token-classification': {'aggregation_strategy': 'first'}}
        _, workdir = self.converted('bert_tags', task_specific_params=first)
        _, written = self.written(workdir)
        self.assertEqual(written['task_specific_params'], first)

    @parameterized.parameters(
        ('bert_pretraining', 'qa_outputs', ''),
        ('xlnet', 'answer_class', ''),
        ('gpt2_lm', 'multiple_choice_head', ''),
        ('gpt_lm', 'score', ''),
        ('modern_mlm', 'custom', ''),
        ('gte', 'custom', ''),
        # Of ...ForQuestionAnswering of Llama and Qwen.
        ('qwen3', 'qa_outputs', 'transformer.'),
    )
    def test_a_head_that_is_not_known_is_left_out_by_name(
        self, case, head, prefix
    ):
        """Whatever its weights; as names of the encoder they are refused."""
        tensors = {prefix + x: y for x, y in folders.state(case).items()}
        tensors[f'{head}.dense_0.weight'] = np.ones((2, 16), np.float32)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            _, workdir = self.converted(case, tensors=tensors)
        self.assertIn('not converted', printed.getvalue())
        self.assertIn(f'the head {head}\n', printed.getvalue() + '\n')
        self.check_same(workdir, self.whole(case) / 'workdir')

    def check_same(self, *workdirs):
        """Two workdirs have the same weights."""
        one, other = (
            files.read_tensors(x / 'weights.safetensors') for x in workdirs
        )
        self.assertEqual(set(one), set(other))
        for path, array in one.items():
            same(array, other[path], path)

    def test_heads_that_are_refused(self):
        for changes, *complaint in (
            ({'architectures': ['BertForMultipleChoice']},
             'multiple_choice_folder', 'BertForMultipleChoice', '(BertModel)'),
            ({'problem_type': 'regression'}, 'several_regression_numbers',
             "'regression' of 3"),
        ):  # fmt: skip
            with refused(*complaint):
                self.converted('bert_classes', **changes)

    def test_a_head_without_a_place(self):
        """Names the reason beside each head that is not written."""
        for case, change, reason in (
            ('modern_spans', lambda x: x.config.rows['span'].settings.update(
                pooler='none'), 'there it has --span.pooler=gelu_norm'),
            ('bert_classes', lambda x: x.config.rows['label'].settings.update(
                pooler='gelu'), 'there it has --label.pooler=tanh'),
            ('qwen3_classes', lambda x: vars(x.workdir).update(
                layout=Layout((), ('[PAD]',)), after=[x.tokenizer.pad_id]),
             'texts end with the token that pads'),
            ('bert_tags', lambda x: x.config.rows['tag'].settings.update(
                crf=True), 'there it is one layer over the last states'),
        ):  # fmt: skip
            loaded = infoword_tf.load(self.whole(case) / 'workdir')
            change(loaded)
            out = self.folder / case
            out.mkdir()
            dropped = write(out, loaded)
            (row,) = loaded.config.rows
            self.assertIn(f'the row {row} ({reason})', dropped)

    def test_one_token_for_everything_pads(self):
        """But not GPT's texts, whose tokenizer has no such token."""
        tokenizer = infoword_tf.load(self.whole('gpt2') / 'workdir').tokenizer
        self.assertLen(set(tokenizer.special_ids), 1)
        for kind, pads in ('gpt2', None), ('qwen3', '<|endoftext|>'):
            out = self.folder / kind
            out.mkdir()
            tokenizer_writer.write(out, tokenizer, kind, 20, 'end')
            settings = files.read_json(out / 'tokenizer_config.json')
            self.assertEqual(settings.get('pad_token'), pads, kind)

    def test_an_mpnet_with_segments_and_other_padding(self):
        """The first segment goes out within positions, which begin at 2."""
        _, workdir = self.converted('mpnet')
        config = Config.read(workdir)
        config.encoder.arguments['segments'] = 2
        config.write(workdir)
        tensors = files.read_tensors(workdir / 'weights.safetensors')
        table = np.arange(32, dtype='f4').reshape(2, 16)
        tensors['encoder/segment_embeddings'] = table
        files.write_tensors(workdir / 'weights.safetensors', tensors, {})
        loaded = infoword_tf.load(workdir)
        loaded.tokenizer.pad_id = 3
        out = self.folder
        position, segments = write(out, loaded)
        self.assertIn("position of '<pad>' (pad_token_id 1)", position)
        self.assertIn('segments but the first', segments)
        config = files.read_json(out / 'config.json')
        self.assertEqual(config['pad_token_id'], 1)
        self.assertNotIn('type_vocab_size', config)
        theirs = files.read_tensors(out / 'model.safetensors')
        name = 'mpnet.embeddings.position_embeddings.weight'
        same(
            theirs[name][2:], tensors['encoder/position_embeddings'] + table[0]
        )

    def test_the_side_of_the_padding_stays(self):
        _, workdir = self.converted('qwen3')
        config = Config.read(workdir)
        layout = Layout((), ('sep',), padding_side='left')
        config.replace(layout=layout).write(workdir)
        (out, _), again = self.written(workdir), workdir.with_name('again')
        settings = files.read_json(out / 'tokenizer_config.json')
        self.assertEqual(settings['padding_side'], 'left')
        convert.convert(out, again)
        self.assertEqual(Config.read(again).layout.padding_side, 'left')

    @parameterized.parameters(
        *((kind, *x) for kind, keys in OTHERWISE.items() for x in keys.items())
    )
    def test_what_no_encoder_here_has_is_refused(self, kind, key, value):
        config = {'model_type': kind}
        case = {
            'camembert': 'xlm_roberta', 'new': 'gte', 'llama_bidirec': 'llama',
        }.get(kind)  # fmt: skip
        for name, (_, values) in huggingface.CASES.items():
            if name == case or values['model_type'] == kind:
                config = values | config
                break
        expected = architectures.encoder_of(config, 'config.json')
        for usual in architectures.ARCHITECTURES[kind].refused[key]:
            self.assertEqual(
                architectures.encoder_of(config | {key: usual}, ''), expected
            )
        with refused('value_not_convertible', f'{key} {value!r}; only'):
            architectures.encoder_of(config | {key: value}, 'config.json')

    def test_every_key_that_is_refused_is_tried(self):
        self.assertEqual(
            {kind: set(keys) for kind, keys in OTHERWISE.items()},
            {
                kind: set(known.refused)
                for kind, known in architectures.ARCHITECTURES.items()
                if known.refused
            },
        )

    @parameterized.parameters(1, 2, 3, 5)
    def test_modernbert_of_both_forms(self, every):
        """As its first release wrote config.json, and as transformers 5."""
        _, values = huggingface.CASES['modern_classes']
        first = {**values, 'global_attn_every_n_layers': every}
        now = {k: x for k, x in values.items() if 'rope_theta' not in k}
        now['layer_types'] = [
            'sliding_attention' if i % every else 'full_attention'
            for i in range(4)
        ]
        now['rope_parameters'] = {
            'full_attention': {'rope_type': 'default', 'rope_theta': 1000.0},
            'sliding_attention': {'rope_type': 'default', 'rope_theta': 50.0},
        }
        one, two = (
            architectures.encoder_of(x, 'config.json').arguments
            for x in (first, now)
        )
        self.assertEqual(one['global_theta'], 1000.0)
        self.assertEqual(one['local_theta'], 50.0)
        # Of a global layer after the last nothing is known.
        self.assertEqual(two['global_every'], min(every, 4))
        self.assertEqual(one | {'global_every': min(every, 4)}, two)

    @parameterized.parameters(
        ('nomic',), ('nomic_classes',), ('gte',), ('gte_classes',)
    )
    def test_names_of_first_repositories(self, case):
        """They join projections, and nomic-bert has GPT-2's keys."""
        theirs, values = folders.state(case), dict(huggingface.CASES[case][1])
        kind = values['model_type']
        older = {}
        theirs.pop('cls.predictions.decoder.bias', None)  # it is another
        for name in sorted(theirs, key=lambda name: 'gate_proj' in name):
            now = name
            for new, old in FIRST_NAMES[kind].items():
                now = re.sub(new, old, now)
            older.setdefault(now, []).append(theirs[name])
        older = {name: np.concatenate(x) for name, x in older.items()}
        if kind == 'gte':
            values['model_type'] = 'new'
            values['rope_theta'] = 160_000.0
        else:
            values = {FIRST_KEYS.get(k, k): v for k, v in values.items()}
            values['activation_function'] = {'gelu': 'geglu'}.get(
                values.pop('hidden_act', None), 'swiglu'
            )
        root = self.whole(case) / 'older'
        source = folders.write(root / 'source', case, older)
        files.write_json(source / 'config.json', values)
        convert.convert(source, root / 'workdir')
        both = self.whole(case) / 'workdir', root / 'workdir'
        self.check_same(*both)
        one, two = (infoword_tf.load(x).encoder.arguments for x in both)
        self.assertEqual(one, two)

    def test_weights_in_bfloat16_become_float32(self):
        rounded = {
            name: array.astype(ml_dtypes.bfloat16)
            for name, array in folders.state('qwen3').items()
        }
        _, workdir = self.converted('qwen3', tensors=rounded)
        actual = files.read_tensors(workdir / 'weights.safetensors')
        table = actual['encoder/word_embeddings']
        self.assertEqual(table.dtype, np.float32)
        same(table, rounded['embed_tokens.weight'].astype(np.float32))

    @parameterized.parameters('llama', 'eurobert', 'qwen3', 'gte')
    def test_a_table_goes_out_as_that_of_the_head(self, case):
        _, values = huggingface.CASES[case]
        bare = {k: x for k, x in values.items() if k != 'tie_word_embeddings'}
        encoder = architectures.encoder_of(bare, 'config.json')
        whole = ENCODERS[encoder.name](**encoder.arguments).arguments
        written = architectures.config_of(
            values['model_type'], EncoderConfig(encoder.name, whole)
        )
        self.assertIs(written['tie_word_embeddings'], True)

    @parameterized.parameters(('llama', 'gpt'), ('eurobert', 'mlm'))
    def test_a_head_with_a_table_of_its_own_is_left_out(self, case, row):
        tensors = folders.state(case)
        tensors['lm_head.weight'] = tensors['lm_head.weight'] + 1
        _, workdir = self.converted(
            case, tensors=tensors, tie_word_embeddings=False
        )
        for path, rows in (workdir, []), (self.whole(case) / 'workdir', [row]):
            model = infoword_tf.load(path).model
            self.assertEqual([*model.objectives], rows)

    @parameterized.parameters(
        ('eurobert_classes', 'mean', ['label']),
        ('eurobert_classes', 'late', []), ('eurobert', 'late', ['mlm']),
    )  # fmt: skip
    def test_a_head_whose_scores_are_averaged_is_left_out(
        self, case, pooling, rows
    ):
        _, workdir = self.converted(case, classifier_pooling=pooling)
        objectives = infoword_tf.load(workdir).model.objectives
        self.assertEqual([*objectives], rows)

    @parameterized.parameters(
        ('bert_classes', 'multi_label_classification', special.expit),
        ('roberta_classes', 'multi_label_classification', special.expit),
        ('bert_classes', 'single_label_classification', softmax),
        ('bert_classes', None, softmax),
        ('bert_one_class', None, special.expit),
        ('bert_one_class', 'regression', lambda logits: logits),
    )
    def test_what_a_head_was_trained_for(self, case, problem, activation):
        """As text-classification pipelines of transformers have it; and out
        again. (What it was trained for changes no logit.)
        """
        more = {} if problem is None else {'problem_type': problem}
        source, workdir = self.converted(case, **more)
        model, kind = infoword_tf.load(workdir), huggingface.CASES[case][1]
        expected = folders.answers(case)['logits']
        inputs = huggingface.inputs(kind['model_type'])
        second = tf.constant([4, 4]) if 'token_type_ids' in inputs else None
        row = 'score' if problem == 'regression' else 'label'
        self.assertEqual(set(model.model.objectives), {row})
        scores = model.classes.class_scores(
            tf.constant(inputs['input_ids'], tf.int32),
            tf.constant([huggingface.T, huggingface.PADDED]), second, row=row,
        )  # fmt: skip
        if row == 'label':
            texts = ['a', 'b c']
            near(
                model.classify(texts), activation(model.scores(texts)),
                atol=1e-6,
            )  # fmt: skip
            scores = model.classes.probabilities(scores)
        else:
            self.assertLen(model.rate(['a', 'b c']), 2)
        near(scores, activation(expected), atol=NEAR)
        out, written = self.written(workdir)
        if problem in (None, 'single_label_classification'):
            problem = None  # that is what they take it for
        self.assertEqual(written.get('problem_type'), problem)
        self.assertLen(written['id2label'], expected.shape[1])
        one, other = (files.read_tensors(x / 'model.safetensors')
                      for x in (source, out))  # fmt: skip
        heads = [name for name in one if name.startswith('classifier')]
        self.assertNotEmpty(heads)
        for name in heads:
            same(one[name], other[name])

    def test_classes_are_in_the_order_of_their_numbers(self):
        """Neither of their names, nor of the digits of those numbers."""
        names = 'lkjihgfedcba'
        listed = {str(i): name for i, name in enumerate(names)}
        config = {'id2label': dict(reversed(listed.items()))}
        self.assertEqual(labels_of(config), tuple(names))

    def test_other_byte_pairs_take_ids_alone(self):
        """Where words are split in a way that nothing here does."""
        source = folders.write(self.folder / 'source', 'gpt2')
        index = files.read_json(source / 'vocab.json')
        merges = (source / 'merges.txt').read_text().split('\n')[1:-1]
        files.write_json(source / 'tokenizer.json', {
            'pre_tokenizer': {'type': 'Split'},
            'model': {'type': 'BPE', 'vocab': index, 'merges': merges},
        })  # fmt: skip
        workdir = source.with_name('workdir')
        (note,) = tokenizer_reader.read(source, huggingface.BYTES).notes
        self.assertRegex(note, 'splits words by Split; .* takes ids alone$')
        convert.convert(source, workdir)
        loaded = infoword_tf.load(workdir)
        with refused('ids_without_tokenizer'):
            loaded.encode(['a text'], progress=False)
        self.assertLen(loaded.states(tf.constant([[7, 8]]), [2])[0], 2)
