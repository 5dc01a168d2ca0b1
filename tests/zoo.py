"""The one list that guarantees run over: every row and sum, tiny.

A test of something that is promised for every row loops over `CASES`, and one
of what rows learn over `LESSONS`. test_zoo.py fails when the table or the
encoders have one that is not here.

Text is random. With `kinds` above 1 each text is of one kind, and its tokens
say which: no other kind has them. T is with [CLS] and [SEP].
"""

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from infoword_tf import views
from infoword_tf.config import Config
from infoword_tf.data.batches import Batches
from infoword_tf.data.examples import Examples
from infoword_tf.data.pairs import NextPairSource, PairSource
from infoword_tf.data.sentences import SentenceSource
from infoword_tf.data.source import Source
from infoword_tf.data.store import SENTENCE_START, SEPARATOR, WORD_START, Store
from infoword_tf.data.text_pairs import TextPairs, TextPairSource
from infoword_tf.data.translations import (
    ParallelText,
    TokenPairs,
    TranslationSource,
)
from infoword_tf.data.words import WordSource
from infoword_tf.model import Model
from infoword_tf.objectives import TABLE, Statistics, flag_of, parse
from infoword_tf.objectives.span import BINS
from infoword_tf.resolve import ModelChoices, Resolved, resolve
from infoword_tf.training import loop, optim
from infoword_tf.training.state import State
from infoword_tf.views.cloze import Documents
from infoword_tf.views.examples import Labelled
from infoword_tf.views.masked import Pairs, Windows
from infoword_tf.views.pair_candidates import Joining
from infoword_tf.views.streams import Streams
from infoword_tf.views.translations import Translations
from infoword_tf.views.words import Words

# T is long enough for two n-grams in many sequences.
V, T, POSITIONS = 60, 48, 64
UNK, CLS, SEP, MASK, FIRST = 1, 2, 3, 4, 5
TRAINER_SEED = 3  # of dropout
SPECIALS = views.Specials(CLS, SEP, MASK, V, unk_id=UNK)

_EVERY = {'vocab_size': V, 'width': 16, 'max_length': POSITIONS}
ENCODERS: dict[str, dict[str, Any]] = {
    'transformer': {**_EVERY, 'heads': 2},
    'lookup': _EVERY,
    'rnn': _EVERY,
    'elmo': {**_EVERY, 'inner_width': 24, 'filters': [3, 4, 5]},
    'relative': {**_EVERY, 'heads': 2},
    'modern': {**_EVERY, 'heads': 2, 'global_every': 2, 'local_window': 16},
    'disentangled': {
        **_EVERY, 'heads': 2, 'buckets': 16, 'max_distance': 40,
    },
}
# Arguments of `modern` as Qwen3 has them, Gemma 3 (embedders), nomic-bert.
QWEN = {
    'norm': 'rms', 'embedding_norm': False, 'activation': 'silu',
    'kv_heads': 1, 'head_width': 12, 'qk_norm': True, 'global_every': 1,
}  # fmt: skip
GEMMA = {
    **QWEN, 'activation': 'gelu_tanh', 'norms': 'both', 'global_every': 3,
    'global_first': 2, 'scale_embeddings': True, 'query_scalar': 7.0,
}  # fmt: skip
NOMIC = {
    'norms': 'after', 'biases': 'norms', 'activation': 'silu',
    'global_every': 1,
}  # fmt: skip
# Flags of the cases of an encoder: a band of 16 tokens, a third of T, in every
# second layer.
FLAGS: dict[str, dict[str, Any]] = {
    'relative': {'memory_length': 0},
    'modern': {'global_every': 2, 'local_window': 16},
}


# Guarantees that are tested of some cases, because they take long. Every row
# has a case with MICROBATCH, one with REPLICAS or MORE_REPLICAS, and one with
# JAX or among the sums of test_jax.py; so have settings that may break it.
MICROBATCH = 'microbatch'  # training/test_parts.py
REPLICAS = 'replicas'  # training/test_distribution.py, and every_row.py
MORE_REPLICAS = 'more replicas'  # the program every_row.py alone
GRAPH = 'graph'  # on replicas in a graph, with compiled fused operations
JAX = 'jax'  # test_jax.py, besides its sums
# Left out of objectives/test_precision.py: a layer of the row itself computes
# in the model's precision, or the scores are those of another case.
ROUNDED = 'rounded'


_RESOLVED: dict[str, Resolved] = {}


class Case(NamedTuple):
    """A way to run a row or a sum.

    Two layers where a second one is tested: once an encoder.

    Attributes:
        objectives: as `--objectives`.
        encoder: name in ENCODERS.
        masking: as `--masking`.
        settings: by flag, 'row.setting' or 'view.setting'.
        layers: of the encoder.
        checks: MICROBATCH to ROUNDED.
        arguments: of the encoder, besides ENCODERS.
    """

    objectives: str
    encoder: str = 'transformer'
    masking: str | None = None
    settings: dict[str, Any] = {}
    layers: int = 1
    checks: tuple[str, ...] = ()
    arguments: dict[str, Any] = {}

    def also(self, *checks: str) -> 'Case':
        """Returns the case with checks."""
        return self._replace(checks=checks)

    @property
    def rows(self) -> dict[str, float]:
        """Weight of each row."""
        return parse(self.objectives)

    @property
    def resolved(self) -> Resolved:
        """A `Resolved`, as the trainer decides; made once a process."""
        key = f'{T} {self}'  # T is another one in test_jax.py
        if key not in _RESOLVED:
            _RESOLVED[key] = self._resolve()
        return _RESOLVED[key]

    def _resolve(self) -> Resolved:
        names = {field.name for field in dataclasses.fields(ModelChoices)}
        flags = {k: v for k, v in self.arguments.items() if k in names}
        return resolve(
            ModelChoices(
                objectives=self.objectives,
                settings=self.settings,
                masking=self.masking,
                encoder=self.encoder,
                positions=POSITIONS,
                seq_len=T,
                batch_size=8,
                **(FLAGS.get(self.encoder, {}) | flags),
            )
        )

    def settings_of(self, row: str) -> dict[str, Any]:
        """All settings of a row."""
        return self.resolved.rows[row].settings


