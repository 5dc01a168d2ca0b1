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

from infoword_tf.choices import ModelChoices
from infoword_tf.config import (
    AdapterConfig,
    Config,
    EncoderConfig,
    RowConfig,
    TokenizerConfig,
)
from infoword_tf.critics import CRITICS
from infoword_tf.errors import InputError, UsageError
from infoword_tf.model_choice import (
    adapter_of,
    arguments_of,
    dropout_of,
    is_of_adapter,
    memory_of,
    resolve_encoder,
    sides_of,
    transform_of,
    vector_fields,
    vector_of,
)
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
from infoword_tf.views.sentences import PAIRED

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
    arguments = arguments_of(choices, rows, name, started)
    arguments['rate'] = dropout_of(
        choices, text.plan, name, arguments['width'], started=started
    )
    vector = vector_of(choices, rows, started)
    return Resolved(
        rows=rows,
        plan=text.plan,
        auxiliaries=text.auxiliaries,
        encoder=EncoderConfig(name, arguments),
        memory_length=memory_of(choices, name),
        max_length=max(choices.seq_len, started.max_length if started else 0),
        vector=vector,
        vector_fields=vector_fields(
            vector, sides_of(rows, choices), arguments['width'], started
        ),
        adapter=adapter_of(choices, text.auxiliaries, name, arguments),
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
    chosen = {k: x for k, x in chosen.items() if not is_of_adapter(k)}
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
            rows[row].settings.update(transform_of(started))
    for flag in choices.settings:
        if flag not in known:  # of adapters
            continue
        setting, (row, *_) = known[flag]
        if setting.needs:
            other, needed = setting.needs
            if rows[row].settings[other] not in needed:
                either = ' or '.join(map(str, needed))
                raise UsageError(
                    'setting_without_effect',
                    f'--{flag} is for --{flag_of(row, other)}={either}; give '
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
