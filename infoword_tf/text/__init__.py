"""Text: tokenizers, and learning what they know."""
