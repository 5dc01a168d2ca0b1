"""Draws what a row reads: its views, and who sees whom in them.

    python -m infoword_tf.show --objectives=plm \
        "The quick brown fox jumps over the lazy dog near the river."
    python -m infoword_tf.show --objectives=infoword --output=infoword.png \
        "One sentence." "And another one."

One panel is one view: above the tokens as they are read, below the masks of
attention, in which a row is a token that looks and a column what it may look
at. Without --init or --vocab the words of the sentences are the pieces.
"""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import flags

# Nothing is computed: the backend that starts fastest will do.
os.environ.setdefault('KERAS_BACKEND', 'numpy')

from infoword_tf import commands, pictures
from infoword_tf.commands import UsageError
from infoword_tf.config import Config
from infoword_tf.objectives import TABLE
from infoword_tf.resolve import Choices, Resolved, resolve
from infoword_tf.settings import Setting
from infoword_tf.text.words import Words
from infoword_tf.views import VIEWS

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

OBJECTIVES = flags.DEFINE_string(
    'objectives', None, 'A named sum, or rows, as of infoword_tf.train; by '
    'default those of --init.', flag_values=FLAGS)
OUTPUT = flags.DEFINE_string(
    'output', 'show.png', 'The PNG file to write.', flag_values=FLAGS)
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', None, 'Sequence length in tokens, special tokens included; by '
    'default what the sentences need.', lower_bound=8, flag_values=FLAGS)
SEED = flags.DEFINE_integer(
    'seed', 0, 'Random seed of masks, orders and negatives.',
    lower_bound=0, flag_values=FLAGS)
MASKING = flags.DEFINE_enum(
    'masking', None, ['spans', 'words', 'tokens'], 'Unit of masking; by '
    'default the one that the rows require, else tokens.', flag_values=FLAGS)
MEMORY_LENGTH = flags.DEFINE_integer(
    'memory_length', None, 'Tokens of memory, for encoders that have one; a '
    'quarter of --seq_len by default.', lower_bound=0, flag_values=FLAGS)
INIT = flags.DEFINE_string(
    'init', None, 'A workdir, whose tokenizer is used.', flag_values=FLAGS)
VOCAB = flags.DEFINE_string(
    'vocab', None, 'A vocab.txt, a SentencePiece *.model or a words.txt.',
    flag_values=FLAGS)
LOWER_CASE = flags.DEFINE_bool(
    'lower_case', None, 'Whether --vocab is of lower-case text; true by '
    'default, false for a words.txt.',
    flag_values=FLAGS)


def drawn_settings(row: str) -> dict[str, Setting]:
    """Of the views, and of which are read: nothing else is drawn."""
    entry = TABLE[row]
    defaults = {name: known.default for name, known in entry.settings.items()}
    found = {}
    for name, known in entry.settings.items():
        values = known.choices or (False, True)
        chosen = {
            tuple(entry.reads({**defaults, name: value})) for value in values
        }
        if name not in entry.objective.settings or len(chosen) > 1:
            found[name] = known
    return found


SETTINGS = commands.define_settings(
    {row: drawn_settings(row) for row in TABLE}, FLAGS
)


# -------------------------------------------------------------------- the text


def sentences_of(texts: Sequence[str]) -> list[str]:
    """The sentences of some texts; a lone one is cut in two.

    Rows that put a sentence beside another need two.

    Raises:
        UsageError: there are no two words.
    """
    from infoword_tf.data.documents import split_sentences

    found = [
        ' '.join(sentence.split())
        for text in texts
        for sentence in split_sentences(' '.join(text.split()))
    ]
    found = [sentence for sentence in found if sentence]
    if len(found) == 1:
        words = found[0].split()
        middle = (len(words) + 1) // 2
        found = [' '.join(words[:middle]), ' '.join(words[middle:])]
    if not found or not found[-1]:
        raise UsageError(
            'give a sentence of two words or more: python -m infoword_tf.show '
            '--objectives=mlm "a sentence"'
        )
    return found