def of(
    row: str,
    encoder: str = 'transformer',
    masking: str | None = None,
    layers: int = 1,
    **settings: Any,
) -> Case:
    """Makes a case of one row, from its settings and those of its views."""
    named = {flag_of(row, name): value for name, value in settings.items()}
    return Case(row, encoder, masking, named, layers)


_EXAMPLES = (
    'label:1,score:1,span:1,soft:1,soft_score:1,soft_span:1,patience:1,'
    'embed:1,embed_distance:1,tag:1,soft_tag:1'
)
JUDGED = {
    'sentences.pairs': 3, 'soft_margin.teacher': 'nowhere',
    'soft_order.teacher': 'nowhere',
}  # fmt: skip
# All rows of an encoder of BERT's blocks; of some the texts exclude others.
_DISENTANGLED = Case(
    'mlm:1,bert_nce:1,dim:1,nsp:1,ict:1,simcse:1,overlap:1,same_text:1,'
    + _EXAMPLES,
    'disentangled', masking='spans', layers=2,
)  # fmt: skip
_DISENTANGLED_PAIRS = Case('nsp_nce:1,mmlm:1,tlm:1,xlco:1', 'disentangled')
CASES: dict[str, Case] = {
    'skip_gram': Case('skip_gram', 'lookup').also(MICROBATCH, REPLICAS, GRAPH),
    'skip_gram_vocabulary': of(
        'skip_gram', 'lookup', loss='vocabulary', window=2
    ),
    'skip_gram_binary': of(
        'skip_gram', 'lookup', loss='binary', ratio=3, negatives=8
    ).also(MORE_REPLICAS),
    'cbow': Case('cbow', 'lookup').also(MORE_REPLICAS),
    'cbow_vocabulary': of('cbow', 'lookup', loss='vocabulary', window=2),
    'cbow_binary': of(
        'cbow', 'lookup', loss='binary', ratio=3, negatives=8
    ).also(MICROBATCH),
    'mlm': Case('mlm'),
    'mlm_transform': of('mlm', masking='words', transform=True).also(
        MICROBATCH, ROUNDED
    ),
    'mlm_modern': of('mlm', 'modern', layers=3, transform=True).also(ROUNDED),
    'bert_nce': Case('bert_nce', masking='spans'),
    'bert_nce_drop_hits': of('bert_nce', masking='spans', drop_hits=True).also(
        MORE_REPLICAS
    ),
    'bert_nce_modern': Case('bert_nce', 'modern', masking='spans'),
    'dim': Case('dim', masking='spans'),
    'dim_modern': Case('dim', 'modern', masking='spans'),
    'dim_scaled': of('dim', masking='spans', critic='scaled'),
    'dim_cosine': of('dim', masking='spans', critic='cosine').also(
        MORE_REPLICAS
    ),
    'dim_queue': of('dim', masking='spans', queue=200, momentum=0.9).also(
        MICROBATCH
    ),
    'dim_one_mask': of('dim', masking='spans', one_mask=True),
    'infoword': Case('infoword', masking='spans', layers=2),
    'infoword_one_mask': Case(
        'infoword', masking='spans', settings={'dim.one_mask': True}
    ),
    'overlap': Case('overlap', masking='words'),
    'overlap_modern': of('overlap', 'modern', transform=True).also(ROUNDED),
    'nsp': Case('nsp'),
    'nsp_nce': Case('nsp_nce', masking='words').also(MICROBATCH),
    'nsp_nce_modern': Case('nsp_nce', 'modern'),
    'same_text': Case('same_text', masking='words'),
    'same_text_modern': Case('same_text', 'modern'),
    'cuts': Case('overlap:1,same_text:1', 'modern').also(MICROBATCH, REPLICAS),
    'bert': Case('bert').also(REPLICAS),
    'bert_modern': Case('bert', 'modern'),
    'mlm_nsp_nce': Case('mlm:1,nsp_nce:0.5').also(REPLICAS),
    'infoword_nsp': Case('bert_nce:1,dim:0.8,nsp:1', masking='spans').also(
        MICROBATCH, REPLICAS, GRAPH
    ),
    'ict': Case('ict'),
    'ict_lookup': Case('ict', 'lookup').also(MORE_REPLICAS),
    'ict_modern': Case('ict', 'modern'),
    'ict_queue': of('ict', queue=20, momentum=0.9).also(MICROBATCH),
    'ict_words': of('ict', words=24).also(MICROBATCH),
    'ict_late': of(
        'ict', critic='late', token_width=8, skip_punctuation=False
    ).also(MICROBATCH, REPLICAS, JAX),
    'ict_late_modern': of('ict', 'modern', critic='late'),
    'ict_lexical': of(
        'ict', critic='lexical', terms='vocabulary', query_flops=0.3,
        passage_flops=0.2, flops_steps=2,
    ).also(MICROBATCH, REPLICAS, GRAPH),
    'ict_lexical_tokens': of(
        'ict', 'disentangled', critic='lexical', terms='tokens', top_k=5
    ).also(MICROBATCH, MORE_REPLICAS, JAX),
    'ict_simcse_late': Case(
        'ict:1,simcse:1', 'modern',
        settings={'ict.critic': 'late', 'simcse.critic': 'late'},
    ),
    'gpt': Case('gpt'),
    'gpt_pre_norm': of('gpt', pre_norm=True, sampled=20).also(
        MICROBATCH, MORE_REPLICAS, JAX
    ),
    'gpt_modern': Case('gpt', 'modern', layers=2),
    'transformer_xl': Case('transformer_xl', 'relative').also(
        MICROBATCH, MORE_REPLICAS
    ),
    'transformer_xl_published': of(
        'transformer_xl', 'relative', published=True, sampled=20
    ).also(JAX),
    'rnn_lm': Case('rnn_lm', 'rnn', layers=2).also(REPLICAS, GRAPH, JAX),
    'rnn_lm_gru': of('rnn_lm', 'rnn', cell='gru', tied=False, sampled=24).also(
        MICROBATCH, JAX
    ),
    'rnn_lm_plain': of('rnn_lm', 'rnn', cell='plain'),
    'elmo': Case('elmo', 'elmo', layers=2).also(REPLICAS, JAX),
    'elmo_sampled': of('elmo', 'elmo', sampled=24).also(MICROBATCH),
    'plm': Case('plm', 'relative', layers=2).also(
        MICROBATCH, MORE_REPLICAS, JAX
    ),
    'plm_strict': of('plm', 'relative', order='strict', k=4).also(ROUNDED),
    'label': Case('label'),
    'label_mix': of(
        'label', layers=2, mix=True, texts='both_ways', pooler='tanh'
    ).also(MICROBATCH, MORE_REPLICAS, JAX),
    'label_shared': Case(
        'label:1,score:1,span:1,embed:1', layers=2,
        arguments={
            'relative_buckets': 8, 'shared_layers': True, 'embedding_width': 8,
        },
    ).also(MICROBATCH, REPLICAS, JAX),
    'label_lookup': of('label', 'lookup', pooler='gelu'),
    'label_relative': of('label', 'relative', pooler='relu', texts='choices'),
    'label_elmo': of('label', 'elmo', mix=True, bilstm=True).also(JAX),
    'label_rnn': Case('label', 'rnn'),
    'label_modern': of('label', 'modern', mean=True, pooler='gelu_norm'),
    # Of one label, so that `statistics` are those of no and yes.
    'label_several': of('label', classes=1, multilabel=True).also(
        MICROBATCH, REPLICAS, JAX
    ),
    'score': Case('score').also(MORE_REPLICAS),
    'score_mix': of(
        'score', layers=2, mix=True, texts='both_ways', pooler='tanh'
    ),
    'score_lookup': of('score', 'lookup', pooler='gelu'),
    'score_modern': of('score', 'modern', mean=True, pooler='gelu_norm'),
    'score_relative': of('score', 'relative', pooler='relu'),
    'score_cosent': of('score', loss='cosent', scale=2.0).also(
        MICROBATCH, MORE_REPLICAS
    ),
    'score_elmo': Case('score', 'elmo').also(MICROBATCH),
    'score_rnn': of('score', 'rnn', bilstm=True, pooler='tanh'),
    'label_mlm': Case('label:1,mlm:0.1'),
    'label_gpt': Case(
        'label:1,gpt:0.5', settings={'gpt.reads': 'examples'}
    ).also(MICROBATCH),
    'span': Case('span'),
    'span_null': of('span', null=True, stride=16, question=9, longest=5).also(
        MICROBATCH
    ),
    'span_conditional': of('span', 'relative', end='conditional', null=True),
    'span_modern': Case('span', 'modern'),
    'span_pooled': of('span', 'modern', pooler='gelu_norm', biases=True),
    'tag_soft': Case('tag:0.5,soft_tag:0.5').also(MICROBATCH, MORE_REPLICAS),
    'tag_crf': of(
        'tag', 'modern', crf=True, pooler='gelu_norm', tokens='all', context=4
    ).also(MICROBATCH, MORE_REPLICAS, JAX),
    'tag_elmo': of(
        'tag', 'elmo', mix=True, embeddings=True, bilstm=True, pooler='tanh'
    ).also(MICROBATCH),
    'tag_lookup': of('tag', 'lookup', bilstm=True, crf=True, pooler='gelu'),
    'tag_relative': Case(
        'tag:1,soft_tag:1', 'relative', settings={'tag.pooler': 'relu'}
    ),
    'soft': Case('soft'),
    'soft_code': of('soft', temperature=2.0, reduction='code'),
    'soft_lookup': Case('soft', 'lookup'),
    'soft_relative': Case('soft', 'relative'),
    'soft_modern': Case('soft', 'modern'),
    'gpt_qwen': Case('gpt', 'modern', arguments=QWEN).also(JAX),
    'examples_gemma': Case(
        'label:1,score:1,span:1,soft:1,embed:1', 'modern', layers=2,
        arguments=GEMMA | {'global_every': 2, 'global_first': 1},
    ).also(MICROBATCH, MORE_REPLICAS),
    'simcse_nomic': Case('simcse', 'modern', arguments=NOMIC).also(
        MORE_REPLICAS
    ),
    'soft_tag_lookup': Case('soft_tag', 'lookup'),
    'soft_score': Case('soft_score').also(MORE_REPLICAS),
    'soft_score_lookup': Case('soft_score', 'lookup').also(MICROBATCH),
    'soft_score_relative': Case('soft_score', 'relative'),
    'soft_span': of('soft_span', temperature=2.0),
    'soft_span_relative': Case('soft_span', 'relative'),
    'soft_span_conditional': Case(
        'span:0.5,soft_span:0.5', 'relative',
        settings={'span.end': 'conditional', 'span.null': True},
    ).also(MICROBATCH, REPLICAS),
    'patience': Case('patience', layers=2),
    'patience_code': of('patience', layers=2, width=24, reduction='code'),
    'patience_relative': Case('patience', 'relative', layers=2),
    'patience_modern': Case('patience', 'modern', layers=2),
    'embed': Case('embed').also(MORE_REPLICAS),
    'embed_lookup': of('embed', 'lookup', temperature=0.1, width=24).also(
        MICROBATCH
    ),
    'embed_cls': of('embed', pooling='cls'),
    'embed_relative': of('embed', 'relative', pooling='last'),
    'embed_modern': Case('embed', 'modern'),
    'taught_modern': Case(
        'soft_score:1,soft_span:1,soft_tag:1,embed_distance:1', 'modern'
    ),
    'embed_distance': Case('embed_distance'),
    'embed_distance_lookup': of(
        'embed_distance', 'lookup', distance='mse', width=24
    ).also(MORE_REPLICAS),
    'embed_distance_relative': of(
        'embed_distance', 'relative', pooling='last'
    ).also(MICROBATCH),
    'embed_distance_cls': of('embed_distance', pooling='cls'),
    'pkd': Case('label:0.3,soft:0.7,patience:0.1', layers=2).also(
        MICROBATCH, REPLICAS
    ),
    'simcse': Case('simcse'),
    'simcse_modern': Case('simcse', 'modern'),
    'simcse_shared': Case(
        'simcse:1,ict:1,mlm:1', layers=2,
        settings={'simcse.cut_features': 0.25, 'mlm.transform': True},
        arguments={'shared_layers': True, 'embedding_width': 8},
    ),
    'simcse_lookup': of('simcse', 'lookup', pooling='mean', head='none'),
    'simcse_joint': of(
        'simcse', layers=2, pooling='last_two', directions='joint', queue=12,
        momentum=0.9, hardness=1.0, dims='8', repeat=0.3, shuffle=True,
    ).also(MICROBATCH, REPLICAS, GRAPH),
    'simcse_pairs': of(
        'simcse', pairs=3, head='kept', directions='both', pooling='first_last',
        queue=12,
    ).also(MICROBATCH, MORE_REPLICAS),
    'simcse_moco': of(
        'simcse', keys='positives', queue=12, momentum=0.9, repeat=0.3,
        dims='8',
    ).also(MICROBATCH, MORE_REPLICAS),
    'simcse_guide': of(
        'simcse', pairs=3, guide='nowhere', guide_margin=0.2, pooling='mean',
        directions='joint', temperature=0.2,
    ).also(MICROBATCH, MORE_REPLICAS),
    'simcse_late': of(
        'simcse', critic='late', pairs=3, token_width=8, dims='5', expand=True,
        query_length=18, directions='both',
    ).also(MICROBATCH, REPLICAS),
    'simcse_late_attend': of(
        'simcse', 'modern', critic='late', pairs=3, expand=True, attend=True,
        query_length=18, passage_length=16, skip_punctuation=False,
        guide='nowhere',
    ),
    'simcse_lexical': of(
        'simcse', critic='lexical', pairs=3, terms='vocabulary',
        query_flops=0.3, passage_flops=0.2, flops_steps=2, temperature=4.0,
    ).also(MICROBATCH, REPLICAS, GRAPH, JAX),
    'simcse_lexical_tokens': of(
        'simcse', critic='lexical', terms='tokens', top_k=5, directions='joint',
    ).also(MICROBATCH, MORE_REPLICAS, JAX),
    'simcse_cross': of('simcse', critic='cross', pairs=3, others=3).also(
        MICROBATCH, REPLICAS, JAX
    ),
    'margin_mse': Case(
        'margin_mse',
        settings={'soft_margin.teacher': 'nowhere', 'sentences.pairs': 3},
    ),
    'soft_order': Case(
        'simcse:0.5,soft_margin:0.5,soft_order:1',
        settings=JUDGED | {
            'simcse.critic': 'late', 'soft_order.temperature': 2.0,
            'sentences.expand': True, 'sentences.query_length': 18,
        },
    ).also(MICROBATCH, REPLICAS, JAX),
    'judged_modern': Case(
        'simcse:0,soft_margin:1,soft_order:1', 'modern', settings=JUDGED
    ),
    'judged_disentangled': Case(
        'simcse:0,soft_margin:1,soft_order:1', 'disentangled',
        settings=JUDGED | {
            'simcse.critic': 'lexical', 'simcse.query_flops': 0.5,
            'simcse.flops_steps': 0,
        },
    ).also(MICROBATCH),
    'esimcse': Case('esimcse', settings={'simcse.queue': 16}),
    'consert': Case('consert', settings={'simcse.cut_tokens': 0.3}).also(
        MICROBATCH
    ),
    'diffcse': of('diffcse', sampled=True).also(MICROBATCH, MORE_REPLICAS),
    'diffcse_published': Case('diffcse_published', layers=2),
    'diffcse_pairs': Case(
        'simcse:1,diffcse:1,infocse:1', layers=2,
        settings={
            'sentences.pairs': 3, 'sentences.once': True,
            'diffcse.projected': False, 'diffcse.legacy': True,
            'infocse.lower': 'trained', 'infocse.fresh': True,
        },
    ).also(JAX),
    'infocse': of(
        'infocse', layers=3, lower='detached', layer=1, blocks=1, shuffle=True,
        keys='positives', output='layer',
    ).also(ROUNDED),
    'infocse_paper': Case('infocse_paper', layers=2).also(
        MICROBATCH, MORE_REPLICAS
    ),
    'infocse_code': Case(
        'infocse_code', layers=2,
        settings={'sentences.repeat': 0.3},
    ),
    'infocse_stage1': Case('infocse_stage1', layers=2),
    'diffcse_shuffled': Case(
        'simcse:1,diffcse:1',
        settings={
            'sentences.shuffle': True, 'sentences.keys': 'positives',
            'simcse.momentum': 0.9,
        },
    ),
    'conditioned_modern': Case(
        'simcse:1,diffcse:1,infocse:1', 'modern', layers=2
    ),
    'infoword_ict': Case('bert_nce:1,dim:0.8,ict:1', masking='spans'),
    'mmlm': Case('mmlm'),
    'tlm': Case('tlm'),
    'tlm_restart': of(
        'tlm', masking='words', restart=True, transform=True
    ).also(ROUNDED),
    'xlco': Case('xlco'),
    'xlco_both': of(
        'xlco', negatives='both', queue=12, masked=False, project=True
    ).also(MORE_REPLICAS, JAX),
    'infoxlm': Case('infoxlm', settings={'mmlm.transform': True}).also(
        MICROBATCH
    ),
    'infoxlm_modern': Case('infoxlm', 'modern'),
    'mlm_disentangled': Case('mlm', 'disentangled', layers=2).also(
        MICROBATCH, REPLICAS, JAX
    ),
    'disentangled': _DISENTANGLED,
    'disentangled_pairs': _DISENTANGLED_PAIRS,
    'infoxlm_code': Case(
        'infoxlm_code', layers=2,
        settings={
            'xlco.layer': 1, 'xlco.queue': 12, 'xlco.momentum': 0.9,
            'xlco.temperature': 4.0,
        },
    ).also(MICROBATCH, REPLICAS, JAX),
}  # fmt: skip

