"""Models of late interaction, as three libraries keep them.

MultiVectorEncoder   sentence-transformers 6: of the Transformer
ColBERT              PyLate: in config_sentence_transformers.json
HF_ColBERT           Stanford's: artifact.metadata, and linear.weight beside
                     the weights of BERT
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from infoword_tf import errors, files
from infoword_tf.config import Config, DenseConfig
from infoword_tf.critics.late import LATE, PUNCTUATION, LateConfig, LateCritic
from infoword_tf.inference.loaded import Loaded
from infoword_tf.weights import huggingface
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.converted import VectorSettings
from infoword_tf.weights.modules import (
    MASK,
    MODULES,
    NATIVE,
    OF_MASKS,
    PYLATE,
    READS_TOKENS,
    Modules,
    PublicModules,
    defaults,
    read_layers,
)
from infoword_tf.weights.names import TURNED
from infoword_tf.weights.tensors import open_folder
from infoword_tf.weights.tokenizer_folder import read_optional_json

STANFORD = 'HF_ColBERT'
_METADATA = 'artifact.metadata'
_LINEAR = 'linear.weight'
# Values that can be converted, the default first: how queries are expanded, and
# how Stanford's scores are made. Of unit vectors l2 puts passages in the order
# of the cosine.
EXPANSION = {'strategy': ('fixed',), 'token': (None,)}
_SCORES = {'interaction': ('colbert',), 'similarity': ('cosine', 'l2')}


def read(
    public: PublicModules,
    similarity: str,
    prompts: Mapping[str, str],
    fields: dict[str, Any],
) -> VectorSettings:
    """Reads a model of sentence-transformers or of PyLate.

    Args:
        public: files of the folder.
        similarity: name of the way to compare.
        prompts: texts by name.
        fields: other fields of `VectorSettings`.

    Raises:
        ValueError: vectors of other lengths than 1.
    """
    layers = read_layers(public.folder, public.modules, public.kind)
    if public.name == PYLATE:
        late, sizes = pylate(public.settings, prompts)
    elif layers.normalize:
        late, sizes = native(public.about, public.about_path)
    else:
        raise errors.InputError(
            'token_vectors_of_any_length',
            f'{public.folder}/{MODULES} has no Normalize, and vectors of '
            'tokens have length 1 here; add Normalize, if scores may change',
        )
    late = {'skip': layers.skip, 'mean': similarity == 'meanmaxsim', **late}
    return settings_of(
        LateConfig(layers.dense, **late),
        **{**fields, 'tensors': layers.tensors, **sizes},
    )


def native(
    about: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads the settings of a Transformer of sentence-transformers.

    Args:
        about: content of sentence_bert_config.json.
        where: the file, for errors.

    Returns:
        Fields of `LateConfig`, and of `VectorSettings`.
    """
    sizes = lengths(about)
    expansion = about.get('query_expansion')
    if expansion is None:
        return {}, sizes
    check_values(expansion, EXPANSION, f'{where}: query_expansion')
    sizes['query_length'] = expansion.get('length')
    attend = bool(expansion.get('attend'))
    return {'expand': True, 'attend': attend}, sizes


def lengths(about: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the lengths of texts by role, as fields of `VectorSettings`."""
    return {
        'query_length': about.get('query_length'),
        'passage_length': about.get('document_length'),
    }


def lengths_of(config: Config) -> dict[str, Any]:
    """Returns the lengths of a workdir, for `lengths`."""
    sizes = {
        'query_length': config.query_length,
        'document_length': config.passage_length,
    }
    return {name: size for name, size in sizes.items() if size}


def pylate(
    settings: Mapping[str, Any], prompts: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads the settings of PyLate; returns as `native`.

    Args:
        settings: content of config_sentence_transformers.json.
        prompts: texts by name that stand there.
    """
    expand = settings.get('do_query_expansion')
    skip = settings.get('skiplist_words')
    markers = {
        'query': settings.get('query_prefix') or '[Q] ',
        'document': settings.get('document_prefix') or '[D] ',
    }
    behind = {
        role: (prompts.get(role) or '').removeprefix(marker)
        for role, marker in markers.items()
    }
    return {
        'expand': expand is None or bool(expand),
        'attend': bool(settings.get('attend_to_expansion_tokens')),
        'skip': PUNCTUATION if skip is None else tuple(skip),
    }, {
        'query_length': settings.get('query_length') or 32,
        'passage_length': settings.get('document_length') or 180,
        'markers': tuple(markers.values()),
        'prompts': {x: marker + behind[x] for x, marker in markers.items()},
    }


def is_stanford(folder: pathlib.Path) -> bool:
    """Tells whether a folder is of Stanford's ColBERT."""
    config = read_optional_json(folder / 'config.json')
    return STANFORD in (config.get('architectures') or ())


def stanford(folder: pathlib.Path) -> VectorSettings:
    """Reads the settings beside the encoder of Stanford's ColBERT.

    Raises:
        FileNotFoundError: the folder has no weights.
        ValueError: a way to score that cannot be converted.
    """
    path = folder / _METADATA
    about = files.read_json(path) if path.is_file() else {}
    check_values(about, _SCORES, str(path))
    markers = {
        'query': f'{about.get("query_token_id", "[unused0]")} ',
        'document': f'{about.get("doc_token_id", "[unused1]")} ',
    }
    (width, _) = open_folder(folder)[_LINEAR].shape
    skips = about.get('mask_punctuation', True)
    return settings_of(
        LateConfig(
            (DenseConfig(width, 'identity', bias=False),),
            expand=True,
            attend=bool(about.get('attend_to_mask_tokens')),
            skip=PUNCTUATION if skips else (),
        ),
        query_length=about.get('query_maxlen', 32),
        passage_length=about.get('doc_maxlen', 220),
        markers=tuple(markers.values()),
        prompts=markers,
        heads={LATE: {'late_0/kernel': (_LINEAR, TURNED)}},
    )


def settings_of(
    late: LateConfig,
    query_length: int | None,
    passage_length: int | None,
    max_length: int | None = None,
    **more: Any,
) -> VectorSettings:
    """Completes settings by how long any text may be.

    Where both roles have a length, another limit is not of texts that are
    compared: PyLate's folders keep one without the marker.

    Args:
        late: vectors of tokens.
        query_length, passage_length: fields of `VectorSettings`.
        max_length: the folder's; None: it has none.
        **more: other settings.
    """
    if query_length and passage_length:
        max_length = max(query_length, passage_length)
    elif max_length:
        max_length = max(max_length, query_length or 0, passage_length or 0)
    return VectorSettings(
        critic=LATE,
        critics={LATE: late},
        query_length=query_length,
        passage_length=passage_length,
        max_length=max_length,
        **more,
    )


def write(folder: pathlib.Path, loaded: Loaded) -> list[str]:
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
    modules, names = Modules(folder), defaults(READS_TOKENS)
    modules.add_layers(late.dense, loaded.model.critics[LATE].dense, names)
    skip = {'skiplist_words': list(late.skip)}
    modules.add(MASK, skip | defaults(OF_MASKS))
    modules.add('Normalize', names)
    more = lengths_of(config)
    if late.expand:
        more['query_expansion'] = {
            **defaults(EXPANSION),
            'length': config.query_length or config.max_length,
            'attend': late.attend,
        }
    settings = {
        'model_type': NATIVE,
        'similarity_fn_name': 'meanmaxsim' if late.mean else 'maxsim',
    }
    modules.write(loaded, settings, **more)
    return dropped
