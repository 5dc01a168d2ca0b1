"""Tokenizers of files other than tokenizer.json.

vocab.txt                WordPiece
sentencepiece.bpe.model  SentencePiece of XLM-R
spiece.model             SentencePiece of XLNet and ALBERT
spm.model                SentencePiece of DeBERTa 2 and 3
tokenizer.model          SentencePiece of Llama and Mistral
vocabulary.spm           SentencePiece of KerasHub, as it is
vocab.json, merges.txt   byte-pair encodings of GPT, GPT-2 and RoBERTa
"""

import dataclasses
import itertools
import pathlib
from typing import Any

from infoword_tf import errors, files
from infoword_tf.text.characterpairs import ENDS
from infoword_tf.text.pairs import NAMES
from infoword_tf.text.sentencepiece import parse_model
from infoword_tf.text.tokenizer import MASK, TextTokenizer, unnamed
from infoword_tf.weights import unigram
from infoword_tf.weights.tokenizer_folder import (
    CLASSES,
    LLAMA,
    Result,
    TokenizerFolder,
    added_tokens,
    class_post_processor,
    special_token,
    with_tokens,
)
from infoword_tf.weights.tokenizer_json import (
    UNTRIMMED,
    bert_normalizer,
    class_parts,
    make_sentencepiece,
    make_tokenizer,
    make_unigram,
    make_wordpiece,
)

SHIFTED_MODEL = 'sentencepiece.bpe.model'
XLNET_MODEL = 'spiece.model'
DEBERTA_MODEL = 'spm.model'
LLAMA_MODEL = 'tokenizer.model'
KERAS_MODEL = 'vocabulary.spm'


def _plain(known: TokenizerFolder, tokenizer: TextTokenizer) -> Result:
    """Completes a tokenizer with added tokens and the class's layout."""
    vocabulary, names = tokenizer.vocabulary, []
    if known.class_name in CLASSES.values():
        names += [vocabulary[number] for number in tokenizer.special_ids]
    if known.class_name == 'XLNetTokenizer':
        names += [x for x in ('<eop>', '<eod>') if x in vocabulary]
    specials = [
        special_token(x, vocabulary.index(x)) for x in dict.fromkeys(names)
    ]
    index = {x: i for i, x in enumerate(vocabulary) if x != unnamed(i)}
    tokens = added_tokens(known, index, specials)
    post_processor = class_post_processor(known, tokenizer)
    return with_tokens(tokenizer, tokens, known), post_processor


def vocab_txt(path: pathlib.Path, known: TokenizerFolder) -> Result:
    """Reads a token a line."""
    settings = known.settings
    lines = path.read_text(encoding='utf-8-sig').split('\n')
    while lines and not lines[-1]:
        lines.pop()
    if not settings.get('do_basic_tokenize', True):
        raise errors.InputError(
            'no_basic_tokenize',
            f'{path.parent}/tokenizer_config.json says do_basic_tokenize '
            'false; such a tokenizer cannot be kept',
        )
    # Of a token that is there twice the last id counts.
    index = {line: number for number, line in enumerate(lines) if line}
    hidden = {
        content: token['id']
        for content, token in known.added.items()
        if token['id'] is not None and content not in index
    }
    tokenizer = make_wordpiece(
        index, hidden, bert_normalizer(settings), known=known, where=path
    )
    return _plain(known, tokenizer)


def shifted_model(path: pathlib.Path, known: TokenizerFolder) -> Result:
    """Reads a model whose ids XLM-R shifts by one."""
    model = unigram.shifted(path.read_bytes(), path)
    return _plain(known, make_sentencepiece(model, known, path))


def xlnet_model(path: pathlib.Path, known: TokenizerFolder) -> Result:
    """Reads a model after the changes of XLNet's or ALBERT's class."""
    before = unigram.before_model(
        known.settings, lower_case=known.class_name == 'AlbertTokenizer'
    )
    tokenizer = make_sentencepiece(
        path.read_bytes(), known, path, before=before
    )
    return _plain(known, tokenizer)


def deberta_model(path: pathlib.Path, known: TokenizerFolder) -> Result:
    """Reads a model as the tokenizer.json of DeBERTa's class."""
    model, names = unigram.vocabulary_of(path.read_bytes(), path)
    index = {token: i for i, (token, _) in enumerate(model['vocab'])}
    index.setdefault(MASK, len(index))
    described = {
        'added_tokens': [
            special_token(x, index[x]) for x in (*names, MASK)
        ],
        'model': model,
        **unigram.of_deberta(known.settings),
    }
    tokenizer = make_unigram(described, known, path)
    return tokenizer, class_post_processor(known, tokenizer)


def llama_model(path: pathlib.Path, known: TokenizerFolder) -> Result:
    """Reads a model of byte pairs as a tokenizer.json.

    Raises:
        ValueError: another class than Llama's has such a file differently.
    """
    if known.class_name not in (None, LLAMA):
        raise errors.InputError(
            'model_of_another_class',
            f'{path} is of the class {known.class_name}, of which '
            'tokenizer.json alone can be read',
        )
    known = dataclasses.replace(known, class_name=LLAMA)
    described = unigram.merges_of(path.read_bytes(), path)
    described |= class_parts(described, known, path)
    tokenizer = make_tokenizer(described, known, path)
    return tokenizer, class_post_processor(known, tokenizer)


def keras_model(path: pathlib.Path, known: TokenizerFolder) -> Result:
    """Reads a model unchanged, but adds a [MASK] that is lacking at the end."""
    model = path.read_bytes()
    proto = parse_model(model, path)
    mask = MASK
    if all(piece.piece != mask for piece in proto.pieces):
        proto.pieces.add(piece=mask, type=proto.SentencePiece.CONTROL)
        model = proto.SerializeToString()
    return make_sentencepiece(model, known, path), None


def vocab_json(path: pathlib.Path, known: TokenizerFolder) -> Result:
    """Reads vocab.json and merges.txt as a tokenizer.json."""
    index = files.read_json(path)
    merges = path.with_name('merges.txt')
    if not merges.is_file():
        raise FileNotFoundError(
            f'{path.parent} has a {path.name} but no {merges.name}; both make '
            'the tokenizer'
        )
    lines = merges.read_text(encoding='utf-8').split('\n')
    names = dict.fromkeys(itertools.chain(*NAMES.values()))
    described: dict[str, Any] = {
        'version': '1.0',
        'added_tokens': [
            special_token(x, index[x]) for x in names if x in index
        ],
        'normalizer': None,
        'pre_tokenizer': {
            **UNTRIMMED,
            'add_prefix_space': bool(known.settings.get('add_prefix_space')),
            'trim_offsets': True,
        },
        'model': {
            'type': 'BPE',
            'vocab': index,
            'merges': [x for x in lines if x and x[:8] != '#version'],
        },
    }
    if any(token.endswith(ENDS) for token in index):
        described['normalizer'] = bert_normalizer({})
        described['pre_tokenizer'] = {'type': 'BertPreTokenizer'}
        described['model'] |= {'unk_token': '<unk>', 'end_of_word_suffix': ENDS}
    if known.class_name == 'RobertaTokenizer':
        trims = bool(known.settings.get('trim_offsets', True))
        described['post_processor'] = {**UNTRIMMED, 'trim_offsets': trims}
    tokenizer = make_tokenizer(described, known, path)
    return tokenizer, class_post_processor(known, tokenizer)