# Every row over every encoder that it allows: a sum learns in one graph.
KINDS = 4
LESSONS: dict[str, Case] = {
    'nsp_nce': Case('nsp_nce'),
    'lookup': Case(
        'skip_gram:1,cbow:1,ict:1,label:1,score:1,soft:1,soft_score:1,'
        'embed:1,embed_distance:1,tag:1,soft_tag:1', 'lookup',
    ),
    'masked': Case(
        'mlm:1,bert_nce:1,dim:1,nsp:1,ict:1,overlap:1,same_text:1',
        masking='spans',
    ),
    'transformer': Case(_EXAMPLES, layers=2),
    'relative': Case(_EXAMPLES, 'relative', layers=2),
    'modern': Case(
        'mlm:1,bert_nce:1,dim:1,nsp:1,ict:1,simcse:1,overlap:1,same_text:1,'
        + _EXAMPLES,
        'modern', masking='spans', layers=2,
    ),
    'modern_nsp_nce': Case('nsp_nce', 'modern'),
    'modern_gpt': Case('gpt', 'modern'),
    'modern_conditioned': Case(
        'simcse:1,diffcse:1,infocse:1', 'modern', layers=2
    ),
    'modern_languages': Case('mmlm:1,tlm:1,xlco:1', 'modern'),
    'disentangled': _DISENTANGLED,
    'disentangled_pairs': _DISENTANGLED_PAIRS,
    'rnn': Case('label:1,score:1', 'rnn'),
    'elmo': Case('label:1,score:1,tag:1', 'elmo'),
    'gpt': Case('gpt'),
    'transformer_xl': Case('transformer_xl', 'relative'),
    'plm': Case('plm', 'relative'),
    'sentences': of('simcse', repeat=0.32, queue=16),
    'sentences_lookup': of('simcse', 'lookup', pooling='mean', repeat=0.32),
    'conditioned': Case('simcse:1,diffcse:1,infocse:1', layers=2),
    'ict_late': of('ict', 'modern', critic='late'),
    'ict_lexical': of('ict', critic='lexical', terms='vocabulary'),
    'late': of('simcse', critic='late', pairs=3, temperature=0.5),
    'lexical': of('simcse', critic='lexical', pairs=3),
    'cross': of('simcse', critic='cross', pairs=3),
    **{
        f'judged_{encoder}': Case(
            'simcse:1,soft_margin:1,soft_order:1', encoder, settings=JUDGED
        )
        for encoder in ('transformer', 'modern', 'disentangled')
    },
    'rnn_lm': Case('rnn_lm', 'rnn'),
    'neighbours': Case('elmo', 'elmo'),
    'languages': Case('mmlm:1,tlm:1,xlco:1'),
}  # fmt: skip


