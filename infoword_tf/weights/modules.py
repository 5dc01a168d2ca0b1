"""The modules of folders of sentence-transformers, by the type of each.

    modules.json   the modules in order: Transformer, Pooling, Dense, Normalize;
                   of a CrossEncoder a Transformer alone, or Transformer,
                   Pooling, Dense; of a SparseEncoder Transformer,
                   SpladePooling; of a MultiVectorEncoder Transformer, Dense,
                   MultiVectorMask, Normalize
    sentence_bert_config.json   of the Transformer, as max_seq_length
    1_Pooling/config.json       of a module behind it

sentence_transformers.py, cross_encoder.py, sparse_encoder.py and multivector.py
make models of them.
"""

import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import DenseConfig
from infoword_tf.inference.loaded import Loaded
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.tensors import SINGLE, open_folder
from infoword_tf.weights.tokenizer_folder import read_optional_json

MODULES = 'modules.json'
SETTINGS = 'config_sentence_transformers.json'
CONFIG = 'config.json'  # of each module
# The first of these in a folder is read; the first of all is written.
TRANSFORMERS = tuple(
    f'sentence_{kind}_config.json'
    for kind in ('bert', 'roberta', 'distilbert', 'camembert', 'albert',
                 'xlm-roberta', 'xlnet')
)  # fmt: skip
# Names of model_type; the last is of PyLate.
VECTORS, CLASSES, SPARSE = (
    'SentenceTransformer', 'CrossEncoder', 'SparseEncoder'
)  # fmt: skip
NATIVE, PYLATE = 'MultiVectorEncoder', 'ColBERT'
MASK, SPLADE = 'MultiVectorMask', 'SpladePooling'
_TOKEN_POOLING, FILLS = 'HierarchicalTokenPooling', 'MLMTransformer'


class Kind(NamedTuple):
    """Parts of a model_type that can be converted.

    Attributes:
        first: the first modules.
        behind: kinds of modules that may stand behind them.
        transformer: settings of the Transformer, for `check_values`.
        output: names of what the encoder gives, for `check_values`.
        similarities: names of ways to compare, there and here; the first is
            the default.
    """

    first: Sequence[str]
    behind: Sequence[str]
    transformer: Mapping[str, tuple[Any, ...]]
    output: tuple[Any, ...]
    similarities: Mapping[str, str]


CLASSIFIES = 'sequence-classification'
_STATES = 'last_hidden_state', ['last_hidden_state']
_SCORES = 'logits', ['logits']
_DOT = {'dot': 'dot', 'dot_product': 'dot'}
_NO_EXPANSION = {'query_expansion': (None,)}
_NO_LENGTHS = {
    **_NO_EXPANSION, 'query_length': (None,), 'document_length': (None,),
}  # fmt: skip


def _task(
    name: str, output: str = 'token_embeddings'
) -> dict[str, tuple[Any, ...]]:
    return {'transformer_task': (name,), 'module_output_name': (output,)}


OF_TOKENS = Kind(
    first=['Transformer', 'Dense'],
    behind=['Dense', MASK, 'Normalize', _TOKEN_POOLING],
    transformer=_task('feature-extraction'),
    output=_STATES,
    similarities={'maxsim': 'maxsim', 'meanmaxsim': 'meanmaxsim'},
)
KINDS = {
    VECTORS: Kind(
        first=['Transformer', 'Pooling'],
        behind=['Dense', 'Normalize'],
        transformer={**_task('feature-extraction'), **_NO_LENGTHS},
        output=_STATES,
        similarities={'cosine': 'cosine', **_DOT},
    ),
    CLASSES: Kind(
        first=['Transformer'],
        behind=[],
        transformer={**_task(CLASSIFIES, 'scores'), **_NO_LENGTHS},
        output=_SCORES,
        similarities={},
    ),
    SPARSE: Kind(
        first=['Transformer', SPLADE],
        behind=[],
        transformer={**_task('fill-mask'), **_NO_EXPANSION},
        output=_SCORES,
        similarities=_DOT,
    ),
    NATIVE: OF_TOKENS,
    PYLATE: OF_TOKENS,
}
# A CrossEncoder whose score is of modules behind the Transformer.
OF_PAIRS = Kind(
    first=KINDS[VECTORS].first,
    behind=['Dense'],
    transformer=KINDS[VECTORS].transformer,
    output=_STATES,
    similarities={},
)
# Values that can be converted, for `check_values`:
# of all Transformers; of modules that read vectors of texts, or of tokens.
_OF_TEXTS: dict[str, tuple[Any, ...]] = {'processing_kwargs': ({}, None)}
READS_VECTORS, READS_TOKENS = (
    {'module_input_name': (name,), 'module_output_name': (name, None)}
    for name in ('sentence_embedding', 'token_embeddings')
)
SCORED = 'scores'  # the output of the last module of a CrossEncoder
OF_MASKS = {
    'skiplist_tasks': (['document'], None), 'keep_only_token_ids': (None,),
}  # fmt: skip
# Poolings here, and flags of the module Pooling. Newer files have names, which
# are the ends of these flags.
POOLINGS = {
    'cls': 'pooling_mode_cls_token',
    'mean': 'pooling_mode_mean_tokens',
    'max': 'pooling_mode_max_tokens',
    'by_position': 'pooling_mode_weightedmean_tokens',
    'last': 'pooling_mode_lasttoken',
}
_NEW_NAMES = {'weightedmean': 'by_position', 'lasttoken': 'last'}
ACTIVATIONS = {
    'identity': 'torch.nn.modules.linear.Identity',
    'tanh': 'torch.nn.modules.activation.Tanh',
    'relu': 'torch.nn.modules.activation.ReLU',
    'gelu': 'torch.nn.modules.activation.GELU',
}
_LIBRARIES = 'sentence_transformers.', 'pylate.models.'
_KNOWN = (
    'Transformer', 'Pooling', 'Dense', 'Normalize', 'Dropout', FILLS, SPLADE,
    MASK, _TOKEN_POOLING,
)  # fmt: skip
# Where modules are in sentence-transformers, of version 5 and of all after it;
# the others are in `sentence_transformers.models`.
_PLACES = {
    FILLS: 'sparse_encoder.models',
    SPLADE: 'sparse_encoder.models',
    MASK: 'multi_vector_encoder.modules.multi_vector_mask',
}


