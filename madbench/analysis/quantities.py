"""Names of what is measured besides the MAD tasks."""

MAD_AVERAGE = "mad_average"
"""The mean over the six tasks."""
LOSS = "loss_l5"
"""L5 of the language model."""
