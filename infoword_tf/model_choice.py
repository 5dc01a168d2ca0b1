"""The model that a run has: its encoder, and how a text becomes a vector.

`resolve` asks here. Of the encoder that is the name, arguments, dropout, memory
and adapters: without --init rows and --size decide, with --init the encoder of
its workdir. Of the vector it is pooling, layout, layers, critic and prompts:
rows decide, and where they do not, --init.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf import adapters
from infoword_tf.choices import ModelChoices
from infoword_tf.config import AdapterConfig, Config, DenseConfig, RowConfig
from infoword_tf.critics import CRITICS, Start
from infoword_tf.critics.lexical import BLANKS
from infoword_tf.encoders import ENCODERS, FLAGS
from infoword_tf.errors import InputError, UsageError
from infoword_tf.objectives import SUMS, TABLE, Auxiliary, Vector, decided
from infoword_tf.plan import Plan
from infoword_tf.sizes import SIZES
from infoword_tf.text.layout import layout_of
from infoword_tf.views.sentences import OF_PAIRS, PAIRED

# ------------------------------------------------------------------- encoder


def resolve_encoder(
    choices: ModelChoices,
    rows: Mapping[str, Any],
    started: Config | None = None,
) -> str:
    """Returns the name of an encoder that all rows allow, that of --init first.
    """
    allowed = {
        row: TABLE[row].encoders(entry.settings)
        for row, entry in rows.items()
    }
    if choices.encoder is not None:
        for row, encoders in allowed.items():
            if choices.encoder not in encoders:
                known = ', '.join(ENCODERS)
                raise UsageError(
                    'encoder_not_of_row',
                    f'--encoder={choices.encoder}: {row} allows '
                    f'{", ".join(encoders)} (there are {known})',
                )
        return choices.encoder
    first = [started.encoder.name] if started is not None else []
    if named := SUMS.get(choices.objectives):
        first.append(named.encoder)
    for name in [*first, *ENCODERS]:
        if all(name in encoders for encoders in allowed.values()):
            return name
    listed = (f'{row} allows {", ".join(e)}' for row, e in allowed.items())
    raise UsageError(
        'no_encoder_for_all',
        f'--objectives={choices.objectives}: no encoder serves all rows '
        f'({"; ".join(listed)}); train them apart',
    )


def dropout_of(
    choices: ModelChoices,
    plan: Plan,
    encoder: str,
    width: int,
    started: Config | None,
) -> float:
    """Returns the rate of dropout, chosen or by default.

    The default is 0 for small encoders that do without (`drops_when_small`),
    from scratch on running text, else 0.1 (Devlin et al. 2019). They read it a
    few times at most, and learn more of it so. Labels and pairs are read again
    and again, and some rows contrast two passes that differ by dropout alone.
    """
    if choices.dropout is not None:
        return choices.dropout
    reads = [r for v in plan.views.values() for r in v.rows.values()]
    running = not (
        plan.reads('examples')
        or plan.reads('pairs')
        or any(r.dropped or r.passes > 1 for r in reads)
    )
    small = width < SIZES['base']['width']
    if running and small and started is None:
        return 0.1 if ENCODERS[encoder].drops_when_small else 0.0
    return 0.1


def arguments_of(
    choices: ModelChoices,
    rows: Mapping[str, RowConfig],
    name: str,
    started: Config | None,
) -> dict[str, Any]:
    """Returns the encoder's arguments: by size, rows and flags, or by --init.
    """
    fixed = _arguments_of_rows(choices, rows, name)
    _add_flags(choices, fixed, name, started)
    _refuse_sizes(choices, fixed)
    if started is not None:
        arguments = {**_init_arguments(choices, rows, name, started), **fixed}
        if not arguments.get('causal'):  # rows that see later tokens
            arguments.pop('same_length', None)
    else:
        known = ENCODERS[name].settings
        arguments = {
            'vocab_size': 0,
            **SIZES['tiny'],
            **{k: s.default for k, s in known.items() if s.flag},
            **(SIZES[choices.size] if choices.size else {}),
            **fixed,
        }
        arguments = {k: v for k, v in arguments.items() if k in known}
    if choices.seq_len > arguments['max_length']:
        more = '' if started else ', or raise --positions'
        raise UsageError(
            'too_few_positions',
            f'--seq_len={choices.seq_len}: the encoder has '
            f'{arguments["max_length"]} positions; lower it{more}',
        )
    return arguments


def _arguments_of_rows(
    choices: ModelChoices, rows: Mapping[str, RowConfig], name: str
) -> dict[str, Any]:
    """Returns the arguments that rows fix."""
    fixed: dict[str, Any] = {}
    for row, entry in rows.items():
        of_row = TABLE[row].encoders(entry.settings)[name]
        for needed, value in of_row.items():
            if fixed.setdefault(needed, value) != value:
                raise UsageError(
                    'rows_fix_other_encoders',
                    f'--objectives={choices.objectives}: {row} wants an '
                    f'encoder with {needed} {value}, another row '
                    f'{fixed[needed]}; train them apart',
                )
    return fixed


def _add_flags(
    choices: ModelChoices,
    fixed: dict[str, Any],
    name: str,
    started: Config | None,
) -> None:
    """Adds the arguments that flags choose, unless a row fixes another."""
    known = ENCODERS[name].settings
    for flag, argument_of in FLAGS.items():
        value, argument = getattr(choices, flag), argument_of.get(name)
        if value is None:
            continue
        if argument is None and flag in known:  # --size decides it
            raise UsageError(
                'size_decides_argument',
                f'--{flag}={value} is for the encoder '
                f'{", ".join(argument_of)}, not for {name}; leave it out',
            )
        if argument is None:
            raise UsageError(
                'argument_of_another_encoder',
                f'--{flag}: the encoder {name} of '
                f'--objectives={choices.objectives} has none; leave it out',
            )
        if started is not None and not known[argument].free:
            raise UsageError(
                'init_decides_argument',
                f'--{flag} is decided by --init; leave it out',
            )
        if fixed.setdefault(argument, value) != value:
            raise UsageError(
                'row_fixes_argument',
                f'--objectives={choices.objectives}: --{flag}={value}, but the '
                f'{argument} is fixed as {fixed[argument]}; leave it out',
            )


def _refuse_sizes(choices: ModelChoices, fixed: Mapping[str, Any]) -> None:
    """Raises UsageError for flags of the size that do not fit together."""
    if choices.width and choices.size:
        raise UsageError(
            'width_and_size',
            f'--width={choices.width} and --size={choices.size} are both '
            'a width; leave out one of the two',
        )
    if choices.same_length and not fixed.get('causal'):
        raise UsageError(
            'same_length_not_causal',
            '--same_length is for rows whose tokens see no later ones, not '
            f'for --objectives={choices.objectives}; leave it out',
        )
    if choices.size is not None and choices.size not in SIZES:
        raise UsageError(
            'unknown_size',
            f'--size={choices.size}: known are {", ".join(SIZES)}',
        )


def _init_arguments(
    choices: ModelChoices,
    rows: Mapping[str, RowConfig],
    name: str,
    started: Config,
) -> dict[str, Any]:
    """Returns the arguments of the encoder of --init, if size and kind fit."""
    arguments = started.encoder.arguments
    size = SIZES[choices.size] if choices.size else {}
    if any(arguments.get(k, v) != v for k, v in size.items()):
        raise UsageError(
            'init_of_other_size',
            f'--size={choices.size} is not the size of --init '
            f'({arguments.get("layers", 0)} layers, {arguments["width"]} '
            'wide); leave out one of the two',
        )
    if started.encoder.name != name:
        raise UsageError(
            'init_of_other_encoder',
            f'--init holds the encoder {started.encoder.name!r}, the rows '
            f'want {name!r}',
        )
    known = ENCODERS[name].settings
    for row, entry in rows.items():
        for setting, value in entry.settings.items():
            fixed = TABLE[row].settings[setting].encoder.get(value, {})
            for argument, needed in fixed.items():
                if argument not in known:
                    continue
                has = arguments.get(argument, known[argument].default)
                if has != needed:
                    raise UsageError(
                        'init_of_other_setting',
                        f'--{row}.{setting}={value} wants an encoder with '
                        f'{argument} {needed}, --init holds one with {has}; '
                        'set it as that run did',
                    )
    return dict(arguments)


def is_of_adapter(flag: str) -> bool:
    """Tells whether a flag of a setting is one of adapters."""
    return flag.partition('.')[0] == adapters.ADAPTER


def adapter_of(
    choices: ModelChoices,
    auxiliaries: Mapping[str, Auxiliary],
    encoder: str,
    arguments: Mapping[str, Any],
) -> AdapterConfig | None:
    """Returns the adapters of a run, the base unknown, or None.
    """
    chosen = {k: x for k, x in choices.settings.items() if is_of_adapter(k)}
    kind = getattr(choices, adapters.ADAPTER, adapters.NONE)
    if kind == adapters.NONE:
        for flag in chosen:
            raise UsageError(
                'setting_without_adapter',
                f'--{flag} is for --adapter={adapters.LORA}; give both',
            )
        return None
    values = {}
    for name, known in adapters.SETTINGS.items():
        flag = f'{adapters.ADAPTER}.{name}'
        try:
            values[name] = known.check(flag, chosen.get(flag, known.default))
        except InputError as error:
            raise UsageError(error.id, str(error)) from None
    most = adapters.narrowest(arguments, values['where'])
    if not most:
        raise UsageError(
            'encoder_without_adapters',
            f'--adapter={kind}: the encoder {encoder} of --init has no '
            'attention, whose kernels adapters change; leave it out',
        )
    if values['rank'] > most:
        raise UsageError(
            'adapter_rank_above_width',
            f'--adapter.rank={values["rank"]}: a kernel with an adapter has a '
            f'side of {most}; take {most} or less',
        )
    for name, auxiliary in auxiliaries.items():
        if auxiliary.momentum is not None:
            raise UsageError(
                'adapter_of_average',
                f'--adapter={kind}: {name!r} of --objectives='
                f'{choices.objectives} is a moving average of all weights of '
                'the encoder, which do not change; leave one of the two out',
            )
    return AdapterConfig(kind, **values)


def memory_of(choices: ModelChoices, encoder: str) -> int | None:
    """Returns the memory in tokens, T by default; None: the encoder has none.
    """
    if 'memory' not in ENCODERS[encoder].abilities:
        if choices.memory_length is not None:
            raise UsageError(
                'encoder_without_memory',
                f'--memory_length={choices.memory_length}: the encoder '
                f'{encoder} of --objectives={choices.objectives} has no '
                'memory of tokens; leave it out',
            )
        return None
    if choices.memory_length is None:
        return choices.seq_len
    return choices.memory_length


# -------------------------------------------------------------------- vector


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
