"""Models around a mixer: MAD's token model and autoencoder and the language suite's GPT."""
