"""The table: every row, and the sums that have a name.

`--objectives` is a name in SUMS or weighted rows, `bert_nce:1,dim:0.6`.
"""

from infoword_tf.objectives import lm, plm
from infoword_tf.objectives.contrast import SentenceContrast
from infoword_tf.objectives.dim import DeepInfoMax
from infoword_tf.objectives.mlm import MaskedWords, NceWords
from infoword_tf.objectives.nsp import NextSentence, NextSentenceNce
from infoword_tf.objectives.objective import Objective, Replicas, Row

TABLE: dict[str, Row] = {
    'mlm': Row(
        objective=MaskedWords,
        a='masked text',
        b='hidden word',
        relation='the word that stood at the place (BERT)',
        candidates='vocabulary',
        views={'masked': 'words'},
        settings={'transform': False},
    ),
    'bert_nce': Row(
        objective=NceWords,
        a='masked text',
        b='hidden word',
        relation='the word that stood at the place, in spans',
        candidates='hidden words of other sequences',
        views={'masked': 'words'},
        masking='spans',
        settings={'drop_hits': False},
        heldout_candidates=1024,
    ),
    'dim': Row(
        objective=DeepInfoMax,
        a='masked text',
        b='hidden n-gram',
        relation='an n-gram that is missing from the text',
        candidates='hidden n-grams of other sequences',
        views={'masked': 'start', 'ngrams': 'start'},
        masking='spans',
        settings={'critic': 'dot', 'temperature': 0.05},
        heldout_candidates=128,
        pooling='cls',
        similarity='dot',
    ),
    'nsp': Row(
        objective=NextSentence,
        a='first piece of a text',
        b='second piece',
        relation='the piece that follows, or half the time another (BERT)',
        candidates='none: binary NCE, without a bound',
        views={'masked': 'next'},
        # n-grams are cut out of the text that is masked.
        sources={'masked': 'pairs', 'ngrams': 'pairs'},
        bounded=False,
    ),
    'nsp_nce': Row(
        objective=NextSentenceNce,
        a='first piece of a text',
        b='second piece',
        relation='the piece that follows',
        candidates='the true one and 3 of other documents',
        views={'masked': 'start', 'rivals': 'start'},
        sources={'masked': 'next_pairs', 'ngrams': 'next_pairs'},
    ),
    'ict': Row(
        objective=SentenceContrast,
        a='document without a sentence',
        b='that sentence',
        relation='a sentence and the text around it (inverse cloze task)',
        candidates='the batch, both ways',
        views={'passage': 'text', 'sentence': 'text'},
        encoders=('transformer', 'lookup'),
        heldout_candidates=128,
        pooling='weighted',
    ),
    'transformer_xl': Row(
        objective=lm.NextWords,
        a='text so far, with memory',
        b='next word',
        relation='the word that follows (language model)',
        candidates='vocabulary',
        views={'streamed': 'text'},
        encoders=('transformer_xl',),
        arguments={'causal': True},
        reading=lm.reading,
        layout='end',
    ),
    'plm': Row(
        objective=plm.PermutedWords,
        a='permuted text',
        b='next word of the order',
        relation='a word and what comes before it in a drawn order (XLNet)',
        candidates='vocabulary',
        views={'permuted': 'queries'},
        encoders=('transformer_xl',),
        arguments={'segments': 2, 'causal': False},
        reading=plm.reading,
        settings={'k': 6, 'order': 'partial'},
        drawn=('k', 'order'),
        layout='xlnet',
    ),
}

SUMS: dict[str, str] = {
    'bert': 'mlm:1,nsp:1',
    'infoword': 'bert_nce:1,dim:0.8',
    'xlnet': 'plm:1',
}


def parse(objectives: str) -> dict[str, float]:
    """`--objectives` -> weight of each row, in the order given.

    Raises:
        ValueError: an unknown row, a weight that is no number or negative, a
            row twice, or no row with a weight.
    """
    weights: dict[str, float] = {}
    for part in SUMS.get(objectives, objectives).split(','):
        row, colon, weight = part.strip().partition(':')
        if row not in TABLE:
            known = ', '.join([*TABLE, *SUMS])
            raise ValueError(
                f'--objectives={objectives}: there is no row {row!r}; known '
                f'are {known}'
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


__all__ = ['SUMS', 'TABLE', 'Objective', 'Replicas', 'Row', 'parse']
