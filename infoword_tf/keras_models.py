"""Keras models: tokenizer, backbone and text encoder.

    import keras
    from infoword_tf.keras_models import TextEncoder

    texts = keras.Input((), dtype='string')
    vectors = TextEncoder.from_preset('runs/minilm')(texts)      # [B, E]
    scores = keras.layers.Dense(3)(vectors)
    model = keras.Model(texts, scores)               # compile, fit, save

A preset is a workdir, or a folder of transformers or sentence-transformers.
Fields have KerasHub's names. Results are those of `infoword_tf.load` of the
preset; with `training=True` there is dropout, by the trainer's fused
operations.

A `.keras` file holds the whole model (weights, config and vocabulary), and
`keras.saving.load_model` reads it in every process that has imported this
module. `to_workdir` writes the current weights into a workdir, which all
commands and exports read.

Glossary of shapes: E width of vectors.
"""

import base64
import contextlib
import pathlib
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from infoword_tf import errors
from infoword_tf.config import Config
from infoword_tf.folders import workdir_of
from infoword_tf.inference.loaded import Loaded
from infoword_tf.inference.states import segments_of
from infoword_tf.layers import dropout as by_key
from infoword_tf.layers.pooling import POOLINGS, real_places
from infoword_tf.resolve import answering
from infoword_tf.tensors import Tensor
from infoword_tf.text import strings
from infoword_tf.text.layout import layout_of
from infoword_tf.text.template import Template
from infoword_tf.text.tokenizer import TextTokenizer
from infoword_tf.workdir import Workdir, read_tokenizer, write_tokenizer

if keras.backend.backend() != 'tensorflow':
    raise ImportError(
        'infoword_tf.keras_models makes tokenizers of TensorFlow operations: '
        'set KERAS_BACKEND=tensorflow before Keras is imported (it is '
        f'{keras.backend.backend()} here)'
    )

VERSION = 1  # of the configs in `.keras` files
PRECISIONS = 'float32', 'mixed_bfloat16'
IDS, SEGMENTS, MASK = FIELDS = 'token_ids', 'segment_ids', 'padding_mask'
STATES, VECTORS = 'sequence_output', 'pooled_output'
_saved = keras.saving.register_keras_serializable('infoword_tf')


# -------------------------------------------------------------------- layers


