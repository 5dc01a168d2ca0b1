r"""Draws what a row reads: its views, and who sees whom in them.

    python -m infoword_tf.show --objectives=plm \
        "The quick brown fox jumps over the lazy dog near the river."
    python -m infoword_tf.show --objectives=infoword --output=infoword.png \
        "One sentence." "And another one."
    python -m infoword_tf.show --objectives=tlm \
        "A dog." "Ein Hund." "A cat sleeps." "Eine Katze schläft."

One panel is one view: above the tokens as they are read, below the masks of
attention, in which a row is a token that looks and a column what it may look
at. Without --init or --vocab the words of the sentences are the pieces.
"""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

# The command computes nothing: the backend that starts fastest will do.
if __name__ == '__main__':
    os.environ.setdefault('KERAS_BACKEND', 'numpy')

from infoword_tf import commands, pictures, resolve
from infoword_tf.choices import again, flag
from infoword_tf.commands import UsageError
from infoword_tf.config import Config
from infoword_tf.objectives import TABLE
from infoword_tf.settings import Setting
from infoword_tf.text.wordtokenizer import WordTokenizer
from infoword_tf.views import VIEWS


@dataclasses.dataclass(frozen=True)
class Choices:
    """All that the command may choose."""

    objectives: str | None = flag(
        None, 'A named sum, or rows, as of infoword_tf.train; by default those '
        'of --init.')
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    output: str = flag('show.png', 'The PNG file to write.')
    seq_len: int | None = flag(
        None, 'Sequence length in tokens, special tokens included; by default '
        'what the sentences need.', at_least=8)
    seed: int = flag(
        0, 'Random seed of masks, orders and negatives.', at_least=0)
    masking: str | None = again(resolve.ModelChoices, 'masking', None)
    mask_share: float | None = again(
        resolve.ModelChoices, 'mask_share', None)
    memory_length: int | None = flag(
        None, 'Tokens of memory, for encoders that have one; a quarter of '
        '--seq_len by default.', at_least=0)
    init: str | None = flag(
        None, 'A workdir, whose tokenizer is used.', model=True)
    vocab: str | None = flag(
        None, 'A vocab.txt, a SentencePiece *.model, a tokenizer.json of '
        'byte pairs or a words.txt.')
    lower_case: bool | None = flag(
        None, 'Whether --vocab is of lower-case text; true by default, false '
        'for a words.txt.')

    @staticmethod
    def settings_of(row: str) -> dict[str, Setting]:
        """Of the views, and of which are read: nothing else is drawn."""
        entry = TABLE[row]
        defaults = {k: known.default for k, known in entry.settings.items()}
        found = {}
        for name, known in entry.settings.items():
            values = known.choices or (False, True)
            chosen = {
                tuple(entry.reads({**defaults, name: v})) for v in values
            }
            if name not in entry.objective.settings or len(chosen) > 1:
                found[name] = known
        return found


# -------------------------------------------------------------------- the text


def sentences_of(texts: Sequence[str]) -> list[str]:
    """The sentences of some texts; a lone one is cut in two.

    Rows that put a sentence beside another need two.

    Raises:
        UsageError: there are no two words.
    """
    from infoword_tf.data.documents import split_sentences

    sentences = [
        ' '.join(sentence.split())
        for text in texts
        for sentence in split_sentences(' '.join(text.split()))
    ]
    sentences = [sentence for sentence in sentences if sentence]
    if len(sentences) == 1:
        words = sentences[0].split()
        middle = (len(words) + 1) // 2
        sentences = [' '.join(words[:middle]), ' '.join(words[middle:])]
    if not sentences or not sentences[-1]:
        raise UsageError(
            'give a sentence of two words or more: python -m infoword_tf.show '
            '--objectives=mlm "a sentence"'
        )
    return sentences


