"""What rows let a run choose, and what they read: data, and no Keras.

So the flags of a command are known, and what is wrong with them is said,
before anything that takes seconds is imported. TABLE says whose they are; the
objectives read them here.
"""

from collections.abc import Mapping
from typing import Any

from infoword_tf.objectives.row import Vector
from infoword_tf.settings import Setting
from infoword_tf.views import Reads
from infoword_tf.views.words import SUBSAMPLE

# -------------------------------------------------------------- words and text

LOSSES = 'infonce', 'vocabulary', 'binary'
WORDS = {
    'loss': Setting(
        'infonce',
        'Among drawn words, among the vocabulary, or binary (word2vec).',
        choices=LOSSES,
    ),
    'ratio': Setting(
        5,
        'Negatives that count for each pair, whatever is drawn (word2vec: '
        'negative).',
        at_least=1,
        needs=('loss', 'binary'),
    ),
    'subsample': SUBSAMPLE,  # of its view too
}
CRITICS = ('dot', 'scaled', 'cosine')
SAMPLED = Setting(
    0,
    'Candidates of a training step, about so many, drawn anew for each; 0: '
    'the whole vocabulary.',
    at_least=0,
)

STREAM, LABELLED_TEXTS = 'stream', 'examples'
FOLLOWING = {
    'streamed': Reads('text', when=('reads', STREAM)),
    'examples': Reads('following', when=('reads', LABELLED_TEXTS)),
}
READS = Setting(
    STREAM,
    'Text that goes on from step to step (stream), or the labelled texts of '
    'the rows beside it (examples), as fine-tuning does where no --corpus is '
    'named.',
    choices=(STREAM, LABELLED_TEXTS),
)

# --------------------------------------------------------- what people labelled

NO_POOLER = 'none'
POOLERS = ('tanh', 'relu', 'gelu')
TEXTS = ('joined', 'both_ways', 'choices')
HEAD = {
    'pooler': Setting(
        NO_POOLER,
        'Activation of a dense layer below the scores (BERT: tanh); none: '
        'there is no such layer.',
        choices=(NO_POOLER, *POOLERS),
    ),
    'mix': Setting(
        False,
        'Mix the states of all layers with learned weights (ELMo), instead '
        'of taking the last.',
    ),
    'bilstm': Setting(
        False,
        'Read all states of a text by an LSTM of each direction, as wide as '
        'the encoder, instead of taking one state (ELMo).',
    ),
}
TEXTS_HELP = (
    'What an example comes to: one text, or two as one (joined), two in both '
    'orders (both_ways), or several of which one is right (choices).'
)
LABELLED = {
    name: {} for name in ('transformer', 'relative', 'lookup', 'rnn', 'elmo')
}
EXAMPLES = {
    'examples': Reads(
        'example', layers=('mix', True), everywhere=('bilstm', True)
    )
}
ENDS = ('independent', 'conditional')

# ------------------------------------------------------- what a teacher answers

TARGETS = {'examples': Reads('example', encoders=())}  # states are the head's
BELOW = {'examples': Reads('example', layers='below')}
PAPER, CODE = REDUCTIONS = ('paper', 'code')
LAST, SKIP = MAPS = ('last', 'skip')
REDUCTION = {
    'reduction': Setting(
        PAPER,
        'Sums as in the paper, or means over what is summed, as in its code.',
        choices=REDUCTIONS,
    ),
}
TEMPERATURE = {
    'temperature': Setting(
        10.0,
        'What the scores of both are divided by.',
        at_least=1e-6,
    ),
}
SOFT = {**TEMPERATURE, **REDUCTION}
PATIENCE = {
    'width': Setting(
        0,
        "Width of the teacher's states, which the student's are then "
        'projected to; 0: its own.',
        at_least=0,
    ),
    **REDUCTION,
}
TEXT = {'examples': Reads('text')}
MEAN, CLS, LAST_TOKEN = POOLINGS = ('mean', 'cls', 'last')
COSINE, MSE = DISTANCES = ('cosine', 'mse')
TAUGHT = {
    'width': Setting(
        0,
        "Width of the teacher's vectors, which the student's are then "
        'projected to; 0: its own.',
        at_least=0,
    ),
    'pooling': Setting(
        MEAN,
        "How the student's states become a vector.",
        choices=POOLINGS,
    ),
}
EMBED = {
    'temperature': Setting(
        0.05, 'What a cosine is divided by.', at_least=1e-6
    ),
    **TAUGHT,
}
DISTANCE = {
    'distance': Setting(
        COSINE,
        'One less the cosine, or the squared distance, summed over '
        'coordinates.',
        choices=DISTANCES,
    ),
    **TAUGHT,
}

# -------------------------------------------------- how a text becomes a vector


def by_critic(settings: Mapping[str, Any]) -> Vector:
    """The state of [CLS], compared as the critic of `dim` compares."""
    cosine = settings['critic'] == 'cosine'
    return Vector('cls', 'cosine' if cosine else 'dot', rank=1)


def weighted(settings: Mapping[str, Any]) -> Vector:
    """The mean with learned weights, or that and the words."""
    pooling = 'words' if settings['words'] else 'weighted'
    return Vector(pooling, 'cosine', rank=2)


def at_the_end(settings: Mapping[str, Any]) -> Vector:
    """The mean; a causal encoder knows a text at its end alone."""
    labelled = settings.get('reads') == LABELLED_TEXTS
    return Vector(layout='gpt' if labelled else 'end')


def mixed(settings: Mapping[str, Any]) -> Vector:
    """The mean over tokens and layers: of a model that reads both ways."""
    del settings
    return Vector(pooling='mix', layout='end')


def as_xlnet(settings: Mapping[str, Any]) -> Vector:
    """The mean of a text that is laid out as XLNet's are."""
    del settings
    return Vector(layout='xlnet')


def as_started(settings: Mapping[str, Any]) -> None:
    """None: texts become vectors as --init has it."""
    del settings