class _StringLayer(keras.layers.Layer):
    """A layer that takes strings."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        # Keras does not count strings as tensors, and XLA has none.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.supports_jit = False

    @property
    def compute_dtype(self) -> str:
        """Dtype of the input that Keras gives to a `Sequential` without any."""
        return 'string'

    variable_dtype = compute_dtype  # weights are those of layers inside


@_saved
class Tokenizer(_StringLayer):
    """A layer from strings to the inputs of a `Backbone`.

    In the graph of a model, or in `tf.data`: `dataset.map(tokenizer)`.

    Attributes:
        sequence_length: T.
        prompt: name of the text before each text, see `from_preset`.
        tokenizer: tokenizer that makes ids of strings.
    """

    def __init__(
        self,
        made_of: Loaded | Mapping[str, Any],
        sequence_length: int | None = None,
        prompt: str | None = None,
        **kwargs: Any,
    ):
        """Makes the layer of a loaded model or a config; see `from_preset`."""
        super().__init__(**kwargs)
        if isinstance(made_of, Loaded):
            self._config, self.tokenizer = made_of.config, made_of.tokenizer
        else:
            with _folder_of(made_of) as folder:
                self._config = Config.read(folder)
                self.tokenizer = read_tokenizer(folder, self._config)
        self._template = Template(
            self.tokenizer, layout_of(self._config.layout)
        )
        if sequence_length is None:
            sequence_length = self._config.max_length
        around = sequence_length - self._template.free_length(
            sequence_length, texts=2
        )
        if sequence_length <= around:
            raise errors.InputError(
                'sequence_too_short',
                f'sequence_length={sequence_length}: special tokens around two '
                f'texts are {around}, so it is {around + 1} or more',
            )
        self.sequence_length, self.prompt = sequence_length, prompt
        self._before = self._config.prompt_text(prompt)
        self.built = True

    @classmethod
    def from_preset(
        cls,
        preset: str | pathlib.Path,
        sequence_length: int | None = None,
        prompt: str | None = None,
        **kwargs: Any,
    ) -> Self:
        """Reads the tokenizer of a model.

        Args:
            preset: a workdir, or a folder of transformers or
                sentence-transformers.
            sequence_length: T with special tokens, to which texts are truncated
                and padded; None: that of the model's training.
            prompt: name of a text before each text, such as 'query'; None: the
                config's default, '': nothing. Pairs have no prompt.
            **kwargs: arguments of `keras.layers.Layer`.

        Raises:
            FileNotFoundError: the folder is no model.
            ValueError: an unknown prompt, or no room for text; see
                `folders.workdir_of`.
        """
        folder = workdir_of(preset)
        config = Config.read(folder)
        json = _to_json(config, read_tokenizer(folder, config))
        return cls(json, sequence_length, prompt, **kwargs)

    def call(self, inputs: Tensor) -> dict[str, Tensor]:
        """Tokenizes and formats texts.

        Args:
            inputs: strings [B] or [B, 1], or a single string; or a tuple of two
                such tensors, for pairs of texts.

        Returns:
            'token_ids', 'segment_ids' and 'padding_mask' [B, T] int32; [T] of a
            single string. The mask is 1, and 0 for padding, which follows the
            text (not bool, since `fit` over several devices takes means of a
            batch).

        Raises:
            ValueError: strings of another shape.
        """
        fields = self.unpadded(inputs)
        for name, value in fields.items():
            lacking = self.sequence_length - tf.shape(value)[1]
            padding = self.tokenizer.pad_id if name == IDS else 0
            value = tf.pad(
                value, [[0, 0], [0, lacking]], constant_values=padding
            )
            value.set_shape((None, self.sequence_length))
            is_single = _strings(inputs)[0].shape.rank == 0
            fields[name] = value[0] if is_single else value
        return fields

    def unpadded(self, inputs: Tensor) -> dict[str, Tensor]:
        """Tokenizes, padded to the longest text; a single string is [1, T]."""
        first, *second = (tf.reshape(x, (-1,)) for x in _strings(inputs))
        if self._before and not second:
            first = tf.strings.join([self._before, first])
        ids, lengths, begins = self._template.format(
            first, second[0] if second else None, self.sequence_length
        )
        segment_ids = segments_of(self._template.layout, ids, lengths, begins)
        if segment_ids is None:
            segment_ids = tf.zeros_like(ids)
        real = tf.cast(real_places(ids, lengths), tf.int32)
        return {IDS: ids, SEGMENTS: segment_ids, MASK: real}

    def compute_output_spec(self, inputs: Any) -> dict[str, Any]:
        """Returns shapes and dtypes of `call`."""
        shape = (*_strings(inputs)[0].shape[:1], self.sequence_length)
        return {name: keras.KerasTensor(shape, 'int32') for name in FIELDS}

    def vocabulary_size(self) -> int:
        """Returns V."""
        return len(self.tokenizer)

    def get_vocabulary(self) -> list[str]:
        """Lists all tokens, in the order of ids."""
        return list(self.tokenizer.vocabulary)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `from_config`."""
        return {
            'made_of': _to_json(self._config, self.tokenizer),
            'sequence_length': self.sequence_length,
            'prompt': self.prompt,
            'name': self.name,
        }


