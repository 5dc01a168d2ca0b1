r"""Questions that a context answers: SQuAD 1.1 and 2.0, or files like them.

    python -m tasks.squad --init=runs/minilm --train=train-v1.1.json \
        --dev=dev-v1.1.json --workdir=runs/squad
    python -m tasks.squad --init=runs/minilm --train=train-v2.0.json \
        --dev=dev-v2.0.json --version2 --workdir=runs/squad2

Trains the row `span` and keeps the weights of the best F1 on --dev. With
--version2 a question may have no answer: F1 is that at the best threshold of
the odds that there is none, which the workdir keeps. All flags of
`infoword_tf.train` count; --span.end=conditional is XLNet's head. In WORKDIR:

    predictions.json   by question its answer, as the official scripts read it
    nbest.json         its best answers, with probabilities and bytes
    null_odds.json     how much more "no answer" scores (--version2)

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import again, flag
from infoword_tf.config import Config
from tasks import finetune, squad_scores

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded
    from tasks.squad_answers import Predictions
    from tasks.squad_data import Features, Questions

SEQ_LEN = 384  # Devlin et al. 2019, §4.2, and its code; the epochs too


@dataclasses.dataclass(frozen=True)
class Choices(finetune.Choices):
    """All that the command may choose."""

    train: str | None = flag(None, 'A SQuAD file to train on.')
    dev: str | None = flag(
        None, 'A SQuAD file on which the weights are selected.')
    version2: bool = flag(False, 'Questions may have no answer.')
    dev_examples: int | None = flag(
        None, 'Evaluate on this many questions of --dev only.', at_least=1)
    seq_len: int = again(finetune.Choices, 'seq_len', SEQ_LEN)
    epochs: float = again(finetune.Choices, 'epochs', 2.0)


class Squad(finetune.Task):
    """Its row is `span`."""

    @property
    def row(self) -> str:
        """Of the table."""
        return 'span'


TASK = Squad('squad', ('f1', 'exact'))


def parts_of(own: Choices) -> 'dict[str, Questions]':
    """Training and dev questions.

    Raises:
        UsageError: they do not say where.
        FileNotFoundError, ValueError: a file cannot be read.
    """
    commands.require(
        vars(own),
        train='a file of SQuAD to train on',
        dev='a file of SQuAD to choose the weights by',
    )
    for path in (own.train, own.dev):
        if not pathlib.Path(path).is_file():  # before TensorFlow is imported
            raise FileNotFoundError(f'{path}: there is no such file')

    from tasks import squad_data

    return {
        part: squad_data.read(pathlib.Path(path), own.version2).subset(count)
        for part, path, count in (
            ('train', own.train, own.examples),
            ('heldout', own.dev, own.dev_examples),
        )
    }


def judged(
    questions: 'Questions', found: 'Predictions', version2: bool
) -> tuple[dict[str, float], float]:
    """Scores of answers, percent.

    Returns:
        'f1' and 'exact', with `version2` at the best threshold and for
        questions with and without an answer too; and that threshold, nats.
    """
    golds = questions.golds_by_id
    if not version2:
        scores = squad_scores.scores(golds, found.texts)
        return {'f1': scores['f1'], 'exact': scores['exact_match']}, 0.0
    from infoword_tf.inference.answers import SURE

    raw = squad_scores.raw_scores(golds, found.texts).f1
    _, odds = squad_scores.best_threshold(
        golds, found.texts, raw, found.null_odds
    )
    threshold = -SURE if odds is None else odds
    said = found.predictions(threshold)
    return squad_scores.scores2(golds, said), threshold


def measure_of(
    questions: 'Questions', features: 'Features', version2: bool, longest: int
) -> Callable[..., dict[str, float]]:
    """`judged` of predictions for all windows; `longest`: pieces at most."""

    def measure(predictions: dict[str, np.ndarray], view: Any) -> dict:
        from infoword_tf.views.examples import by_example
        from tasks import squad_answers

        of_tokens = {'last'} if 'starts' in predictions else {'first', 'last'}
        said = {
            name: squad_answers.of_context(values, view)
            if name in of_tokens
            else by_example(values, view)
            for name, values in predictions.items()
        }
        found = squad_answers.answers(
            questions,
            features,
            squad_answers.spans(features, said, longest),
            said.get('nowhere'),
        )
        return judged(questions, found, version2)[0]

    return measure


def prepare(
    parts: 'Mapping[str, Questions]',
    given: finetune.Choices,
    version2: bool,
    started: 'Loaded | None' = None,
) -> finetune.PreparedTask:
    """Windows over the contexts, as the model of --init reads them.

    Args and errors are as of `finetune.prepare`; also that no question is left.
    """
    given = finetune.asked(TASK, given, null=version2)

    def read(
        loaded: 'Loaded', settings: Mapping[str, Any]
    ) -> dict[str, finetune.Part]:
        from tasks import squad_data

        found = {}
        for part, questions in parts.items():
            features = squad_data.features(
                questions,
                loaded.template,
                given.seq_len,
                part == 'train',
                **settings,
            )
            examples = features.examples
            notes = *features.notes, (
                f'{questions.path}: {len(questions.ids):,} questions in '
                f'{examples.size:,} windows'
            )
            print('\n'.join(notes), flush=True)
            found[part] = finetune.Part(
                examples,
                [examples.targets['span'], examples.candidates['span']],
                str(questions.path),
                len(questions.ids),
                (questions.contexts, None),
                measure_of(questions, features, version2, settings['longest']),
            )
        return found

    return finetune.prepare_task(TASK, given, read, started)


def answered(workdir: pathlib.Path, questions: 'Questions') -> 'Predictions':
    """What the weights of a workdir answer."""
    import infoword_tf
    from infoword_tf.inference.reader import Answer
    from tasks.squad_answers import Predictions

    contexts = questions.contexts
    replies = infoword_tf.load(workdir).answer(
        [questions.texts.raw(i) for i in range(len(questions.ids))],
        [contexts.raw(i) for i in questions.context],
    )
    predictions = Predictions({}, {}, {})
    for number, reply in enumerate(replies):
        name = questions.ids[number]
        # As the context has it, where it is no UTF-8 either.
        best = [
            answer._replace(
                text=contexts.cut(
                    questions.context[number], answer.begin, answer.end
                )
            )
            for answer in reply.best
        ]
        predictions.texts[name] = best[0].text if best else ''
        if reply.null_odds is not None:
            predictions.null_odds[name] = reply.null_odds
            if best:
                rest = max(0.0, 1 - sum(a.probability for a in best))
                score = best[0].score + reply.null_odds
                best.append(Answer('', rest, score, -1, -1))
        predictions.best[name] = sorted(best, key=lambda answer: -answer.score)
    return predictions


def answer(
    workdir: pathlib.Path,
    questions: 'Questions',
    version2: bool,
    out: pathlib.Path,
) -> dict[str, float]:
    """Answers of the selected weights, and their scores.

    The best workdir keeps the null threshold, `out` the predictions.
    """
    from tasks import squad_answers

    predictions = answered(workdir, questions)
    scores, threshold = judged(questions, predictions, version2)
    values = {name: round(value, 4) for name, value in scores.items()}
    if version2:
        values['null_threshold'] = threshold
        config = Config.read(workdir).replace(null_threshold=threshold)
        config.write(workdir)
    squad_answers.write(out, predictions, threshold)
    return values


@commands.takes(Choices)
def run(given: Choices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The whole command."""
    commands.require(vars(given), workdir='a folder for this run')
    finetune.check_inits(given.init)
    parts = parts_of(given)
    prepared = prepare(parts, given, given.version2)
    workdir, values = finetune.train_all(TASK, prepared, chosen)
    out = pathlib.Path(given.workdir)
    values |= answer(workdir, parts['heldout'], given.version2, out)
    return finetune.finish(out, values)


if __name__ == '__main__':
    commands.start(run)
