"""Converted weights of several kinds, each exported once, for tests."""

from infoword_tf import convert
from infoword_tf.config import Config
from tests.export import workdirs
from tests.weights import folders

KINDS = {
    'classes': ('bert_classes', {}),
    'one_class': ('bert_one_class', {}),
    'roberta': ('xlm_roberta_classes', {}),
    'xlnet': ('xlnet_classes', {}),
    'prompts': ('bert', {'query': 'ask: ', 'passage': 'it says '}),
    'masks': ('distilbert', {}),
}


def _write(kind):
    case, prompts = KINDS[kind]
    folder = workdirs.folder() / 'converted' / kind
    source = folders.write(folder / 'source', case)
    convert.convert(source, folder / 'workdir', prompts=prompts)
    if prompts:
        config = Config.read(folder / 'workdir')
        config.replace(prompt='query').write(folder / 'workdir')
    return folder / 'workdir'


workdir, exported, loaded, served = workdirs.kinds('converted', _write)
