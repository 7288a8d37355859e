"""Language models of madbench as models of Hugging Face's transformers.

    import madbench.huggingface
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained("exported")  # of madbench lm export RUN --format hf
    tokenizer = AutoTokenizer.from_pretrained("exported")

Importing this package registers the model type ``madbench`` with transformers, which does not find it by itself. Raises
``MissingExtraError`` if transformers is not installed.
"""

from madbench.errors import require

require("transformers", "madbench.huggingface", "transformers")

from madbench.huggingface.configuration import MadbenchConfig as MadbenchConfig  # noqa: E402
from madbench.huggingface.modeling import MadbenchForCausalLM as MadbenchForCausalLM  # noqa: E402
