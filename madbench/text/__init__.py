"""Text for the language models: sources of documents, tokenizers and prepared corpora. Nothing here imports torch."""
