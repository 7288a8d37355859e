"""The language suite: GPT-2-shaped language models on a corpus."""
