"""Language models of madbench as models of Hugging Face's transformers.

    import madbench.huggingface
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained("exported")  # of madbench lm export RUN --format hf
    tokenizer = AutoTokenizer.from_pretrained("exported")

Importing this package registers the model type with transformers, which has no entry point for it. Raises
``MissingExtraError`` without transformers.
"""

from madbench.errors import require

require("transformers", "madbench.huggingface", "transformers")

from madbench.huggingface.configuration import MadbenchConfig as MadbenchConfig  # noqa: E402
from madbench.huggingface.modeling import MadbenchForCausalLM as MadbenchForCausalLM  # noqa: E402
