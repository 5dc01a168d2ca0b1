"""Special tokens around a text that is encoded alone, or around two texts.

    bert     [CLS] text [SEP]      [CLS] a [SEP] b [SEP]         first state
    roberta  [CLS] text [SEP]      [CLS] a [SEP] [SEP] b [SEP]   first state
    end      text [SEP]            a [SEP] b [SEP]               last state
    gpt      [CLS] text [MASK]     [CLS] a [SEP] b [MASK]        last state
    xlnet    text [SEP] [CLS]      a [SEP] b [SEP] [CLS]         last state

The last column is the pooled state of a text. In `bert` and `xlnet` the second
text, with the [SEP] after it, is segment 1. For public tokenizers with other
special tokens a config holds a `Layout` instead of a name.
"""

from infoword_tf.config import Layout

UNKNOWN = '<unk>'  # how public corpora write a word that was taken out
LAYOUTS = {
    # Devlin et al. 2019, §3.
    'bert': Layout(('cls',), ('sep',), first=True, second_segment=1),
    # Liu et al. 2019, as its code has it.
    'roberta': Layout(('cls',), ('sep',), first=True, between=('sep', 'sep')),
    # Of a causal encoder only the last state has seen the whole text.
    'end': Layout((), ('sep',)),
    # Radford et al. 2018, §3.3: a start, a delimiter and an end that training
    # adds. Here only [SEP] is in streams of text, too.
    'gpt': Layout(('cls',), ('mask',)),
    # Yang et al. 2019, §2.5: segments 0 for text and [SEP], 2 for [CLS].
    'xlnet': Layout((), ('sep', 'cls'), last_segment=2, second_segment=1),
}


def layout_of(layout: str | Layout) -> Layout:
    """Looks up a name in LAYOUTS; returns a `Layout` unchanged."""
    return LAYOUTS[layout] if isinstance(layout, str) else layout