class PublicModules(NamedTuple):
    """A folder whose modules are known, and a Transformer is the first.

    Attributes:
        folder: path of the folder.
        modules: kind and folder of each module.
        name: the model_type.
        kind: parts of such a model that can be converted.
        settings: content of SETTINGS.
        about: settings of the Transformer.
        about_path: file that has them, for errors.
    """

    folder: pathlib.Path
    modules: Sequence[tuple[str, pathlib.Path]]
    name: str
    kind: Kind
    settings: dict[str, Any]
    about: dict[str, Any]
    about_path: str

    @property
    def where(self) -> str:
        """Path of SETTINGS, for errors."""
        return f'{self.folder}/{SETTINGS}'

    @property
    def encoder(self) -> pathlib.Path:
        """Folder of the Transformer."""
        return self.modules[0][1]

    @property
    def texts(self) -> dict[str, Any]:
        """Fields of `VectorSettings` that say how texts are read."""
        arguments = {
            **(self.about.get('tokenizer_args') or {}),
            **(self.about.get('processor_kwargs') or {}),
        }
        return {
            'max_length': arguments.get(
                'model_max_length', self.about.get('max_seq_length')
            ),
            'lower_case': bool(self.about.get('do_lower_case')),
        }


def read(folder: pathlib.Path) -> PublicModules:
    """Reads which modules a folder has, and the settings of the first.

    Raises:
        ValueError: an unknown module, or an order that cannot be converted.
    """
    modules = list_modules(folder)
    kinds = [x for x, _ in modules]
    settings = read_optional_json(folder / SETTINGS)
    name = settings.get('model_type') or _type_of(kinds)
    if name not in KINDS:
        raise errors.InputError(
            'public_unknown_task',
            f'{folder}/{SETTINGS} has the model_type {name!r}; known are '
            f'{", ".join(KINDS)}',
        )
    kind = KINDS[name]
    if name == CLASSES and len(modules) > 1:
        kind = OF_PAIRS
    if kinds[:2] != kind.first:
        raise errors.InputError(
            'unknown_module_order',
            f'{folder}/{MODULES} begins with {" and ".join(kinds[:2])}, not '
            f'with {" and ".join(kind.first)} as a {name} that can be '
            'converted',
        )
    about, path = _read_transformer(modules[0][1], kind)
    return PublicModules(
        folder,
        modules,
        name=name,
        kind=kind,
        settings=settings,
        about=about,
        about_path=path,
    )


