"""Models around a mixer: MAD's token model and autoencoder, the GPT of the language suite, the model of agents."""
