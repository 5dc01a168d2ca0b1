"""The beginning of a run: choices are checked before TensorFlow is imported.

`check` makes complaints in order: first those that need no weights, then those
that compare with --init, for which a public folder is converted.
"""

import contextlib
import gc
import math
import os
import pathlib
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from infoword_tf import commands, errors, folders
from infoword_tf.adapters import NONE, RATE
from infoword_tf.choices import RunChoices, by_language
from infoword_tf.config import FILE, Config
from infoword_tf.data import parallel, text_pairs
from infoword_tf.data.opened import choose_tokenizer, open_corpora, weights_of
from infoword_tf.data.sources import SOURCES
from infoword_tf.encoders import ENCODERS
from infoword_tf.evaluation import judgements
from infoword_tf.objectives import (
    PAIRS,
    SUMS,
    TABLE,
    Auxiliary,
    check_settings,
    parse,
    setting_flags,
)
from infoword_tf.objectives.objective import ANSWERS
from infoword_tf.plan import Plan
from infoword_tf.resolve import (
    Resolved,
    answering,
    resolve_model,
    resolve_rows,
    resolve_text,
)
from infoword_tf.training.guide import KINDS
from infoword_tf.views import VIEWS

if TYPE_CHECKING:
    from infoword_tf.data.corpora import Corpus
    from infoword_tf.training.build import LabelledData

OF_PAIRS = (
    'pair_columns', 'pair_delimiter', 'pair_negatives', 'heldout_pairs',
    'pair_weights',
)  # fmt: skip
TRANSLATIONS = 'parallel', 'heldout_parallel', 'drop_equal'


class Checked(NamedTuple):
    """Choices that go together, and the decisions that follow.

    Attributes:
        choices: choices of the run, with workdirs in place of public folders.
        resolved: decisions that need no text.
        texts: opened corpora, by language; None: `open_data` opens them.
        judged: content of --best or --measure; None: neither names files.
    """

    choices: RunChoices
    resolved: Resolved
    texts: 'Mapping[str, Corpus] | None' = None
    judged: judgements.Judgements | None = None


