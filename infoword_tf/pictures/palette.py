"""Which colour means what."""

INK, QUIET, LINE = '#22303c', '#6b7883', '#c9d1d8'
ASKED_INK, MEMORY_INK = '#b8641a', '#4b8a55'  # of words
# What a column is, by the number in a mask: colour, and words for the legend.
KINDS = {
    'nothing': ('#f2f4f6', 'may not look there'),
    'word': ('#8fb8de', 'looks at a word'),
    'special': ('#c3ccd5', 'looks at [CLS] or [SEP]'),
    'asked': ('#f2a65e', 'looks at what stands at a place that is asked for'),
    'memory': ('#93c29a', 'looks at the memory: states of the step before, '
               'without a gradient'),
    'self': ('#3f6491', 'looks at itself'),
    'blind': ('#ffffff', 'a query: it knows its place, and not its word'),
}
NAMES = list(KINDS)
START = '#3f6491'  # the frame of a token whose state stands for a text
SEGMENTS = ('#5aa897', '#a98bc4', '#d9b44a', '#8d99a6')


def segment_colour(number: int) -> str:
    """The colour of a segment of the text, by its number."""
    return SEGMENTS[int(number) % len(SEGMENTS)]
