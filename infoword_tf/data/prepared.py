"""Data sets that tensorflow-datasets (TFDS) has prepared, read as streams.

Nothing is downloaded here, and nothing prepared: what TFDS's own folder
(TFDS_DATA_DIR) does not hold is a complaint that says how to prepare it.
Features go by their paths, `text` or `title/text`; those with one value an
example are read.
"""

import difflib
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from infoword_tf.data import documents
from infoword_tf.data.documents import Document
from infoword_tf.data.textfiles import LONGEST

HELDOUT = ('test', 'validation')  # splits that are held out, the first there
_SPEC = re.compile(r'(?P<name>[^:]+(:\d+\.\d+\.\d+)?)(:(?P<rest>[^:]+))?')
_EXAMPLES_A_CALL = 256


class Prepared(NamedTuple):
    """A data set of TFDS, opened.

    Attributes:
      name: `tfds:NAME[/CONFIG]`, as the user gave it.
      builder: TFDS's.
      features: by path, TFDS's features of one value an example.
    """

    name: str
    builder: Any
    features: dict[str, Any]

    @property
    def splits(self) -> tuple[str, ...]:
        """Their names, as they were prepared."""
        return tuple(self.builder.info.splits)


def parse(spec: str, rest: str) -> tuple[str, str | None]:
    """Parts `NAME[/CONFIG][:VERSION]` from the rest; ValueError: no name."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise ValueError(
            f'tfds:{spec} is no name: expected tfds:NAME[/CONFIG][:{rest}], '
            'for example tfds:glue/rte'
        )
    return match['name'], match['rest']


def open_prepared(name: str) -> Prepared:
    """Opens a data set that lies in TFDS's folder.

    Raises:
        ValueError: there is none of this name, it was never prepared, or
            tensorflow-datasets cannot be imported.
    """
    try:
        import tensorflow_datasets as tfds
    except Exception as error:  # also where it does not fit TensorFlow
        raise ValueError(
            f'tfds:{name} needs tensorflow-datasets, which does not import '
            f'({error}): `pip install tensorflow-datasets`'
        ) from error
    try:
        builder = tfds.builder(name)
    except tfds.core.DatasetNotFoundError:
        known = tfds.list_builders(with_community_datasets=False)
        raise ValueError(
            f'tfds:{name}: tensorflow-datasets has no data set of this name'
            + _nearest(name.split('/')[0].split(':')[0], known)
        ) from None
    except (ValueError, AssertionError) as error:
        # What it says goes on for pages; its first line says what is wrong.
        why = str(error).split('\n')[0].split('. ')[0]
        raise ValueError(f'tfds:{name} cannot be opened ({why})') from None
    if not (builder.data_path / 'dataset_info.json').exists():
        raise ValueError(
            f'tfds:{name} was never prepared: {builder.data_path} is not '
            'there. Prepare it once by `python -c "import tensorflow_datasets '
            f"as tfds; tfds.builder('{name}').download_and_prepare()\"`, or "
            'name the folder that holds it with TFDS_DATA_DIR'
        )
    # Sorted: TFDS gives them in another order each time.
    features = dict(sorted(_flat(builder.info.features)))
    return Prepared(f'tfds:{name}', builder, features)


def _nearest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known))
    return f'; the nearest are {", ".join(matches)}' if matches else ''


def _flat(features: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """Yields (path, feature) of all that have one value an example."""
    from tensorflow_datasets import features as kinds

    for name, feature in features.items():
        if isinstance(feature, kinds.FeaturesDict):
            yield from _flat(feature, f'{path}{name}/')
        elif isinstance(feature, kinds.Tensor) and feature.shape == ():
            yield f'{path}{name}', feature


def check_split(prepared: Prepared, split: str) -> None:
    """Complains, with ValueError, of a split that is not there."""
    if split not in prepared.splits:
        raise ValueError(
            f'{prepared.name} has no split {split!r}: it has '
            f'{", ".join(prepared.splits)}'
        )


class Examples(NamedTuple):
    """Some examples of a split.

    Attributes:
        begin, end: the first, and the one after the last; None: to the end.
    """

    begin: int = 0
    end: int | None = None


ALL = Examples()


def parts(prepared: Prepared, split: str, size: int) -> list[Examples]:
    """A split in parts of about `size` bytes, as large as its examples are on
    average.
    """
    info = prepared.builder.info.splits[split]
    count, total = info.num_examples, info.num_bytes
    if not count or not total:
        return [ALL]
    each = max(1, round(size * count / total))
    return [
        Examples(begin, min(begin + each, count))
        for begin in range(0, count, each)
    ]


def read(
    prepared: Prepared, split: str, paths: Sequence[str], some: Examples = ALL
) -> Iterator[tuple[Any, ...]]:
    """Yields the values of some features, example by example.

    No more of them than a few hundred are in memory.

    Yields:
      A value a path: bytes of a text, else a NumPy number.
    """
    import tensorflow as tf
    import tensorflow_datasets as tfds

    def values(example: Any) -> tuple[Any, ...]:
        return tuple(_value(example, path) for path in paths)

    builder = prepared.builder
    if builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD:
        source = builder.as_data_source(split)
        end = len(source) if some.end is None else some.end
        yield from (values(source[n]) for n in range(some.begin, end))
        return
    # One file after the other, and nothing kept in memory.
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    if some.end is not None:
        split = tfds.core.ReadInstruction(
            split, from_=some.begin, to=some.end, unit='abs'
        )
    dataset = builder.as_dataset(split=split, read_config=config)
    dataset = dataset.map(values).batch(_EXAMPLES_A_CALL)
    for batch in dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
        yield from zip(*batch, strict=True)


def _value(example: Any, path: str) -> Any:
    for name in path.split('/'):
        example = example[name]
    return example


def text_of(value: bytes, where: str) -> str:
    """The text of a feature; ValueError: it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{where} is not UTF-8: byte 0x{value[error.start]:02x} at offset '
            f'{error.start:,} ({error.reason})'
        ) from None


