"""Tokenizers to folders for transformers.

tokenizer.json   tokenizer_config.json   and the older vocab.txt,
vocab.json with merges.txt, or *.model, where a tokenizer has such a file
"""

import dataclasses
import json
import pathlib
from typing import Any

from infoword_tf import errors, files
from infoword_tf.config import Layout
from infoword_tf.text.added import WithAdded
from infoword_tf.text.characterpairs import ENDS, CharacterPairs
from infoword_tf.text.layout import layout_of
from infoword_tf.text.markedpairs import MARK, MarkedPairs
from infoword_tf.text.pairs import PairEncoding
from infoword_tf.text.sentencepiece import SentencePiece
from infoword_tf.text.tokenizer import TextTokenizer, unnamed, write_vocabulary
from infoword_tf.text.wordpiece import LONGEST_WORD, WordPieceTokenizer
from infoword_tf.weights import post_processors, unigram
from infoword_tf.weights.tokenizer_files import SHIFTED_MODEL, XLNET_MODEL

_GENERAL = 'PreTrainedTokenizerFast'
# Classes of transformers for byte-pair encodings, by model_type.
_PAIR_CLASSES = {
    'gpt2': 'GPT2Tokenizer',
    'openai-gpt': 'OpenAIGPTTokenizer',
    'roberta': 'RobertaTokenizer',
}
# Each model_type whose models take segments.
_WITH_SEGMENTS = 'bert', 'electra', 'xlnet', 'albert', 'nomic_bert'


def write(
    folder: pathlib.Path,
    tokenizer: TextTokenizer,
    kind: str,
    max_length: int,
    layout: str | Layout,
) -> None:
    """Writes a tokenizer for transformers.

    Args:
        kind: the model_type.
        max_length: most tokens of a text, with specials.
        layout: special tokens around texts.

    Raises:
        ValueError: transformers has no such tokenizer.
    """
    from tokenizers import processors

    kinds: tuple[str, ...] = ('pad', 'unk', 'cls', 'sep', 'mask')
    if len(set(tokenizer.special_ids)) == 1:  # one token is all of them
        kinds = ('pad', 'unk', 'cls', 'sep', '')
        if kind in ('gpt2', 'openai-gpt'):
            kinds = ('', *kinds[1:])
    settings: dict[str, Any] = {
        f'{name}_token': tokenizer.vocabulary[number]
        for name, number in zip(kinds, tokenizer.special_ids, strict=True)
        if name
    }
    settings['model_max_length'] = max_length
    inner = tokenizer.inner
    if isinstance(inner, WordPieceTokenizer):
        fast, more = _wordpiece(folder, tokenizer, layout)
    elif isinstance(inner, SentencePiece):
        fast, more = _sentencepiece(folder, tokenizer, kind, layout)
    elif isinstance(inner, PairEncoding):
        fast, more = _pair_encoding(folder, tokenizer, kind, layout)
    else:
        raise errors.InputError(
            'tokenizer_not_public',
            f'a tokenizer of the kind {tokenizer.kind} cannot be written for '
            'transformers',
        )
    settings |= more
    side = layout_of(layout).padding_side
    if side != 'right':
        settings['padding_side'] = side
    if isinstance(tokenizer, WithAdded):
        _add(fast, tokenizer)
        decoder = settings['added_tokens_decoder'] = {}
        for token in tokenizer.added:
            fields = dataclasses.asdict(token)
            decoder[str(fields.pop('id'))] = fields
    inputs = ['input_ids', 'attention_mask']
    class_name = settings['tokenizer_class']
    if kind in _WITH_SEGMENTS and class_name != 'BertTokenizer':
        # Classes other than BERT's return segments where asked to.
        settings['model_input_names'] = ['token_type_ids', *inputs]
    elif class_name == _GENERAL:
        settings['model_input_names'] = inputs
    trims = isinstance(inner, PairEncoding) and tokenizer.trims
    offsets = processors.ByteLevel(trim_offsets=trims)
    if kind in ('gpt2', 'openai-gpt') and isinstance(layout, str):
        # Layout `end` puts [SEP] after texts, and GPT's tokenizer nothing.
        fast.post_processor = offsets
    else:
        special = post_processors.write(layout, tokenizer)
        fast.post_processor = (
            processors.Sequence([offsets, special]) if trims else special
        )
    fast.save(str(folder / 'tokenizer.json'))
    files.write_json(folder / 'tokenizer_config.json', settings)


