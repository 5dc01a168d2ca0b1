"""Folders as people bring them, and what their own libraries make of them.

    .venv-oracles/bin/python -m tests.oracles.public_folders [--write]

A folder is made here by `write`, without those libraries: its tokenizer by
`tokenizers`, its weights by their names. Folders that end in `_saved` are what
transformers and sentence-transformers write themselves: their small files lie
beside the answers.

Glossary of shapes: n = TEXTS or PAIRS, C classes.
"""

import collections
import json
import pathlib
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tokenizers as tk
from safetensors.numpy import save_file
from tokenizers import models, normalizers, pre_tokenizers, processors

from tests.oracles import frozen, huggingface

D = 16
NOTHING = -1  # where no token is
TEXTS = (
    'hello world',
    '',
    '  The Hello, of two  blanks: three   and at the end   ',
    'Héllo WÖRLD naïve cafe\u0301 ÉTÉ',
    '東京 hello世界。',
    '<user>hello <user>x [DOC]world[DOC]  the theme [MASK]d </s> <s>it',
    '[QRY] New York new york NewYork  New York.',
    'ﬁne ｈello\u00a0world\u3000a\u200bb Straße ǅ \u0130',
    'a tab\there\nand a line\r\n',
    "don't we've 123 4,567.89!? \U0001f44d",
    'x' * 101 + ' ok',
    'hello the world is of a b c d e f g h ' * 5,
)
PAIRS = (
    ('hello world', 'the world is'),
    ('', 'hello'),
    ('Héllo  the', ''),
    ('[DOC] a ', '東京<user>b'),
    ('hello of a b c d e f g h ' * 5, 'the world ' * 12),
)
_BERT = {
    'model_type': 'bert', 'hidden_size': D, 'num_hidden_layers': 1,
    'num_attention_heads': 2, 'intermediate_size': 24,
    'max_position_embeddings': 48, 'type_vocab_size': 2, 'pad_token_id': 0,
}  # fmt: skip
_ROBERTA = {
    **_BERT, 'model_type': 'roberta', 'type_vocab_size': 1,
    'max_position_embeddings': 50, 'layer_norm_eps': 1e-5, 'pad_token_id': 1,
    'bos_token_id': 0, 'eos_token_id': 2,
}  # fmt: skip
_XLM = {**_ROBERTA, 'model_type': 'xlm-roberta'}
_DISTIL = {
    'model_type': 'distilbert', 'dim': D, 'n_layers': 1, 'n_heads': 2,
    'hidden_dim': 24, 'max_position_embeddings': 48, 'pad_token_id': 0,
}  # fmt: skip
_ELECTRA = {**_BERT, 'model_type': 'electra', 'embedding_size': 8}
_GPT_2 = {
    'model_type': 'gpt2', 'n_embd': D, 'n_layer': 1, 'n_head': 2,
    'n_positions': 48, 'bos_token_id': 0, 'eos_token_id': 0,
}  # fmt: skip
_MODERN = {
    'model_type': 'modernbert', 'hidden_size': D, 'num_hidden_layers': 2,
    'num_attention_heads': 2, 'intermediate_size': 24,
    'max_position_embeddings': 48, 'local_attention': 8,
    'global_attn_every_n_layers': 2, 'pad_token_id': 0, 'cls_token_id': 2,
    'sep_token_id': 3, 'bos_token_id': 2, 'eos_token_id': 3,
}  # fmt: skip


# --------------------------------------------------------------- tokenizers

_BERTS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
_FAIRSEQ = ('<s>', '<pad>', '</s>', '<unk>', '<mask>')
_END = ('<|endoftext|>',)
_LETTERS = 'abcdefghijklmnopqrstuvwxyz'
_SIGNS = "HWTNYDOCQRéöïÉß東京世界0123456789.,:!?'[]<>"
_WORDS = ('hello', 'world', 'the', 'of', 'Hello', 'The', 'York', 'york')
_ENDS = ('llo', 'ld', 'me')
_ALBERT = ('<pad>', '<unk>', '[CLS]', '[SEP]', '[MASK]')
_DEBERTA = ('[PAD]', '[CLS]', '[SEP]', '[UNK]', '[MASK]')
_MPNET = ('<s>', '<pad>', '</s>', '[UNK]', '<mask>')
_GEMMA = ('<pad>', '<eos>', '<bos>', '<unk>', '<mask>')
TOKENS = (
    *_BERTS, *_LETTERS, *_SIGNS, *(f'##{c}' for c in _LETTERS + _SIGNS),
    *_WORDS, *(f'##{c}' for c in _ENDS),
)  # fmt: skip
# By name what stands around a text, and around two.
_AROUND = {
    'bert': ('[CLS] $A [SEP]', '[CLS] $A [SEP] $B:1 [SEP]:1'),
    'cls': ('[CLS] $A', '[CLS] $A $B:1'),
    'roberta': ('<s> $A </s>', '<s> $A </s> </s> $B </s>'),
    'roberta_as_bert': ('<s> $A </s>', '<s> $A </s> $B:1 </s>:1'),
    'gemma': ('<bos> $A <eos>', '<bos> $A <eos> <bos>:1 $B:1 <eos>:1'),
    'end': ('$A <|endoftext|>', '$A <|endoftext|> $B:1 <|endoftext|>:1'),
}
# What SentencePiece's own program makes of rules: the ligature fi, a wide h, e
# with an accent behind it, blanks of five kinds, one of no width; and of the
# first rule alone.
_RULES = {
    name: array.tobytes()
    for name, array in frozen.read(frozen.FOLDER / 'public_folders.npz').items()
    if name in ('characters', 'ligature')
}
# By name what a Unigram does before its tokens: (normalizers, pre-tokenizers).
_METASPACE = {
    'always': pre_tokenizers.Metaspace(),
    'first': pre_tokenizers.Metaspace(prepend_scheme='first'),
    'never': pre_tokenizers.Metaspace(prepend_scheme='never'),
    'whole': pre_tokenizers.Metaspace(split=False),
    'words': pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    ),
}
# By name, expressions that split words before bytes are merged.
_SPLITS = {
    name: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits
    + r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
    for name, digits in (('llama_3', r'\p{N}{1,3}'), ('qwen', r'\p{N}'))
}  # fmt: skip
# By name what marks blanks before characters are merged.
_MARKED = normalizers.Replace(' ', '\u2581')
_MARKS = {
    'gemma': (_MARKED, pre_tokenizers.Split(' ', 'merged_with_previous')),
    'legacy': (
        normalizers.Sequence([normalizers.Prepend('\u2581'), _MARKED]), None
    ),
    'first': (
        None, pre_tokenizers.Metaspace(prepend_scheme='first', split=False)
    ),
}  # fmt: skip
_JOINED = normalizers.Replace(tk.Regex(' {2,}'), ' ')
_NORMAL = {
    'nothing': None,
    'joined': normalizers.Sequence([_JOINED]),
    'characters': normalizers.Precompiled(_RULES['characters']),
    'ligature': normalizers.Precompiled(_RULES['ligature']),
    'characters_joined': normalizers.Sequence(
        [normalizers.Precompiled(_RULES['characters']), _JOINED]
    ),
    'albert': normalizers.Sequence([
        normalizers.Replace('``', '"'), normalizers.Replace("''", '"'),
        normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Precompiled(_RULES['characters']),
    ]),
    'stripped': normalizers.Sequence([
        normalizers.Strip(left=False),
        normalizers.Replace(tk.Regex(' {2,}'), '\u2581'),
    ]),
}  # fmt: skip


