"""A workdir with vectors of tokens and weights of the vocabulary, for tests."""

from infoword_tf.config import DenseConfig, LateConfig, LexicalConfig
from tests.export import workdirs

LATE = LateConfig((DenseConfig(9, 'gelu'), DenseConfig(5, 'identity', False)),
                  expand=True, skip=('.', 'the'))  # fmt: skip
FIELDS = {
    'late': LATE, 'lexical': LexicalConfig(transform=True), 'critic': 'late',
    'query_length': 9, 'passage_length': 20,
    'prompts': {'query': 'is ', 'document': 'of '},
}  # fmt: skip
TEXTS = [
    'the end of a value.', '', 'names refer to objects ' * 9, 'x', 'x',
    'a the. the', 'a name of the value',
]  # fmt: skip
workdir, exported, loaded, served = workdirs.kinds(
    'critics',
    lambda kind: workdirs.write(
        workdirs.folder() / kind, ('simcse',), fields=FIELDS
    ),
)