@_saved
class _Encoder(keras.layers.Layer):
    """The encoder of a model, with pooling and weights of vectors.

    It is a layer of models that are made of a `Backbone`'s inputs and outputs,
    so that it has a config of its own.

    Attributes:
        loaded: the model; Keras tracks the weights that vectors depend on.
    """

    def __init__(
        self,
        made_of: Loaded | Mapping[str, Any],
        dtype: Any = None,
        seed: int | None = None,
        name: str = 'encoder',
        trainable: bool = True,
    ):
        """Makes the layer of a loaded model or of a config."""
        loaded = _loaded(made_of, dtype)
        super().__init__(
            name=name, dtype=loaded.model.config.precision, autocast=False
        )
        self.loaded, self.encoder = loaded, loaded.encoder
        self.dense = list(loaded.model.dense)
        learned = loaded.vectors.weights
        self.rows = [loaded.model.objectives[row] for row in learned]
        used = {id(x) for weights in learned.values() for x in weights}
        for weight in [w for row in self.rows for w in row.weights]:
            weight.trainable = id(weight) in used
        for weight in self.encoder.query_weights:
            weight.trainable = False
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True
        if not trainable:  # else some weights would become so
            self.trainable = False

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `from_config`, without weights."""
        loaded = self.loaded
        return {
            'made_of': _to_json(
                loaded.config, loaded.tokenizer, loaded.unigram
            ),
            'dtype': self.dtype_policy.name,
            'name': self.name,
            'trainable': self.trainable,
        }

    def call(
        self, inputs: Mapping[str, Tensor], training: bool | None = None
    ) -> dict[str, Tensor]:
        """Computes states and vectors, see `Backbone`."""
        key = self._key(inputs, training)
        is_one_state = POOLINGS[self.loaded.config.pooling] is None
        if key is None or not is_one_state:
            states, vectors = self.loaded.vectors.embed_with_states(
                *self._encoder_inputs(inputs), key=key
            )
            return {STATES: states, VECTORS: vectors}
        # Results that nobody reads leave the graph: without the states the
        # last layer is computed at one place alone, as in the trainer.
        ids, lengths, segment_ids = self._encoder_inputs(inputs)
        states = self.loaded.states(
            ids, lengths, segment_ids=segment_ids, key=key
        )
        return {STATES: states, VECTORS: self._embed(inputs, key)}

    def vectors(
        self, inputs: Mapping[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """Computes the vectors [B, E] of `call` alone."""
        return self._embed(inputs, self._key(inputs, training))

    def _embed(
        self, inputs: Mapping[str, Tensor], key: Tensor | None
    ) -> Tensor:
        ids, lengths, segment_ids = self._encoder_inputs(inputs)
        return self.loaded.embed(ids, lengths, segment_ids=segment_ids, key=key)

    def _encoder_inputs(
        self, inputs: Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns ids [B, T], lengths [B] and the segments that are read."""
        lengths = ops.sum(ops.cast(inputs[MASK], 'int32'), axis=1)
        has_segments = self.encoder.arguments.get('segments', 0) > 1
        return inputs[IDS], lengths, inputs[SEGMENTS] if has_segments else None

    def _key(
        self, inputs: Mapping[str, Tensor], training: bool | None
    ) -> Tensor | None:
        """Returns the next key, for the replica's share of the global batch."""
        if not training:
            return None
        state = self.seed_generator.next()
        key = by_key.new_key(state[0], state[1])
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return key
        count = ops.shape(inputs[IDS])[0]
        begin = context.replica_id_in_sync_group * count
        return by_key.of_rows(key, begin, count)

    def compute_output_spec(
        self, inputs: Mapping[str, Any], training: bool | None = None
    ) -> dict[str, Any]:
        """Returns shapes and dtypes of `call`."""
        batch, length = inputs[IDS].shape
        shapes = {
            STATES: (batch, length, self.encoder.width),
            VECTORS: (batch, self.loaded.vector_width()),
        }
        return {k: keras.KerasTensor(x, 'float32') for k, x in shapes.items()}


# Both classes are layers, too, of which Keras does not tell the types.
_Either: Any = object


