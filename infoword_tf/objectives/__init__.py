"""The table: every row, and the sums that have a name.

`--objectives` is a name in SUMS or weighted rows, `bert_nce:1,dim:0.6`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from infoword_tf.objectives import settings
from infoword_tf.objectives.row import Companion, Row, Vector
from infoword_tf.settings import Setting
from infoword_tf.views import Reads

TABLE: dict[str, Row] = {
    'skip_gram': Row(
        objective='words.SkipGram',
        a='word',
        b='word around it',
        relation='a word of the same window (word2vec)',
        candidates='drawn words, vocabulary, or none: binary, without a bound',
        views={'words': Reads('around')},
        encoders={'lookup': {}},
        settings=settings.WORDS,
    ),
    'cbow': Row(
        objective='words.ContinuousBag',
        a='words of a window',
        b='word in their middle',
        relation='the word that they stand around (word2vec)',
        candidates='drawn words, vocabulary, or none: binary, without a bound',
        views={'words': Reads('middle')},
        encoders={'lookup': {}},
        settings=settings.WORDS,
    ),
    'mlm': Row(
        objective='mlm.MaskedPieces',
        a='masked text',
        b='masked word',
        relation='the word that stood at the place (BERT)',
        candidates='vocabulary',
        views={'masked': Reads('pieces')},
        settings={
            'transform': Setting(
                False, "BERT's transform and piece bias over the states."
            ),
        },
        answers=('blanks',),
    ),
    'bert_nce': Row(
        objective='mlm.NcePieces',
        a='masked text',
        b='masked word',
        relation='the word that stood at the place, in spans',
        candidates='masked words of other sequences',
        views={'masked': Reads('pieces', masking='spans')},
        settings={
            'drop_hits': Setting(
                False, 'Leave copies of the target out of the training loss.'
            ),
        },
        heldout_candidates=1024,
        answers=('blanks_by_counts',),
    ),
    'dim': Row(
        objective='dim.DeepInfoMax',
        a='masked text',
        b='masked n-gram',
        relation='an n-gram that is missing from the text',
        candidates='masked n-grams of other sequences',
        views={
            'masked': Reads(
                'start', masking='spans', when=('one_mask', False)
            ),
            'joined': Reads('start', masking='spans', when=('one_mask', True)),
            'ngrams': Reads('start', masking='spans'),
        },
        settings={
            'critic': Setting(
                'dot',
                'How two states are compared; scaled: over the root of the '
                'width.',
                choices=settings.CRITICS,
            ),
            'temperature': Setting(
                0.05,
                'What a cosine is divided by.',
                at_least=1e-6,
                needs=('critic', 'cosine'),
            ),
            'one_mask': Setting(
                False,
                'Show one [MASK] for an n-gram, which hides its length.',
            ),
        },
        heldout_candidates=128,
        vector=settings.by_critic,
    ),
    'nsp': Row(
        objective='nsp.NextSentence',
        a='first piece of a text',
        b='second piece',
        relation='the piece that follows, or half the time another (BERT)',
        candidates='none: binary NCE, without a bound',
        views={'masked': Reads('next', source='pairs')},
    ),
    'nsp_nce': Row(
        objective='nsp.NextSentenceNce',
        a='first piece of a text',
        b='second piece',
        relation='the piece that follows',
        candidates='the true one and 3 of other documents',
        views={
            'masked': Reads('start', source='next_pairs'),
            'negatives': Reads('start'),
        },
    ),
    'ict': Row(
        objective='contrast.SentenceContrast',
        a='document without a sentence',
        b='that sentence',
        relation='a sentence and the text around it (inverse cloze task)',
        candidates='the batch, both ways',
        views={'passage': Reads('text'), 'sentence': Reads('text')},
        encoders={'transformer': {}, 'lookup': {}},
        settings={
            'words': Setting(
                0,
                'Width of a table of word vectors, whose mean is the second '
                "part of a text's vector; 0: none.",
                at_least=0,
            ),
        },
        heldout_candidates=128,
        vector=settings.weighted,
        answers=('vectors',),
    ),
    'transformer_xl': Row(
        objective='lm.NextPieces',
        a='text so far, with memory',
        b='next word',
        relation='the word that follows (language model)',
        candidates='vocabulary',
        views={'streamed': Reads('text')},
        encoders={'relative': {'causal': True}},
        settings={
            'published': Setting(
                False,
                'ReLU, and embeddings times the root of the width.',
                encoder={
                    False: {'scale_embeddings': False},
                    True: {'scale_embeddings': True, 'activation': 'relu'},
                },
            ),
            'sampled': settings.SAMPLED,
        },
        vector=settings.at_the_end,
        answers=('next',),
    ),
    'rnn_lm': Row(
        objective='lm.RecurrentPieces',
        a='text so far',
        b='next word',
        relation='the word that follows, by an LSTM, GRU or plain recurrence',
        candidates='vocabulary',
        views={'streamed': Reads('text')},
        encoders={'rnn': {}},
        settings={
            'cell': Setting(
                'lstm',
                'What carries the text so far from word to word.',
                choices=('lstm', 'gru', 'plain'),
                encoder={
                    cell: {'cell': cell} for cell in ('lstm', 'gru', 'plain')
                },
            ),
            'tied': Setting(
                True,
                'Score words with their input embeddings; no: with a table of '
                'their own.',
            ),
            'sampled': settings.SAMPLED,
        },
        vector=settings.at_the_end,
        answers=('next',),
    ),
    'gpt': Row(
        objective='lm.NextPieces',
        a='text so far',
        b='next word',
        relation='the word that follows (language model)',
        candidates='vocabulary',
        views=settings.FOLLOWING,
        encoders={
            'transformer': {
                'causal': True,
                'segments': 0,
                'embedding_norm': False,
                'epsilon': 1e-5,
            }
        },
        settings={
            'pre_norm': Setting(
                False,
                'Blocks begin with their norms, and one more follows the last '
                '(GPT-2).',
                encoder={
                    False: {'pre_norm': False},
                    True: {'pre_norm': True},
                },
            ),
            'reads': settings.READS,
            'sampled': settings.SAMPLED,
        },
        vector=settings.at_the_end,
        answers=('next',),
    ),
    'elmo': Row(
        objective='lm.Neighbours',
        a='what comes before, or after',
        b='next word, or the one before',
        relation='a word and all text on one side of it (ELMo)',
        candidates='vocabulary',
        views={'neighbours': Reads('text')},
        encoders={'elmo': {}},
        settings={'sampled': settings.SAMPLED},
        vector=settings.mixed,
    ),
    'plm': Row(
        objective='plm.PermutedPieces',
        a='permuted text',
        b='next word of the order',
        relation='a word and what comes before it in a drawn order (XLNet)',
        candidates='vocabulary',
        views={'permuted': Reads('queries')},
        encoders={'relative': {'segments': 2, 'causal': False}},
        vector=settings.as_xlnet,
    ),
    'label': Row(
        objective='label.Labels',
        a='text, or two',
        b='its label',
        relation='the class that people gave it',
        candidates='all labels',
        views=settings.EXAMPLES,
        encoders=settings.LABELLED,
        settings={
            'classes': Setting(2, 'How many labels there are.', at_least=1),
            **settings.HEAD,
            'texts': Setting(
                'joined', settings.TEXTS_HELP, choices=settings.TEXTS
            ),
        },
        vector=settings.as_started,
        answers=('classes',),
    ),
    'score': Row(
        objective='label.Scores',
        a='text, or two',
        b='a number',
        relation='the number that people gave it',
        candidates='none: regression, without a bound',
        views=settings.EXAMPLES,
        encoders=settings.LABELLED,
        settings={
            **settings.HEAD,
            'texts': Setting(
                'joined', settings.TEXTS_HELP, choices=settings.TEXTS[:2]
            ),
        },
        vector=settings.as_started,
        answers=('numbers',),
    ),
    'span': Row(
        objective='span.Spans',
        a='question and context',
        b='where the answer begins, and ends',
        relation='the answer that people marked',
        candidates='places of the context',
        views={'examples': Reads('text')},
        encoders={'transformer': {}, 'relative': {}},
        settings={
            'end': Setting(
                'independent',
                'How the last place is scored: alone, or given the first '
                '(XLNet).',
                choices=settings.ENDS,
            ),
            'null': Setting(
                False,
                'Whether a question may have no answer (SQuAD 2.0).',
            ),
            'stride': Setting(
                128,
                'Pieces from one window over a long context to the next, at '
                'most.',
                at_least=1,
            ),
            'question': Setting(
                64, 'Pieces of a question that are read.', at_least=1
            ),
            'longest': Setting(
                30, 'Pieces of an answer, at most.', at_least=1
            ),
        },
        vector=settings.as_started,
        answers=('spans',),
    ),
    'soft': Row(
        objective='distill.Soft',
        a='text, or two',
        b="a teacher's distribution",
        relation='how likely a larger model finds each label (distillation)',
        candidates='none: a divergence, without a bound',
        views=settings.TARGETS,
        encoders={'transformer': {}, 'relative': {}, 'lookup': {}},
        settings=settings.SOFT,
        vector=settings.as_started,
        head='label',
    ),
    'soft_score': Row(
        objective='distill.SoftScores',
        a='text, or two',
        b="a teacher's number",
        relation='the number that a larger model gives it',
        candidates='none: regression, without a bound',
        views=settings.TARGETS,
        encoders={'transformer': {}, 'relative': {}, 'lookup': {}},
        vector=settings.as_started,
        head='score',
    ),
    'soft_span': Row(
        objective='distill.SoftSpans',
        a='question and context',
        b="a teacher's places",
        relation='how likely a larger model finds each place',
        candidates='none: a divergence, without a bound',
        views=settings.TARGETS,
        encoders={'transformer': {}, 'relative': {}},
        settings=settings.TEMPERATURE,
        vector=settings.as_started,
        head='span',
    ),
    'patience': Row(
        objective='distill.Patience',
        a='text, or two',
        b="a teacher's states",
        relation='what a larger model makes of it, layer by layer (PKD)',
        candidates='none: a distance, without a bound',
        views=settings.BELOW,
        encoders={'transformer': {}, 'relative': {}},
        settings=settings.PATIENCE,
        vector=settings.as_started,
    ),
    'embed': Row(
        objective='embed.Vectors',
        a='text',
        b="a teacher's vector",
        relation='the vector that a larger model gives the text',
        candidates="the teacher's vectors of the batch",
        views=settings.TEXT,
        encoders={'transformer': {}, 'relative': {}, 'lookup': {}},
        settings=settings.EMBED,
        heldout_candidates=512,
        vector=settings.as_started,
    ),
    'embed_distance': Row(
        objective='embed.Distance',
        a='text',
        b="a teacher's vector",
        relation='how far it is from the vector that a larger model gives',
        candidates='none: a distance, without a bound',
        views=settings.TEXT,
        encoders={'transformer': {}, 'relative': {}, 'lookup': {}},
        settings=settings.DISTANCE,
        vector=settings.as_started,
    ),
}


def __getattr__(name: str) -> Any:
    """What computes is imported when it is asked for, and Keras with it."""
    if name not in __all__:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    from infoword_tf.objectives import objective

    return getattr(objective, name)


class Sum(NamedTuple):
    """What a publication trains.

    Attributes:
        rows: with their weights, as `--objectives` takes them.
        settings: by 'ROW.NAME', what it sets in another way than the table;
            a flag of that name wins.
    """

    rows: str
    settings: Mapping[str, Any] = {}


SUMS: dict[str, Sum] = {
    'bert': Sum('mlm:1,nsp:1', {'mlm.transform': True}),
    'infoword': Sum('bert_nce:1,dim:0.8'),
    'xlnet': Sum('plm:1'),
}


def parse(objectives: str) -> dict[str, float]:
    """`--objectives` -> weight of each row, in the order given.

    Raises:
        ValueError: an unknown row, a weight that is no number or negative, a
            row twice, or no row with a weight.
    """
    weights: dict[str, float] = {}
    named = SUMS.get(objectives, Sum(objectives))
    for part in named.rows.split(','):
        row, colon, weight = part.strip().partition(':')
        if row in SUMS:
            raise ValueError(
                f'--objectives={objectives}: {row!r} is the sum '
                f'{SUMS[row].rows} and stands alone; write its rows instead'
            )
        if row not in TABLE:
            known = ', '.join([*TABLE, *SUMS])
            raise ValueError(
                f'--objectives={objectives}: there is no row {row!r}; rows are '
                f'separated by commas; known are {known}'
            )
        if row in weights:
            raise ValueError(
                f'--objectives={objectives}: {row!r} is there twice; give it '
                'one weight'
            )
        try:
            weights[row] = float(weight if colon else 1.0)
        except ValueError:
            raise ValueError(
                f'--objectives={objectives}: {weight!r} is no weight; write '
                f'{row}:0.5, say'
            ) from None
        if not 0 <= weights[row] < float('inf'):
            raise ValueError(
                f'--objectives={objectives}: the weight of {row} is '
                f'{weight}; weights are 0 or more'
            )
    if not any(weights.values()):
        raise ValueError(
            f'--objectives={objectives}: every weight is 0; give at least one '
            'row a weight above 0'
        )
    return weights


def built(weights: Mapping[str, float]) -> dict[str, float]:
    """The rows of a sum that are built, with their weights.

    Those of weight 0 are not, unless another row reads their scores.
    """
    found = {row: weight for row, weight in weights.items() if weight}
    for row in list(found):
        if head := TABLE[row].head:
            found.setdefault(head, 0.0)
    return found


__all__ = [
    'SUMS',
    'TABLE',
    'Batch',
    'Companion',
    'Objective',
    'Reads',
    'Replicas',
    'Row',
    'Statistics',
    'Sum',
    'Vector',
    'built',
    'gather_pool',
    'parse',
]
