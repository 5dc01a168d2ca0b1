"""WordPiece vocabularies in BERT's format: learned, read, checked, written.

A vocabulary is a list of pieces; a piece's id is its place. `vocab.txt` holds
one piece a line.
"""

import collections
import hashlib
import heapq
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

PAD, UNK, CLS, SEP, MASK = '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'
SPECIALS = (PAD, UNK, CLS, SEP, MASK)
UNKNOWN = '<unk>'  # how public corpora write a word that was taken out
NO_TEXT = (
    'the corpus holds no text to learn a vocabulary from; check --corpus, or '
    'give a vocabulary with --vocab'
)


def check(vocabulary: Sequence[str], where: str) -> list[str]:
    """The pieces; ValueError: a special one is missing, or one there twice."""
    vocabulary = list(vocabulary)
    missing = [piece for piece in SPECIALS if piece not in set(vocabulary)]
    if missing:
        raise ValueError(
            f'{where}: the vocabulary lacks {", ".join(missing)}; add a line '
            'for each, or leave out --vocab to learn one from the corpus'
        )
    seen: dict[str, int] = {}
    for line, piece in enumerate(vocabulary, 1):
        if piece in seen:
            raise ValueError(
                f'{where}: {piece!r} is on line {seen[piece]} and again on '
                f'line {line}; keep one of them (ids of later pieces move)'
            )
        seen[piece] = line
    return vocabulary


def special_ids(vocabulary: Sequence[str]) -> tuple[list[int], list[int]]:
    """Ids of the special pieces; and, sorted, of those but [UNK]."""
    found = [vocabulary.index(piece) for piece in SPECIALS]
    return found, sorted(i for i in found if vocabulary[i] != UNK)


def read(path: str | pathlib.Path) -> list[str]:
    """Reads and checks a `vocab.txt`."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f'{path}: no such vocabulary; --vocab takes a vocab.txt with one '
            'piece a line, or a SentencePiece *.model'
        )
    try:
        lines = path.read_text(encoding='utf-8').split('\n')
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{path}: byte {error.start} is not UTF-8; a vocabulary is a text '
            'file with one piece a line'
        ) from error
    while lines and not lines[-1]:
        lines.pop()
    return check(lines, str(path))


def write(path: str | pathlib.Path, vocabulary: Sequence[str]) -> None:
    """Writes a `vocab.txt`."""
    text = ''.join(piece + '\n' for piece in vocabulary)
    pathlib.Path(path).write_text(text, encoding='utf-8')


def sample(texts: Iterable[str], megabytes: float = 64.0) -> Iterator[str]:
    """A uniform sample of texts of bounded size, the same every time.

    The texts of the lowest hashes that fit stay, so the sample depends
    neither on the order in which a corpus arrives nor on its size being
    known. One text stays however large it is.
    """
    budget, limit = int(megabytes * 1e6), 2**64
    kept: list[tuple[int, str]] = []  # a heap, the highest hash on top
    size = 0
    for text in texts:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        order = int.from_bytes(digest, 'big')
        if order >= limit:
            continue
        heapq.heappush(kept, (-order, text))
        size += len(text)
        while size > budget and len(kept) > 1:
            order, last = heapq.heappop(kept)
            limit, size = -order, size - len(last)
    return (text for _, text in kept)


def learn(
    texts: Iterable[str], size: int, lower_case: bool = True
) -> list[str]:
    """Learns a WordPiece vocabulary (Schuster and Nakajima 2012) in seconds.

    Args and errors are those of `Tokenizer.learn`; without case there are no
    accents. Specials come first, then characters and pieces.
    """
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    max_pieces = (size - len(SPECIALS)) // 2  # characters: begin a word, go on
    if max_pieces < 1:
        raise ValueError(
            f'--vocab_size={size} has no room beside the {len(SPECIALS)} '
            'special pieces; a few thousand is usual'
        )
    texts = list(sample(texts))
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token=UNK))
    learner.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    alphabet, continuing = _alphabet(
        texts, learner.normalizer, learner.pre_tokenizer, min(1000, max_pieces)
    )
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        # The trainer numbers continuing characters in the order of a hash
        # map, another in each call, and breaks ties between merges by number:
        # naming them here makes it learn the same every time.
        special_tokens=[*SPECIALS, *(f'##{c}' for c in continuing)],
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix='##',
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    pieces = learner.get_vocab()
    if not alphabet:
        raise ValueError(NO_TEXT)
    return check(sorted(pieces, key=pieces.get), 'the learned vocabulary')


def _alphabet(
    texts: Sequence[str], normalizer: Any, pre_tokenizer: Any, most: int
) -> tuple[list[str], list[str]]:
    """The commonest characters, so that rare scripts do not eat a small
    vocabulary, and which of them go on with a word.
    """
    words = collections.Counter()
    for text in texts:
        words.update(normalizer.normalize_str(text).split())
    counts, continuing = collections.Counter(), set()
    for word, count in words.items():
        for piece, _ in pre_tokenizer.pre_tokenize_str(word):
            for character in piece:
                counts[character] += count
            continuing.update(piece[1:])
    chosen = sorted(counts, key=lambda c: (-counts[c], c))[:most]
    return sorted(chosen), sorted(continuing.intersection(chosen))
