"""Shards of a prepared store, made by a pipeline of Apache Beam.

Each shard is looked at and written by data/sharding.py, whatever drives it.
Only duplicates are found in another way, without a place where all meet.
A document is left out if it repeats the first one of its hash, or is near the
first one of a band's key (data/duplicates.py): keys decide, so documents are
grouped by them. Arrays travel instead of single documents, each of a shard's
documents whose keys fall into one group, and there are as many groups as make
them about as large as shards, however large the text is.

    shards -> look -> hashes by group -> copies
    what is left -> keys of bands by group -> pairs with the first of a key
    pairs by the document's shard -> its sketch, by the shard of the first
        -> those that are near
    shards, with copies and near ones -> write
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions

from infoword_tf.data import duplicates, sharding
from infoword_tf.data.filters import number_of
from infoword_tf.data.sharding import Job

# A shard's documents: its number, their places in it, and their keys.
Keyed = tuple[int, np.ndarray, np.ndarray]
Lost = Mapping[str, Iterable[np.ndarray]]  # by reason, places in a shard


def make(job: Job, count: int, options: Sequence[str]) -> None:
    """Makes what is not finished of so many shards.

    Args:
        job: its text and its folder have the same names on every worker.
        options: of the pipeline, as `runner=DirectRunner`.

    Raises:
        RuntimeError: the pipeline failed, or ended without all shards.
    """
    given = PipelineOptions([f'--{option}' for option in options])
    groups = -(-count // duplicates.BANDS)
    with beam.Pipeline(options=given) as pipeline:
        shards = pipeline | beam.Create(range(count)) | beam.Reshuffle()
        if not job.filters.are_any:
            _ = shards | 'write' >> beam.Map(_write, job)
        else:
            looked = shards | 'look' >> beam.Map(_look, job)
            # Shards of which nothing is lost are written, too.
            lost = {'': looked | 'keyed' >> beam.Map(_keyed)}
            if job.filters.duplicates != 'keep':
                lost['duplicate'] = (
                    looked
                    | 'hashes' >> beam.FlatMap(_hashes, job, groups)
                    | 'by hash' >> beam.GroupByKey()
                    | 'copies' >> beam.FlatMap(_copies)
                )
            if job.filters.duplicates == 'near':
                lost['near'] = (
                    lost
                    | 'left' >> beam.CoGroupByKey()
                    | 'bands' >> beam.FlatMap(_bands, job, groups)
                    | 'by band' >> beam.GroupByKey()
                    | 'pairs' >> beam.FlatMap(_pairs)
                    | 'by document' >> beam.GroupByKey()
                    | 'sketches' >> beam.FlatMap(_sketches, job)
                    | 'by first' >> beam.GroupByKey()
                    | 'near' >> beam.FlatMap(_near, job)
                )
            _ = (
                lost
                | 'kept' >> beam.CoGroupByKey()
                | 'write' >> beam.Map(_write_kept, job)
            )
    lacking = sum(not job.finished(n).exists() for n in range(count))
    if lacking:
        raise RuntimeError(
            f'{lacking} of {count} shards of {job.output} are not there: the '
            'pipeline was stopped, or a worker writes elsewhere; name a folder '
            'that all of them share, and run the same command again'
        )


def _look(number: int, job: Job) -> int:
    if not job.looked(number).exists():
        sharding.look(job, number)
    return number


def _keyed(number: int) -> tuple[int, None]:
    return number, None


def _write(number: int, job: Job, reasons: np.ndarray | None = None) -> None:
    if not job.finished(number).exists():
        sharding.write(job, number, reasons)


def _write_kept(shard: tuple[int, Lost], job: Job) -> None:
    number, lost = shard
    _write(number, job, _reasons(job, number, lost))


def _reasons(job: Job, number: int, lost: Lost) -> np.ndarray:
    """[D] uint8: why each document of a shard is left out; 0: it is not."""
    with np.load(job.looked(number)) as found:
        reasons = found['reasons']
    for reason, places in lost.items():
        for some in places if reason else ():
            reasons[some] = number_of(reason)
    return reasons


def _dealt(groups: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """By group the places that have it, in order."""
    order = np.argsort(groups, kind='stable')
    values, begins = np.unique(groups[order], return_index=True)
    for value, some in zip(values, np.split(order, begins[1:]), strict=False):
        yield int(value), some


def _in_order(found: Iterable[Keyed]) -> Keyed:
    """Documents of all shards as they stand in the text; arrays alone."""
    found = sorted(found, key=lambda some: some[0])
    numbers, places, keys = zip(*found, strict=True)
    counts = [len(some) for some in places]
    return np.repeat(numbers, counts), *map(np.concatenate, (places, keys))


def _hashes(
    number: int, job: Job, groups: int
) -> Iterator[tuple[int, Keyed]]:
    places = np.flatnonzero(_reasons(job, number, {}) == 0)
    with np.load(job.looked(number)) as found:
        hashes = found['hashes'][places]
    for group, some in _dealt(hashes % groups):
        yield group, (number, places[some], hashes[some])


def _copies(
    group: tuple[int, Iterable[Keyed]]
) -> Iterator[tuple[int, np.ndarray]]:
    numbers, places, hashes = _in_order(group[1])
    again = np.flatnonzero(duplicates.repeated(hashes))
    for number, some in _dealt(numbers[again]):
        yield number, places[again[some]]


def _bands(
    shard: tuple[int, Lost], job: Job, groups: int
) -> Iterator[tuple[int, Keyed]]:
    number, lost = shard
    places = np.flatnonzero(_reasons(job, number, lost) == 0)
    with np.load(job.looked(number)) as found:
        sketch = found['sketches'][places]
    for band in range(duplicates.BANDS):
        keys = duplicates.band(sketch, band)
        for group, some in _dealt(keys % groups):
            # Keys of two bands never meet.
            yield band * groups + group, (number, places[some], keys[some])


def _pairs(
    group: tuple[int, Iterable[Keyed]]
) -> Iterator[tuple[int, np.ndarray]]:
    """[3, n] by shard: a place in it, the shard and place of the first."""
    numbers, places, keys = _in_order(group[1])
    leaders = duplicates.leaders(keys)
    later = np.flatnonzero(leaders != np.arange(len(leaders)))
    for number, some in _dealt(numbers[later]):
        first = leaders[later[some]]
        yield number, np.stack(
            [places[later[some]], numbers[first], places[first]]
        )


def _sketches(
    shard: tuple[int, Iterable[np.ndarray]], job: Job
) -> Iterator[tuple[int, tuple[int, np.ndarray, np.ndarray, np.ndarray]]]:
    """By shard of the first: a shard, places there, of firsts, sketches."""
    number, pairs = shard
    # Copies agree in many bands.
    places, others, firsts = np.unique(np.hstack([*pairs]), axis=1)
    with np.load(job.looked(number)) as found:
        sketches = found['sketches']
    for other, some in _dealt(others):
        place = places[some]
        yield other, (number, place, firsts[some], sketches[place])


def _near(
    shard: tuple[int, Iterable[tuple]], job: Job
) -> Iterator[tuple[int, np.ndarray]]:
    other, given = shard
    with np.load(job.looked(other)) as found:
        sketches = found['sketches']
    for number, places, firsts, sketch in given:
        same = duplicates.alike(
            sketches[firsts], sketch, job.filters.similarity
        )
        yield number, places[same]
