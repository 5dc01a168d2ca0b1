"""Settings of a row together: a covering table, of every two values once.

What one setting does, tests of its row say. Where two of them meet is what
they leave out, so guarantees run over these cases too, see
training/test_combined.py.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from infoword_tf.critics import CRITICS, OF_DOCUMENTS
from infoword_tf.objectives import TABLE, flag_of
from infoword_tf.views.sentences import OF_PAIRS
from tests import zoo

# Rows that read what another encodes stand in one sum with it.
SUMS = {
    'diffcse': 'simcse:1,diffcse:1',
    'infocse': 'simcse:1,infocse:1',
    'soft_margin': 'simcse:0,soft_margin:1',
    'soft_order': 'simcse:0,soft_order:1',
}
JUDGED = 'soft_margin', 'soft_order'  # tests/zoo.py has all that they know
LAYERED = 'simcse', 'infocse', 'xlco', 'label', 'score', 'patience', 'tag'
# Of numbers and names; a setting that is yes or no, or of few words, has all
# of its values. One alone: more would be no other code.
VALUES: dict[str, tuple[Any, ...]] = {
    'blocks': (2, 1),
    'classes': (2,),
    'context': (4,),
    'cut_features': (0.0, 0.25),
    'cut_tokens': (0.0, 0.3),
    'dims': ('', '8,3'),
    'generator': ('',),
    'guide': ('', 'nowhere'),
    'guide_margin': (0.0, 0.2),
    'hardness': (0.0, 2.0),
    'k': (6, 4),
    'layer': (0, 1),
    'longest': (5,),
    'mask_share': (0.4,),
    'momentum': (0.0, 0.9),
    'negatives': (8,),
    'once': (False,),
    'pairs': (0, 3),
    'question': (9,),
    'queue': (0, 12),
    'ratio': (3,),
    'repeat': (0.0, 0.3),
    'sampled': (0, 20),
    'scale': (2.0,),
    'stage': (2, 1),
    'stride': (16,),
    'subsample': (0.001,),
    'transform_activation': ('relu',),
    'transform_epsilon': (0.01,),
    'teacher': ('nowhere',),
    'temperature': (0.2,),
    'window': (2,),
    'width': (0, 24),
    'words': (0, 24),
}
# Others of these are the same code over another function.
CHOICES = {'pooler': ('none', 'tanh', 'gelu_norm')}
# What other critics than the cosine do with settings, cases of tests/zoo.py
# say.
COMPARING = 'simcse', 'ict'
OF_CRITICS = {
    *OF_PAIRS,
    'others',
    *(
        name
        for name, known in TABLE['simcse'].objective.settings.items()
        if known.needs
        and known.needs[0] == 'critic'
        and 'cosine' not in known.needs[1]
    ),
}
# What does not stand together, by row: these values at once. The complaint
# names one of them.
_NO_QUEUE = {'queue': 0, 'momentum': 0.9}
_CRITICS = [x for x in CRITICS if x != 'cosine']
_OF_TEXTS = [x for x in OF_DOCUMENTS if x != 'cosine']
_IN_CONTEXT = [x for x in _CRITICS if not CRITICS[x].takes_lookup({})]
_BOTH_POOL = {'mean': True, 'bilstm': True}
REFUSED: dict[str, tuple[dict[str, Any], ...]] = {
    'dim': (_NO_QUEUE,),
    'ict': (
        _NO_QUEUE,
        *(
            {'encoder': 'lookup', 'critic': x}
            for x in _OF_TEXTS
            if x in _IN_CONTEXT
        ),
        *({'queue': 12, 'critic': x} for x in _OF_TEXTS),
    ),
    'gpt': ({'encoder': 'modern', 'pre_norm': True},),
    'simcse': (
        {**_NO_QUEUE, 'keys': 'queue'},
        {'keys': 'positives', 'momentum': 0.0},
        {'keys': 'positives', 'directions': 'both'},
        {'keys': 'positives', 'directions': 'joint'},
        {'guide': 'nowhere', 'queue': 12},
        {'guide': '', 'guide_margin': 0.2},
        {'encoder': 'lookup', 'pooling': 'cls'},
        {'encoder': 'lookup', 'pooling': 'first_last'},
        {'encoder': 'lookup', 'pooling': 'last_two'},
        {'encoder': 'lookup', 'cut_features': 0.25},
        {'encoder': 'lookup', 'cut_tokens': 0.3},
        *({'encoder': 'lookup', 'critic': x} for x in _IN_CONTEXT),
        *({'queue': 12, 'critic': x} for x in _CRITICS),
        *({'momentum': 0.9, 'critic': x} for x in _CRITICS),
        {'dims': '8,3', 'critic': 'lexical'},
        {'dims': '8,3', 'critic': 'cross', 'pairs': 3},
        {'directions': 'joint', 'critic': 'late'},
        {'directions': 'joint', 'critic': 'cross', 'pairs': 3},
        {'directions': 'both', 'critic': 'cross', 'pairs': 3},
        {'guide': 'nowhere', 'critic': 'cross', 'pairs': 3},
    ),
    'xlco': (
        {'negatives': 'queue', 'queue': 0},
        {'negatives': 'both', 'queue': 0},
        {'negatives': 'batch', 'queue': 12},
    ),
    'label': (_BOTH_POOL, {'multilabel': True, 'texts': 'choices'}),
    'score': (_BOTH_POOL,),
}
# What a command refuses before there is a row: a guide reads pairs.
ELSEWHERE: dict[str, tuple[dict[str, Any], ...]] = {
    'simcse': ({'guide': 'nowhere', 'pairs': 0},),
}
# What a pair wants besides, the other one of it refuses.
IMPLIED = {
    'simcse': (
        (('guide_margin', 0.2), ('pairs', 0)),
        (('guide_margin', 0.2), ('queue', 12)),
    ),
}
# Of six encoders each of two rows of one class has these; with all of them
# there would be thirty cases of each. Long cases have one of two.
ENCODERS = {
    'diffcse': ('transformer',),
    'infocse': ('transformer',),
    'xlco': ('transformer',),
    'label': ('transformer', 'lookup', 'relative'),
    'score': ('transformer', 'modern'),
    'soft_margin': ('transformer',),
    'soft_order': ('transformer',),
    'tag': ('transformer', 'lookup'),
}
Pair = tuple[tuple[str, Any], tuple[str, Any]]  # two names, each with a value


@functools.cache
def factors(row: str) -> dict[str, tuple[Any, ...]]:
    """Returns settings by name, defaults first, and the encoder."""
    values: dict[str, tuple[Any, ...]] = {
        # Another kind of attention in the blocks of `transformer` is no factor.
        'encoder': ENCODERS.get(row)
        or tuple(x for x in zoo.encoders_of(row) if x != 'disentangled')
    }
    for name, known in TABLE[row].settings.items():
        if row in SUMS and (name in ('repeat', 'shuffle') or row in JUDGED):
            continue  # those of `simcse`
        if (row in COMPARING and name == 'critic') or name in OF_CRITICS:
            continue
        several = known.choices or VALUES.get(name)
        if name in CHOICES:
            several = [x for x in CHOICES[name] if x in known.choices]
        if several is None:
            assert isinstance(known.default, bool), f'VALUES of {row}.{name}?'
            several = False, True
        values[name] = tuple(
            sorted(several, key=lambda x, known=known: x != known.default)
        )
    return values


def is_combined(row: str) -> bool:
    """Whether two of its settings can meet."""
    return sum(len(several) > 1 for several in factors(row).values()) > 1


def case_of(row: str, chosen: Mapping[str, Any]) -> zoo.Case:
    """A case with two layers where a row may read others than the last."""
    objectives = SUMS.get(row, row)
    settings = {}
    for name, value in chosen.items():
        known = TABLE[row].settings.get(name)
        if known is None:
            continue
        if known.needs:
            other, needed = known.needs
            default = TABLE[row].settings[other].default
            if chosen.get(other, default) not in needed:
                continue  # it would do nothing
        settings[flag_of(row, name)] = value
    if chosen.get('multilabel'):
        settings[f'{row}.classes'] = 1  # as `zoo.statistics` has it
    if row in SUMS and chosen['keys'] == 'positives':
        settings['simcse.momentum'] = 0.9
    layers = 1 + (row in LAYERED)
    return zoo.Case(objectives, chosen['encoder'], None, settings, layers)


def pairs_of(chosen: Mapping[str, Any]) -> Iterator[Pair]:
    """Every two settings with their values."""
    return itertools.combinations(sorted(chosen.items()), 2)


def completed(
    row: str, chosen: dict[str, Any], missing: set[Pair]
) -> dict[str, Any] | None:
    """A value for each further setting, so that nothing is refused.

    Of those that may stand first comes what brings most of `missing`. None:
    there is no such case.
    """
    values = factors(row)
    known = values.keys() | chosen.keys()
    refused = [
        x
        for x in (*REFUSED.get(row, ()), *ELSEWHERE.get(row, ()))
        if x.keys() <= known
    ]
    if any(x.items() <= chosen.items() for x in refused):
        return None
    tied = set().union(*refused)
    for name in sorted(values, key=lambda name: name not in tied):
        if name not in chosen:
            tried = {
                value: sum(
                    tuple(sorted([(name, value), other])) in missing
                    for other in chosen.items()
                )
                for value in values[name]
            }
            best = sorted(tried, key=lambda value: -tried[value])
            cases = (completed(row, chosen | {name: x}, missing) for x in best)
            return next((case for case in cases if case), None)
    return chosen


def covering(row: str) -> tuple[list[dict[str, Any]], set[Pair]]:
    """Cases in which every two values stand together that may, and the rest."""
    missing = {
        pair
        for values in itertools.combinations(sorted(factors(row).items()), 2)
        for pair in itertools.product(
            *([(name, x) for x in several] for name, several in values)
        )
    }
    cases, never = [], set()
    while missing:
        pair = min(missing, key=repr)
        case = completed(row, dict(pair), missing)
        if case is None:
            never.add(pair)
        else:
            cases.append(case)
        missing -= {pair, *pairs_of(case or {})}
    return cases, never


def never(row: str) -> set[Pair]:
    """The pairs that are refused; also those that want what one of them does
    not allow.
    """
    refused = *REFUSED.get(row, ()), *ELSEWHERE.get(row, ())
    values = factors(row)
    return {
        tuple(sorted(x.items()))
        for x in refused
        if len(x) == 2 and x.keys() <= values.keys()
    } | set(IMPLIED.get(row, ()))
