"""Runs what `export.litert` has written: strings in, vectors or classes out.

    model = Model('models/phone')
    model.encode(['strings in'])           # float32 [n, D]
    model.classify(['a text'], ['another'])  # float32 [n, C], see `labels`

    python models/phone/model.py "strings in" "a second text"

As a command it prints one JSON object for each text.

This file stands alone: it lies beside the model that it runs, and needs numpy
and ai-edge-litert (or TensorFlow). `WordPiece` needs the standard library
alone. The folder:

    model.tflite      for each length T a signature: ids [1, T], length [1]
                      and, of two texts, where the second begins [1], int32
    model.json        what signatures there are, and what is put around a text
    vocab.txt         pieces in the order of their ids
    characters.json   what becomes of characters before that
"""

from __future__ import annotations

import bisect
import functools
import json
import math
import pathlib
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

_LONGEST_WORD = 100  # characters; a longer one is unknown
_WORDS = 1 << 16  # that are remembered
_UNKNOWN = '[UNK]'


class Model:
    """A folder of `export.litert` in memory, for one thread at a time.

    Attributes:
        signatures: by name, how wide its answers are.
        labels: names of the classes, in the order of their probabilities.
        lengths: tokens that texts are padded to: the next one that has room.
        tokenizer: `ids(text)` gives the numbers of its pieces.
    """

    def __init__(self, folder: str | pathlib.Path, threads: int = 1):
        """Reads it.

        Args:
            folder: with model.tflite and what lies beside it.
            threads: that a text is computed with; one is fastest for short
                ones.

        Raises:
            ImportError: ai-edge-litert is missing.
            FileNotFoundError: there is no model.
        """
        folder = pathlib.Path(folder)
        if not (folder / 'model.json').is_file():
            raise FileNotFoundError(
                f'{folder} has no model.json: it is not of export.litert'
            )
        self._told = json.loads((folder / 'model.json').read_text('utf-8'))
        self.signatures: dict[str, int] = self._told['signatures']
        self.labels: list[str] = self._told['labels']
        self.lengths: list[int] = self._told['lengths']
        self.tokenizer = read_tokenizer(folder)
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError:
            try:
                from tensorflow.lite import Interpreter
            except ImportError:
                raise ImportError(
                    'ai-edge-litert is missing: pip install ai-edge-litert'
                ) from None
        interpreter = Interpreter(
            str(folder / 'model.tflite'), num_threads=threads
        )
        self._runner = functools.cache(interpreter.get_signature_runner)

    def encode(self, texts: Sequence[str], prompt: str | None = None) -> Any:
        """Vectors of texts.

        Args:
            texts: n strings.
            prompt: name of what is put before each; None: what the model
                says, '': nothing.

        Returns:
            float32 [n, D].

        Raises:
            ValueError: this model gives no vectors, or has no such prompt.
        """
        prompts = {'': '', **self._told['prompts']}
        name = self._told['prompt'] if prompt is None else prompt
        _check_list(texts)
        if name not in prompts:
            known = ', '.join(self._told['prompts']) or 'none'
            raise ValueError(f'prompt {name!r}: this model has {known}')
        return self._all('embed', [prompts[name] + text for text in texts])

    def classify(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> Any:
        """Probabilities of classes.

        Args:
            texts: n strings.
            pairs: n second texts, of a model that reads two.

        Returns:
            float32 [n, C], in the order of `labels`; of one class alone, and
            of each where a text may have several, the logistic function of its
            score.

        Raises:
            ValueError: this model does not classify such texts.
        """
        import numpy as np

        scores = self.scores(texts, pairs)
        if self._told['multilabel'] or scores.shape[1] == 1:
            return 1 / (1 + np.exp(-scores))
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def scores(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> Any:
        """float32 [n, C], of which `classify` makes probabilities."""
        return self._all('classify', texts, pairs)

    def rate(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None
    ) -> Any:
        """float32 [n], the numbers of texts; see `classify`."""
        return self._all('regress', texts, pairs)[:, 0]

    def _all(
        self,
        signature: str,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
    ) -> Any:
        """What a signature gives for each text: [n, width] float32."""
        import numpy as np

        sides = [texts] if pairs is None else [texts, pairs]
        name = signature + '_pairs' * (len(sides) - 1)
        if name not in self.signatures:
            raise ValueError(
                f'this model has {", ".join(self.signatures)}, no {name}'
            )
        _check_list(texts)
        outputs = np.zeros((len(texts), self.signatures[name]), np.float32)
        for row, example in enumerate(zip(*sides, strict=True)):
            ids = [self.tokenizer.ids(text) for text in example]
            outputs[row] = self._one(name, *ids)
            if self._told['both_ways']:
                outputs[row] += self._one(name, *ids[::-1])
        return outputs

    def _one(
        self, name: str, first: list[int], second: list[int] | None = None
    ) -> Any:
        """What a signature gives for the pieces of a text, or of two."""
        import numpy as np

        before, *between, after = self._told[
            'around' if second is None else 'around_two'
        ]
        limit = self.lengths[-1] - len(before) - len(after)
        more = {}
        if second is None:
            row = before + first[:limit]
        else:
            (between,) = between
            sizes = _fitting_lengths(
                len(first), len(second), limit - len(between)
            )
            row = before + first[: sizes[0]] + between
            more['second'] = np.array([len(row)], np.int32)
            row += second[: sizes[1]]
        row += after
        length = self.lengths[bisect.bisect_left(self.lengths, len(row))]
        ids = np.full((1, length), self._told['padding'], np.int32)
        ids[0, : len(row)] = row
        (answer,) = self._runner(f'{name}_{length}')(
            ids=ids, length=np.array([len(row)], np.int32), **more
        ).values()
        return answer[0]


def _check_list(texts: Sequence[str]) -> None:
    """TypeError: one string, which is a sequence of its characters."""
    if isinstance(texts, str):
        raise TypeError('this takes a list of texts, this is one string')


def _fitting_lengths(first: int, second: int, total: int) -> tuple[int, int]:
    """Pieces of two texts that are kept; the longer one is cut first."""
    if first + second <= total:
        return first, second
    kept = min(first, second, total // 2)
    return (total - kept, kept) if first > second else (kept, total - kept)


class WordPiece:
    """BERT's tokenizer: a word is the longest pieces from its left."""

    def __init__(
        self,
        vocabulary: Sequence[str],
        characters: dict[str, Any],
        normalized: dict[str, Any] | None = None,
        added: Sequence[dict[str, Any]] = (),
    ):
        """Builds it.

        Args:
            vocabulary: pieces in the order of their ids.
            characters: what becomes of them, as characters.json has it.
            normalized: the same before words are parted, where tokens are
                found in what is normalised.
            added: tokens that are found in texts before all else.
        """
        self._normalized = _Characters(normalized or {'runs': [], 'forms': {}})
        self._written, self._normal = (
            _Added(
                {
                    t['content'].translate(self._normalized)
                    if normal else t['content']: t
                    for t in reversed(added)
                    if t['normalized'] == normal
                }
            )
            for normal in (False, True)
        )  # fmt: skip
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._longest = max(map(len, vocabulary))
        self._characters = _Characters(characters)
        self._word = functools.lru_cache(_WORDS)(self._pieces)

    def ids(self, text: str) -> list[int]:
        """The numbers of the pieces of a text, and of added tokens in it;
        other special pieces are text.
        """
        ids: list[int] = []
        for part in self._written.parts(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._between(part)
        return ids

    def _between(self, text: str) -> list[int]:
        """Reads the text between two tokens that stand as written."""
        ids: list[int] = []
        if self._normal.pattern:
            text = text.translate(self._normalized)
        for part in self._normal.parts(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._plain(part)
        return ids

    def _plain(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in text.translate(self._characters).split(' '):
            if word:
                ids += self._word(word)
        return ids

    def _pieces(self, word: str) -> tuple[int, ...]:
        unknown = (self._ids[_UNKNOWN],)
        if len(word) > _LONGEST_WORD:
            return unknown
        ids, begin, mark = [], 0, ''
        while begin < len(word):
            end = min(len(word), begin + self._longest)
            while end > begin and mark + word[begin:end] not in self._ids:
                end -= 1
            if end == begin:
                return unknown
            ids.append(self._ids[mark + word[begin:end]])
            begin, mark = end, '##'
        return tuple(ids)


class _Added:
    """Tokens, by what a text spells, that are found in it as `tokenizers` does:
    the longest one at each place, from the left.
    """

    def __init__(self, tokens: dict[str, dict[str, Any]]):
        self._tokens = {text: t for text, t in tokens.items() if text}
        spelled = sorted(self._tokens, key=len, reverse=True)
        self.pattern = '|'.join(map(re.escape, spelled))
        self._find = re.compile(self.pattern).finditer

    def parts(self, text: str) -> list[str | int]:
        """Texts, and the ids of tokens between them."""
        if not self.pattern:
            return [text]
        parts: list[str | int] = []
        begin = 0
        for match in self._find(text):
            token = self._tokens[match[0]]
            first, last = match.span()
            around = text[max(first - 1, 0) : first] + text[last : last + 1]
            if token['single_word'] and any(map(_of_word, around)):
                continue
            before = text[begin:first]
            parts.append(before.rstrip() if token['lstrip'] else before)
            parts.append(token['id'])
            if token['rstrip']:
                last += len(text[last:]) - len(text[last:].lstrip())
            begin = last
        return [*parts, text[begin:]]


def _of_word(character: str) -> bool:
    """Tells whether a character is one of words (Unicode's \\w)."""
    kind = unicodedata.category(character)
    return kind[0] in 'LM' or kind in ('Nd', 'Nl', 'Pc')


class _Characters(dict):
    """For str.translate: what a character becomes, by its number."""

    def __init__(self, told: dict[str, Any]):
        super().__init__(
            (ord(character), form) for character, form in told['forms'].items()
        )
        self._runs = [tuple(run) for run in told['runs']] or [(0, -1, '')]

    def __missing__(self, code: int) -> str:
        """Of a character in one of the runs, or one that stays."""
        place = bisect.bisect_right(self._runs, (code, math.inf)) - 1
        first, last, form = self._runs[max(place, 0)]
        inside = first <= code <= last
        self[code] = form.replace('*', chr(code)) if inside else chr(code)
        return self[code]


def read_tokenizer(folder: pathlib.Path) -> WordPiece:
    """The tokenizer that lies in a folder."""
    lines = (folder / 'vocab.txt').read_bytes().decode().split('\n')
    while lines and not lines[-1]:
        lines.pop()
    known = json.loads((folder / 'characters.json').read_text('utf-8'))
    return WordPiece(
        lines, known, known.get('normalized'), known.get('added', ())
    )


def main(texts: Sequence[str]) -> None:
    """Prints what the model beside this file says of texts."""
    model = Model(pathlib.Path(__file__).resolve().parent)
    for text in texts:
        if 'embed' in model.signatures:
            answer: Any = {'embedding': model.encode([text])[0].tolist()}
        elif 'classify' in model.signatures:
            odds = model.classify([text])[0].tolist()
            names = model.labels or map(str, range(len(odds)))
            answer = dict(zip(names, odds, strict=True))
        elif 'regress' in model.signatures:
            answer = {'score': float(model.rate([text])[0])}
        else:
            sys.exit('this model reads two texts: call Model from Python')
        print(json.dumps(answer, ensure_ascii=False))


if __name__ == '__main__':
    main(sys.argv[1:])
