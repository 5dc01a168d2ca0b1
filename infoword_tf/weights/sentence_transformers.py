"""Folders of sentence-transformers: what texts become, and how they compare.

    modules.json   the modules in order: Transformer, Pooling, Dense, Normalize;
                   of a CrossEncoder a Transformer alone, or Transformer,
                   Pooling, Dense; of a SparseEncoder Transformer,
                   SpladePooling; of a MultiVectorEncoder Transformer, Dense,
                   MultiVectorMask, Normalize
    config_sentence_transformers.json   model_type, prompts, similarity
    sentence_bert_config.json   max_seq_length

The encoder itself lies in a folder of transformers, see huggingface.py; what
decides vectors of tokens in places that multivector.py knows.
"""

import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from infoword_tf import errors, files
from infoword_tf.config import ROLES, DenseConfig, FlowConfig
from infoword_tf.critics.cosine import COSINE
from infoword_tf.critics.cross import CROSS, CrossConfig, CrossCritic
from infoword_tf.critics.late import LATE, LateConfig, LateCritic
from infoword_tf.critics.lexical import LEXICAL, LexicalConfig, LexicalCritic
from infoword_tf.inference.loaded import Loaded
from infoword_tf.layers.lexical import TOKENS, VOCABULARY
from infoword_tf.layers.scores import NO_POOLER, POOLERS
from infoword_tf.weights import huggingface, multivector
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.converted import VectorSettings
from infoword_tf.weights.heads import CLASSES as CLASSES_HEAD
from infoword_tf.weights.heads import MASKED_WORDS
from infoword_tf.weights.tensors import SINGLE, open_file, open_folder
from infoword_tf.weights.tokenizer_reader import read_optional_json

MODULES = 'modules.json'
SETTINGS = 'config_sentence_transformers.json'
CONFIG = 'config.json'  # of each module
# The first of these in a folder is read; the first of all is written.
TRANSFORMERS = tuple(
    f'sentence_{kind}_config.json'
    for kind in ('bert', 'roberta', 'distilbert', 'camembert', 'albert',
                 'xlm-roberta', 'xlnet')
)  # fmt: skip
VECTORS, CLASSES, SPARSE = (
    'SentenceTransformer', 'CrossEncoder', 'SparseEncoder'
)  # fmt: skip
_MASK, _SPLADE = 'MultiVectorMask', 'SpladePooling'
_TOKEN_POOLING, _FILLS = 'HierarchicalTokenPooling', 'MLMTransformer'


class _Kind(NamedTuple):
    """Parts of a model_type that can be converted.

    Attributes:
        first: the first modules.
        behind: kinds of modules that may stand behind them.
        transformer: settings of the Transformer, for `check_values`.
        output: what the encoder is asked for; as of `check_values`.
        similarities: names of ways to compare, there and here; the first is
            the default.
    """

    first: Sequence[str]
    behind: Sequence[str]
    transformer: Mapping[str, tuple[Any, ...]]
    output: tuple[Any, ...]
    similarities: Mapping[str, str]


_CLASSIFIES = 'sequence-classification'
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