def _finished(
    tokenizer: tk.Tokenizer, specials: Sequence[str], around: str,
    added: Sequence,
) -> tk.Tokenizer:  # fmt: skip
    tokenizer.add_special_tokens([
        tk.AddedToken(x, lstrip=x == '<mask>', special=True, normalized=False)
        for x in specials
    ])  # fmt: skip
    for content, flags in added:
        special = flags.get('special', False)
        add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
        add([tk.AddedToken(content, **flags)])
    if around in _AROUND:
        single, pair = _AROUND[around]
        ids = [(x, tokenizer.token_to_id(x)) for x in specials if x in pair]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, pair=pair, special_tokens=ids
        )
    return tokenizer


def word_piece(
    around: str = 'bert',
    added: Sequence = (),
    specials: Sequence[str] = _BERTS,
    longest: int | None = None,
    **normal: Any,
) -> tk.Tokenizer:
    """Makes a tokenizer of BERT's kind.

    Args:
        specials: in the order of their ids.
        longest: what tokenizer.json says that texts are cut and padded to.
        **normal: of its BertNormalizer.
    """
    tokens = *specials, *TOKENS[len(_BERTS) :]
    index = {token: i for i, token in enumerate(tokens)}
    tokenizer = tk.Tokenizer(models.WordPiece(index, unk_token='[UNK]'))
    tokenizer.normalizer = normalizers.BertNormalizer(**normal)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tk.decoders.WordPiece()
    if longest is not None:
        tokenizer.enable_truncation(longest)
        tokenizer.enable_padding(length=longest)
    return _finished(tokenizer, specials, around, added)


def unigram(
    around: str = 'roberta',
    added: Sequence = (),
    normal: str = 'nothing',
    blanks: str = 'words',
    doubled: bool = False,
    specials: Sequence[str] = _FAIRSEQ,
) -> tk.Tokenizer:
    """Makes a tokenizer of XLM-R's kind: <s> <pad> </s> <unk> ... <mask>.

    Args:
        specials: the last of them stands at the end.
        normal, blanks: names of _NORMAL and _METASPACE.
        doubled: whether two blanks are a token.
    """
    names = [f'\u2581{x}' for x in ('', *_LETTERS, *_WORDS, *'HTNWé東')]
    names += [*_LETTERS, *_SIGNS, *_ENDS, *(['\u2581\u2581'] * doubled)]
    tokens = [(x, 0.0) for x in specials[:-1]]
    tokens += [(x, -2.0 - i / 8) for i, x in enumerate(names)]
    tokens += [(specials[-1], 0.0)]
    unknown = next(i for i, (x, _) in enumerate(tokens) if 'unk' in x.lower())
    tokenizer = tk.Tokenizer(models.Unigram(tokens, unknown, False))
    if _NORMAL[normal]:
        tokenizer.normalizer = _NORMAL[normal]
    tokenizer.pre_tokenizer = _METASPACE[blanks]
    tokenizer.decoder = tk.decoders.Metaspace()
    return _finished(tokenizer, specials, around, added)


