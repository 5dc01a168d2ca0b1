"""Public weights: folders and checkpoints of other libraries, read and written.

    kinds               public models: settings and names of weights
    heads               heads on states, and settings of rows that have them
    names               forms and styles of such names
    mapping             weights under other names, each checked
    architectures       encoders in config.json, both directions
    tokenizer_reader    tokenizers of folders
    tokenizer_writer    tokenizers to folders
    unigram, characters       SentencePiece models and Unigram
    post_processors     special tokens around texts, both directions
    tensors             named arrays of files, read one at a time
    huggingface, sentence_transformers, google, keras_hub    the folders
    converted           public weights here, and the workdir made of them
"""
