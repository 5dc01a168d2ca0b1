"""Named sizes of Transformer encoders (Turc et al. 2019, Devlin et al. 2019).

D / 64 heads each; the feed-forward is 4 D wide.
"""

SIZES: dict[str, dict[str, int]] = {
    'tiny': {'layers': 2, 'width': 128, 'heads': 2},
    'mini': {'layers': 4, 'width': 256, 'heads': 4},
    'small': {'layers': 4, 'width': 512, 'heads': 8},
    'medium': {'layers': 8, 'width': 512, 'heads': 8},
    'base': {'layers': 12, 'width': 768, 'heads': 12},
    'large': {'layers': 24, 'width': 1024, 'heads': 16},
    # Peters et al. 2018, both directions.
    'elmo': {'layers': 2, 'width': 1024, 'heads': 16},
}
