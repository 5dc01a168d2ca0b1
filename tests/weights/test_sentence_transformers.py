"""Folders of sentence-transformers: modules, prompts, and back again."""

import json
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import infoword_tf
from infoword_tf import convert, files
from infoword_tf.config import (
    ROLES,
    Config,
    DenseConfig,
    EncoderConfig,
    TaskConfig,
)
from infoword_tf.evaluation import models
from infoword_tf.weights import sentence_transformers
from tests.eager import eagerly
from tests.near import near, same
from tests.oracles import huggingface
from tests.refused import refused
from tests.weights import folders
from tests.weights.folders import (
    SETTINGS,
    WIDTH,
    change,
    dense,
    modules,
    pooling,
)

TEXTS = ['a bad cab.', 'deaf bees', 'x', '']
BERT = 'sentence_bert_config.json'
# As version 6.2 saves them.
NEW = {
    'Transformer': 'sentence_transformers.base.modules.transformer.Transformer',
    'Pooling': 'sentence_transformers.sentence_transformer.modules.pooling'
    '.Pooling',
    'Dense': 'sentence_transformers.base.modules.dense.Dense',
    'Normalize': 'sentence_transformers.base.modules.normalize.Normalize',
}
CROSS_ENCODER = {
    'model_type': 'CrossEncoder', 'prompts': {}, 'default_prompt_name': None,
    'activation_fn': 'torch.nn.modules.linear.Identity',
}  # fmt: skip
ASKING = {'default_prompt_name': 'query', 'similarity_fn_name': 'dot'}
CLASSES = {
    'transformer_task': 'sequence-classification',
    'modality_config': {
        'text': {'method': 'forward', 'method_output_name': 'logits'}
    },
    'module_output_name': 'scores',
}


# Ids of what is refused, and the words of it.
UNKNOWN, ORDER = 'public_unknown_module', 'unknown_module_order'
VALUE, TOKENS = 'value_not_convertible', 'token_embeddings'
MASK, POOLED = 'MultiVectorMask', 'HierarchicalTokenPooling'
FILE = 'config.json'
AS_VECTORS = 'not with Transformer and Pooling'
# Of a folder of each kind, what one of its files says, and the refusal.
REFUSED = (
    ('vectors', SETTINGS, {'model_type': 'Other'}, 'public_unknown_task',
     "'Other'"),
    ('vectors', SETTINGS, {'model_type': 'SparseEncoder'}, ORDER,
     'Transformer and SpladePooling as a SparseEncoder'),
    ('vectors', SETTINGS, CROSS_ENCODER, 'module_behind',
     'Normalize behind Dense'),
    ('vectors', SETTINGS, {'default_prompt_name': 'x'},
     'unknown_default_prompt', "'x'"),
    ('vectors', SETTINGS, {'truncate_dim': 4, 'similarity_fn_name': 'dot'},
     'truncated_dot', 4),
    ('vectors', BERT, CLASSES, VALUE, "task 'sequence-", "only 'feature-extr"),
    ('vectors', BERT, {'query_length': 8}, VALUE, 'query_length 8; only None'),
    ('vectors', BERT, {'processing_kwargs': {'text': {}}}, VALUE,
     'processing_kw'),
    ('vectors', BERT, {'modality_config': {'image': {}}}, VALUE, 'method None'),
    ('vectors', BERT, {'modality_config': {
        'text': {'method_output_name': 'pooler_output'}
    }}, VALUE, "output_name 'pooler_output'; only 'last_hidden_state'"),
    ('vectors', f'1_Pooling/{FILE}', {
        'pooling_mode': None, 'pooling_mode_mean_tokens': True,
        'pooling_mode_cls_token': True,
    }, 'unknown_public_pooling', 'mean', 'cls'),
    ('vectors', f'2_Dense/{FILE}', {'use_residual': True}, VALUE,
     'use_residual True'),
    ('vectors', f'2_Dense/{FILE}', {'module_input_name': TOKENS}, VALUE,
     f"module_input_name '{TOKENS}'; only 'sentence_embedding'"),
    ('vectors', f'3_Normalize/{FILE}', {'module_output_name': TOKENS}, VALUE,
     '3_Normalize/config.json has module_output_name'),
    ('tokens', f'2_{MASK}/{FILE}', {'skiplist_tasks': ['query']}, VALUE,
     "['query']"),
    ('tokens', f'2_{MASK}/{FILE}', {'keep_only_token_ids': [3]}, VALUE,
     'keep_only'),
    ('tokens', f'1_Dense/{FILE}', {'use_residual': True}, VALUE,
     'use_residual True'),
    ('tokens', f'3_Normalize/{FILE}', {'module_input_name': 'x'}, VALUE,
     "name 'x'"),
    ('tokens', f'4_{POOLED}/{FILE}', {'pool_factor': 2}, VALUE,
     'pool_factor 2'),
    ('tokens', BERT, {'query_expansion': {'strategy': 'min'}}, VALUE, "'min'"),
    ('tokens', BERT, {'query_expansion': {'token': 'x'}}, VALUE, "token 'x'"),
    ('tokens', SETTINGS, {'similarity_fn_name': 'dot'},
     'public_unknown_similarity', 'by dot', 'maxsim, meanmaxsim'),
    ('long_tokens', SETTINGS, {}, 'token_vectors_of_any_length',
     'no Normalize'),
    ('stanford', 'artifact.metadata', {'interaction': 'flipr'}, VALUE,
     "'flipr'"),
    ('weights', f'1_SpladePooling/{FILE}', {'pooling_strategy': 'sum'}, VALUE,
     "pooling_strategy 'sum'"),
    ('weights', SETTINGS, {'similarity_fn_name': 'cosine'},
     'public_unknown_similarity', 'by cosine', 'known are dot'),
    ('weights', BERT, {'query_expansion': {}}, VALUE, 'query_expansion {}'),
    ('weights', BERT, {'max_seq_length': 9}, 'no_vocabulary_head', 'source'),
    ('pairs', f'2_Dense/{FILE}', {}, 'scores_of_other_layers', '7 tanh;'),
    ('pairs', f'2_Dense/{FILE}', {'module_output_name': 'x'}, VALUE, "'x'"),
    ('mean_pairs', f'2_Dense/{FILE}', {
        'activation_function': 'torch.nn.Identity',
    }, 'scores_of_another_state', 'pooling mean'),
    ('encoder', SETTINGS, CROSS_ENCODER, 'no_class_head'),
    ('encoder', SETTINGS, CROSS_ENCODER | {
        'prompts': {'a': 'b '}, 'default_prompt_name': 'a',
    }, 'prompt_before_classes', "'a'"),
)  # fmt: skip


class ModulesTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enterContext(eagerly())
        self.root = pathlib.Path(self.create_tempdir().full_path)
        self.source = folders.write(self.root / 'source', 'bert')

    def sentence(self, *kinds, settings=None, types=None, **values):
        """Writes an encoder, its pooling, by `values`, and more modules."""
        modules(
            self.source, 'Transformer', 'Pooling', *kinds,
            settings=settings, types=types,
        )  # fmt: skip
        pooling(self.source, **values or {'pooling_mode': 'mean'})

    def converted(self, **more):
        convert.convert(self.source, self.root / 'workdir', **more)
        return infoword_tf.load(self.root / 'workdir')

    def out_and_in(self):
        """A folder of the workdir, and what is loaded of that."""
        output, again = self.root / 'output', self.root / 'again'
        convert.write(self.root / 'workdir', output, 'sentence_transformers')
        convert.convert(output, again)
        return output, infoword_tf.load(again)

    @parameterized.parameters(
        ({'pooling_mode': 'lasttoken'}, 'last'),
        ({'pooling_mode': ['max']}, 'max'),
        ({'pooling_mode': 'cls', 'pooling_mode_mean_tokens': True}, 'cls'),
        ({'pooling_mode_cls_token': False}, 'mean'),  # its default
        # Older files have a key for each.
        ({'pooling_mode_cls_token': True}, 'cls'),
        ({'pooling_mode_mean_tokens': True}, 'mean'),
        ({'pooling_mode_max_tokens': True}, 'max'),
        ({'pooling_mode_lasttoken': True}, 'last'),
        ({'pooling_mode_weightedmean_tokens': True}, 'by_position'),
    )
    def test_poolings(self, values, outcome):
        self.sentence(types=NEW, **values)
        _, vectors = sentence_transformers.read(self.source)
        self.assertEqual(vectors.pooling, outcome)

    def test_heads_of_bge_m3(self):
        self.sentence()
        for name, n in ('colbert', 3), ('sparse', 1):
            path = self.source / f'{name}_linear.pt'
            weight = np.arange(n * 2, dtype=np.float32).reshape(n, 2)
            bias = np.full(n, n, np.float32)
            folders.write_pickled(path, {'weight': weight, 'bias': bias})
        _, vectors = sentence_transformers.read(self.source)
        late, lexical = vectors.critics['late'], vectors.critics['lexical']
        self.assertEqual(late.dense, (DenseConfig(3, 'identity'),))
        self.assertEqual((late.first, late.mean), (False, True))
        self.assertEqual(lexical.activation, 'relu')
        self.assertEqual(vectors.critic, 'cosine')
        same(vectors.tensors['late/late_0/kernel'], [[0, 2, 4], [1, 3, 5]])
        same(vectors.tensors['late/late_0/bias'], [3, 3, 3])
        same(vectors.tensors['lexical/kernel'], [[0], [1]])
        same(vectors.tensors['lexical/bias'], [1])

    def test_prompts_stand_before_texts(self):
        prompts = {'query': 'ask: ', 'document': ''}
        self.sentence(
            settings={**ASKING, 'prompts': prompts},
            pooling_mode_mean_tokens=True,
        )
        loaded = self.converted()
        self.assertEqual(loaded.config.prompts, prompts)
        self.assertEqual(loaded.config.similarity, 'dot')
        bare = loaded.encode(['ask: a cab'], progress=False, prompt='')
        for prompt in (None, 'query'):
            same(loaded.encode(['a cab'], progress=False, prompt=prompt), bare)
        same(loaded.encode([b'a cab'], progress=False), bare)
        plain = loaded.encode(['a cab'], progress=False, prompt='document')
        self.assertGreater(abs(plain - bare).max(), 0.1)
        passage = models.encoder_of(loaded)(['a cab'], 'passage')
        same(passage, plain)
        with self.assertRaisesRegex(ValueError, 'has query, document'):
            loaded.encode(['a cab'], progress=False, prompt='passage')

    @parameterized.parameters(
        ({'query': '', 'document': 'd '}, 'document', '', 'd '),
        ({'document': 'd '}, 'document', '', 'd '),
        ({'query': 'q ', 'passage': 'p ', 'document': 'd '}, None, 'q ', 'd '),
        ({'other': 'o '}, 'other', '', ''),
        ({}, 'query', '', ''),
        ({'query': '', 'document': ''}, None, '', ''),
        ({'query': None, 'corpus': 'c '}, None, '', 'c '),
    )
    def test_roles_have_the_prompts_of_version_6_2(
        self, prompts, default, query, document
    ):
        """Puts before texts what its encode_query and encode_document put."""
        self.sentence(
            settings={'prompts': prompts, 'default_prompt_name': default}
        )
        _, vectors = sentence_transformers.read(self.source)
        config = Config(
            EncoderConfig('lookup', {}), {}, 8,
            prompts=vectors.prompts, prompt=vectors.prompt,
        )  # fmt: skip
        texts = [config.prompt_text(config.prompt_for(x)) for x in ROLES]
        self.assertEqual(texts, [query, document])
        self.assertEqual(config.prompt_text(), prompts.get(default, ''))
        for name in prompts:  # empty ones, too
            self.assertEqual(config.prompt_text(name), prompts[name] or '')

    def test_prompts_can_be_given(self):
        loaded = self.converted(prompts={'passage': 'it says '})
        expected = loaded.encode(['it says a'], progress=False)
        same(loaded.encode(['a'], progress=False, prompt='passage'), expected)

    def test_the_command(self):
        for flags in {}, {'source': 'x', 'init': 'y'}:
            with refused('source_or_init'):
                convert.run(**flags)
        workdir, output = (str(self.root / x) for x in ('workdir', 'output'))
        flags = {'source': str(self.source), 'workdir': workdir}
        for prompts in '{', '["query"]', '{"query": 1}':
            with refused('bad_prompts', prompts):
                convert.run(prompts=prompts, **flags)
        convert.run(prompts='{"query": "ask "}', pooling='max', **flags)
        convert.run(
            init=workdir, output=output, format='sentence_transformers'
        )
        settings, vectors = sentence_transformers.read(self.root / 'output')
        self.assertEqual(vectors.prompts, {'query': 'ask '})
        self.assertEqual(vectors.pooling, 'max')
        with refused('other_pooling', '--pooling=mean', 'says max'):
            convert.convert(self.root / 'output', self.root / 'no', 'mean')

    @parameterized.parameters(
        (BERT, {}, 7),
        (BERT, {'max_seq_length': None}, 7),
        (BERT, {'max_seq_length': 9}, 9),
        ('sentence_xlm-roberta_config.json', {'max_seq_length': 9}, 9),
        (BERT, {'max_seq_length': 40}, 20),  # there are no more positions
        (BERT, {'max_seq_length': 5,
                'tokenizer_args': {'model_max_length': 9}}, 9),
    )  # fmt: skip
    def test_max_seq_length_decides_over_the_tokenizer(
        self, name, values, outcome
    ):
        self.sentence()
        change(self.source / 'tokenizer_config.json', model_max_length=7)
        files.write_json(self.source / name, values)
        self.assertEqual(self.converted().max_length, outcome)

    def test_a_cross_encoder_comes_in_and_goes_out(self):
        """It scores as transformers does."""
        self.source = folders.write(self.root / 'classes', 'bert_classes')
        modules(self.source, 'Transformer', settings=CROSS_ENCODER, types=NEW)
        change(self.source / BERT, **CLASSES, max_seq_length=19)
        loaded = self.converted()
        self.assertEqual(loaded.classify(TEXTS, TEXTS).shape, (4, 3))
        self.assertEqual(loaded.max_length, 19)
        output, again = self.out_and_in()
        read = {x.name: json.loads(x.read_text())
                for x in output.glob('*.json')}  # fmt: skip
        (module,) = read['modules.json']
        kind = 'sentence_transformers.models.Transformer'
        self.assertEqual(module['type'], kind)
        bare = {'activation_fn': 'torch.nn.Identity'}
        self.assertEqual(read[SETTINGS], CROSS_ENCODER | bare)
        self.assertEqual(read[BERT], {
            'max_seq_length': 19, 'do_lower_case': False,
            'transformer_task': 'sequence-classification',
        })  # fmt: skip
        inputs = huggingface.inputs('bert')
        outcome = folders.answers('bert_classes')['logits']
        lengths = inputs['attention_mask'].sum(axis=1)
        for model in loaded, again:
            scores = model.classes.class_scores(
                tf.constant(inputs['input_ids'], tf.int32),
                tf.constant(lengths, tf.int32), tf.constant([4, 4]),
            )  # fmt: skip
            near(scores, outcome, atol=1e-5)

    def test_one_class_is_scored_by_the_logistic_function(self):
        self.source = folders.write(self.root / 'one', 'bert_one_class')
        loaded, output = self.converted(), self.root / 'output'
        for name, pairs in ('pairs', True), ('one', False), ('both_ways', True):
            if name == 'both_ways':
                loaded.model.objectives['label'].texts = name
            task = TaskConfig('', 'label', pairs, (), {}, {})
            config = loaded.config.replace(task=task)
            (output / name).mkdir(parents=True)
            model = loaded.with_config(config)
            sentence_transformers.write(output / name, model)
        settings = files.read_json(output / 'pairs' / SETTINGS)
        self.assertEqual(settings['activation_fn'], 'torch.nn.Sigmoid')
        # No CrossEncoder reads one text, or a pair in both orders.
        self.assertTrue((output / 'one' / '1_Pooling').is_dir())
        self.assertTrue((output / 'both_ways' / '1_Pooling').is_dir())

    @parameterized.parameters(False, True)
    def test_vectors_are_cut(self, normalize):
        """To their first numbers; on the way out and in again, too."""
        kinds = ['Normalize'] * normalize
        self.sentence(*kinds, settings={'truncate_dim': 5})
        loaded = self.converted()
        outcome = loaded.encode(TEXTS, progress=False, pooling='mean')[:, :5]
        if normalize:
            outcome /= np.linalg.norm(outcome, axis=1, keepdims=True)
        output, again = self.out_and_in()
        settings = files.read_json(output / SETTINGS)
        self.assertEqual(settings.get('truncate_dim'), None if normalize else 5)
        for model in loaded, again:
            near(model.encode(TEXTS, progress=False), outcome, atol=1e-6)

    def test_lower_case_before_a_tokenizer_that_keeps_case(self):
        self.sentence()
        files.write_json(self.source / BERT, {'do_lower_case': True})
        self.assertTrue(self.converted().tokenizer.lower_case)
        change(self.source / 'tokenizer_config.json', do_lower_case=False)
        with refused('lower_cases_cased'):
            convert.convert(self.source, self.root / 'other')

    def test_out_again_and_in_again(self):
        self.sentence(
            'Dense', 'Dense', 'Normalize',
            settings={**ASKING, 'prompts': {'query': 'ask: '}},
            pooling_mode_max_tokens=True,
        )  # fmt: skip
        dense(self.source, 2, WIDTH)
        dense(self.source, 3, 5, bias=False)
        loaded = self.converted()
        output, again = self.out_and_in()
        self.assertEqual(again.config.similarity, 'dot')
        self.assertEqual(again.config.prompt, 'query')
        for prompt in ('', 'query'):
            same(
                again.encode(TEXTS, progress=False, prompt=prompt),
                loaded.encode(TEXTS, progress=False, prompt=prompt),
            )
        self.assertEqual(
            again.config.replace(run={}), loaded.config.replace(run={})
        )
        written = files.read_json(output / '3_Dense' / 'config.json')
        self.assertEqual(written['in_features'], WIDTH)
        self.assertFalse(written['bias'])

    @parameterized.parameters(
        (['Transformer', 'Pooling', 'LSTM'], UNKNOWN, 'LSTM'),
        (['Router', 'Pooling'], UNKNOWN, 'modules.Router', 'Transformer'),
        (['custom_st.Transformer', 'Pooling'], UNKNOWN, 'custom_st'),
        (['Transformer'], ORDER, 'with Transformer, not', AS_VECTORS),
        (['Pooling', 'Transformer'], ORDER, 'Pooling and Transformer'),
        (['Transformer', 'Pooling', 'Normalize', 'Dense'], 'module_behind',
         'Dense', 'Normalize'),
    )  # fmt: skip
    def test_unknown_modules_are_refused(self, kinds, id, *values):
        types = {
            'custom_st.Transformer': 'custom_st.Transformer',
            'Router': 'sentence_transformers.base.modules.Router',
        }
        modules(self.source, *kinds, types=types)
        if kinds[1:2] == ['Pooling']:
            pooling(self.source, pooling_mode_mean_tokens=True)
        with refused(id, *values):
            self.converted()
        self.assertFalse((self.root / 'workdir').exists())

    def written(self, kind):
        """Writes a folder whose model compares texts by these."""
        if kind == 'vectors':
            self.sentence('Dense', 'Normalize')
            dense(self.source, 2, 7)
        elif kind == 'weights':
            modules(self.source, 'MLMTransformer', 'SpladePooling', settings={})
            change(self.source / f'1_SpladePooling/{FILE}')
        elif kind == 'encoder':
            modules(self.source, 'Transformer')
        elif kind in ('pairs', 'mean_pairs'):
            modules(
                self.source, 'Transformer', 'Pooling', 'Dense',
                settings=CROSS_ENCODER,
            )  # fmt: skip
            wide, mode = (7, 'cls') if kind == 'pairs' else (1, 'mean')
            pooling(self.source, pooling_mode=mode)
            dense(self.source, 2, wide)
        else:
            kinds = ['Dense', MASK, 'Normalize', POOLED]
            if kind == 'long_tokens':
                kinds.remove('Normalize')
            settings = {'model_type': 'MultiVectorEncoder'}
            modules(self.source, 'Transformer', *kinds, settings=settings)
            dense(self.source, 1, 7)
            for number, module in enumerate(kinds, 1):
                path = self.source / f'{number}_{module}' / FILE
                change(path, module_input_name=TOKENS)
            if kind == 'stanford':
                change(self.source / FILE, architectures=['HF_ColBERT'])

    @parameterized.parameters(*REFUSED)
    def test_what_a_file_says_is_refused(
        self, kind, name, content, id, *values
    ):
        self.written(kind)
        change(self.source / name, **content)
        with refused(id, *values):
            self.converted()
        self.assertFalse((self.root / 'workdir').exists())