def byte_pairs(
    specials: Sequence[str] = _FAIRSEQ,
    around: str = 'roberta',
    added: Sequence = (),
    prefix: bool = False,
    trims: bool = True,
    split: str = '',
) -> tk.Tokenizer:
    """Makes a tokenizer of GPT-2's kind, or of RoBERTa's.

    Args:
        around: 'own' is what RoBERTa's class puts, 'bytes' nothing.
        prefix: whether a blank stands before the first word.
        trims: whether blanks are in no offset.
        split: a name of _SPLITS; '': that of GPT-2.
    """
    merges = [('h', 'e'), ('l', 'l'), ('ll', 'o'), ('he', 'llo'), ('t', 'he'),
              ('Ġ', 'the'), ('Ġ', 'w'), ('o', 'r'), ('Ġ', 'Ġ')]  # fmt: skip
    names = [*specials, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    names += [a + b for a, b in merges]
    index = {token: i for i, token in enumerate(names)}
    tokenizer = tk.Tokenizer(models.BPE(index, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    if split:
        words = pre_tokenizers.Split(tk.Regex(_SPLITS[split]), 'isolated')
        tokens = pre_tokenizers.ByteLevel(prefix, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, tokens])
    if split == 'qwen':
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = tk.decoders.ByteLevel()
    tokenizer = _finished(tokenizer, specials, around, added)
    if around == 'own':
        ends = ((x, tokenizer.token_to_id(x)) for x in ('</s>', '<s>'))
        tokenizer.post_processor = processors.RobertaProcessing(
            *ends, trim_offsets=trims, add_prefix_space=prefix
        )
    elif around == 'bytes':
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims)
    return tokenizer


def marked_pairs(marks: str, added: Sequence = ()) -> tk.Tokenizer:
    """Makes a tokenizer of Gemma's kind; `marks` is a name of _MARKS."""
    mark = '\u2581'
    merges = [('h', 'e'), ('l', 'l'), ('ll', 'o'), ('he', 'llo'), ('t', 'he'),
              (mark, 'the'), (mark, 'hello'), (mark, mark)]  # fmt: skip
    names = [*_GEMMA, *(f'<0x{byte:02X}>' for byte in range(256)), mark]
    names += [*_LETTERS, *(a + b for a, b in merges)]
    index = {token: i for i, token in enumerate(names)}
    tokenizer = tk.Tokenizer(models.BPE(
        index, merges, unk_token='<unk>', fuse_unk=True, byte_fallback=True
    ))  # fmt: skip
    normal, split = _MARKS[marks]
    if normal:
        tokenizer.normalizer = normal
    if split:
        tokenizer.pre_tokenizer = split
    return _finished(tokenizer, _GEMMA, 'gemma', added)


_TOKENIZERS = {'word_piece': word_piece, 'unigram': unigram,
               'byte_pairs': byte_pairs,
               'marked_pairs': marked_pairs}  # fmt: skip


# -------------------------------------------------------------------- cases


class Case(NamedTuple):
    """A folder.

    Attributes:
        model: the class of transformers.
        config: config.json; `vocab_size` where there are more embeddings than
            tokens.
        tokenizer: what makes it, a name of _TOKENIZERS, and its arguments.
        settings: tokenizer_config.json.
        modules: of sentence-transformers behind the Transformer, (what it is,
            its config.json); None: it is a folder of transformers alone,
            whose vectors are the mean.
        files: more of them, JSON or text, by where they lie.
        without: files that it lacks.
        older: whether an index and older shards lie beside
            model.safetensors.
        saved: whether the libraries write it.
        critic: by what texts are compared, if not by one vector: 'late',
            'lexical', 'cross', or 'm3' of all that BGE-M3 has.
    """

    model: str
    config: Mapping[str, Any]
    tokenizer: tuple[str, Mapping[str, Any]]
    settings: Mapping[str, Any] = {}
    modules: tuple[tuple[str, Mapping[str, Any]], ...] | None = None
    files: Mapping[str, Any] = {}
    without: tuple[str, ...] = ()
    older: bool = False
    saved: bool = False
    critic: str = ''


_WORDPIECE = ('word_piece', {})
_UNIGRAM = ('unigram', {})
_BYTES = ('byte_pairs', {'around': 'own'})
_GPT_BYTES = ('byte_pairs', {'specials': _END, 'around': 'bytes'})
_OF_BERT = {
    'tokenizer_class': 'BertTokenizer', 'do_lower_case': True,
    'strip_accents': None, 'tokenize_chinese_chars': True,
    'pad_token': '[PAD]', 'unk_token': '[UNK]', 'cls_token': '[CLS]',
    'sep_token': '[SEP]', 'mask_token': '[MASK]', 'model_max_length': 512,
}  # fmt: skip
_OF_ROBERTA = {
    'tokenizer_class': 'RobertaTokenizer', 'pad_token': '<pad>',
    'unk_token': '<unk>', 'bos_token': '<s>', 'eos_token': '</s>',
    'cls_token': '<s>', 'sep_token': '</s>', 'mask_token': '<mask>',
    'model_max_length': 40, 'add_prefix_space': False,
}  # fmt: skip
_OF_XLM = {
    **{k: v for k, v in _OF_ROBERTA.items() if k != 'add_prefix_space'},
    'tokenizer_class': 'XLMRobertaTokenizer',
}
_OF_GPT_2 = {
    'tokenizer_class': 'GPT2Tokenizer', 'model_max_length': 40,
    'pad_token': '<|endoftext|>', 'eos_token': '<|endoftext|>',
    'bos_token': '<|endoftext|>', 'unk_token': '<|endoftext|>',
}  # fmt: skip
# A class that takes tokenizer.json as it is.
_AS_WRITTEN = {'tokenizer_class': 'PreTrainedTokenizerFast'}
_PADDED = {'pad_token': '<pad>', 'model_max_length': 40}
_METADATA = 'artifact.metadata'
_OF_TOKENS = {
    'module_input_name': 'token_embeddings',
    'module_output_name': 'token_embeddings',
}
_MEAN = (('Pooling', {'word_embedding_dimension': D,
                      'pooling_mode_mean_tokens': True}),)  # fmt: skip
_CLS = (('Pooling', {'word_embedding_dimension': D,
                     'pooling_mode_cls_token': True,
                     'pooling_mode_mean_tokens': False}),)  # fmt: skip
_UNIT = ('Normalize', {})
_PYLATE = 'pylate.models.Dense.Dense'
_PROMPTS = 'config_sentence_transformers.json'
_LIMIT = 'sentence_bert_config.json'
_SPECIAL = {'special': True, 'normalized': False}
_PLAIN = {'special': False, 'normalized': True}


def _dense(
    wide: int, activation: str, bias: bool = True, kind: str = 'Dense',
    width: int = D, **more: Any,
) -> Any:  # fmt: skip
    return kind, {
        'in_features': width, 'out_features': wide, 'bias': bias,
        'activation_function': f'torch.nn.modules.{activation}', **more,
    }  # fmt: skip


def _pooled(mode: str) -> Any:
    return (('Pooling', {'embedding_dimension': D, 'pooling_mode': mode,
                         'include_prompt': True}),)  # fmt: skip


def _labels(*names: str) -> dict[str, Any]:
    return {
        'id2label': {str(i): name for i, name in enumerate(names)},
        'label2id': {name: i for i, name in enumerate(names)},
    }


# A folder of each kind; cases say what they have otherwise.
_BERT_FOLDER = Case('BertModel', _BERT, _WORDPIECE, _OF_BERT, _MEAN)
_CLASS_FOLDER = _BERT_FOLDER._replace(
    model='BertForSequenceClassification', modules=None
)
_XLM_FOLDER = Case('XLMRobertaModel', _XLM, _UNIGRAM, _OF_XLM, _MEAN)
_ROBERTA_FOLDER = Case('RobertaModel', _ROBERTA, _BYTES, _OF_ROBERTA, _MEAN)
_PADS_WITH_0 = _ROBERTA_FOLDER._replace(
    config={**_ROBERTA, 'pad_token_id': 0, 'bos_token_id': 1},
    tokenizer=('byte_pairs', {
        'specials': ('<pad>', '<s>', '</s>', '<unk>', '<mask>'),
        'around': 'own'}),
    modules=_CLS,
)  # fmt: skip
_GPT_2_FOLDER = Case('GPT2Model', _GPT_2, _GPT_BYTES, _OF_GPT_2)
_MODERN_FOLDER = Case(
    'ModernBertModel', _MODERN,
    ('byte_pairs', {'specials': _BERTS, 'around': 'bert'}),
    {**_OF_BERT, **_AS_WRITTEN, 'model_max_length': 48},
)  # fmt: skip
_WITHOUT_SEGMENTS = {'model_input_names': ['input_ids', 'attention_mask']}


def _unigram(*added: tuple[str, Mapping[str, Any]], **arguments: Any) -> Any:
    return 'unigram', {**arguments, **({'added': list(added)} if added else {})}


_PIECES_FOLDER = _CLASS_FOLDER._replace(
    config={**_BERT, **_labels('no', 'yes')},
    tokenizer=_unigram(around='roberta_as_bert'),
    settings={**_OF_XLM, **_AS_WRITTEN},
)


def _prompted(default: str | None = None, **prompts: str) -> dict[str, Any]:
    return {_PROMPTS: {'prompts': prompts, 'default_prompt_name': default}}


CASES: dict[str, Case] = {
    # --- WordPiece, and what is read beside it
    'minilm': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {'longest': 12}), modules=(*_MEAN, _UNIT),
        files={_LIMIT: {'max_seq_length': 24, 'do_lower_case': False},
               'special_tokens_map.json': {'pad_token': '[PAD]'}},
    ),
    'cased_by_settings': _BERT_FOLDER._replace(
        settings={**_OF_BERT, 'do_lower_case': False}
    ),
    'case_unsaid': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {'lowercase': False}),
        settings={k: v for k, v in _OF_BERT.items() if k != 'do_lower_case'},
    ),
    'as_written': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {
            'lowercase': False, 'strip_accents': True,
            'handle_chinese_chars': False, 'clean_text': False}),
        settings={**_OF_BERT, **_AS_WRITTEN},
    ),
    'no_settings': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {'lowercase': False}), settings={},
        files={_LIMIT: {'max_seq_length': 40}},
        without=('tokenizer_config.json',),
    ),
    'vocab_txt_added': _BERT_FOLDER._replace(
        config={**_BERT, 'vocab_size': len(TOKENS) + 2},
        files={'vocab.txt': '\n'.join(TOKENS) + '\n',
               'added_tokens.json': {'<user>': len(TOKENS),
                                     '[DOC]': len(TOKENS) + 1}},
        without=('tokenizer.json',),
    ),
    'vocab_txt_decoder': _BERT_FOLDER._replace(
        config={**_BERT, 'vocab_size': len(TOKENS) + 2},
        settings={**_OF_BERT, 'added_tokens_decoder': {
            str(i): {'content': x, 'lstrip': False, 'rstrip': i > 4,
                     'single_word': False, 'normalized': False,
                     'special': i < len(TOKENS)}
            for i, x in [*enumerate(_BERTS), (len(TOKENS), '<user>'),
                         (len(TOKENS) + 1, '[DOC]')]}},
        files={'vocab.txt': '\n'.join(TOKENS) + '\n'},
        without=('tokenizer.json',),
    ),
    'without_sep': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {'around': 'cls'}),
        settings={**_OF_BERT, **_AS_WRITTEN}, modules=_CLS,
    ),
    'sep_by_template': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {'around': 'cls'}), modules=_CLS
    ),
    'klue': Case(
        'RobertaModel', _ROBERTA,
        ('word_piece', {
            'specials': ('[CLS]', '[PAD]', '[SEP]', '[UNK]', '[MASK]'),
            'lowercase': False}),
        {**_OF_BERT, 'do_lower_case': False, 'model_max_length': 48}, _MEAN,
    ),
    'bert_of_bytes': Case(
        'BertModel', {**_BERT, 'pad_token_id': 1}, _BYTES, _OF_ROBERTA, _MEAN
    ),
    'old_shards': _BERT_FOLDER._replace(older=True),
    # --- lengths
    'as_long_as_positions': _BERT_FOLDER._replace(
        settings={**_OF_BERT, 'model_max_length': int(1e30)}
    ),
    # --- poolings, and what stands over them
    'plain': _BERT_FOLDER._replace(modules=None),
    'pools_max': _BERT_FOLDER._replace(modules=_pooled('max')),
    'dense': _BERT_FOLDER._replace(
        modules=(*_MEAN, _dense(6, 'activation.Tanh'), _UNIT)
    ),
    'dense_twice': _BERT_FOLDER._replace(
        modules=(*_CLS, _dense(D, 'activation.GELU'),
                 _dense(8, 'linear.Identity', bias=False)),
        files={_PROMPTS: {'similarity_fn_name': 'dot'}},
    ),
    'truncated': _BERT_FOLDER._replace(
        files={_PROMPTS: {'truncate_dim': 5, 'similarity_fn_name': 'cosine'}}
    ),
    # --- prompts
    'prompts': _BERT_FOLDER._replace(
        modules=(*_CLS, _UNIT),
        files={_PROMPTS: {'prompts': {'query': 'the world of: ',
                                      'document': ''},
                          'default_prompt_name': None,
                          'similarity_fn_name': 'cosine'}},
    ),
    'prompts_default': _BERT_FOLDER._replace(
        files=_prompted('document', query='', document='hello ')
    ),
    'prompts_added': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {
            'added': [('[QRY]', _SPECIAL), ('[DOC] ', _PLAIN)]}),
        modules=(*_MEAN, _UNIT),
        files=_prompted('query', query='[QRY] ', passage='[DOC] '),
    ),
    # --- added tokens
    'added': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {
            'added': [('[DOC]', _SPECIAL), ('<user>', _PLAIN),
                      ('New York', _PLAIN),
                      ('the', {**_PLAIN, 'single_word': True})]}),
    ),
    'added_named': _BERT_FOLDER._replace(
        config={**_BERT, 'vocab_size': len(TOKENS) + 3},
        tokenizer=('word_piece', {'added': [('[DOC]', _SPECIAL)]}),
        settings={**_OF_BERT, 'additional_special_tokens': ['[DOC]', '[QRY]']},
        files={_PROMPTS: {'prompts': {'query': '[QRY]', 'document': '[DOC]'}}},
    ),
    'added_blanks': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {'added': [
            ('[DOC]', {**_SPECIAL, 'lstrip': True}),
            ('<user>', {**_SPECIAL, 'rstrip': True, 'normalized': True}),
            ('York', {'normalized': False, 'lstrip': True,
                      'single_word': True})]}),
        settings={**_OF_BERT, **_AS_WRITTEN},
    ),
    # --- Unigrams
    'e5': _XLM_FOLDER._replace(
        config={**_XLM, 'vocab_size': 160},
        tokenizer=_unigram(normal='characters'), modules=(*_MEAN, _UNIT),
        files={_PROMPTS: {'prompts': {'query': 'query: ',
                                      'passage': 'passage: '}},
               _LIMIT: {'max_seq_length': 44}},
    ),
    'multilingual_minilm': _BERT_FOLDER._replace(
        config={**_BERT, 'vocab_size': 170},
        tokenizer=_unigram(normal='characters_joined'),
        settings={**_OF_XLM, 'do_lower_case': True},
        files={_LIMIT: {'max_seq_length': 32}},
    ),
    'ligature': _XLM_FOLDER._replace(tokenizer=_unigram(normal='ligature')),
    'camembert': _XLM_FOLDER._replace(
        model='CamembertModel', config={**_XLM, 'model_type': 'camembert'},
        tokenizer=_unigram(normal='characters'),
        settings={**_OF_XLM, 'tokenizer_class': 'CamembertTokenizer'},
    ),
    'added_xlm': _XLM_FOLDER._replace(
        tokenizer=_unigram(
            ('[DOC]', _SPECIAL), ('<user>', _PLAIN), ('New York', _PLAIN),
            ('the', {**_PLAIN, 'single_word': True, 'lstrip': True}),
            normal='characters',
        ),
    ),
    'blanks_first': _XLM_FOLDER._replace(
        tokenizer=_unigram(('<user>', _PLAIN), blanks='first', normal='joined'),
        settings={**_OF_XLM, **_AS_WRITTEN},
    ),
    'blanks_stripped': _XLM_FOLDER._replace(
        tokenizer=_unigram(blanks='whole', normal='stripped', doubled=True),
        settings={**_OF_XLM, **_AS_WRITTEN},
    ),
    # --- byte pairs
    'distilroberta': _ROBERTA_FOLDER._replace(
        settings={**_OF_ROBERTA, 'trim_offsets': True},
        modules=(*_MEAN, _UNIT),
        files={_LIMIT: {'max_seq_length': 44, 'do_lower_case': False}},
    ),
    'pads_with_0': _PADS_WITH_0,
    'untrimmed': _ROBERTA_FOLDER._replace(
        config={**_ROBERTA, 'vocab_size': 300},
        tokenizer=('byte_pairs', {
            'around': 'own', 'trims': False, 'prefix': True}),
        settings={**_OF_ROBERTA, 'add_prefix_space': True,
                  'trim_offsets': False},
    ),
    'roberta_bare': _ROBERTA_FOLDER._replace(
        tokenizer=('byte_pairs', {'around': 'bytes'})
    ),
    'gpt2_as_written': _GPT_2_FOLDER._replace(
        tokenizer=('byte_pairs', {
            'specials': _END, 'around': 'end', 'prefix': True}),
        settings={**_OF_GPT_2, 'add_prefix_space': False},
        modules=_pooled('lasttoken'),
    ),
    'sgpt': _GPT_2_FOLDER._replace(modules=_pooled('weightedmean')),
    'gpt2_end': _GPT_2_FOLDER._replace(
        config={**_GPT_2, 'n_inner': 4 * D},
        tokenizer=('byte_pairs', {'specials': _END, 'around': 'end'}),
        settings={**_OF_GPT_2, **_AS_WRITTEN}, modules=_pooled('lasttoken'),
    ),
    'modernbert': _MODERN_FOLDER._replace(
        tokenizer=('byte_pairs', {
            'specials': _BERTS, 'around': 'bert',
            'added': [('[DOC]', {**_PLAIN, 'lstrip': True})]}),
        settings={**_MODERN_FOLDER.settings, **_WITHOUT_SEGMENTS},
        modules=_MEAN,
        files={_PROMPTS: {'prompts': {'query': 'search_query: ',
                                      'document': 'search_document: '}}},
    ),
    # --- classes and scores
    'ms_marco': _CLASS_FOLDER._replace(
        config={**_BERT, **_labels('LABEL_0'),
                'sbert_ce_default_activation_function':
                    'torch.nn.modules.linear.Identity'},
    ),
    'nli': _ROBERTA_FOLDER._replace(
        model='RobertaForSequenceClassification', modules=None,
        config={**_ROBERTA,
                **_labels('contradiction', 'entailment', 'neutral')},
    ),
    'bge_reranker': _XLM_FOLDER._replace(
        model='XLMRobertaForSequenceClassification', modules=None,
        config={**_XLM, **_labels('LABEL_0'), 'vocab_size': 150},
        tokenizer=_unigram(normal='characters'),
    ),
    'modern_reranker': _MODERN_FOLDER._replace(
        model='ModernBertForSequenceClassification',
        config={**_MODERN, **_labels('LABEL_0'), 'classifier_pooling': 'mean'},
        settings={**_MODERN_FOLDER.settings, **_WITHOUT_SEGMENTS},
    ),
    'roberta_by_template': _ROBERTA_FOLDER._replace(
        model='RobertaForSequenceClassification', modules=None,
        config={**_ROBERTA, **_labels('no', 'yes')},
        tokenizer=('byte_pairs', {'around': 'roberta_as_bert'}),
    ),
    'segments_by_settings': _PIECES_FOLDER._replace(
        settings={**_PIECES_FOLDER.settings, 'model_input_names': [
            'input_ids', 'token_type_ids', 'attention_mask']},
    ),
    'bert_of_pieces': _PIECES_FOLDER._replace(
        tokenizer=_unigram(around='roberta_as_bert', normal='ligature'),
    ),
    'distil_classes': Case(
        'DistilBertForSequenceClassification',
        {**_DISTIL, **_labels('NEGATIVE', 'POSITIVE')},
        ('word_piece', {'added': [('[DOC]', _SPECIAL)]}),
        {**_OF_BERT, 'tokenizer_class': 'DistilBertTokenizer'},
    ),
    # --- tokenizers of other architectures, here over BERT's
    'split_of_qwen': Case(
        'BertModel', _BERT,
        ('byte_pairs', {'split': 'qwen', 'around': 'end', 'specials': _END,
                        'added': [('<user>', _SPECIAL)]}),
        {**_AS_WRITTEN, **_PADDED, 'pad_token': '<|endoftext|>'},
    ),
    'marks_of_gemma': Case(
        'BertModel', _BERT,
        ('marked_pairs', {'marks': 'gemma', 'added': [('[DOC]', _SPECIAL)]}),
        {**_AS_WRITTEN, **_PADDED},
    ),
    'albert': Case(
        'BertModel', _BERT,
        _unigram(specials=_ALBERT, normal='albert', around='bert'),
        {**_PADDED, 'tokenizer_class': 'AlbertTokenizer'},
    ),
    'deberta': Case(
        'BertModel', _BERT,
        _unigram(specials=_DEBERTA, around='bert', normal='characters',
                 blanks='always'),
        {**_PADDED, 'tokenizer_class': 'DebertaV2Tokenizer',
         'pad_token': '[PAD]'},
    ),
    'mpnet': Case(
        'BertModel', {**_BERT, 'pad_token_id': 1},
        ('word_piece', {'specials': _MPNET, 'around': 'roberta'}),
        {**_PADDED, 'tokenizer_class': 'MPNetTokenizer',
         'unk_token': '[UNK]'},
    ),
    # --- of vectors of tokens, and of weights of the vocabulary
    'pylate': _MODERN_FOLDER._replace(
        config={**_MODERN, 'local_attention': 16},
        tokenizer=('byte_pairs', {
            'specials': _BERTS, 'around': 'bert',
            'added': [('[Q] ', _PLAIN), ('[D] ', _PLAIN)]}),
        modules=(_dense(12, 'linear.Identity', False, _PYLATE),
                 _dense(6, 'linear.Identity', False, _PYLATE, 12)),
        files={_PROMPTS: {'query_prefix': '[Q] ', 'document_prefix': '[D] ',
                    'query_length': 9, 'document_length': 20,
                    'similarity_fn_name': 'MaxSim',
                    'prompts': {'query': '[Q] the ', 'document': ''}},
         _LIMIT: {'max_seq_length': 19, 'do_lower_case': False}},
        critic='late',
    ),
    'stanford': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {
            'added': [('[unused0]', _PLAIN), ('[unused1]', _PLAIN)]}),
        modules=None,
        files={_METADATA: {'query_maxlen': 12, 'doc_maxlen': 20, 'dim': 6,
                           'attend_to_mask_tokens': True}},
        critic='late',
    ),
    'late_saved': Case(
        'XLMRobertaModel', _XLM, _UNIGRAM, _OF_XLM,
        (_dense(6, 'linear.Identity', False,
                'sentence_transformers.models.Dense', **_OF_TOKENS),
         ('sentence_transformers.multi_vector_encoder.modules.'
          'multi_vector_mask.MultiVectorMask',
          {'skiplist_words': ['.', '\u2581the', 'nothing']}),
         ('Normalize', _OF_TOKENS)),
        {_LIMIT: {'document_length': 20, 'query_expansion':
                  {'strategy': 'fixed', 'length': 12}},
         _PROMPTS: {'model_type': 'MultiVectorEncoder',
                    'similarity_fn_name': 'meanmaxsim',
                    'prompts': {'query': 'hello ', 'document': 'of '}}},
        saved=True, critic='late',
    ),
    'splade_saved': Case(
        'DistilBertForMaskedLM', _DISTIL, _WORDPIECE, _OF_BERT,
        (('sentence_transformers.sparse_encoder.models.SpladePooling',
          {'pooling_strategy': 'max', 'activation_function': 'log1p_relu'}),),
        {_LIMIT: {'max_seq_length': 12, 'transformer_task': 'fill-mask',
                  'query_length': 8},
         _PROMPTS: {'model_type': 'SparseEncoder', 'max_active_dims': 7,
                    'prompts': {'query': 'the ', 'document': ''}}},
        saved=True, critic='lexical',
    ),
    'bge_m3': _XLM_FOLDER._replace(modules=(*_CLS, _UNIT), critic='m3'),
    'scores_by_modules_saved': _BERT_FOLDER._replace(
        settings={**_OF_BERT, 'model_max_length': 40},
        modules=(*_CLS, _dense(D, 'activation.GELU'),
                 _dense(1, 'linear.Identity', module_output_name='scores')),
        files={_PROMPTS: {'model_type': 'CrossEncoder'}}, saved=True,
        critic='cross',
    ),
    # --- as their libraries save them
    'minilm_saved': _BERT_FOLDER._replace(
        tokenizer=('word_piece', {'added': [('<user>', _PLAIN)]}),
        settings={**_OF_BERT, 'model_max_length': 40},
        modules=(*_MEAN, _UNIT), saved=True,
        files={_PROMPTS: {'prompts': {'query': 'the ', 'document': ''}}},
    ),
    'dense_saved': _XLM_FOLDER._replace(
        config={**_XLM, 'vocab_size': 150},
        tokenizer=_unigram(normal='characters'), saved=True,
        modules=(*_MEAN, _dense(6, 'activation.Tanh')),
    ),
    'roberta_saved': _PADS_WITH_0._replace(
        tokenizer=('byte_pairs', {
            **_PADS_WITH_0.tokenizer[1], 'added': [('[DOC]', _SPECIAL)]}),
        settings={**_OF_ROBERTA, 'add_prefix_space': True}, saved=True,
    ),
    'sgpt_saved': _GPT_2_FOLDER._replace(
        config={**_GPT_2, 'n_inner': 24}, modules=_pooled('lasttoken'),
        saved=True,
    ),
    'modernbert_saved': _MODERN_FOLDER._replace(modules=_CLS, saved=True),
    'reranker_saved': Case(
        'ElectraForSequenceClassification', {**_ELECTRA, **_labels('score')},
        _WORDPIECE, {**_OF_BERT, 'model_max_length': 40}, saved=True,
    ),
}  # fmt: skip
SHARDS = 'model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'
INDEX = 'model.safetensors.index.json'
EXPECTED = 'expected.npy'  # what we answer of a folder that we wrote