def list_modules(folder: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Lists the kind and the folder of each module."""
    path = folder / MODULES
    try:
        entries = json.loads(path.read_text(encoding='utf-8'))
        modules = [(entry['type'], folder / entry['path']) for entry in entries]
        names = [kind.rpartition('.')[2] for kind, _ in modules]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.InputError(
            'modules_unreadable', f'{path} cannot be read: {error}'
        ) from None
    for (kind, _), name in zip(modules, names, strict=True):
        if name not in _KNOWN or not kind.startswith(_LIBRARIES):
            raise errors.InputError(
                'public_unknown_module',
                f'{path} has the module {kind}; known are those of '
                f'sentence_transformers called {", ".join(_KNOWN)}',
            )
    return [
        ('Transformer' if name == FILLS else name, place)
        for name, (_, place) in zip(names, modules, strict=True)
    ]


def _type_of(kinds: Sequence[str]) -> str:
    """Chooses a model_type by the modules of a folder without one.

    Older folders of PyLate have none, and no Pooling.
    """
    if SPLADE in kinds:
        return SPARSE
    is_late = kinds[:2] == OF_TOKENS.first
    return PYLATE if is_late else VECTORS


def _read_transformer(
    folder: pathlib.Path, kind: Kind
) -> tuple[dict[str, Any], str]:
    """Reads the settings of the Transformer; returns also the path."""
    names = (folder / name for name in TRANSFORMERS)
    path = next((x for x in names if x.is_file()), folder / TRANSFORMERS[0])
    settings = read_optional_json(path)
    check_values(settings, {**kind.transformer, **_OF_TEXTS}, str(path))
    modalities = settings.get('modality_config', {'text': {}})
    check_values(
        modalities.get('text', {'method': None}),
        {'method': ('forward',), 'method_output_name': kind.output},
        f'{path}, texts,',
    )
    return settings, str(path)


def read_similarity(settings: Mapping[str, Any], kind: Kind, where: str) -> str:
    """Reads how vectors are compared."""
    known = kind.similarities
    name = settings.get('similarity_fn_name') or next(iter(known))
    if name.lower() not in known:  # PyLate has capitals
        raise errors.InputError(
            'public_unknown_similarity',
            f'{where} compares vectors by {name}; known are '
            f'{", ".join(sorted(set(known.values())))}',
        )
    return known[name.lower()]


class Layers(NamedTuple):
    """Modules over states or vectors, and weights by path.

    Attributes:
        skip: words without a vector, see `LateConfig`.
    """

    dense: tuple[DenseConfig, ...]
    tensors: dict[str, Any]
    normalize: bool
    skip: tuple[str, ...]


def read_layers(
    folder: pathlib.Path,
    modules: Sequence[tuple[str, pathlib.Path]],
    kind: Kind,
) -> Layers:
    """Reads the modules behind the first of `modules`."""
    known, prefix = READS_VECTORS, 'dense'
    if kind is OF_TOKENS:
        known, prefix = READS_TOKENS, 'late/late'
    elif kind is OF_PAIRS:
        written = known['module_output_name']
        known = {**known, 'module_output_name': (*written, SCORED)}
    dense: list[DenseConfig] = []
    tensors: dict[str, Any] = {}
    normalize, skip = False, ()
    for (before, _), (name, place) in itertools.pairwise(modules):
        path = place / CONFIG
        config = read_optional_json(path)
        if name == 'Dropout':  # of training alone
            continue
        if name not in kind.behind or (normalize and name == 'Dense'):
            raise errors.InputError(
                'module_behind',
                f'{folder}/{MODULES} has {name} behind {before}, which cannot '
                'be converted',
            )
        if name == 'Dense':
            layer, arrays = _dense(place, f'{prefix}_{len(dense)}', known)
            dense.append(layer)
            tensors |= arrays
        elif name == 'Normalize':
            # Without a name it normalizes vectors of texts.
            config = {'module_input_name': 'sentence_embedding', **config}
            check_values(config, known, str(path))
            normalize = True
        elif name == MASK:
            check_values(config, OF_MASKS, str(path))
            skip = tuple(config.get('skiplist_words') or ())
        else:
            check_values(config, {'pool_factor': (1,)}, str(path))
    return Layers(tuple(dense), tensors, normalize, skip)


def read_config(
    folder: pathlib.Path, kind: str
) -> tuple[pathlib.Path, dict[str, Any]]:
    """Reads the settings of a module; returns also the path."""
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f'{folder} has no {CONFIG}: no {kind}')
    return path, files.read_json(path)


def read_pooling(folder: pathlib.Path) -> tuple[str, bool]:
    """Reads the name of a Pooling, and whether states of prompts count."""
    path, config = read_config(folder, 'Pooling')
    modes = config.get('pooling_mode')
    if modes is not None:
        modes = [modes] if isinstance(modes, str) else list(modes)
        modes = [_NEW_NAMES.get(name, name) for name in modes]
    else:
        names = {flag: name for name, flag in POOLINGS.items()}
        modes = [
            names.get(key, key.removeprefix('pooling_mode_'))
            for key, value in config.items()
            if key.startswith('pooling_mode_') and value
        ] or ['mean']
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise errors.InputError(
            'unknown_public_pooling',
            f'{path} pools by {" and ".join(modes) or "nothing"}; known is '
            f'one of {", ".join(POOLINGS)}',
        )
    return modes[0], bool(config.get('include_prompt', True))


def _dense(
    folder: pathlib.Path, name: str, known: Mapping[str, Any]
) -> tuple[DenseConfig, dict[str, Any]]:
    """Reads a Dense, and the weights by path; `known` of `check_values`."""
    path, config = read_config(folder, 'Dense')
    check_values(config, {**known, 'use_residual': (False, None)}, str(path))
    theirs = config.get('activation_function', ACTIVATIONS['tanh'])
    ours = {v.rpartition('.')[2]: k for k, v in ACTIVATIONS.items()}
    activation = ours.get(theirs.rpartition('.')[2])
    if activation is None:
        raise errors.InputError(
            'unknown_dense_activation',
            f'{path} has the activation {theirs}; known are '
            f'{", ".join(ACTIVATIONS.values())}',
        )
    weights = open_folder(folder)
    bias = bool(config.get('bias', True))
    names = ['linear.weight', *(['linear.bias'] if bias else [])]
    if sorted(weights) != sorted(names):
        raise errors.InputError(
            'dense_other_weights',
            f'{folder} holds {", ".join(sorted(weights))}, not '
            f'{", ".join(names)}',
        )
    arrays = {f'{name}/kernel': weights['linear.weight'].T}
    if bias:
        arrays[f'{name}/bias'] = weights['linear.bias']
    return DenseConfig(int(config['out_features']), activation, bias), arrays


def defaults(known: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Returns the first of the values that can be converted, by key."""
    return {key: values[0] for key, values in known.items()}


class Modules:
    """The modules of a folder that is written, in order.

    Attributes:
        folder: path of the folder.
        kinds: names of the modules.
    """

    def __init__(self, folder: pathlib.Path, first: str = 'Transformer'):
        """Begins with the module `first`."""
        self.folder, self.kinds = folder, [first]

    def add(
        self,
        kind: str,
        values: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Adds a module with settings and weights, or with none."""
        place = self.folder / f'{len(self.kinds)}_{kind}'
        self.kinds.append(kind)
        if values is not None:
            place.mkdir()
            files.write_json(place / CONFIG, dict(values))
        if arrays is not None:
            files.write_tensors(place / SINGLE, arrays, {'format': 'pt'})

    def add_pooling(self, pooling: str, width: int) -> None:
        """Adds a Pooling of POOLINGS over states of a width."""
        modes = {flag: name == pooling for name, flag in POOLINGS.items()}
        sizes = {'word_embedding_dimension': width, **modes}
        self.add('Pooling', {**sizes, 'include_prompt': True})

    def add_layers(
        self,
        layers: Sequence[DenseConfig],
        built: Sequence[Any],
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Adds dense layers; `names` are of inputs and outputs."""
        for layer, x in zip(layers, built, strict=True):
            bias = x.bias.numpy() if layer.bias else None
            self.add_dense(layer, x.kernel.numpy(), bias, names)

    def add_dense(
        self,
        layer: DenseConfig,
        kernel: np.ndarray,
        bias: np.ndarray | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a dense layer; as `add_layers`."""
        arrays = {'linear.weight': kernel.T}
        if bias is not None:
            arrays['linear.bias'] = bias
        self.add(
            'Dense',
            {
                'in_features': len(kernel),
                'out_features': layer.width,
                'bias': layer.bias,
                'activation_function': ACTIVATIONS[layer.activation],
                **(names or {}),
            },
            arrays,
        )

    def write(
        self, loaded: Loaded, settings: Mapping[str, Any], **transformer: Any
    ) -> None:
        """Writes the files beside the modules.

        Args:
            loaded: the model, with prompts and lengths.
            settings: content of SETTINGS.
            **transformer: settings of the first module.
        """
        config = loaded.config
        listed = []
        for i, kind in enumerate(self.kinds):
            path = f'{i}_{kind}' if i else ''
            place = f'sentence_transformers.{_PLACES.get(kind, "models")}'
            listed.append({
                'idx': i, 'name': str(i), 'path': path,
                'type': f'{place}.{kind}',
            })  # fmt: skip
        files.write_json(self.folder / MODULES, listed)
        files.write_json(
            self.folder / TRANSFORMERS[0],
            {
                'max_seq_length': config.max_length,
                'do_lower_case': False,
                **transformer,
            },
        )
        prompts = {
            'prompts': config.prompts, 'default_prompt_name': config.prompt
        }  # fmt: skip
        files.write_json(self.folder / SETTINGS, {**prompts, **settings})
