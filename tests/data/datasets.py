"""Small data sets of TFDS, prepared in a folder of their own, no network."""

import contextlib
import socket
from unittest import mock

import tensorflow_datasets as tfds

kinds = tfds.features


def prepare(folder, name, features, splits, config=None, **more):
    """Prepares a data set as TFDS's builders do.

    Args:
        folder: TFDS_DATA_DIR.
        name: of the data set.
        features: by name.
        splits: examples by split.
        config: the configuration's name.
        **more: for `download_and_prepare`'s builder: `version`, `file_format`.
    """
    version = more.pop('version', '1.0.0')

    class Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        code_path = None  # there are no checksums beside it
        VERSION = tfds.core.Version(version)
        BUILDER_CONFIGS = [
            tfds.core.BuilderConfig(name=one) for one in filter(None, [config])
        ]

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self, features=kinds.FeaturesDict(features)
            )

        def _split_generators(self, manager):
            del manager
            return {
                split: self._generate_examples(examples)
                for split, examples in splits.items()
            }

        def _generate_examples(self, examples):
            yield from enumerate(examples)

    Builder.name = name
    builder = Builder(data_dir=folder, config=config, **more)
    builder.download_and_prepare()
    return builder


@contextlib.contextmanager
def only(folder):
    """TFDS knows this folder alone, and whoever asks the network fails."""

    def refuse(*arguments, **more):
        raise AssertionError(f'the network was asked: {arguments} {more}')

    with (
        mock.patch.object(tfds.core.constants, 'DATA_DIR', str(folder)),
        mock.patch.object(socket.socket, 'connect', refuse),
        mock.patch.object(socket, 'getaddrinfo', refuse),
    ):
        yield
