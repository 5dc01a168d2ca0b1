"""What decides a run: choices in, config and plan out. Pure; no flag is read.

The trainer, `show`, the benchmarks and the tests decide here and nowhere else.
A choice has the name of its flag; None means that it was not made.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from infoword_tf.choices import ModelChoices
from infoword_tf.config import (
    Config,
    DenseConfig,
    EncoderConfig,
    RowConfig,
    TokenizerConfig,
)
from infoword_tf.encoders import ENCODERS, FLAGS
from infoword_tf.errors import UsageError
from infoword_tf.objectives import (
    SUMS,
    TABLE,
    Vector,
    built,
    decided,
    parse,
)
from infoword_tf.plan import (
    Plan,
    auxiliaries_of,
    encoder_arguments,
    make_plan,
)
from infoword_tf.sizes import SIZES
from infoword_tf.text.layout import layout_of

WORDPIECE = TokenizerConfig('wordpiece', lower_case=True)


@dataclasses.dataclass(frozen=True)
class Resolved:
    """What was decided, before the text and the machine are known.

    Attributes:
        rows: by name, weight and every setting.
        plan: how batches are made.
        encoder: its `vocab_size` is 0 until `config`, unless it was started
            from another.
        memory_length: None for an encoder without memory.
        max_length: T, the limit of what is loaded later.
        vector: how a text becomes a vector.
        kept: fields of the config that stay as --init has them.
    """

    rows: dict[str, RowConfig]
    plan: Plan
    encoder: EncoderConfig
    memory_length: int | None
    max_length: int
    vector: Vector
    kept: Mapping[str, Any]

    def config(
        self,
        vocab_size: int,
        tokenizer: TokenizerConfig = WORDPIECE,
        precision: str = 'float32',
        replicas: int = 1,
        run: Mapping[str, Any] | None = None,
    ) -> Config:
        """The whole config.

        Args:
            vocab_size: V.
            tokenizer: of the text.
            precision: a Keras dtype policy.
            replicas: of the run.
            run: by flag, what decides the weights.
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
            replicas=replicas,
            run=dict(run or {}),
            **self.kept,
        )


def resolve(choices: ModelChoices, started: Config | None = None) -> Resolved:
    """Decides what the choices leave open, or says what does not go together.

    Args:
        choices: of the run.
        started: config of the workdir that --init names.

    Raises:
        UsageError: what was chosen cannot be; the message says what to do.
    """
    rows = resolve_rows(choices)
    settings = {row: entry.settings for row, entry in rows.items()}
    try:
        plan = make_plan(
            settings, choices.seq_len, choices.masking, choices.mask_share
        )
        auxiliaries_of(settings)
    except ValueError as error:
        raise _complaint(choices, str(error)) from None
    for row in rows:
        wanted = decided(TABLE[row].heldout_candidates, settings[row])
        if choices.batch_size < 2 and wanted:
            raise UsageError(
                f'--batch_size={choices.batch_size}: the candidates of {row} '
                'come from other sequences of the batch; take 2 or more'
            )
    name = resolve_encoder(choices, rows, started)
    arguments = _arguments(choices, rows, name, started)
    vector = _vector(choices, rows, started)
    return Resolved(
        rows=rows,
        plan=plan,
        encoder=EncoderConfig(name, arguments),
        memory_length=_memory_length(choices, name),
        max_length=max(choices.seq_len, started.max_length if started else 0),
        vector=vector,
        kept=_kept(vector, arguments['width'], started),
    )


def _complaint(choices: ModelChoices, message: str) -> UsageError:
    return UsageError(f'--objectives={choices.objectives}: {message}')


def resolve_rows(choices: ModelChoices) -> dict[str, RowConfig]:
    """The rows of a sum that are built, with all their settings.

    Those of a named sum are its publication's, where no flag says otherwise.

    Raises:
        UsageError: as `objectives.parse`; a setting of another row, out of
            bounds, or without what it needs.
    """
    try:
        weights = parse(choices.objectives)
    except ValueError as error:
        raise UsageError(str(error)) from None
    rows = {
        row: RowConfig(
            weight, {name: s.default for name, s in TABLE[row].settings.items()}
        )
        for row, weight in sorted(built(weights).items())
    }
    named = SUMS.get(choices.objectives)
    chosen = {**(named.settings if named else {}), **choices.settings}
    for flag, value in chosen.items():
        row, _, name = flag.partition('.')
        if row not in rows:
            raise UsageError(
                f'--{flag} is for {row}, not for '
                f'--objectives={choices.objectives}'
            )
        known = TABLE[row].settings
        if name not in known:
            raise UsageError(
                f'--{flag}: {row} has no such setting; it has '
                f'{", ".join(known) or "none"}'
            )
        try:
            rows[row].settings[name] = known[name].check(flag, value)
        except ValueError as error:
            raise UsageError(str(error)) from None
    for flag in chosen:
        row, _, name = flag.partition('.')
        if needs := TABLE[row].settings[name].needs:
            other, wanted = needs
            if rows[row].settings[other] != wanted:
                raise UsageError(
                    f'--{flag} is for --{row}.{other}={wanted}; give both'
                )
    return rows