# ------------------------------------------------------------------ folders


def of_pairs(case: str) -> bool:
    """Tells whether a case answers scores of PAIRS; else vectors of TEXTS."""
    about = CASES[case]
    scores = about.model.endswith('ForSequenceClassification')
    return scores or about.critic == 'cross'


def vocabulary_size(case: str) -> int:
    """Counts the embeddings of a case."""
    tokens = _tokenizer(case).get_vocab_size()
    return CASES[case].config.get('vocab_size', tokens)


def _tokenizer(case: str) -> tk.Tokenizer:
    name, arguments = CASES[case].tokenizer
    return _TOKENIZERS[name](**arguments)


def write(
    folder: pathlib.Path,
    case: str,
    shapes: Mapping[str, Sequence[int]],
    saved: Mapping[str, str] | None = None,
) -> pathlib.Path:
    """Writes a folder, a new one.

    Args:
        folder: where.
        case: of CASES.
        shapes: of its weights, by their paths in the folder.
        saved: text of files by where they lie, of a folder that was saved;
            None: all is made here.
    """
    about = CASES[case]
    texts: dict[str, Any] = dict(saved or {})
    if saved is None:
        model = 'HF_ColBERT' if _METADATA in about.files else about.model
        config = {**about.config, 'architectures': [model],
                  'vocab_size': vocabulary_size(case)}  # fmt: skip
        texts = {
            'tokenizer.json': _tokenizer(case).to_str(),
            'tokenizer_config.json': about.settings, 'config.json': config,
            **_modules(about.modules), **about.files,
        }  # fmt: skip
    for place, value in texts.items():
        if place in about.without:
            continue
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        text = value if isinstance(value, str) else json.dumps(value)
        path.write_text(text, encoding='utf-8')
    by_file: dict[str, dict[str, np.ndarray]] = {}
    for place, shape in shapes.items():
        file, _, name = place.rpartition(':')
        by_file.setdefault(file, {})[name] = huggingface.weight(
            place.removeprefix('model.safetensors:'), tuple(shape)
        )
    for file, arrays in by_file.items():
        save_file(arrays, folder / file, {'format': 'pt'})
        if about.older:
            _write_shards(folder, arrays)
    return folder