# ----------------------------------------------------------------- as a corpus


def text_feature(prepared: Prepared, path: str | None) -> str:
    """The feature that holds the text of a corpus.

    Raises:
      ValueError: there is no such text, or more than one to choose from.
    """
    import numpy as np

    texts = [
        name
        for name, feature in prepared.features.items()
        if np.dtype(feature.np_dtype).kind in 'OSU'
    ]
    if not texts:
        raise ValueError(
            f'{prepared.name} has no text feature: its features are '
            f'{", ".join(sorted(prepared.builder.info.features))}'
        )
    if path is not None and path not in texts:
        raise ValueError(
            f'{prepared.name} has no text feature {path!r}: it has '
            f'{", ".join(texts)}'
        )
    if path is None and 'text' in texts:
        return 'text'
    if path is None and len(texts) > 1:
        raise ValueError(
            f'{prepared.name} has several text features: name one of '
            f'{", ".join(texts)} after a colon, {prepared.name}:{texts[0]}'
        )
    return path or texts[0]


def fingerprint(prepared: Prepared, path: str, splits: Sequence[str]) -> str:
    """32 hex digits of the data set, the feature and the splits' files."""
    digest = hashlib.blake2b(b'tfds 1', digest_size=16)
    digest.update(f'{prepared.builder.info.full_name} {path}'.encode())
    for split in splits:
        for file in prepared.builder.info.splits[split].filepaths:
            found = file.stat()
            record = (split, file.name, found.length, found.mtime)
            digest.update(repr(record).encode())
    return digest.hexdigest()


def read_documents(
    prepared: Prepared, split: str, path: str, some: Examples = ALL
) -> Iterator[Document]:
    """Yields the examples of a split as documents, but empty ones.

    A line is a sentence or a paragraph; an example of more than a megabyte
    goes on as the next document.
    """
    for number, (value,) in enumerate(
        read(prepared, split, [path], some), some.begin
    ):
        where = f'{prepared.name}, {split} {number}'
        sentences: list[str] = []
        size = 0
        for line in text_of(value, where).split('\n'):
            for sentence in documents.split_sentences(line):
                if sentences and size > LONGEST:
                    yield Document(tuple(sentences), where)
                    sentences, size = [], 0
                sentences.append(sentence)
                size += len(sentence)
        if sentences:
            yield Document(tuple(sentences), where)