def defaults_of(row: str) -> dict[str, Any]:
    """Returns the settings of a row, all of them as they are by default."""
    return {name: x.default for name, x in TABLE[row].settings.items()}


def encoders_of(row: str) -> list[str]:
    """Names the encoders that a row allows with its settings, first to last."""
    return list(
        dict.fromkeys(
            encoder
            for case in CASES.values()
            if row in case.rows
            for encoder in TABLE[row].encoders(case.settings_of(row))
        )
    )


def config(name: str, rate: float = 0.1, precision: str = 'float32') -> Config:
    """Returns the config.json of a case, with a tiny encoder."""
    return config_of(CASES[name], rate, precision)


def config_of(
    case: Case, rate: float = 0.1, precision: str = 'float32'
) -> Config:
    """Returns the config.json of a case without a name."""
    actual = case.resolved.config(V, precision=precision)
    arguments = {**ENCODERS[case.encoder], **case.arguments, 'rate': rate}
    if case.encoder != 'lookup':
        arguments['layers'] = case.layers
    for row in case.rows:
        settings = actual.rows[row].settings
        arguments.update(TABLE[row].encoders(settings)[case.encoder])
    encoder = dataclasses.replace(actual.encoder, arguments=arguments)
    return actual.replace(encoder=encoder)


