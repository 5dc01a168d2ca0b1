"""From a corpus to what is trained on: its tokenizer and its token stores.

Stores and learned vocabularies are kept in the cache, so that the next run on
the same text opens them at once.
"""

import hashlib
import pathlib
import time
from typing import Any, NamedTuple

from infoword_tf import files
from infoword_tf.choices import VOCAB_SIZE, TextChoices
from infoword_tf.commands import UsageError
from infoword_tf.data import corpora, documents
from infoword_tf.data import store as stores


class Text(NamedTuple):
    """A corpus, opened.

    Attributes:
        tokenizer: of both parts.
        train, heldout: their token stores.
        fingerprint: changes when the text does.
    """

    tokenizer: Any
    train: stores.Store
    heldout: stores.Store
    fingerprint: str


def kind_of(vocab: str) -> str:
    """The tokenizer that a vocabulary is for, by the name of its file."""
    if vocab.endswith('.model'):
        return 'sentencepiece'
    return 'words' if vocab.endswith('words.txt') else 'wordpiece'


def choose_tokenizer(choices: TextChoices) -> str:
    """The tokenizer that was chosen, or that a vocabulary is for; UsageError:
    choices that do not go together.
    """
    kind, vocab = choices.tokenizer, choices.vocab
    if not vocab:
        return kind or 'wordpiece'
    is_model = vocab.endswith('.model')
    found = kind_of(vocab)
    if not is_model and kind == 'words':
        found = kind  # as any file of one word a line
    if kind not in (None, found):
        raise UsageError(
            f'--tokenizer={kind}: --vocab={vocab} is for {found} (the names '
            'of SentencePiece models end in .model, those of words in '
            'words.txt); leave out one of the two'
        )
    if choices.vocab_size is not None:
        raise UsageError(
            f'--vocab_size={choices.vocab_size} is for a vocabulary that is '
            f'learned, not for --vocab={vocab}; leave out one of the two'
        )
    if is_model and choices.lower_case is not None:
        raise UsageError(
            f'--lower_case is decided by --vocab={vocab}; leave it out'
        )
    return found


def check_text(choices: TextChoices) -> None:
    """Complains of files that are not there, before TensorFlow is imported.

    What pydocs is built from is always there, and building takes its time.
    """
    choose_tokenizer(choices)
    if choices.corpus != 'pydocs':
        corpora.open_corpus(choices.corpus, choices.heldout or None)


def open_tokenizer(
    choices: TextChoices, corpus: Any, cache: pathlib.Path
) -> Any:
    """What --vocab names, or what was learned from the text.

    Raises: UsageError: as `choose_tokenizer`; ValueError: the vocabulary cannot
    be read, or none be learned.
    """
    from infoword_tf.text.tokenizers import TOKENIZERS

    kind = TOKENIZERS[choose_tokenizer(choices)]
    lower_case = choices.lower_case
    if lower_case is None:
        lower_case = not kind.as_written
    if choices.vocab:
        return kind.read(choices.vocab, lower_case)
    size = choices.vocab_size or (None if kind.as_written else VOCAB_SIZE)
    key = f'{corpus.fingerprint}-{size}-{lower_case}'
    learned = cache / 'vocabularies' / f'{_digest(key)}.{kind.file}'
    if learned.exists():
        return kind.read(learned, lower_case)
    began = time.monotonic()
    texts = (
        ' '.join(documents.parts(document.text)) for document in corpus.train()
    )
    tokenizer = kind.learn(texts, size, lower_case)
    learned.parent.mkdir(parents=True, exist_ok=True)
    with files.written(learned) as partial:
        tokenizer.write(partial)
    print(
        f'learned {len(tokenizer):,} pieces in '
        f'{time.monotonic() - began:.0f} s',
        flush=True,
    )
    return tokenizer


def open_text(choices: TextChoices, tokenizer: Any = None) -> Text:
    """Opens both parts of a corpus, and says how large they are.

    Args:
        tokenizer: what --init brings; None: one is chosen.

    Raises: as `open_tokenizer`, and ValueError: there is no text.
    """
    cache = corpora.cache_dir()
    corpus = corpora.open_corpus(choices.corpus, choices.heldout or None, cache)
    if tokenizer is None:
        tokenizer = open_tokenizer(choices, corpus, cache)
    key = '\n'.join(
        [corpus.fingerprint, str(tokenizer.lower_case), tokenizer.identity]
    )
    folder = cache / 'stores' / _digest(key)
    found = {}
    for part, read in (('train', corpus.train), ('heldout', corpus.heldout)):
        if (folder / part).is_dir():
            found[part] = stores.open_store(folder / part, tokenizer)
            continue
        what = 'training' if part == 'train' else 'held-out'
        some = stores.peek(
            read(),
            f'--corpus={choices.corpus} has no {what} documents; give more '
            'text, or name held-out files with --heldout=GLOB',
        )
        found[part] = stores.write_store(folder / part, some, tokenizer)
    train, heldout = found['train'], found['heldout']
    print(
        f'{choices.corpus}: {len(train.ids):,} tokens to train on, '
        f'{len(heldout.ids):,} held out, {len(tokenizer):,} pieces',
        flush=True,
    )
    return Text(tokenizer, train, heldout, corpus.fingerprint)


def digest_of(tokenizer: Any) -> str:
    """Hexadecimal; changes when the vocabulary does."""
    return _digest(tokenizer.identity)[:12]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