def make_pictures(
    sentences: Sequence[str],
    tokenizer: Any,
    resolved: resolve.Resolved,
    length: int,
    seed: int,
    memory: int | None = None,
) -> list[pictures.Picture]:
    """What is to be drawn of all views that some rows read.

    Args:
        sentences, tokenizer, length, seed: as in `data.excerpt.make_views`.
        resolved: the rows, and what they want.
        memory: M of encoders that have one; None: T / 4.
    """
    from infoword_tf.data.excerpt import make_views
    from infoword_tf.encoders import ENCODERS

    if resolved.plan.labelled:
        raise UsageError(
            'these rows read labelled examples as they are: there is no view '
            'of a text to draw'
        )
    if memory is None:
        memory = 0 if resolved.memory_length is None else length // 4
    advance = min(
        dict(source_spec.arguments).get('advance', length)
        for source_spec in resolved.plan.source_specs
    )
    steps = 1 + -(-memory // advance)  # until the memory is full
    *before, last = make_views(
        sentences, tokenizer, resolved.plan, length, seed, steps
    )
    made = []
    for name, view in last.items():
        past: list[int] = []
        for earlier in before:
            ids = pictures.text_of(earlier[name].ids)
            past += ids[:advance].tolist()
        readers = resolved.plan.views[name].rows
        made.append(
            pictures.picture(
                name,
                view,
                {row: reads.where for row, reads in readers.items()},
                tokenizer.vocabulary,
                tokenizer.specials,
                resolved.encoder.arguments.get(
                    'causal', ENCODERS[resolved.encoder.name].causal
                ),
                past[-memory:] if memory else [],
            )
        )
    return made


# ----------------------------------------------------------------- the command


def choose(given: Choices, length: int) -> resolve.Resolved:
    """What --objectives, or else --init, wants of a text of T tokens.

    Raises:
        UsageError: neither is named, or what is asked for cannot be.
    """
    objectives, masking = given.objectives, given.masking
    share = given.mask_share
    settings = given.settings
    if objectives is None and not given.init:
        raise UsageError(
            '--objectives is missing: name a row or a sum, such as '
            f'{", ".join(TABLE)}'
        )
    if objectives is None:
        config = Config.read(pathlib.Path(given.init))
        objectives = ','.join(config.rows)
        masking = masking or config.masking
        share = share or config.mask_share
        of_run = {
            f'{row}.{name}': value
            for row, entry in config.rows.items()
            for name, value in entry.settings.items()
            if name in Choices.settings_of(row)
        }
        settings = {**of_run, **settings}
    return resolve.resolve(
        resolve.ModelChoices(
            objectives=objectives,
            settings=settings,
            masking=masking,
            mask_share=share,
            positions=max(512, length),
            seq_len=length,
            memory_length=given.memory_length or None,
        )
    )


def shortest(rows: Sequence[str], pieces: int) -> int:
    """T that holds so many pieces, and that the views can be made of."""
    views = {VIEWS[view].source for row in rows for view in TABLE[row].views}
    # Two sides of a row, each with room for any sentence.
    if 'translations' in views:
        return max(8, 2 * pieces + 3)
    # A stream of two halves wants an even number, and room in both.
    if 'streams' in views:
        length = max(24, pieces + 3)
        return length + length % 2
    return max(8, pieces + 2)


def open_tokenizer(given: Choices, sentences: Sequence[str]) -> Any:
    """Of --init or --vocab, else the words of the sentences."""
    if given.init and given.vocab:
        raise UsageError('--init brings its vocabulary; leave out --vocab')
    if not given.init and not given.vocab:
        return WordTokenizer(sentences)
    from infoword_tf.data.opened import kind_of
    from infoword_tf.text.tokenizers import TOKENIZERS

    if given.vocab:
        kind = TOKENIZERS[kind_of(given.vocab)]
        lower_case = given.lower_case
        if lower_case is None:
            lower_case = not kind.as_written
        return kind.read(given.vocab, lower_case)
    workdir = pathlib.Path(given.init)
    described = Config.read(workdir).tokenizer
    kind = TOKENIZERS[described.kind]
    return kind.read(
        workdir / kind.file, described.lower_case, **described.options
    )


@commands.takes(Choices)
def run(
    texts: Sequence[str], given: Choices, chosen: Mapping[str, Any]
) -> None:
    """Draws what is asked for, and prints the path of the PNG.

    Raises:
        UsageError, ValueError: as the message says.
    """
    length = given.seq_len
    rows = list(choose(given, length or 512).rows)
    sentences = sentences_of(texts)
    tokenizer = open_tokenizer(given, sentences)
    if length is None:
        pieces = len(tokenizer.pieces([s.encode() for s in sentences]).ids)
        length = shortest(rows, pieces)
    made = make_pictures(
        sentences, tokenizer, choose(given, length), length, given.seed,
        given.memory_length,
    )  # fmt: skip
    titles = [
        (
            row,
            f'a: {TABLE[row].a}.  b: {TABLE[row].b}: {TABLE[row].relation}.  '
            f'Candidates: {TABLE[row].candidates}.',
        )
        for row in rows
    ]
    pictures.draw(pathlib.Path(given.output), titles, made)
    print(given.output)


if __name__ == '__main__':
    commands.start(run, 'the sentences', commands.NOTHING)