def resolve_encoder(
    choices: ModelChoices,
    rows: Mapping[str, Any],
    started: Config | None = None,
) -> str:
    """The name of the encoder that all rows allow, that of --init first.

    Raises:
        UsageError: there is none, or not the one that was chosen.
    """
    allowed = {
        row: decided(TABLE[row].encoders, entry.settings)
        for row, entry in rows.items()
    }
    if choices.encoder is not None:
        for row, encoders in allowed.items():
            if choices.encoder not in encoders:
                known = ', '.join(ENCODERS)
                raise UsageError(
                    f'--encoder={choices.encoder}: {row} allows '
                    f'{", ".join(encoders)} (there are {known})'
                )
        return choices.encoder
    first = [started.encoder.name] if started is not None else []
    for name in [*first, *ENCODERS]:
        if all(name in encoders for encoders in allowed.values()):
            return name
    listed = (f'{row} allows {", ".join(e)}' for row, e in allowed.items())
    raise _complaint(
        choices,
        f'no encoder serves all rows ({"; ".join(listed)}); train them apart',
    )


def _arguments(
    choices: ModelChoices,
    rows: Mapping[str, RowConfig],
    name: str,
    started: Config | None,
) -> dict[str, Any]:
    """Of the encoder: of its size, of the rows, and of the flags.

    Raises:
        UsageError: rows that fix one differently, a flag that this encoder
            has not or that --init or a row decides, a text beyond the
            positions.
    """
    taken = ENCODERS[name].settings
    fixed: dict[str, Any] = {}
    for row, entry in rows.items():
        wanted = encoder_arguments(row, name, entry.settings)
        for argument, value in wanted.items():
            if fixed.setdefault(argument, value) != value:
                raise _complaint(
                    choices,
                    f'{row} wants an encoder with {argument} {value}, another '
                    f'row {fixed[argument]}; train them apart',
                )
    for flag, argument_of in FLAGS.items():
        value, argument = getattr(choices, flag), argument_of.get(name)
        if value is None:
            continue
        if argument is None and flag in taken:  # which its size decides
            raise UsageError(
                f'--{flag}={value} is for the encoder '
                f'{", ".join(argument_of)}, not for {name}; leave it out'
            )
        if argument is None:
            raise UsageError(
                f'--{flag}: the encoder {name} of '
                f'--objectives={choices.objectives} has none; leave it out'
            )
        if started is not None and not taken[argument].free:
            raise UsageError(f'--{flag} is decided by --init; leave it out')
        if fixed.setdefault(argument, value) != value:
            raise _complaint(
                choices,
                f'--{flag}={value}, but the {argument} is fixed as '
                f'{fixed[argument]}; leave it out',
            )
    if choices.width and choices.size:
        raise UsageError(
            f'--width={choices.width} and --size={choices.size} are both '
            'a width; leave out one of the two'
        )
    if choices.same_length and not fixed.get('causal'):
        raise UsageError(
            '--same_length is for rows whose tokens see no later ones, not '
            f'for --objectives={choices.objectives}; leave it out'
        )
    if choices.size is not None and choices.size not in SIZES:
        raise UsageError(
            f'--size={choices.size}: known are {", ".join(SIZES)}'
        )
    if started is not None:
        arguments = {**_started(choices, rows, name, started), **fixed}
        arguments['rate'] = choices.dropout
        if not arguments.get('causal'):  # rows that see what comes later
            arguments.pop('same_length', None)
    else:
        arguments = {
            'vocab_size': 0,
            'rate': choices.dropout,
            **SIZES['tiny'],
            **{k: s.default for k, s in taken.items() if s.flag},
            **(SIZES[choices.size] if choices.size else {}),
            **fixed,
        }
        arguments = {k: v for k, v in arguments.items() if k in taken}
    if choices.seq_len > arguments['max_length']:
        raise UsageError(
            f'--seq_len={choices.seq_len}: the encoder has '
            f'{arguments["max_length"]} positions; lower it'
            + ('' if started else ', or raise --positions')
        )
    return arguments


