"""Text for the language models: sources of documents, tokenisers, prepared corpora. Without torch."""
