"""Models around a mixer: MAD's token model and autoencoder, the language suite's GPT, and the model of agents."""
