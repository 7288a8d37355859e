"""Models around mixers: MAD's token model and autoencoder, GPT-2's language model, and a model of real numbers."""
