"""Tokenizers of public folders, from the files that hold them.

tokenizer.json           WordPiece, Unigram or BPE of the library tokenizers
vocab.txt                WordPiece, with tokenizer_config.json
sentencepiece.bpe.model  SentencePiece of XLM-R
spiece.model             SentencePiece of XLNet and ALBERT
spm.model                SentencePiece of DeBERTa 2 and 3
tokenizer.model          SentencePiece of Llama and Mistral
vocabulary.spm           SentencePiece of KerasHub, as it is
vocab.json, merges.txt   byte-pair encodings of GPT, GPT-2 and RoBERTa
"""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from infoword_tf.text.tokenizer import TextTokenizer
from infoword_tf.weights.architectures import check_values
from infoword_tf.weights.post_processors import PostProcessor
from infoword_tf.weights.tokenizer_files import (
    DEBERTA_MODEL,
    KERAS_MODEL,
    LLAMA_MODEL,
    SHIFTED_MODEL,
    XLNET_MODEL,
    deberta_model,
    keras_model,
    llama_model,
    shifted_model,
    vocab_json,
    vocab_txt,
    xlnet_model,
)
from infoword_tf.weights.tokenizer_folder import (
    LLAMA,
    TokenizerFolder,
    added_in_settings,
    class_name_of,
    gives_segments,
    read_optional_json,
)
from infoword_tf.weights.tokenizer_json import tokenizer_json

# All keys of tokenizer_config.json: what they do here, or the values that can
# be kept, the default of transformers first.
FOLLOWED, NAMED, IDLE = 'followed', 'named by a note', 'without effect'
KEYS: Mapping[str, str | tuple[Any, ...]] = {
    **dict.fromkeys(
        ('bos_token', 'eos_token', 'unk_token', 'sep_token', 'pad_token',
         'cls_token', 'mask_token', 'added_tokens_decoder',
         'additional_special_tokens', 'extra_special_tokens',
         'model_specific_special_tokens'),
        FOLLOWED,
    ),
    # As far as the class of the tokenizer has them.
    **dict.fromkeys(
        ('add_bos_token', 'add_eos_token', 'add_prefix_space', 'do_lower_case',
         'keep_accents', 'legacy', 'strip_accents', 'tokenize_chinese_chars',
         'tokenizer_class', 'trim_offsets'),
        FOLLOWED,
    ),
    **dict.fromkeys(
        ('max_len', 'model_input_names', 'model_max_length', 'padding_side'),
        FOLLOWED,
    ),
    'auto_map': NAMED,
    'truncation_side': NAMED,
    'fix_mistral_regex': (None, False),
    'split_by_punct': (False, None),
    'split_special_tokens': (False, None),
    # Of ids to texts, and of conversations.
    **dict.fromkeys(
        ('chat_control_tokens', 'chat_template', 'clean_up_tokenization_spaces',
         'clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_'
         'output', 'errors', 'response_schema', 'response_template',
         'use_default_system_prompt'),
        IDLE,
    ),
    # Where the tokenizer came from; parts that a file of its own has.
    **dict.fromkeys(
        ('_json_padding', '_json_truncation', '_spm_precompiled_charsmap',
         'backend', 'files_loaded', 'gguf_file', 'init_inputs', 'merges',
         'merges_file', 'name_or_path', 'post_processor', 'processor_class',
         'remove_space', 'tokenizer', 'tokenizer_file', 'tokenizer_object',
         'tokenizer_padding', 'tokenizer_truncation', 'unk_id', 'verbose',
         'vocab', 'vocab_file'),
        IDLE,
    ),
}  # fmt: skip
_REFUSED = {key: x for key, x in KEYS.items() if isinstance(x, tuple)}


class FolderTokenizer(NamedTuple):
    """The tokenizer of a folder.

    Attributes:
        tokenizer: tokenizer of this project.
        max_length: most tokens of a text, with specials; None: the folder does
            not say it.
        notes: remarks for people.
        post_processor: special tokens around texts; None: those of the
            architecture.
        padding_side: end of texts in batches that is padded, left or right.
    """

    tokenizer: TextTokenizer
    max_length: int | None
    notes: list[str]
    post_processor: PostProcessor | None = None
    padding_side: str = 'right'


def is_one(folder: pathlib.Path) -> bool:
    """Tells whether a folder has a tokenizer."""
    return any((folder / name).is_file() for name in _READERS)


def read(
    folder: pathlib.Path,
    vocab_size: int,
    config: Mapping[str, Any] | None = None,
) -> FolderTokenizer:
    """Reads the tokenizer of a folder.

    Args:
        vocab_size: V of the encoder; a shorter vocabulary is filled up with
            names that no text has.
        config: the folder's config.json.

    Raises:
        FileNotFoundError: the folder has no tokenizer.
        ValueError: a vocabulary of another size, or a tokenizer that reads
            text in a way that cannot be kept.
    """
    settings = read_optional_json(folder / 'tokenizer_config.json')
    check_values(settings, _REFUSED, f'{folder}/tokenizer_config.json')
    longest = settings.get('model_max_length', settings.get('max_len'))
    if not isinstance(longest, int) or longest > 1_000_000:
        longest = None
    known = TokenizerFolder(
        settings,
        class_name_of(settings, config or {}),
        vocab_size=vocab_size,
        notes=[],
        added=added_in_settings(folder, settings),
    )
    if settings.get('auto_map'):
        known.notes.append(
            'code of this tokenizer (auto_map of tokenizer_config.json) is not '
            'run'
        )
    if settings.get('truncation_side', 'right') != 'right':
        known.notes.append(
            'long texts lose their ends; by tokenizer_config.json '
            '(truncation_side) their beginnings'
        )
    for name, reader in _READERS.items():
        if (folder / name).is_file():
            tokenizer, post_processor = reader(folder / name, known)
            if post_processor is not None and not gives_segments(known):
                post_processor = post_processor.without_segments()
            side = 'left' if known.class_name == LLAMA else 'right'
            return FolderTokenizer(
                tokenizer,
                longest,
                notes=known.notes,
                post_processor=post_processor,
                padding_side=settings.get('padding_side', side),
            )
    *names, last = _READERS
    raise FileNotFoundError(
        f'{folder} has no tokenizer: none of {", ".join(names)} and {last}'
    )


def read_file(
    path: pathlib.Path, name: str, vocab_size: int, settings: Mapping[str, Any]
) -> FolderTokenizer:
    """Reads the file of a vocabulary as one that other folders call `name`.

    Special tokens stand where the architecture has them.

    Args:
        path: name of the file.
        name: first column of this module's docstring.
        vocab_size: V of the encoder, see `read`.
        settings: content of a tokenizer_config.json.

    Raises:
        ValueError: as `read`.
    """
    known = TokenizerFolder(
        settings, None, vocab_size=vocab_size, notes=[], added={}
    )
    tokenizer, _ = _READERS[name](path, known)
    return FolderTokenizer(tokenizer, None, known.notes)


# The first of these files in a folder counts.
_READERS = {
    'tokenizer.json': tokenizer_json,
    'vocab.txt': vocab_txt,
    SHIFTED_MODEL: shifted_model,
    XLNET_MODEL: xlnet_model,
    DEBERTA_MODEL: deberta_model,
    LLAMA_MODEL: llama_model,
    KERAS_MODEL: keras_model,
    'vocab.json': vocab_json,
}
