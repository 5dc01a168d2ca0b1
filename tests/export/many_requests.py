"""Requests of all kinds to an export: each is answered, and memory stays flat.

    python -m tests.export.many_requests --count=10000

A request is texts and one of the export's functions; one in fifty is no such
thing, and has to be refused. Of memory what counts is the process' own after a
fifth of the requests, and after all.
"""

import collections
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tests.export import workdirs

LONGEST = 1_000_000  # characters of a text
LARGEST = 4096  # texts of a request
WORDS = ('the', 'value', 'of', '[MASK]', 'names', 'list,', 'Über', '漢字',
         '😀', 'שלום', 'a\u0301\u0302', '\u200b')  # fmt: skip


def text_of(random: np.random.Generator, longest: int) -> bytes:
    """A text of one of many kinds, mostly of some hundred bytes."""
    size = int(longest ** random.uniform(0, 0.4))
    kinds = [
        lambda: b'',
        lambda: random.bytes(size),  # mostly no UTF-8
        lambda: b'\0' * size,
        lambda: ('e' + '\u0301' * size).encode(),  # marks after a character
        # Code points of any kind, halves of pairs left out.
        lambda: ''.join(map(chr, random.integers(1, 0x110000, size))).encode(
            'utf-8', 'replace'),
        lambda: random.choice([b' ', b'\t', b'\r\n', b'\xc2\xa0']) * size,
        lambda: '漢字'.encode()[: 1 + size % 6],  # cut inside a character
        *2 * [lambda: ' '.join(random.choice(WORDS, 1 + size // 4)).encode()],
    ]  # fmt: skip
    return kinds[random.integers(len(kinds))]()


def request_of(
    random: np.random.Generator, longest: int, largest: int
) -> list[bytes]:
    """Texts; few of them mostly, and one in a hundred times a long one."""
    count = int(largest ** random.uniform(0, 1) ** 3)
    if random.integers(100) == 0:
        count = largest
    texts = [text_of(random, longest) for _ in range(min(count, 64))]
    texts = (texts * -(-count // len(texts)))[:count]
    if random.integers(100) == 0:
        tokens = b'a ', b'word', b'\xff', b'\0', b'[MASK]', 'é'.encode()
        texts[:1] = [random.choice(tokens) * (longest // 4)]
    return texts


def wrong_of(random: np.random.Generator) -> dict[str, Any]:
    """Arguments that are no texts."""
    arguments = [
        {'texts': tf.constant([1, 2])}, {'texts': tf.constant('of no list')},
        {'texts': tf.constant([['of'], ['lists']])},
        {'text': tf.constant(['a'])}, {},
        {'texts': tf.constant(['a']), 'more': tf.constant(1)},
    ]  # fmt: skip
    return arguments[random.integers(len(arguments))]


def resident() -> int:
    """Bytes of memory that this process has."""
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def tried(
    functions: Mapping[str, Callable[..., Any]], count: int,
    longest: int = LONGEST, largest: int = LARGEST, seed: int = 0,
) -> tuple[collections.Counter, dict[int, int]]:  # fmt: skip
    """Sends so many requests.

    Returns:
        How many texts each function answered, and how many requests were
        refused; and bytes of memory by requests.

    Raises:
        AssertionError: an answer is not of as many texts, or not finite; or
            what is no request was answered.
    """
    random = np.random.default_rng(seed)
    answered: collections.Counter = collections.Counter()
    memory: dict[int, int] = {}
    names = sorted(functions)
    for number in range(count):
        name = names[random.integers(len(names))]
        if number % 50 == 49:
            try:
                functions[name](**wrong_of(random))
            except (tf.errors.InvalidArgumentError, TypeError, ValueError) as e:
                assert str(e), name
                answered['refused'] += 1
            else:
                raise AssertionError(f'{name}, request {number}: answered')
        else:
            texts = request_of(random, longest, largest)
            actual = functions[name](texts=tf.constant(texts, tf.string))
            for output, tensor in actual.items():
                assert tensor.shape[0] == len(texts), (name, output)
                if tensor.dtype.is_floating:
                    values = tensor.numpy()
                    assert np.isfinite(values).all(), (name, output, texts)
            answered[name] += len(texts)
        if (number + 1) % max(1, count // 5) == 0:
            memory[number + 1] = resident()
    return answered, memory


def main() -> None:
    """Exports a tiny model, and asks it."""
    flags = dict(x.removeprefix('--').split('=') for x in sys.argv[1:])
    count = int(flags.get('count', 10_000))
    answered, memory = tried(workdirs.served(), count)
    print(dict(answered))
    first, *_, last = memory.values()
    growth = last / first - 1
    for requests, size in memory.items():
        print(f'{requests:,} requests: {size / 1e6:.0f} MB')
    print(f'memory grew by {growth:.1%}')
    sys.exit(growth > 0.05)


if __name__ == '__main__':
    main()