def make_pictures(
    sentences: Sequence[str],
    tokenizer: Any,
    resolved: Resolved,
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
            'label and score read labelled examples, which are shown as they '
            'are: there is no view of a text to draw'
        )
    if memory is None:
        memory = 0 if resolved.memory_length is None else length // 4
    advance = min(
        dict(reading.arguments).get('advance', length)
        for reading in resolved.plan.readings
    )
    steps = 1 + -(-memory // advance)  # until the memory is full
    *before, last = make_views(
        sentences, tokenizer, resolved.plan, length, seed, steps
    )
    found = []
    for name, view in last.items():
        past: list[int] = []
        for earlier in before:
            ids = pictures.text_of(earlier[name].ids)
            past += ids[:advance].tolist()
        readers = resolved.plan.views[name].rows
        found.append(
            pictures.picture(
                name,
                view,
                {row: reads.states for row, reads in readers.items()},
                tokenizer.vocabulary,
                tokenizer.specials,
                resolved.encoder.arguments.get(
                    'causal', ENCODERS[resolved.encoder.name].causal
                ),
                past[-memory:] if memory else [],
            )
        )
    return found


# ----------------------------------------------------------------- the command


def choose(length: int) -> Resolved:
    """What --objectives, or else --init, wants of a text of T tokens.

    Raises:
        UsageError: neither is named, or what is asked for cannot be.
    """
    given = {
        name: flag.value
        for name, flag in SETTINGS.items()
        if flag.value is not None
    }
    objectives, masking = OBJECTIVES.value, MASKING.value
    if objectives is None and not INIT.value:
        raise UsageError(
            '--objectives is missing: name a row or a sum, such as '
            f'{", ".join(TABLE)}'
        )
    if objectives is None:
        config = Config.read(pathlib.Path(INIT.value))
        objectives = ','.join(config.rows)
        masking = masking or config.masking
        of_run = {
            f'{row}.{name}': value
            for row, entry in config.rows.items()
            for name, value in entry.settings.items()
            if f'{row}.{name}' in SETTINGS
        }
        given = {**of_run, **given}
    return resolve(
        Choices(
            objectives=objectives,
            settings=given,
            masking=masking,
            positions=max(512, length),
            seq_len=length,
            memory_length=MEMORY_LENGTH.value or None,
        )
    )


def shortest(rows: Sequence[str], pieces: int) -> int:
    """T that holds so many pieces, and that the views can be made of."""
    views = {VIEWS[view].source for row in rows for view in TABLE[row].views}
    # A stream of two halves wants an even number, and room in both.
    if 'streams' in views:
        length = max(24, pieces + 3)
        return length + length % 2
    return max(8, pieces + 2)


def open_tokenizer(sentences: Sequence[str]) -> Any:
    """Of --init or --vocab, else the words of the sentences."""
    if INIT.value and VOCAB.value:
        raise UsageError('--init brings its vocabulary; leave out --vocab')
    if not INIT.value and not VOCAB.value:
        return Words(sentences)
    from infoword_tf.data.opened import kind_of
    from infoword_tf.text.tokenizers import TOKENIZERS

    if VOCAB.value:
        kind = TOKENIZERS[kind_of(VOCAB.value)]
        lower_case = LOWER_CASE.value
        if lower_case is None:
            lower_case = not kind.as_written
        return kind.read(VOCAB.value, lower_case)
    workdir = pathlib.Path(INIT.value)
    described = Config.read(workdir).tokenizer
    kind = TOKENIZERS[described.kind]
    return kind.read(
        workdir / kind.file, described.lower_case, **described.options
    )


def show(texts: Sequence[str]) -> None:
    """Draws what the flags ask for, and prints the path of the PNG.

    Raises:
        UsageError, ValueError: as the message says.
    """
    length = SEQ_LEN.value
    rows = list(choose(length or 512).rows)
    sentences = sentences_of(texts)
    tokenizer = open_tokenizer(sentences)
    if length is None:
        pieces = len(tokenizer.pieces([s.encode() for s in sentences]).ids)
        length = shortest(rows, pieces)
    made = make_pictures(
        sentences,
        tokenizer,
        choose(length),
        length,
        SEED.value,
        MEMORY_LENGTH.value,
    )
    heads = [
        (
            row,
            f'a: {TABLE[row].a}.  b: {TABLE[row].b}: {TABLE[row].relation}.  '
            f'Candidates: {TABLE[row].candidates}.',
        )
        for row in rows
    ]
    pictures.draw(pathlib.Path(OUTPUT.value), heads, made)
    print(OUTPUT.value)


if __name__ == '__main__':
    commands.start(show, words='the sentences')
