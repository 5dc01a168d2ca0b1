"""The table of all rows, and the sums that have a name.

`--objectives` is a name in SUMS or weighted rows, `bert_nce:1,dim:0.6`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from infoword_tf.errors import InputError
from infoword_tf.objectives import (
    contrast,
    diffcse,
    dim,
    distill,
    embed,
    infocse,
    judged,
    label,
    lm,
    mlm,
    nsp,
    overlap,
    plm,
    published,
    sentences,
    span,
    tag,
    word2vec,
    xlco,
)
from infoword_tf.objectives.candidates import (
    Pool,
    Replicas,
    Ring,
    ScatterUpdate,
    Statistics,
    gather_pool,
    gather_vectors,
    join_pools,
    text_ids,
)
from infoword_tf.objectives.objective import (
    Auxiliary,
    Batch,
    Copy,
    Objective,
    Row,
    Vector,
    decided,
)
from infoword_tf.objectives.queue import Queued
from infoword_tf.settings import Setting
from infoword_tf.views import Reads

TABLE: dict[str, Row] = {
    'skip_gram': word2vec.SKIP_GRAM,
    'cbow': word2vec.CBOW,
    'mlm': mlm.MLM,
    'mmlm': mlm.MMLM,
    'tlm': mlm.TLM,
    'bert_nce': mlm.BERT_NCE,
    'dim': dim.ROW,
    'nsp': nsp.NSP,
    'nsp_nce': nsp.NSP_NCE,
    'ict': contrast.ICT,
    'overlap': overlap.OVERLAP,
    'same_text': nsp.SAME_TEXT,
    'simcse': sentences.ROW,
    'soft_margin': judged.SOFT_MARGIN,
    'soft_order': judged.SOFT_ORDER,
    'diffcse': diffcse.ROW,
    'infocse': infocse.ROW,
    'xlco': xlco.ROW,
    'transformer_xl': lm.TRANSFORMER_XL,
    'rnn_lm': lm.RNN_LM,
    'gpt': lm.GPT,
    'elmo': lm.ELMO,
    'plm': plm.ROW,
    'label': label.LABEL,
    'score': label.SCORE,
    'span': span.ROW,
    'tag': tag.ROW,
    'soft': distill.SOFT,
    'soft_score': distill.SOFT_SCORE,
    'soft_span': distill.SOFT_SPAN,
    'soft_tag': distill.SOFT_TAG,
    'patience': distill.PATIENCE,
    'embed': embed.EMBED,
    'embed_distance': embed.EMBED_DISTANCE,
}


class Sum(NamedTuple):
    """A weighted sum of rows that a publication trains, or that is advised.

    Attributes:
        rows: names and weights, as in `--objectives`.
        settings: values that differ from the defaults, by flag, 'ROW.NAME' or
            'VIEW.NAME'; a flag of that name wins.
        encoder: name in ENCODERS of the published one, which is the default.
        of_init: fields of the config of --init whose values are defaults, by
            flag of a setting, if the setting has the value.
        critic: the flag of what compares the two sides of pairs, which are by
            default those of an --init of that critic; None: there are none.
        tuned: defaults of a run that starts from --init, by flag.
        epochs: the length of such a run, by default; None: of no sum of pairs.
        least: updates that such a run has at least.
        differs: differences from the publication.
    """

    rows: str
    settings: Mapping[str, Any] = {}
    encoder: str = 'transformer'
    of_init: Mapping[str, str] = {}
    critic: str | None = None
    tuned: Mapping[str, Any] = {}
    epochs: float | None = None
    least: int = 0
    differs: tuple[published.Difference, ...] = ()


_INFOXLM = {
    'xlco.critic': 'dot',
    'xlco.temperature': 0.25,
    'xlco.negatives': 'queue',
    'xlco.queue': 131_072,
    'xlco.momentum': 0.9999,
}


def _paired(
    settings: dict[str, Any],
    rows: str = 'simcse:1',
    differs: tuple[published.Difference, ...] = (),
) -> Sum:
    """Makes a sum of --pairs with further settings, which --init leaves."""
    of_init = {'simcse.pooling': 'pooling', 'simcse.critic': 'critic'}
    return Sum(
        rows,
        {
            'simcse.pooling': 'mean',
            'simcse.head': 'none',
            'sentences.once': True,
            **settings,
        },
        encoder='modern',
        of_init={k: x for k, x in of_init.items() if k not in settings},
        critic='simcse.critic',
        tuned={'learning_rate': 1e-4},
        epochs=2.0,
        least=60,
        differs=differs,
    )


PAIRS = 'pairs'  # the sum of --pairs, unless --objectives names another
SUMS: dict[str, Sum] = {
    PAIRS: _paired({}),
    # As `pairs`, with the critic of a publication. Khattab & Zaharia 2020,
    # §3.2 and §4.1; ColBERTv2 (Santhanam et al. 2022) reads 180 tokens.
    'colbert': _paired(
        {
            'simcse.critic': 'late',
            'simcse.token_width': 128,
            'sentences.query_length': 32,
            'sentences.passage_length': 180,
            'sentences.expand': True,
            'sentences.markers': '[unused0],[unused1]',
        },
        differs=(*published.PAIRS, *published.COLBERT),
    ),
    'splade': _paired(
        {
            'simcse.critic': 'lexical',
            'simcse.query_flops': 5e-5,
            'simcse.passage_flops': 3e-5,
        },
        differs=(*published.PAIRS, *published.SPLADE),
    ),
    'monobert': _paired(
        {'simcse.critic': 'cross'},
        differs=(*published.PAIRS, *published.MONOBERT),
    ),
    # Hofstätter et al. 2020.
    'margin_mse': _paired(
        {},
        'simcse:0,soft_margin:1',
        (*published.PAIRS, *published.MARGIN_MSE),
    ),
    'bert': Sum(
        'mlm:1,nsp:1', {'mlm.transform': True}, differs=published.BERT
    ),
    'infoword': Sum('bert_nce:1,dim:0.8', differs=published.INFOWORD),
    'xlnet': Sum('plm:1', encoder='relative', differs=published.XLNET),
    'esimcse': Sum(
        'simcse:1',
        {
            'sentences.repeat': 0.32,
            'simcse.queue': 160,
            'simcse.momentum': 0.995,
        },
        differs=published.ESIMCSE,
    ),
    'consert': Sum(
        'simcse:1',
        {
            'simcse.cut_features': 0.2,
            'sentences.shuffle': True,
            'simcse.directions': 'joint',
            'simcse.temperature': 0.1,
            'simcse.pooling': 'mean',
            'simcse.head': 'none',
        },
        differs=published.CONSERT,
    ),
    'diffcse_published': Sum(
        'simcse:1,diffcse:0.005',
        {'simcse.head': 'projector', 'diffcse.legacy': True},
        differs=published.DIFFCSE,
    ),
    'infocse_stage1': Sum(
        'mlm:1,infocse:1',
        {'infocse.stage': 1},
        differs=published.INFOCSE_STAGE1,
    ),
    'infocse_paper': Sum(
        'simcse:1,infocse:0.005',
        {'simcse.head': 'projector', 'infocse.lower': 'detached'},
        differs=published.INFOCSE_PAPER,
    ),
    'infocse_code': Sum(
        'simcse:1,infocse:0.00001',
        {'simcse.head': 'projector', 'infocse.output': 'layer'},
        differs=published.INFOCSE_CODE,
    ),
    'infoxlm': Sum('mmlm:1,tlm:1,xlco:1', differs=published.INFOXLM_SHORT),
    'infoxlm_paper': Sum(
        'mmlm:1,tlm:1,xlco:1', {**_INFOXLM}, differs=published.INFOXLM
    ),
    # Published losses are sums over pairs, divided by the number of all pairs:
    # of 512 tokens 77 are masked, for one text that is contrasted. A published
    # sequence of `tlm` is one pair; ours is full, as in `mmlm`.
    'infoxlm_code': Sum(
        'mmlm:1,tlm:1,xlco:0.013',
        {
            **_INFOXLM,
            'xlco.layer': 8,
            'xlco.project': True,
            'mmlm.transform': True,
            'tlm.transform': True,
        },
        differs=published.INFOXLM,
    ),
}


def parse(objectives: str) -> dict[str, float]:
    """Parses `--objectives` to the weight of each row, in order.

    Raises:
        ValueError: an unknown row, a weight that is no number or negative, a
            row twice, or no row with a weight.
    """
    weights: dict[str, float] = {}
    named = SUMS.get(objectives, Sum(objectives))
    for part in named.rows.split(','):
        row, colon, weight = part.strip().partition(':')
        if row in SUMS:
            raise InputError(
                'sum_among_rows',
                f'--objectives={objectives}: {row!r} is the sum '
                f'{SUMS[row].rows} and stands alone; write its rows instead',
            )
        if row not in TABLE:
            known = ', '.join([*TABLE, *SUMS])
            raise InputError(
                'unknown_row',
                f'--objectives={objectives}: there is no row {row!r}; rows are '
                f'separated by commas; known are {known}',
            )
        if row in weights:
            raise InputError(
                'row_twice',
                f'--objectives={objectives}: {row!r} is there twice; give it '
                'one weight',
            )
        try:
            weights[row] = float(weight if colon else 1.0)
        except ValueError:
            raise InputError(
                'weight_no_number',
                f'--objectives={objectives}: {weight!r} is no weight; write '
                f'{row}:0.5, say',
            ) from None
        if not 0 <= weights[row] < float('inf'):
            raise InputError(
                'negative_weight',
                f'--objectives={objectives}: the weight of {row} is '
                f'{weight}; weights are 0 or more',
            )
    if not any(weights.values()):
        raise InputError(
            'all_weights_zero',
            f'--objectives={objectives}: every weight is 0; give at least one '
            'row a weight above 0',
        )
    return weights


def flag_of(row: str, setting: str) -> str:
    """Names the flag of a row's setting: ROW.NAME, of a view's VIEW.NAME."""
    return f'{TABLE[row].view_of.get(setting, row)}.{setting}'


def setting_flags(
    rows: Iterable[str] = TABLE,
) -> dict[str, tuple[Setting, list[str]]]:
    """Returns the settings of rows by flag, each with a list of rows.

    A setting of a view is one flag: all rows that read the view have it.
    """
    flags: dict[str, tuple[Setting, list[str]]] = {}
    for row in rows:
        for name, known in TABLE[row].settings.items():
            flags.setdefault(flag_of(row, name), (known, []))[1].append(row)
    return flags


def check_settings(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuses settings of rows that do not fit together.

    Args:
        rows: settings that differ from the defaults, or all, by row.

    Raises:
        InputError: as `Objective.check_settings`.
    """
    complete = {
        row: {name: s.default for name, s in TABLE[row].settings.items()}
        | dict(settings)
        for row, settings in rows.items()
    }
    for row in complete:
        TABLE[row].objective.check_settings(row, complete)


def built(weights: Mapping[str, float]) -> dict[str, float]:
    """Returns the weights of the rows of a sum that are built.

    A row of weight 0 is built only if another row reads its scores.
    """
    rows = {row: weight for row, weight in weights.items() if weight}
    for row in list(rows):
        if scorer := TABLE[row].scored_by:
            rows.setdefault(scorer, 0.0)
    return rows


__all__ = [
    'PAIRS',
    'SUMS',
    'TABLE',
    'Batch',
    'Auxiliary',
    'Copy',
    'Objective',
    'Pool',
    'Queued',
    'Reads',
    'Replicas',
    'Ring',
    'Row',
    'ScatterUpdate',
    'Statistics',
    'Sum',
    'Vector',
    'built',
    'check_settings',
    'decided',
    'flag_of',
    'gather_pool',
    'gather_vectors',
    'join_pools',
    'parse',
    'setting_flags',
    'text_ids',
]
