"""Decisions of a run: choices in, config and plan out. Pure; reads no flag.

`resolve` has two stages. `resolve_text` puts together what the rows read: a
view is drawn once and shared by all rows that read it, and a setting of a view
becomes one of each of them. `resolve_model` decides the encoder and how a text
becomes a vector, which --init may decide.

The trainer, `show`, the benchmarks and the tests decide here and nowhere else.
A choice has the name of its flag; None means that nothing was chosen.
"""

import dataclasses
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from infoword_tf import adapters
from infoword_tf.choices import ModelChoices
from infoword_tf.config import (
    AdapterConfig,
    Config,
    DenseConfig,
    EncoderConfig,
    RowConfig,
    TokenizerConfig,
)
from infoword_tf.critics import CRITICS, Start
from infoword_tf.critics.lexical import BLANKS
from infoword_tf.encoders import ENCODERS, FLAGS
from infoword_tf.errors import InputError, UsageError
from infoword_tf.objectives import (
    SUMS,
    TABLE,
    Auxiliary,
    Sum,
    Vector,
    built,
    decided,
    flag_of,
    parse,
    setting_flags,
)
from infoword_tf.plan import Plan, ViewPlan, make_plan
from infoword_tf.sizes import SIZES
from infoword_tf.text.layout import layout_of
from infoword_tf.views.sentences import OF_PAIRS, PAIRED

WORDPIECE = TokenizerConfig('wordpiece', lower_case=True)


class ResolvedText(NamedTuple):
    """Decisions that need no --init.

    Attributes:
        rows: weight and every setting of a row, by name.
        plan: recipe of the batches.
        auxiliaries: the auxiliary encoders of the rows, by name.
    """

    rows: dict[str, RowConfig]
    plan: Plan
    auxiliaries: dict[str, Auxiliary]


@dataclasses.dataclass(frozen=True)
class Resolved:
    """Decisions that need neither the text nor the machine.

    Attributes:
        rows: weight and every setting of a row, by name.
        plan: recipe of the batches.
        auxiliaries: the auxiliary encoders of the rows, by name.
        encoder: without --init its `vocab_size` is 0 until `config`.
        memory_length: None for an encoder without memory.
        max_length: T, the limit of texts once the workdir is loaded.
        vector: form of a text's vector.
        vector_fields: further fields of the config that concern the vector,
            some of them as --init has them.
        adapter: the base unknown; None: all weights of the encoder learn.
    """

    rows: dict[str, RowConfig]
    plan: Plan
    auxiliaries: Mapping[str, Auxiliary]
    encoder: EncoderConfig
    memory_length: int | None
    max_length: int
    vector: Vector
    vector_fields: Mapping[str, Any]
    adapter: AdapterConfig | None = None

    def config(
        self,
        vocab_size: int,
        tokenizer: TokenizerConfig = WORDPIECE,
        precision: str = 'float32',
        replicas: int = 1,
        run: Mapping[str, Any] | None = None,
    ) -> Config:
        """Returns the whole config.

        Args:
            vocab_size: V.
            tokenizer: tokenizer of the text.
            precision: a Keras dtype policy.
            replicas: number of replicas of the run.
            run: the record of the run (training/record.py).
        """
        return Config(
            encoder=EncoderConfig(
                self.encoder.name,
                {**self.encoder.arguments, 'vocab_size': vocab_size},
            ),
            rows=self.rows,
            max_length=self.max_length,
            tokenizer=tokenizer,
            precision=precision,
            masking=self.plan.masking,
            mask_share=self.plan.mask_share,
            memory_length=self.memory_length,
            layout=self.vector.layout,
            pooling=self.vector.pooling,
            similarity=self.vector.similarity,
            adapter=self.adapter,
            replicas=replicas,
            run=dict(run or {}),
            **self.vector_fields,
        )


def resolve(choices: ModelChoices, started: Config | None = None) -> Resolved:
    """Decides a run, before the text and the machine are known.

    Args:
        choices: choices of the run.
        started: config of the workdir that --init names.

    Raises:
        UsageError: choices contradict each other; the message says what to do.
    """
    return resolve_model(choices, resolve_text(choices, started), started)


