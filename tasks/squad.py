r"""Questions that a context answers: SQuAD 1.1 and 2.0, or files like them.

    python -m tasks.squad --init=runs/minilm --train=train-v1.1.json \
        --dev=dev-v1.1.json --workdir=runs/squad
    python -m tasks.squad --init=runs/minilm --train=train-v2.0.json \
        --dev=dev-v2.0.json --version2 --workdir=runs/squad2

Files are SQuAD's JSON, or .jsonl (also as .gz or .zst), .parquet or .arrow with
a question a row, as Hugging Face's datasets has them.
Trains the row `span` and saves the weights of the best F1 on --dev. With
--version2 a question may have no answer: F1 is that at the best threshold of
the odds of no answer, which config.json records. All flags of
`infoword_tf.train` apply; --span.end=conditional is XLNet's head. In WORKDIR:

    predictions.json   answers by question, for the official scripts
    nbest.json         best answers, with probabilities and bytes
    null_odds.json     how much more "no answer" scores (--version2)

The last line of the output is one JSON object, also in WORKDIR/metrics.json.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import again, flag
from infoword_tf.config import Config
from infoword_tf.evaluation.commonest import Commonest, of_answers
from infoword_tf.training.checks import refuse_unknown_rows
from tasks import finetune, squad_scores

if TYPE_CHECKING:
    from infoword_tf.inference.loaded import Loaded
    from tasks.squad_answers import Predictions
    from tasks.squad_data import Features, Questions

# Of an answer that reads no question: words from where the context begins.
FIRST_WORDS = (1, 2, 3, 5, 10, 20, 30)
SEQ_LEN = 384  # as the epochs, of Devlin et al. 2019, §4.2, and its code


@dataclasses.dataclass(frozen=True)
class SquadChoices(finetune.FinetuneChoices):
    """Choices of the command."""

    train: str | None = flag(
        None, 'A SQuAD file to train on; or .jsonl, .parquet or .arrow with a '
        'question a row.')
    dev: str | None = flag(
        None, 'A SQuAD file on which the weights are selected.')
    version2: bool = flag(False, 'Questions may have no answer.')
    dev_examples: int | None = flag(
        None, 'Evaluate on this many questions of --dev only.', at_least=1)
    seq_len: int = again(finetune.FinetuneChoices, 'seq_len', SEQ_LEN)
    epochs: float = again(
        finetune.FinetuneChoices, 'epochs', 2.0, shown=None,
        help='Training epochs; --steps sets the number of updates instead.')


class Squad(finetune.Task):
    """A task of the row `span`."""

    @property
    def row(self) -> str:
        """Name of the row that learns the task."""
        return 'span'


TASK = Squad('squad', ('f1', 'exact'))


def splits_of(choices: SquadChoices) -> 'dict[str, Questions]':
    """Reads training and dev questions.

    Raises:
        UsageError: --train or --dev is missing.
        FileNotFoundError, ValueError: a file cannot be read.
    """
    commands.require(
        vars(choices),
        train='a file of SQuAD to train on',
        dev='a file of SQuAD to choose the weights by',
    )
    for path in (choices.train, choices.dev):
        if not pathlib.Path(path).is_file():  # before TensorFlow is imported
            raise FileNotFoundError(f'{path}: there is no such file')

    from tasks import squad_data

    return {
        split: squad_data.read(pathlib.Path(path), choices.version2).subset(n)
        for split, path, n in (
            ('train', choices.train, choices.examples),
            ('heldout', choices.dev, choices.dev_examples),
        )
    }


def judged(
    questions: 'Questions', predictions: 'Predictions', version2: bool
) -> tuple[dict[str, float], float]:
    """Scores answers, in percent.

    Returns:
        'f1' and 'exact', with `version2` at the best threshold and also for
        questions with and without an answer; and the threshold, nats.
    """
    golds, texts = questions.golds_by_id, predictions.texts
    if not version2:
        scores = squad_scores.scores(golds, texts)
        return {'f1': scores['f1'], 'exact': scores['exact_match']}, 0.0
    from infoword_tf.inference.answers import SURE

    raw = squad_scores.raw_scores(golds, texts).f1
    _, odds = squad_scores.best_threshold(
        golds, texts, raw, predictions.null_odds
    )
    threshold = -SURE if odds is None else odds
    answers = predictions.predictions(threshold)
    return squad_scores.scores2(golds, answers), threshold


def commonest_of(questions: 'Questions', version2: bool) -> Commonest:
    """Scores the best answer that reads no question, by F1 in percent.

    Answers are the first words of the context, as many as score best, and with
    `version2` no answer.
    """
    golds, contexts = questions.golds_by_id, questions.contexts
    words = [contexts.raw(i).decode(errors='replace').split()
             for i in questions.context]  # fmt: skip
    answers = {'no answer to every question': 0} if version2 else {}
    answers |= {
        f'the first {size} words of every context': size
        for size in FIRST_WORDS
    }
    scores = {}
    for answer, size in answers.items():
        texts = (' '.join(first[:size]) for first in words)
        texts = dict(zip(golds, texts, strict=True))
        f1 = squad_scores.raw_scores(golds, texts).f1
        scores[answer] = 100 * np.array(list(f1.values()))
    return of_answers(scores)


def measure_of(
    questions: 'Questions', features: 'Features', version2: bool, longest: int
) -> Callable[..., dict[str, float]]:
    """Returns a function that scores all windows; `longest`: tokens at most."""

    def measure(predictions: dict[str, np.ndarray], view: Any) -> dict:
        from infoword_tf.views.examples import by_example
        from tasks import squad_answers

        of_tokens = {'last'} if 'starts' in predictions else {'first', 'last'}
        scores = {
            name: squad_answers.of_context(values, view)
            if name in of_tokens
            else by_example(values, view)
            for name, values in predictions.items()
        }
        answers = squad_answers.answers(
            questions,
            features,
            squad_answers.spans(features, scores, longest),
            scores.get('nowhere'),
        )
        return judged(questions, answers, version2)[0]

    return measure


def prepare(
    splits: 'Mapping[str, Questions]',
    choices: finetune.FinetuneChoices,
    version2: bool,
    started: 'Loaded | None' = None,
) -> finetune.PreparedTask:
    """Prepares runs on windows over the contexts; as `finetune.prepare`.

    Raises:
        UsageError, ValueError: as `finetune.prepare`, or no question is left.
    """
    choices = finetune.with_objectives(TASK, choices, null=version2)

    def read(
        loaded: 'Loaded', settings: Mapping[str, Any]
    ) -> dict[str, finetune.TaskSplit]:
        from tasks import squad_data

        windows = {}
        for split, questions in splits.items():
            features = squad_data.features(
                questions,
                loaded.template,
                choices.seq_len,
                split == 'train',
                **settings,
            )
            examples = features.examples
            notes = *features.notes, (
                f'{questions.path}: {len(questions.ids):,} questions in '
                f'{examples.size:,} windows'
            )
            print('\n'.join(notes), flush=True)
            windows[split] = finetune.TaskSplit(
                examples,
                [examples.targets['span'], examples.candidates['span']],
                str(questions.path),
                len(questions.ids),
                (questions.contexts, None),
                measure_of(questions, features, version2, settings['longest']),
                functools.partial(commonest_of, questions, version2),
            )
        return windows

    return finetune.prepare_task(TASK, choices, read, started)


def answered(workdir: pathlib.Path, questions: 'Questions') -> 'Predictions':
    """Answers questions with the weights of a workdir."""
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
        # Cut out of the context's bytes, which may be no UTF-8.
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
    """Answers the dev questions with the selected weights, and scores answers.

    The null threshold goes to the workdir, the predictions to `out`.
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


@commands.takes(SquadChoices, check=refuse_unknown_rows)
def run(choices: SquadChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fine-tunes on a file of SQuAD, and answers the dev file."""
    commands.require(vars(choices), workdir='a folder for this run')
    finetune.check_inits(choices.init)
    splits = splits_of(choices)
    prepared = prepare(splits, choices, choices.version2)
    workdir, values = finetune.train_all(TASK, prepared, chosen)
    out = pathlib.Path(choices.workdir)
    values |= answer(workdir, splits['heldout'], choices.version2, out)
    return finetune.finish(out, values)


if __name__ == '__main__':
    commands.start(run)