@commands.takes(RunChoices, converts=False)
def train(choices: RunChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Trains rows of the table, as `python -m infoword_tf.train` does.

        infoword_tf.train(
            objectives='bert_nce:1,dim:0.8', corpus='text:books/*.txt',
            size='mini', steps=20_000, workdir='runs/books',
            settings={'dim.critic': 'cosine'},
        )

    Its choices are those of `infoword_tf.choices.RunChoices`, and the flags of
    the command. A run that was stopped goes on where its last checkpoint is.

    Returns:
        What metrics.json holds.

    Raises: UsageError, ValueError: choices that do not go together; the
    message says what to do.
    """
    return check_and_run(choices, chosen)


def check_and_run(
    choices: RunChoices,
    chosen: Mapping[str, Any],
    labelled: 'LabelledData | None' = None,
    resolved: Resolved | None = None,
) -> dict[str, Any]:
    """Checks the choices of a run, then runs: training/run.py.

    Args:
        choices: all of them.
        chosen: the explicit ones by name, for people.
        labelled: examples that the rows read.
        resolved: decisions, where they are known.

    Returns:
        What metrics.json holds.

    Raises: UsageError: choices that do not go together. ValueError: the text
    or --init cannot be read.
    """
    commands.require(vars(choices), workdir='a folder for this run')
    checked = check(choices, chosen, labelled, resolved)
    with ended_by_sigterm():
        commands.hush_tensorflow()
        from infoword_tf.training.run import run

        return run(checked, commands.flagfile(chosen), labelled)


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Raises `Preempted` on SIGTERM, within a context with nothing to save.

    Schedulers send it before they take a machine.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        raise errors.Preempted('by SIGTERM: the same command goes on')

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def check(
    choices: RunChoices,
    chosen: Mapping[str, Any],
    labelled: 'LabelledData | None' = None,
    resolved: Resolved | None = None,
) -> Checked:
    """Refuses choices that do not go together; args as of `check_and_run`.
    """
    # Before Keras is imported: what trains is TensorFlow's.
    os.environ['KERAS_BACKEND'] = 'tensorflow'
    refuse_infinite_numbers(choices)
    refuse_what_init_decides(choices)
    refuse_contradicting_ends(choices, labelled is not None)
    texts = judged = None
    if resolved is None:
        if labelled is None:
            choices = with_pairs(choices, chosen)
        text = resolve_text(choices)
        if labelled is None:
            refuse_labelled_rows(choices, text.plan)
            refuse_translations(choices, text.plan)
            texts = open_texts(choices, text.plan)
            refuse_shares(choices, chosen)
            refuse_shuffle_block(choices, text.plan)
            judged = read_judgements(choices)
            # The complaints below are about weights.
            choices = folders.with_workdirs(
                # Other strategies configure devices before anything uses one.
                choices, chosen, convert if choices.strategy == 'one' else None
            )
        started = Config.read(choices.init) if choices.init else None
        if labelled is not None and labelled.started is not None:
            started = labelled.started.config
        text = resolve_text(choices, started)  # --init may decide settings
        refuse_unreadable_guides(choices)
        if started is None:
            choices = with_older_defaults(choices, text.rows)
        resolved = resolve_model(choices, text, started)
        refuse_auxiliaries_without_answers(resolved.auxiliaries)
    check_settings({k: row.settings for k, row in resolved.rows.items()})
    if choices.remat and not ENCODERS[resolved.encoder.name].can_remat:
        raise errors.UsageError(
            'encoder_without_remat',
            f'--remat: the encoder {resolved.encoder.name} keeps all states; '
            'leave it out, or give --microbatch',
        )
    return Checked(choices, resolved, texts, judged)


def with_older_defaults(
    choices: RunChoices, rows: Iterable[str]
) -> RunChoices:
    """Returns choices with which a run that older code has begun goes on.

    Encoder and dropout are those of --workdir unless they are chosen, if the
    rows are the same.
    """
    folder = pathlib.Path(choices.workdir)
    if not choices.workdir or not (folder / FILE).is_file():
        return choices
    config = Config.read(folder)
    encoder = choices.encoder or config.encoder.name
    if encoder != config.encoder.name or set(config.rows) != set(rows):
        return choices
    rate = config.encoder.arguments['rate']
    if choices.dropout is not None:
        rate = choices.dropout
    return choices.decided(encoder=encoder, dropout=rate)


def convert(source: pathlib.Path, workdir: pathlib.Path) -> None:
    """Converts a public folder on the CPU."""
    from infoword_tf import convert as command

    commands.hush_tensorflow()
    import tensorflow as tf

    with tf.device('/cpu:0'):
        command.convert(source, workdir)
    gc.collect()  # models are full of circles


def refuse_unknown_rows(choices: RunChoices) -> None:
    """Raises UsageError for an explicit sum with unknown rows or weights."""
    try:
        if choices.objectives:
            parse(choices.objectives)
    except errors.InputError as error:
        raise errors.UsageError(error.id, str(error)) from None


def refuse_infinite_numbers(choices: RunChoices) -> None:
    """Raises UsageError for nan and infinity, which bounds let through."""
    for flag, value in {**vars(choices), **choices.settings}.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise errors.UsageError(
                'infinite_number', f'--{flag}={value} is no finite number'
            )


def refuse_what_init_decides(choices: RunChoices) -> None:
    """Raises UsageError for flags that --init decides, or --freeze alone."""
    for flag in ('vocab', 'lower_case', 'vocab_size', 'tokenizer'):
        if choices.init and getattr(choices, flag) is not None:
            raise errors.UsageError(
                'init_decides_vocab',
                f'--{flag} is decided by --init={choices.init}, which brings '
                'its vocabulary; leave it out',
            )
    if choices.adapter != NONE and not choices.init:
        raise errors.UsageError(
            'adapter_without_init',
            f'--adapter={choices.adapter} changes the encoder of --init; name '
            'one',
        )
    if choices.adapter != NONE and choices.freeze:
        raise errors.UsageError(
            'adapter_and_freeze',
            f'--adapter={choices.adapter} trains the encoder, --freeze does '
            'not; leave out one of the two',
        )
    if choices.freeze and not choices.init:
        raise errors.UsageError(
            'freeze_without_init',
            '--freeze freezes the encoder of --init; name one',
        )


def refuse_contradicting_ends(choices: RunChoices, labelled: bool) -> None:
    """Raises UsageError for flags of a run's length, end, or other processes.
    """
    for flag, instead in (
        ('minutes', '--steps or --epochs sets the length'),
        ('best', 'the weights of the best score are kept anyway'),
        ('measure', 'these are what is measured'),
        ('shuffle_block', 'all are shuffled'),
    ):
        if labelled and getattr(choices, flag):
            raise errors.UsageError(
                'flag_of_text_runs',
                f'--{flag} is for runs on text alone; with labelled examples '
                f'{instead}; leave it out',
            )
    if choices.epochs is not None and not (choices.pairs or labelled):
        raise errors.UsageError(
            'epochs_of_text',
            f'--epochs={choices.epochs:g} counts passes over --pairs; of '
            'running text give --steps or --minutes',
        )
    lengths = [
        f'--{flag}={value:g}' for flag in ('minutes', 'steps', 'epochs')
        if (value := getattr(choices, flag)) is not None
    ]  # fmt: skip
    if len(lengths) > 1 and not labelled:
        raise errors.UsageError(
            'several_lengths',
            f'{" and ".join(lengths)} each say how long; leave one',
        )
    if choices.patience_evals and not (choices.best or labelled):
        raise errors.UsageError(
            'patience_without_best',
            f'--patience_evals={choices.patience_evals} waits for better '
            'weights, and the last ones are kept; give --best too',
        )
    rewinds = choices.rewinds
    if choices.on_nonfinite == 'stop' and rewinds != RunChoices.rewinds:
        raise errors.UsageError(
            'rewinds_of_stop',
            f'--rewinds={rewinds} goes with --on_nonfinite=rewind',
        )
    if choices.strategy == 'multiworker' and choices.minutes:
        raise errors.UsageError(
            'minutes_of_machines',
            '--minutes: each machine has a rate of its own; give --steps',
        )


def refuse_labelled_rows(choices: RunChoices, plan: Plan) -> None:
    """Raises UsageError for rows whose examples only other commands read."""
    if plan.labelled:
        raise errors.UsageError(
            'labelled_objectives',
            f'--objectives={choices.objectives} reads labelled examples; '
            'train it with tasks.classify, tasks.glue, tasks.squad or '
            'tasks.distill',
        )


def with_pairs(
    choices: RunChoices, chosen: Mapping[str, Any]
) -> RunChoices:
    """Sets the sum, and settings and rates that --pairs decides.

    Args: as of `check_and_run`.

    Raises: UsageError: no row reads pairs. ValueError: files, columns or
    weights are missing.
    """
    pairs = choices.pairs
    if pairs is None:
        for flag, folder in guides_of(choices).items():
            raise errors.UsageError(
                'guide_without_pairs',
                f'--{flag}={folder} is for --pairs: copies of a sentence are '
                'alike for every model; leave it out',
            )
        for flag in OF_PAIRS:
            if getattr(choices, flag) not in (None, ()):
                raise errors.UsageError(
                    'flag_without_pairs', f'--{flag} is for --pairs; give both'
                )
        named = SUMS.get(choices.objectives)
        if named and 'sentences.once' in named.settings:
            raise errors.UsageError(
                'sum_without_pairs',
                f'--objectives={choices.objectives} is for --pairs; give both',
            )
        return choices
    if 'objectives' not in chosen:
        choices = choices.decided(objectives=PAIRS)
    if choices.init and (named := SUMS.get(choices.objectives)):
        tuned = {k: v for k, v in named.tuned.items() if k not in chosen}
        if choices.adapter != NONE and 'learning_rate' in tuned:
            tuned['learning_rate'] *= RATE
        choices = choices.decided(**tuned)
    if 'sentences.pairs' not in setting_flags(resolve_rows(choices)):
        known = (row for row in TABLE if 'pairs' in TABLE[row].settings)
        raise errors.UsageError(
            'pairs_unread',
            f'--pairs={pairs}: no row of --objectives='
            f'{choices.objectives} reads pairs; these do: {", ".join(known)}',
        )
    layouts = text_pairs.roles_of(
        pairs, choices.pair_columns, choices.pair_delimiter,
        choices.pair_negatives,
    )  # fmt: skip
    text_pairs.weights_of(choices.pair_weights, [x.where for x in layouts])
    texts = text_pairs.texts_of(layouts)
    return choices.decided({'sentences.pairs': texts})


def guides_of(choices: RunChoices) -> dict[str, str]:
    """Returns the workdirs of guides and judges, by flag."""
    return {
        flag: folder
        for flag, folder in choices.settings.items()
        if folder and flag.rpartition('.')[2] in KINDS
    }


def refuse_unreadable_guides(choices: RunChoices) -> None:
    """Raises if a guide or judge is no workdir; errors as of `Config.read`."""
    for folder in guides_of(choices).values():
        Config.read(folder)


def refuse_translations(choices: RunChoices, plan: Plan) -> None:
    """Raises for translations that no row reads, or that are missing."""
    if plan.reads('translations'):
        if not choices.parallel:
            readers = plan.readers_of('translations')
            raise errors.UsageError(
                'missing_translations',
                f'{", ".join(readers)} of --objectives='
                f'{choices.objectives} reads translations; name some with '
                '--parallel, as --parallel=europarl.{de,en}',
            )
        parallel.check(choices.parallel, choices.heldout_parallel)
        return
    for flag in TRANSLATIONS:
        if getattr(choices, flag):
            known = ', '.join(
                row for row, entry in TABLE.items()
                if any(VIEWS[VIEWS.root(v)].source == 'translations'
                       for v in entry.views)
            )  # fmt: skip
            raise errors.UsageError(
                'translations_unread',
                f'--{flag}: no row of --objectives={choices.objectives} reads '
                f'translations; these do: {known}',
            )


def open_texts(
    choices: RunChoices, plan: Plan
) -> 'Mapping[str, Corpus] | None':
    """Opens the corpora; raises for files that are missing.

    Returns:
        By language, the corpora. None: no row reads text, or it is `pydocs`,
        which may have to be built first.
    """
    if not plan.reads('text'):
        return None
    choose_tokenizer(choices)
    if by_language(choices.corpus) == {'': 'pydocs'}:
        return None
    return open_corpora(choices)


def refuse_shares(choices: RunChoices, chosen: Mapping[str, Any]) -> None:
    """Raises UsageError for shares of the updates that no text has."""
    several = len(by_language(choices.corpus)) > 1 or choices.parallel
    if 'language_exponent' in chosen and not several:
        raise errors.UsageError(
            'exponent_of_one_language',
            f'--language_exponent={choices.language_exponent:g} is for text of '
            'several languages; name them as --corpus=de=... --corpus=en=...',
        )
    if not weights_of(choices):
        return
    for flag, is_chosen, why in (
        ('language_exponent', 'language_exponent' in chosen,
         'is of sizes, which these weights replace'),
        ('parallel', choices.parallel, 'has shares by --language_exponent'),
    ):  # fmt: skip
        if is_chosen:
            raise errors.UsageError(
                'weights_replace_flag',
                f'--corpus_weights={",".join(choices.corpus_weights)}: '
                f'--{flag} {why}; leave out one of the two',
            )


def refuse_shuffle_block(choices: RunChoices, plan: Plan) -> None:
    """Raises UsageError for blocks where text is read in another order."""
    if choices.shuffle_block is None:
        return
    readers: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for source_spec in plan.source_specs:
        by_blocks = SOURCES[source_spec.source].by_blocks
        readers[by_blocks] += plan.readers(source_spec)
    for is_refused, rows, why in (
        (readers[False], readers[False], 'texts from all over the corpus'),
        (not readers[True], readers[None], 'no corpus that is shuffled'),
    ):
        if is_refused:
            raise errors.UsageError(
                'shuffle_block_unread',
                f'--shuffle_block={choices.shuffle_block}: '
                f'{", ".join(dict.fromkeys(rows))} of --objectives='
                f'{choices.objectives} reads {why}; leave it out',
            )


def refuse_auxiliaries_without_answers(
    auxiliaries: Mapping[str, Auxiliary],
) -> None:
    """Raises for workdirs that auxiliary encoders cannot begin with."""
    for name, auxiliary in auxiliaries.items():
        if not auxiliary.workdir:
            continue
        rows, answers = Config.read(auxiliary.workdir).rows, auxiliary.answers
        if answers and not answering(answers, rows):
            raise errors.UsageError(
                'auxiliary_without_answer',
                f'{name} begins with {auxiliary.workdir}, whose rows '
                f'({", ".join(rows) or "none"}) {ANSWERS[answers[0]]}: that '
                f'takes {" or ".join(answering(answers))}; name another '
                'workdir',
            )


def read_judgements(choices: RunChoices) -> judgements.Judgements | None:
    """Reads the judgements of --best or --measure, if one is named.

    Raises:
        UsageError: it is missing, or cannot be read; or both name something.
    """
    flag, spec = 'measure', choices.measure
    if isinstance(choices.best, str):
        if spec:
            raise errors.UsageError(
                'best_and_measure',
                f'--best={choices.best} is measured with every evaluation; '
                f'leave out --measure={spec}',
            )
        flag, spec = 'best', choices.best
    if spec is None:
        return None
    try:
        return judgements.read(spec)
    except (OSError, ValueError) as error:
        raise errors.UsageError(
            'unreadable_judgements', f'--{flag}={spec}: {error}'
        ) from None
