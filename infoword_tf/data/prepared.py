"""Data sets that tensorflow-datasets (TFDS) has prepared, read as streams.

Nothing is downloaded or prepared here: a data set that TFDS's own folder
(TFDS_DATA_DIR) does not hold is an error that says how to prepare it. Features
go by their paths, `text` or `title/text`; features of one value an example are
read.
"""

import difflib
import hashlib
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from infoword_tf import errors
from infoword_tf.data import documents
from infoword_tf.data.documents import Document
from infoword_tf.data.textfiles import LONGEST

HELDOUT = ('test', 'validation')  # the first of these splits is held out
_SPEC = re.compile(r'(?P<name>[^:]+(:\d+\.\d+\.\d+)?)(:(?P<rest>[^:]+))?')
_EXAMPLES_A_CALL = 256


class TfdsDataset(NamedTuple):
    """Opened data set of TFDS.

    Attributes:
      name: `tfds:NAME[/CONFIG]`, as the user wrote it.
      builder: TFDS's.
      features: by path, TFDS's features of one value an example.
    """

    name: str
    builder: Any
    features: dict[str, Any]

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(self.builder.info.splits)


def parse(spec: str, rest: str) -> tuple[str, str | None]:
    """Splits `NAME[/CONFIG][:VERSION][:rest]`; ValueError: no name."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise errors.InputError(
            'wrong_tfds_name',
            f'tfds:{spec} is no name: expected tfds:NAME[/CONFIG][:{rest}], '
            'for example tfds:glue/rte',
        )
    return match['name'], match['rest']


def open_prepared(name: str) -> TfdsDataset:
    """Opens a data set in TFDS's folder.

    Raises:
        ValueError: TFDS knows no such name, the data set was never prepared, or
            tensorflow-datasets cannot be imported.
    """
    try:
        import tensorflow_datasets as tfds
    except Exception as error:  # also where it does not fit TensorFlow
        raise errors.InputError(
            'no_tensorflow_datasets',
            f'tfds:{name} needs tensorflow-datasets, which does not import '
            f'({error}): `pip install tensorflow-datasets`',
        ) from error
    try:
        builder = tfds.builder(name)
    except tfds.core.DatasetNotFoundError:
        known = tfds.list_builders(with_community_datasets=False)
        raise errors.InputError(
            'unknown_tfds_name',
            f'tfds:{name}: tensorflow-datasets has no data set of this name'
            + _nearest(name.split('/')[0].split(':')[0], known),
        ) from None
    except (ValueError, AssertionError) as error:
        # Of the pages of the message the first line says what is wrong.
        why = str(error).split('\n')[0].split('. ')[0]
        raise errors.InputError(
            'tfds_cannot_open', f'tfds:{name} cannot be opened ({why})'
        ) from None
    if not (builder.data_path / 'dataset_info.json').exists():
        raise errors.InputError(
            'tfds_never_prepared',
            f'tfds:{name} was never prepared: {builder.data_path} is not '
            'there. Prepare it once by `python -c "import tensorflow_datasets '
            f"as tfds; tfds.builder('{name}').download_and_prepare()\"`, or "
            'name the folder that holds it with TFDS_DATA_DIR',
        )
    # Sorted, since TFDS lists features in another order each time.
    features = dict(sorted(_flat(builder.info.features)))
    return TfdsDataset(f'tfds:{name}', builder, features)


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


def check_split(prepared: TfdsDataset, split: str) -> None:
    """Raises ValueError where the data set has no split of a name."""
    if split not in prepared.splits:
        raise errors.InputError(
            'unknown_tfds_split',
            f'{prepared.name} has no split {split!r}: it has '
            f'{", ".join(prepared.splits)}',
        )


class ExampleRange(NamedTuple):
    """Range of examples of a split.

    Attributes:
        begin, end: the first example, and the one after the last; None: to the
            end of the split.
    """

    begin: int = 0
    end: int | None = None


ALL = ExampleRange()


def ranges(prepared: TfdsDataset, split: str, size: int) -> list[ExampleRange]:
    """Divides a split into ranges of about `size` bytes.

    Every example counts as many bytes as the average.
    """
    info = prepared.builder.info.splits[split]
    count, total = info.num_examples, info.num_bytes
    if not count or not total:
        return [ALL]
    each = max(1, round(size * count / total))
    return [
        ExampleRange(begin, min(begin + each, count))
        for begin in range(0, count, each)
    ]


def read(
    prepared: TfdsDataset,
    split: str,
    paths: Sequence[str],
    examples: ExampleRange = ALL,
) -> Iterator[tuple[Any, ...]]:
    """Yields the values of features, example by example.

    No more than a few hundred examples are in memory.

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
        end = len(source) if examples.end is None else examples.end
        yield from (values(source[n]) for n in range(examples.begin, end))
        return
    # One file after the other, and nothing kept in memory.
    config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
    if examples.end is not None:
        split = tfds.core.ReadInstruction(
            split, from_=examples.begin, to=examples.end, unit='abs'
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
    """Decodes the text of a feature; ValueError: no UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise errors.InputError(
            'tfds_not_utf8',
            f'{where} is not UTF-8: byte 0x{value[error.start]:02x} at offset '
            f'{error.start:,} ({error.reason})',
        ) from None


# ----------------------------------------------------------------- as a corpus


def text_feature(prepared: TfdsDataset, path: str | None) -> str:
    """Chooses the feature that holds the text of a corpus.

    Raises:
      ValueError: the data set has no such text, or several to choose from.
    """
    import numpy as np

    texts = [
        name
        for name, feature in prepared.features.items()
        if np.dtype(feature.np_dtype).kind in 'OSU'
    ]
    if not texts:
        raise errors.InputError(
            'tfds_without_text',
            f'{prepared.name} has no text feature: its features are '
            f'{", ".join(sorted(prepared.builder.info.features))}',
        )
    if path is not None and path not in texts:
        raise errors.InputError(
            'unknown_tfds_feature',
            f'{prepared.name} has no text feature {path!r}: it has '
            f'{", ".join(texts)}',
        )
    if path is None and 'text' in texts:
        return 'text'
    if path is None and len(texts) > 1:
        raise errors.InputError(
            'several_tfds_features',
            f'{prepared.name} has several text features: name one of '
            f'{", ".join(texts)} after a colon, {prepared.name}:{texts[0]}',
        )
    return path or texts[0]


def fingerprint(prepared: TfdsDataset, path: str, splits: Sequence[str]) -> str:
    """Hashes the data set, the feature and the splits' files: 32 hex digits."""
    digest = hashlib.blake2b(b'tfds 1', digest_size=16)
    digest.update(f'{prepared.builder.info.full_name} {path}'.encode())
    for split in splits:
        for file in prepared.builder.info.splits[split].filepaths:
            stat = file.stat()
            record = (split, file.name, stat.length, stat.mtime)
            digest.update(repr(record).encode())
    return digest.hexdigest()


def read_documents(
    prepared: TfdsDataset, split: str, path: str, examples: ExampleRange = ALL
) -> Generator[Document, None, None]:
    """Yields the examples of a split that have text, as documents.

    A line is a sentence or a paragraph; an example of more than a megabyte
    continues as the next document.
    """
    for number, (value,) in enumerate(
        read(prepared, split, [path], examples), examples.begin
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
