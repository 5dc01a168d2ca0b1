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
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from infoword_tf import commands
from infoword_tf.choices import again, flag
from infoword_tf.config import Config
from infoword_tf.evaluation.commonest import Commonest, of_answers
from infoword_tf.training.begin import refuse_unknown_rows

from . import finetune, squad_scores
from .task import HELDOUT, SPLITS, TRAIN, Task, TaskSplit

if TYPE_CHECKING:
    from infoword_tf.data.examples import Examples
    from infoword_tf.inference.loaded import Loaded

    from .squad_answers import Predictions
    from .squad_data import Features, Questions

NAME = 'squad'
# Of an answer that reads no question: words from where the context begins.
FIRST_WORDS = (1, 2, 3, 5, 10, 20, 30)
SEQ_LEN = 384  # as the epochs, of Devlin et al. 2019, §4.2, and its code


@dataclasses.dataclass(frozen=True)
class SquadChoices(finetune.FinetuneChoices):
    """Choices of the command."""

    train: str = flag(
        '', 'A SQuAD file to train on; or .jsonl, .parquet or .arrow with a '
        'question a row.')
    dev: str = flag(
        '', 'A SQuAD file on which the weights are selected.')
    version2: bool = flag(False, 'Questions may have no answer.')
    dev_examples: int | None = flag(
        None, 'Evaluate on this many questions of --dev only.', at_least=1)
    seq_len: int = again(finetune.FinetuneChoices, 'seq_len', SEQ_LEN)
    epochs: float = again(
        finetune.FinetuneChoices, 'epochs', 2.0, shown=None,
        help='Training epochs; --steps sets the number of updates instead.')


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
        begins = (' '.join(first[:size]) for first in words)
        texts = dict(zip(golds, begins, strict=True))
        f1 = squad_scores.raw_scores(golds, texts).f1
        scores[answer] = 100 * np.array(list(f1.values()))
    return of_answers(scores)


def measure_of(
    questions: 'Questions', features: 'Features', version2: bool, longest: int
) -> Callable[..., dict[str, float]]:
    """Returns a function that scores all windows; `longest`: tokens at most."""

    def measure(predictions: dict[str, np.ndarray], view: Any) -> dict:
        from infoword_tf.views.examples import by_example

        from . import squad_answers

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


def answered(loaded: 'Loaded', questions: 'Questions') -> 'Predictions':
    """Answers questions with a workdir."""
    from infoword_tf.inference.reader import Answer

    from .squad_answers import Predictions

    contexts = questions.contexts
    replies = loaded.answer(
        [questions.texts.raw(i) for i in range(len(questions.ids))],
        [contexts.raw(i) for i in questions.context],
    )
    predictions = Predictions({}, {}, {})
    for number, reply in enumerate(replies):
        name, context = questions.ids[number], questions.context[number]
        # Cut out of the context's bytes, which may be no UTF-8.
        best = [
            answer._replace(
                text=contexts.cut(context, answer.begin, answer.end)
            )
            for answer in reply.best
        ]
        predictions.texts[name] = best[0].text if best else ''
        if reply.null_odds is not None:
            predictions.null_odds[name] = reply.null_odds
            if best:
                rest = max(0.0, 1 - sum(a.probability for a in best))
                score = best[0].score + reply.null_odds
                best.append(Answer('', rest, score, begin=-1, end=-1))
        predictions.best[name] = sorted(best, key=lambda answer: -answer.score)
    return predictions


@dataclasses.dataclass(frozen=True)
class Squad(Task):
    """Questions that a context answers; `splits` are `Questions`.

    Attributes:
        version2: whether a question may have no answer.
    """

    choices = SquadChoices
    row = 'span'
    shared = ('null', 'end')

    name: str = NAME
    metrics: tuple[str, ...] = ('f1', 'exact')
    version2: bool = False

    @classmethod
    def read(cls, choices: SquadChoices, model: str | None = None) -> Self:
        """Reads training and dev questions; errors as of `Task.read`."""
        commands.require(
            vars(choices),
            train='a file of SQuAD to train on',
            dev='a file of SQuAD to choose the weights by',
        )
        paths = pathlib.Path(choices.train), pathlib.Path(choices.dev)
        for path in paths:
            if not path.is_file():  # before TensorFlow is imported
                raise FileNotFoundError(f'{path}: there is no such file')

        from . import squad_data

        train, dev = (squad_data.read(x, choices.version2) for x in paths)
        splits = {TRAIN: train, HELDOUT: dev.subset(choices.dev_examples)}
        return cls(version2=choices.version2, splits=splits)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the row that the examples decide."""
        return {'null': self.version2}

    def examples(
        self, loaded: 'Loaded', settings: Mapping[str, Any], length: int
    ) -> dict[str, TaskSplit]:
        """Formats windows over the contexts as inputs of a model."""
        from . import squad_data

        windows = {}
        for split in SPLITS:
            questions = self.splits[split]
            features = squad_data.features(
                questions, loaded.template, length, split == TRAIN, **settings
            )
            examples, where = features.examples, str(questions.path)
            notes = *features.notes, (
                f'{where}: {len(questions.ids):,} questions in '
                f'{examples.size:,} windows'
            )
            print('\n'.join(notes), flush=True)
            windows[split] = TaskSplit(
                examples=examples,
                labels=[examples.targets['span'], examples.candidates['span']],
                where=where,
                size=len(questions.ids),
                texts=(questions.contexts, None),
                measure=measure_of(
                    questions, features, self.version2, settings['longest']
                ),
                commonest=functools.partial(
                    commonest_of, questions, self.version2
                ),
            )
        return windows

    def write(self, workdir: pathlib.Path, out: pathlib.Path) -> dict[str, Any]:
        """Answers the dev questions, and scores answers.

        The null threshold goes to the workdir, the predictions to `out`.
        """
        import infoword_tf

        from . import squad_answers

        questions = self.splits[HELDOUT]
        predictions = answered(infoword_tf.load(workdir), questions)
        scores, threshold = judged(questions, predictions, self.version2)
        values = {name: round(value, 4) for name, value in scores.items()}
        if self.version2:
            values['null_threshold'] = threshold
            config = Config.read(workdir).replace(null_threshold=threshold)
            config.write(workdir)
        squad_answers.write(out, predictions, threshold)
        return values

    def defaults(self, teacher: Config) -> dict[str, Any]:
        """Returns choices of a student, by the Config of a teacher."""
        return {'seq_len': teacher.max_length, 'epochs': finetune.EPOCHS}

    def hashed(self, examples: 'Examples') -> list[np.ndarray]:
        """Lists the targets, whose first place decides on the last one."""
        return [examples.targets['span']]

    def scores(self, head: Any, batch: Any) -> Any:
        """Returns scores of both ends, [B, T, 2] float16."""
        import tensorflow as tf

        _, ends = head.both_ends(batch)
        return tf.cast(tf.stack(ends, -1), tf.float16)

    def judged(self, loaded: 'Loaded', scores: np.ndarray) -> dict[str, float]:
        """Measures the answers of a teacher to held-out questions."""
        questions = self.splits[HELDOUT]
        return judged(questions, answered(loaded, questions), self.version2)[0]


@commands.takes(SquadChoices, check=refuse_unknown_rows)
def run(choices: SquadChoices, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Fine-tunes on a file of SQuAD, and answers the dev file."""
    return finetune.main(Squad, choices, chosen)


if __name__ == '__main__':
    commands.start(run)