class _Preset(_Either):
    """The common methods of `Backbone` and `TextEncoder`."""

    _encoder: _Encoder

    @classmethod
    def from_preset(
        cls,
        preset: str | pathlib.Path,
        *,
        pooling: str | None = None,
        dropout: float | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Reads a model with weights.

        Args:
            preset: a workdir, or a folder of transformers or
                sentence-transformers.
            pooling: name in `layers.pooling.POOLINGS`, whose result is then the
                vector, without the config's dense layers and normalization;
                None: that of the config.
            dropout: share; None: that of the model's training.
            dtype: float32 or mixed_bfloat16; None: Keras' policy.
            **kwargs: `seed` of dropout (None: from Keras',
                `keras.utils.set_random_seed`), `name`, and `trainable`,
                whether `fit` changes weights; of a `TextEncoder` also
                `sequence_length` and `prompt`, see `Tokenizer.from_preset`.

        Raises:
            FileNotFoundError: the folder is no model.
            ValueError: an unknown pooling, dtype or prompt; see `load` and
                `folders.workdir_of`.
        """
        loaded = _read(preset, pooling, dropout, dtype)
        return cls(loaded, dtype=dtype, **kwargs)

    def to_workdir(self, folder: str | pathlib.Path) -> None:
        """Writes a workdir of the current weights.

        The workdir has only rows whose weights vectors need: heads trained with
        another encoder do not fit this one.

        Raises:
            FileExistsError: the folder has files.
        """
        self._encoder.loaded.write(folder)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `from_config`, without weights."""
        return {
            **self._encoder.get_config(),
            'name': self.name,
            'trainable': self.trainable,
        }


@_saved
class Backbone(_Preset, keras.Model):
    """A functional model from a `Tokenizer`'s fields to states and vectors.

    Inputs are 'token_ids', 'segment_ids' and 'padding_mask' [B, T] int32; the
    mask is 0 (or False) for padding, which follows the text. Encoders without
    segments do not read these. Outputs are float32 in every precision:
    'sequence_output' [B, T, D], the last layer's states, and 'pooled_output'
    [B, E], the vector of `encode`.
    """

    def __init__(
        self,
        made_of: Loaded | Mapping[str, Any],
        dtype: Any = None,
        seed: int | None = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        """Makes the model of a loaded one or of a config; see `from_preset`."""
        encoder = _Encoder(made_of, dtype, seed)
        inputs = {
            field: keras.Input((None,), dtype='int32', name=field)
            for field in FIELDS
        }
        super().__init__(inputs, encoder(inputs), name=name)
        self.dtype_policy = encoder.dtype_policy
        self.trainable = trainable
        self._encoder = encoder

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Any = None
    ) -> Self:
        """Makes the model without weights, or raises for another version."""
        del custom_objects
        return cls(**config)


@_saved
class TextEncoder(_Preset, _StringLayer):
    """A trainable layer from strings to the vectors [B, E] float32 of `encode`.

    In training texts are padded to T, so that one graph is enough; else to the
    longest of a batch.

    Attributes:
        tokenizer: a `Tokenizer`.
    """

    def __init__(
        self,
        made_of: Loaded | Mapping[str, Any],
        sequence_length: int | None = None,
        prompt: str | None = None,
        dtype: Any = None,
        seed: int | None = None,
        name: str | None = None,
        trainable: bool = True,
    ):
        """Makes the model of a loaded one or of a config; see `from_preset`."""
        loaded = _loaded(made_of, dtype)
        super().__init__(
            name=name, dtype=loaded.model.config.precision, trainable=trainable
        )
        self.tokenizer = Tokenizer(
            loaded, sequence_length, prompt, name='tokenizer'
        )
        self._encoder = _Encoder(loaded, seed=seed)
        self._encoder.trainable = trainable
        self.built = True

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Encodes a batch of strings, in the shapes of `Tokenizer.call`."""
        if _strings(inputs)[0].shape[:1] == 0:  # kernels fail on no text
            return tf.zeros((0, self._encoder.loaded.vector_width()))
        tokenize = self.tokenizer if training else self.tokenizer.unpadded
        return self._encoder.vectors(tokenize(inputs), training)

    def compute_output_spec(
        self, inputs: Any, training: bool | None = None
    ) -> Any:
        """Returns shape and dtype of `call`."""
        batch = _strings(inputs)[0].shape[0]
        width = self._encoder.loaded.vector_width()
        return keras.KerasTensor((batch, width), 'float32')

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of `from_config`, without weights."""
        return {
            **super().get_config(),
            'sequence_length': self.tokenizer.sequence_length,
            'prompt': self.tokenizer.prompt,
        }


# ------------------------------------------------------------- serialization


def _to_json(
    config: Config,
    tokenizer: TextTokenizer,
    unigram: np.ndarray | None = None,
) -> dict[str, Any]:
    """Serializes a model to JSON, without weights."""
    with tempfile.TemporaryDirectory() as folder:
        write_tokenizer(pathlib.Path(folder), tokenizer)
        files = {
            path.name: _text_of(path.read_bytes())
            for path in sorted(pathlib.Path(folder).iterdir())
        }
    return {
        'version': VERSION,
        'config': config.to_json(),
        'files': files,
        'unigram': None if unigram is None else _text_of(
            np.asarray(unigram, '<i8').tobytes()
        ),
    }  # fmt: skip


@contextlib.contextmanager
def _folder_of(json: Mapping[str, Any]) -> Iterator[pathlib.Path]:
    """Writes config and vocabulary of `_to_json` to a temporary folder.

    Raises:
        ValueError: another version.
    """
    version = json.get('version')
    if version != VERSION:
        raise errors.InputError(
            'keras_other_version',
            f'this .keras file is of version {version} of '
            f'infoword_tf.keras_models, and this code reads version {VERSION}: '
            'load it with the release that wrote it',
        )
    config = Config.from_json(json['config'], 'the config in the .keras file')
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        config.write(folder)
        for file, text in json['files'].items():
            if pathlib.Path(file).name != file:
                raise errors.InputError(
                    'keras_strange_file',
                    f'this .keras file names the file {file!r}, which is none '
                    'of a vocabulary: it is damaged, or made to do harm',
                )
            (folder / file).write_bytes(_bytes_of(text))
        yield folder


def _loaded(made_of: Loaded | Mapping[str, Any], dtype: Any) -> Loaded:
    """Returns a loaded model, or makes one of `_to_json` without weights."""
    if isinstance(made_of, Loaded):
        return made_of
    with _folder_of(made_of) as folder:
        loaded = Loaded(Workdir.bare(folder, _precision(dtype)))
    if made_of['unigram'] is not None:
        loaded.workdir.unigram = np.frombuffer(
            _bytes_of(made_of['unigram']), '<i8'
        )
    return loaded


def _read(
    preset: str | pathlib.Path,
    pooling: str | None,
    dropout: float | None,
    dtype: Any,
) -> Loaded:
    """Reads the model of a preset, with the rows that vectors need."""
    rate = {} if dropout is None else {'rate': dropout}
    workdir = Workdir.read(workdir_of(preset), _precision(dtype), rate)
    loaded = Loaded(workdir)
    config = loaded.config.replace(
        precision=_precision(dtype), run={}, task=None, teacher=None
    )
    if pooling is not None:
        loaded.vector_width(pooling)  # raises if the model cannot pool so
        config = config.replace(
            pooling=pooling, dense=(), dims=None, normalize=False
        )
        loaded.model.dense = []
    loaded = loaded.with_config(config)
    needed = loaded.vectors.weights
    for row in set(loaded.model.objectives) - set(needed):
        loaded.model.drop(row)
    rows = {row: config.rows[row] for row in needed}
    labels = config.labels if answering(['classes'], rows) else ()
    return loaded.with_config(config.replace(rows=rows, labels=labels))


def _precision(dtype: Any) -> str:
    """Returns the name of a policy in PRECISIONS, or raises a ValueError."""
    policy = keras.config.dtype_policy() if dtype is None else dtype
    name = keras.dtype_policies.get(policy).name
    if name not in PRECISIONS:
        raise errors.InputError(
            'keras_dtype',
            f'dtype {name}: encoders compute in {" or ".join(PRECISIONS)}; '
            'give dtype, or set keras.config.set_dtype_policy',
        )
    return name


def _strings(inputs: Any) -> list[Any]:
    """Returns the texts; of pairs, first and second texts.

    Raises:
        ValueError: neither [B] nor [B, 1] nor a tuple of two.
    """
    texts = [
        x if isinstance(x, keras.KerasTensor) else _tensor(x)
        for x in (inputs if isinstance(inputs, tuple) else (inputs,))
    ]
    if len(texts) > 2:
        raise errors.InputError(
            'more_than_two_texts',
            f'a tuple is of two texts to an example, this one has {len(texts)}',
        )
    for x in texts:
        if len(x.shape) > 2 or (len(x.shape) == 2 and x.shape[1] != 1):
            raise errors.InputError(
                'keras_text_shape',
                f'texts are [B] or [B, 1] strings, these are {tuple(x.shape)}: '
                'two texts to an example are a tuple of two such tensors',
            )
    return texts


def _tensor(texts: Any) -> Tensor:
    """Converts strings to a tensor; checks Python strings like `encode`.

    Raises:
        TypeError, ValueError: one is no text.
    """
    listed = isinstance(texts, list) and any(map(tf.is_tensor, texts))
    if listed or tf.is_tensor(texts):
        return tf.convert_to_tensor(texts, tf.string)
    array = np.asarray(texts, object)
    several = strings.checked(array.ravel().tolist())
    return tf.reshape(tf.constant(several, tf.string), array.shape)


def _text_of(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _bytes_of(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
