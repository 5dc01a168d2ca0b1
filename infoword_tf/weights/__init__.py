"""Public weights: other people's folders and checkpoints, in and out.

    names            what each kind calls its weights: one map, both directions
    mapping          puts weights under other names, each checked
    architectures    what config.json says of an encoder, both directions
    pieces           tokenizers, both directions
    tensors          named arrays of files, read one at a time
    huggingface, sentence_transformers, google    the folders
    converted        what a source holds, and the workdir made of it
"""
