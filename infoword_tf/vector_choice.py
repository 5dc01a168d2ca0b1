"""How a text becomes a vector: pooling, layout, layers, critic and prompts.

`resolve` asks here. Rows decide, and where they do not, --init.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.choices import ModelChoices
from infoword_tf.config import Config, DenseConfig, RowConfig
from infoword_tf.critics import CRITICS, Start
from infoword_tf.critics.lexical import BLANKS
from infoword_tf.errors import UsageError
from infoword_tf.objectives import TABLE, Vector, decided
from infoword_tf.text.layout import layout_of
from infoword_tf.views.sentences import OF_PAIRS, PAIRED


def vector_of(
    choices: ModelChoices,
    rows: Mapping[str, RowConfig],
    started: Config | None,
) -> Vector:
    """Returns how a text becomes a vector: as the row of highest priority says.

    All rows have one layout. Rows of labelled texts take that of --init, or of
    another row that reads labelled texts.
    """
    chosen_by: dict[str, Vector | None] = {
        row: decided(TABLE[row].vector, entry.settings)
        for row, entry in rows.items()
    }
    default = Vector()
    if None in chosen_by.values():
        from infoword_tf.layers.pooling import LEARNED

        if started is not None:
            learned = started.pooling in LEARNED  # by a row of that run
            default = Vector(
                'mean' if learned else started.pooling,
                started.similarity,
                started.layout,
                priority=-1,
            )
        if started is None or not layout_of(started.layout).first:
            for row, vector in chosen_by.items():
                reads = TABLE[row].reads(rows[row].settings)
                if vector is not None and 'examples' in reads:
                    default = default._replace(layout=vector.layout)
    vectors = {row: vector or default for row, vector in chosen_by.items()}
    layouts = {vector.layout for vector in vectors.values()}
    if len(layouts) > 1:
        shown = [x if isinstance(x, str) else x.shown for x in layouts]
        raise UsageError(
            'rows_of_other_layouts',
            f'--objectives={choices.objectives}: the rows format a text '
            f'differently ({", ".join(shown)}); train them apart',
        )
    chosen = max(vectors.values(), key=lambda vector: vector.priority)
    for row, vector in vectors.items():
        same = vector.critic == chosen.critic and vector.head == chosen.head
        if vector.head is not None and not same:
            raise UsageError(
                'critics_of_two_kinds',
                f'--objectives={choices.objectives}: {row} compares by '
                f'--{row}.critic={vector.critic}, and the model by '
                f'{chosen.critic}, or with other settings of it; a model has '
                'one critic, so give both rows the same or train them apart',
            )
    if started is not None:
        ours, theirs = layout_of(chosen.layout), layout_of(started.layout)
        of_one = 'before', 'after', 'last_segment', 'first'
        if all(getattr(ours, x) == getattr(theirs, x) for x in of_one):
            # Equal for one text; for two the layout of --init stays.
            chosen = chosen._replace(layout=started.layout)
    return chosen


def sides_of(
    rows: Mapping[str, RowConfig], choices: ModelChoices
) -> Mapping[str, Any]:
    """Returns the settings of the two sides of pairs; {} without pairs.

    No side is longer than --seq_len.
    """
    for row, entry in rows.items():
        if PAIRED in TABLE[row].views:
            sides = {x: entry.settings[x] for x in OF_PAIRS}
            for name in ('query_length', 'passage_length'):
                sides[name] = min(sides[name], choices.seq_len)
            return sides
    return {}


def vector_fields(
    vector: Vector,
    sides: Mapping[str, Any],
    width: int,
    started: Config | None,
) -> dict[str, Any]:
    """Returns fields of the config: layers over vectors, critics, prompts.

    Args:
        vector: vector of the rows.
        sides: result of `sides_of`.
        width: D.
        started: config of --init.
    """
    new = tuple(DenseConfig(width, activation) for activation in vector.dense)
    if started is None or not vector.keeps:
        fields: dict[str, Any] = {'dense': new}
    else:
        fields = {
            'dense': started.dense or new,
            'normalize': started.normalize,
            'prompts': started.prompts,
            'prompt': started.prompt,
        }
    if sides.get('markers'):
        fields['prompts'] = dict(
            zip(('query', 'document'), sides['markers'].split(','), strict=True)
        )
        fields['prompt'] = None
    for name in ('query_length', 'passage_length'):
        if sides.get(name):
            fields[name] = sides[name]
    entry = None
    if vector.head is not None:
        start = Start(
            config=started,
            width=width,
            sides=sides,
            blanks=_heads(started),
            transform=transform_of(started),
        )
        entry = CRITICS[vector.critic].decide(vector.head, start).written()
    return {**fields, 'critics': {vector.critic: entry}}


def _heads(started: Config | None) -> list[Mapping[str, Any]]:
    """Lists the settings of heads of masked words in --init."""
    rows = {} if started is None else started.rows
    names = BLANKS, *_beginning_as(BLANKS)
    return [rows[name].settings for name in names if name in rows]


def transform_of(started: Config | None) -> dict[str, Any]:
    """Returns how the transform of --init computes; None: as the encoder."""
    transforms = (x for x in _heads(started) if x.get('transform'))
    first = next(transforms, {})
    names = 'transform_activation', 'transform_epsilon'
    return {name: first.get(name) for name in names}


def _beginning_as(row: str) -> list[str]:
    return [other for other in TABLE if TABLE[other].begins_as == row]
