"""What stands around a text that is encoded alone, and what sums it up.

    bert    [CLS] text [SEP]         the first state sums it up
    end     text [SEP]               the last, which has seen everything
    xlnet   text [SEP] [CLS]         the last, in a segment of its own
"""

from typing import NamedTuple


class Layout(NamedTuple):
    """Special pieces around a text.

    Attributes:
        before, after: which ('cls' or 'sep'), in order.
        last_segment: segment of the last one; all others are in segment 0.
        first: whether the first state sums the text up (`cls`), or the last.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    last_segment: int = 0
    first: bool = False

    @property
    def shown(self) -> str:
        """As people write it: '[CLS] text [SEP]'."""
        before, after = (
            [f'[{name.upper()}]' for name in names]
            for names in (self.before, self.after)
        )
        return ' '.join([*before, 'text', *after])


LAYOUTS = {
    # Devlin et al. 2019, §3.
    'bert': Layout(('cls',), ('sep',), first=True),
    # A causal encoder knows a text only at its end.
    'end': Layout((), ('sep',)),
    # Yang et al. 2019, §2.5: segments 0 for text and [SEP], 2 for [CLS].
    'xlnet': Layout((), ('sep', 'cls'), last_segment=2),
}