def resolve_text(
    choices: ModelChoices, started: Config | None = None
) -> ResolvedText:
    """Decides the rows, how batches are made, and the auxiliary encoders.

    Args: as of `resolve`.

    Raises: UsageError: as `resolve`.
    """
    rows = resolve_rows(choices, started)
    settings = {row: entry.settings for row, entry in rows.items()}
    try:
        plan = make_plan(
            settings, choices.seq_len, choices.masking, choices.mask_share
        )
        auxiliaries = auxiliaries_of(settings)
    except InputError as error:
        message = f'--objectives={choices.objectives}: {error}'
        raise UsageError(error.id, message) from None
    for row in rows:
        needed: int | None = decided(
            TABLE[row].heldout_candidates, settings[row]
        )
        if choices.batch_size < 2 and needed:
            raise UsageError(
                'batch_of_one',
                f'--batch_size={choices.batch_size}: the candidates of {row} '
                'come from other sequences of the batch; take 2 or more'
            )
    for view in plan.views.values():
        _check_sides(view, choices)
    return ResolvedText(rows, plan, auxiliaries)


def _check_sides(view: ViewPlan, choices: ModelChoices) -> None:
    """Raises UsageError where pairs do not fit into a batch."""
    query_length = view.settings.get('query_length', 0)
    if query_length > choices.seq_len:
        raise UsageError(
            'query_beyond_seq_len',
            f'--sentences.query_length={query_length} is more than '
            f'--seq_len={choices.seq_len}; lower one, or raise the other',
        )
    others = view.draw.settings.get('others', 0) if view.draw else 0
    if others >= choices.batch_size:
        raise UsageError(
            'others_beyond_batch',
            f'--sentences.others={others}: a batch of --batch_size='
            f'{choices.batch_size} has {choices.batch_size - 1} other '
            'examples; take fewer, or a larger batch',
        )


def resolve_model(
    choices: ModelChoices, text: ResolvedText, started: Config | None
) -> Resolved:
    """Decides the encoder, and how a text becomes a vector.

    Args: as of `resolve`; text: of `resolve_text`.

    Raises: UsageError: as `resolve`.
    """
    rows = text.rows
    name = resolve_encoder(choices, rows, started)
    arguments = _arguments(choices, rows, name, started)
    arguments['rate'] = _dropout(
        choices, text, name, arguments['width'], started
    )
    vector = _vector(choices, rows, started)
    return Resolved(
        rows=rows,
        plan=text.plan,
        auxiliaries=text.auxiliaries,
        encoder=EncoderConfig(name, arguments),
        memory_length=_memory_length(choices, name),
        max_length=max(choices.seq_len, started.max_length if started else 0),
        vector=vector,
        vector_fields=_vector_fields(
            vector, _sides(rows, choices), arguments['width'], started
        ),
        adapter=_adapter(choices, text, name, arguments),
    )


def answering(
    answers: Container[str], rows: Iterable[str] = TABLE
) -> list[str]:
    """Returns the rows that give one of the answers (`Row.answers`)."""
    return [
        row
        for row in rows
        if row in TABLE and any(a in answers for a in TABLE[row].answers)
    ]


# ------------------------------------------------------------------------- rows


