"""All keys of tokenizer_config.json that transformers reads.

    .venv-oracles/bin/python -m tests.oracles.tokenizer_keys [--write]

They are the arguments of the classes for the kinds that are converted, and what
the classes below these take from keywords, by their source.
"""

import ast
import inspect

import numpy as np

from tests.oracles import frozen

CLASSES = (
    'Bert', 'Roberta', 'XLMRoberta', 'Camembert', 'XLNet', 'MPNet', 'Albert',
    'DebertaV2', 'GPT2', 'OpenAIGPT', 'Llama', 'Qwen2', 'Gemma',
)  # fmt: skip
KEYWORDS = ('kwargs', 'init_kwargs', 'local_kwargs')
METHODS = ('__init__', '_from_pretrained', 'convert_to_native_format')


def taken(kind: type) -> set[str]:
    """Returns what a class reads: `kwargs.get(KEY)`, `.pop(KEY)`."""
    keys = set()
    for method in ast.walk(ast.parse(inspect.getsource(kind))):
        if getattr(method, 'name', None) not in METHODS:
            continue
        for call in ast.walk(method):
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr in ('get', 'pop')
                and getattr(call.func.value, 'id', None) in KEYWORDS
                and isinstance(call.args[0], ast.Constant)
            ):
                keys.add(call.args[0].value)
    return keys


def make() -> dict[str, np.ndarray]:
    """`keys`, JSON as bytes: names in order."""
    import transformers
    from transformers import tokenization_utils_tokenizers as general

    base = transformers.PreTrainedTokenizerBase
    keys = {*base.SPECIAL_TOKENS_ATTRIBUTES}
    for kind in (base, general.TokenizersBackend):
        keys |= taken(kind)
    for name in CLASSES:
        kind = getattr(transformers, f'{name}Tokenizer')
        keys |= {
            x.name
            for x in inspect.signature(kind.__init__).parameters.values()
            if x.kind is not x.VAR_KEYWORD and x.name != 'self'
        }
    return {'keys': frozen.as_bytes(sorted(keys))}


if __name__ == '__main__':
    frozen.main('tokenizer_keys', make)