def make_model(
    name: str, rate: float = 0.1, precision: str = 'float32', seed: int = 0
) -> Model:
    """Builds the model of a case, all weights drawn, norms and biases too."""
    return model_of(CASES[name], rate, precision, seed)


def model_of(
    case: Case, rate: float = 0.1, precision: str = 'float32', seed: int = 0
) -> Model:
    """Builds the model of a case without a name.

    Weights are larger than a fresh model's, so that softmax and GELU leave the
    range in which they are all but linear.
    """
    model = Model(config_of(case, rate, precision), SPECIALS)
    random = np.random.default_rng(seed)
    for path, variable in model.variables.items():
        drawn = 0.3 * random.standard_normal(variable.shape)
        variable.assign(drawn + path.endswith('gamma'))
    return model


@functools.cache
def strategy(replicas: int) -> tf.distribute.Strategy:
    """Creates a strategy: one device, or two replicas on two logical CPUs.

    One for the whole process: each strategy numbers its collectives from the
    same number on, and TensorFlow holds a number to the shape that it first
    had, so a second one may find that its sums "mismatch".
    """
    if replicas == 1:
        return tf.distribute.OneDeviceStrategy('/cpu:0')
    return tf.distribute.MirroredStrategy(['/cpu:0', '/cpu:1'])


