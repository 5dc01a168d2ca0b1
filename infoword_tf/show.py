"""Draws what a row reads: its views, and who sees whom in them.

    python -m infoword_tf.show --objectives=plm \
        "The quick brown fox jumps over the lazy dog near the river."
    python -m infoword_tf.show --objectives=infoword --output=infoword.png \
        "One sentence." "And another one."

One panel is one view: above the tokens as they are read, below the masks of
attention, in which a row is a token that looks and a column what it may look
at. Without --init or --vocab the words of the sentences are the pieces.
"""

import json
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from infoword_tf import pictures
from infoword_tf.text.words import Words

# Nothing is computed: the backend that starts fastest will do.
os.environ.setdefault('KERAS_BACKEND', 'numpy')
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

# Imported, they stand beside the trainer's, which have the same names.
FLAGS = flags.FLAGS if __name__ == '__main__' else flags.FlagValues()

OBJECTIVES = flags.DEFINE_string(
    'objectives', None, 'A named sum, or rows, as the trainer takes them; by '
    'default those of --init.', flag_values=FLAGS)
OUTPUT = flags.DEFINE_string(
    'output', 'show.png', 'The picture.', flag_values=FLAGS)
SEQ_LEN = flags.DEFINE_integer(
    'seq_len', None, 'Tokens of a sequence, with specials; by default what '
    'the sentences take.', lower_bound=8, flag_values=FLAGS)
SEED = flags.DEFINE_integer(
    'seed', 0, 'Of what is drawn.', lower_bound=0, flag_values=FLAGS)
MASKING = flags.DEFINE_enum(
    'masking', None, ['spans', 'words', 'tokens'], 'What is hidden; by '
    'default what the rows want, else tokens.', flag_values=FLAGS)
K = flags.DEFINE_integer(
    'k', None, 'plm: one in K tokens is predicted.', lower_bound=2,
    flag_values=FLAGS)
ORDER = flags.DEFINE_enum(
    'order', None, ['partial', 'strict'], 'plm: whether what is not predicted '
    'sees each other, or what comes before it alone.', flag_values=FLAGS)
MEMORY_LENGTH = flags.DEFINE_integer(
    'memory_length', None, 'Tokens of memory, for encoders that have one; a '
    'quarter of --seq_len by default.', lower_bound=0, flag_values=FLAGS)
INIT = flags.DEFINE_string(
    'init', None, 'A workdir, whose tokenizer is used.', flag_values=FLAGS)
VOCAB = flags.DEFINE_string(
    'vocab', None, 'A vocab.txt, or a SentencePiece *.model.',
    flag_values=FLAGS)
LOWER_CASE = flags.DEFINE_bool(
    'lower_case', True, 'Whether --vocab is of lower-case text.',
    flag_values=FLAGS)


