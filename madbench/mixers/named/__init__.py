"""Family of named layers, such as KDA, GDN and Mamba-2: one file per operator, trained on any device.

Each layer has the parameters of the layer of flash-linear-attention 0.6 of the same name, with the same names and
shapes, so that a state dict can be loaded in both directions. It is computed by operators of torch.
"""
