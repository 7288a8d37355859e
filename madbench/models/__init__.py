"""Models around a mixer: a token model for five MAD tasks and an autoencoder for compression."""
