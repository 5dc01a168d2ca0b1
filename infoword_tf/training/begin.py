"""How a run begins: choices are checked before TensorFlow is imported.
"""

import math
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infoword_tf import commands, errors, preemption
from infoword_tf.choices import RunChoices, by_language
from infoword_tf.config import Config
from infoword_tf.data import parallel, text_pairs
from infoword_tf.data.opened import check_text, weights_of
from infoword_tf.data.sources import SOURCES
from infoword_tf.encoders import ENCODERS
from infoword_tf.evaluation import judgements
from infoword_tf.objectives import TABLE, parse
from infoword_tf.objectives.row import ANSWERS
from infoword_tf.plan import answering, auxiliaries_of
from infoword_tf.resolve import Resolved, resolve, resolve_rows
from infoword_tf.views import VIEWS, root

if TYPE_CHECKING:
    from infoword_tf.training.run import LabelledData


# Flags of translations.
TRANSLATIONS = 'parallel', 'heldout_parallel', 'drop_equal'


def check_brought(given: RunChoices) -> None:
    """Complains of choices that --init decides."""
    for flag in ('vocab', 'lower_case', 'vocab_size', 'tokenizer'):
        if given.init and getattr(given, flag) is not None:
            raise errors.UsageError(
                f'--{flag} is decided by --init={given.init}, which brings '
                'its vocabulary; leave it out'
            )
    if given.freeze and not given.init:
        raise errors.UsageError(
            '--freeze freezes the encoder of --init; name one'
        )


def check_finite(given: RunChoices) -> None:
    """Complains of nan and infinity, which bounds let through."""
    for flag, value in {**vars(given), **given.settings}.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise errors.UsageError(f'--{flag}={value} is no finite number')


def check_end(given: RunChoices, labelled: bool) -> None:
    """Complains of choices about the end of a run that do not go together."""
    for flag, instead in (
        ('minutes', '--steps or --epochs sets the length'),
        ('best', 'the weights of the best score are kept anyway'),
        ('measure', 'these are what is measured'),
        ('shuffle_block', 'all are shuffled'),
        ('data_service', 'batches are made here'),
    ):
        if labelled and getattr(given, flag):
            raise errors.UsageError(
                f'--{flag} is for runs on text alone; with labelled examples '
                f'{instead}; leave it out'
            )
    if given.minutes is not None and given.steps is not None:
        raise errors.UsageError(
            f'--minutes={given.minutes:g} and --steps={given.steps} both '
            'say how long; leave out one of the two'
        )
    if given.patience_evals and not (given.best or labelled):
        raise errors.UsageError(
            f'--patience_evals={given.patience_evals} waits for better '
            'weights, and the last ones are kept; give --best too'
        )
    if given.on_nonfinite == 'stop' and given.rewinds != RunChoices.rewinds:
        raise errors.UsageError(
            f'--rewinds={given.rewinds} goes with --on_nonfinite=rewind'
        )
    for address in given.data_service:
        if not re.fullmatch(r'.+:\d+', address):
            raise errors.UsageError(
                f'--data_service={address}: give HOST:PORT, as cpu1:8600'
            )
    if given.strategy == 'multiworker':
        if given.minutes:
            raise errors.UsageError(
                '--minutes: each machine has a rate of its own; give --steps'
            )


def judged_by(given: RunChoices) -> judgements.Judgements | None:
    """What --best or --measure names, read; None: neither names anything.

    Raises:
        UsageError: it is not there, or cannot be read; or both do.
    """
    flag, spec = 'measure', given.measure
    if isinstance(given.best, str):
        if spec:
            raise errors.UsageError(
                f'--best={given.best} is measured with every evaluation; leave '
                f'out --measure={spec}'
            )
        flag, spec = 'best', given.best
    if spec is None:
        return None
    try:
        return judgements.read(spec)
    except (OSError, ValueError) as error:
        raise errors.UsageError(f'--{flag}={spec}: {error}') from None


def with_pairs(given: RunChoices) -> RunChoices:
    """With the settings of rows that --pairs decides.

    Raises:
        UsageError: no row reads pairs.
        ValueError: the files are not there, or lack a column; weights that
            are not theirs.
    """
    for flag, folder in given.settings.items():
        if not flag.endswith('.guide') or not folder:
            continue
        if given.pairs is None:
            raise errors.UsageError(
                f'--{flag}={folder} is for --pairs: of copies of a sentence '
                'every guide says that they are alike; leave it out'
            )
        Config.read(folder)  # complains
    if given.pairs is None:
        for flag in (
            'pair_columns', 'pair_delimiter', 'pair_negatives',
            'heldout_pairs', 'pair_weights',
        ):  # fmt: skip
            if getattr(given, flag) not in (None, ()):
                raise errors.UsageError(f'--{flag} is for --pairs; give both')
        return given
    rows = [
        row for row in parse(given.objectives) if 'pairs' in TABLE[row].settings
    ]
    if not rows:
        known = ', '.join(r for r in TABLE if 'pairs' in TABLE[r].settings)
        raise errors.UsageError(
            f'--pairs={given.pairs}: no row of --objectives='
            f'{given.objectives} reads pairs; these do: {known}'
        )
    layouts = text_pairs.roles_of(
        given.pairs, given.pair_columns, given.pair_delimiter,
        given.pair_negatives,
    )  # fmt: skip
    text_pairs.weights_of(given.pair_weights, [x.where for x in layouts])
    texts = text_pairs.texts_of(layouts)
    return given.decided({f'{row}.pairs': texts for row in rows})


