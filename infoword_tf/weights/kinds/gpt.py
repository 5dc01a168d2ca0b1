"""GPT and GPT-2."""

from collections.abc import Mapping
from typing import Any

from infoword_tf.weights.kinds.architecture import ACTIVATIONS, Architecture
from infoword_tf.weights.names import SAME, TORCH, Naming

# Radford et al. 2018: its dense layers keep [in, out].
_GPT = Naming(
    encoder={
        'word_embeddings': ('tokens_embed.weight', SAME),
        'position_embeddings': ('positions_embed.weight', SAME),
    },
    layer=TORCH._replace(form=SAME, joined=(SAME, SAME)).layer(
        'h.{i}.',
        'attn.c_attn',
        output='attn.c_proj',
        attention_norm='ln_1',
        inner='mlp.c_fc',
        outer='mlp.c_proj',
        outer_norm='ln_2',
        parts=('all',),
    ),
    heads={'next_words': {}},  # scores are of the embeddings alone
    copies={'lm_head.weight': '{p}tokens_embed.weight'},
    ignored=('position_ids', 'h.{i}.attn.bias'),
    prefixes=('transformer.', ''),
)
# Radford et al. 2019: norms come first, and one more last.
_GPT_2 = _GPT._replace(
    encoder={
        'word_embeddings': ('wte.weight', SAME),
        'position_embeddings': ('wpe.weight', SAME),
        **TORCH.norm('last_norm', 'ln_f'),
    },
    copies={'lm_head.weight': '{p}wte.weight'},
    ignored=('h.{i}.attn.bias', 'h.{i}.attn.masked_bias'),
)

_GPT_KEYS = {
    'vocab_size': 'vocab_size',
    'layers': 'n_layer',
    'width': 'n_embd',
    'heads': 'n_head',
    'max_length': 'n_positions',
    'rate': 'resid_pdrop',
    'epsilon': 'layer_norm_epsilon',
}
_GPT_ABSENT = {'rate': 0.1, 'epsilon': 1e-5}
_GPT_FIXED = {'segments': 0, 'causal': True, 'embedding_norm': False}


def _gpt_2(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Adds the default of the inner width to GPT-2's config.json."""
    del where
    width = 4 * config.get('n_embd', 0)
    inner = config.get('n_inner')
    return {**config, 'n_inner': width if inner is None else inner}


ARCHITECTURES: dict[str, Architecture] = {
    'gpt2': Architecture(
        'transformer',
        _GPT_2,
        keys={
            **_GPT_KEYS,
            'inner_width': 'n_inner', 'activation': 'activation_function',
        },
        absent={**_GPT_ABSENT, 'activation': 'gelu_new', 'max_length': 1024},
        name='GPT2',
        fills='LMHeadModel',
        fixed={**_GPT_FIXED, 'pre_norm': True},
        refused={
            'add_cross_attention': (False, None),
            'scale_attn_by_inverse_layer_idx': (False, None),
            'scale_attn_weights': (True,),
        },
        layout='end',
        spans={},
        tied='next_words',
        writes=lambda arguments: bool(
            arguments.get('causal') and arguments.get('pre_norm')
        ),
        rewrite=_gpt_2,
    ),
    'openai-gpt': Architecture(
        'transformer', _GPT, keys={**_GPT_KEYS, 'activation': 'afn'},
        absent={**_GPT_ABSENT, 'activation': 'gelu', 'max_length': 512},
        name='OpenAIGPT',
        fills='LMHeadModel',
        fixed={**_GPT_FIXED, 'pre_norm': False},
        layout='end',
        tags={},
        spans={},
        activations={**ACTIVATIONS, 'gelu': 'gelu_tanh'},
        tied='next_words',
        writes=lambda arguments: bool(arguments.get('causal')),
    ),
}  # fmt: skip