_OF_TOKENS = _Kind(
    ['Transformer', 'Dense'],
    ['Dense', _MASK, 'Normalize', _TOKEN_POOLING],
    _task('feature-extraction'),
    _STATES,
    {'maxsim': 'maxsim', 'meanmaxsim': 'meanmaxsim'},
)
_KINDS = {
    VECTORS: _Kind(
        ['Transformer', 'Pooling'],
        ['Dense', 'Normalize'],
        {**_task('feature-extraction'), **_NO_LENGTHS},
        _STATES,
        {'cosine': 'cosine', **_DOT},
    ),
    CLASSES: _Kind(
        ['Transformer'],
        [],
        {**_task(_CLASSIFIES, 'scores'), **_NO_LENGTHS},
        _SCORES,
        {},
    ),
    SPARSE: _Kind(
        ['Transformer', _SPLADE],
        [],
        {**_task('fill-mask'), **_NO_EXPANSION},
        _SCORES,
        _DOT,
    ),
    multivector.NATIVE: _OF_TOKENS,
    multivector.PYLATE: _OF_TOKENS,
}
# A CrossEncoder whose score is of modules behind the Transformer.
_OF_PAIRS = _Kind(
    _KINDS[VECTORS].first,
    ['Dense'],
    _KINDS[VECTORS].transformer,
    _STATES,
    {},
)
# Values that can be converted, for `check_values`:
# of all Transformers; of modules that read vectors of texts, or of tokens.
_OF_TEXTS = {'processing_kwargs': ({}, None)}
_READS_VECTORS, _READS_TOKENS = (
    {'module_input_name': (name,), 'module_output_name': (name, None)}
    for name in ('sentence_embedding', 'token_embeddings')
)
_SCORED = 'scores'  # the output of the last module of a CrossEncoder
_OF_MASKS = {
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
# Activations of a layer before the score of a pair.
_POOLERS = [name for name in ACTIVATIONS if name in POOLERS]
# Of a SpladePooling, which takes a logarithm of all: names there and here.
_WEIGHTS = {'relu': 'log1p_relu', 'log1p_relu': 'log1p_log1p_relu'}
_LIBRARIES = 'sentence_transformers.', 'pylate.models.'
_KNOWN = (
    'Transformer', 'Pooling', 'Dense', 'Normalize', 'Dropout', _FILLS, _SPLADE,
    _MASK, _TOKEN_POOLING,
)  # fmt: skip
# Where modules are in sentence-transformers, of version 5 and of all after it;
# the others are in `sentence_transformers.models`.
_PLACES = {
    _FILLS: 'sparse_encoder.models',
    _SPLADE: 'sparse_encoder.models',
    _MASK: 'multi_vector_encoder.modules.multi_vector_mask',
}
# Heads of BGE-M3 (Chen et al. 2024), which lie beside its modules.
_M3_LATE, _M3_LEXICAL = 'colbert_linear.pt', 'sparse_linear.pt'


def is_one(folder: pathlib.Path) -> bool:
    """Tells whether a folder says how texts are compared."""
    return (folder / MODULES).is_file() or multivector.is_stanford(folder)


def read(folder: pathlib.Path) -> tuple[pathlib.Path, VectorSettings]:
    """Finds where the encoder lies, and how texts are compared.

    Raises:
        FileNotFoundError: a module without files.
        ValueError: an unknown module, or an order that cannot be converted.
    """
    if multivector.is_stanford(folder):
        return folder, multivector.stanford(folder)
    modules = _modules(folder)
    kinds = [x for x, _ in modules]
    where = f'{folder}/{SETTINGS}'
    settings = read_optional_json(folder / SETTINGS)
    name = settings.get('model_type') or _model_type(kinds)
    if name not in _KINDS:
        raise errors.InputError(
            'public_unknown_task',
            f'{where} has the model_type {name!r}; known are '
            f'{", ".join(_KINDS)}',
        )
    kind = _KINDS[name]
    if name == CLASSES and len(modules) > 1:
        kind = _OF_PAIRS
    if kinds[:2] != kind.first:
        raise errors.InputError(
            'unknown_module_order',
            f'{folder}/{MODULES} begins with {" and ".join(kinds[:2])}, not '
            f'with {" and ".join(kind.first)} as a {name} that can be '
            'converted',
        )
    encoder = modules[0][1]
    about, path = _transformer(encoder, kind)
    arguments = {
        **(about.get('tokenizer_args') or {}),
        **(about.get('processor_kwargs') or {}),
    }
    limit = arguments.get('model_max_length', about.get('max_seq_length'))
    lower_case = bool(about.get('do_lower_case'))
    prompts, prompt = _prompts(settings, where)
    if name == CLASSES:
        if prompts.get(prompt):
            raise errors.InputError(
                'prompt_before_classes',
                f'{where} puts the prompt {prompt!r} before texts, which '
                'classes cannot have here; set default_prompt_name to null and '
                'put it before texts yourself',
            )
        if kind is _OF_PAIRS:
            layers = _layers(folder, modules[1:], kind)
            pooling, _ = _pooling(modules[1][1])
            cross, tensors = _pair_score(layers, folder)
            return encoder, VectorSettings(
                critic=CROSS, critics={CROSS: cross}, pooling=pooling,
                tensors=tensors, max_length=limit, lower_case=lower_case,
            )  # fmt: skip
        return encoder, VectorSettings(
            max_length=limit, lower_case=lower_case, classes=True
        )
    similarity = _similarity(settings, kind, where)
    fields: dict[str, Any] = {
        'prompts': prompts,
        'prompt': prompt,
        'max_length': limit,
        'lower_case': lower_case,
    }
    if name == SPARSE:
        _layers(folder, modules[1:], kind)
        return encoder, VectorSettings(
            critic=LEXICAL,
            critics={
                LEXICAL: _terms(
                    modules[1][1], settings.get('max_active_dims')
                )
            },
            **fields,
            **multivector.lengths(about),
        )
    if kind is _OF_TOKENS:
        layers = _layers(folder, modules, kind)
        if name == multivector.PYLATE:
            late, sizes = multivector.pylate(settings, prompts)
        elif layers.normalize:
            late, sizes = multivector.native(about, path)
        else:
            raise errors.InputError(
                'token_vectors_of_any_length',
                f'{folder}/{MODULES} has no Normalize, and vectors of tokens '
                'have length 1 here; add Normalize, if scores may change',
            )
        late = {'skip': layers.skip, 'mean': similarity == 'meanmaxsim', **late}
        return encoder, multivector.settings_of(
            LateConfig(layers.dense, **late),
            **{**fields, 'tensors': layers.tensors, **sizes},
        )
    layers = _layers(folder, modules[1:], kind)
    dims = settings.get('truncate_dim')
    if dims and layers.normalize and similarity == 'dot':
        raise errors.InputError(
            'truncated_dot',
            f'{where} cuts vectors of length 1 to {dims} numbers '
            '(truncate_dim) and compares them by dot; here they have length 1 '
            'after that: set similarity_fn_name to cosine',
        )
    pooling, whole = _pooling(modules[1][1])
    if any(prompts.values()) and not whole:
        raise errors.InputError(
            'prompts_left_out',
            f'{modules[1][1]} leaves prompts out of the mean '
            '(include_prompt false), which cannot be converted',
        )
    heads = _m3_heads(folder)
    tensors = layers.tensors | heads.pop('tensors')
    return encoder, VectorSettings(
        critic=COSINE,
        pooling=pooling,
        similarity=similarity,
        normalize=layers.normalize,
        dense=layers.dense,
        dims=dims,
        tensors=tensors,
        **fields,
        **heads,
    )


def _modules(folder: pathlib.Path) -> list[tuple[str, pathlib.Path]]:
    """Lists the kind and the folder of each module."""
    import json

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
        ('Transformer' if name == _FILLS else name, place)
        for name, (_, place) in zip(names, modules, strict=True)
    ]