def check_translations(given: RunChoices, resolved: Resolved) -> None:
    """Complains of translations that no row reads, or that are not there.

    Raises:
        UsageError: as said.
        ValueError: as `parallel.check`.
    """
    if resolved.plan.reads('translations'):
        if not given.parallel:
            readers = resolved.plan.readers_of('translations')
            raise errors.UsageError(
                f'{", ".join(readers)} of --objectives='
                f'{given.objectives} reads translations; name some with '
                '--parallel, as --parallel=europarl.{de,en}'
            )
        parallel.check(given.parallel, given.heldout_parallel)
        return
    for flag in TRANSLATIONS:
        if getattr(given, flag):
            known = ', '.join(
                row for row, entry in TABLE.items()
                if any(VIEWS[root(v)].source == 'translations'
                       for v in entry.views)
            )  # fmt: skip
            raise errors.UsageError(
                f'--{flag}: no row of --objectives={given.objectives} reads '
                f'translations; these do: {known}'
            )


def check_languages(given: RunChoices, chosen: Mapping[str, Any]) -> None:
    """Complains of shares of the updates that are no text's."""
    several = len(by_language(given.corpus)) > 1 or given.parallel
    if 'language_exponent' in chosen and not several:
        raise errors.UsageError(
            f'--language_exponent={given.language_exponent:g} is for text of '
            'several languages; name them as --corpus=de=... --corpus=en=...'
        )
    if not weights_of(given):
        return
    for flag, there, why in (
        ('language_exponent', 'language_exponent' in chosen,
         'is of sizes, which these weights replace'),
        ('parallel', given.parallel, 'has shares by --language_exponent'),
    ):  # fmt: skip
        if there:
            raise errors.UsageError(
                f'--corpus_weights={",".join(given.corpus_weights)}: --{flag} '
                f'{why}; leave out one of the two'
            )


def check_shuffle(given: RunChoices, resolved: Resolved) -> None:
    """Complains of blocks where text is read in another order."""
    if given.shuffle_block is None:
        return
    plan, found = resolved.plan, {True: [], False: [], None: []}
    for source_spec in plan.source_specs:
        by_blocks = SOURCES[source_spec.source].by_blocks
        found[by_blocks] += plan.readers(source_spec)
    for lacking, rows, why in (
        (found[False], found[False], 'texts from all over the corpus'),
        (not found[True], found[None], 'no corpus that is shuffled'),
    ):
        if lacking:
            raise errors.UsageError(
                f'--shuffle_block={given.shuffle_block}: '
                f'{", ".join(dict.fromkeys(rows))} of --objectives='
                f'{given.objectives} reads {why}; leave it out'
            )


def check_auxiliaries(resolved: Resolved) -> None:
    """Complains of workdirs that auxiliary encoders cannot begin with.

    Raises:
        UsageError: no row of such a one answers what the run asks.
        OSError, ValueError: it is no workdir.
    """
    rows = {row: entry.settings for row, entry in resolved.rows.items()}
    for name, auxiliary in auxiliaries_of(rows).items():
        if not auxiliary.workdir:
            continue
        theirs, asked = Config.read(auxiliary.workdir).rows, auxiliary.answers
        if asked and not answering(asked, theirs):
            raise errors.UsageError(
                f'{name} begins with {auxiliary.workdir}, whose rows '
                f'({", ".join(theirs) or "none"}) {ANSWERS[asked[0]]}: that '
                f'takes {" or ".join(answering(asked))}; name another workdir'
            )


def checked(
    given: RunChoices,
    chosen: Mapping[str, Any],
    labelled: 'LabelledData | None' = None,
    resolved: Resolved | None = None,
) -> tuple[RunChoices, Resolved]:
    """Looks at what was chosen; args and errors as of `begin`.

    Returns:
        The choices with those that their text decides, and what they decide.
    """
    # Before Keras is imported: what trains is TensorFlow's.
    os.environ['KERAS_BACKEND'] = 'tensorflow'
    check_finite(given)
    check_brought(given)
    check_end(given, labelled is not None)
    if resolved is None:
        started = Config.read(given.init) if given.init else None
        if labelled is not None and labelled.started is not None:
            started = labelled.started.config
        if labelled is None:
            resolve_rows(given)
            given = with_pairs(given)
        resolved = resolve(given, started)
        check_auxiliaries(resolved)
        if labelled is None:
            check_translations(given, resolved)
            if resolved.plan.reads('text'):
                check_text(given)
            check_languages(given, chosen)
            check_shuffle(given, resolved)
    if given.remat and not ENCODERS[resolved.encoder.name].can_remat:
        raise errors.UsageError(
            f'--remat: the encoder {resolved.encoder.name} keeps all states; '
            'leave it out, or give --microbatch'
        )
    return given, resolved


def begin(
    given: RunChoices,
    chosen: Mapping[str, Any],
    labelled: 'LabelledData | None' = None,
    resolved: Resolved | None = None,
) -> dict[str, Any]:
    """Looks at what was chosen, and runs it: training/run.py.

    Args:
        chosen: by name those that were made, for people.
        resolved: what the choices decide, where that is known.

    Returns:
        What metrics.json holds.

    Raises: UsageError: what was chosen cannot be. ValueError: the text or
    --init cannot be read.
    """
    commands.require(vars(given), workdir='a folder for this run')
    given, resolved = checked(given, chosen, labelled, resolved)
    judged = judged_by(given)
    with preemption.handled():
        commands.hush_tensorflow()
        from infoword_tf.training.run import run

        return run(given, resolved, commands.flagfile(chosen), labelled, judged)


@commands.takes(RunChoices)
def train(given: RunChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
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

    Raises: UsageError, ValueError: what was chosen cannot be; the message says
    what to do.
    """
    return begin(given, chosen)