def resolve_rows(
    choices: ModelChoices, started: Config | None = None
) -> dict[str, RowConfig]:
    """Returns the rows of a sum that are built, with weights and settings.

    Settings of a named sum are its own, unless --init (`_of_init`) or a flag
    sets them.

    Raises:
        UsageError: as `objectives.parse`; a setting of another row or view,
            out of bounds, or without a setting that it needs.
    """
    try:
        weights = parse(choices.objectives)
    except InputError as error:
        raise UsageError(error.id, str(error)) from None
    rows = {
        row: RowConfig(
            weight, {name: s.default for name, s in TABLE[row].settings.items()}
        )
        for row, weight in sorted(built(weights).items())
    }
    named = SUMS.get(choices.objectives, Sum(''))
    known = setting_flags(rows)
    of_init = {} if started is None else _of_init(named, choices, started)
    chosen = {**named.settings, **of_init, **choices.settings}
    chosen = {k: x for k, x in chosen.items() if not _of_adapter(k)}
    for flag, value in chosen.items():
        owner, _, name = flag.partition('.')
        if flag not in known and owner in rows:
            has = [f'--{x}' for x, (_, of) in known.items() if owner in of]
            raise UsageError(
                'unknown_setting',
                f'--{flag}: {owner} has no such setting; it has '
                f'{", ".join(has) or "none"}',
            )
        if flag not in known:
            _, owners = setting_flags().get(flag, (None, [owner]))
            raise UsageError(
                'setting_of_another_row',
                f'--{flag} is for {", ".join(owners)}, not for '
                f'--objectives={choices.objectives}',
            )
        setting, readers = known[flag]
        try:
            value = setting.check(flag, value)
        except InputError as error:
            raise UsageError(error.id, str(error)) from None
        for row in readers:
            rows[row].settings[name] = value
    for flag, (setting, readers) in known.items():
        if setting.defaults and flag not in chosen:
            other, defaults = setting.defaults
            for row in readers:
                values = rows[row].settings
                name = flag.rpartition('.')[2]
                values[name] = defaults.get(values[other], setting.default)
    for row in rows:
        if rows[row].settings.get('transform'):
            rows[row].settings['transform_activation'] = _activation(started)
    for flag in choices.settings:
        if flag not in known:  # of adapters
            continue
        setting, (row, *_) = known[flag]
        if setting.needs:
            other, needed = setting.needs
            if rows[row].settings[other] != needed:
                raise UsageError(
                    'setting_without_effect',
                    f'--{flag} is for --{flag_of(row, other)}={needed}; give '
                    'both',
                )
    return rows


def _of_init(
    named: Sum, choices: ModelChoices, started: Config
) -> dict[str, Any]:
    """Returns, by flag, the settings of a sum that --init decides.

    Where the critic is that of --init, so are the two sides of pairs, unless
    the sum sets them. (Markers are among the prompts of --init.)
    """
    known = setting_flags()
    decides = {}
    for flag, field in named.of_init.items():
        if getattr(started, field) in known[flag][0].choices:
            decides[flag] = getattr(started, field)
    if named.critic is None:
        return decides
    critic = {**named.settings, **decides, **choices.settings}.get(named.critic)
    if critic != started.critic:
        return decides
    row, _, _ = named.critic.partition('.')
    of_pairs, of_row = CRITICS[critic].sides_of(started)
    for name in ('query_length', 'passage_length'):
        if name in of_pairs:
            of_pairs[name] = min(of_pairs[name], choices.seq_len)
    sides = {f'{PAIRED}.{name}': value for name, value in of_pairs.items()}
    sides |= {f'{row}.{name}': value for name, value in of_row.items()}
    of_sum = named.settings
    return decides | {k: x for k, x in sides.items() if k not in of_sum}


# ----------------------------------------------------------- auxiliary encoders


def auxiliaries_of(
    rows: Mapping[str, Mapping[str, Any]],
) -> dict[str, Auxiliary]:
    """Returns the auxiliary encoders of rows, by name.

    Raises: InputError: two rows bring different encoders of one name, or the
    fields of an encoder contradict each other.
    """
    auxiliaries: dict[str, Auxiliary] = {}
    for row, settings in rows.items():
        of_row: Mapping[str, Auxiliary] = decided(
            TABLE[row].auxiliaries, settings
        )
        for name, auxiliary in of_row.items():
            if auxiliary.momentum is not None and not auxiliary.frozen:
                raise InputError(
                    'momentum_encoder_learns',
                    f'{name!r} of {row} is a moving average and learns too: '
                    'make it frozen, or leave out its momentum',
                )
            copied = auxiliary.copied or auxiliary.momentum is not None
            if copied and auxiliary.workdir:
                raise InputError(
                    'copied_from_two_models',
                    f'{name!r} of {row} begins as a copy of the trained '
                    f'encoder, not with the weights of {auxiliary.workdir}',
                )
            changes = auxiliary.momentum is not None or not auxiliary.frozen
            if (changes or copied) and not auxiliary.saved:
                raise InputError(
                    'auxiliary_encoder_unsaved',
                    f'{name!r} of {row} changes in training, or began as a '
                    'copy, so checkpoints must hold it: leave out saved=False',
                )
            if auxiliaries.setdefault(name, auxiliary) != auxiliary:
                raise InputError(
                    'other_auxiliary_encoder',
                    f'{row} brings another {name!r} than the rows before it; '
                    'train them apart',
                )
    return auxiliaries