def _model_type(kinds: Sequence[str]) -> str:
    """Chooses a model_type by the modules of a folder without one.

    Older folders of PyLate have none, and no Pooling.
    """
    if _SPLADE in kinds:
        return SPARSE
    is_late = kinds[:2] == _OF_TOKENS.first
    return multivector.PYLATE if is_late else VECTORS


def _transformer(
    folder: pathlib.Path, kind: _Kind
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


def _similarity(settings: Mapping[str, Any], kind: _Kind, where: str) -> str:
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


class _Layers(NamedTuple):
    """Modules over states or vectors, and weights by path.

    Attributes:
        skip: as of `LateConfig`.
    """

    dense: tuple[DenseConfig, ...]
    tensors: dict[str, Any]
    normalize: bool
    skip: tuple[str, ...]


def _layers(
    folder: pathlib.Path,
    modules: Sequence[tuple[str, pathlib.Path]],
    kind: _Kind,
) -> _Layers:
    """Reads the modules behind the first of `modules`."""
    known, prefix = _READS_VECTORS, 'dense'
    if kind is _OF_TOKENS:
        known, prefix = _READS_TOKENS, 'late/late'
    elif kind is _OF_PAIRS:
        written = known['module_output_name']
        known = {**known, 'module_output_name': (*written, _SCORED)}
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
        elif name == _MASK:
            check_values(config, _OF_MASKS, str(path))
            skip = tuple(config.get('skiplist_words') or ())
        else:
            check_values(config, {'pool_factor': (1,)}, str(path))
    return _Layers(tuple(dense), tensors, normalize, skip)


def _pair_score(
    layers: _Layers, folder: pathlib.Path
) -> tuple[CrossConfig, dict[str, Any]]:
    """Reads layers over the state of a pair as a score.

    Returns:
        The score, and its weights by path.

    Raises:
        ValueError: other layers than a number, and perhaps one before it.
    """
    shapes = [(x.width, x.activation) for x in layers.dense]
    *before, last = shapes or [(0, '')]
    poolers = [activation for _, activation in before] or [NO_POOLER]
    known = [[x] for x in (NO_POOLER, *_POOLERS)]
    if poolers not in known or last != (1, 'identity'):
        shown = ', '.join(f'{width} {name}' for width, name in shapes)
        raise errors.InputError(
            'scores_of_other_layers',
            f'{folder}/{MODULES} scores pairs by the layers {shown or "none"}; '
            'only a Dense of 1 number without activation can be converted, '
            f'perhaps behind one with {", ".join(_POOLERS)}',
        )
    tensors = {}
    names = ['cross/pooler_', 'cross/'][-len(shapes) :]
    for i, (layer, name) in enumerate(zip(layers.dense, names, strict=True)):
        none = np.zeros(layer.width, np.float32)
        tensors[f'{name}kernel'] = layers.tensors[f'dense_{i}/kernel']
        tensors[f'{name}bias'] = layers.tensors.get(f'dense_{i}/bias', none)
    return CrossConfig(poolers[0]), tensors


def _terms(folder: pathlib.Path, top_k: int | None) -> LexicalConfig:
    """Reads a SpladePooling."""
    path, config = _config(folder, _SPLADE)
    known = {
        'pooling_strategy': ('max',), 'activation_function': tuple(_WEIGHTS)
    }  # fmt: skip
    check_values(config, known, str(path))
    activation = config.get('activation_function', 'relu')
    return LexicalConfig(
        VOCABULARY, activation=_WEIGHTS[activation], top_k=top_k
    )


def _m3_heads(folder: pathlib.Path) -> dict[str, Any]:
    """Reads heads of BGE-M3, or none: fields of `VectorSettings`."""
    heads: dict[str, Any] = {'tensors': {}, 'critics': {}}
    for name, path in (
        (_M3_LATE, 'late/late_0'), (_M3_LEXICAL, 'lexical')
    ):  # fmt: skip
        if (folder / name).is_file():
            weights = open_file(folder / name)
            kernel = weights['weight'].T
            heads['tensors'] |= {
                f'{path}/kernel': kernel, f'{path}/bias': weights['bias']
            }  # fmt: skip
            if name == _M3_LATE:
                dense = DenseConfig(kernel.shape[1], 'identity')
                head = LateConfig((dense,), first=False, mean=True)
                heads['critics'][LATE] = head
            else:
                head = LexicalConfig(TOKENS, activation='relu')
                heads['critics'][LEXICAL] = head
    return heads


def _prompts(
    settings: dict[str, Any], where: str
) -> tuple[dict[str, str], str | None]:
    """Returns prompts by name, and the name of the default.

    If there is a default, roles without a prompt get an empty one: the default
    is not for `encode_query` and `encode_document`.
    """
    prompts = {k: v or '' for k, v in (settings.get('prompts') or {}).items()}
    prompt = settings.get('default_prompt_name')
    if prompt is None:
        return prompts, None
    for names in ROLES.values():
        if not any(name in prompts for name in names):
            prompts[names[0]] = ''
    if prompt not in prompts:
        raise errors.InputError(
            'unknown_default_prompt',
            f'{where} has the default prompt {prompt!r}, but the prompts '
            f'{", ".join(prompts)}',
        )
    return prompts, prompt


def _config(
    folder: pathlib.Path, kind: str
) -> tuple[pathlib.Path, dict[str, Any]]:
    path = folder / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f'{folder} has no {CONFIG}: no {kind}')
    return path, files.read_json(path)


