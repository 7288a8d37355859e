"""Models around mixers: MAD's token model and autoencoder, a GPT-2 language model, and a model of real numbers."""
