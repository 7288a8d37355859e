"""Family of named layers, such as KDA, GDN and Mamba-2, trained on any device.

Each layer has the parameters of a layer of flash-linear-attention 0.6 or of transformers, with the same names and
shapes, so that a state dict can be loaded in both directions. The layers are computed with operations of torch.

Every operator is a file of ``operators/``, whose docstring has its equation. If an operator needs further files there,
their names start with the operator's name. The files in this folder are shared by the operators:

- labels: ``family`` has the family, ``arguments`` the text in parentheses, ``budget`` the choice of widths;
- without torch: ``operator`` has the interface of an operator, ``widths`` the widths to choose from, ``parts`` the
  declarations of parameters;
- three kinds of operators, each with a file for its interface and a file for the layer that computes it:

  - ``attention`` and ``attention_layer``: the cache grows by every token;
  - ``recurrent`` and ``recurrent_layer``: a recurrence of one matrix per head;
  - ``self_contained`` and ``self_contained_layer``: the operator computes its outputs and its state itself;

- ``layer`` has the base class of these layers;
- parts of several operators: ``delta_rule``, ``bounded_decay`` and ``chosen_blocks``;
- operations in torch: ``ops`` for all kinds, ``attention_ops``, ``recurrent_ops`` and ``rotations``;
- ``loops`` has functions of the reference loops, which share no code with the layers.
"""