def _modules(
    modules: Sequence[tuple[str, Mapping[str, Any]]] | None,
) -> dict[str, Any]:
    if modules is None:
        return {}
    kinds = [('Transformer', {}), *modules]
    places = ['', *(f'{i}_{_last(k)}' for i, (k, _) in enumerate(kinds) if i)]
    old = 'sentence_transformers.models.'
    listed = [
        {'idx': i, 'name': str(i), 'path': place,
         'type': kind if '.' in kind else f'{old}{kind}'}
        for i, ((kind, _), place) in enumerate(zip(kinds, places, strict=True))
    ]  # fmt: skip
    return {
        'modules.json': listed,
        **{
            f'{place}/config.json': values
            for place, (_, values) in zip(places, kinds, strict=True)
            if values
        },
    }


def _last(name: str) -> str:
    """Returns the last part of a dotted name."""
    return name.rpartition('.')[2]


def _write_shards(
    folder: pathlib.Path, arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes an index and what it names, other weights of these names."""
    names = sorted(arrays)
    cut = len(names) // 2
    parts = dict(zip(SHARDS, (names[:cut], names[cut:]), strict=True))
    index = {name: file for file, part in parts.items() for name in part}
    listed = {'metadata': {}, 'weight_map': index}
    (folder / INDEX).write_text(json.dumps(listed), encoding='utf-8')
    for file, part in parts.items():
        old = {x: huggingface.weight(f'old {x}', arrays[x].shape) for x in part}
        save_file(old, folder / file, {'format': 'pt'})


# ------------------------------------------------------------------ answers


def _shapes(case: str) -> dict[str, list[int]]:
    """Lists shapes of the weights of a case, as `write` takes them."""
    import transformers

    about = CASES[case]
    values = {k: v for k, v in about.config.items() if k != 'model_type'}
    values['vocab_size'] = vocabulary_size(case)
    config = transformers.AutoConfig.for_model(
        about.config['model_type'], **values
    )
    model = getattr(transformers, about.model)(config)
    stanford = about.files.get(_METADATA)
    before = 'bert.' if stanford else ''
    tied = model._tied_weights_keys or ()
    shapes = {
        f'model.safetensors:{before}{name}': list(value.shape)
        for name, value in model.state_dict().items()
        if value.is_floating_point() and name not in tied
    }
    if stanford:
        shapes['model.safetensors:linear.weight'] = [stanford['dim'], D]
    for number, (kind, values) in enumerate(about.modules or (), 1):
        if _last(kind) == 'Dense':
            wide = values['out_features'], values['in_features']
            name = f'{number}_Dense/model.safetensors:linear'
            shapes[f'{name}.weight'] = list(wide)
            if values['bias']:
                shapes[f'{name}.bias'] = [wide[0]]
    return shapes


# In what libraries save, and no part of a model: their versions, and whether
# the machine that saved was told that it has no network.
VOLATILE = {
    r'("(?:pytorch|transformers|sentence_transformers|transformers_version)"'
    r': )"[^"]*"': r'\1"0.0.0"',
    r'("local_files_only": )true': r'\1false',
}


def _saved(
    folder: pathlib.Path, case: str
) -> tuple[dict[str, list[int]], dict[str, str]]:
    """Lets a library save a folder: shapes, and text of the small files."""
    import safetensors
    import sentence_transformers

    again = folder.with_name('saved')
    shutil.rmtree(again, ignore_errors=True)
    kind = {
        '': sentence_transformers.SentenceTransformer,
        'late': sentence_transformers.MultiVectorEncoder,
        'lexical': sentence_transformers.SparseEncoder,
        'cross': sentence_transformers.CrossEncoder,
    }['cross' if of_pairs(case) else CASES[case].critic]
    kind(str(folder), device='cpu').save_pretrained(str(again))
    shapes, texts = {}, {}
    for path in sorted(again.rglob('*')):
        place = str(path.relative_to(again))
        if path.suffix == '.safetensors':
            with safetensors.safe_open(path, 'np') as file:
                for name in file.keys():
                    shape = file.get_slice(name).get_shape()
                    shapes[f'{place}:{name}'] = list(shape)
        elif path.is_file() and path.suffix != '.md':
            text = path.read_text(encoding='utf-8')
            for pattern, value in VOLATILE.items():
                text = re.sub(pattern, value, text)
            texts[place] = text
    return shapes, texts


def _vectors(folder: pathlib.Path, about: Case) -> dict[str, np.ndarray]:
    import sentence_transformers

    model = sentence_transformers.SentenceTransformer(str(folder), device='cpu')
    texts = list(TEXTS)
    answers = {'ids': _rows(model, texts, 'input_ids'),
               'vectors': model.encode(texts)}  # fmt: skip
    if 'trim_offsets' in about.settings:
        answers['offsets'] = _offsets(model.tokenizer, texts)
    if any(model.prompts.values()):
        answers['query'] = model.encode_query(texts)
        # Their prompt 'document' is there, if empty, where a folder has
        # 'passage' alone; those who use such a folder name that.
        name = 'passage' if 'passage' in model.prompts else None
        answers['document'] = model.encode_document(texts, prompt_name=name)
    return answers


def _late_vectors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Asks for vectors of tokens by role, and scores: [n, n]."""
    import sentence_transformers

    model = sentence_transformers.MultiVectorEncoder(str(folder), device='cpu')
    query, document = (
        encode(list(TEXTS), convert_to_numpy=True)
        for encode in (model.encode_query, model.encode_document)
    )
    scores = model.similarity(query, document).numpy()
    vectors = _flat('query', query) | _flat('document', document)
    return {**vectors, 'scores': scores}


def _flat(name: str, vectors: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Joins vectors [t, W] of texts, and counts them: [sum of t, W], [n]."""
    counts = np.array([len(x) for x in vectors], np.int16)
    return {name: np.concatenate(vectors), f'{name}_counts': counts}


def _lexical_vectors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Asks for weights of the vocabulary by role: [n, V]."""
    import sentence_transformers

    model = sentence_transformers.SparseEncoder(str(folder), device='cpu')
    return {
        name: encode(list(TEXTS), convert_to_sparse_tensor=False).numpy()
        for name, encode in (
            ('query', model.encode_query), ('document', model.encode_document)
        )
    }  # fmt: skip


def _m3_vectors(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Computes what BGE-M3 has (Chen et al. 2024, §3.1), and files of its
    heads: vectors [n, D] and of tokens but the first one, weights [n, V].
    """
    import torch
    import transformers

    bytes_, heads = {}, {}
    for name, wide in (('colbert_linear', D), ('sparse_linear', 1)):
        state = {
            'weight': huggingface.weight(f'{name}.weight', (wide, D)),
            'bias': huggingface.weight(f'{name}.bias', (wide,)),
        }
        state = {k: torch.tensor(x).half() for k, x in state.items()}
        torch.save(collections.OrderedDict(state), folder / f'{name}.pt')
        content = (folder / f'{name}.pt').read_bytes()
        bytes_[f'{name}.pt'] = np.frombuffer(content, np.uint8)
        heads[name] = {k: x.float() for k, x in state.items()}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    unit, linear = torch.nn.functional.normalize, torch.nn.functional.linear
    vectors, tokens = [], []
    weights = np.zeros((len(TEXTS), model.config.vocab_size), np.float32)
    for text, row in zip(TEXTS, weights, strict=True):
        ids = tokenizer(text, truncation=True)['input_ids']
        with torch.no_grad():
            (states,) = model(torch.tensor([ids])).last_hidden_state
            vectors.append(unit(states[0], dim=-1).numpy())
            of_tokens = linear(states[1:], **heads['colbert_linear'])
            tokens.append(unit(of_tokens, dim=-1).numpy())
            scores = linear(states, **heads['sparse_linear'])[:, 0].relu()
        np.maximum.at(row, ids, scores.numpy())
        row[tokenizer.convert_tokens_to_ids(list(_FAIRSEQ[:4]))] = 0
    return {**bytes_, **_flat('document', tokens),
            'vectors': np.stack(vectors), 'weights': weights}  # fmt: skip


def _scores(folder: pathlib.Path) -> dict[str, np.ndarray]:
    import sentence_transformers
    import torch

    model = sentence_transformers.CrossEncoder(str(folder), device='cpu')
    pairs, shape = list(PAIRS), (len(PAIRS), -1)

    def predicted(activation: Any, **more: Any) -> np.ndarray:
        scores = model.predict(pairs, activation_fn=activation, **more)
        return scores.reshape(shape)

    bare = torch.nn.Identity()
    if model.num_labels == 1:
        probabilities = predicted(torch.nn.Sigmoid())
    else:
        probabilities = predicted(bare, apply_softmax=True)
    return {'ids': _rows(model, pairs, 'input_ids'),
            'scores': predicted(bare),
            'probabilities': probabilities}  # fmt: skip


def _default_scores(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Asks for scores of pairs as the folder says they are made: [n, 1]."""
    import sentence_transformers

    model = sentence_transformers.CrossEncoder(str(folder), device='cpu')
    return {'scores': model.predict(list(PAIRS)).reshape(len(PAIRS), -1)}


def _rows(model: Any, texts: Sequence[Any], name: str) -> np.ndarray:
    """Asks what a model reads of texts or pairs: [n, T], NOTHING at padding."""
    features = model.preprocess(texts)
    real = features['attention_mask'].bool().numpy()
    return np.where(real, features[name].numpy(), NOTHING).astype(np.int16)


def _offsets(tokenizer: Any, texts: Sequence[str]) -> np.ndarray:
    """Asks where each token begins and ends in bytes of a text: [tokens, 2]."""
    rows = [
        (len(text[:start].encode()), len(text[:end].encode()))
        for text in texts
        for start, end in tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True
        )['offset_mapping']
    ]
    return np.array(rows, np.int16)


_OF_CRITICS = {
    'late': _late_vectors, 'lexical': _lexical_vectors, 'm3': _m3_vectors
}  # fmt: skip


def make() -> dict[str, np.ndarray]:
    """Asks the libraries, and tells what their folders hold.

    Returns:
        'shapes' and 'saved', JSON as bytes: by case, as `write` takes them.
        Tables of characters as they are.
        By CASE/what, answers: ids [n, T]; of texts vectors, query and document
        [n, D], and offsets [tokens, 2]; of pairs scores and probabilities
        [n, C]; of critics what `_OF_CRITICS` say.
    """
    arrays: dict[str, np.ndarray] = {}
    all_shapes, all_saved = {}, {}
    for case, about in CASES.items():
        with tempfile.TemporaryDirectory() as name:
            folder, texts = pathlib.Path(name) / 'folder', None
            shapes = _shapes(case)
            write(folder, case, shapes)
            if about.saved:
                shapes, texts = _saved(folder, case)
                folder = pathlib.Path(name) / 'again'
                write(folder, case, shapes, texts)
                all_saved[case] = texts
            all_shapes[case] = shapes
            if of_pairs(case):
                answers = _scores(folder)
            elif about.critic:
                answers = _OF_CRITICS[about.critic](folder)
            else:
                answers = _vectors(folder, about)
            for part, array in answers.items():
                if array.dtype.kind == 'f':
                    array = array.astype(np.float32)
                arrays[f'{case}/{part}'] = array
    return {
        **arrays,
        **{k: np.frombuffer(x, np.uint8) for k, x in _RULES.items()},
        'shapes': frozen.as_bytes(all_shapes),
        'saved': frozen.as_bytes(all_saved),
    }


def load(folders: pathlib.Path) -> float:
    """Loads what our converter wrote of critics: the largest difference.

    A folder that is no case has beside it, in EXPECTED, scores of PAIRS.
    """
    frozen_answers = frozen.read(frozen.FOLDER / 'public_folders.npz')
    gaps = []
    for folder in sorted(folders.iterdir()):
        about = CASES.get(folder.name)
        ask = _OF_CRITICS.get(about and about.critic, _default_scores)
        answers = ask(folder)
        if about:
            known = {k: frozen_answers[f'{folder.name}/{k}'] for k in answers}
        else:
            known = {'scores': np.load(folder / EXPECTED)}
        gaps.append(frozen.compare(answers, known))
    return max(gaps)


if __name__ == '__main__':
    frozen.main('public_folders', make, load)
