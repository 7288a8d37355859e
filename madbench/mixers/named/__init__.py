"""Family of named layers, such as KDA, GDN and Mamba-2: one file per operator, trained on any device.

Each layer has the parameters of a layer of flash-linear-attention 0.6 or of transformers, with the same names and
shapes, so that a state dict can be loaded in both directions. It is computed by operators of torch.
"""
