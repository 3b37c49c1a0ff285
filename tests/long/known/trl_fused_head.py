"""trl: a model's `forward` is replaced by a method bound to the model."""

from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.utils import add_fused_lm_head


def model() -> LlamaForCausalLM:
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 4096}
    return LlamaForCausalLM(LlamaConfig(num_attention_heads=4, **sizes))


def leak() -> None:
    add_fused_lm_head(model())


def remedied() -> None:
    patched = model()
    add_fused_lm_head(patched)
    del patched.forward