def _pooling(folder: pathlib.Path) -> tuple[str, bool]:
    """Reads the name of a Pooling, and whether states of prompts count."""
    path, config = _config(folder, 'Pooling')
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
    path, config = _config(folder, 'Dense')
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


def write(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a workdir as a folder of sentence-transformers.

    A model that compares texts by vectors of tokens becomes a
    MultiVectorEncoder, by weights of the vocabulary a SparseEncoder. One that
    scores pairs, or classifies them in one order and has no layers over
    vectors, becomes a CrossEncoder, others a SentenceTransformer. Returns and
    raises as `huggingface.write`.
    """
    config = loaded.config
    if config.critics[config.critic] is not None:
        return _writer_of(config.critic)(folder, loaded)
    row = huggingface.heads_of(loaded).get(CLASSES_HEAD)
    if row and not config.dense and 2 in loaded.classes.sides(row) and (
        loaded.model.objectives[row].texts != 'both_ways'
    ):  # fmt: skip
        return _write_classes(folder, loaded)
    if any(isinstance(layer, FlowConfig) for layer in config.dense):
        raise errors.InputError(
            'flow_not_public',
            'this model has an invertible network over vectors (tasks.flow), '
            'which sentence-transformers does not know',
        )
    if config.pooling not in POOLINGS:
        raise errors.InputError(
            'pooling_not_public',
            f'pooling {config.pooling} is not known to sentence-transformers; '
            f'it knows {", ".join(POOLINGS)}',
        )
    if config.pooling == 'cls' and not loaded.layout.first:
        raise errors.InputError(
            'last_state_not_public',
            'this model pools the last state of a text, and cls of '
            'sentence-transformers is the first',
        )
    dropped = huggingface.write(folder, loaded)
    width = loaded.encoder.width
    modules = _Modules(folder)
    modules.add_pooling(config.pooling, width)
    modules.add_layers(config.dense, loaded.model.dense)
    dims = config.dims
    if dims and config.normalize:  # sentence-transformers cuts afterwards
        wide = config.dense[-1].width if config.dense else width
        cut = DenseConfig(dims, 'identity', bias=False)
        modules.add_dense(cut, np.eye(wide, dims, dtype=np.float32))
        dims = None
    if config.normalize:
        modules.add('Normalize')
    settings = {'similarity_fn_name': config.similarity}
    if dims:
        settings['truncate_dim'] = dims
    modules.write(loaded, settings)
    return dropped


def _write_late(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a MultiVectorEncoder.

    Raises:
        ValueError: vectors that it cannot leave out.
    """
    config, late = loaded.config, LateCritic.of(loaded.config)
    if not late.first:
        raise errors.InputError(
            'first_state_not_public',
            'this model has no vector of the first state of a text (BGE-M3), '
            'which a MultiVectorEncoder always has; write its encoder with '
            '--format=huggingface',
        )
    dropped = huggingface.write(folder, loaded)
    dropped.remove(LateCritic.described)
    modules, names = _Modules(folder), _defaults(_READS_TOKENS)
    modules.add_layers(late.dense, loaded.model.critics[LATE].dense, names)
    skip = {'skiplist_words': list(late.skip)}
    modules.add(_MASK, skip | _defaults(_OF_MASKS))
    modules.add('Normalize', names)
    more = multivector.lengths_of(config)
    if late.expand:
        more['query_expansion'] = {
            **_defaults(multivector.EXPANSION),
            'length': config.query_length or config.max_length,
            'attend': late.attend,
        }
    settings = {
        'model_type': multivector.NATIVE,
        'similarity_fn_name': 'meanmaxsim' if late.mean else 'maxsim',
    }
    modules.write(loaded, settings, **more)
    return dropped


def _defaults(known: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Returns the first of the values that can be converted, by key."""
    return {key: values[0] for key, values in known.items()}


def _write_lexical(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a SparseEncoder.

    Raises:
        ValueError: weights that it does not have.
    """
    lexical = LexicalCritic.of(loaded.config)
    theirs = {ours: name for name, ours in _WEIGHTS.items()}
    known = huggingface.heads_of(loaded).get(MASKED_WORDS) == LEXICAL
    if not known or lexical.activation not in theirs:
        raise errors.InputError(
            'terms_not_public',
            'sentence-transformers weighs the vocabulary by the head that '
            'fills masks, and this model does not; train one from a model with '
            'the row mlm (--simcse.terms=vocabulary)',
        )
    dropped = huggingface.write(folder, loaded)
    modules = _Modules(folder, _FILLS)
    modules.add(
        _SPLADE,
        {
            'pooling_strategy': 'max',
            'activation_function': theirs[lexical.activation],
            'embedding_dimension': len(loaded.tokenizer),
        },
    )
    settings: dict[str, Any] = {
        'model_type': SPARSE, 'similarity_fn_name': 'dot'
    }  # fmt: skip
    if lexical.top_k:
        settings['max_active_dims'] = lexical.top_k
    modules.write(loaded, settings, **multivector.lengths_of(loaded.config))
    return dropped


def _write_classes(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a CrossEncoder, as sentence-transformers saves one.

    Scores of one class, or of several that a text may have together, are
    logistic, others logits.
    """
    config = loaded.config
    dropped = huggingface.write(folder, loaded)
    apart = len(config.labels) == 1 or any(
        row.settings.get('multilabel') for row in config.rows.values()
    )
    settings = _of_classes('Sigmoid' if apart else 'Identity')
    _Modules(folder).write(loaded, settings, transformer_task=_CLASSIFIES)
    if config.prompts:
        dropped.append('prompts')
    return dropped


def _of_classes(activation: str) -> dict[str, Any]:
    """Returns SETTINGS of a CrossEncoder with an activation of scores."""
    return {
        'model_type': CLASSES,
        'activation_fn': f'torch.nn.{activation}',
        'prompts': {},
        'default_prompt_name': None,
    }


def _write_pairs(folder: pathlib.Path, loaded: Loaded) -> list[str]:
    """Writes a CrossEncoder with the scores of the critic `cross`.

    Where transformers has no such head, its layers are modules of their own.

    Raises:
        ValueError: a layer that no module is.
    """
    config, head = loaded.config, loaded.model.critics[CROSS]
    apart = huggingface.heads_of(loaded).get(CLASSES_HEAD) != CROSS
    if apart and head.pooler not in (NO_POOLER, *_POOLERS):
        raise errors.InputError(
            'pooler_not_public',
            f'this model has the layer {head.pooler} before the score of a '
            'pair, which sentence-transformers does not know; it knows '
            f'{", ".join(_POOLERS)}',
        )
    dropped = huggingface.write(folder, loaded)
    modules, about = _Modules(folder), {'transformer_task': _CLASSIFIES}
    if apart:
        dropped.remove(CrossCritic.described)
        about = {}
        modules.add_pooling(
            'cls' if loaded.layout.first else 'last', loaded.encoder.width
        )
        if head.pooler != NO_POOLER:
            modules.add_dense(
                DenseConfig(loaded.encoder.width, head.pooler),
                head.pooler_kernel.numpy(), head.pooler_bias.numpy(),
            )  # fmt: skip
        modules.add_dense(
            DenseConfig(1, 'identity'), head.kernel.numpy(), head.bias.numpy(),
            {**_defaults(_READS_VECTORS), 'module_output_name': _SCORED},
        )  # fmt: skip
    modules.write(loaded, _of_classes('Identity'), **about)
    if any(config.prompts.values()):
        dropped.append('prompts, which have to stand in the texts there')
    if config.query_length or config.passage_length:
        dropped.append('how long a query and a passage may be')
    return dropped


# By critic with a head.
_WRITERS = {
    LATE: _write_late, LEXICAL: _write_lexical, CROSS: _write_pairs,
}  # fmt: skip


def _writer_of(critic: str) -> Callable[[pathlib.Path, Loaded], list[str]]:
    """Returns the writer of models of a critic with a head.

    Raises:
        ValueError: sentence-transformers has no such models.
    """
    if critic not in _WRITERS:
        raise errors.InputError(
            'critic_not_public',
            f'sentence-transformers has no models of the critic {critic}; '
            'write the encoder with --format=huggingface',
        )
    return _WRITERS[critic]


class _Modules:
    """The modules of a folder that is written, in order.

    Attributes:
        folder: where.
        kinds: of the modules.
    """

    def __init__(self, folder: pathlib.Path, first: str = 'Transformer'):
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
            loaded: whose prompts and lengths they have.
            settings: of SETTINGS.
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