def frequencies() -> np.ndarray:
    """Returns p(b) of `make_windows`, [V] float64: few tokens are frequent."""
    p = np.zeros(V)
    p[UNK] = 1.0
    p[FIRST:] = 4.0 / np.arange(1, V - FIRST + 1)
    return p / p.sum()


def drawn(
    random: np.random.Generator, shape: Any, kind: Any = 0, kinds: int = 1
) -> np.ndarray:
    """Draws random tokens, int32, of texts of a kind, one of `kinds`."""
    ids = random.choice(V, size=shape, p=frequencies()).astype(np.int32)
    return of_kind(ids, kind, kinds)


def of_kind(ids: np.ndarray, kind: Any, kinds: int) -> np.ndarray:
    """Maps tokens to those of a kind, as many as of any other kind."""
    if kinds == 1:
        return ids
    number = np.maximum(ids - FIRST, 0) % ((V - FIRST) // kinds)
    return (FIRST + kinds * number + kind).astype(np.int32)


def statistics(kinds: int = 1) -> Statistics:
    """Returns the counts of a text with `frequencies`."""
    counts = np.zeros(V)
    for kind in range(kinds):
        tokens = of_kind(np.arange(V), kind, kinds)
        np.add.at(counts, tokens, 10_000 * frequencies() / kinds)
    classes = np.array([3.0, 5.0] if kinds == 1 else [4.0, 4.0])
    answers = np.arange(2.0 * (BINS + 1)) ** (kinds == 1)
    by_row = {
        'label': Statistics(classes, classes),
        'soft': Statistics(classes, classes),
        'span': Statistics(answers, answers),
        'tag': Statistics(classes, classes),
    }
    return Statistics(counts, counts, by_row=by_row)


def make_windows(batch: int = 8, seed: int = 0, kinds: int = 1) -> Windows:
    """Draws text [B, T - 2]; a document ends in the first sequence."""
    random = np.random.default_rng(seed)
    shape = (batch, T - 2)
    ids = drawn(random, shape, np.arange(batch)[:, None] % kinds, kinds)
    word_starts = random.random(shape) < 0.7
    word_starts[:, 0] = True
    separators = np.zeros(shape, bool)
    separators[0, 5] = True
    word_starts[0, 5:7] = True
    return Windows(
        np.where(separators, np.int32(SEP), ids), word_starts, separators
    )


def make_documents(batch: int = 8, seed: int = 0, kinds: int = 1) -> Documents:
    """Draws documents of two to five sentences, some of them truncated.

    Passages share sequences, whose number two replicas do not divide.
    """
    random = np.random.default_rng(seed)
    shape = (batch, T - 2)
    ids = drawn(random, shape, np.arange(batch)[:, None] % kinds, kinds)
    lengths = random.integers(12, T - 1, batch).astype(np.int32)
    starts = np.zeros(shape, bool)
    starts[:, [0, 5]] = True
    starts[:, 10:] = random.random((batch, T - 12)) < 0.1
    starts &= np.arange(T - 2) < lengths[:, None]
    return Documents(ids, lengths, starts, -(-5 * batch // 8))


def make_store(
    seed: int = 0, documents: int = 60, longest: int = 25, kinds: int = 1
) -> Store:
    """Draws documents of one to six sentences, of 1 to 25 tokens each."""
    random = np.random.default_rng([seed, 1])
    ids, flags, begins = [], [], [0]
    for number in range(documents):
        for size in random.integers(1, longest + 1, random.integers(1, 7)):
            ids += drawn(random, size, number % kinds, kinds).tolist()
            begin = [WORD_START | SENTENCE_START]
            flags += begin + [
                WORD_START * int(x < 0.7) for x in random.random(size - 1)
            ]
        ids.append(SEP)
        flags.append(WORD_START | SEPARATOR)
        begins.append(len(ids))
    ids = np.array(ids, np.uint16)
    return Store(
        ids,
        np.array(flags, np.uint8),
        np.array(begins),
        np.bincount(ids, minlength=V),
        pathlib.Path('nowhere'),
        UNK,
    )


def make_pairs(
    batch: int = 8, seed: int = 0, packed: bool = False, kinds: int = 1
) -> Pairs:
    """Draws pairs of random documents, some of them not consecutive.

    With `packed` they are short enough to share sequences.
    """
    store = make_store(seed, longest=7 if packed else 25, kinds=kinds)
    return PairSource(store, T - 2, batch, seed, packed).batch(0)


def make_next_pairs(batch: int = 8, seed: int = 0, kinds: int = 1) -> Pairs:
    """Draws pairs of random documents, each with three negatives."""
    store = make_store(seed, kinds=kinds)
    return NextPairSource(store, T - 2, batch, seed).batch(0)


def make_examples(
    batch: int = 8,
    seed: int = 0,
    texts: int = 1,
    width: int = 16,
    kinds: int = 1,
    multilabel: bool = False,
) -> Labelled:
    """Draws examples of as many texts, for every row that reads examples.

    A teacher's states and vectors are `width` wide, states of one layer.
    Texts share sequences, whose number two replicas do not divide.
    """
    random = np.random.default_rng(seed)
    # With kinds a text has more tokens than the answer.
    sizes = random.integers(4 + (kinds > 1), T // 3 // texts, batch * texts)
    ids = random.choice(V, size=sizes.sum(), p=frequencies()).astype(np.int32)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    ids[begins[:-1]] = CLS
    # Answers in all of the first text but its first token and its last.
    context = sizes[::texts] - 2
    first = random.integers(0, context)
    last = random.integers(first, context)
    vectors = random.standard_normal((batch, width)).astype(np.float16)
    examples = Examples(
        ids,
        np.zeros(len(ids), np.int8),
        begins,
        np.zeros(batch * texts, np.int32),
        {
            'label': random.integers(0, 2, batch).astype(np.int32),
            'score': random.standard_normal(batch).astype(np.float32),
            'span': np.stack([first + 1, last + 1, 0 * last], axis=1),
            'soft': random.standard_normal((batch, 2)).astype(np.float32),
            'soft_score': random.standard_normal(batch).astype(np.float32),
            'patience': random.standard_normal(
                (batch, texts, 1, width)
            ).astype(np.float16),
            'embed': vectors,
            'embed_distance': vectors,
        },
        {'span': np.stack([np.ones_like(context), 1 + context], axis=1)},
        texts=texts,
        of_tokens={
            'soft_span': random.standard_normal((len(ids), 2)).astype(
                np.float16
            ),
            'soft_tag': random.standard_normal((len(ids), 2)).astype(
                np.float16
            ),
            # A third of the tokens begin no word.
            'tag': random.integers(-1, 2, len(ids)).astype(np.int32),
        },
    )
    if kinds > 1:
        examples = by_kind(examples, kinds)
    if multilabel:
        examples.targets['label'] = examples.targets['label'][:, None]
    order = np.arange(-(-batch // 3) * 3)
    slots = np.where(order < batch, order, -1).reshape(-1, 3)
    return examples.batch(np.arange(batch), slots, T)


def by_kind(examples: Examples, kinds: int) -> Examples:
    """Labels examples by their kind: classes, numbers, vectors.

    Of each two kinds one has the opposite of the other. An answer stands
    where two tokens do that are nowhere else. [CLS] stands at both ends, and
    the last one represents the text, so that causal encoders have read it.
    """
    kind = np.arange(examples.size) % kinds
    begins, sizes = examples.begins[:-1], examples.sizes
    ids = of_kind(examples.ids, np.repeat(kind, sizes), kinds)
    ids[begins] = ids[begins + sizes - 1] = CLS
    first = np.minimum(examples.targets['span'][:, 0], sizes - 4)
    marked = np.stack([begins + first, begins + first + 1])
    ids[marked] = [[V - 2], [V - 1]]
    places = np.zeros((len(ids), 2), np.float16)
    places[marked, [[0], [1]]] = 40.0
    signs = (2 * (kind % 2) - 1).astype(np.float32)
    # [CLS] and the marked tokens stand in texts of every kind.
    tells = ~np.isin(ids, (CLS, V - 2, V - 1))
    vectors = signs[:, None] * examples.targets['embed'][kind // 2]
    return examples._replace(
        ids=ids,
        places=(sizes - 1).astype(np.int32),
        targets={
            'label': (kind % 2).astype(np.int32),
            'score': signs,
            'span': np.stack([first, first + 1, sizes - 1], axis=1),
            'soft': signs[:, None] * np.float32([-3, 3]),
            'soft_score': signs,
            'patience': vectors[:, None, None].astype(np.float16),
            'embed': vectors,
            'embed_distance': vectors,
        },
        of_tokens={
            'soft_span': places,
            'soft_tag': np.float16([-3, 3])
            * np.repeat(signs, sizes)[:, None].astype(np.float16),
            'tag': np.where(tells, np.repeat(kind % 2, sizes), -1).astype(
                np.int32
            ),
        },
    )


def make_sentences(
    batch: int = 8,
    seed: int = 0,
    length: int = T,
    kinds: int = 1,
    **settings: Any,
) -> Labelled:
    """Draws sentences of random documents, some of them twice."""
    store = make_store(seed, 5 * batch, longest=T // 3, kinds=kinds)
    source = SentenceSource(
        store, length, batch, seed, **settings, stratified=True
    )
    return first_of(source)


def first_of(source: Source) -> Labelled:
    """Returns a source's first batch, T tokens wide or as wide as it is."""
    batch = source.batch(0)
    return batch._replace(width=max(T, batch.width))


def make_text_pairs(
    batch: int = 8,
    seed: int = 0,
    length: int = T,
    kinds: int = 1,
    once: bool = False,
    expand: int = 0,
) -> Labelled:
    """Draws triples of texts, the first two of a kind, the third of another.

    One in three has no negative. They have vectors of a guide too, and scores
    of a judge, which tells kinds. Here every a has one b, and is padded with
    [MASK] to `expand` tokens.
    """
    del length, once
    random = np.random.default_rng([seed, 2])
    texts = []
    for number in range(batch):
        kind = number % kinds
        for of in (kind, kind, (kind + 1) % kinds):
            ids = drawn(random, random.integers(2, T // 3 - 2), of, kinds)
            if len(texts) % 9 == 8:
                ids = ids[:0]
            texts.append([CLS, *ids, SEP])
    begins = np.cumsum([0, *map(len, texts)])
    ids = np.concatenate(texts).astype(np.int32)
    examples = Examples(
        ids,
        np.zeros(len(ids), np.int8),
        begins,
        np.zeros(len(texts), np.int32),
        {'simcse': random.standard_normal((batch, 3, 4)).astype(np.float16)},
        texts=3,
    )
    scores = random.standard_normal((batch, 3, 1)).astype(np.float32)
    if kinds > 1:
        scores = np.tile(np.float32([[0], [3], [-3]]), (batch, 1, 1))
    judged = dict.fromkeys(('soft_margin', 'soft_order'), scores)
    examples.targets.update(judged)
    if expand:
        examples = examples.expanded(expand, MASK)
    source = TextPairSource(
        TextPairs((examples,), ('zoo',), joining=Joining(T)),
        T, batch, seed, stratified=True,
    )  # fmt: skip
    return first_of(source)


def make_translations(
    batch: int = 8,
    seed: int = 0,
    length: int = T,
    kinds: int = 1,
    crossed: bool = False,
) -> Translations:
    """Draws pairs of texts, both of a kind; two pairs to each if crossed.

    Their lengths do not depend on the seed.
    """
    n = batch * (1 + crossed)
    sizes = np.random.default_rng(n).integers(2, (length - 3) // 2, 2 * n)
    kind = np.arange(n) // (1 + crossed) % kinds
    random = np.random.default_rng([seed, 3])
    ids = drawn(random, sizes.sum(), np.repeat(kind, 2).repeat(sizes), kinds)
    begins = np.concatenate([[0], np.cumsum(sizes)])
    word_starts = random.random(len(ids)) < 0.7
    word_starts[begins[:-1]] = True
    part = TokenPairs(ids, word_starts, begins, np.zeros(n, bool))
    source = TranslationSource(
        ParallelText({'aa-bb': part}), length, batch, seed, crossed
    )
    return source.batch(0)


def make_words(
    batch: int = 8,
    seed: int = 0,
    length: int = T,
    kinds: int = 1,
    **settings: Any,
) -> Words:
    """Draws the subsampled words of random documents, T to a sequence."""
    store = make_store(seed, documents=20 * batch, kinds=kinds)
    return WordSource(store, length, batch, seed, **settings).batch(0)


def make_streams(
    batch: int = 8,
    seed: int = 0,
    length: int = T,
    advance: int | None = None,
    both_directions: bool = False,
    kinds: int = 1,
) -> Streams:
    """Draws text [B, n] of streams."""
    del advance
    random = np.random.default_rng(seed)
    shape = (batch, length + 1)
    ids = drawn(random, shape, np.arange(batch)[:, None] % kinds, kinds)
    word_starts = random.random(shape) < 0.7
    separators = np.zeros(shape, bool)
    separators[0, 5] = True
    word_starts[0, 5:7] = True
    ids[separators] = SEP
    directions = np.ones(batch, np.int32)
    if both_directions:
        directions[1::2] = -1
    return Streams(
        ids[:, :-1],
        word_starts[:, :-1],
        separators[:, :-1],
        separators[:, :-1],
        directions,
        ids[:, -1],
    )


def dataset(batches: Sequence[dict[str, views.View]]) -> tf.data.Dataset:
    """Makes a dataset of batches of views, flat, one a step.

    Without the tuner, whose thread can delay the end of an iterator by a
    minute when it is collected.
    """
    flat = [views.flatten(batch) for batch in batches]
    actual = tf.data.Dataset.from_tensor_slices(
        {name: np.stack([b[name] for b in flat]) for name in flat[0]}
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    return actual.with_options(options)


class OneBatch(NamedTuple):
    """A source that has one batch."""

    text: Any

    def batch(self, step: int) -> Any:
        """Returns the same batch at every step."""
        return self.text


def views_of(
    resolved: Resolved, batch: int = 8, seed: int = 0, kinds: int = 1
) -> dict[str, views.View]:
    """Makes the views of a run, NumPy."""
    make = {
        'windows': make_windows,
        'documents': make_documents,
        'pairs': make_pairs,
        'next_pairs': make_next_pairs,
        'streams': make_streams,
        'words': make_words,
        'examples': make_examples,
        'sentences': make_sentences,
        'text_pairs': make_text_pairs,
        'translations': make_translations,
    }
    settings = [row.settings for row in resolved.rows.values()]
    several = any(x.get('texts', 'joined') != 'joined' for x in settings)
    wide = max(x.get('width', 0) for x in settings)
    multilabel = any(x.get('multilabel') for x in settings)
    expand = max(x.get('expand', 0) and x['query_length'] for x in settings)
    sources = {}
    for source_spec in resolved.plan.source_specs:
        how = dict(source_spec.arguments)
        if source_spec.source not in ('streams', 'words', 'sentences'):
            del how['length']
        if source_spec.reads == 'examples':
            how['texts'] = 1 + several
            how['width'] = wide or 16
            how['multilabel'] = multilabel
        if source_spec.source == 'text_pairs':
            how['expand'] = expand
        text = make[source_spec.source](batch, seed, kinds=kinds, **how)
        sources[source_spec] = OneBatch(text)
    return Batches(sources, resolved.plan, SPECIALS, seed).views(0)


def make_views(
    name: str, batch: int = 8, seed: int = 0
) -> dict[str, views.View]:
    """Makes the views of a case, each drawn once a process."""
    flat = _flat_views(name, batch, seed, T)
    return views.unflatten({key: x.copy() for key, x in flat.items()})


@functools.cache
def _flat_views(name, batch, seed, length):
    del length  # of every sequence: T, which is another one in test_jax.py
    return views.flatten(views_of(CASES[name].resolved, batch, seed))


def differentiated(
    model: Model,
    *arguments: Any,
    weights: Mapping[str, Any] | None = None,
    **more: Any,
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Computes a step: outcomes, new state, loss, and gradients by path.

    Args:
        model: of which it is a step.
        *arguments: of `Model.outcomes`.
        weights: by path, what has a gradient: dense, and 0 where nothing
            depends on one; None: the trained ones.
        **more: further arguments of `Model.outcomes`.
    """
    weights = model.trainable if weights is None else weights
    with tf.GradientTape() as tape:
        outcomes, new = model.outcomes(*arguments, **more)
        loss = model.loss(outcomes, more.get('replicas'))
    gradients = tape.gradient(
        loss, {path: x.value for path, x in weights.items()},
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )  # fmt: skip
    dense = {k: tf.convert_to_tensor(x) for k, x in gradients.items()}
    return outcomes, new, loss, dense


def make_trainer(
    name: str,
    replicas: int,
    steps: int,
    clip: float = 1.0,
    microbatch: int | None = None,
    rules: optim.Preset | None = None,
    rate: float = 1e-3,
) -> loop.Trainer:
    """Makes a trainer of a case over as many batches, without dropout."""
    rules = rules or optim.preset(clip_norm=clip)
    with strategy(replicas).scope():
        model = make_model(name, rate=0.0)
        model.assign_copies()
        optimizer = optim.AdamW(model.trainable, rules)
    return loop.Trainer(
        dataset([make_views(name, 8, seed=step) for step in range(steps)]),
        State(model, strategy(replicas), 8),
        optimizer,
        lambda step: tf.constant(rate),
        statistics(),
        seed=TRAINER_SEED,
        computation=loop.Computation(microbatch=microbatch),
    )