class UsageError(Exception):
    """Something that was asked for cannot be; the message says what to do."""


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
    rows: Mapping[str, Mapping[str, Any]],
    masking: str,
    length: int,
    seed: int,
    memory: int | None = None,
) -> list[pictures.Picture]:
    """What is to be drawn of all views that some rows read.

    Args:
        sentences, tokenizer, rows, masking, length, seed: as in
            `data.excerpt.make_views`.
        memory: M of encoders that have one; None: T / 4.

    Raises:
        UsageError: memory for an encoder that has none.
    """
    from infoword_tf.data.excerpt import make_views
    from infoword_tf.model import has_memory
    from infoword_tf.objectives import TABLE

    remembers = all(has_memory(TABLE[row].encoders[0]) for row in rows)
    if memory and not remembers:
        raise UsageError(
            f'--memory_length={memory}: the encoder of {", ".join(rows)} has '
            'no memory; leave it out'
        )
    if memory is None:
        memory = length // 4 if remembers else 0
    advance = min(_advance(row, given, length) for row, given in rows.items())
    steps = 1 + -(-memory // advance)  # until the memory is full
    *before, last = make_views(
        sentences, tokenizer, rows, masking, length, seed, steps
    )
    found = []
    for name, view in last.items():
        readers = [row for row in rows if name in TABLE[row].views]
        causal = any(TABLE[row].arguments.get('causal') for row in readers)
        past: list[int] = []
        for earlier in before:
            ids = pictures.text_of(earlier[name].ids)
            past += ids[:advance].tolist()
        found.append(
            pictures.picture(
                name,
                view,
                {row: TABLE[row].views[name] for row in readers},
                tokenizer.vocabulary,
                tokenizer.specials,
                causal,
                past[-memory:] if memory else [],
            )
        )
    return found


def _advance(row: str, settings: Mapping[str, Any], length: int) -> int:
    """How far a step goes on: of T tokens, those that the memory then has."""
    from infoword_tf.objectives import TABLE

    reading = TABLE[row].reading
    advance = reading and reading(length, settings).get('advance')
    return advance or length


# ----------------------------------------------------------------- the command


def choose() -> tuple[dict[str, dict[str, Any]], str]:
    """--objectives, or --init's, with their settings; and the masking."""
    from infoword_tf.objectives import TABLE, parse

    config = {}
    if INIT.value:
        path = pathlib.Path(INIT.value) / 'config.json'
        if not path.is_file():
            raise UsageError(f'--init={INIT.value}: there is no {path}')
        config = json.loads(path.read_text())
    if OBJECTIVES.value is None and not config:
        raise UsageError(
            '--objectives is missing: name a row or a sum, such as '
            f'{", ".join(TABLE)}'
        )
    if OBJECTIVES.value is None:
        rows = {r: dict(x['settings']) for r, x in config['rows'].items()}
        masking = config['masking']
    else:
        rows = {
            row: dict(TABLE[row].settings)
            for row, weight in parse(OBJECTIVES.value).items()
            if weight
        }
        masking = None
    for flag in (K, ORDER):
        if flag.value is None:
            continue
        readers = [row for row in rows if flag.name in rows[row]]
        if not readers:
            users = [r for r, e in TABLE.items() if flag.name in e.settings]
            raise UsageError(
                f'--{flag.name} is for {", ".join(users)}, not for '
                f'{", ".join(rows)}'
            )
        for row in readers:
            rows[row][flag.name] = flag.value
    masking = MASKING.value or masking
    for row in rows:
        wanted = TABLE[row].masking
        if wanted and masking not in (None, wanted):
            raise UsageError(
                f'--masking={masking}: {row} hides {wanted}; leave out '
                '--masking'
            )
        masking = wanted or masking
    return rows, masking or 'tokens'


def open_tokenizer(sentences: Sequence[str]) -> Any:
    """Of --init or --vocab, else the words of the sentences."""
    if INIT.value and VOCAB.value:
        raise UsageError('--init brings its vocabulary; leave out --vocab')
    if not INIT.value and not VOCAB.value:
        return Words(sentences)
    from infoword_tf.text.tokenizers import TOKENIZERS

    if VOCAB.value:
        is_model = VOCAB.value.endswith('.model')
        kind = TOKENIZERS['sentencepiece' if is_model else 'wordpiece']
        return kind.read(VOCAB.value, LOWER_CASE.value)
    workdir = pathlib.Path(INIT.value)
    described = json.loads((workdir / 'config.json').read_text())['tokenizer']
    kind = TOKENIZERS[described['kind']]
    return kind.read(workdir / kind.file, described['lower_case'])


def show(texts: Sequence[str]) -> pathlib.Path:
    """Draws what the flags ask for; returns the path of the PNG.

    Raises:
        UsageError, ValueError: as the message says.
    """
    from infoword_tf.objectives import TABLE

    rows, masking = choose()
    sentences = sentences_of(texts)
    tokenizer = open_tokenizer(sentences)
    length = SEQ_LEN.value
    if length is None:
        pieces = len(tokenizer.pieces([s.encode() for s in sentences]).ids)
        # A stream of two halves wants an even number, and room in both.
        stream = any(TABLE[row].reading is not None for row in rows)
        length = max(24 if stream else 8, pieces + (3 if stream else 2))
        length += length % 2 if stream else 0
    made = make_pictures(
        sentences,
        tokenizer,
        rows,
        masking,
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
    path = pathlib.Path(OUTPUT.value)
    pictures.draw(path, heads, made)
    return path


def main(argv: Sequence[str]) -> None:
    """Draws, and turns what a user can mend into one sentence."""
    try:
        print(show(argv[1:]))
    except (UsageError, ValueError, OSError) as error:
        if os.environ.get('INFOWORD_TRACEBACK'):
            raise
        print(f'error: {error}', file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == '__main__':
    app.run(main)
