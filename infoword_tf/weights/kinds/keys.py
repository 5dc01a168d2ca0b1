"""Fates of every key of config.json that transformers has.

A key is followed, or refused where its value changes states or scores, or has
no effect on these: here, or in transformers either.
"""

from infoword_tf.weights.kinds import ARCHITECTURES

FOLLOWED, REFUSED, NO_EFFECT = 'followed', 'refused', 'without effect'
_ROPE = 'rope_parameters rope_scaling rope_theta partial_rotary_factor'
_GROUPED = f'layer_types {_ROPE}'
# Besides the keys of `Architecture.keys`, what other code reads: by model_type,
# of all under ''.
READ: dict[str, frozenset[str]] = {
    kind: frozenset(keys.split())
    for kind, keys in {
        '': 'architectures id2label label2id model_type num_labels '
        'pad_token_id problem_type tie_word_embeddings',
        'deberta-v2': 'legacy',
        'eurobert': f'classifier_pooling {_GROUPED}',
        'gemma3_text': 'layer_types rope_local_base_freq rope_parameters '
        'rope_scaling rope_theta sliding_window sliding_window_pattern '
        'use_bidirectional_attention',
        'gte': f'head_dim {_ROPE}',
        'llama': _GROUPED,
        'mistral': f'sliding_window {_GROUPED}',
        'modernbert': 'classifier_pooling global_rope_theta layer_types '
        'local_rope_theta rope_parameters rope_scaling sliding_window',
        'nomic_bert': f'head_dim {_ROPE}',
        'qwen2': _GROUPED,
        'qwen3': _GROUPED,
    }.items()
}
# By reason.
IGNORED: dict[str, frozenset[str]] = {
    reason: frozenset(keys.split())
    for reason, keys in {
        'dropout, and weights before training': """
            attention_dropout attention_probs_dropout_prob attn_pdrop
            classifier_dropout classifier_dropout_prob cls_dropout embd_pdrop
            hidden_dropout hidden_dropout_prob initializer_cutoff_factor
            initializer_range mlp_dropout pooler_dropout qa_dropout
            seq_classif_dropout sinusoidal_pos_embds summary_first_dropout
            summary_last_dropout
        """,
        'how transformers computes the same, or what it returns': """
            _name_or_path attention_mask chunk_size_feed_forward
            deterministic_flash_attn dtype get_text_config
            is_encoder_decoder output_attentions output_hidden_states
            pretraining_tp reorder_and_upcast_attn return_dict
            sparse_pred_ignore_index sparse_prediction token_type_ids
            transformers_version
        """,
        'generation': """
            mem_len reuse_len use_cache use_mems_eval use_mems_train
        """,
        'tokens, which files of the tokenizer name': """
            bos_token_id cls_token_id eos_token_id mask_token_id sep_token_id
        """,
        'heads that are left out': """
            end_n_top start_n_top summary_activation summary_proj_to_labels
            summary_type summary_use_proj
        """,
        'images': """
            image_token_id mm_tokens_per_image text_config vision_config
        """,
        'read where another key, which is refused, is set': """
            add_cross_attention conv_act conv_groups max_window_layers
            sliding_window
        """,
        'other names of keys, or made of them': """
            _sliding_window_pattern d_head head_dim hidden_size
            max_position_embeddings
            n_layers num_attention_heads num_hidden_layers
        """,
    }.items()
}


def fate(kind: str, key: str) -> str:
    """Sorts a key of a config.json: FOLLOWED, REFUSED or NO_EFFECT.

    Args:
        kind: a model_type of ARCHITECTURES.
        key: name in its config.json.

    Raises:
        KeyError: nothing here knows the key.
    """
    known = ARCHITECTURES[kind]
    if key in known.refused:
        return REFUSED
    if key in {*known.keys.values(), *READ[''], *READ.get(kind, ())}:
        return FOLLOWED
    if any(key in keys for keys in IGNORED.values()):
        return NO_EFFECT
    raise KeyError(f'{kind} has the key {key}')