def _started(
    choices: ModelChoices,
    rows: Mapping[str, RowConfig],
    name: str,
    started: Config,
) -> dict[str, Any]:
    """Arguments of the encoder that --init has.

    Raises:
        UsageError: it is of another size or kind than was chosen.
    """
    arguments = started.encoder.arguments
    size = SIZES[choices.size] if choices.size else {}
    if any(arguments.get(k, v) != v for k, v in size.items()):
        raise UsageError(
            f'--size={choices.size} is not the size of --init '
            f'({arguments.get("layers", 0)} layers, {arguments["width"]} '
            'wide); leave out one of the two'
        )
    if started.encoder.name != name:
        raise UsageError(
            f'--init holds the encoder {started.encoder.name!r}, the rows '
            f'want {name!r}'
        )
    taken = ENCODERS[name].settings
    for row, entry in rows.items():
        for setting, value in entry.settings.items():
            fixed = TABLE[row].settings[setting].encoder.get(value, {})
            for argument, wanted in fixed.items():
                has = arguments.get(argument, taken[argument].default)
                if has != wanted:
                    raise UsageError(
                        f'--{row}.{setting}={value} wants an encoder with '
                        f'{argument} {wanted}, --init holds one with {has}; '
                        'set it as that run did'
                    )
    return dict(arguments)


def _memory_length(choices: ModelChoices, encoder: str) -> int | None:
    """T by default; None for an encoder that has no memory.

    Raises:
        UsageError: --memory_length for such an encoder.
    """
    if not ENCODERS[encoder].has_memory:
        if choices.memory_length is not None:
            raise UsageError(
                f'--memory_length={choices.memory_length}: the encoder '
                f'{encoder} of --objectives={choices.objectives} has no '
                'memory of tokens; leave it out'
            )
        return None
    if choices.memory_length is None:
        return choices.seq_len
    return choices.memory_length


def _kept(
    vector: Vector, width: int, started: Config | None
) -> dict[str, Any]:
    """What becomes of a vector that is pooled, as `Resolved.kept`."""
    new = tuple(DenseConfig(width, activation) for activation in vector.dense)
    if started is None or not vector.keeps:
        return {'dense': new}
    return {
        'dense': started.dense or new,
        'normalize': started.normalize,
        'prompts': started.prompts,
        'prompt': started.prompt,
    }


def _vector(
    choices: ModelChoices,
    rows: Mapping[str, RowConfig],
    started: Config | None,
) -> Vector:
    """Of the row of the highest priority; all have one layout.

    That of labelled texts is as --init has it, or as another row that reads
    them wants it.

    Raises:
        UsageError: they have not.
    """
    vectors = {
        row: decided(TABLE[row].vector, entry.settings)
        for row, entry in rows.items()
    }
    if None in vectors.values():
        from infoword_tf.layers.pooling import LEARNED

        own = Vector()
        if started is not None:
            learned = started.pooling in LEARNED  # by a row of that run
            own = Vector(
                'mean' if learned else started.pooling,
                started.similarity,
                started.layout,
                priority=-1,
            )
        if started is None or not layout_of(started.layout).first:
            for row, vector in vectors.items():
                reads = TABLE[row].reads(rows[row].settings)
                if vector is not None and 'examples' in reads:
                    own = own._replace(layout=vector.layout)
        vectors = {row: vector or own for row, vector in vectors.items()}
    layouts = {vector.layout for vector in vectors.values()}
    if len(layouts) > 1:
        shown = [x if isinstance(x, str) else x.shown for x in layouts]
        raise _complaint(
            choices,
            f'the rows lay a text out differently ({", ".join(shown)}); '
            'train them apart',
        )
    chosen = max(vectors.values(), key=lambda vector: vector.priority)
    if started is not None:
        ours, theirs = layout_of(chosen.layout), layout_of(started.layout)
        same = 'before', 'after', 'last_segment', 'first'
        if all(getattr(ours, x) == getattr(theirs, x) for x in same):
            # A lone text is as it was; of two it stays as there.
            chosen = chosen._replace(layout=started.layout)
    return chosen