def _wordpiece(
    folder: pathlib.Path, tokenizer: TextTokenizer, layout: str | Layout
) -> tuple[Any, dict[str, Any]]:
    """Writes vocab.txt; returns a `tokenizers.Tokenizer` and settings."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    # The inner vocabulary names, at its end, ids that only added tokens have.
    count = len(tokenizer.inner.vocabulary)
    while tokenizer.inner.vocabulary[count - 1] == unnamed(count - 1):
        count -= 1
    names = tokenizer.vocabulary[:count]
    write_vocabulary(folder / 'vocab.txt', names)
    options = tokenizer.inner.options
    lower_case, accents = tokenizer.lower_case, options.get('strip_accents')
    chinese = options.get('chinese_characters', True)
    fast = tokenizers.Tokenizer(
        models.WordPiece(
            {token: i for i, token in enumerate(names)},
            unk_token=names[tokenizer.unk_id],
            max_input_chars_per_word=LONGEST_WORD,
        )
    )
    fast.normalizer = normalizers.BertNormalizer(
        lowercase=lower_case,
        strip_accents=accents,
        handle_chinese_chars=chinese,
        clean_text=options.get('clean', True),
    )
    fast.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast.add_special_tokens([names[x] for x in tokenizer.special_ids])
    return fast, {
        # BERT's class puts BERT's special tokens whatever the files say.
        'tokenizer_class': 'BertTokenizer' if layout == 'bert' else _GENERAL,
        'do_lower_case': lower_case,
        'strip_accents': accents,
        'tokenize_chinese_chars': chinese,
    }


def _sentencepiece(
    folder: pathlib.Path,
    tokenizer: TextTokenizer,
    kind: str,
    layout: str | Layout,
) -> tuple[Any, dict[str, Any]]:
    """Writes *.model; returns a `tokenizers.Tokenizer` and settings."""
    inner = tokenizer.inner
    fast = unigram.write(inner, isinstance(tokenizer, WithAdded))
    if kind == 'xlnet':
        (folder / XLNET_MODEL).write_bytes(inner.model)
        kinds = [step['type'] for step in inner.before]
        return fast, {
            'tokenizer_class': 'XLNetTokenizer',
            'keep_accents': 'StripAccents' not in kinds,
            'do_lower_case': tokenizer.lower_case,
        }
    if (model := unigram.unshifted(inner.model)) is not None:
        (folder / SHIFTED_MODEL).write_bytes(model)
    first = tokenizer.vocabulary[tokenizer.cls_id]
    fairseq = first == '<s>' and layout == 'roberta' and inner.blanks is None
    class_name = 'XLMRobertaTokenizer' if fairseq else _GENERAL
    return fast, {'tokenizer_class': class_name}


def _pair_encoding(
    folder: pathlib.Path,
    tokenizer: TextTokenizer,
    kind: str,
    layout: str | Layout,
) -> tuple[Any, dict[str, Any]]:
    """Writes vocab.json and merges.txt; returns a `tokenizers.Tokenizer` and
    settings.
    """
    import tokenizers
    from tokenizers import decoders

    inner = tokenizer.inner
    class_name = _PAIR_CLASSES.get(kind, _GENERAL)
    if kind == 'roberta' and layout != 'roberta':
        class_name = _GENERAL
    fast = tokenizers.Tokenizer.from_str(inner.json)
    fast.model.save(str(folder))
    fast.decoder = decoders.ByteLevel()
    if isinstance(inner, CharacterPairs):
        fast.decoder = decoders.BPEDecoder(suffix=ENDS)
    elif isinstance(inner, MarkedPairs):
        fast.decoder = decoders.Sequence([
            decoders.Replace(MARK, ' '), decoders.ByteFallback(),
            decoders.Fuse(),
        ])  # fmt: skip
    split = json.loads(inner.json).get('pre_tokenizer') or {}
    return fast, {
        'tokenizer_class': class_name,
        'add_prefix_space': split.get('add_prefix_space', False),
    }


def _add(fast: Any, tokenizer: WithAdded) -> None:
    """Adds tokens to a `tokenizers.Tokenizer`, in the order of ids."""
    import tokenizers

    for token in sorted(tokenizer.added, key=lambda token: token.id):
        if fast.token_to_id(token.content) is None:
            while (number := fast.get_vocab_size()) < token.id:
                fast.add_special_tokens([unnamed(number)])
        fields = dataclasses.asdict(token)
        del fields['id']
        fast.add_tokens([tokenizers.AddedToken(**fields)])
