"""gensim's word2vec, alone in its process: text in, vectors and seconds out.

    python benchmarks/peers/wordvectors.py TEXT VECTORS OPTIONS

TEXT has words parted by spaces; OPTIONS are the model's, as JSON. The last line
that it prints is {"words": ..., "seconds": ...}: of the training alone.
"""

import json
import pathlib
import sys
import time


def main(text: str, vectors: str, options: str) -> None:
    """Trains, and writes the vectors in word2vec's text format."""
    from gensim.models.word2vec import MAX_WORDS_IN_BATCH, Word2Vec

    lines = pathlib.Path(text).read_text().split('\n')
    sentences = [
        words[i : i + MAX_WORDS_IN_BATCH]
        for words in map(str.split, lines)
        for i in range(0, len(words), MAX_WORDS_IN_BATCH)
    ]
    given = json.loads(options)
    model = Word2Vec(**given)
    model.build_vocab(sentences)
    began = time.monotonic()
    model.train(
        sentences,
        total_examples=model.corpus_count,
        epochs=given.get('epochs', 1),
    )
    seconds = time.monotonic() - began
    model.wv.save_word2vec_format(vectors)
    print(json.dumps({'words': model.corpus_total_words, 'seconds': seconds}))


if __name__ == '__main__':
    main(*sys.argv[1:])