# ---------------------------------------------------------------------- encoder


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


def _dropout(
    choices: ModelChoices, text: ResolvedText, encoder: str, width: int,
    started: Config | None,
) -> float:  # fmt: skip
    """Returns the rate of dropout, chosen or by default.

    The default is 0 for small encoders that do without (`drops_when_small`),
    from scratch on running text, else 0.1 (Devlin et al. 2019). They read it a
    few times at most, and learn more of it so. Labels and pairs are read again
    and again, and some rows contrast two passes that differ by dropout alone.
    """
    if choices.dropout is not None:
        return choices.dropout
    reads = [r for v in text.plan.views.values() for r in v.rows.values()]
    running = not (
        text.plan.reads('examples')
        or text.plan.reads('pairs')
        or any(r.dropped or r.passes > 1 for r in reads)
    )
    small = width < SIZES['base']['width']
    if running and small and started is None:
        return 0.1 if ENCODERS[encoder].drops_when_small else 0.0
    return 0.1


def _arguments(
    choices: ModelChoices,
    rows: Mapping[str, RowConfig],
    name: str,
    started: Config | None,
) -> dict[str, Any]:
    """Returns the encoder's arguments: by size, rows and flags, or by --init.
    """
    known = ENCODERS[name].settings
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
    if started is not None:
        arguments = {**_init_arguments(choices, rows, name, started), **fixed}
        if not arguments.get('causal'):  # rows that see later tokens
            arguments.pop('same_length', None)
    else:
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


def _of_adapter(flag: str) -> bool:
    return flag.partition('.')[0] == adapters.ADAPTER


def _adapter(
    choices: ModelChoices,
    text: ResolvedText,
    encoder: str,
    arguments: Mapping[str, Any],
) -> AdapterConfig | None:
    """Returns the adapters of a run, the base unknown, or None.
    """
    chosen = {k: x for k, x in choices.settings.items() if _of_adapter(k)}
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
    for name, auxiliary in text.auxiliaries.items():
        if auxiliary.momentum is not None:
            raise UsageError(
                'adapter_of_average',
                f'--adapter={kind}: {name!r} of --objectives='
                f'{choices.objectives} is a moving average of all weights of '
                'the encoder, which do not change; leave one of the two out',
            )
    return AdapterConfig(kind, **values)


def _memory_length(choices: ModelChoices, encoder: str) -> int | None:
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


# ---------------------------------------------------------------------- vectors


def _vector(
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


def _sides(
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


def _vector_fields(
    vector: Vector,
    sides: Mapping[str, Any],
    width: int,
    started: Config | None,
) -> dict[str, Any]:
    """Returns fields of the config: layers over vectors, critics, prompts.

    Args:
        vector: vector of the rows.
        sides: result of `_sides`.
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
            started, width, sides, _heads(started), _activation(started)
        )
        entry = CRITICS[vector.critic].decide(vector.head, start).written()
    return {**fields, 'critics': {vector.critic: entry}}


def _heads(started: Config | None) -> list[Mapping[str, Any]]:
    """Lists the settings of heads of masked words in --init."""
    rows = {} if started is None else started.rows
    names = BLANKS, *_beginning_as(BLANKS)
    return [rows[name].settings for name in names if name in rows]


def _activation(started: Config | None) -> str | None:
    """Returns the activation of the transform; None: the encoder's."""
    transforms = (x for x in _heads(started) if x.get('transform'))
    return next((x.get('transform_activation') for x in transforms), None)


def _beginning_as(row: str) -> list[str]:
    return [other for other in TABLE if TABLE[other].begins_as == row]
