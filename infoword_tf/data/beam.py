"""Shards of a prepared store, made by a pipeline of Apache Beam.

An element is the number of a shard, which data/sharding.py writes.
"""

from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from infoword_tf.data import sharding
from infoword_tf.data.sharding import Job


def make(job: Job, numbers: Sequence[int], options: Sequence[str]) -> None:
    """Writes shards on the workers of a runner.

    Args:
        job: its text and its folder have the same names on every worker.
        numbers: shards to write.
        options: settings of the pipeline, as `runner=DirectRunner`.

    Raises:
        RuntimeError: the pipeline failed, or ended without all shards.
    """
    with beam.Pipeline(
        options=PipelineOptions([f'--{option}' for option in options])
    ) as pipeline:
        shards = pipeline | beam.Create(numbers) | beam.Reshuffle()
        _ = shards | 'write' >> beam.Map(sharding.write, job)
    lacking = sum(not job.finished(number).exists() for number in numbers)
    if lacking:
        raise RuntimeError(
            f'{lacking} of {len(numbers)} shards of {job.output} are not '
            'there: the pipeline was stopped, or a worker writes elsewhere; '
            'name a folder that all of them share, and run the same command '
            'again'
        )
