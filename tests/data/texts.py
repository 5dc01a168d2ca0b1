"""Parts that tests of corpora share: a folder, random texts."""

import contextlib

from absl.testing import parameterized

from infoword_tf.data import documents
from tests import places


class Temporary(places.Folder, parameterized.TestCase):
    """Tests that write files into a folder of their own."""

    def write(self, name, content):
        return places.write(self.folder, {name: content}) / name


@contextlib.contextmanager
def in_one_line():
    """Expects that an error which is passed on has no line end."""
    try:
        yield
    except ValueError as error:
        assert '\n' not in str(error), error
        raise


def words(rng, n):
    return ' '.join(f'w{i}' for i in rng.integers(10**9, size=n))


def in_bucket(rng, n, is_candidate, prefix=''):
    """A text that begins so, of n words more, candidate or not."""
    while True:
        text = f'{prefix} {words(rng, n)}'.strip()
        if (documents.hash_bucket(text, 20) == 0) == is_candidate:
            return text
