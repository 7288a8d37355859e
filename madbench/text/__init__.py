"""Text for the language models: sources of documents, tokenisers, prepared corpora, batches. Without torch."""
